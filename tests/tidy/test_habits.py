"""House rules that a program can check. Each exception is named here, with its reason."""

import ast
import re

import tree

MAXIMUM_LINES = 600
TEXT_SUFFIXES = (".cc", ".h", ".c", ".py", ".sh", ".proto", ".txt", ".cmake")
PRODUCT_FOLDERS = ["client", "daemon", "storage"]

# Files come only through storage/file_system. These open no checkpoint's file:
RAW_FILE_ACCESS = {
    "daemon/node": "memfds, pidfds and /proc of the trainers; its own sockets",
    "daemon/server": "sockets, the configuration and the certificates",
    "client/cpp": "the node's sockets and the arena's memfds",
    "client/ctl": "the terminal and the node's socket",
    "daemon/coordinator/catalog": "RocksDB's own folder",
    "proto/rpc": "descriptors in handle-socket packets",
}
RAW_FILE_CALLS = re.compile(
    r"::open(at)?\(|::creat\(|::rename(at2?)?\(|::unlink(at)?\(|::mkdir(at)?\(|\bfopen\(|"
    r"std::filesystem|std::o?i?fstream")


def allowed_raw_access(path):
    return str(path).startswith("storage/file_system/") or any(
        str(path).startswith(folder) for folder in RAW_FILE_ACCESS)


def test_files_are_opened_only_in_storage_file_system():
    breaks = [f"{path}:{number}: {line.strip()}"
              for path in tree.files(*tree.CXX_SUFFIXES, folders=PRODUCT_FOLDERS)
              if not allowed_raw_access(path)
              for number, line in tree.code_lines(path) if RAW_FILE_CALLS.search(line)]
    assert breaks == []


def test_the_clock_is_read_only_in_daemon_runtime():
    # gRPC takes a call's deadline as a time of day: no decision of ours rests on it.
    breaks = [f"{path}:{number}: {line.strip()}"
              for path in tree.files(*tree.CXX_SUFFIXES, folders=["daemon/coordinator", "daemon/node", "storage"])
              for number, line in tree.code_lines(path)
              if re.search(r"absl::Now\(|system_clock::now|steady_clock::now", line)
              and "set_deadline(" not in line]
    assert breaks == []


def test_no_file_is_longer_than_a_reader_can_hold():
    too_long = {str(path): count for path in tree.files(*TEXT_SUFFIXES)
                if (count := tree.read(path).count("\n")) > MAXIMUM_LINES}
    assert too_long == {}


def imported_modules(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_nothing_of_ours_imports_pickle():
    unsafe = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
    breaks = {str(path): sorted(found) for path in tree.files(".py")
              if (found := unsafe & set(imported_modules(tree.read(path))))}
    assert breaks == {}


def test_nothing_is_left_to_do():
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|HA" r"CK|X{3})\b")
    breaks = [f"{path}:{number}: {line.strip()}" for path in tree.files(*TEXT_SUFFIXES)
              for number, line in enumerate(tree.read(path).splitlines(), start=1)
              if marks.search(line)]
    assert breaks == []


def test_a_header_guard_is_named_after_its_file():
    breaks = []
    for path in tree.files(".h"):
        guard = "CKPTD_" + re.sub(r"[^A-Z0-9]", "_", str(path).upper()) + "_"
        text = tree.read(path)
        if f"#ifndef {guard}\n#define {guard}\n" not in text or not text.rstrip().endswith(
                (f"#endif  // {guard}", f"#endif /* {guard} */")):  # a C header
            breaks.append(f"{path}: {guard}")
    assert breaks == []


def test_every_header_and_program_of_the_product_begins_with_what_it_is_for():
    breaks = [str(path) for path in tree.files(".h", folders=PRODUCT_FOLDERS)
              if not tree.read(path).startswith(("//", "/*"))]
    assert breaks == []


def test_no_thread_is_detached():
    breaks = [f"{path}:{number}" for path in tree.files(*tree.CXX_SUFFIXES)
              for number, line in tree.code_lines(path) if re.search(r"\.detach\(\)", line)]
    assert breaks == []


def test_scripts_say_what_they_run_under():
    breaks = [str(path) for path in tree.files(".sh")
              if (tree.ROOT / path).stat().st_mode & 0o100
              and not tree.read(path).startswith("#!/usr/bin/env bash\n")]
    assert breaks == []
