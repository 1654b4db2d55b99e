"""Why a row of ``comparisons`` has no test or is not trusted, and what else its reader has to know: the column `note`.

Over a period, a user's value is the mean over the days on which they came. If an experiment ran on some of the days
only, or had few users at first, its mean is one of other days than that of the other experiment: a difference between
days looks like one between experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2_contingency

from rankmetrics_spark.comparison.adjusted import SMALL_EARLIER_P
from rankmetrics_spark.comparison.totals import (
    ALONE,
    ARM_SUMS,
    BASELINE,
    CANDIDATE,
    DAY,
    Name,
    Totals,
    arm,
    of_arm,
    of_pair,
    sum_table,
)
from rankmetrics_spark.config import PlannedLooks, dates_in_words
from rankmetrics_spark.schemas import EVERYONE, NOT_TRUSTED, SMALL_RATIO_P
from rankmetrics_spark.statistics import LARGEST_SUMMAND

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

SMALL_P = 1e-6
"""Below this p-value, chance does not explain what the days of an experiment look like."""
UNEVEN = 1.25
"""A share of the users that changes by less than this factor between days moves no mean that people would see."""
Pair = tuple[Name, Name]
"""Baseline and candidate."""
Counts = Mapping[str, tuple[int, int]]
"""Date -> users with a list, and those of them with a relevant item."""
_PROBLEMS = {
    "users": ("no users", False),
    "n": ("no users with a value", False),
    "with_relevant": ("no users with relevant items", False),
    "beyond": (f"values above {LARGEST_SUMMAND:.2g}, which cannot be summed,", True),
}
"""Sum of an experiment -> what is wrong with it, and whether it is wrong to have some."""


def doubt(rows: Compared, i: int) -> str | None:
    """Why a row has no test, or why its test cannot be trusted."""
    experiments = {place: str(rows.keys[i][place]) for place in (BASELINE, CANDIDATE)}
    for name, (text, forbidden) in _PROBLEMS.items():
        if wrong := [each for place, each in experiments.items() if (rows.count(i, place, name) > 0) is forbidden]:
            return f"{text.replace('users', rows.rules.units)} in {' and '.join(wrong)}"
    untrusted = None
    if rows.sample_ratio_p < SMALL_RATIO_P:
        p = f"(p = {rows.sample_ratio_p:.2g})"
        untrusted = f"{NOT_TRUSTED}: the {rows.rules.units} do not follow the planned shares {p}"
    elif uneven := rows.uneven.get((rows.keys[i].baseline, rows.keys[i].candidate)):
        untrusted = f"{NOT_TRUSTED}: {uneven}"
    if np.isnan(rows.deciding.p_value[i]):
        # Why two experiments that could be compared have no p-value.
        plan = rows.rules.sequential
        if isinstance(plan, PlannedLooks) and not np.isnan(rows.single.p_value[i]):
            # Beyond the plan there is no test, but a broken split is worth knowing.
            if untrusted:
                return untrusted
            if look := plan.look or rows.look[i]:
                return f"not tested, since this is look {look} and {plan.planned} are planned"
            return "not tested, since looks are planned and the number of this look is not known"
        if rows.unresolved[i]:
            return "the values differ too little from one another for a test"
        if rows.paired[i]:
            n = "fewer than two" if rows.n_users[i] else "no"
            if rows.rules.only_changed and rows.n_both[i]:
                return f"{n} {rows.rules.units} have different lists in the two experiments"
            others = ", and only_changed compares no others" if rows.rules.only_changed else ""
            return f"{n} {rows.rules.units} in both experiments{others}"
        few = [each for place, each in experiments.items() if rows.count(i, place, "n") < 2]
        return f"fewer than two {rows.rules.units} in {' and '.join(few)}"
    return untrusted


def remarks(rows: Compared, i: int) -> str | None:
    """What a reader of the test has to know."""
    if rows.paired[i]:
        parts = _all_but(rows, i, int(rows.n_both[i]))
        of_users = f"without {' and '.join(parts)}, who are not in both experiments" if parts else None
    else:
        of_users = _overlap(rows, i)
    said = [of_users, left_out_of_all(rows, i)]
    alone = []
    for place in (BASELINE, CANDIDATE):
        sums = rows.totals.sums.get(arm(rows.keys[i], place)._replace(kind=ALONE, segment=EVERYONE))
        if sums is not None:
            n = int(sums[0])
            alone.append(f"{n:,} user{'' if n == 1 else 's'} of {rows.keys[i][place]}")
    if alone:
        has = f"without one value of {rows.rules.cluster} count as clusters of their own"
        said.append(f"{' and '.join(alone)} {has}")
    if rows.rules.cuped and not rows.decided_by_cuped[i]:
        cuped, paired = rows.adjusted, rows.paired[i]
        if not cuped.n_before[i]:
            why = "no user has an earlier value" + (" in both experiments" if paired else "")
        elif not cuped.spread[i] > 0:
            same = "a user has the same earlier value in both experiments"
            why = same if paired else "all earlier values are equal"
        elif cuped.earlier_p[i] < SMALL_EARLIER_P:
            why = f"the experiments differed before already (p = {cuped.earlier_p[i]:.2g})"
        else:
            why = "too few users"
        said.append(f"CUPED is not used: {why}")
    said.append(rows.rules.days.gap if rows.rules.days else None)
    return "; ".join(filter(None, said)) or None


def left_out_of_all(rows: Compared, i: int) -> str | None:
    """How many users of each experiment are left out because they are in another one too."""
    parts = []
    for place in (BASELINE, CANDIDATE):
        key = arm(rows.keys[i], place)._replace(segment=EVERYONE)
        if n := rows.left_out(key):
            users = int(of_arm(sum_table(rows.totals, [key], len(ARM_SUMS)), "users")[0])
            parts.append(f"{n:,} of the {n + users:,} {_of(rows)} {rows.keys[i][place]}")
    return f"without {' and '.join(parts)}, who are in more than one experiment" if parts else None


def _all_but(rows: Compared, i: int, both: int) -> list[str]:
    """How many users each experiment has beside so many, where it has some."""
    sizes = {place: rows.count(i, place, "n") for place in (BASELINE, CANDIDATE)}
    return [f"{n - both:,} of the {n:,} {_of(rows)} {rows.keys[i][place]}" for place, n in sizes.items() if n > both]


def _of(rows: Compared) -> str:
    """The units of an experiment whose name follows."""
    return "users of" if rows.rules.cluster is None else f"{rows.rules.units} in"


def _overlap(rows: Compared, i: int) -> str | None:
    """How many users a test of independent users takes for different ones, and what that does to it."""
    shared = int(of_pair(rows.both, "both")[i])
    if not shared:
        return None
    unit = rows.rules.units
    one = "user" if rows.rules.cluster is None else unit.replace("clusters", "cluster", 1)
    who = f"1 {one} is" if shared == 1 else f"{shared:,} {unit} are"
    covariance = float(rows.pair.covariance[i])
    width = "too wide" if covariance > 0 else "too narrow" if covariance < 0 else ""
    text = f"{who} in both experiments and counted as different ones" + (f": the interval is {width}" if width else "")
    # Where most users of a side are in both, the others may be why the means differ. Where experiments share a few
    # users only, everybody else is in one of them.
    sizes, parts = [rows.count(i, place, "n") for place in (BASELINE, CANDIDATE)], _all_but(rows, i, shared)
    if not parts or 2 * shared < min(sizes):
        return text
    who = f"{' and '.join(parts)} {'is' if sum(sizes) == 2 * shared + 1 else 'are'} in one experiment only"
    return f"{text}; {who}, which may be why the means differ (design: paired leaves them out)"


# ---- the days of a period


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
