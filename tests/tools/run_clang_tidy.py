"""clang-tidy, with clang's own warnings and its analysis of lock annotations, over every
C++ source of ours, as many at a time as there are cores."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sources_of(build):
    """Compiled files of the tree, without generated ones."""
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    files = {pathlib.Path(command["directory"], command["file"]).resolve() for command in commands}
    build = pathlib.Path(build).resolve()
    return sorted(file for file in files if ROOT in file.parents and build not in file.parents)


def check(build, file):
    process = subprocess.run(["clang-tidy", "--quiet", "--extra-arg=-Wthread-safety", "-p", build,
                              str(file)],
                             capture_output=True, text=True)
    return file, process.returncode, process.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    files = sources_of(options.build)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, status, output in pool.map(lambda file: check(options.build, file), files):
            print("ok" if status == 0 else "FAILED", file.relative_to(ROOT))
            if status != 0:
                failed += 1
                print(output)
    print(f"{len(files)} files, {failed} with findings")
    sys.exit(1 if failed or not files else 0)


if __name__ == "__main__":
    main()
