"""Several comparisons at once: corrected p-values, the levels that agree with them, and Tukey's test of all pairs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtr, stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

CORRECTIONS = ("holm", "bonferroni", "fdr_bh", "none")
"""The first two bound the chance of any false finding, fdr_bh the share of false ones."""

_WIDEST = 16.0
"""A normal range above this one has a probability below 1e-12, even of 1,000 means."""
_NODES = 96
"""Places at which the distribution of the standard deviation is looked at."""
_SMALLEST = 1e-9
"""A smaller probability is lost in the rounding of the integral, and is bounded instead."""
_STEPS = 8
"""Of the secant method."""
_KNOTS = 64
"""Degrees of freedom at which levels are looked for, where there are more of them."""


def adjusted_p_values(p_values: Floats, method: str = "holm") -> Floats:
    """Adjusted p-values of one family of comparisons.

    Args:
        p_values: (n,) of the family; a NaN was not tested: it stays NaN and does not count.
        method: holm, bonferroni, fdr_bh (Benjamini-Hochberg) or none.

    Returns:
        (n,) to compare with the level of significance.

    Raises:
        ValueError: Unknown method.

    Source: Holm (1979); Benjamini and Hochberg (1995).

    >>> adjusted_p_values(np.array([0.01, np.nan, 0.03]), "bonferroni").tolist()
    [0.02, nan, 0.06]
    """
    if method not in CORRECTIONS:
        raise ValueError(f"unknown correction '{method}'; known: {', '.join(CORRECTIONS)}")
    tested = ~np.isnan(p_values)
    if method == "none" or not tested.any():
        return np.array(p_values, float)
    places = np.flatnonzero(tested)[np.argsort(p_values[tested])]
    p = p_values[places]
    n, rank = len(p), np.arange(1, len(p) + 1)
    if method == "bonferroni":
        ascending = p * n
    elif method == "holm":
        ascending = np.maximum.accumulate(p * rank[::-1])
    else:
        ascending = np.minimum.accumulate((p / (rank / n))[::-1])[::-1]
    adjusted = np.full(len(p_values), np.nan)
    adjusted[places] = np.minimum(ascending, 1)
    return adjusted


def strictest_level(alpha: float, n: int, method: str = "holm") -> float:
    """The level at which a comparison is significant, whatever the p-values of the others of its family.

    Holm and Benjamini-Hochberg relax the level once others are significant; a comparison alone among n has this one.

    Args:
        alpha: Level of significance of the family.
        n: Comparisons of the family that are tested.
        method: As in ``adjusted_p_values``.

    >>> strictest_level(0.05, 5, "holm"), strictest_level(0.05, 5, "none")
    (0.01, 0.05)
    """
    return alpha if method == "none" else alpha / max(n, 1)


def adjusted_levels(p: Floats, p_adjusted: Floats, alpha: float, strictest: Floats) -> Floats:
    """Levels of intervals that exclude 0 exactly where the corrected p-value is below ``alpha``.

    p_adjusted < alpha is p < alpha * p / p_adjusted, and the interval at a level excludes 0 where p is below it.

    Args:
        p: (g,) two-sided p-values.
        p_adjusted: (g,) the same, corrected.
        alpha: Level of significance.
        strictest: (g,) levels that are enough whatever the other p-values are; for p-values that are too small for a
            number, so 0.

    Returns:
        (g,) levels; ``alpha`` itself where the correction changes nothing, NaN without a p-value.

    >>> p, p_adjusted = np.array([0.01, 0.04, 0.0]), np.array([0.02, 0.04, 0.0])
    >>> adjusted_levels(p, p_adjusted, 0.05, np.full(3, 0.0125)).tolist()
    [0.025, 0.05, 0.0125]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(p == p_adjusted, alpha, alpha * p / p_adjusted)
    return np.where(p == 0, strictest, level)


