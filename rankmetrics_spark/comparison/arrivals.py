"""Users' rows of several dates -> how many users came by each day, and how far their means spread, as exact sums.

A user's state changes on their own days only, so each row adds the new state and takes the last one away: the work
grows with the rows, not with users times days.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison.adjusted import with_mean_covariate
from rankmetrics_spark.comparison.daily import first_places
from rankmetrics_spark.comparison.periods import period_rows
from rankmetrics_spark.comparison.sums import KEY, PARTIALS, ROWS_AT_ONCE, Layout, added, as_batches, whole_users
from rankmetrics_spark.comparison.table import UserTable, by_user, lists_of
from rankmetrics_spark.comparison.totals import BEFORE_SUMS, Ints, Key, Name, Totals, by_name, moments
from rankmetrics_spark.comparison.units import UserRows, refuse_repeats
from rankmetrics_spark.config import Days
from rankmetrics_spark.engines import Batches, Step, few_rows
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import DATE, EXPERIMENT

ARRIVAL_SUMS = ("users", "once", "twice", "freedom", *st.limb_columns("v", "vv", "i", "ss"))
"""Sums over the users of an experiment up to a day: users, those who came on one day and on two, days beyond the first
of each user, values, squares, 1 / lists, squares around the user's mean."""
_VALUE, _LISTS, _DAY = "value", "lists", "day"


def arrivals(users: DataFrame, metric: Metric, days: Days, before: Days | None = None) -> st.Arrivals:
    """Users by day, from one row per (experiment_id, user_id, evaluation_date); runs one small job.

    A user counts in the experiment of their first day only, of several the first by name. Values of days ``before``
    explain a part of the variance.
    """
    column, lists = metric.column, lists_of(metric.column, users.columns)
    rows = users.where(F.col(DATE).cast("string").isin([*days.dates])).where(f"{column} IS NOT NULL")
    earlier = None if before is None else period_rows(users, before).drop(EXPERIMENT)
    table = UserTable(rows, (metric,), {_DAY: DATE}, earlier)
    columns = ((_VALUE, column), (_LISTS, "_lists"))
    body = partial(_sums, layout=Layout(columns, (_DAY,), (), earlier is not None, ROWS_AT_ONCE), days=days.dates)
    parts = Step(body, PARTIALS).of(by_user(table, f"double({lists}) AS _lists"))
    totals = Totals()
    for row in few_rows(Step(added, PARTIALS).of(parts.repartition(1))):
        totals.add(Key(*(row[name] for name in KEY)), np.array(row["sums"], np.int64))
    return _arrivals(totals, days.dates)


