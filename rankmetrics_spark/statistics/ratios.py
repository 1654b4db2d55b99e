"""Ratios of two means: a difference as a share of the baseline's mean, by the delta method and Fieller's; margins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.statistics.exact_sums import Floats, Moments, PairMoments
from rankmetrics_spark.statistics.significance import (
    Estimate,
    df_of_arms,
    permutation_p,
    squared_errors,
    with_spread,
)


def relative_paired(pair: PairMoments, confidence: float) -> Estimate:
    """Relative difference candidate / baseline - 1 of the same users, with a delta-method interval.

    Args:
        pair: Of g pairs.
        confidence: In (0, 1).

    Returns:
        Relative differences; NaN where the baseline's mean is 0, the bounds also below two users.

    Source: delta method for a ratio of correlated means, as in Deng et al., Applying the Delta Method in Metric
    Analytics (2018): var(c / b) = var(c - r * b) / b**2 with r = c / b.
    """
    ratio = pair.candidate.mean / nonzero(pair.baseline.mean)
    # c - r * b = d + (1 - r) * b: from the difference, so that identical arms have a variance of exactly 0.
    lead = 1 - ratio
    with_baseline = pair.candidate.variance - pair.baseline.variance - pair.difference.variance
    variance = pair.difference.variance + lead**2 * pair.baseline.variance + lead * with_baseline
    n = np.where(pair.difference.n < 2, np.nan, pair.difference.n).astype(float)
    squared = np.maximum(variance, 0.0) / n / nonzero(pair.baseline.mean) ** 2
    return Estimate.of(ratio - 1, np.sqrt(squared), n - 1, confidence, 2 ** (1 - n))


def relative_independent(baseline: Moments, candidate: Moments, confidence: float) -> Estimate:
    """Relative difference candidate / baseline - 1 of different users, with a delta-method interval.

    Args:
        baseline: Moments of g baselines.
        candidate: Moments of g candidates.
        confidence: In (0, 1).

    Returns:
        Relative differences; NaN where the baseline's mean is 0, the bounds also below two users in an arm. Degrees of
        freedom are Welch's, of the two parts of the error.

    Source: as ``relative_paired``, without covariance.
    """
    ratio = candidate.mean / nonzero(baseline.mean)
    of_baseline, of_candidate = squared_errors(baseline, candidate)
    errors = [ratio**2 * of_baseline, of_candidate]
    squared = (errors[0] + errors[1]) / nonzero(baseline.mean) ** 2
    df = df_of_arms(errors, baseline, candidate)
    still_p = permutation_p(baseline, candidate)
    return Estimate.of(ratio - 1, np.sqrt(squared), df, confidence, still_p)


def nonzero(mean: Floats) -> Floats:
    """(g,) means to divide by; NaN instead of 0."""
    return np.where(mean == 0, np.nan, mean)


@dataclass(frozen=True)
class Denominator:
    """The means of g baselines, that differences are divided by.

    Attributes:
        mean: (g,).
        squared_error: (g,) of the mean.
        covariance: (g,) of the errors of difference and mean.
    """

    mean: Floats
    squared_error: Floats
    covariance: Floats

    def where(self, chosen: Any, other: Denominator) -> Denominator:
        """Row by row this one where it is ``chosen``, else the other one."""
        names = Denominator.__dataclass_fields__
        return Denominator(*(np.where(chosen, getattr(self, name), getattr(other, name)) for name in names))


def denominator_paired(pair: PairMoments) -> Denominator:
    """The baseline's means of the users of both experiments."""
    n = np.where(pair.difference.n < 2, np.nan, pair.difference.n).astype(float)
    with_baseline = pair.covariance - pair.baseline.variance
    return Denominator(pair.baseline.mean, pair.baseline.variance / n, with_baseline / n)


def denominator_independent(baseline: Moments, candidate: Moments) -> Denominator:
    """The baseline's means where the candidate has different users."""
    error = squared_errors(baseline, candidate)[0]
    return Denominator(baseline.mean, error, -error)


def fieller(test: Estimate, critical: Floats, denominator: Denominator) -> tuple[Floats, Floats]:
    """Fieller's interval of difference / baseline.

    It holds each share q that a test of difference - q * baseline at the same level does not reject, so it holds 0
    where the interval of the difference does. Its bounds are the roots q of
    (d - q * b)**2 = t**2 * (var(d) - 2 * q * cov(d, b) + q**2 * var(b)).

    Args:
        test: Differences d of g pairs, with their errors.
        critical: (g,) the t: standard errors from a difference to the bound of its interval.
        denominator: The means b.

    Returns:
        Lower and upper bounds, (g,) each; NaN where they are not finite, because b itself could be 0.

    Source: Fieller, Some problems in interval estimation (1954).

    >>> one = np.ones(1)  # d = 2, b = 4, both with an error of 1: 12 * q**2 - 16 * q = 0
    >>> [bound.tolist() for bound in fieller(Estimate(2 * one, one, one, one, one, one), 2 * one,
    ...                                      Denominator(4 * one, one, 0 * one))]
    [[0.0], [1.3333333333333333]]
    """
    d, b, squared = test.difference, denominator.mean, np.square(critical)
    # a * q**2 - 2 * h * q + c = 0
    a = b**2 - squared * denominator.squared_error
    h = d * b - squared * denominator.covariance
    c = d**2 - squared * np.square(test.standard_error)
    root = np.sqrt(np.maximum(h**2 - a * c, 0.0))
    finite = np.where(a > 0, a, np.nan)
    return (h - root) / finite, (h + root) / finite


