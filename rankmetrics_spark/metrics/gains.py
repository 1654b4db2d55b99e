"""What a grade is worth in CG, DCG and NDCG: one function per value of the knob ``gain``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankmetrics_spark.metrics.batch import Floats
from rankmetrics_spark.metrics.conventions import Convention

LARGEST = 2.0**1000
"""Gains stop here, so that sums of gains stay finite."""
SUMMABLE = 2.0**900
"""A discounted sum of gains from here on is called infinite: one of its gains may have been cut to ``LARGEST``."""


def gain(grade: Floats, convention: Convention) -> Floats:
    """Gain of each grade, at most ``LARGEST``; 0 for a grade of 0 or less and for an unjudged item.

    Args:
        grade: (e,) grades; NaN = unjudged.
        convention: Its ``gain`` and ``gain_table`` are used.

    Returns:
        (e,) gains.

    >>> gain(np.array([np.nan, -1.0, 0.0, 3.0]), Convention(gain="exponential")).tolist()
    [0.0, 0.0, 0.0, 7.0]
    """
    positive = np.where(grade > 0, grade, 0.0)
    gains = np.minimum(GAINS[convention.gain](positive, convention), LARGEST)
    return np.asarray(np.where(positive > 0, gains, 0.0))


def exponential(grade: Floats) -> Floats:
    """2^g - 1 of each grade, exact for whole grades.

    Source: Burges et al., Learning to Rank Using Gradient Descent (ICML 2005).

    >>> exponential(np.array([1.0, 31.0])).tolist()
    [1.0, 2147483647.0]
    """
    return power_of_two(grade) - 1.0


def power_of_two(exponent: Floats) -> Floats:
    """2^x of each element, exact for whole numbers on every platform; infinite where x is too large.

    >>> power_of_two(np.array([0.5, 4.0])).round(6).tolist()
    [1.414214, 16.0]
    """
    fraction, whole = np.modf(exponent)
    # Most grades are whole, and 2^0 is 1.
    factor = np.exp2(fraction) if fraction.any() else 1.0
    # ldexp takes C integers: cap what overflows to infinity anyway.
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(factor, np.minimum(whole, 1100.0).astype(np.int64)))


def _tabled(grade: Floats, convention: Convention) -> Floats:
    grades, gains = np.array(convention.gain_table).T
    return np.concatenate([[0.0], gains])[np.searchsorted(grades, grade, side="right")]


GAINS: dict[str, Callable[[Floats, Convention], Floats]] = {
    "linear": lambda grade, _: grade,
    "exponential": lambda grade, _: exponential(grade),
    "binary": lambda grade, _: np.ones_like(grade),
    "table": _tabled,
}
