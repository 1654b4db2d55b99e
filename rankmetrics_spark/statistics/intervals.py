"""Confidence intervals of a mean."""

from __future__ import annotations

import numpy as np

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Moments


def t_interval(moments: Moments, confidence: float) -> tuple[Floats, Floats]:
    """Student's t interval of the mean: mean -+ t(1 - (1 - confidence) / 2, n - 1) * std / sqrt(n).

    Args:
        moments: Of g groups.
        confidence: In (0, 1).

    Returns:
        Lower and upper bounds, (g,) each; NaN below two values.

    Source: Student, The Probable Error of a Mean (1908); same numbers as ``scipy.stats.t.interval``.
    """
    # Imported here: it is a fifth of what a Python worker of Spark loads, and those that score lists do not need it.
    from scipy.special import stdtrit

    n = np.maximum(moments.n.astype(float), 2.0)
    half = stdtrit(n - 1, 0.5 + confidence / 2) * moments.std / np.sqrt(n)
    return moments.mean - half, moments.mean + half
