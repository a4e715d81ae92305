"""The order of the bench's runs, and what pairs of them say."""

import pytest

from ckptd_bench import pairs
from ckptd_bench.pairs import OURS, Pair

THREE = ["fio", "dcp", "torch"]


def test_two_competitors_stand_around_one_run_of_ours():
    assert pairs.turns(THREE, 0) == ["fio", OURS, "dcp", "torch", OURS]


def test_every_second_sample_goes_backwards():
    assert pairs.turns(THREE, 1) == pairs.turns(THREE, 0)[::-1]
    assert pairs.turns(THREE, 2) == pairs.turns(THREE, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_each_competitor_is_paired_with_the_run_of_ours_beside_it(count):
    competitors = [f"c{number}" for number in range(count)]
    for sample in range(4):
        order = pairs.turns(competitors, sample)
        found = pairs.pair_up(order, list(range(len(order))))  # a record is its own place
        assert sorted(found) == competitors
        for name, pair in found.items():
            assert order[pair.theirs] == name
            assert order[pair.ours] == OURS
            assert abs(pair.ours - pair.theirs) == 1
            assert pair.ours_first == (pair.ours < pair.theirs)


def test_each_competitor_comes_as_often_before_ours_as_after():
    first = {name: 0 for name in THREE}
    for sample in range(6):
        order = pairs.turns(THREE, sample)
        for name, pair in pairs.pair_up(order, order).items():
            first[name] += pair.ours_first
    assert first == {name: 3 for name in THREE}


def test_the_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians():
    drifting = [Pair(1, 10, True), Pair(10, 20, False), Pair(100, 400, True)]
    assert pairs.ratio(drifting) == 0.25
    assert pairs.inverse(drifting) == 4


def test_the_better_of_theirs_is_the_one_with_the_lower_median_of_its_own():
    slow = [Pair(1, 5, True), Pair(1, 6, True), Pair(1, 7, True)]
    fast_with_one_bad_run = [Pair(9, 4, True), Pair(9, 4, True), Pair(9, 99, True)]
    assert pairs.better_of({"slow": slow, "fast": fast_with_one_bad_run}) == "fast"


def test_a_figure_is_taken_from_both_records_of_each_pair():
    of_records = {"dcp": [Pair({"blocked": 1, "x": 0}, {"blocked": 4, "x": 0}, True)]}
    assert pairs.figure(of_records, "blocked") == {"dcp": [Pair(1, 4, True)]}


def test_medians_are_ours_over_all_pairs_and_theirs_over_their_own():
    records = {"a": [Pair({"s": 1}, {"s": 10}, True), Pair({"s": 2}, {"s": 30}, True)],
               "b": [Pair({"s": 3}, {"s": 50}, True)]}
    assert pairs.medians(records, "s") == {"a": 20, "b": 50, OURS: 2}


def test_the_spread_of_one_sample_is_that_sample():
    assert pairs.spread([3.0]) == {"lowest": 3.0, "median": 3.0, "highest": 3.0}


def test_the_spread_names_both_ends_and_the_quartiles():
    assert pairs.spread([5, 1, 3, 2, 4]) == {"lowest": 1, "lower_quartile": 2, "median": 3,
                                             "upper_quartile": 4, "highest": 5}
