"""Restores: right after a crash, and with nothing in any cache."""

import statistics

from . import fio, pairs, proc
from .bench import runs_of
from .rows import ROWS, Result

MEMCPY = "memcpy"
FIO = "fio read"
DCP_LOAD = "dcp.load"
# Who loads, and who saved it: competitors are named after their saving half.
SAVED_BY = {pairs.OURS: pairs.OURS, DCP_LOAD: "dcp.save", "torch.load": "torch.save",
            "safetensors.load_file": "safetensors.save_file"}
THEIRS = tuple(name for name in SAVED_BY if name != pairs.OURS)
COLD_COMPETITORS = (FIO, *THEIRS)
ROW_NAMES = ("memory_restore_vs_memcpy", "restore_speedup_vs_dcp_load", "restore_vs_fio_read")


def runs(samples):
    return runs_of((MEMCPY,), samples) + runs_of(COLD_COMPETITORS, samples)


def measure(bench):
    ours = bench.new_place()
    bench.trainers().slowest("save", name=pairs.OURS, **ours)
    bench.progress.say("all trainers die by SIGKILL")
    bench.crash_trainers()
    trainers = bench.trainers()
    after_crash = _after_crash(bench, trainers, ours)
    cold = _cold(bench, trainers, ours)
    bench.remove(pairs.OURS, ours)
    return results(after_crash, cold, trainers.state_bytes)


def _load(bench, trainers, name, place):
    """What one load took, in time, in processor time and in bytes from storage."""
    process_ids = bench.all_process_ids()
    before = proc.usage(process_ids)
    record = trainers.slowest("load", name=SAVED_BY[name], **place)
    used = proc.usage(process_ids).since(before)
    record["rate"] = trainers.state_bytes / record["seconds"]
    record["read_bytes"] = used.storage_read_bytes
    record["processor_seconds"] = used.processor_seconds
    return record, (f"{record['seconds']:.2f} s, {used.storage_read_bytes / 1e9:.2f} GB from storage, "
                    f"{used.processor_seconds:.1f} s of processor")


def _after_crash(bench, trainers, ours):
    trainers.slowest("memcpy")  # touches the copy's memory

    def run(name):
        if name == MEMCPY:
            seconds = trainers.slowest("memcpy")["seconds"]
            return {"rate": trainers.state_bytes / seconds}, f"{seconds:.2f} s"
        return _load(bench, trainers, name, ours)

    return bench.sample("after the crash", (MEMCPY,), run)


def _cold(bench, trainers, ours):
    little = bench.new_place()
    trainers.all_do("save_little", step=little["step"])
    saved = {pairs.OURS: ours}
    for name in THEIRS:
        bench.progress.say(f"saving by {SAVED_BY[name]}, to be loaded")
        saved[name] = bench.new_place()
        trainers.slowest("save", name=SAVED_BY[name], **saved[name])

    def run(name):
        reconnected = None
        if name == pairs.OURS:
            bench.restart_nodes()  # nothing of the checkpoint is in the arena
            reconnected = trainers.slowest("reconnect", step=little["step"])["seconds"]
        bench.make_cold()
        if name == FIO:
            rate = fio.read_rate(bench.files_of_ours(ours))
            return {"rate": rate}, f"{rate / 1e9:.2f} GB/s"
        record, text = _load(bench, trainers, name, saved[name])
        return {**record, "reconnect_seconds": reconnected}, text

    found = bench.sample("cold", COLD_COMPETITORS, run)
    for name in THEIRS:
        bench.remove(name, saved[name])
    bench.remove(pairs.OURS, little)
    return found


def results(after_crash, cold, state_bytes):
    """The rows of this series. Pure."""
    memory = after_crash[MEMCPY]
    memory_rate = [pair.of("rate") for pair in memory]
    read_rate = [pair.of("rate") for pair in cold[FIO]]
    loads = {name: of_one for name, of_one in cold.items() if name != FIO}
    seconds = pairs.figure(loads, "seconds")
    return [
        Result(ROWS["memory_restore_vs_memcpy"], pairs.ratio(memory_rate), len(memory),
               {**pairs.describe(memory_rate, "bytes per second"),
                "read_from_storage_to_state": _median_of_ours(memory, "read_bytes") / state_bytes}),
        Result(ROWS["restore_speedup_vs_dcp_load"], pairs.inverse(seconds[DCP_LOAD]),
               len(seconds[DCP_LOAD]),
               {**pairs.describe(seconds[DCP_LOAD], "s"),
                "speedup_over_each": {name: pairs.inverse(of_one)
                                      for name, of_one in seconds.items()},
                "read_from_storage_to_state": {
                    name: min(pair.theirs["read_bytes"] for pair in of_one) / state_bytes
                    for name, of_one in loads.items()} | {
                        pairs.OURS: _median_of_ours(cold[DCP_LOAD], "read_bytes") / state_bytes},
                "reconnect_seconds_not_counted":
                    _median_of_ours(cold[DCP_LOAD], "reconnect_seconds"),
                "processor_seconds": pairs.medians(loads, "processor_seconds")}),
        Result(ROWS["restore_vs_fio_read"], pairs.ratio(read_rate), len(read_rate),
               pairs.describe(read_rate, "bytes per second")),
    ]


def _median_of_ours(of_one, figure):
    return statistics.median(pair.ours[figure] for pair in of_one)
