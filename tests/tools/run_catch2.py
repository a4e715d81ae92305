"""Runs every C++ test program that a build folder registered with CTest, two at a
time, and counts their test cases. A program that dies counts as one failed test. Cases
tagged [root] are skipped where this runs as another user, [not root] where as root."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree as xml

TIMEOUT_SECONDS = 1200
SKIPPED_TAG = "[not root]" if os.geteuid() == 0 else "[root]"


def registered_tests(build):
    listing = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"],
        check=True, capture_output=True, text=True).stdout
    return [(test["name"], test["command"]) for test in json.loads(listing)["tests"]
            if "command" in test]


def failed_cases(report):
    """What a person needs to see of each failed test case."""
    lines = []
    for case in report.iter("TestCase"):
        result = case.find("OverallResult")
        if result is None or result.get("success") == "true":
            continue
        lines.append(f"{case.get('name')}  ({case.get('filename')}:{case.get('line')})")
        for expression in case.iter("Expression"):
            if expression.get("success") == "false":
                lines.append(f"  {expression.get('filename')}:{expression.get('line')}: "
                             f"{(expression.findtext('Original') or '').strip()}")
                lines.append(f"    is {(expression.findtext('Expanded') or '').strip()}")
        for note in [*case.iter("Failure"), *case.iter("Exception"), *case.iter("FatalErrorCondition")]:
            lines.append(f"  {note.get('filename', '')}:{note.get('line', '')}: "
                         f"{(note.text or '').strip()}")
        for output in [*case.iter("StdOut"), *case.iter("StdErr")]:
            lines.append((output.text or "").strip()[-4000:])
    return lines


def count_skipped(command):
    listing = subprocess.run([*command, "--list-test-names-only", SKIPPED_TAG],
                             capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return len(listing.stdout.splitlines())


def run_program(name, command, results):
    """(name, passed, failed, lines that explain what failed)"""
    report_path = results / f"{name}.xml"
    try:
        process = subprocess.run([*command, f"~{SKIPPED_TAG}", "-r", "xml", "-o", str(report_path)],
                                 capture_output=True, text=True, errors="replace",
                                 timeout=TIMEOUT_SECONDS)
        output, status = process.stdout + process.stderr, process.returncode
    except subprocess.TimeoutExpired:
        return name, 0, 1, [f"{name} did not end within {TIMEOUT_SECONDS} s"]
    except OSError as error:
        return name, 0, 1, [str(error)]
    try:
        report = xml.parse(report_path).getroot()
        # Several elements in a Catch2 of version 2: one per group, then the total.
        cases = report.findall("OverallResultsCases")[-1]
        passed, failed = int(cases.get("successes")), int(cases.get("failures"))
    except (OSError, xml.ParseError, IndexError):
        return name, 0, 1, [f"{name} died with status {status}", output[-8000:]]
    lines = failed_cases(report)
    if status != 0 and failed == 0:  # a sanitizer's report after the last test, say
        failed = 1
    if failed:
        lines.append(output[-8000:])
    return name, passed, failed, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--results", required=True, type=pathlib.Path)
    options = parser.parse_args()
    folder = options.results / f"catch2-{options.name.replace('+', 'p')}"
    folder.mkdir(parents=True, exist_ok=True)
    commands = dict(registered_tests(options.build))
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        runs = [pool.submit(run_program, name, command, folder)
                for name, command in commands.items()]
        for run in concurrent.futures.as_completed(runs):
            name, passed, failed, lines = run.result()
            skipped = count_skipped(commands[name])
            note = f" ({skipped} skipped)" if skipped else ""
            title = f"{options.name}: {name}"
            print(f"{title:<34} {passed:>6} passed, {failed} failed{note}", flush=True)
            for line in lines:
                print("     |", line.replace("\n", "\n     | "), flush=True)
            count = options.results / f"{folder.name}-{name}.count"
            count.write_text(f"{passed} {failed} {skipped}\n")


if __name__ == "__main__":
    main()
