"""Users' rows of several dates -> exact sums by day, up to each day, and by days since a user's first date.

Up to a day, a user counts with their mean over the days so far. It changes on the user's own days only, so each of
these adds the new state of the user and takes the last one away: the work grows with the rows, not with users times
days.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankmetrics_spark import config as cfg, schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures as ms, pairs, units

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
