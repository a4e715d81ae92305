"""Runs the Python tests and counts them. Not one collected is a failure."""

import argparse
import pathlib
import subprocess
import xml.etree.ElementTree as xml

FOLDERS = ["tests/tidy", "tests/python"]


def run_folder(python, folder, results):
    """(passed, failed, skipped)"""
    report_path = results / f"pytest-{folder.replace('/', '-')}.xml"
    # "not found" and "nothing collected" leave no report, or an empty one.
    subprocess.run([python, "-m", "pytest", "-q", "--durations=5", f"--junitxml={report_path}", folder])
    try:
        suite = xml.parse(report_path).getroot().find("testsuite")
        counts = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    except (OSError, xml.ParseError):
        return 0, 1, 0
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    return passed, failed if passed + failed else 1, counts["skipped"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--results", required=True, type=pathlib.Path)
    options = parser.parse_args()
    for folder in filter(lambda name: pathlib.Path(name).is_dir(), FOLDERS):
        passed, failed, skipped = run_folder(options.python, folder, options.results)
        name = folder.replace("/", "-")
        (options.results / f"{name}.count").write_text(f"{passed} {failed} {skipped}\n")
        note = f" ({skipped} skipped)" if skipped else ""
        print(f"{folder:<34} {passed:>6} passed, {failed} failed{note}", flush=True)


if __name__ == "__main__":
    main()
