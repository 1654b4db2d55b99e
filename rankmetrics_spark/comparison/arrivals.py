"""Users' rows of several dates -> how many users came by each day, and how far their means spread, as exact sums.

A user's state changes on their own days only, so each row adds the new state and takes the last one away: the work
grows with the rows, not with users times days.
"""

from collections.abc import Iterator
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, engines as eng, metrics as mx, schemas as sch, statistics as st
from rankmetrics_spark.comparison import adjusted, daily, measures as ms, periods, table as tables, units
from rankmetrics_spark.comparison.families import by_name
from rankmetrics_spark.comparison.sums import PARTIALS, Layout, added, as_batches, whole_users
from rankmetrics_spark.errors import InputError

_VALUE, _LISTS, _DAY = "value", "lists", "day"


def differences(users: DataFrame, metric: mx.Metric, pair: tuple[str, str], *more: str) -> DataFrame:
    """The rows of the users of a pair, with the difference of their values; ``more``: columns in which both agree."""
    experiment, value = F.col(sch.EXPERIMENT).cast("string"), F.col(metric.column)
    sides = [F.max(F.when(experiment == name, value)) for name in pair]
    lists = F.min(F.expr(tables.lists_of(metric.column, users.columns)))
    both = users.where(experiment.isin([*pair])).groupBy(sch.USER, sch.DATE, *more)
    rows = both.agg((sides[1] - sides[0]).alias(metric.column), lists.alias(sch.N_LISTS))
    return rows.select("*", F.lit("difference").alias(sch.EXPERIMENT), F.lit(1).alias(sch.N_RELEVANT))


def arrivals(
    users: DataFrame,
    metric: mx.Metric,
    days: cfg.Days,
    before: cfg.Days | None = None,
    by_lists: bool = False,
    cluster: str | None = None,
) -> st.Arrivals:
    """Users by day, from one row per (experiment_id, user_id, evaluation_date); runs one small job.

    A user counts in the experiment of their first day only, of several the first by name. Values of days ``before``
    explain a part of the variance. With a ``cluster``, clusters count, and errors are those between them.
    """
    column, lists = metric.column, tables.lists_of(metric.column, users.columns)
    lists = f"greatest({lists}, 1)" if by_lists else lists
    rows = users.where(F.col(sch.DATE).cast("string").isin([*days.dates])).where(f"{column} IS NOT NULL")
    earlier = None if before is None else periods.period_rows(users, before).drop(sch.EXPERIMENT)
    table = tables.UserTable(rows, (metric,), {_DAY: sch.DATE}, earlier, cluster=cluster)
    columns = ((_VALUE, column), (_LISTS, "_lists"))
    body = partial(_sums, layout=Layout(columns, (_DAY,)), days=days.dates, by_lists=by_lists)
    parts = eng.Step(body, PARTIALS).of(tables.by_user(table, f"double({lists}) AS _lists"))
    totals = ms.Totals()
    for row in eng.few_rows(eng.Step(added, PARTIALS).of(parts.repartition(1))):
        totals.add(ms.Key(*(row[name] for name in ms.KEY)), np.array(row["sums"], np.int64))
    return _arrivals(totals, days.dates)


def _sums(batches: eng.Batches, layout: Layout, days: tuple[str, ...], by_lists: bool) -> Iterator[pa.RecordBatch]:
    totals = ms.Totals()
    for rows in whole_users(batches, layout):
        _, (labels, code) = rows.segments
        day = np.array([days.index(label.partition("=")[2]) for label in labels])[code]
        add_states(totals, rows, day, days, by_lists)
    yield from as_batches(totals)


def states_of(user: st.Ints, values: st.Floats, lists: st.Floats) -> tuple[st.Ints, st.Floats, st.Floats, st.Floats]:
    """What is known of each user on each of their days, of rows in the order of user and day: (n,) days of the user so
    far, their mean over the lists so far, these lists, and squares around the mean, each times its lists.

    One step for all users' first rows, then their second ones.

    Source: Welford, Note on a method for calculating corrected sums of squares and products (1962).
    """
    counts = daily.running(np.ones(len(user), np.int64), user)
    means, total, around = values.copy(), lists.copy(), np.zeros(len(user))
    order = np.argsort(counts, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1)[1:]:
        apart = values[at] - means[at - 1]
        total[at] += total[at - 1]
        share = np.divide(lists[at], total[at], out=np.zeros(len(at)), where=total[at] > 0)
        means[at] = means[at - 1] + share * apart
        around[at] = around[at - 1] + lists[at] * apart * (values[at] - means[at])
    # A user without a list has the same value each day, as if in one list.
    return counts, means, np.where(total > 0, total, 1.0), around


