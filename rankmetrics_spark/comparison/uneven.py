"""Why the two experiments of a pair cannot be compared over a period as a whole: they are about different days.

A user's value is the mean over the days on which they came. If an experiment ran on some of the days only, or had few
users at first, its mean is one of other days than that of the other experiment: a difference between days looks like
one between experiments.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2_contingency

from rankmetrics_spark import config as cfg, statistics as st
from rankmetrics_spark.comparison.measures import VALUE_UNIT, Name, Totals, said
from rankmetrics_spark.words import UNITS

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Below this p-value, chance does not explain what the days of an experiment look like.
SMALL_P = 1e-6
#: A share of the users that changes by less than this factor between days moves no mean that people would see.
UNEVEN = 1.25
#: Days that move a difference by less than this part of its standard error make 5.7 of 100 tests without a difference
#: find one, instead of 5. A split that does not change moves them by more than 2.5 times what chance does in 1 of 80.
MOST_MIX, SURE_MIX = 0.25, 2.5
#: Baseline and candidate.
Pair = tuple[Name, Name]
#: Date -> users with a list, and those of them with a relevant item.
Counts = Mapping[str, tuple[int, int]]


def doubts_of_days(totals: Totals, pairs: Iterable[Pair], by_date: bool = False) -> dict[Pair, str]:
    """Pair -> why the days of its baseline and candidate differ, in words; without the pairs whose days do not.

    Args:
        totals: All sums, which are read once; those of days are there if the rows are about a period.
        pairs: The pairs.
        by_date: Whether users are compared within days, which may have unlike shares of them then.
    """
    days: dict[Name, dict[str, tuple[int, int]]] = {}
    of_days = ((key, sums) for key, sums in totals.sums.items() if key.kind == "day" and sums[0] > 0)
    for key, sums in sorted(of_days, key=lambda of_day: of_day[0].segment):
        days.setdefault(key.candidate, {})[key.segment] = int(sums[0]), int(sums[1])
    doubts = {}
    for one, other in pairs:
        if one in days and other in days:
            both = (str(one), str(other)), days[one], days[other]
            doubts[one, other] = ("" if by_date else _missing(*both)) or _without_hits(*both)
            doubts[one, other] = doubts[one, other] or ("" if by_date else _ramp(*both))
    return {pair: words for pair, words in doubts.items() if words}


def _missing(names: tuple[str, str], baseline: Counts, candidate: Counts) -> str:
    """The days on which one experiment has no users."""
    sides = ((names[1], candidate, names[0], baseline), (names[0], baseline, names[1], candidate))
    both, advice = sorted({*baseline} & {*candidate}), ""
    if both:
        inside = sorted(date for date in {*baseline} | {*candidate} if both[0] <= date <= both[-1])
        common = f": compare {_period(both)}"
        advice = common if inside == both else f": compare a period on whose days both have {UNITS}"
    for name, own, other, others in sides:
        if missing := [date for date in others if date not in own]:
            n = f"{len(missing)} of the {len(others)} days of {other}"
            return f"{name} has no {UNITS} on {n} ({cfg.dates_in_words(missing)}){advice}"
    return ""


def _without_hits(names: tuple[str, str], baseline: Counts, candidate: Counts) -> str:
    """The days on which one experiment has no relevant item, which chance does not explain."""
    sides = ((names[1], candidate, names[0], baseline), (names[0], baseline, names[1], candidate))
    for name, own, other, others in sides:
        silent = {date: users for date, (users, relevant) in own.items() if not relevant and date in others}
        dates = [date for date, n in silent.items() if (1 - others[date][1] / others[date][0]) ** n < SMALL_P]
        if dates:
            these = "this day" if len(dates) == 1 else "these days"
            return said("no_hits", name=name, dates=cfg.dates_in_words(dates), other=other, these=these)
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
    smaller = shares if shares.mean() <= 0.5 else 1 - shares
    if smaller.max() < UNEVEN * smaller.min():
        return ""
    if chi2_contingency(table, correction=False).pvalue >= SMALL_P:
        return ""
    # The days up to the last one whose shares are about the last one's.
    even = len(dates)
    while even and max(smaller[even - 1 :]) < UNEVEN * min(smaller[even - 1 :]):
        even -= 1
    return said("ramp", change=_change(names[1], shares, dates), period=_period(dates[even:]))


def _change(candidate: Name, shares: st.Floats, dates: Sequence[str]) -> str:
    """The lowest and the highest share of the candidate, in words."""
    first, last = sorted((int(shares.argmin()), int(shares.argmax())))
    before, after = (f"{100 * shares[at]:.2g} %" for at in (first, last))
    return f"{candidate} has {before} of the {UNITS} of the two on {dates[first]} and {after} on {dates[last]}"


def doubts_of_mix(
    rows: "Compared", totals: Totals | None = None, until: Sequence[str | None] | None = None
) -> dict[int, str]:
    """Row -> that the days alone move its difference: one experiment has more of the users of its better days.

    Within each day the experiments may be alike, and the means over all days still differ (Simpson's paradox). What
    the days add is the sum over days of (share of the candidate's users on the day - that of the baseline's) times the
    mean of the day, without what the experiments differ by within days.

    Args:
        rows: The rows.
        totals: The sums of their days; by default with the others.
        until: (g,) last date that a row is about, all for an empty one, None of a single day; by default all are.
    """
    values: dict[tuple[Name, str], dict[str, tuple[int, float]]] = {}
    for key, sums in (totals or rows.totals).sums.items():
        if key.kind == "day_values" and sums[0] > 0:
            of_days = values.setdefault((key.candidate, key.metric), {})
            of_days[key.segment] = int(sums[0]), int(sums[1]) / VALUE_UNIT
    doubts, found = {}, {}
    for i, key in enumerate(rows.keys if values else ()):
        if (last := until[i] if until else "") is None or rows.by_date[i]:
            continue
        pair = key._replace(segment=last)
        if pair not in found:
            of_both = [values.get((name, key.metric), {}) for name in (key.baseline, key.candidate)]
            found[pair] = _mix(*({date: of[date] for date in of if date <= (last or date)} for of in of_both))
        mix, chance, dates, n, levels = found[pair]
        error = float(rows.deciding.standard_error[i])
        if abs(mix) > MOST_MIX * error and abs(mix) > SURE_MIX * chance:
            change = _change(key.candidate, n[1] / n.sum(axis=0), dates)
            doubts[i] = said("mix", change=change, low=levels.min(), high=levels.max(), mix=mix, error=error)
    return doubts


#: Date -> users with a value, and the sum of their values.
_Values = Mapping[str, tuple[int, float]]


def _mix(baseline: _Values, candidate: _Values) -> tuple[float, float, list[str], st.Floats, st.Floats]:
    """What days add to a difference, what chance adds to it; dates, (2, d) users, and the mean of both on each date."""
    dates = sorted({*baseline} | {*candidate})
    if not baseline or not candidate or len(dates) < 2:
        return 0.0, 0.0, dates, np.zeros((2, 0)), np.zeros(0)
    of_both = [[arm.get(date, (0, 0.0)) for date in dates] for arm in (baseline, candidate)]
    n, total = np.moveaxis(np.array(of_both), 2, 0)
    users, of_day = n.sum(axis=1, keepdims=True), n.sum(axis=0)
    # Day by day, the experiments differ by this; without it, what is left of a day is the day's.
    within, means = n[0] * n[1] / of_day, total / np.maximum(n, 1)
    effect = (within * (means[1] - means[0])).sum() / max(within.sum(), 1e-9)
    days = (total.sum(axis=0) - effect * n[1]) / of_day
    shares, weight = n / users, of_day / n.sum()
    mix = ((shares[1] - shares[0]) * days).sum()
    variance = (weight * (days - (weight * days).sum()) ** 2).sum()
    return float(mix), float(np.sqrt(variance * (1 / users).sum())), dates, n, total.sum(axis=0) / of_day
