"""Metrics of lists whose rows have inverse-propensity weights: precision, DCG, AP and NDCG, for many lists at once.

Notation: w_i is the weight of the row at rank i (see ``statistics.weighted``), r_i = 1 if it is relevant (clicked), g_i
its gain, m the number of relevant rows of the list, L its length, k the cut-off. With all weights 1, every value is
that of the plain metric under the ``standard`` convention; a list without a relevant row has the value 0.

All are unbiased if the propensities are right:

* ``precision`` and ``dcg`` are sums over rows, so w_i r_i takes the place of r_i.
* ``ap`` and ``ndcg`` divide by m or by the ideal DCG of m rows, and m is not known where clicks are missing. A ratio of
  two weighted sums would be biased. But every function of r_1, ..., r_L that are 0 or 1 is a polynomial in which no r_i
  is squared. There, w_i r_i takes the place of r_i, and 1 - w_i r_i that of 1 - r_i. That is unbiased if the rows of a
  list are examined (or drawn) independently of one another: then the weights of several rows multiply.

The value of one list can be below 0 or above 1. It is not cut there: only so is the mean over many lists unbiased.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankmetrics_spark.metrics import (
    STANDARD,
    UNCUT,
    Batch,
    Floats,
    Ints,
    discount,
    gain,
    grids,
    reciprocal,
    running_sums,
)


def precision(batch: Batch, weight: Floats, k: int) -> Floats:
    """Weighted precision: sum of w_i r_i for i <= k, over k.

    Args:
        batch: n lists with every row that was shown.
        weight: (e,) weight of each row.
        k: The cut-off.

    Returns:
        (n,) values.

    Source: Horvitz and Thompson, A Generalization of Sampling Without Replacement From a Finite Universe (JASA 1952).
    """
    return np.asarray(batch.total(weight * _relevant(batch) * (batch.rank <= k)) / k)


def dcg(batch: Batch, weight: Floats, k: int | None) -> Floats:
    """Weighted DCG: sum of w_i g_i / log2(i + 1) for i <= k.

    Args:
        batch: n lists with every row that was shown.
        weight: (e,) weight of each row.
        k: The cut-off, or None.

    Returns:
        (n,) values.

    Source: Joachims, Swaminathan and Schnabel, Unbiased Learning-to-Rank with Biased Feedback (WSDM 2017).
    """
    return batch.total(weight * gain(batch.grade, STANDARD) * discount(batch.rank) * (batch.rank <= _cut(k)))


def ap(batch: Batch, weight: Floats, k: int | None) -> Floats:
    """Weighted AP: the unbiased value of sum of r_i (1 + sum of r_j for j < i) / i for i <= k, over min(m, k).

    Args:
        batch: n lists with every row that was shown.
        weight: (e,) weight of each row.
        k: The cut-off, or None.

    Returns:
        (n,) values.

    Source: the polynomial is the multilinear extension of Owen (Management Science 1972); its terms are weighted by
    the probabilities of joint inclusion, as in Horvitz and Thompson (JASA 1952).
    """
    return _over_number_of_relevant(
        batch, weight * (batch.rank <= _cut(k)) * reciprocal(batch.rank), weight, True, lambda m: np.minimum(m, _cut(k))
    )


def ndcg(batch: Batch, weight: Floats, k: int | None) -> Floats:
    """Weighted NDCG of clicks: the unbiased value of sum of r_i / log2(i + 1) for i <= k, over that of min(m, k) ranks.

    Args:
        batch: n lists with every row that was shown.
        weight: (e,) weight of each row.
        k: The cut-off, or None.

    Returns:
        (n,) values; NaN where a relevance is neither 0 nor 1, since the ideal list then depends on more than m.

    Source: as ``ap``.
    """

    def ideal(m: Ints) -> Floats:
        return running_sums(discount, len(m))[np.minimum(m, _cut(k))]

    discounted = weight * (batch.rank <= _cut(k)) * discount(batch.rank)
    values = _over_number_of_relevant(batch, discounted, weight, False, ideal)
    return np.where(batch.total(((batch.grade > 0) & (batch.grade != 1)).astype(np.float64)) > 0, np.nan, values)


WEIGHTED: dict[str, Callable[..., Floats]] = {"p": precision, "dcg": dcg, "ndcg": ndcg, "ap": ap}
"""Name of a metric -> its weighted version."""
OF_PRODUCTS = frozenset({"ap", "ndcg"})
"""Metrics in which weights multiply, over the relevant rows of every rank: how many there are decides the divisor."""


def joint_weight(batch: Batch, weight: Floats) -> Floats:
    """(n,) product of the weights of a list's relevant rows, each at least 1: how much a list of clicks can weigh.

    Args:
        batch: n lists with every row that was shown.
        weight: (e,) weight of each row.

    >>> from rankmetrics_spark.metrics import one_list
    >>> joint_weight(one_list([1, 0, 1, 1]).batch, np.array([2.0, 9.0, 3.0, 0.5])).tolist()  # 2 * 3 * 1
    [6.0]
    """
    product, found = np.ones(batch.size), np.flatnonzero(STANDARD.relevant(batch.grade))
    with np.errstate(over="ignore"):
        np.multiply.at(product, batch.list[found], np.maximum(weight[found], 1.0))
    return product


def _cut(k: int | None) -> int:
    return UNCUT if k is None else k


def _relevant(batch: Batch) -> Floats:
    return STANDARD.relevant(batch.grade).astype(np.float64)


def _over_number_of_relevant(
    batch: Batch, part: Floats, weight: Floats, pairs: bool, divisor: Callable[[Ints], Floats | Ints]
) -> Floats:
    """(n,) unbiased value of sum of r_i a_i over divisor(m).

    Args:
        batch: n lists.
        part: (e,) w_i a_i.
        weight: (e,) w_i.
        pairs: a_i is multiplied by the number of relevant rows down to i.
        divisor: (c,) numbers of relevant rows from 1 to c -> (c,) divisors.
    """
    found, values = np.flatnonzero(STANDARD.relevant(batch.grade)), np.zeros(batch.size)
    group = batch.list[found]
    for at, inside in grids(group):
        parts, weights = (np.where(inside, each[found][at], 0.0) for each in (part, weight))
        by_m = _numerators(parts, weights, pairs) / divisor(np.arange(1, at.shape[1] + 1))
        # Not np.sum: its order of addition depends on the width of the grid, and so on the other lists.
        values[group[at[:, 0]]] = np.cumsum(by_m, axis=1)[:, -1]
    return values


def _numerators(parts: Floats, weights: Floats, pairs: bool) -> Floats:
    """Unbiased value of the sum of r_i a_i where m relevant rows are there, and 0 where another number is.

    The columns are the coefficients of polynomials in t, in which a row is the factor 1 - w + w t: it is relevant and
    counts (t), or it is not. From the top down, ``above`` is the product of these factors, ``above_pairs`` the same
    with one relevant row chosen, ``chosen`` the result. A row of weight 0, such as padding, changes no bit.

    Args:
        parts: (r, c) w_i a_i of the relevant rows of r lists.
        weights: (r, c) w_i.
        pairs: a_i is multiplied by the number of relevant rows down to i.

    Returns:
        (r, c) for each m from 1 to c.

    >>> one = np.ones((1, 2))
    >>> _numerators(one, one, False), _numerators(2 * one, 2 * one, False)  # 2 * 2 * (1 - 2) + 2 * 2 * 2 * t
    (array([[0., 2.]]), array([[-4.,  8.]]))
    """
    above, above_pairs, chosen = np.zeros((3, *parts.shape))
    above[:, :1] = 1.0
    for part, weight in zip(parts.T[:, :, None], weights.T[:, :, None], strict=True):
        counted = above + _shifted(above_pairs) if pairs else above
        chosen = _times(chosen, weight) + part * counted
        above_pairs, above = _times(above_pairs, weight) + weight * above, _times(above, weight)
    return np.asarray(chosen)


def _times(polynomial: Floats, weight: Floats) -> Floats:
    """Times 1 - w + w t."""
    return np.asarray((1.0 - weight) * polynomial + weight * _shifted(polynomial))


def _shifted(polynomial: Floats) -> Floats:
    """Times t."""
    return np.concatenate([np.zeros((len(polynomial), 1)), polynomial[:, :-1]], axis=1)
