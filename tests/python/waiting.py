"""How tests wait. The limit only ends what hangs: no outcome depends on it, and a machine that
is many times slower than ours must not reach it."""

import re
import time

HANG_SECONDS = 120


def until(condition, what):
    """Returns the condition's first true value."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {HANG_SECONDS} s there is still no {what}"
        time.sleep(0.01)


def ranks_in(message):
    """The ranks that a message names: "rank 2", "ranks 0, 2-4", "rank 1 (process 77), 3"."""
    one = r"\d+(?:-\d+)?(?: \(process \d+\))?"
    ranks = set()
    for names in re.findall(rf"\branks? ({one}(?:, {one})*)", message):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", re.sub(r" \(process \d+\)", "", names)):
            ranks.update(range(int(first), int(last or first) + 1))
    return ranks
