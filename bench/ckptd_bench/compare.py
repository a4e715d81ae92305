"""Measures ckptd beside what people use today, in pairs of runs, and says how each row came out.

bench/README.md says how each figure is taken.
"""

import sys
import time

from . import compare_options, machine, places, report, stopping
from . import series_resharding, series_restoring, series_saving, series_training
from .bench import Bench, Progress, Settings
from .fio import FioError
from .model import sizes_for
from .processes import DaemonError, MeasureError
from .rows import ROWS, Result

MEMORY_ROW = "daemon_rss_beyond_arena_mib"
# In this order: those that share trainers follow each other.
SERIES = (series_training, series_saving, series_restoring, series_resharding)


def series_for(names):
    """Those that measure the rows. The daemon's memory is watched through all that run."""
    chosen = [series for series in SERIES if set(series.ROW_NAMES) & set(names)]
    return chosen or [series_saving]


def measure(settings, names):
    """The rows, in the order of the table."""
    chosen = series_for(names)
    results = []
    progress = Progress(sum(series.runs(settings.samples) for series in chosen))
    progress.say(places.check_fits(settings.folder, sizes_for(settings.state_gib).state_bytes))
    with Bench(settings, progress) as bench:
        for series in chosen:
            results += series.measure(bench)
        results.append(report.memory_result(ROWS[MEMORY_ROW], bench.memory.samples_bytes, Result))
    by_name = {result.row.name: result for result in results}
    return [by_name[name] for name in ROWS if name in names]


def main():
    options = compare_options.parser().parse_args()
    folder = options.folder or options.build / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(options.build.resolve(), folder.resolve(), options.state_gib, options.samples)
    common = {"machine": machine.describe(folder), "state_gib": options.state_gib}
    stopping.on_signals()
    started = time.monotonic()
    try:
        results = measure(settings, options.only or list(ROWS))
    except KeyboardInterrupt:
        print("interrupted; nothing is left behind", file=sys.stderr)
        return stopping.EXIT_STATUS
    except (MeasureError, DaemonError, FioError, places.DoesNotFit) as error:
        print(f"bench/compare: {error}", file=sys.stderr)
        return 1
    print()
    print("\n".join(report.table(results)))
    print("\nmedians behind them:")
    print("\n".join(report.seconds_table(results)))
    print(f"\n{options.samples} samples of a state of {options.state_gib:g} GiB, "
          f"{(time.monotonic() - started) / 60:.0f} min")
    if options.json:
        report.write_json(options.json, results, common)
    return 0


if __name__ == "__main__":
    sys.exit(main())
