"""Users' rows of several dates -> exact sums by day, up to each day, and by days since a user's first date.

Up to a day, a user counts with their mean over the days so far. It changes on the user's own days only, so each of
these adds the new state of the user and takes the last one away: the work grows with the rows, not with users times
days.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2_contingency

from rankmetrics_spark import config as cfg, schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures as ms, pairs, units
from rankmetrics_spark.comparison.measures import VALUE_UNIT, Name, Totals, said
from rankmetrics_spark.words import UNITS

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

DAY, CUMULATIVE, SINCE_FIRST, BEFORE, SLOPE = "day", "cumulative", "days_since_first", "before", "slope"
#: The slope between users who come on different dates; the other one is within users.
BETWEEN = "slope_between"
#: Kinds of rows of an effect over time.
KINDS = (DAY, CUMULATIVE, SINCE_FIRST, SLOPE, BETWEEN, BEFORE)
#: Labels of sums that become those up to a day: states of users that begin on a date, and that end on one.
ENTERING, LEAVING = "_entering", "_leaving"

#: What a row has beside its values, of rows without it.
_NO_MORE: dict[str, dict[str, st.Floats]] = {"before": {}, "before_own": {}, "without": {}}

Days = npt.NDArray[np.datetime64]


@dataclass(frozen=True)
class UserDays:
    """All rows of some users, ordered by user, experiment and date.

    Attributes:
        rows: The rows; their segments do not matter.
        date: (n,) date of each row.
        lists: (n,) lists of the user on the date.
        weights: Metric -> (n,) those of them that have a value.
    """

    rows: units.UserRows
    date: Days
    lists: st.Ints
    weights: Mapping[str, st.Ints]

    @classmethod
    def of(cls, rows: units.UserRows, date: Days, lists: st.Floats, weights: Mapping[str, st.Floats]) -> "UserDays":
        """The rows in their order; every list counts where it is unknown which ones have a value."""
        order = np.lexsort((date, rows.experiment, rows.user))
        known = {metric: np.where(np.isnan(weight), lists, weight) for metric, weight in weights.items()}
        weighted = {metric: weight[order].astype(np.int64) for metric, weight in known.items()}
        without = {metric: _share_without(weight, lists) for metric, weight in known.items()}
        rows = replace(rows, without=without).take(order, segments=[])
        return cls(rows, date[order], lists[order].astype(np.int64), weighted)

    def where(self, chosen: st.Bools) -> "UserDays":
        """Some of the rows."""
        places = np.flatnonzero(chosen)
        weights = {metric: weight[places] for metric, weight in self.weights.items()}
        return UserDays(self.rows.take(places, segments=[]), self.date[places], self.lists[places], weights)

    @property
    def own(self) -> st.Ints:
        """(n,) index of the user in the experiment, ascending from 0."""
        user, experiment = self.rows.user, self.rows.experiment
        return _runs((user[1:] != user[:-1]) | (experiment[1:] != experiment[:-1]), len(user))

    def means(self, group: st.Ints) -> tuple[dict[str, st.Floats], st.Bools]:
        """Mean of each metric over the rows of a group up to each row, and whether one of them has a relevant item."""
        n = running(self.lists, group)
        without_list, means = self.lists == 0, {}
        for metric, values in self.rows.values.items():
            # The bits of the mean over a period. Days without a list, and lists without a value, do not count.
            known = ~np.isnan(values)
            weight = np.where(known, self.weights[metric], 0)
            beyond = known & (np.abs(values) > st.LARGEST_SUMMAND)
            limbs = (limb.astype(np.int64) for limb in st.limbs_of(np.where(known & ~beyond, values, 0.0)))
            mean = st.exact_mean([running(limb * weight, group) for limb in limbs], running(weight, group))
            means[metric] = np.where(running((beyond & (weight > 0)).astype(np.int64), group) > 0, np.inf, mean)
            if not (n > 0).all():
                # Users who have no list so far keep the value that they have on each date, as in a period.
                own = pd.Series(np.where(without_list, values, np.nan)).groupby(group)
                means[metric] = np.where(n > 0, means[metric], own.cummax().groupby(group).ffill().to_numpy())
        return means, running(self.rows.relevant.astype(np.int64), group) > 0


def _share_without(with_value: st.Array, lists: st.Array) -> st.Floats:
    """(n,) share of these lists that have no value; 0 without a list."""
    return np.where(lists > 0, 1 - np.minimum(with_value / np.maximum(lists, 1), 1), 0.0)


def add_days(totals: ms.Totals, days: UserDays, request: cfg.Comparison, start: str | None = None) -> None:
    """Add what these users contribute to an effect over time.

    Args:
        totals: Changed in place.
        days: Whole users.
        request: Which pairs.
        start: First date of the experiment; earlier rows tell whether the users differed before.

    Raises:
        InputError: A user has two rows of one experiment and date.
    """
    # Users up to a day are what is added and taken away until then, which values cannot be.
    totals.keeps_values = False
    earlier = days.date < np.datetime64(start) if start else np.zeros(len(days.date), bool)
    period = days.where(~earlier)
    if request.shared_users == "drop":
        shared = pairs.shared_users(period.rows, request)[0]
        period = period.where(~shared[period.rows.user])
    if not len(period.date):
        return
    pairs.add_rows(totals, replace(period.rows, segments=[_labelled(DAY, period.date)]), request)
    _add_states(totals, period, request)
    exposed = period.where(period.lists > 0)
    if len(exposed.date):
        # Users of each experiment on each date, and those of them with a relevant item.
        own, (dates, t) = exposed.own, np.unique(exposed.date, return_inverse=True)
        names, relevant = exposed.rows.experiments, exposed.rows.relevant
        cells = ms.Groups.of_cells(names, [*map(str, dates)], t.reshape(-1) * len(names) + exposed.rows.experiment)
        cells.add(totals, "day", "", [np.ones(len(own)), relevant])
        since = (exposed.date - exposed.date[first_places(own)][own]).astype(np.int64)
        pairs.add_rows(totals, replace(exposed.rows, segments=[_labelled(SINCE_FIRST, since)]), request)
        # The first day of each user, by its date: at the same number of days, users differ, and nothing wears off.
        begin = first_places(own)
        arrivals = exposed.rows.take(begin, segments=[_labelled(BETWEEN, exposed.date[begin])], **_NO_MORE)
        pairs.add_rows(totals, arrivals, request)
        _add_slopes(totals, exposed, since, request)
    if earlier.any():
        # What the users of each experiment had before the start, in whatever experiment they were then.
        past = days.where(earlier)
        user = past.rows.user
        means, relevant = past.means(_runs(user[1:] != user[:-1], len(user)))
        last_of_user = np.full(len(past.rows.keys), -1)
        last_of_user[user] = np.arange(len(user))
        first = first_places(period.own)
        last = last_of_user[period.rows.user[first]]
        known = last >= 0
        if known.any():
            places, at = first[known], last[known]
            values = {metric: each[at] for metric, each in means.items()}
            everyone = [([f"{BEFORE}="], np.zeros(len(at), np.int64))]
            rows = period.rows.take(places, segments=everyone, values=values, relevant=relevant[at], **_NO_MORE)
            pairs.add_rows(totals, rows, request)


def _labelled(kind: str, values: st.Array) -> tuple[list[str], st.Ints]:
    distinct, code = np.unique(values, return_inverse=True)
    return [f"{kind}={value}" for value in distinct.tolist()], code.reshape(-1)


def _add_states(totals: ms.Totals, days: UserDays, request: cfg.Comparison) -> None:
    """What each user has up to each of their days; a state ends on the user's next day, or is of ``all`` the period."""
    user, own = days.rows.user, days.own
    dates, t = np.unique(days.date, return_inverse=True)
    n = len(dates)
    # A user of two experiments has a state of both on the days of either.
    event = np.unique(user * n + t.reshape(-1))
    pairs_of_user = np.bincount(user[first_places(own)], minlength=len(days.rows.keys))
    repeats = pairs_of_user[event // n]
    start_of_user = np.concatenate([[0], np.cumsum(pairs_of_user)[:-1]])
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    pair = np.repeat(start_of_user[event // n], repeats) + within
    # The last row of the user in this experiment up to the day, if there is one.
    row_key, query_key = own * n + t.reshape(-1), pair * n + np.repeat(event % n, repeats)
    place = np.searchsorted(row_key, query_key, side="right") - 1
    known = (place >= 0) & (own[place] == pair)
    next_event = np.append(np.where(event[1:] // n == event[:-1] // n, event[1:] % n, n), n)
    begins, ends = (np.repeat(each, repeats)[known] for each in (event % n, next_event))
    values, relevant = days.means(own)
    places = place[known]
    segments = [
        ([f"{ENTERING}={date}" for date in dates.tolist()], begins),
        ([*(f"{LEAVING}={date}" for date in dates.tolist()), sch.EVERYONE], ends),
    ]
    states = {metric: each[places] for metric, each in values.items()}
    lists, without = running(days.lists, own), {}
    for metric, weight in days.weights.items():
        with_value = running(np.where(np.isnan(days.rows.values[metric]), 0, weight), own)
        without[metric] = _share_without(with_value, lists)[places]
    rows = days.rows.take(places, segments=segments, values=states, relevant=relevant[places], without=without)
    pairs.add_rows(totals, rows, request)


def _runs(changes: st.Bools, n: int) -> st.Ints:
    """(n,) index of the run of each row, from where a row differs from the one before it."""
    return np.concatenate([[0], np.cumsum(changes)])[:n]


def first_places(group: st.Ints) -> st.Ints:
    """Where each group begins; groups count up from 0."""
    return np.flatnonzero(np.diff(group, prepend=-1))


def running(numbers: st.Ints, group: st.Ints) -> st.Ints:
    """(n,) sum over the rows of the group up to each row."""
    added, first = np.cumsum(numbers), first_places(group)
    return np.asarray(added - (added[first] - numbers[first])[group])


# ---- the slopes of users


def _add_slopes(totals: ms.Totals, days: UserDays, since: st.Ints, request: cfg.Comparison) -> None:
    """Add the least-squares slope of each user over their own days, with its information as the weight.

    The weighted mean over the users is the slope by fixed effects of users: those who are there for more days than
    others do not count as a trend.
    """
    own = days.own
    first, size = first_places(own), own[-1] + 1
    relevant = np.bincount(own, days.rows.relevant, size) > 0
    everyone = [([f"{SLOPE}="], np.zeros(size, np.int64))]
    of_metrics: dict[str, dict[str, Any]] = {"values": {}, "lists": {}}
    for metric, values in days.rows.values.items():
        is_beyond = np.abs(values) > st.LARGEST_SUMMAND
        known = ~np.isnan(values) & ~is_beyond
        # Added row by row, in the order of the dates.
        n = np.maximum(np.bincount(own, known, size), 1.0)
        plain = np.where(known, values, 0.0), np.where(known, since, 0.0)
        v, k = (np.where(known, each - (np.bincount(own, each, size) / n)[own], 0.0) for each in plain)
        squares, products = (np.bincount(own, k * each, size) for each in (k, v))
        # What is left of equal values is the rounding of their mean.
        is_flat = np.abs(products) <= 2.0**-40 * np.bincount(own, np.abs(k * plain[0]), size)
        slopes = np.where(is_flat, 0.0, products) / np.where(squares > 0, squares, np.nan)
        of_metrics["values"][metric] = np.where(np.bincount(own, is_beyond, size) > 0, np.inf, slopes)
        of_metrics["lists"][metric] = squares
    rows = days.rows.take(first, segments=everyone, relevant=relevant, **_NO_MORE, **of_metrics)
    pairs.add_rows(totals, rows, replace(request, shared_users="keep"))


# ---- why the experiments of a pair cannot be compared over a period as a whole: they are about different days
#
# A user's value is the mean over the days on which they came. If an experiment ran on some of the days only, or had few
# users at first, its mean is one of other days than that of the other experiment: a difference between days looks like
# one between experiments.

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
