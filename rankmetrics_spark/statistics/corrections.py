"""Corrections of p-values when many comparisons are made at once."""

from __future__ import annotations

import numpy as np

from rankmetrics_spark.statistics.exact_sums import Floats

CORRECTIONS = ("holm", "bonferroni", "fdr_bh", "fdr_by", "none")
"""Holm and Bonferroni bound the chance of any false finding; fdr_bh and fdr_by the share of false ones."""


def adjusted_p_values(p_values: Floats, method: str = "holm") -> Floats:
    """Adjusted p-values of one family of comparisons, by statsmodels.

    Args:
        p_values: (n,) of the family; a NaN was not tested: it stays NaN and does not count.
        method: holm, bonferroni, fdr_bh (Benjamini-Hochberg), fdr_by (Benjamini-Yekutieli) or none.

    Returns:
        (n,) to compare with the level of significance.

    Raises:
        ValueError: Unknown method.

    Source: Holm (1979); Benjamini and Hochberg (1995); Benjamini and Yekutieli (2001).

    >>> adjusted_p_values(np.array([0.01, np.nan, 0.03]), "bonferroni").tolist()
    [0.02, nan, 0.06]
    """
    if method not in CORRECTIONS:
        raise ValueError(f"unknown correction '{method}'; known: {', '.join(CORRECTIONS)}")
    tested = ~np.isnan(p_values)
    if method == "none" or not tested.any():
        return np.array(p_values, float)
    # Imported here: it takes seconds, and only a comparison needs it.
    from statsmodels.stats.multitest import multipletests

    found = np.full(len(p_values), np.nan)
    found[tested] = multipletests(p_values[tested], method=method)[1]
    return found


def strictest_level(alpha: float, n: int, method: str = "holm") -> float:
    """The level at which a comparison is found, whatever the others of its family show.

    Holm and Benjamini-Hochberg ask less of a comparison once others are found; alone among n, it has to pass this one.

    Args:
        alpha: Level of significance of the family.
        n: Comparisons of the family that are tested.
        method: As in ``adjusted_p_values``.

    >>> strictest_level(0.05, 5, "holm"), round(strictest_level(0.05, 2, "fdr_by"), 6), strictest_level(0.05, 5, "none")
    (0.01, 0.016667, 0.05)
    """
    if method == "none" or n < 2:
        return alpha
    return alpha / (n * sum(1 / k for k in range(1, n + 1)) if method == "fdr_by" else n)
