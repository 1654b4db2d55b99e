"""Statistics as plain arithmetic on sums; no back-end type reaches them, and no pyspark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]
UNIT = 60
"""Sums are whole multiples of 2**-UNIT."""


@dataclass(frozen=True)
class Moments:
    """Number, sum and sum of squares of some values, as exact integers; add two of them with ``+``.

    Attributes:
        n: (g,) number of values.
        total: (g,) their sum in units of 2**-60, as Python integers (object array).
        squares: (g,) the sum of their squares, likewise.

    >>> a = Moments.of([0.5, 1.0]); float((a + a).mean[0]), round(float((a + a).std[0]), 6)
    (0.75, 0.288675)
    """

    n: npt.NDArray[Any]
    total: npt.NDArray[Any]
    squares: npt.NDArray[Any]

    @classmethod
    def of(cls, values: Any) -> Moments:
        """Moments of one group of plain values."""
        whole = [round(v * 2**UNIT) for v in values]
        square = [round(v * v * 2**UNIT) for v in values]
        return cls(*(np.array([x], dtype=object) for x in (len(whole), sum(whole), sum(square))))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> Floats:
        """(g,) mean; NaN without values."""
        n = np.where(self.n == 0, 1, self.n)
        return np.where(self.n == 0, np.nan, (self.total / (n * 2**UNIT)).astype(float))

    @property
    def std(self) -> Floats:
        """(g,) sample standard deviation, divided by n - 1; NaN below two values."""
        n = np.where(self.n < 2, 2, self.n)
        spread = self.n * self.squares * 2**UNIT - self.total * self.total
        variance = (spread / (n * (n - 1) * 2 ** (2 * UNIT))).astype(float)
        # Below the rounding of the sums a spread cannot be told from none.
        mean = np.abs(np.nan_to_num(self.mean))
        floor = (1 + 4 * mean) * 2.0**-UNIT + mean**2 * 2.0**-52
        return np.where(self.n < 2, np.nan, np.sqrt(np.where(variance <= floor, 0.0, variance)))


def t_interval(moments: Moments, confidence: float) -> tuple[Floats, Floats]:
    """Student's t interval of the mean: mean -+ t(1 - (1 - confidence) / 2, n - 1) * std / sqrt(n), (g,) each.

    NaN below two values. Source: any textbook; same numbers as ``scipy.stats.t.interval``.
    """
    n = np.maximum(moments.n.astype(float), 2.0)
    half = stdtrit(n - 1, 0.5 + confidence / 2) * moments.std / np.sqrt(n)
    return moments.mean - half, moments.mean + half
