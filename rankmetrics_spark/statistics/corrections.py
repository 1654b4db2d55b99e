"""Several comparisons at once: corrected p-values, the levels that agree with them, and the ranks of all systems."""

import numpy as np
from scipy.special import chdtri, ndtri

from rankmetrics_spark.statistics.exact_sums import Floats, Ints
from rankmetrics_spark.statistics.resampling import random_bits

#: The first two bound the chance of any false finding, fdr_bh the share of false ones.
CORRECTIONS = ("holm", "bonferroni", "fdr_bh", "none")


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


#: Draws of all estimates together, and their seed.
RANK_DRAWS, _SEED = 10_000, 10


def rank_bounds(t: Floats, covariance: Floats, df: float, confidence: float) -> tuple[Ints, Ints]:
    """The ranks that each of p systems may have, 1 for the highest: all true ranks are in them with this confidence.

    A system is above another one where their t is larger than the largest of all directed pairs is by chance, in draws
    of a multivariate t. The pairs that are found are left out, and the others are looked at again, until none is found.

    Args:
        t: (p, p) difference of two systems, row less column, in standard errors; NaN where that is not known.
        covariance: (p, p) of the errors of their means.
        df: Degrees of freedom.
        confidence: In (0, 1).

    Returns:
        (p,) the best rank and the worst one.

    Source: Mogstad, Romano, Shaikh, Wilhelm, Inference for Ranks with Applications to Mobility across Neighbourhoods
    and Academic Achievement across Countries (2024); Romano and Wolf, Exact and Approximate Stepdown Methods for
    Multiple Hypothesis Testing (2005).

    >>> scores = np.array([9.0, 5.0, 5.5])  # with an error of 1 each, and of sqrt(2) for a difference
    >>> bounds = rank_bounds((scores[:, None] - scores) / np.sqrt(2), np.eye(3), 1e6, 0.9)
    >>> [bound.tolist() for bound in bounds]
    [[1, 2, 2], [1, 3, 3]]
    """
    p, known, above = len(t), ~np.isnan(t), np.zeros(t.shape, bool)
    words = random_bits(np.arange(p + 1, dtype=np.uint64), _SEED, RANK_DRAWS).T
    chances = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    sizes, axes = np.linalg.eigh(covariance)
    drawn = ndtri(chances[:, :p]) @ (axes * np.sqrt(np.maximum(sizes, 0.0))).T
    drawn /= np.sqrt(chdtri(df, chances[:, p:]) / df)
    squared = np.add.outer(np.diag(covariance), np.diag(covariance))
    error = np.sqrt(np.maximum(squared - 2 * covariance, 1e-12 * squared))
    while True:
        largest = np.full(RANK_DRAWS, -np.inf)
        for i in range(p):
            left = known[i] & ~above[i]
            if left.any():
                largest = np.maximum(largest, ((drawn[:, [i]] - drawn[:, left]) / error[i, left]).max(axis=1))
        found = known & ~above & (t > np.quantile(largest, confidence))
        if not found.any():
            return 1 + above.sum(axis=0), p - above.sum(axis=1)
        above |= found
