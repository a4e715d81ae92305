"""Where the measurement writes, whether it fits there, and how its pages leave the cache."""

import dataclasses
import os
import pathlib
import shutil

GIB = 1 << 30
# What lies on storage at the same time, in states: ours and three of theirs to be loaded.
STATES_ON_STORAGE = 4
# What lies in memory: the trainers' state, two staging copies of dcp's, our arena.
STATES_IN_MEMORY = 4.2
OTHER_MEMORY_BYTES = 2 * GIB
OTHER_STORAGE_BYTES = GIB


class DoesNotFit(Exception):
    """The measurement can't run here; says what is short and what to do."""


@dataclasses.dataclass(frozen=True)
class Need:
    where: str
    bytes: int
    advice: str


def needs(state_bytes, folder):
    """What a whole measurement takes. Pure."""
    return (Need(f"in {folder}", STATES_ON_STORAGE * state_bytes + OTHER_STORAGE_BYTES,
                 "free space or take another --folder"),
            Need("of memory", int(STATES_IN_MEMORY * state_bytes) + OTHER_MEMORY_BYTES,
                 "stop other programs"),
            Need("in /dev/shm, for dcp's staging", 2 * state_bytes, "make it larger"))


def shortages(needed, free):
    """What is missing, one sentence each. Pure."""
    return [f"{need.bytes / GIB:.1f} GiB {need.where} are needed and {there / GIB:.1f} GiB are free: "
            f"{need.advice}, or take a smaller --state-gib"
            for need, there in zip(needed, free, strict=True) if there < need.bytes]


def check_fits(folder, state_bytes):
    """Returns a sentence on what is needed; raises DoesNotFit."""
    needed = needs(state_bytes, folder)
    free = (shutil.disk_usage(folder).free, _available_memory_bytes(),
            shutil.disk_usage("/dev/shm").free)
    missing = shortages(needed, free)
    if missing:
        raise DoesNotFit("\n".join(missing))
    return "needs " + ", ".join(
        f"{need.bytes / GIB:.1f} GiB {need.where} ({there / GIB:.1f} free)"
        for need, there in zip(needed, free, strict=True))


def _available_memory_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise DoesNotFit("/proc/meminfo does not say how much memory is available")


def files_below(folder):
    return [path for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()]


def make_cold(folder):
    """What was written below the folder is on storage and not in the page cache.

    Not by /proc/sys/vm/drop_caches: that also takes the pages of the programs measured, and
    they would read those again instead of the checkpoint.
    """
    os.sync()
    for path in files_below(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def sync_file(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder):
    """The folder's entries, and its own entry in its parent."""
    sync_file(folder)
    sync_file(pathlib.Path(folder).parent)
