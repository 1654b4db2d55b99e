"""Means from labels of people for a few queries and labels of a machine for all: prediction-powered inference.

Source: Angelopoulos, Duchi, Zrnic, PPI++ (2023), arXiv 2311.01453. The slope lambda of a query is made without it: one
that is estimated with the query itself has intervals that are too narrow where few queries are judged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.significance import minimum_detectable_effect

#: Fewer judged queries have a mean, and neither an interval nor a verdict.
LEAST_JUDGED = 20
#: The machine is used only where people and machine differ in so many judged queries.
LEAST_DIFFERENT = 10


@dataclass(frozen=True)
class Others:
    """The machine's values of the queries that nobody judged.

    Attributes:
        n: How many there are.
        mean: Of the values.
        variance: Of the values, divided by n - 1.
    """

    n: int
    mean: float
    variance: float


def joined_values(f: Floats, others: Others) -> Others:
    """The machine's values of all queries.

    >>> joined_values(np.array([1.0, 2.0]), Others(2, 3.5, 0.5))
    Others(n=4, mean=2.5, variance=1.6666666666666667)
    """
    size = len(f) + others.n
    mean = (float(f.sum()) + others.n * others.mean) / size if size else np.nan
    squares = float(((f - mean) ** 2).sum()) + others.n * (others.mean - mean) ** 2
    squares += others.variance * (others.n - 1) if others.n > 1 else 0.0
    return Others(size, mean, squares / (size - 1) if size > 1 else np.nan)


@dataclass(frozen=True)
class Corrected:
    """A mean of people's labels, corrected by the machine's.

    Attributes:
        mean: The estimate.
        influence: (n,) what each judged query adds to its error.
        slope: Mean of the lambdas; 0 where people's labels alone are used.
        others: The machine's values of the other queries.
        weight: Of the error of their mean: the slope, or 0 if there is none.
    """

    mean: float
    influence: Floats
    slope: float
    others: Others
    weight: float

    @property
    def parts(self) -> list[tuple[float, int]]:
        """Squared errors with their degrees of freedom: of the machine's mean of the others, and of judged queries."""
        n = len(self.influence)
        of_judged = float(self.influence.var(ddof=1)) / n if n > 1 else np.nan
        of_others = self.weight**2 * self.others.variance / self.others.n if self.weight else 0.0
        return [(of_others, self.others.n - 1), (of_judged, n - 1)]

    @property
    def squared_error(self) -> float:
        """Of the mean; NaN below two judged queries."""
        return sum(error for error, _ in self.parts)

    def covariance(self, other: Corrected, of_others: float) -> float:
        """Of the errors of two means of the same queries; ``of_others``: of the machine's values of the others."""
        n, shared = len(self.influence), self.weight * other.weight
        of_judged = float(np.cov(self.influence, other.influence)[0, 1]) / n if n > 1 else np.nan
        return of_judged + (shared * of_others / self.others.n if shared else 0.0)


