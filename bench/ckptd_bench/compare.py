"""Measures ckptd beside what people use today, in pairs of runs, and says how each row came out.

bench/README.md says how each figure is taken.
"""

import argparse
import pathlib
import signal
import sys
import time

from . import machine, places, report
from . import series_resharding, series_restoring, series_saving, series_training
from .bench import Bench, Progress, Settings
from .fio import FioError
from .model import sizes_for
from .processes import MeasureError
from .rows import ROWS, Result

MEMORY_ROW = "daemon_rss_beyond_arena_mib"
# In this order: those that share trainers follow each other.
SERIES = (series_training, series_saving, series_restoring, series_resharding)


def series_for(names):
    """Those that measure the rows. The daemon's memory is watched through all that run."""
    chosen = [series for series in SERIES if set(series.ROW_NAMES) & set(names)]
    return chosen or [series_saving]


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), metavar="NAME",
                        help="measure these rows only: " + ", ".join(ROWS))
    parser.add_argument("--state-gib", type=float, default=4.0, metavar="G",
                        help="size of the training state (default 4)")
    parser.add_argument("--samples", type=int, default=7, metavar="N",
                        help="pairs of runs per row (default 7)")
    parser.add_argument("--folder", type=pathlib.Path, metavar="PATH",
                        help="where to write (default: in the build folder)")
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 0.05 <= options.state_gib <= 1024:
        parser.error(f"--state-gib {options.state_gib} is not between 0.05 and 1024")
    if options.samples < 1:
        parser.error(f"--samples {options.samples} is less than 1")
    return options


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


def stop_on(signal_number, _frame):
    raise KeyboardInterrupt(f"signal {signal_number}")


def main():
    options = parse_arguments()
    folder = options.folder or options.build / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(options.build.resolve(), folder.resolve(), options.state_gib, options.samples)
    common = {"machine": machine.describe(folder), "state_gib": options.state_gib}
    signal.signal(signal.SIGTERM, stop_on)
    started = time.monotonic()
    try:
        results = measure(settings, options.only or list(ROWS))
    except KeyboardInterrupt:
        print("interrupted; nothing is left behind", file=sys.stderr)
        return 130
    except (MeasureError, FioError, places.DoesNotFit) as error:
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