def consistent(relative: Estimate, test: Estimate, critical: Floats, denominator: Denominator) -> Estimate:
    """Relative differences with intervals that say of 0 what the intervals of the differences say.

    The delta method is an approximation, which a few users with few hits are too much for. Where its interval holds 0
    and that of the difference does not, or the other way round, it is Fieller's.

    Args:
        relative: By the delta method.
        test: Of the differences, with intervals at the same level.
        critical: (g,) standard errors from a difference to the bound of its interval.
        denominator: What the differences are divided by.

    Returns:
        The same with other bounds; NaN where the difference has none, or where Fieller's are not finite.
    """
    with np.errstate(all="ignore"):
        bounds = fieller(test, critical, denominator)
    same = relative.excludes_zero == test.excludes_zero
    known = ~np.isnan(test.ci_low)
    low = np.where(known, np.where(same, relative.ci_low, bounds[0]), np.nan)
    high = np.where(known, np.where(same, relative.ci_high, bounds[1]), np.nan)
    estimate = Estimate(relative.difference, relative.standard_error, relative.df, low, high, relative.p_value)
    return with_decision(estimate, test.excludes_zero)


def with_decision(test: Estimate, decided: Any) -> Estimate:
    """Intervals that exclude 0 exactly where a test has decided so.

    Both are the same condition, and only rounding lets them differ: a bound beside 0 moves to the other side.

    Args:
        test: Intervals at the level of the decision.
        decided: (g,) whether the test found a difference.
    """
    d, excluded = test.difference, test.excludes_zero
    beside = np.where(decided & ~excluded, np.nextafter(0.0, d), 0.0)
    moved = (decided != excluded) & ~np.isnan(test.ci_low)
    low = np.where(moved & (d > 0), beside, test.ci_low)
    high = np.where(moved & (d < 0), beside, test.ci_high)
    return Estimate(d, test.standard_error, test.df, low, high, test.p_value)


def shifted(test: Estimate, shift: Floats, confidence: float, still_p: Floats | float) -> Estimate:
    """Test of difference + ``shift`` against 0.

    Args:
        test: Of g pairs.
        shift: (g,) in the unit of the difference; a margin, or less than 0 for the test from above.
        confidence: Of the interval, in (0, 1).
        still_p: (g,) two-sided p-values where there is no spread.
    """
    return Estimate.of(test.difference + shift, test.standard_error, test.df, confidence, still_p)


def share_paired(pair: PairMoments, share: Floats, confidence: float) -> Estimate:
    """Test of candidate - (1 - share) * baseline of the same users against 0.

    It is linear, so it is a t test of one number per user, d + share * b, and needs no delta method.

    Args:
        pair: Of g pairs.
        share: (g,) of the baseline's mean, such as 0.01; less than 0 for the test from above.
        confidence: In (0, 1).

    Source: Fieller (1954); Hauschke, Kieser, Hothorn, Proof of safety in toxicology based on the ratio of two means for
    normally distributed data (1999).
    """
    n = np.where(pair.difference.n < 2, np.nan, pair.difference.n).astype(float)
    with_baseline = pair.covariance - pair.baseline.variance
    variance = pair.difference.variance + 2 * share * with_baseline + share**2 * pair.baseline.variance
    mean = pair.difference.mean + share * pair.baseline.mean
    return Estimate.of(mean, np.sqrt(np.maximum(variance, 0.0) / n), n - 1, confidence, 2 ** (1 - n))


def share_independent(baseline: Moments, candidate: Moments, share: Floats, confidence: float) -> Estimate:
    """Test of candidate - (1 - share) * baseline of different users against 0: Welch's, of the scaled baseline.

    Args:
        baseline: Of g pairs.
        candidate: Likewise.
        share: As in ``share_paired``.
        confidence: In (0, 1).

    Source: Tamhane and Logan, Finding the maximum safe dose level for heteroscedastic data (2004).
    """
    scale = 1 - share
    n = [np.where(arm.n < 2, np.nan, arm.n).astype(float) for arm in (baseline, candidate)]
    of_baseline, of_candidate = with_spread(baseline.variance, candidate.variance)
    errors = [scale**2 * of_baseline / n[0], of_candidate / n[1]]
    df = df_of_arms(errors, baseline, candidate)
    mean = candidate.mean - scale * baseline.mean
    return Estimate.of(mean, np.sqrt(errors[0] + errors[1]), df, confidence, permutation_p(baseline, candidate))


def one_sided_p(test: Estimate, sign: int) -> Floats:
    """(g,) p-values of the test that the number is above 0 (``sign`` 1) or below 0 (-1), from the two-sided ones."""
    return np.where(sign * test.difference > 0, test.p_value / 2, 1 - test.p_value / 2)
