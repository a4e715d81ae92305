"""Saves in the middle of training: what blocks it, and what slows its steps."""

import statistics

from . import pairs
from .bench import runs_of
from .rows import ROWS, Result

DCP_SAVE = "dcp.save"
ASYNC = ("dcp.async_save thread", "dcp.async_save process")
# Documented as needing an accelerator; measured, and told apart (bench/README.md).
IN_BACKGROUND = "dcp.async_save staged in background"
COMPETITORS = (DCP_SAVE, *ASYNC, IN_BACKGROUND)
ROW_NAMES = ("blocked_vs_dcp_save", "blocked_vs_dcp_async", "step_slowdown_vs_dcp_async")
STEP_SECONDS_RANGE = (0.8, 1.2)


def runs(samples):
    return runs_of(COMPETITORS, samples)


def measure(bench):
    trainers = bench.trainers()
    calibrated = trainers.slowest("calibrate")
    bench.progress.say(f"a training step takes {calibrated['step_seconds']:.2f} s "
                       f"({calibrated['sequences']} sequences in each rank)")
    bench.warm_up((pairs.OURS, *ASYNC, IN_BACKGROUND))

    def run(name):
        place = bench.new_place()
        record = trainers.slowest("train_with_save", name=name, **place)
        bench.remove(name, place)
        return record, (f"blocked {record['blocked_seconds']:.3f} s, {record['extra_seconds']:.2f} s "
                        f"longer over {record['steps']} steps")

    found = bench.sample("in training", COMPETITORS, run)
    trainers.all_do("close", names=[IN_BACKGROUND])
    return results(found)


def results(found):
    """The rows of this series. Pure."""
    steps = [record["step_seconds"] for of_one in found.values() for pair in of_one
             for record in (pair.ours, pair.theirs)]
    low, high = STEP_SECONDS_RANGE
    detail = {"step_seconds": pairs.spread(steps),
              "step_is_one_second": low <= statistics.median(steps) <= high}
    blocked = pairs.figure(found, "blocked_seconds")
    extra = pairs.figure(found, "extra_seconds")
    return [
        _row("blocked_vs_dcp_save", blocked[DCP_SAVE], "s", detail),
        _against_the_better("blocked_vs_dcp_async", blocked, detail),
        _against_the_better("step_slowdown_vs_dcp_async", extra, detail),
    ]


def _row(name, of_one, unit, detail):
    return Result(ROWS[name], pairs.ratio(of_one), len(of_one),
                  {**detail, **pairs.describe(of_one, unit)})


def _against_the_better(name, by_competitor, detail):
    better = pairs.better_of({kind: by_competitor[kind] for kind in ASYNC})
    others = {other: pairs.describe(by_competitor[other], "s")["ratio_ours_to_theirs"]["median"]
              for other in (*ASYNC, IN_BACKGROUND)}
    return _row(name, by_competitor[better], "s",
                {**detail, "theirs_is": better, "value_against_each": others})
