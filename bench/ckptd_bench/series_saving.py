"""Saves while the trainers stand still: the fence at once, time until durable, the disk's speed."""

from . import fio, pairs, proc
from .bench import runs_of
from .rows import ROWS, Result
from .series_training import ASYNC, DCP_SAVE

FIO = "fio write"
OTHERS = ("torch.save", "safetensors.save_file")
COMPETITORS = (FIO, DCP_SAVE, *ASYNC, *OTHERS)
ROW_NAMES = ("blocked_back_to_back_vs_dcp_async", "durable_speedup_vs_dcp_save",
             "persist_vs_fio_write")


def runs(samples):
    return runs_of(COMPETITORS, samples)


def persist_seconds(record):
    """What the daemon says, but not less than from the fence until durable."""
    return max(record["persist_seconds"], record["durable_seconds"] - record["blocked_seconds"])


def measure(bench):
    trainers = bench.trainers()
    bench.warm_up((pairs.OURS, *ASYNC))

    def run(name):
        bench.make_cold()  # what others left to be written is written
        if name == FIO:
            rate = fio.write_rate(bench.folder / "fio", trainers.state_bytes, trainers.ranks)
            return {"rate": rate}, f"{rate / 1e9:.2f} GB/s"
        return _save(bench, trainers, name)

    return results(bench.sample("standing still", COMPETITORS, run), trainers.state_bytes)


def _save(bench, trainers, name):
    place = bench.new_place()
    process_ids = bench.all_process_ids()
    before = proc.usage(process_ids)
    record = trainers.slowest("save", name=name, **place)
    used = proc.usage(process_ids).since(before)
    bench.remove(name, place)
    record["processor_seconds"] = used.processor_seconds
    record["written_bytes"] = used.storage_written_bytes
    text = (f"blocked {record['blocked_seconds']:.3f} s, durable after "
            f"{record['durable_seconds']:.2f} s, {used.processor_seconds:.1f} s of processor")
    if name == pairs.OURS:
        record["rate"] = trainers.state_bytes / persist_seconds(record)
        text += f", persisted at {record['rate'] / 1e9:.2f} GB/s"
    return record, text


def results(found, state_bytes):
    """The rows of this series. Pure."""
    saves = {name: of_one for name, of_one in found.items() if name != FIO}
    blocked = pairs.figure(saves, "blocked_seconds")
    durable = pairs.figure(saves, "durable_seconds")
    rate = [pair.of("rate") for pair in found[FIO]]
    better = pairs.better_of({kind: blocked[kind] for kind in ASYNC})
    return [
        Result(ROWS["blocked_back_to_back_vs_dcp_async"], pairs.ratio(blocked[better]),
               len(blocked[better]),
               {"theirs_is": better, **pairs.describe(blocked[better], "s"),
                "value_against_each": {name: pairs.ratio(of_one)
                                       for name, of_one in blocked.items()}}),
        Result(ROWS["durable_speedup_vs_dcp_save"], pairs.inverse(durable[DCP_SAVE]),
               len(durable[DCP_SAVE]),
               {**pairs.describe(durable[DCP_SAVE], "s"),
                "speedup_over_each": {name: pairs.inverse(of_one)
                                      for name, of_one in durable.items()},
                "processor_seconds": pairs.medians(saves, "processor_seconds"),
                "written_to_state": {name: written / state_bytes for name, written
                                     in pairs.medians(saves, "written_bytes").items()}}),
        Result(ROWS["persist_vs_fio_write"], pairs.ratio(rate), len(rate),
               pairs.describe(rate, "bytes per second")),
    ]
