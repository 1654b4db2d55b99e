"""Users of a cluster, such as a household, as one unit: what is assigned to an experiment together errs together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.comparison.totals import ALONE, MEMBERS, Ints, Key, Totals
from rankmetrics_spark.comparison.units import UserRows
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import LARGEST_SUMMAND, LIMB_UNIT, Floats, exact_total, limbs_of


def rows_of_clusters(totals: Totals, rows: UserRows) -> Iterator[UserRows]:
    """One row per (cluster, experiment), for each way of splitting the users, instead of one per user.

    The value is the mean over the users of the cluster, or over their lists, and ``lists`` is how many these are; so
    a mean over clusters, weighted by them, is the mean over users or lists. A cluster whose users are in several
    segments is a unit in each of them. Sums are exact, so the order of the users changes no bit.

    Args:
        totals: Changed in place: how many users the clusters have, and how many are in none.
        rows: All users of some clusters; ``user`` is the cluster.

    Raises:
        InputError: A user has two rows of one experiment.
    """
    _refuse_repeats(rows)
    n = len(rows.experiments)
    for labels, code in rows.segments:
        number = (rows.user * n + rows.experiment) * len(labels) + code
        order = np.argsort(number, kind="stable")
        first = np.flatnonzero(np.diff(number[order], prepend=-1))
        chosen, cell = order[first], code * n + rows.experiment
        values, lists = {}, {}
        for metric, each in rows.values.items():
            _count(totals, rows, (labels, metric), cell, ~np.isnan(each))
            weights = rows.lists.get(metric, np.ones(len(each)))
            values[metric], lists[metric] = _means(each[order], weights[order], first)
        if labels == [EVERYONE]:
            _count_alone(totals, rows)
        yield replace(
            rows,
            user=rows.user[chosen],
            experiment=rows.experiment[chosen],
            segments=[(labels, code[chosen])],
            relevant=np.logical_or.reduceat(rows.relevant[order], first),
            values=values,
            lists=lists,
            member=None,
            alone=None,
        )


def _means(values: Floats, lists: Floats, first: Ints) -> tuple[Floats, Floats]:
    """(g,) means of the groups that begin at these rows, and what they are over; NaN and 0 without a value."""
    has_value = ~np.isnan(values)
    y, n = np.where(has_value, values * lists, 0.0), np.where(has_value, lists, 0.0)
    beyond = np.abs(y) > LARGEST_SUMMAND
    limbs = [np.add.reduceat(limb.astype(np.int64), first).astype(object) for limb in limbs_of(np.where(beyond, 0, y))]
    over = np.add.reduceat(n.astype(np.int64), first)
    whole = exact_total(limbs) / (np.where(over > 0, over, 1).astype(object) * 2**LIMB_UNIT)
    means = np.where(over > 0, whole.astype(float), np.nan)
    return np.where(np.logical_or.reduceat(beyond, first), np.inf, means), over.astype(float)


def _count(
    totals: Totals, rows: UserRows, of: tuple[list[str], str], cell: Ints, has_value: npt.NDArray[np.bool_]
) -> None:
    """Add how many users of each experiment and segment have a value."""
    (labels, metric), n = of, len(rows.experiments)
    counts = np.bincount(cell[has_value], minlength=n * len(labels))
    for place in np.flatnonzero(counts).tolist():
        key = Key(MEMBERS, "", rows.experiments[place % n], labels[place // n], metric)
        totals.add(key, counts[place : place + 1].astype(np.int64))


def _count_alone(totals: Totals, rows: UserRows) -> None:
    """Add how many users of each experiment have no cluster, and so are one of their own."""
    assert rows.alone is not None
    counts = np.bincount(rows.experiment[rows.alone], minlength=len(rows.experiments))
    for place in np.flatnonzero(counts).tolist():
        for metric in rows.values:
            key = Key(ALONE, "", rows.experiments[place], EVERYONE, metric)
            totals.add(key, counts[place : place + 1].astype(np.int64))


def _refuse_repeats(rows: UserRows) -> None:
    assert rows.member is not None
    group = rows.user * len(rows.experiments) + rows.experiment
    order = np.lexsort((rows.member, group))
    same = (np.diff(group[order]) == 0) & (np.diff(rows.member[order].view(np.int64)) == 0)
    if same.any():
        raise InputError(
            "a user has two rows of one experiment in user_metrics; allowed: one, so compare a single date, or give "
            "the dates of a period"
        )
