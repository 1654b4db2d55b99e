"""CUPED: a covariate from before the experiment takes away the part of the variance that it explains."""

from typing import NamedTuple

import numpy as np

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, Floats, Moments, PairMoments, Whole
from rankmetrics_spark.statistics.ratios import Denominator
from rankmetrics_spark.statistics.significance import Estimate, df_of_spread, permutation_p

#: A number of the baseline and one of the candidate.
Pair = tuple[Floats | float, Floats | float]


class CovariateMoments(NamedTuple):
    """Moments of a value and of a covariate of the users who have both.

    Attributes:
        y: Of the value.
        x: Of the covariate, over the same users.
        xy_total: (g,) the sum of their products in units of 2**-60, as Python integers (object array).

    >>> products = np.array([(1 * 1 + 2 * 3) * 2**LIMB_UNIT], object)
    >>> float(CovariateMoments(Moments.of([1.0, 2.0]), Moments.of([1.0, 3.0]), products).cross[0])
    1.0
    """

    y: Moments
    x: Moments
    xy_total: Whole

    @property
    def cross(self) -> Floats:
        """(g,) sum((y - mean(y)) * (x - mean(x))); 0 below two users and where one of the two has no spread."""
        n = np.where(self.y.n == 0, 1, self.y.n)
        whole = n * self.xy_total * 2**LIMB_UNIT - self.y.total * self.x.total
        # What is left without a spread is the rounding of the products.
        moving = (np.nan_to_num(self.y.variance) > 0) & (np.nan_to_num(self.x.variance) > 0)
        return np.where(moving, (whole / (n * 2 ** (2 * LIMB_UNIT))).astype(float), 0.0)

    @property
    def spread(self) -> Floats:
        """(g,) sum((x - mean(x))**2); 0 below two users."""
        return np.asarray(np.nan_to_num(self.x.variance) * np.maximum(self.x.n - 1, 0).astype(float))

    def residual(self, theta: Floats | float, scale: Floats | float = 1.0) -> Floats:
        """(g,) sum((scale * y - theta * x - their mean)**2); NaN below two users."""
        of_y, of_x = scale**2 * self.y.variance * (self.y.n - 1).astype(float), theta**2 * self.spread
        left = of_y - 2 * scale * theta * self.cross + of_x
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


def variance_reduction_of(*arms: CovariateMoments) -> Floats:
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
        Estimates (errors are NaN below three users; without a spread of x, it is ``paired_t``; where the line meets
        every user, p is that of ``paired_t`` without a spread), and the share of the variance that the covariate
        explains, (g,): see ``variance_reduction_of``.

    Source: Deng et al., Improving the Sensitivity of Online Controlled Experiments by Utilizing Pre-Experiment Data
    (2013).
    """
    slope = theta(difference)
    n, df = _paired_size(difference)
    variance = difference.residual(slope) / df
    known, x = difference.spread > 0, difference.x.mean
    # What the error of the slope adds to that of the intercept.
    lever = np.where(known, x**2 / np.where(known, difference.spread, 1.0), 0.0)
    intercept = difference.y.mean - np.where(known, slope * x, 0.0)
    error = np.sqrt(variance * (1 / n + lever))
    estimate = Estimate.of(intercept, error, df, confidence, 2 ** (1 - n))
    return estimate, variance_reduction_of(difference)


def cuped_denominator_paired(
    pair: PairMoments, difference: CovariateMoments, baseline: CovariateMoments
) -> Denominator:
    """The means that the differences of ``cuped_paired`` are a share of.

    Args:
        pair: The values of the users of both.
        difference: As for ``cuped_paired``.
        baseline: y = the value of the same users in the baseline, x = the same covariate.
    """
    slope, (n, df) = theta(difference), _paired_size(difference)
    with_baseline = (pair.candidate.variance - pair.baseline.variance - pair.difference.variance) / 2
    shared = with_baseline * (n - 1) - slope * baseline.cross
    return Denominator(baseline.y.mean, pair.baseline.variance * (n - 1) / df / n, shared / df / n)


def _paired_size(difference: CovariateMoments) -> tuple[Floats, Floats]:
    """(g,) users, and degrees of freedom, less one for a slope; NaN where there are none."""
    n = np.where(difference.y.n < 2, np.nan, difference.y.n).astype(float)
    df = n - 1 - (difference.spread > 0)
    return n, np.where(df > 0, df, np.nan)


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
        Estimates (errors are NaN below two users in an arm; without a spread of x, it is ``welch``; an arm without a
        spread around the line has that of the other one), and the share of the variance that the covariate explains,
        (g,): see ``variance_reduction_of``.

    Source: Deng et al. (2013), as ``cuped_paired``.
    """
    fit = _Fit.of(baseline, candidate)
    slopes = fit.slope, fit.slope
    errors = fit.squared_errors(slopes, (1.0, 1.0))
    shift = np.where(fit.spread > 0, fit.slope * (candidate.x.mean - baseline.x.mean), 0.0)
    error = np.sqrt(errors[0] + errors[1] + fit.slope_error(candidate.x.mean - baseline.x.mean))
    still_p = permutation_p(baseline.y, candidate.y)
    estimate = Estimate.of(candidate.y.mean - baseline.y.mean - shift, error, fit.df(errors), confidence, still_p)
    return estimate, variance_reduction_of(baseline, candidate)


