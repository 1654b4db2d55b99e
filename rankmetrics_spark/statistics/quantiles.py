"""Percentiles of n values from a few of them: which order statistics are needed, and what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrik

from rankmetrics_spark.statistics.exact_sums import Floats

Ranks = npt.NDArray[np.int64]


def quantile_ranks(n: Ranks, p: float, confidence: float) -> Ranks:
    """(g, 4) ranks of the order statistics that a quantile is made of, from 1; 0 where there is none.

    The first two are around the place (n - 1) * p of Hyndman and Fan's type 7. The last two bound the quantile without
    any assumption about the distribution: the largest l with P(B < l) <= (1 - confidence) / 2 for B binomial(n, p), and
    the smallest u with P(B >= u) <= the same. Few values have no such bounds.

    Args:
        n: (g,) number of values, at least 1.
        p: The quantile, in (0, 1).
        confidence: Of the interval.

    Source: Conover, Practical Nonparametric Statistics (1999), 3.2, as ``scipy.stats.quantile_test``.

    >>> quantile_ranks(np.array([1, 20]), 0.5, 0.95).tolist()
    [[1, 1, 0, 0], [10, 11, 6, 15]]
    """
    place = _place(n, p)
    low = np.floor(place).astype(np.int64) + 1
    tail = (1 - confidence) / 2
    lower, upper = _binomial_ppf(tail, n, p), _binomial_ppf(1 - tail, n, p) + 1
    return np.stack([low, np.minimum(low + 1, n), lower, np.where(upper > n, 0, upper)], axis=1)


def interpolated(below: Floats, above: Floats, n: Ranks, p: float) -> Floats:
    """(g,) quantiles from the order statistics around them: Hyndman and Fan's type 7, with the bits of NumPy.

    Args:
        below: (g,) the values at the first of ``quantile_ranks``.
        above: (g,) at the second.
        n: (g,) number of values.
        p: The quantile.

    Source: Hyndman and Fan, Sample Quantiles in Statistical Packages (1996).

    >>> interpolated(np.array([1.0]), np.array([2.0]), np.array([4]), 0.9).round(6).tolist()  # of 1, 1, 1, 2
    [1.7]
    """
    place = _place(n, p)
    part = place - np.floor(place)
    with np.errstate(invalid="ignore"):
        step = above - below
        values = np.where(part >= 0.5, above - step * (1 - part), below + step * part)
    # Between a finite and an infinite value there is nothing but the latter.
    values = np.where(np.isinf(above), above, values)
    return np.where((below == above) | (part == 0), below, values)


def _place(n: Ranks, p: float) -> Floats:
    return np.asarray((n - 1) * p)


def _binomial_ppf(q: float, n: Ranks, p: float) -> Ranks:
    """(g,) the smallest k with P(B <= k) >= q."""
    k: Any = np.clip(np.ceil(bdtrik(q, n, p)), 0, n)
    below = np.maximum(k - 1, 0)
    k = np.where(bdtr(below, n, p) >= q, below, k)
    return np.asarray(np.where(bdtr(k, n, p) < q, k + 1, k), np.int64)
