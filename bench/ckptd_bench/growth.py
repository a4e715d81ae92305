"""Whether a process grew over many saves. Pure.

Memory goes up and down by the allocator's whim, so it is judged by the straight line through all
samples after the warm-up: what it gains from there to the end. Descriptors, threads and
mappings are whole numbers at rest: the most at the end against the most after the warm-up.
"""

import dataclasses
import statistics

COUNTS = ("descriptors", "threads", "mappings")
# Of 16 MiB and more that go through at each save. A leaked request or a leaked entry of a table
# is larger than this.
ALLOWED_BYTES_PER_SAVE = 2048
END_SAMPLES = 10


@dataclasses.dataclass(frozen=True)
class Sample:
    """A process at rest after so many saves."""

    saves: int
    resident_bytes: int
    descriptors: int
    threads: int
    mappings: int


def bytes_per_save(samples):
    """The slope of the line of least squares through the resident bytes."""
    return statistics.linear_regression([sample.saves for sample in samples],
                                        [sample.resident_bytes for sample in samples]).slope


def growths(samples, warm_up_saves):
    """What grew, one sentence each."""
    settled = [sample for sample in samples if sample.saves >= warm_up_saves]
    found = []
    slope = bytes_per_save(settled)
    if slope > ALLOWED_BYTES_PER_SAVE:
        found.append(f"memory grows by {slope / 1024:.1f} KiB per save")
    for name in COUNTS:
        first = max(getattr(sample, name) for sample in settled[:END_SAMPLES])
        last = max(getattr(sample, name) for sample in settled[-END_SAMPLES:])
        if last > first:
            found.append(f"{name} grew from {first} to {last}")
    return found
