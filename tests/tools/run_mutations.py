"""Applies each patch of tests/mutations/ to a scratch copy of the tree, builds, and runs
the tests that the patch names. They must pass before and fail after."""

import argparse
import dataclasses
import enum
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_SECONDS = 3600
TEST_TIMEOUT_SECONDS = 300
NOT_SOURCES = re.compile(r"build.*|\.git|__pycache__|.*\.egg-info")


@dataclasses.dataclass(frozen=True)
class NamedTest:
    kind: str    # "cpp" or "pytest"
    target: str  # CMake target, or the pytest id
    case: str    # the Catch2 test case's name; empty for pytest


class Outcome(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    HUNG = "hung"
    MISSING = "is not there"


def parse_tests(patch):
    """The tests that the patch's header names; ValueError if there are none."""
    header = patch.read_text(encoding="utf-8").split("\ndiff ", 1)[0]
    tests = []
    for line in re.findall(r"^Test: (.+)$", header, re.MULTILINE):
        words = shlex.split(line)
        if words[0] == "cpp" and len(words) == 3:
            tests.append(NamedTest("cpp", words[1], words[2]))
        elif words[0] == "pytest" and len(words) == 2:
            tests.append(NamedTest("pytest", words[1], ""))
        else:
            raise ValueError(f"not understood: Test: {line}")
    if not tests:
        raise ValueError("the header names no test")
    return tests


def tree_files(root):
    """The sources under `root`, relative to it."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not NOT_SOURCES.match(name)]
        for name in names:
            yield (pathlib.Path(folder) / name).relative_to(root)


class ScratchTree:
    """A copy of the tree with a build folder of its own."""

    def __init__(self, folder, python):
        self._folder = folder
        self._python = python
        self._packages = folder / "build/packages"
        self._environment = dict(os.environ, CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR="1",
                                 PYTHONPATH=str(self._packages))
        self._log = ""

    def copy(self):
        """Brings the sources to the state of the tree. Files that are alike keep their
        times, so that only what a patch touched is built again."""
        wanted = set(tree_files(ROOT))
        if self._folder.exists():
            for relative in set(tree_files(self._folder)) - wanted:
                (self._folder / relative).unlink()
        for relative in wanted:
            source, copy = ROOT / relative, self._folder / relative
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)

    def apply(self, patch):
        return self._run(["patch", "-p1", "--no-backup-if-mismatch", "-i", str(patch)])

    def build(self, tests):
        targets = {test.target for test in tests if test.kind == "cpp"}
        python_tests = any(test.kind == "pytest" for test in tests)
        if python_tests:
            targets |= {"ckptd", "ckptctl"}
        return (self._run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja"])
                and self._run(["ninja", "-C", "build", *sorted(targets)])
                and (not python_tests or self._install_package()))

    def _install_package(self):
        shutil.rmtree(self._packages, ignore_errors=True)
        return self._run([self._python, "-m", "pip", "install", "--quiet", "--no-deps",
                          "--target", str(self._packages), "./client/python"])

    def outcome(self, test):
        if test.kind == "pytest":
            return self._outcome([self._python, "-m", "pytest", "-q", test.target],
                                 ("no tests ran", "ERROR: not found"))
        program = next(iter((self._folder / "build").glob(f"tests/**/{test.target}")), None)
        if program is None:
            return Outcome.MISSING
        # A comma separates names in Catch2, brackets are tags: both are escaped.
        case = re.sub(r"([,\[\]\\*])", r"\\\1", test.case)
        return self._outcome([str(program), case], ("No test cases matched",))

    def _outcome(self, command, signs_of_absence):
        try:
            passed = self._run(command, TEST_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome.HUNG
        if any(sign in self._log for sign in signs_of_absence):
            return Outcome.MISSING
        return Outcome.PASSED if passed else Outcome.FAILED

    def last_output(self):
        return self._log

    def _run(self, command, timeout_seconds=BUILD_TIMEOUT_SECONDS):
        process = subprocess.run(command, cwd=self._folder, env=self._environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 errors="replace", timeout=timeout_seconds)
        self._log = process.stdout
        return process.returncode == 0


def problem_of(patch, tests, scratch):
    """None if every named test fails under the patch, else what is wrong."""
    scratch.copy()
    if not scratch.apply(patch):
        return f"does not apply:\n{scratch.last_output()}"
    if not scratch.build(tests):
        return f"does not build:\n{scratch.last_output()[-4000:]}"
    for test in tests:
        outcome = scratch.outcome(test)
        if outcome is not Outcome.FAILED:  # one that waits for ever says nothing of why
            return f"{test.kind} {test.target} {test.case} {outcome.value} instead of failing"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--results", required=True, type=pathlib.Path)
    options = parser.parse_args()
    patches = sorted((ROOT / "tests/mutations").glob("*.patch"))
    scratch = ScratchTree(ROOT / "build/mutations/tree", str(pathlib.Path(options.python).absolute()))
    passed = failed = 0

    def judge(name, problem):
        nonlocal passed, failed
        passed, failed = passed + (problem is None), failed + (problem is not None)
        print(f"{name:<58} {'caught' if problem is None else 'NOT CAUGHT: ' + problem}", flush=True)
        (options.results / "mutations.count").write_text(f"{passed} {failed}\n")

    tests_of = {}
    for patch in patches:
        try:
            tests_of[patch] = parse_tests(patch)
        except ValueError as error:
            judge(patch.name, str(error))
    scratch.copy()
    named = sorted({test for tests in tests_of.values() for test in tests},
                   key=lambda test: (test.kind, test.target, test.case))
    if named and not scratch.build(named):
        sys.exit(f"the unchanged tree does not build:\n{scratch.last_output()[-4000:]}")
    broken = {test: scratch.last_output() for test in named
              if scratch.outcome(test) is not Outcome.PASSED}
    for patch, tests in tests_of.items():
        unusable = [f"{test.target} {test.case} does not pass without the patch:\n{broken[test][-4000:]}"
                    for test in tests if test in broken]
        judge(patch.name, "\n".join(unusable) or problem_of(patch, tests, scratch))


if __name__ == "__main__":
    main()
