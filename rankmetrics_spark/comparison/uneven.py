"""Why the two experiments of a pair cannot be compared over a period as a whole: they are about different days.

A user's value is the mean over the days on which they came. If an experiment ran on some of the days only, or had few
users at first, its mean is one of other days than that of the other experiment: a difference between days looks like
one between experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.stats import chi2_contingency

from rankmetrics_spark.comparison.totals import DAY, Name, Totals
from rankmetrics_spark.config import dates_in_words

SMALL_P = 1e-6
"""Below this p-value, chance does not explain what the days of an experiment look like."""
UNEVEN = 1.25
"""A share of the users that changes by less than this factor between days moves no mean that people would see."""
Pair = tuple[Name, Name]
"""Baseline and candidate."""
Counts = Mapping[str, tuple[int, int]]
"""Date -> users with a list, and those of them with a relevant item."""


def doubts_of_days(totals: Totals, pairs: Iterable[Pair]) -> dict[Pair, str]:
    """Pair -> why the days of its baseline and candidate differ, in words; without the pairs whose days do not.

    Args:
        totals: All sums, which are read once; those of days are there if the rows are about a period.
        pairs: The pairs.
    """
    days: dict[Name, dict[str, tuple[int, int]]] = {}
    of_days = ((key, sums) for key, sums in totals.sums.items() if key.kind == DAY and sums[0] > 0)
    for key, sums in sorted(of_days, key=lambda of_day: of_day[0].segment):
        days.setdefault(key.candidate, {})[key.segment] = int(sums[0]), int(sums[1])
    doubts = {}
    for one, other in pairs:
        if one in days and other in days:
            both = (str(one), str(other)), days[one], days[other]
            doubts[one, other] = _one_sided(*both) or _ramp(*both)
    return {pair: words for pair, words in doubts.items() if words}


def _one_sided(names: tuple[str, str], baseline: Counts, candidate: Counts) -> str:
    """The days on which one experiment has no users, or no relevant item, which chance does not explain."""
    sides = ((names[1], candidate, names[0], baseline), (names[0], baseline, names[1], candidate))
    both, advice = sorted({*baseline} & {*candidate}), ""
    if both:
        inside = sorted(date for date in {*baseline} | {*candidate} if both[0] <= date <= both[-1])
        common = f": compare {_period(both)}"
        advice = common if inside == both else ": compare a period on whose days both have users"
    for name, own, other, others in sides:
        if missing := [date for date in others if date not in own]:
            n = f"{len(missing)} of the {len(others)} days of {other}"
            return f"{name} has no users on {n} ({dates_in_words(missing)}){advice}"
    for name, own, other, others in sides:
        dates = [
            date
            for date, (users, relevant) in own.items()
            if not relevant and date in others and (1 - others[date][1] / others[date][0]) ** users < SMALL_P
        ]
        if dates:
            return (
                f"no user of {name} has a relevant item on {dates_in_words(dates)}, while users of {other} do; these "
                f"values count as 0: compare a period without {'this day' if len(dates) == 1 else 'these days'}"
            )
    return ""


def _period(dates: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((dates[0], dates[-1])))


def _ramp(names: tuple[str, str], baseline: Counts, candidate: Counts) -> str:
    """How the share of the candidate changes between days, where chance does not explain that."""
    dates = [date for date in baseline if date in candidate]
    table = np.array([(candidate[date][0], baseline[date][0]) for date in dates], float)
    if len(dates) < 2:
        return ""
    shares = table[:, 0] / table.sum(axis=1)
    low, high = int(shares.argmin()), int(shares.argmax())
    smaller = shares if shares.mean() <= 0.5 else 1 - shares
    if smaller.max() < UNEVEN * smaller.min():
        return ""
    if chi2_contingency(table, correction=False).pvalue >= SMALL_P:
        return ""
    # The days up to the last one whose shares are about the last one's.
    even = len(dates)
    while even and max(smaller[even - 1 :]) < UNEVEN * min(smaller[even - 1 :]):
        even -= 1
    first, last = sorted((low, high))
    before, after = (f"{100 * shares[at]:.2g} %" for at in (first, last))
    return (
        f"{names[1]} has {before} of the users of the two on {dates[first]} and {after} on {dates[last]}, so their "
        f"means are about different days: compare a period with an even split, such as {_period(dates[even:])}"
    )
