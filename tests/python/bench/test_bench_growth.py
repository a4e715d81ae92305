"""What bench/leak calls growth."""

import random

import pytest

from ckptd_bench import growth, leak
from ckptd_bench.growth import Sample

MIB = 1 << 20
STEADY = {"descriptors": 20, "threads": 10, "mappings": 400}


def samples(resident, **counts):
    """One after every tenth save of a thousand; each argument a function of the saves."""
    return [Sample(saves, resident(saves), **{
        name: counts[name](saves) if name in counts else steady for name, steady in STEADY.items()})
        for saves in range(10, 1001, 10)]


def test_a_process_that_stays_as_it_is_has_not_grown():
    assert growth.growths(samples(lambda _: 300 * MIB), 100) == []


def test_what_was_taken_before_the_warm_up_is_no_growth():
    warming = samples(lambda saves: min(saves, 500) * MIB, threads=lambda saves: min(saves, 500))
    assert growth.growths(warming, 500) == []
    assert len(growth.growths(warming, 100)) == 2


def test_the_allocators_ups_and_downs_are_no_growth():
    chance = random.Random(1)
    assert growth.growths(samples(lambda _: 300 * MIB + chance.randrange(4 * MIB)), 100) == []


def test_a_leak_of_four_kib_per_save_is_seen_through_the_noise():
    chance = random.Random(1)
    leaking = samples(lambda saves: 300 * MIB + saves * 4096 + chance.randrange(MIB))
    found = growth.growths(leaking, 100)
    assert len(found) == 1
    assert found[0].startswith("resident bytes grow by 4,")


@pytest.mark.parametrize("what", ["descriptors", "threads", "mappings"])
def test_one_more_in_every_hundred_saves_is_growth(what):
    leaking = samples(lambda _: 300 * MIB, **{what: lambda saves: 50 + saves // 100})
    assert growth.growths(leaking, 100) == [f"{what} grow by 10 per 1,000 saves"]


@pytest.mark.parametrize("what", ["descriptors", "threads", "mappings"])
def test_what_swings_or_comes_once_is_no_growth(what):
    swinging = samples(lambda _: 300 * MIB, **{what: lambda saves: 50 + saves // 125 % 5})
    once = samples(lambda _: 300 * MIB, **{what: lambda saves: 50 + (saves > 500)})
    assert growth.growths(swinging, 100) == []
    assert growth.growths(once, 100) == []


def test_one_process_that_grows_is_enough_for_the_verdict():
    still, leaking = samples(lambda _: MIB), samples(lambda saves: saves * 8192)
    lines, grew = leak.verdict({"trainer": still, "node daemon": leaking}, 100)
    assert grew
    assert lines[0].endswith("no growth")
    assert "resident bytes grow by 8,192,000 per 1,000 saves" in lines[1]
    assert not leak.verdict({"trainer": still}, 100)[1]
