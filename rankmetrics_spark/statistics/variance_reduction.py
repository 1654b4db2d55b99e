"""CUPED: a covariate from before the experiment takes away the part of the variance that it explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankmetrics_spark.statistics.exact_sums import UNIT, Floats
from rankmetrics_spark.statistics.moments import Moments, Whole
from rankmetrics_spark.statistics.significance import Estimate, welch_df


@dataclass(frozen=True)
class CovariateMoments:
    """Moments of a value and of a covariate of the users who have both; add two of them with ``+``.

    Attributes:
        y: Of the value.
        x: Of the covariate, over the same users.
        xy_total: (g,) the sum of their products in units of 2**-60, as Python integers (object array).

    >>> float(CovariateMoments.of([1.0, 2.0], [1.0, 3.0]).covariance[0])
    1.0
    """

    y: Moments
    x: Moments
    xy_total: Whole

    @classmethod
    def of(cls, y: list[float], x: list[float]) -> CovariateMoments:
        """Moments of one group of plain values."""
        products = sum(round(a * b * 2**UNIT) for a, b in zip(y, x, strict=True))
        return cls(Moments.of(y), Moments.of(x), np.array([products], dtype=object))

    def __add__(self, other: CovariateMoments) -> CovariateMoments:
        return CovariateMoments(self.y + other.y, self.x + other.x, self.xy_total + other.xy_total)

    @property
    def cross(self) -> Floats:
        """(g,) sum((y - mean(y)) * (x - mean(x))); 0 below two users and where one of the two has no spread."""
        n = np.where(self.y.n == 0, 1, self.y.n)
        whole = n * self.xy_total * 2**UNIT - self.y.total * self.x.total
        # What is left without a spread is the rounding of the products.
        moving = (np.nan_to_num(self.y.variance) > 0) & (np.nan_to_num(self.x.variance) > 0)
        return np.where(moving, (whole / (n * 2 ** (2 * UNIT))).astype(float), 0.0)

    @property
    def covariance(self) -> Floats:
        """(g,) sample covariance, divided by n - 1; NaN below two users."""
        return np.asarray(self.cross / np.where(self.y.n < 2, np.nan, self.y.n - 1).astype(float))

    @property
    def spread(self) -> Floats:
        """(g,) sum((x - mean(x))**2); 0 below two users."""
        return np.asarray(np.nan_to_num(self.x.variance) * np.maximum(self.x.n - 1, 0).astype(float))

    def residual(self, theta: Floats) -> Floats:
        """(g,) sum((y - theta * x - their mean)**2); NaN below two users."""
        of_y, of_x = self.y.variance * (self.y.n - 1).astype(float), theta**2 * self.spread
        left = of_y - 2 * theta * self.cross + of_x
        # A smaller rest cannot be told from rounding.
        return np.where(left <= 2.0**-48 * (of_y + of_x), 0.0, left)


def theta(*arms: CovariateMoments) -> Floats:
    """The slope cov(y, x) / var(x) that all arms share.

    Sums of squares and products are taken around the mean of each arm, so that the difference of the arms does not
    leak into the slope.

    Args:
        arms: One for a paired design; two for an independent one.

    Returns:
        (g,) slopes; 0 where the covariate has no spread.
    """
    cross = sum((arm.cross for arm in arms), np.zeros(len(arms[0].y.n)))
    spread = sum((arm.spread for arm in arms), np.zeros(len(cross)))
    return np.where(spread > 0, cross / np.where(spread > 0, spread, 1.0), 0.0)


def variance_reduction(*arms: CovariateMoments) -> Floats:
    """Share of the variance that the covariate explains: rho**2, with the sums of all arms.

    Args:
        arms: As for ``theta``.

    Returns:
        (g,) in [0, 1]; NaN where the value has no spread.
    """
    slope, nothing = theta(*arms), np.zeros(len(arms[0].y.n))
    left = sum((arm.residual(slope) for arm in arms), nothing)
    whole = sum((arm.residual(nothing) for arm in arms), nothing)
    return np.asarray(1 - left / np.where(whole > 0, whole, np.nan))


def cuped_paired(difference: CovariateMoments, confidence: float) -> tuple[Estimate, Floats]:
    """Paired t test of the differences, less what the differences of the period before explain.

    The estimate is mean(y) - theta * mean(x): the expected difference of users whose covariates did not differ. It is
    the intercept of a least-squares line through (x, y), with that line's error and n - 2 degrees of freedom.

    Args:
        difference: y = candidate - baseline per user; x = the same difference in the period before the experiment.
        confidence: In (0, 1).

    Returns:
        Estimates (errors are NaN below three users; without a spread of x, it is ``paired_t``), and the share of the
        variance that the covariate explains, (g,): see ``variance_reduction``.

    Source: Deng et al., Improving the Sensitivity of Online Controlled Experiments by Utilizing Pre-Experiment Data
    (2013).
    """
    slope, spread = theta(difference), difference.spread
    n = np.where(difference.y.n < 2, np.nan, difference.y.n).astype(float)
    df = _positive(n - 1 - (spread > 0))
    lever = np.where(spread > 0, difference.x.mean**2 / np.where(spread > 0, spread, 1.0), 0.0)
    error = np.sqrt(difference.residual(slope) / df * (1 / n + lever))
    shift = np.where(spread > 0, slope * difference.x.mean, 0.0)
    found = Estimate.of(difference.y.mean - shift, error, df, confidence)
    return found, variance_reduction(difference)


def cuped_independent(
    baseline: CovariateMoments, candidate: CovariateMoments, confidence: float
) -> tuple[Estimate, Floats]:
    """Welch's t test of two experiments after both are adjusted by the slope that they share.

    The estimate is the coefficient of the arm in a least-squares fit of y on arm and x. The variances of the arms may
    differ, as in Welch's test; the error of the slope is part of the error of the estimate.

    Args:
        baseline: y = the metric, x = the covariate of the same user from before the experiment.
        candidate: Likewise.
        confidence: In (0, 1).

    Returns:
        Estimates (errors are NaN below two users in an arm; without a spread of x, it is ``welch``), and the share of
        the variance that the covariate explains, (g,): see ``variance_reduction``.

    Source: Deng et al. (2013), as ``cuped_paired``.
    """
    arms, slope = [baseline, candidate], theta(baseline, candidate)
    spread = baseline.spread + candidate.spread
    fitted = spread > 0
    users = np.where(baseline.y.n + candidate.y.n < 4, np.nan, baseline.y.n + candidate.y.n).astype(float)
    # The slope costs one degree of freedom of both arms together.
    factor = np.where(fitted, (users - 2) / (users - 3), 1.0)
    less_one = [np.where(arm.y.n < 2, np.nan, arm.y.n - 1).astype(float) for arm in arms]
    variances = [arm.residual(slope) / n * factor for arm, n in zip(arms, less_one, strict=True)]
    errors = [variance / (n + 1) for variance, n in zip(variances, less_one, strict=True)]
    shift = np.where(fitted, slope * (candidate.x.mean - baseline.x.mean), 0.0)
    of_slope = sum((v * arm.spread for v, arm in zip(variances, arms, strict=True)), np.zeros(len(slope)))
    lever = (candidate.x.mean - baseline.x.mean) ** 2 * of_slope / np.where(fitted, spread, 1.0) ** 2
    df = welch_df(errors, [baseline.y, candidate.y]) / factor
    error = np.sqrt(errors[0] + errors[1] + np.where(fitted, lever, 0.0))
    found = Estimate.of(candidate.y.mean - baseline.y.mean - shift, error, df, confidence)
    return found, variance_reduction(baseline, candidate)


def _positive(df: Floats) -> Floats:
    return np.where(df > 0, df, np.nan)
