"""Does an effect fade? The difference of two slopes over days, with users as clusters, from exact sums of users.

A user has a value on several days, and these belong together. Five sums describe a user in an experiment; sums of their
products over the users are all that least squares and its cluster-robust variance need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, Floats, Whole

USER_SUMS = ("n", "k", "kk", "v", "kv")
"""Sums over the days of a user: days with a value, day numbers, their squares, values, day numbers times values."""
TREND_PRODUCTS = tuple((i, j) for i in range(len(USER_SUMS)) for j in range(i, len(USER_SUMS)))
"""Products of two of ``USER_SUMS`` of a user, as places."""
SHARED_PRODUCTS = tuple((i, j) for i in range(len(USER_SUMS)) for j in range(len(USER_SUMS)))
"""Products of a sum of a user in the baseline and one in the candidate."""
_UNIT = 2**LIMB_UNIT


@dataclass(frozen=True)
class TrendMoments:
    """Exact sums over the users of g experiments, in units of 2**-60, as Python integers (object arrays).

    Attributes:
        users: (g,) users with a value, as plain numbers.
        sums: One (g,) array for each of ``USER_SUMS``.
        products: One (g,) array for each of ``TREND_PRODUCTS``.
    """

    users: Whole
    sums: Sequence[Whole]
    products: Sequence[Whole]

    @classmethod
    def of(cls, users: Sequence[Mapping[int, float]]) -> TrendMoments:
        """Moments of one group of users, each with a value by day."""
        rows = [user_sums(days) for days in users]
        sums = [_whole(sum(round(row[i] * _UNIT) for row in rows)) for i in range(len(USER_SUMS))]
        products = [_whole(sum(round(row[i] * row[j] * _UNIT) for row in rows)) for i, j in TREND_PRODUCTS]
        return cls(_whole(len(rows)), sums, products)


@dataclass(frozen=True)
class Slope:
    """How the differences of g pairs change per day.

    Attributes:
        change: (g,) what is added to candidate - baseline each day; NaN, as all that follows, unless each experiment
            has values of two different days.
        standard_error: (g,) of the change, cluster-robust.
        ci_low: (g,) lower bound of the change.
        ci_high: (g,) upper bound.
        p_value: (g,) of no change, two-sided.
    """

    change: Floats
    standard_error: Floats
    ci_low: Floats
    ci_high: Floats
    p_value: Floats


def user_sums(days: Mapping[int, float]) -> tuple[float, ...]:
    """``USER_SUMS`` of one user, from a value by day.

    >>> user_sums({0: 0.5, 2: 1.0})
    (2, 2, 4, 1.5, 2.0)
    """
    return (
        len(days),
        sum(days),
        sum(k * k for k in days),
        sum(days.values()),
        sum(k * value for k, value in days.items()),
    )


def slope_difference(
    baseline: TrendMoments,
    candidate: TrendMoments,
    shared: tuple[Whole, Sequence[Whole]] | None = None,
    confidence: float = 0.95,
) -> Slope:
    """Least squares of value on day in each experiment; the difference of the slopes, with users as clusters.

    The variance is that of Liang and Zeger with the factor G / (G - 1) * (N - 1) / (N - 4) of G users and N values, and
    t has G - 1 degrees of freedom. A user of both experiments is one cluster.

    Args:
        baseline: Of g baselines.
        candidate: Of g candidates.
        shared: Users of both with a value in each, and one (g,) array for each of ``SHARED_PRODUCTS``; None = none.
        confidence: In (0, 1).

    Source: Liang and Zeger, Longitudinal data analysis using generalized linear models (1986); the same numbers as
    ``statsmodels`` OLS with ``cov_type="cluster"`` and ``use_t=True``.

    >>> flat, rising = ([{0: a, 1: a + b} for a, b in ((0.0, low), (1.0, high))] for low, high in ((-1, 1), (0, 2)))
    >>> slope_difference(TrendMoments.of(flat), TrendMoments.of(rising)).change.tolist()
    [1.0]
    """
    lines = [_Line.of(arm) for arm in (baseline, candidate)]
    known = (lines[0].det != 0) & (lines[1].det != 0)
    variance = sum((line.variance(arm) for line, arm in zip(lines, (baseline, candidate), strict=True)), np.zeros(1))
    users = baseline.users + candidate.users
    if shared is not None:
        variance = variance - 2 * lines[0].covariance(lines[1], shared[1])
        users = users - shared[0]
    g, n = users.astype(float), ((baseline.sums[0] + candidate.sums[0]) / _UNIT).astype(float)
    known = known & (g > 1) & (n > 4)
    g, n = np.where(known, g, np.nan), np.where(known, n, np.nan)
    change = np.where(known, lines[1].slope - lines[0].slope, np.nan)
    error = np.sqrt(np.maximum(variance, 0.0) * g / (g - 1) * (n - 1) / (n - 4))
    # Without a spread of the residuals, nothing measures what chance does.
    error = np.where(error > np.abs(change) * 2.0**-40, error, np.where(change == 0, 0.0, np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(error == 0, 1.0, 2 * stdtr(g - 1, -np.abs(change / error)))
    half = stdtrit(g - 1, 0.5 + confidence / 2) * error
    return Slope(change, error, change - half, change + half, p)


@dataclass(frozen=True)
class _Line:
    """A least-squares line per group, by exact integers in units of 2**-60.

    Attributes:
        det: (g,) determinant of the normal equations; 0 where all values are of one day.
        per_day: (g,) slope, times det.
        weights: What each of ``USER_SUMS`` of a user adds to the influence of the user on the slope, times det**2.
    """

    det: Whole
    per_day: Whole
    weights: tuple[Whole, ...]

    @classmethod
    def of(cls, arm: TrendMoments) -> _Line:
        n, k, kk = (each // _UNIT for each in arm.sums[:3])
        v, kv = arm.sums[3:]
        det = n * kk - k * k
        at_zero, per_day = kk * v - k * kv, n * kv - k * v
        # The influence is n * sum(k * residual) - k * sum(residual), over det.
        residual = (k * at_zero, k * per_day - n * at_zero, -n * per_day, -k * det * _UNIT, n * det * _UNIT)
        return cls(det, per_day, residual)

    @property
    def slope(self) -> Floats:
        return _ratio(self.per_day, self.det * _UNIT)

    def variance(self, arm: TrendMoments) -> Floats:
        """(g,) sum of the squared influences of the users on the slope."""
        pairs = zip(TREND_PRODUCTS, arm.products, strict=True)
        terms = [(1 if i == j else 2) * self.weights[i] * self.weights[j] * each for (i, j), each in pairs]
        return _ratio(np.sum(terms, axis=0), self.det**4 * _UNIT**3)

    def covariance(self, other: _Line, shared: Sequence[Whole]) -> Floats:
        """(g,) sum over the users of both of the product of their influences."""
        pairs = zip(SHARED_PRODUCTS, shared, strict=True)
        terms = [self.weights[i] * other.weights[j] * each for (i, j), each in pairs]
        return _ratio(np.sum(terms, axis=0), self.det**2 * other.det**2 * _UNIT**3)


def _ratio(above: Whole, below: Whole) -> Floats:
    """(g,) quotients of integers, rounded once; NaN where the lower one is 0."""
    none = below == 0
    return np.where(none, np.nan, (above / np.where(none, 1, below)).astype(float))


def _whole(value: Any) -> Whole:
    return np.array([value], dtype=object)
