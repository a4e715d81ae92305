"""The order in which ours and theirs run, and what pairs of runs say. Pure.

A run of theirs is only ever compared with the run of ours right beside it: the disk and the
machine are shared and drift. Competitors are taken two at a time around one run of ours
(A ours B, C ours D, ...), and every second sample goes backwards, so that each comes
as often before ours as after it.
"""

import dataclasses
import statistics

OURS = "ckptd"


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two runs beside each other: records of what was measured, or one figure of each."""

    ours: object
    theirs: object
    ours_first: bool

    def ratio(self):
        return self.ours / self.theirs

    def of(self, figure):
        """The pair of one figure of the records."""
        return Pair(self.ours[figure], self.theirs[figure], self.ours_first)


def turns(competitors, sample):
    """The names of the runs of one sample, in order."""
    order = []
    for first in range(0, len(competitors), 2):
        two = competitors[first:first + 2]
        order += [two[0], OURS, *two[1:]]
    return order if sample % 2 == 0 else order[::-1]


def pair_up(order, records):
    """{competitor: Pair} of one sample, whose `records` are in the order of its turns."""
    found = {}
    for index, name in enumerate(order):
        if name == OURS:
            for beside in (index - 1, index + 1):
                if 0 <= beside < len(order):
                    found[order[beside]] = Pair(records[index], records[beside], index < beside)
    return found


def figure(pairs_by_name, name):
    """The same pairs of one figure only."""
    return {competitor: [pair.of(name) for pair in pairs]
            for competitor, pairs in pairs_by_name.items()}


def medians(pairs_by_name, name):
    """{ours and each competitor: the median of one figure}"""
    found = {competitor: statistics.median(pair.theirs[name] for pair in pairs)
             for competitor, pairs in pairs_by_name.items()}
    found[OURS] = statistics.median(
        pair.ours[name] for pairs in pairs_by_name.values() for pair in pairs)
    return found


def ratio(pairs):
    """The median of ours / theirs."""
    return statistics.median(pair.ratio() for pair in pairs)


def inverse(pairs):
    """The median of theirs / ours."""
    return statistics.median(pair.theirs / pair.ours for pair in pairs)


def better_of(pairs_by_name):
    """The competitor whose own median is the lowest: theirs at their best."""
    return min(pairs_by_name,
               key=lambda name: statistics.median(pair.theirs for pair in pairs_by_name[name]))


def spread(values):
    """How far the samples lie apart."""
    values = sorted(values)
    if len(values) == 1:
        return {"lowest": values[0], "median": values[0], "highest": values[0]}
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"lowest": values[0], "lower_quartile": low, "median": statistics.median(values),
            "upper_quartile": high, "highest": values[-1]}


def describe(pairs, unit):
    """The part of a row's detail that tells what its ratio was made of."""
    return {"unit": unit,
            "ours": spread([pair.ours for pair in pairs]),
            "theirs": spread([pair.theirs for pair in pairs]),
            "ratio_ours_to_theirs": spread([pair.ratio() for pair in pairs]),
            "pairs": [dataclasses.astuple(pair) for pair in pairs],
            "pairs_are": "ours, theirs, ours first"}
