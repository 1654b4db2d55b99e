"""Users' rows of several dates -> how many users came by each day, and how far their means spread, as exact sums.

A user's state changes on their own days only, so each row adds the new state and takes the last one away: the work
grows with the rows, not with users times days.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison import adjusted, daily, measures as ms, periods, table as tables, units
from rankmetrics_spark.comparison.sums import PARTIALS, Layout, added, as_batches, whole_users
from rankmetrics_spark.comparison.totals import by_name
from rankmetrics_spark.config import Days
from rankmetrics_spark.engines import Batches, Step, few_rows
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import DATE, EXPERIMENT

_VALUE, _LISTS, _DAY = "value", "lists", "day"


def arrivals(users: DataFrame, metric: Metric, days: Days, before: Days | None = None) -> st.Arrivals:
    """Users by day, from one row per (experiment_id, user_id, evaluation_date); runs one small job.

    A user counts in the experiment of their first day only, of several the first by name. Values of days ``before``
    explain a part of the variance.
    """
    column, lists = metric.column, tables.lists_of(metric.column, users.columns)
    rows = users.where(F.col(DATE).cast("string").isin([*days.dates])).where(f"{column} IS NOT NULL")
    earlier = None if before is None else periods.period_rows(users, before).drop(EXPERIMENT)
    table = tables.UserTable(rows, (metric,), {_DAY: DATE}, earlier)
    columns = ((_VALUE, column), (_LISTS, "_lists"))
    body = partial(_sums, layout=Layout(columns, (_DAY,)), days=days.dates)
    parts = Step(body, PARTIALS).of(tables.by_user(table, f"double({lists}) AS _lists"))
    totals = ms.Totals()
    for row in few_rows(Step(added, PARTIALS).of(parts.repartition(1))):
        totals.add(ms.Key(*(row[name] for name in ms.KEY)), np.array(row["sums"], np.int64))
    return _arrivals(totals, days.dates)


def _sums(batches: Batches, layout: Layout, days: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    totals = ms.Totals()
    for rows in whole_users(batches, layout):
        _, (labels, code) = rows.segments
        day = np.array([days.index(label.partition("=")[2]) for label in labels])[code]
        add_states(totals, rows, day, days)
    yield from as_batches(totals)


def states_of(user: st.Ints, values: st.Floats, lists: st.Floats) -> tuple[st.Ints, st.Floats, st.Floats, st.Floats]:
    """What is known of each user on each of their days, of rows in the order of user and day: (n,) days of the user so
    far, their mean over the lists so far, 1 / these lists, and squares around the mean, each times its lists.

    One step for all users' first rows, then their second ones.

    Source: Welford, Note on a method for calculating corrected sums of squares and products (1962).
    """
    first = daily.first_places(user)
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
    return counts, means, 1 / np.where(total > 0, total, 1.0), around


def add_states(totals: ms.Totals, rows: units.UserRows, day: st.Ints, days: tuple[str, ...]) -> None:
    """Add what the states of these users change on each day; ``day`` is the position of each row's date in ``days``."""
    # By name: the numbers of experiments are those of a batch, and depend on the order of its rows.
    rank_of = {name: rank for rank, name in enumerate(by_name(rows.experiments))}
    ranks = np.array([rank_of[name] for name in rows.experiments], np.int64)
    order = np.lexsort((ranks[rows.experiment], day, rows.user))
    user, experiment = rows.user[order], rows.experiment[order]
    first = daily.first_places(user)
    own = experiment == np.repeat(experiment[first], np.diff(first, append=len(user)))
    order, user, experiment = order[own], user[own], experiment[own]
    values = rows.values[_VALUE][order]
    if np.abs(values).max(initial=0.0) > st.LARGEST_SUMMAND:
        raise InputError(f"a value of {np.abs(values).max():.3g} is too large; allowed: up to {st.LARGEST_SUMMAND:.3g}")
    units.refuse_repeats(~(np.diff(user) | np.diff(day[order])).astype(bool), of_days=True)
    n, v, inverse, around = states_of(user, values, rows.values[_LISTS][order])
    counts = [np.ones(len(n)), n == 1, n == 2, n - 1]
    cells = ms.Groups.of_cells(rows.experiments, days, day[order] * len(rows.experiments) + experiment)

    def add_states_of(kind: str, counts: list[Any], **values: st.Floats) -> None:
        """Add the states, less those that they replace."""
        columns = (np.asarray(each, np.int64) for each in ms.KINDS[kind].cells(counts, **values))
        changes = (each - np.where(n == 1, 0, np.concatenate([[0], each[:-1]])) for each in columns)
        cells.add_up(totals, kind, "", changes)

    add_states_of("arrivals", counts, v=v, i=inverse, ss=around)
    if rows.before:
        (known,) = rows.before.values()
        b = known[order]
        has_before = ~np.isnan(b)
        add_states_of("before", [has_before], b=np.where(has_before, b, 0.0), v=np.where(has_before, v, 0.0))


# ---- sums -> what a plan needs


def _arrivals(totals: ms.Totals, days: tuple[str, ...]) -> st.Arrivals:
    """Sums of all experiments; variances are those within experiments."""
    experiments = by_name({key.candidate for key in totals.sums})
    sums = [_by_day(totals, "arrivals", name, days) for name in experiments]
    arms, added = [each.moments("v", "users") for each in sums], reduce(add, sums)
    freedom = [np.maximum(arm.n - 1, 0).astype(float) for arm in arms]
    spread = sum((np.nan_to_num(arm.variance) * n for arm, n in zip(arms, freedom, strict=True)), np.zeros(len(days)))
    of_all = sum(freedom, np.zeros(len(days)))
    variance = spread / np.where(of_all > 0, of_all, np.nan)
    users, once, twice, more = (added[name].astype(float) for name in ("users", "once", "twice", "more"))
    residual = variance
    if any(key.kind == "before" for key in totals.sums):
        earlier = [_by_day(totals, "before", name, days) for name in experiments]
        both = adjusted.with_mean_covariate([*zip(arms, earlier, strict=True)])
        residual = variance * (1 - np.nan_to_num(st.variance_reduction_of(*both)))
    return st.Arrivals(
        users,
        once,
        twice,
        mean=added.mean("v", "users"),
        variance=variance,
        residual=residual,
        inverse_lists=added.real("i") / np.where(users > 0, users, np.nan),
        within=float(added.real("ss")[-1]) / more[-1] if more[-1] else float("nan"),
    )


def _by_day(totals: ms.Totals, kind: str, experiment: ms.Name, days: tuple[str, ...]) -> st.Sums:
    """Sums up to each day."""
    of_days = totals.of(kind, [ms.Key(kind, "", experiment, day, "") for day in days])
    return st.Sums(of_days.measure, np.cumsum(of_days.table, axis=0))
