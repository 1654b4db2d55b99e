"""Tests of paired differences that assume no normal distribution: signed ranks and random signs."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Whole

EXACT_SIGNED_RANK = 25
"""Up to so many differences without zeros and ties, the p-value of the signed-rank test is exact."""


def signed_rank(n: Whole, twice_w_plus: Whole, tie_term: Whole, n_zero: Whole) -> Floats:
    """Wilcoxon's signed-rank test, two-sided; zero differences are dropped, no continuity correction.

    Exact for at most 25 differences without zeros and ties, else the normal approximation with its tie correction: the
    choice of SciPy before 1.9. Newer SciPy is exact up to 50; from 26 differences on, the two differ by less than 0.02.
    With ties or zeros among fewer than ten differences, the approximation is rough: five equal ones have p = 0.025,
    while no test of five signs can be below 2 / 2**5 = 0.0625.

    Args:
        n: (g,) number of differences other than 0.
        twice_w_plus: (g,) 2 * sum of the (mid)ranks of the positive differences, as exact integers.
        tie_term: (g,) sum of t**3 - t over each set of t equal absolute differences other than 0, likewise.
        n_zero: (g,) number of differences that are 0.

    Returns:
        (g,) p-values; 1 where all differences are 0; NaN without differences.

    Source: Wilcoxon, Individual Comparisons by Ranking Methods (1945).

    >>> signed_rank(*(np.array([x], object) for x in (5, 30, 0, 0))).tolist()  # all 5 positive: 2 * (1 / 2) ** 5
    [0.0625]
    """
    rows = zip(n.tolist(), twice_w_plus.tolist(), tie_term.tolist(), n_zero.tolist(), strict=True)
    return np.array([_signed_rank(*map(int, row)) for row in rows], float)


def _signed_rank(n: int, twice_w_plus: int, tie_term: int, n_zero: int) -> float:
    if n == 0:
        return 1.0 if n_zero else float("nan")
    if n <= EXACT_SIGNED_RANK and not tie_term and not n_zero:
        return _exact_signed_rank(n, twice_w_plus // 2)
    # Mean n (n + 1) / 4 and variance (n (n + 1) (2 n + 1) - tie_term / 2) / 24 of W+, all times a whole number.
    centred = 2 * twice_w_plus - n * (n + 1)
    variance = 2 * n * (n + 1) * (2 * n + 1) - tie_term
    return float(2 * ndtr(-abs(centred) / 4 / np.sqrt(variance / 48)))


def _exact_signed_rank(n: int, w_plus: int) -> float:
    """The exact p-value: SciPy's, from any signed ranks 1 to n with the same sum of positive ones."""
    # Imported here: it takes long, and the Python workers of Spark import this module without testing anything.
    from scipy.stats import wilcoxon

    ranks = np.arange(1, n + 1)
    left, signs = w_plus, np.full(n, -1)
    for rank in ranks[::-1]:
        if rank <= left:
            left, signs[rank - 1] = left - rank, 1
    return float(wilcoxon(ranks * signs, method="exact").pvalue)


def sign_flip_p(observed: Floats, replicates: Floats) -> Floats:
    """Randomisation test of paired differences: how often a sum with random signs is at least as large.

    Args:
        observed: (g,) sums of the differences.
        replicates: (g, R) sums of the same differences, each with a random sign per user.

    Returns:
        (g,) (1 + number of replicates with |sum| >= |observed|) / (R + 1), two-sided; never 0.

    Source: Fisher, The Design of Experiments (1935); the + 1 counts the observed signs, Phipson and Smyth (2010).

    >>> sign_flip_p(np.array([2.0]), np.array([[2.0, 0.0, -2.0]])).tolist()
    [0.75]
    """
    # Sums that would be equal may differ in what was cut off below 2**-30.
    as_large = np.abs(replicates) >= (1 - 2.0**-20) * np.abs(observed)[:, None]
    p = (1 + as_large.sum(axis=1)) / (replicates.shape[1] + 1)
    return np.where(np.isnan(observed), np.nan, p)
