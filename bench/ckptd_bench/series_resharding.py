"""How many bytes are read from storage for each byte that somebody wants."""

import statistics

from . import pairs, proc
from .rows import ROWS, Result

SAVED = ("fsdp", 4)
# Into which layouts four ranks' FSDP2 checkpoint is loaded.
RESHARDED = {"4 to 2": ("fsdp", 2), "4 to 3": ("fsdp", 3), "to TP columns": ("columns", 2)}
SUBSET = ("eighth", 1)
ROW_NAMES = ("reshard_read_amplification", "subset_read_amplification")


def runs(samples):
    return (len(RESHARDED) + 1) * samples


def measure(bench):
    place = bench.new_place()
    saver = bench.trainers(*SAVED)
    bench.progress.say("saving by 4 ranks")
    saver.slowest("save", name=pairs.OURS, **place)
    whole_bytes = saver.state_bytes
    resharded = {title: _loads(bench, title, layout, place, whole_bytes)
                 for title, layout in RESHARDED.items()}
    subset = _loads(bench, "1/8 of all rows", SUBSET, place, None)
    bench.crash_trainers()
    bench.remove(pairs.OURS, place)
    return results(resharded, subset, len(bench.cluster.nodes))


def _loads(bench, title, layout, place, wanted_bytes):
    """[bytes read / distinct bytes wanted] of each sample. The lone rank's own are all distinct."""
    trainers = bench.trainers(*layout)
    wanted_bytes = wanted_bytes or trainers.state_bytes
    found = []
    for sample in range(bench.settings.samples):
        bench.restart_nodes()
        bench.make_cold()
        process_ids = bench.all_process_ids()
        before = proc.usage(process_ids)
        seconds = trainers.slowest("load", name=pairs.OURS, **place)["seconds"]
        read_bytes = proc.usage(process_ids).since(before).storage_read_bytes
        found.append(read_bytes / wanted_bytes)
        bench.progress.ran(f"{title} {sample + 1}/{bench.settings.samples}: {seconds:.2f} s, "
                           f"{found[-1]:.3f} bytes read for each wanted")
    return found


def results(resharded, subset, node_daemons):
    """The rows of this series; of several layouts the worst counts. Pure."""
    medians = {title: statistics.median(found) for title, found in resharded.items()}
    worst = max(medians, key=medians.get)
    detail = {"node_daemons": node_daemons}
    return [
        Result(ROWS["reshard_read_amplification"], medians[worst], len(resharded[worst]),
               {**detail, "worst": worst, "each": {title: pairs.spread(found)
                                                   for title, found in resharded.items()}}),
        Result(ROWS["subset_read_amplification"], statistics.median(subset), len(subset),
               {**detail, "spread": pairs.spread(subset)}),
    ]