def welch_df(parts: list[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of independent squared errors, by Welch and Satterthwaite."""
    weighted = sum(error**2 / df for error, df in parts if error)
    return float(sum(error for error, _ in parts) ** 2 / weighted) if weighted else float(parts[-1][1])


def slopes(h: Floats, f: Floats, others: Others, leave_out: bool = True) -> Floats:
    """(n,) lambda of each judged query, made without it; all the same with ``leave_out=False``.

    cov(h, f) over the judged queries / ((1 + n / N) * var(f) over all queries), within 0 and 1.
    """
    n, size = len(h), len(h) + others.n
    off, of_h, all_f = f - f.mean(), h - h.mean(), joined_values(f, others)
    mean, spread = all_f.mean, np.full(n, all_f.variance * (size - 1))
    cross = np.full(n, (of_h * off).sum())
    if leave_out:
        # What is left of sums around the mean, without one of n values.
        cross, spread = cross - of_h * off * n / (n - 1), spread - (f - mean) ** 2 * size / (size - 1)
    covariance, variance = cross / (n - 1 - leave_out), spread / (size - 1 - leave_out)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(np.clip(covariance / ((1 + n / others.n) * variance), 0, 1)))


def machine_helps(h: Floats, f: Floats) -> bool:
    """Whether the machine's labels agree with people's so well that using them is expected to narrow the interval.

    >>> people = np.arange(20.0)
    >>> machine_helps(people, people + np.tile([0, 1], 10)), machine_helps(people, people)
    (True, False)
    """
    n = len(h)
    if n < LEAST_JUDGED or np.count_nonzero(h != f) < LEAST_DIFFERENT or not (h.std() > 0 and f.std() > 0):
        return False
    return bool(np.corrcoef(h, f)[0, 1] > 1 / np.sqrt(n - 2))


def corrected(h: Floats, f: Floats, others: Others, slope: Any = None, of_these: bool = False) -> Corrected:
    """The mean of people's labels, corrected by the machine's.

    Args:
        h: (n,) values under people's labels.
        f: (n,) values of the same queries under the machine's labels.
        others: The machine's values of the other queries.
        slope: Lambda, one number or (n,); by default each query has one that was made without it.
        of_these: Whether the mean is that of these n + N queries, and not of what they are a sample of.
    """
    used = slopes(h, f, others) if slope is None else np.broadcast_to(np.asarray(slope, float), h.shape)
    off, mean = f - np.where(used.any(), others.mean, 0.0), float(used.mean()) if len(h) else 0.0
    values = h - used * off
    estimate = float(values.mean()) if len(h) else np.nan
    if not of_these or not others.n:
        return Corrected(estimate, values, mean, others, mean)
    n, size = len(h), len(h) + others.n
    return Corrected(estimate, np.sqrt(others.n / size) * (h - used * (1 + n / others.n) * off), mean, others, 0.0)


@dataclass(frozen=True)
class Side:
    """What a pilot says of a mean that will be corrected: of differences of pairs, or of one of two experiments.

    Attributes:
        people: Variance of the values under people's labels.
        machine: Variance under the machine's.
        rho: Correlation of the two; 0 where the machine is not used.
        size: Users that the machine judges.
    """

    people: float
    machine: float
    rho: float
    size: int

    def parts(self, n: int) -> list[tuple[float, int]]:
        """Squared errors with their degrees of freedom, as of ``Corrected``, where people judge n users.

        Unless lambda is 1, their sum is (1 - rho**2 * N / (n + N) + (1 + rho**2) / n / (1 + n / N)**2) * people / n:
        the last part is what a lambda costs that is made from n normal values.

        >>> parts = Side(8.0, 8.0, 0.5, 100).parts(50)  # (1 - 0.125 + 1.25 / 50 / 4) * 8 / 50
        >>> round(sum(error for error, _ in parts), 9)
        0.141
        """
        others, covariance = self.size - n, self.rho * float(np.sqrt(self.people * self.machine))
        if others < 2 or not covariance > 0:
            return [(0.0, others - 1), (self.people / n, n - 1)]
        ratio = 1 + n / others
        slope = min(covariance / (ratio * self.machine), 1.0)
        of_judged = self.people - 2 * slope * covariance + slope**2 * self.machine
        of_judged += (1 + self.rho**2) * self.people / n / ratio**2 if slope < 1 else 0.0
        return [(slope**2 * self.machine / others, others - 1), (of_judged / n, n - 1)]


def smallest_effect(sides: Sequence[Side], n: int, confidence: float, power: float) -> float:
    """The smallest difference that is found with this power where people judge n users of each side."""
    parts = [part for side in sides for part in side.parts(n)]
    error = np.array(np.sqrt(sum(squared for squared, _ in parts)))
    return float(minimum_detectable_effect(error, np.array(welch_df(parts)), confidence, power))


def labels_needed(sides: Sequence[Side], effect: float, confidence: float, power: float) -> int | None:
    """The least users of each side whom people have to judge to find an effect; None where all are too few."""
    sizes = range(LEAST_JUDGED, min(side.size for side in sides) + 1)
    at = bisect_left(sizes, -effect, key=lambda n: -smallest_effect(sides, n, confidence, power))
    return sizes[at] if at < len(sizes) else None
