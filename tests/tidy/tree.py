"""The tree as the tidy tests see it: its own files, its includes, its module table."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_FOLDERS = ["bench", "client", "daemon", "deploy", "proto", "storage", "tests"]
CXX_SUFFIXES = {".cc", ".h", ".c"}
# Folders that hold what was made, not written.
GENERATED = re.compile(r"(^|/)(build[^/]*|__pycache__|\.pytest_cache|[^/]*\.egg-info|venv)(/|$)")


def files(*suffixes, folders=CODE_FOLDERS):
    """The tree's files with one of the suffixes, as paths relative to its root."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT)
            if path.suffix in suffixes and path.is_file() and not GENERATED.search(str(relative)):
                yield relative


def read(relative):
    return (ROOT / relative).read_text(encoding="utf-8")


def code_lines(relative):
    """(number, line without its // comment) of a C++ file."""
    for number, line in enumerate(read(relative).splitlines(), start=1):
        yield number, re.sub(r"(^|\s)//.*", "", line)


def includes(relative):
    """The files of this tree that a C++ file includes by name, generated ones as
    if they lay beside their .proto."""
    for number, line in enumerate(read(relative).splitlines(), start=1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        name = match.group(1)
        if name.startswith("ckptd/v1/"):
            name = "proto/" + name
        if name.split("/")[0] in CODE_FOLDERS:
            yield number, name


def module_table():
    """{folder: text of its "may include" column} as docs/architecture.md has it."""
    rows = re.findall(r"^\| `([a-z_0-9/]+)` \|[^|]*\| ([^|]+) \|$",
                      (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {folder: allowed.strip() for folder, allowed in rows}