def tukey_p_values(p_values: Floats, df: Floats, k: int) -> Floats:
    """Two-sided p-values of t tests of pairs of k means -> those of the largest difference among them.

    With t of a pair, it is the probability that the studentized range of k means is above sqrt(2) * abs(t). Each pair
    has an error and degrees of freedom of its own. For Welch's tests of different users, that is the procedure of
    Games and Howell, or of Tukey and Kramer with variances that may differ; for the same users in all experiments, it
    is the multivariate one of Seo, Mano and Fujikoshi.

    Args:
        p_values: (g,) of the t tests.
        df: (g,) degrees of freedom.
        k: Number of means that are compared, at least 2.

    Returns:
        (g,) at least the p-value alone, and at most as many times it as there are pairs.

    Source: Tukey, The Problem of Multiple Comparisons (1953); Games and Howell (1976); Seo, Mano, Fujikoshi, A
    Generalized Tukey Conjecture for Multiple Comparisons Among Mean Vectors (1994). For different users the same
    numbers as ``scipy.stats.tukey_hsd(equal_var=False)``.

    >>> tukey_p_values(np.array([0.02, np.nan]), np.array([57.0, 57.0]), 3).round(6).tolist()
    [0.051525, nan]
    """
    most = np.minimum(p_values * (k * (k - 1) // 2), 1)
    with np.errstate(invalid="ignore"):
        probability = _range_sf(-stdtrit(df, p_values / 2) * np.sqrt(2), df, k)
        return np.asarray(np.where(most < _SMALLEST, most, np.clip(probability, p_values, most)))


def tukey_levels(alpha: float, df: Floats, k: int) -> Floats:
    """(g,) levels at which t tests of pairs of k means are significant: below them, ``tukey_p_values`` < ``alpha``.

    Intervals at these levels cover all differences of the k means at once.

    >>> float(tukey_levels(0.05, np.array([57.0]), 3).round(6)[0])
    0.019374
    """
    # Imported here: it takes long, and only this correction needs it.
    from scipy.interpolate import CubicSpline

    knots = distinct = np.unique(1 / df[~np.isnan(df)])
    if len(distinct) > _KNOTS:
        knots = np.linspace(distinct[0], distinct[-1], _KNOTS)
    # The secant method on logarithms, which is almost a straight line.
    least, most = np.log(alpha / (k * (k - 1) // 2)), np.log(alpha)
    logs = np.array([np.full(len(knots), least), np.full(len(knots), most)])
    beyond = [np.log(tukey_p_values(np.exp(log), 1 / knots, k) / alpha) for log in logs]
    for _ in range(_STEPS):
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(beyond[1] == beyond[0], np.inf, (beyond[1] - beyond[0]) / (logs[1] - logs[0]))
        logs = np.array([logs[1], np.clip(logs[1] - beyond[1] / slope, least, most)])
        beyond = [beyond[1], np.log(tukey_p_values(np.exp(logs[1]), 1 / knots, k) / alpha)]
    if len(distinct) > _KNOTS:
        return np.asarray(np.exp(CubicSpline(knots, logs[1])(1 / df)))
    levels = np.append(np.exp(logs[1]), np.nan)
    return np.asarray(levels[np.where(np.isnan(df), -1, np.searchsorted(knots, 1 / df))])


def _range_sf(q: Floats, df: Floats, k: int) -> Floats:
    """(g,) probabilities that the range of k means, divided by an independent standard deviation, is above q."""
    places, weights = gauss_legendre(_NODES)
    # More degrees of freedom than this change nothing.
    known = np.minimum(np.where(np.isnan(df), 1.0, df), 1e6)[:, None]
    # The standard deviation is s = sqrt(chi2 / df), beyond these bounds with a probability of 1e-14.
    low, high = (np.sqrt(2 * gammaincinv(known / 2, tail) / known) for tail in (1e-14, 1 - 1e-14))
    # A range as wide as q * s has no probability if s is larger than this.
    with np.errstate(divide="ignore"):
        high = np.clip(_WIDEST / q[:, None], low, high)
    s = low + (high - low) * places
    constant = np.log(2) + known / 2 * (np.log(known / 2) - 1) - gammaln(known / 2)
    density = np.exp(constant + (known - 1) * np.log(s) - known / 2 * (s**2 - 1))
    beyond = _normal_range(k)(np.minimum(q[:, None] * s, _WIDEST))
    return np.asarray((high - low)[:, 0] * (weights * density * beyond).sum(axis=1))


@cache
def _normal_range(k: int) -> CubicSpline:
    """The probability that the range of k standard normal values is above a width, as a function of it."""
    # Imported here: it takes long, and only this correction needs it.
    from scipy.interpolate import CubicSpline

    widths = np.linspace(0, _WIDEST, 1_601)
    # The smallest value is z, and the others are within the width above it. A sum of equal steps is exact enough here,
    # since the density and all of its derivatives vanish at both ends.
    z = np.linspace(-_WIDEST - 9, 9, 1_601)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    inside: Any = [k * np.sum(density * (ndtr(z + width) - ndtr(z)) ** (k - 1)) for width in widths]
    return CubicSpline(widths, 1 - np.array(inside))


@cache
def gauss_legendre(n: int) -> tuple[Floats, Floats]:
    """Places and weights of a quadrature over (0, 1)."""
    places, weights = np.polynomial.legendre.leggauss(n)
    return (places + 1) / 2, weights / 2
