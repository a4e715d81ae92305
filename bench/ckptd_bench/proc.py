"""What the kernel says about processes: bytes from storage, processor time, memory.

Parsers take the text of a file under /proc and are pure; the rest reads those files.
"""

import dataclasses
import os
import pathlib
import threading

MIB = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def parse_fields(text):
    """{name: first number} of lines such as "VmRSS:   123 kB"."""
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0])
    return fields


def parse_processor_seconds(stat_text):
    """User and system time of a process, with those of children that it waited for."""
    after_name = stat_text.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in after_name[11:15]) / TICKS_PER_SECOND


def parse_parent(stat_text):
    return int(stat_text.rpartition(")")[2].split()[1])


def resident_beyond_slabs_bytes(status_text):
    """Slabs are a daemon's only shared memory, so all else is what is anonymous or a file's."""
    fields = parse_fields(status_text)
    return (fields["RssAnon"] + fields["RssFile"]) * 1024


def read(process_id, name):
    return pathlib.Path(f"/proc/{process_id}/{name}").read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Usage:
    """What some processes had used, together, at one moment."""

    storage_read_bytes: int   # fetched from storage for them, whatever asked for it
    storage_written_bytes: int
    processor_seconds: float

    def since(self, earlier):
        return Usage(*(now - then for now, then in zip(
            dataclasses.astuple(self), dataclasses.astuple(earlier), strict=True)))


def usage(process_ids):
    """Raises ProcessLookupError if one of them is gone."""
    io = [parse_fields(read(process_id, "io")) for process_id in process_ids]
    return Usage(sum(fields["read_bytes"] for fields in io),
                 sum(fields["write_bytes"] for fields in io),
                 sum(parse_processor_seconds(read(pid, "stat")) for pid in process_ids))


def with_children(process_ids):
    """These processes and their children, such as the savers that dcp starts."""
    found = list(process_ids)
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if parse_parent(read(entry.name, "stat")) in process_ids:
                    found.append(int(entry.name))
            except OSError:
                pass  # it ended meanwhile
    return found


class MemoryWatch:
    """Keeps looking at a process's resident memory beside its slabs."""

    def __init__(self, period_seconds=0.1):
        self.samples_bytes = []
        self._period_seconds = period_seconds
        self._process_id = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, process_id):
        """From now on this one; None: none."""
        self._process_id = process_id

    def _run(self):
        while not self._stopping.wait(self._period_seconds):
            process_id = self._process_id
            if process_id is None:
                continue
            try:
                self.samples_bytes.append(resident_beyond_slabs_bytes(read(process_id, "status")))
            except (OSError, KeyError):
                pass  # it is just being replaced

    def stop(self):
        self._stopping.set()
        self._thread.join()
