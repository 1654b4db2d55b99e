"""Checks of an experiment before anyone believes its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankmetrics_spark.statistics.exact_sums import Floats


def sample_ratio_p(counts: Any, shares: Any) -> Floats:
    """Sample-ratio mismatch: are the users split as planned? A chi-square test.

    Args:
        counts: (..., k) users per experiment.
        shares: (k,) or (..., k) planned shares, each above 0; only their proportions count.

    Returns:
        (...) p-values; NaN without users. A tiny one, below 0.001 say, means that users were lost or assigned wrongly.

    Raises:
        ValueError: A share is not above 0.

    Source: Fabijan et al., Diagnosing Sample Ratio Mismatch in Online Controlled Experiments (2019).

    >>> round(float(sample_ratio_p([821588, 815482], [0.5, 0.5])), 9)
    1.822e-06
    """
    # Imported here: it takes long, and the Python workers of Spark import this package without testing anything.
    from scipy.stats import chisquare

    seen, planned = np.asarray(counts, float), np.asarray(shares, float)
    if not (planned > 0).all():
        raise ValueError(f"planned shares must be above 0; found {planned.tolist()}")
    users = seen.sum(axis=-1, keepdims=True)
    expected = planned / planned.sum(axis=-1, keepdims=True) * np.where(users > 0, users, np.nan)
    return np.asarray(chisquare(seen, expected, axis=-1).pvalue)