def _sums(batches: Batches, layout: Layout, days: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    totals = Totals()
    for rows in whole_users(batches, layout):
        _, (labels, code) = rows.segments
        day = np.array([days.index(label.partition("=")[2]) for label in labels])[code]
        add_states(totals, rows, day, days)
    yield from as_batches(totals)


@dataclass(frozen=True)
class States:
    """What is known of each user on each of their days; the rows of a user follow one another.

    Attributes:
        new: (n,) whether the row is the first of its user.
        counts: (n,) days of the user so far.
        means: (n,) over the lists so far.
        inverse: (n,) 1 / lists so far.
        around: (n,) squares of the values around the mean, each times its lists.
    """

    new: Ints
    counts: Ints
    means: st.Floats
    inverse: st.Floats
    around: st.Floats

    @classmethod
    def of(cls, user: Ints, values: st.Floats, lists: st.Floats) -> States:
        """The states of rows in the order of user and day: one step for all users' first rows, then their second ones.

        Source: Welford, Note on a method for calculating corrected sums of squares and products (1962).
        """
        first = first_places(user)
        counts = np.arange(len(user)) - np.repeat(first, np.diff(first, append=len(user))) + 1
        means, total, around = values.copy(), lists.copy(), np.zeros(len(user))
        order = np.argsort(counts, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1)[1:]:
            apart = values[at] - means[at - 1]
            total[at] += total[at - 1]
            share = np.divide(lists[at], total[at], out=np.zeros(len(at)), where=total[at] > 0)
            means[at] = means[at - 1] + share * apart
            around[at] = around[at - 1] + lists[at] * apart * (values[at] - means[at])
        # A user without a list has the same value each day, as if in one list.
        return cls(counts == 1, counts, means, 1 / np.where(total > 0, total, 1.0), around)


def add_states(totals: Totals, rows: UserRows, day: Ints, days: tuple[str, ...]) -> None:
    """Add what the states of these users change on each day; ``day`` is the position of each row's date in ``days``."""
    # By name: the numbers of experiments are those of a batch, and depend on the order of its rows.
    rank_of = {name: rank for rank, name in enumerate(by_name(rows.experiments))}
    ranks = np.array([rank_of[name] for name in rows.experiments], np.int64)
    order = np.lexsort((ranks[rows.experiment], day, rows.user))
    user, experiment = rows.user[order], rows.experiment[order]
    first = first_places(user)
    own = experiment == np.repeat(experiment[first], np.diff(first, append=len(user)))
    order, user, experiment = order[own], user[own], experiment[own]
    values = rows.values[_VALUE][order]
    if np.abs(values).max(initial=0.0) > st.LARGEST_SUMMAND:
        raise InputError(f"a value of {np.abs(values).max():.3g} is too large; allowed: up to {st.LARGEST_SUMMAND:.3g}")
    refuse_repeats(~(np.diff(user) | np.diff(day[order])).astype(bool), of_days=True)
    states = States.of(user, values, rows.values[_LISTS][order])
    n, v = states.counts, states.means
    counts = [np.ones(len(n)), n == 1, n == 2, n - 1]
    groups = _Groups(experiment * len(days) + day[order], states.new, len(rows.experiments) * len(days))
    summed = groups.sums(counts, [(v, 1), (v * v, 2), (states.inverse, 1), (states.around, 2)])
    kinds = [("arrivals", summed)]
    if rows.before:
        (known,) = rows.before.values()
        b = known[order]
        has_before = ~np.isnan(b)
        b, of_known = np.where(has_before, b, 0.0), np.where(has_before, v, 0.0)
        kinds.append(("before", groups.sums([has_before], [(b, 1), (b * b, 2), (b * of_known, 2), (of_known, 1)])))
    for kind, table in kinds:
        for place in np.flatnonzero(table.any(axis=1)):
            name = rows.experiments[place // len(days)]
            totals.add(Key(kind, "", name, days[place % len(days)], ""), table[place])


@dataclass(frozen=True)
class _Groups:
    """The group of each row, and whether the row has no earlier state that it replaces."""

    group: Ints
    new: Ints
    n: int

    def sums(self, counts: list[Ints], summed: list[tuple[st.Floats, int]]) -> Ints:
        """(n, c) sums of counts and of the limbs of products of so many values, less those of replaced states."""
        states = (np.asarray(each, np.int64) for each in (*counts, *st.limbs_of_products(summed)))
        changes = (each - np.where(self.new, 0, np.concatenate([[0], each[:-1]])) for each in states)
        return st.group_sums(changes, self.group, self.n)


# ---- sums -> what a plan needs


def _arrivals(totals: Totals, days: tuple[str, ...]) -> st.Arrivals:
    """Sums of all experiments; variances are those within experiments."""
    experiments = by_name({key.candidate for key in totals.sums})
    tables = [_by_day(totals, "arrivals", name, days, len(ARRIVAL_SUMS)) for name in experiments]
    arms = [moments(table, table[:, 0], ARRIVAL_SUMS, ("v", "vv")) for table in tables]
    added = np.sum(tables, axis=0)
    whole = moments(added, added[:, 0], ARRIVAL_SUMS, ("v", "vv"))
    freedom = [np.maximum(arm.n - 1, 0).astype(float) for arm in arms]
    spread = sum((np.nan_to_num(arm.variance) * n for arm, n in zip(arms, freedom, strict=True)), np.zeros(len(days)))
    of_all = sum(freedom, np.zeros(len(days)))
    variance = spread / np.where(of_all > 0, of_all, np.nan)
    users, once, twice, more = (added[:, i].astype(float) for i in range(4))
    inverse, around = (st.total_of(added, ARRIVAL_SUMS, name) / 2**st.LIMB_UNIT for name in ("i", "ss"))
    residual = variance
    if any(key.kind == "before" for key in totals.sums):
        earlier = [_by_day(totals, "before", name, days, len(BEFORE_SUMS)) for name in experiments]
        known = [(arm, moments(table, table[:, 0], BEFORE_SUMS, ("b", "bb")), st.total_of(table, BEFORE_SUMS, "bv"),
                  st.total_of(table, BEFORE_SUMS, "v")) for arm, table in zip(arms, earlier, strict=True)]  # fmt: skip
        residual = variance * (1 - np.nan_to_num(st.variance_reduction_of(*with_mean_covariate(known))))
    return st.Arrivals(
        users,
        once,
        twice,
        mean=whole.mean,
        variance=variance,
        residual=residual,
        inverse_lists=inverse.astype(float) / np.where(users > 0, users, np.nan),
        within=float(around[-1]) / more[-1] if more[-1] else float("nan"),
    )


def _by_day(totals: Totals, kind: str, experiment: Name, days: tuple[str, ...], width: int) -> Ints:
    """(D, width) sums up to each day."""
    nothing = np.zeros(width, np.int64)
    of_days = [totals.sums.get(Key(kind, "", experiment, day, ""), nothing) for day in days]
    return np.cumsum(np.array(of_days, np.int64), axis=0)
