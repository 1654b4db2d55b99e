"""Means from labels of people for a few queries and labels of a machine for all: prediction-powered inference.

Source: Angelopoulos, Duchi, Zrnic, PPI++ (2023), arXiv 2311.01453. The slope lambda of a query is made without it: one
that is estimated with the query itself has intervals that are too narrow where few queries are judged.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, stdtr

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.significance import minimum_detectable_effect

#: Fewer judged queries have a mean, and neither an interval nor a verdict.
LEAST_JUDGED = 20
#: Squared errors of independent parts, with their degrees of freedom.
Parts = Sequence[tuple[float, float]]
#: Labels of fewer expected judged queries are put together, as usual for chi-squared.
LEAST_EXPECTED = 5
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


class Corrected(NamedTuple):
    """A mean of people's labels, corrected by the machine's.

    Attributes:
        mean: The estimate.
        influence: (n,) what each judged query adds to its error.
        slope: Mean of the lambdas; 0 where people's labels alone are used.
        others: The machine's values of the other queries.
        weight: Of the error of their mean: the slope, or 0 if there is none.
        weights: (n,) of the judged queries, with the mean 1.
    """

    mean: float
    influence: Floats
    slope: float
    others: Others
    weight: float
    weights: Floats

    @property
    def effective(self) -> float:
        """How many queries of equal weights the judged ones are worth."""
        return effective_number(self.weights)

    @property
    def parts(self) -> Parts:
        """Squared errors with their degrees of freedom: of the machine's mean of the others, and of judged queries."""
        n = len(self.influence)
        of_judged = float(self.influence.var(ddof=1)) / n if n > 1 else np.nan
        of_others = self.weight**2 * self.others.variance / self.others.n if self.weight else 0.0
        # A variance of terms w * v has the degrees of freedom (sum w**2)**2 / sum w**4 (Satterthwaite, 1946).
        return [(of_others, self.others.n - 1), (of_judged, effective_number(self.weights**2) - 1)]

    @property
    def squared_error(self) -> float:
        """Of the mean; NaN below two judged queries."""
        return sum(error for error, _ in self.parts)

    def covariance(self, other: "Corrected", of_others: float) -> float:
        """Of the errors of two means of the same queries; ``of_others``: of the machine's values of the others."""
        n, shared = len(self.influence), self.weight * other.weight
        of_judged = float(np.cov(self.influence, other.influence)[0, 1]) / n if n > 1 else np.nan
        return of_judged + (shared * of_others / self.others.n if shared else 0.0)


def welch_df(parts: Parts) -> float:
    """Degrees of freedom of a sum of independent squared errors, by Welch and Satterthwaite."""
    squares = sum(error**2 / df if df else np.nan for error, df in parts if error)
    return float(sum(error for error, _ in parts) ** 2 / squares) if squares else float(parts[-1][1])


def weighted(h: Floats, f: Floats, weights: Floats) -> float:
    """Covariance of (n,) values whose (n,) weights have the mean 1, divided by n - 1."""
    off, of_h = (each - (weights * each).sum() / max(len(each), 1) for each in (f, h))
    return float((weights * off * of_h).sum() / (len(h) - 1)) if len(h) > 1 else np.nan


def moments_without(
    h: Floats, f: Floats, others: Others, weights: Floats, leave_out: bool = True
) -> tuple[Floats, Floats]:
    """(n,) cov(h, f) over the judged queries and (1 + n / N) * var(f) over all, each without the query itself."""
    n, size = len(h), len(h) + others.n
    off, of_h, all_f = f - (weights * f).mean(), h - (weights * h).mean(), joined_values(f, others)
    cross, spread = np.full(n, (weights * of_h * off).sum()), np.full(n, all_f.variance * (size - 1))
    left = np.full(n, n - 1.0)
    if leave_out:
        # What is left of sums around the mean, without one of n values.
        cross = cross - weights * of_h * off * n / (n - weights)
        spread = spread - (f - all_f.mean) ** 2 * size / (size - 1)
        left = (n - weights) * (n - 2) / (n - 1)
    return cross / left, (1 + n / others.n) * spread / (size - 1 - leave_out)


def slopes(h: Floats, f: Floats, others: Others, leave_out: bool = True, weights: Any = 1.0) -> Floats:
    """(n,) lambda of each judged query, made without it; all the same with ``leave_out=False``.

    cov(h, f) over the judged queries / ((1 + n / N) * var(f) over all queries), within 0 and 1.
    """
    return clipped(*moments_without(h, f, others, np.broadcast_to(weights, h.shape), leave_out))