def _running(user: st.Ints, changes: st.Floats) -> st.Floats:
    """(n,) sums of each user's changes so far, exact: other users of a batch change no bit."""
    limbs = [daily.running(limb.astype(np.int64), user).astype(object) for limb in st.limbs_of(changes)]
    return np.asarray((st.exact_total(limbs) / 2**st.LIMB_UNIT).astype(float))


def _less_last(n: st.Ints, states: st.Array) -> st.Array:
    """(n,) what each state adds to the one that it replaces; ``n`` is 1 for a first one."""
    return np.asarray(states - np.where(n == 1, 0, np.concatenate([[0], states[:-1]])))


def add_states(totals: ms.Totals, rows: units.UserRows, day: st.Ints, days: tuple[str, ...], by_lists: bool) -> None:
    """Add what the states of these users change on each day; ``day`` is the position of each row's date in ``days``.

    A state has the value v of a user and its weight w, whose sums have the mean as their ratio: the user's mean and 1,
    or both times the lists; and i, which the variance of a list is multiplied with. That of a cluster has the sums of
    its users.
    """
    # By name: the numbers of experiments are those of a batch, and depend on the order of its rows.
    rank_of = {name: rank for rank, name in enumerate(by_name(rows.experiments))}
    ranks = np.array([rank_of[name] for name in rows.experiments], np.int64)
    order = np.lexsort((ranks[rows.experiment], day, rows.user))
    user, experiment = rows.user[order], rows.experiment[order]
    first = daily.first_places(user)
    order = order[experiment == np.repeat(experiment[first], np.diff(first, append=len(user)))]
    person = rows.user[order]
    if rows.member is not None:
        order = order[np.lexsort((day[order], rows.member[order], rows.user[order]))]
        new = [np.diff(each[order]) != 0 for each in (rows.user, rows.member.view(np.int64))]
        person = np.cumsum(np.r_[0, new[0] | new[1]])
    values = rows.values[_VALUE][order]
    if np.abs(values).max(initial=0.0) > st.LARGEST_SUMMAND:
        raise InputError(f"a value of {np.abs(values).max():.3g} is too large; allowed: up to {st.LARGEST_SUMMAND:.3g}")
    units.refuse_repeats(~(np.diff(person) | np.diff(day[order])).astype(bool), of_days=True)
    n, mean, lists, around = states_of(person, values, rows.values[_LISTS][order])
    weights = lists if by_lists else np.ones(len(n))
    v, i = mean * weights, lists if by_lists else 1 / lists
    states: list[Any] = [n - 1, v, weights, i, around]
    if rows.member is not None:
        place = np.lexsort((rows.member[order], day[order], rows.user[order]))
        order, changes = order[place], [_less_last(n, each)[place] for each in states]
        last = np.flatnonzero(np.diff(rows.user[order], append=-1) | np.diff(day[order], append=-1))
        states = [_running(rows.user[order], each)[last] for each in changes]
        order = order[last]
        n = daily.running(np.ones(len(order), np.int64), rows.user[order])
    more, v, weights, i, around = states
    counts = [np.ones(len(n)), n == 1, n == 2, more]
    cells = ms.Groups.of_cells(rows.experiments, days, day[order] * len(rows.experiments) + rows.experiment[order])

    def add_states_of(kind: str, counts: list[Any], **values: st.Floats) -> None:
        """Add the states, less those that they replace."""
        columns = (np.asarray(each, np.int64) for each in ms.KINDS[kind].cells(counts, **values))
        cells.add_up(totals, kind, "", (_less_last(n, each) for each in columns))

    add_states_of("arrivals", counts, v=v, w=weights, i=i, ss=around)
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
    arms, added = [each.ratio("v", "w").moments for each in sums], reduce(add, sums)
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
        mean=added.ratio("v", "w").moments.mean,
        variance=variance,
        residual=residual,
        inverse_lists=added.real("i") * users / np.square(np.where(users > 0, added.real("w"), np.nan)),
        within=float(added.real("ss")[-1]) / more[-1] if more[-1] else float("nan"),
    )


def _by_day(totals: ms.Totals, kind: str, experiment: ms.Name, days: tuple[str, ...]) -> st.Sums:
    """Sums up to each day."""
    of_days = totals.of(kind, [ms.Key(kind, "", experiment, day, "") for day in days])
    return st.Sums(of_days.measure, np.cumsum(of_days.table, axis=0))