def cuped_denominator_independent(baseline: CovariateMoments, candidate: CovariateMoments) -> Denominator:
    """The adjusted means that the differences of ``cuped_independent`` are a share of; arguments as there.

    Both means are adjusted to the mean m of the covariate over both experiments: a = mean(y) - theta * (mean(x) - m).
    The error of a_candidate - r * a_baseline is that of the slopes theta * (1 - (1 - r) * w) and
    theta * (r + (1 - r) * w), since m is made of both experiments by their shares w.

    With b = a_baseline and d = a_candidate - b, the squared error v(q) of d - q * b is a square in q:
    v(0) - 2 * q * cov(d, b) + q**2 * var(b).
    """
    fit, none = _Fit.of(baseline, candidate), np.zeros(len(baseline.y.n))
    less, middle, more = map(fit.error_of_ratio, (none, none + 1, none + 2))
    # The mean of the baseline at the mean of the covariate.
    mean = baseline.y.mean - fit.slope * fit.apart[0]
    return Denominator(mean, (less + more) / 2 - middle, (less - more) / 4)


class _Fit(NamedTuple):
    """A line through two experiments: one slope, two intercepts.

    Attributes:
        arms: Baseline and candidate.
        slope: (g,).
        spread: (g,) of the covariate, of both experiments.
        users: (g,) of both.
    """

    arms: tuple[CovariateMoments, CovariateMoments]
    slope: Floats
    spread: Floats
    users: Floats

    @classmethod
    def of(cls, baseline: CovariateMoments, candidate: CovariateMoments) -> "_Fit":
        users = (baseline.y.n + candidate.y.n).astype(float)
        return cls((baseline, candidate), theta(baseline, candidate), baseline.spread + candidate.spread, users)

    @property
    def _shares(self) -> list[Floats]:
        """(g,) shares of the experiments in the users."""
        users = np.where(self.users > 0, self.users, np.nan)
        return [arm.y.n.astype(float) / users for arm in self.arms]

    @property
    def apart(self) -> list[Floats]:
        """(g,) means of the covariate in the experiments, less that of both."""
        # An experiment without users has no mean, and no share in that of the covariate.
        parts = (share * np.nan_to_num(arm.x.mean) for share, arm in zip(self._shares, self.arms, strict=True))
        middle = sum(parts, np.zeros(1))
        return [arm.x.mean - middle for arm in self.arms]

    def error_of_ratio(self, ratio: Floats) -> Floats:
        """(g,) squared error of candidate - ratio * baseline, both adjusted."""
        shares, apart, slope = self._shares, self.apart, self.slope
        slopes = slope * (ratio + (1 - ratio) * shares[0]), slope * (1 - (1 - ratio) * shares[1])
        return sum(self.squared_errors(slopes, (ratio, 1.0)), self.slope_error(apart[1] - ratio * apart[0]))

    @property
    def _factor(self) -> Floats:
        """(g,) the slope costs one degree of freedom of both experiments together."""
        users = np.where(self.users < 4, np.nan, self.users)
        return np.where(self.spread > 0, (users - 2) / (users - 3), 1.0)

    def _variances(self, slopes: Pair, scales: Pair) -> tuple[Floats, Floats]:
        """(g,) variances of scale * y - slope * x in each experiment; one without a spread has that of the other."""
        less_one = [np.where(arm.y.n < 2, np.nan, arm.y.n - 1).astype(float) for arm in self.arms]
        left = [arm.residual(*each) for arm, each in zip(self.arms, zip(slopes, scales, strict=True), strict=True)]
        own, other = (each / n * self._factor for each, n in zip(left, less_one, strict=True))
        return np.where(own == 0, other, own), np.where(other == 0, own, other)

    def squared_errors(self, slopes: Pair, scales: Pair) -> list[Floats]:
        """(g,) squared errors of the means of scale * y - slope * x."""
        variances = self._variances(slopes, scales)
        return [variance / arm.y.n.astype(float) for variance, arm in zip(variances, self.arms, strict=True)]

    def slope_error(self, apart: Floats) -> Floats:
        """(g,) the squared error of slope * apart."""
        variances = self._variances((self.slope, self.slope), (1.0, 1.0))
        parts = (variance * arm.spread for variance, arm in zip(variances, self.arms, strict=True))
        squared = sum(parts, np.zeros(len(self.slope))) / np.where(self.spread > 0, self.spread, 1.0) ** 2
        return np.where(self.spread > 0, apart**2 * squared, 0.0)

    def df(self, errors: list[Floats]) -> Floats:
        """(g,) degrees of freedom of a sum of squared errors."""
        left = tuple(arm.residual(self.slope) for arm in self.arms)
        return df_of_spread(errors, (self.arms[0].y, self.arms[1].y), (left[0], left[1])) / self._factor