def clipped(covariance: Floats, variance: Floats) -> Floats:
    """(n,) lambdas within 0 and 1; 0 without a spread."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(np.clip(covariance / variance, 0, 1)))


def machine_helps(n: float, n_different: int, rho: float) -> bool:
    """Whether the machine's labels agree with people's so well that using them is expected to narrow the interval.

    Args:
        n: Judged queries, or how many of equal weights they are worth.
        n_different: How many of them have another value under the machine's labels.
        rho: Correlation of the values under both.

    >>> machine_helps(20, 10, 0.3), machine_helps(20, 10, 0.2), machine_helps(20, 9, 0.9)
    (True, False, False)
    """
    return bool(n >= LEAST_JUDGED and n_different >= LEAST_DIFFERENT and rho > 1 / np.sqrt(n - 2))


def effective_number(weights: Floats) -> float:
    """How many queries of equal weights these are worth (Kish, Survey Sampling, 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def corrected(
    h: Floats, f: Floats, others: Others, slope: Any = None, of_these: bool = False, weights: Any = 1.0
) -> Corrected:
    """The mean of people's labels, corrected by the machine's.

    Queries that were drawn with unequal probabilities have the weights w = 1 / probability in each mean, Hajek's:
    sum(w * h) / sum(w) - lambda * (1 + n / N) * (sum(w * f) / sum(w) - mean of f over all queries), a difference
    estimator (Särndal, Swensson, Wretman, Model Assisted Survey Sampling, 1992, chapter 6). Its error is that of the
    jackknife: of what each query changes in these means. With equal weights it is the rule without them.

    Args:
        h: (n,) values under people's labels.
        f: (n,) values of the same queries under the machine's labels.
        others: The machine's values of the other queries.
        slope: Lambda, one number or (n,); by default each query has one that was made without it.
        of_these: Whether the mean is that of these n + N queries, and not of what they are a sample of.
        weights: (n,) weights of the judged queries, whose mean is 1.
    """
    n, ratio = len(h), len(h) / max(others.n, 1)
    weights = np.broadcast_to(np.asarray(weights, float), h.shape)
    slope = slopes(h, f, others, weights=weights) if slope is None else slope
    used = np.broadcast_to(np.asarray(slope, float), h.shape)
    # The mean of the others, had the judged ones been drawn with equal probabilities.
    off = f - (others.mean + ratio * (f.mean() - (weights * f).mean()) if used.any() else 0.0)
    mean, estimate = (float(used.mean()), float((weights * (h - used * off)).mean())) if n else (0.0, np.nan)
    rest = h - used * (1 + ratio) * off
    without = (n - 1) / np.where(weights < n, n - weights, 1.0)
    influence = weights * without * (rest - (weights * rest).sum() / max(n, 1))
    if not of_these or not others.n:
        return Corrected(estimate, influence + used * ratio * off, mean, others, mean, weights)
    unseen = np.sqrt(np.maximum(1 - n / (weights * (n + others.n)), 0.0))
    return Corrected(estimate, unseen * influence, mean, others, 0.0, weights)


def sample_p(f: Floats, others: Others, weights: Floats) -> float:
    """P-value of values of judged queries being those of queries like the others; NaN of too few.

    By t, with the variance of all or that of the weighted judged ones if it is larger, and without the judged query
    that speaks most for a difference, since a value that few queries have may be drawn by chance.
    """
    every = joined_values(f, others)
    if len(f) < 3 or others.n < 2:
        return float("nan")
    off = weights * (f - every.mean)
    kept = np.arange(len(f)) != np.argmax(np.sign(off.sum()) * off)
    f, weights = f[kept], weights[kept] / weights[kept].mean()
    # Of values of 0 and with a lambda of -1, it is the mean of the judged less that of the others.
    apart = corrected(0 * f, f, others, -1.0, weights=weights)
    squared = max(apart.squared_error, every.variance * (1 / apart.effective + 1 / others.n))
    no_spread = every.variance <= 1e-18 * (1 + every.mean**2)
    return 1.0 if no_spread else float(2 * stdtr(every.n - 3, -abs(apart.mean) / np.sqrt(squared)))


def shares_p(weights: Floats, n: Floats, others: Floats, effective: float) -> float:
    """P-value of (l,) labels of judged queries having the shares that they have of all, by Pearson's chi-squared.

    NaN without two labels of at least ``LEAST_EXPECTED`` expected queries; rarer ones count as one label.

    Args:
        weights: (l,) sum of the weights of the judged queries of each label.
        n: (l,) how many these are.
        others: (l,) queries that nobody judged.
        effective: How many queries of equal weights the judged ones are worth.

    >>> round(shares_p(np.array([10.0, 20.0]), np.array([10, 20]), np.array([40, 30]), 30.0), 6)  # chi2 = 100 / 21
    0.029096
    """
    size, every = n + others, np.array([weights, n + others]) / [[max(weights.sum(), 1e-300)], [(n + others).sum()]]
    rare = effective * every[1] < LEAST_EXPECTED
    if rare.any() and not rare.all() and effective * every[1, rare].sum() < LEAST_EXPECTED:
        rare[np.argmin(np.where(rare, np.inf, size))] = True
    seen, share = np.c_[every[:, ~rare], every[:, rare].sum(1)][:, [*[True] * (~rare).sum(), rare.any()]]
    if len(share) < 2 or not others.any():
        return float("nan")
    # Of all queries, n / (n + N) are judged, with their weights a part of both shares.
    squares = (size.sum() / others.sum() * (seen - share)) ** 2 / share
    return float(chdtrc(len(share) - 1, squares.sum() / (1 / effective + 1 / others.sum())))


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

    def parts(self, n: int) -> Parts:
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
