"""Whether a process grew over many saves. Pure.

Nothing stands quite still: an allocator keeps a little more or less, RocksDB opens its next table or
starts its flushing thread. So the samples after the warm-up are cut into thirds, and each
figure's median in the last third is compared with that in the first. What is leaked at every
save, or at every hundredth, shows in full; what swings, peaks or is taken once does not.
"""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Sample:
    """A process at rest after so many saves."""

    saves: int
    resident_bytes: int
    descriptors: int
    threads: int
    mappings: int


# What a figure may gain per save. Of memory less than a request or an entry of a table takes,
# while 16 MiB and more go through; of the others less than one in 200 saves.
ALLOWED_PER_SAVE = {"resident_bytes": 2048.0, "descriptors": 1 / 200, "threads": 1 / 200,
                    "mappings": 1 / 200}


def settled(samples, warm_up_saves):
    """Those after the warm-up."""
    return [sample for sample in samples if sample.saves >= warm_up_saves]


def gain_per_save(samples, figure):
    """From the first third to the last, per save between them."""
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    gain = (statistics.median(getattr(sample, figure) for sample in last)
            - statistics.median(getattr(sample, figure) for sample in first))
    return gain / (last[0].saves - first[0].saves)


def growths(samples, warm_up_saves):
    """What grew, one sentence each."""
    after = settled(samples, warm_up_saves)
    found = []
    for figure, allowed in ALLOWED_PER_SAVE.items():
        gain = gain_per_save(after, figure)
        if gain > allowed:
            found.append(f"{figure.replace('_', ' ')} grow by {1000 * gain:,.0f} per 1,000 saves")
    return found
