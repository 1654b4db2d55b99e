"""Number and sums of powers of some values, exact; means, deviations and covariances are arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, Floats

Whole = npt.NDArray[Any]
"""Python integers in an object array: they neither round nor overflow."""


@dataclass(frozen=True)
class Moments:
    """Number and sums of powers of the values of g groups, as exact integers; add two of them with ``+``.

    Attributes:
        n: (g,) number of values, as Python integers (object array).
        total: (g,) their sum in units of 2**-60, likewise.
        squares: (g,) the sum of their squares, likewise.
        cubes: (g,) the sum of their cubes, likewise; None where nobody summed them. Only ``skew_term`` needs them.

    >>> a = Moments.of([0.5, 1.0]); float((a + a).mean[0]), round(float((a + a).std[0]), 6)
    (0.75, 0.288675)
    """

    n: Whole
    total: Whole
    squares: Whole
    cubes: Whole | None = None

    @classmethod
    def of(cls, values: Any) -> Moments:
        """Moments of one group of plain values."""
        whole = [round(v * 2**LIMB_UNIT) for v in values]
        square = [round(v * v * 2**LIMB_UNIT) for v in values]
        cube = [round(v * v * v * 2**LIMB_UNIT) for v in values]
        return cls(*(np.array([x], dtype=object) for x in (len(whole), sum(whole), sum(square), sum(cube))))

    def __add__(self, other: Moments) -> Moments:
        cubes = None if self.cubes is None or other.cubes is None else self.cubes + other.cubes
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares, cubes)

    @property
    def mean(self) -> Floats:
        """(g,) mean, rounded once; NaN without values."""
        n = np.where(self.n == 0, 1, self.n)
        return np.where(self.n == 0, np.nan, (self.total / (n * 2**LIMB_UNIT)).astype(float))

    @property
    def variance(self) -> Floats:
        """(g,) sample variance, divided by n - 1; NaN below two values, 0 below the rounding of the sums."""
        n = np.where(self.n < 2, 2, self.n)
        variance = (self._spread / (n * (n - 1) * 2 ** (2 * LIMB_UNIT))).astype(float)
        # A variance below the rounding of the sums cannot be told from 0.
        mean = np.abs(np.nan_to_num(self.mean))
        floor = (1 + 4 * mean) * 2.0**-LIMB_UNIT + mean**2 * 2.0**-52
        return np.where(self.n < 2, np.nan, np.where(variance <= floor, 0.0, variance))

    @property
    def std(self) -> Floats:
        """(g,) sample standard deviation, divided by n - 1; NaN below two values."""
        return np.asarray(np.sqrt(self.variance))

    def skew_term(self) -> Floats:
        """Acceleration of the BCa interval of the mean: sum((v - mean)**3) / (6 * sum((v - mean)**2)**1.5).

        Returns:
            (g,) accelerations; 0 where the spread is 0 and below two values.

        Raises:
            ValueError: The cubes were not summed.

        Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), equation 14.15; the jackknife values of a
        mean are proportional to v - mean.
        """
        if self.cubes is None:
            raise ValueError("these moments have no sums of cubes; the acceleration of BCa needs them")
        spread = np.nan_to_num(self.variance) > 0
        n, t, unit = np.where(spread, self.n, 2), self.total, 2**LIMB_UNIT
        third = (self.cubes * n * n * unit**2 - 3 * t * self.squares * n * unit + 2 * t * t * t) / (n * n * unit**3)
        second = np.where(spread, self.variance, 1.0) * (n.astype(float) - 1)
        return np.where(spread, third.astype(float) / (6 * second**1.5), 0.0)

    @property
    def _spread(self) -> Whole:
        """(g,) n * sum((v - mean)**2) in units of 2**-120, exact."""
        return np.asarray(self.n * self.squares * 2**LIMB_UNIT - self.total * self.total)


@dataclass(frozen=True)
class PairMoments:
    """Moments of the users who are in both experiments of a pair; add two of them with ``+``.

    Attributes:
        baseline: Of the users' values in the baseline.
        candidate: Of the values of the same users in the candidate.
        difference: Of candidate - baseline per user.

    >>> pair = PairMoments(Moments.of([0.0, 1.0]), Moments.of([1.0, 4.0]), Moments.of([1.0, 3.0]))
    >>> pair.covariance.tolist()
    [1.5]
    """

    baseline: Moments
    candidate: Moments
    difference: Moments

    def __add__(self, other: PairMoments) -> PairMoments:
        return PairMoments(
            self.baseline + other.baseline, self.candidate + other.candidate, self.difference + other.difference
        )

    @property
    def covariance(self) -> Floats:
        """(g,) sample covariance of a user's two values: (var(b) + var(c) - var(c - b)) / 2; NaN below two users."""
        return (self.baseline.variance + self.candidate.variance - self.difference.variance) / 2


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
