"""Percentiles of values, from a few of their order statistics, and of replicates, as bounds of bootstrap intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrik, ndtr, ndtri

from rankmetrics_spark.statistics.exact_sums import Floats, Moments

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


def percentile(replicates: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Percentile bootstrap interval.

    For few users it is too short. Measured for the mean at 95 %, with 1,000 Poisson replicates, over 20,000 draws: of
    Beta(1, 3) values it covers 93.9 % with 30 users and 94.8 % with 100; of exponential values 92.1 % with 30 users,
    93.6 % with 100 and 94.7 % with 400. ``t_interval`` covers 94.5 % and 92.7 % with 30 users.

    Args:
        replicates: (g, R) estimates; NaN where a replicate has none.
        confidence: In (0, 1).

    Returns:
        Bounds, (g,) each; NaN without replicates.

    Source: Efron, Bootstrap Methods: Another Look at the Jackknife (1979).

    >>> [float(bound[0]) for bound in percentile(np.array([[3.0, 1.0, 2.0, np.nan]]), 0.5)]
    [1.5, 2.5]
    """
    tail = np.full(len(replicates), (1 - confidence) / 2)
    ordered = np.sort(replicates, axis=1)
    return _quantile(ordered, tail), _quantile(ordered, 1 - tail)


def bca(replicates: Floats, estimate: Floats, acceleration: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Bias-corrected and accelerated bootstrap interval.

    Measured as for ``percentile``: it covers 94.6 % of Beta(1, 3) means with 30 users; of exponential means 92.8 % with
    30 users, 93.8 % with 100 and 94.6 % with 400.

    Args:
        replicates: (g, R) estimates; NaN where a replicate has none.
        estimate: (g,) from the data themselves.
        acceleration: (g,), such as ``Moments.skew_term``.
        confidence: In (0, 1).

    Returns:
        Bounds, (g,) each; NaN without replicates and where all of them lie on one side of the estimate.

    Source: Efron, Better Bootstrap Confidence Intervals (1987); same steps as ``scipy.stats.bootstrap``.
    """
    ordered = np.sort(replicates, axis=1)
    count = np.maximum((~np.isnan(ordered)).sum(axis=1), 1)
    below = (ordered < estimate[:, None]).sum(axis=1) + (ordered <= estimate[:, None]).sum(axis=1)
    bias = ndtri(below / (2 * count))
    bounds = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        with np.errstate(invalid="ignore", divide="ignore"):
            shifted = bias + ndtri(tail)
            level = ndtr(bias + shifted / (1 - acceleration * shifted))
        bounds.append(_quantile(ordered, level))
    return bounds[0], bounds[1]


def _quantile(ordered: Floats, level: Floats) -> Floats:
    """(g,) quantile of each row, linear between neighbours; NaN sorts last and does not count."""
    count = (~np.isnan(ordered)).sum(axis=1)
    known = (count > 0) & ~np.isnan(level)
    rank = np.where(known, level, 0.0) * np.maximum(count - 1, 0)
    low = np.floor(rank).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    lower, upper = (np.take_along_axis(ordered, each[:, None], axis=1)[:, 0] for each in (low, high))
    return np.where(known, lower + (upper - lower) * (rank - low), np.nan)


def acceleration_of_difference(baseline: Moments, candidate: Moments) -> Floats:
    """Acceleration of the BCa interval of a difference of independent means.

    (a(c) * e(c)**1.5 - a(b) * e(b)**1.5) / (e(b) + e(c))**1.5 with a = ``Moments.skew_term`` of an arm and
    e = sum((v - mean)**2) / n**2.

    Args:
        baseline: Moments of g baselines, with cubes.
        candidate: Moments of g candidates, with cubes.

    Returns:
        (g,) accelerations; 0 where no arm has a spread.

    Source: Davison and Hinkley, Bootstrap Methods and their Application (1997), section 5.3.2: several samples; same
    number as in ``scipy.stats.bootstrap``.
    """
    arms = [baseline, candidate]
    n = [np.maximum(arm.n.astype(float), 1.0) for arm in arms]
    b, c = (np.nan_to_num(arm.variance) * (m - 1) / m**2 for arm, m in zip(arms, n, strict=True))
    whole = np.where(b + c > 0, b + c, 1.0)
    return np.asarray((candidate.skew_term() * c**1.5 - baseline.skew_term() * b**1.5) / whole**1.5)


def _place(n: Ranks, p: float) -> Floats:
    return np.asarray((n - 1) * p)


def _binomial_ppf(q: float, n: Ranks, p: float) -> Ranks:
    """(g,) the smallest k with P(B <= k) >= q."""
    k: Any = np.clip(np.ceil(bdtrik(q, n, p)), 0, n)
    below = np.maximum(k - 1, 0)
    k = np.where(bdtr(below, n, p) >= q, below, k)
    return np.asarray(np.where(bdtr(k, n, p) < q, k + 1, k), np.int64)
