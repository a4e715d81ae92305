"""Whether a process grew over many saves. Pure.

Nothing stands quite still: an allocator keeps a little more or less, RocksDB opens its next table or
starts its flushing thread. So each figure is judged by the straight line of least squares
through all samples after the warm-up: what it gains per save. What is leaked at every save, or at
every hundredth, shows; what swings or is taken once does not.
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
    """The slope of the line."""
    return statistics.linear_regression([sample.saves for sample in samples],
                                        [getattr(sample, figure) for sample in samples]).slope


def growths(samples, warm_up_saves):
    """What grew, one sentence each."""
    after = settled(samples, warm_up_saves)
    found = []
    for figure, allowed in ALLOWED_PER_SAVE.items():
        gain = gain_per_save(after, figure)
        if gain > allowed:
            found.append(f"{figure.replace('_', ' ')} grow by {1000 * gain:,.0f} per 1,000 saves")
    return found
