"""Number, sum and sum of squares of some values, exact; means and deviations are arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics.exact_sums import UNIT, Floats


@dataclass(frozen=True)
class Moments:
    """Number, sum and sum of squares of the values of g groups, as exact integers; add two of them with ``+``.

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
        """(g,) mean, rounded once; NaN without values."""
        n = np.where(self.n == 0, 1, self.n)
        return np.where(self.n == 0, np.nan, (self.total / (n * 2**UNIT)).astype(float))

    @property
    def std(self) -> Floats:
        """(g,) sample standard deviation, divided by n - 1; NaN below two values."""
        n = np.where(self.n < 2, 2, self.n)
        spread = self.n * self.squares * 2**UNIT - self.total * self.total
        variance = (spread / (n * (n - 1) * 2 ** (2 * UNIT))).astype(float)
        # A variance below the rounding of the sums cannot be told from 0.
        mean = np.abs(np.nan_to_num(self.mean))
        floor = (1 + 4 * mean) * 2.0**-UNIT + mean**2 * 2.0**-52
        return np.where(self.n < 2, np.nan, np.sqrt(np.where(variance <= floor, 0.0, variance)))
