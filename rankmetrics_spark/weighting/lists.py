"""The rows of users with a weight each -> ranked lists, for metrics that read the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.layouts import (
    Arrays,
    Entries,
    Reading,
    by_position,
    entries_of,
    flat,
    ints,
    no_pool,
    without_repeats,
)
from rankmetrics_spark.metrics import STANDARD, UNCUT, Batch, Floats, Ints, Metric
from rankmetrics_spark.metrics import sums as sums_by_group
from rankmetrics_spark.schemas import ENTRIES
from rankmetrics_spark.statistics import LARGEST_SUMMAND
from rankmetrics_spark.weighting.estimates import UserValues
from rankmetrics_spark.weighting.kernels import OF_PRODUCTS, WEIGHTED, joint_weight

LIST = "_list"
"""Field of an entry: hash of the columns that tell a user's lists apart."""


@dataclass(frozen=True)
class WeightedLists:
    """The lists of u users.

    Attributes:
        batch: n ranked lists with every row.
        weight: (e,) weight of each row.
        user: (n,) user of each list, non-decreasing.
        repeated: (u,) rows set aside because they repeat an item or a rank of their list.
    """

    batch: Batch
    weight: Floats
    user: Ints
    repeated: Ints


def weighted_lists(columns: Arrays, repeats: bool) -> WeightedLists:
    """The lists of the users of an Arrow batch.

    Args:
        columns: ``_entries``, per user an array of structs of ``_list``, ``position``, ``relevance``, ``score`` (the
            weight) and perhaps ``_hash``.
        repeats: Whether repeated items are looked for.
    """
    _, values = flat(columns[ENTRIES])
    entries, keys = _sorted(entries_of(columns), ints(values.field(LIST)))
    new = (np.diff(entries.list, prepend=-1) != 0) | (np.diff(keys, prepend=0) != 0)
    place, user = np.cumsum(new) - 1, entries.list[new]
    kept, dropped = without_repeats(replace(entries, list=place), len(user), Reading(STANDARD, repeats))
    ranked = by_position(kept)
    assert ranked.score is not None
    shown = np.bincount(ranked.list, minlength=len(user))
    batch = Batch(len(user), ranked.list, np.asarray(ranked.position, np.int64), ranked.grade, shown, *no_pool())
    repeated = np.bincount(user, dropped, minlength=len(columns[ENTRIES])).astype(np.int64)
    return WeightedLists(batch, ranked.score, user, repeated)


def _sorted(entries: Entries, keys: Ints) -> tuple[Entries, Ints]:
    """The rows by user, list and rank. Of rows that repeat a rank the order is defined too, so that the same stays."""
    assert entries.score is not None and entries.position is not None
    by = (entries.score, entries.hash, -entries.grade, entries.position, keys, entries.list)
    order = np.lexsort(by)
    return entries.take(order), keys[order]


def user_values(lists: WeightedLists, metric: Metric, weight: Floats) -> tuple[npt.NDArray[np.bool_], UserValues]:
    """What the users add to the estimate of a metric.

    Args:
        lists: The lists of u users.
        metric: One of ``metrics.weighted.WEIGHTED``.
        weight: (e,) weight of each row, perhaps clipped.

    Returns:
        (u,) which users have a row, and the values of these.
    """
    batch, size = lists.batch, len(lists.repeated)
    products = metric.name in OF_PRODUCTS
    read = batch.rank <= (UNCUT if products or metric.cut is None else metric.cut)
    of_row, weights = lists.user[batch.list][read], weight[read]
    n_lists = np.bincount(lists.user, minlength=size)
    there = n_lists > 0
    values = sums_by_group(lists.user, WEIGHTED[metric.name](batch, weight, metric.cut), size)[there]
    of_rows = (np.ones(len(weights)), weights, weights * weights, weights < lists.weight[read])
    rows, total, squares, clipped = (sums_by_group(of_row, each, size)[there] for each in of_rows)
    n = n_lists[there].astype(np.float64)
    joint = np.minimum(joint_weight(batch, weight), LARGEST_SUMMAND) if products else None
    of_user = None if joint is None else sums_by_group(lists.user, joint, size)[there] / n
    return there, UserValues(values / n, n, rows, total, squares, clipped, of_user)
