"""Metrics of lists whose rows have inverse-propensity weights: precision, DCG, AP and NDCG, for many lists at once.

Notation: w_i is the weight of the row at rank i (see ``weighting.estimates``), r_i = 1 if it is relevant (clicked), g_i
its gain, m the number of relevant rows of the list, L its length, k the cut-off. With all weights 1, every value is
that of the plain metric under the ``standard`` convention; a list without a relevant row has the value 0.

All are unbiased if the propensities are right:

* ``precision`` and ``dcg`` are sums over rows, so w_i r_i takes the place of r_i.
* ``ap`` and ``ndcg`` divide by m or by the ideal DCG of m rows, and m is not known where clicks are missing. A ratio of
  two weighted sums would be biased. But every function of r_1, ..., r_L that are 0 or 1 is a polynomial in which no r_i
  is squared. There, w_i r_i takes the place of r_i, and 1 - w_i r_i that of 1 - r_i. That is unbiased if the rows of a
  list are examined (or drawn) independently of one another: then the weights of several rows multiply.

A metric takes n lists with every row that was shown and the (e,) weights of the rows; it returns (n,) values. The value
of one list can be below 0 or above 1. It is not cut there, because that would bias the mean over many lists.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rankmetrics_spark import layouts as lay, metrics as mx, schemas as sch, statistics as st
from rankmetrics_spark.studies.weighting.estimates import UserValues


def precision(batch: mx.Batch, weight: mx.Floats, k: int) -> mx.Floats:
    """Weighted precision: sum of w_i r_i for i <= k, over k.

    Source: Horvitz and Thompson, A Generalization of Sampling Without Replacement From a Finite Universe (JASA 1952).
    """
    return np.asarray(batch.total(weight * mx.STANDARD.relevant(batch.grade) * (batch.rank <= k)) / k)


def dcg(batch: mx.Batch, weight: mx.Floats, k: int | None) -> mx.Floats:
    """Weighted DCG: sum of w_i g_i / log2(i + 1) for i <= k.

    Source: Joachims, Swaminathan and Schnabel, Unbiased Learning-to-Rank with Biased Feedback (WSDM 2017).
    """
    part = weight * mx.gain(batch.grade, mx.STANDARD) * mx.discount(batch.rank)
    return batch.total(part * (batch.rank <= mx.last_rank(k)))


def ap(batch: mx.Batch, weight: mx.Floats, k: int | None) -> mx.Floats:
    """Weighted AP: the unbiased value of sum of r_i (1 + sum of r_j for j < i) / i for i <= k, over min(m, k).

    Source: the polynomial is the multilinear extension of Owen (Management Science 1972); its terms are weighted by
    the probabilities of joint inclusion, as in Horvitz and Thompson (JASA 1952).
    """
    part = weight * (batch.rank <= mx.last_rank(k)) * mx.reciprocal(batch.rank)
    return _over_number_of_relevant(batch, part, weight, True, lambda m: np.minimum(m, mx.last_rank(k)))


def ndcg(batch: mx.Batch, weight: mx.Floats, k: int | None) -> mx.Floats:
    """Weighted NDCG of clicks: the unbiased value of sum of r_i / log2(i + 1) for i <= k, over that of min(m, k) ranks.

    NaN where a relevance is neither 0 nor 1, since the ideal list then depends on more than m.

    Source: as ``ap``.
    """

    def ideal(m: mx.Ints) -> mx.Floats:
        return mx.running_sums(mx.discount, len(m))[np.minimum(m, mx.last_rank(k))]

    part = weight * (batch.rank <= mx.last_rank(k)) * mx.discount(batch.rank)
    values = _over_number_of_relevant(batch, part, weight, False, ideal)
    return np.where(batch.total(((batch.grade > 0) & (batch.grade != 1)).astype(np.float64)) > 0, np.nan, values)


#: Name of a metric -> its weighted version.
WEIGHTED: dict[str, Callable[..., mx.Floats]] = {"p": precision, "dcg": dcg, "ndcg": ndcg, "ap": ap}
#: Metrics in which weights multiply, over the relevant rows of every rank: how many there are decides the divisor.
OF_PRODUCTS = frozenset({"ap", "ndcg"})


def joint_weight(batch: mx.Batch, weight: mx.Floats) -> mx.Floats:
    """Return the (n,) product of the weights of a list's relevant rows, each at least 1.

    >>> from rankmetrics_spark.metrics import one_list
    >>> joint_weight(one_list([1, 0, 1, 1]).batch, np.array([2.0, 9.0, 3.0, 0.5])).tolist()  # 2 * 3 * 1
    [6.0]
    """
    product, relevant = np.ones(batch.size), np.flatnonzero(mx.STANDARD.relevant(batch.grade))
    with np.errstate(over="ignore"):
        np.multiply.at(product, batch.list[relevant], np.maximum(weight[relevant], 1.0))
    return product


def _over_number_of_relevant(
    batch: mx.Batch, part: mx.Floats, weight: mx.Floats, pairs: bool, divisor: Callable[[mx.Ints], mx.Floats | mx.Ints]
) -> mx.Floats:
    """Return the (n,) unbiased values of the sum of r_i a_i over divisor(m); ``part`` is (e,) w_i a_i.

    With ``pairs``, a_i is multiplied by the number of relevant rows down to i.
    """
    relevant, values = np.flatnonzero(mx.STANDARD.relevant(batch.grade)), np.zeros(batch.size)
    group = batch.list[relevant]
    for at, inside in mx.grids(group):
        parts, weights = (np.where(inside, rows[relevant][at], 0.0) for rows in (part, weight))
        by_m = _numerators(parts, weights, pairs) / divisor(np.arange(1, at.shape[1] + 1))
        # Not np.sum: its order of addition depends on the width of the grid, and so on the other lists.
        values[group[at[:, 0]]] = np.cumsum(by_m, axis=1)[:, -1]
    return values


def _numerators(parts: mx.Floats, weights: mx.Floats, pairs: bool) -> mx.Floats:
    """Return (r, c), for each m from 1 to c: the unbiased value of the sum of r_i a_i of lists with m relevant rows.

    ``parts`` are w_i a_i, and ``weights`` w_i, of the relevant rows of r lists, (r, c) each; lists with another number
    of relevant rows count 0. The columns are the coefficients of polynomials in t, in which a row is the factor
    1 - w + w t: it is relevant and counts (t), or it is not. From the top down, ``above`` is the product of these
    factors, ``above_pairs`` the same with one relevant row chosen, ``chosen`` the result. A row of weight 0, such as
    padding, changes no bit.

    >>> one = np.ones((1, 2))
    >>> _numerators(one, one, False), _numerators(2 * one, 2 * one, False)  # 2 * 2 * (1 - 2) + 2 * 2 * 2 * t
    (array([[0., 2.]]), array([[-4.,  8.]]))
    """
    above, above_pairs, chosen = np.zeros((3, *parts.shape))
    above[:, :1] = 1.0
    for part, weight in zip(parts.T[:, :, None], weights.T[:, :, None], strict=True):
        combined = above + _shifted(above_pairs) if pairs else above
        chosen = _times(chosen, weight) + part * combined
        above_pairs, above = _times(above_pairs, weight) + weight * above, _times(above, weight)
    return np.asarray(chosen)


def _times(polynomial: mx.Floats, weight: mx.Floats) -> mx.Floats:
    """Multiply by 1 - w + w t."""
    return np.asarray((1.0 - weight) * polynomial + weight * _shifted(polynomial))


def _shifted(polynomial: mx.Floats) -> mx.Floats:
    """Multiply by t."""
    return np.concatenate([np.zeros((len(polynomial), 1)), polynomial[:, :-1]], axis=1)


#: Field of an entry: hash of the columns that tell a user's lists apart.
LIST = "_list"


@dataclass(frozen=True)
class WeightedLists:
    """The lists of u users.

    Attributes:
        batch: n ranked lists with every row.
        weight: (e,) weight of each row.
        user: (n,) user of each list, non-decreasing.
        repeated: (u,) rows set aside because they repeat an item or a rank of their list.
    """

    batch: mx.Batch
    weight: mx.Floats
    user: mx.Ints
    repeated: mx.Ints


def weighted_lists(columns: lay.Arrays, repeats: bool) -> WeightedLists:
    """Return the lists of the users of an Arrow batch; the field ``score`` of an entry is its weight."""
    _, values = lay.flat(columns[sch.ENTRIES])
    entries, keys = lay.entries_of(columns), lay.ints(values.field(LIST))
    assert entries.score is not None and entries.position is not None
    # By user, list and rank; rows that repeat a rank are ordered too, so that the same one stays.
    order = np.lexsort((entries.score, entries.hash, -entries.grade, entries.position, keys, entries.list))
    entries, keys = entries.take(order), keys[order]
    starts = (np.diff(entries.list, prepend=-1) != 0) | (np.diff(keys, prepend=0) != 0)
    place, user = np.cumsum(starts) - 1, entries.list[starts]
    unique, n_dropped = lay.without_repeats(replace(entries, list=place), len(user), lay.Reading(mx.STANDARD, repeats))
    rows = lay.by_position(unique)
    assert rows.score is not None
    sizes = np.bincount(rows.list, minlength=len(user))
    batch = mx.Batch(len(user), rows.list, np.asarray(rows.position, np.int64), rows.grade, sizes, *lay.no_pool())
    n_repeated = np.bincount(user, n_dropped, minlength=len(columns[sch.ENTRIES])).astype(np.int64)
    return WeightedLists(batch, rows.score, user, n_repeated)


def user_values(lists: WeightedLists, metric: mx.Metric, weight: mx.Floats) -> tuple[mx.Bools, UserValues]:
    """Return (u,) which users have a row, and what these contribute to the estimate of a metric."""
    batch, size = lists.batch, len(lists.repeated)
    products = metric.name in OF_PRODUCTS
    top = batch.rank <= mx.last_rank(None if products else metric.cut)
    of_row, weights = lists.user[batch.list][top], weight[top]
    n_lists = np.bincount(lists.user, minlength=size)
    users = n_lists > 0
    values = mx.sums(lists.user, WEIGHTED[metric.name](batch, weight, metric.cut), size)[users]
    of_rows = (np.ones(len(weights)), weights, weights * weights, weights < lists.weight[top])
    rows, total, squares, n_clipped = (mx.sums(of_row, part, size)[users] for part in of_rows)
    n = n_lists[users].astype(np.float64)
    joint = np.minimum(joint_weight(batch, weight), st.LARGEST_SUMMAND) if products else None
    of_user = None if joint is None else mx.sums(lists.user, joint, size)[users] / n
    return users, UserValues(values / n, n, rows, total, squares, n_clipped, of_user)
