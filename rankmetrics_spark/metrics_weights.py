"""What a rank weighs in a sum, as lookup tables; and the mean weight of the ranks that tied items share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from rankmetrics_spark.batch import Floats, Ints

Weight: TypeAlias = Callable[[int], float]
UNCUT = 2**62


def unit(rank: int) -> float:
    """Weight of a rank where every rank counts the same."""
    return 1.0


def reciprocal(rank: int) -> float:
    """Weight 1/rank."""
    return 1.0 / rank


def discount(rank: int) -> float:
    """Weight 1/log2(rank + 1) of DCG (Järvelin and Kekäläinen 2002, in the form with no flat top)."""
    return 1.0 / math.log2(rank + 1)


@lru_cache(maxsize=32)
def geometric(p: float) -> Weight:
    """Weight p^(rank - 1) of rank-biased precision (Moffat and Zobel 2008)."""
    return lambda rank: p ** (rank - 1)


def by_element(function: Callable[[float], float], values: Floats) -> Floats:
    """(e,) a function of Python's math at each of (e,) values; NumPy's own may differ in its last bit.

    NumPy's logarithms and powers have one value with AVX-512, another without it, a third in NumPy 1.

    >>> by_element(math.exp, np.array([0.0, -np.inf])).tolist()
    [1.0, 0.0]
    """
    return np.fromiter(map(function, values.tolist()), np.float64, len(values))


TABLED = 1 << 20
"""Ranks below this are looked up in a table."""


# Python's math, for the same reason.
@lru_cache(maxsize=64)
def _table(weight: Weight, size: int) -> tuple[Floats, Floats]:
    values = np.array([0.0, *(weight(rank) for rank in range(1, size))])
    return values, np.cumsum(values)


def table(weight: Weight, longest: int) -> tuple[Floats, Floats]:
    """Weights of the ranks 0 (weight 0) to at least ``longest``, and their running sums; grown by doubling.

    >>> table(reciprocal, 2)[0][:3].tolist()
    [0.0, 1.0, 0.5]
    """
    return _table(weight, 1 << max(6, int(longest + 1).bit_length()))


def at(weight: Weight, ranks: Ints) -> Floats:
    """Weight of each rank (1-based), the deep ones one by one: a single absurd rank must not cost a table up to it.

    >>> at(reciprocal, np.array([2, 2**31 - 1])).round(3).tolist()
    [0.5, 0.0]
    """
    deepest = int(ranks.max(initial=0))
    if deepest < TABLED:
        return table(weight, deepest)[0][ranks]
    values = table(weight, TABLED - 1)[0][np.minimum(ranks, TABLED - 1)]
    deep = ranks >= TABLED
    each, places = np.unique(ranks[deep], return_inverse=True)
    values[deep] = np.array([weight(rank) for rank in each.tolist()])[places]
    return values


def spread(weight: Weight, first: Ints, last: Ints, cut: int | Ints) -> Floats:
    """Mean weight of the ranks first..last, where ranks below the cut-off weigh 0.

    >>> spread(reciprocal, np.array([1, 1]), np.array([1, 4]), 2).tolist()
    [1.0, 0.375]
    """
    values, sums = table(weight, int(last.max(initial=0)))
    inside = np.maximum(np.minimum(last, cut), first - 1)
    mean = (sums[inside] - sums[first - 1]) / (last - first + 1)
    return np.asarray(np.where(first == last, values[inside] * (first <= cut), mean))
