"""Ratios of two means: a difference as a share of the baseline's mean, with Fieller's interval; margins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats, Moments, PairMoments, Whole
from rankmetrics_spark.statistics.significance import ByRow, Estimate, squared_errors


def nonzero(mean: Floats) -> Floats:
    """(g,) means to divide by; NaN instead of 0."""
    return np.where(mean == 0, np.nan, mean)


@dataclass(frozen=True)
class Denominator(ByRow):
    """The means of g baselines, that differences are divided by.

    Attributes:
        mean: (g,).
        squared_error: (g,) of the mean.
        covariance: (g,) of the errors of difference and mean.
    """

    mean: Floats
    squared_error: Floats
    covariance: Floats


def denominator_paired(pair: PairMoments) -> Denominator:
    """The baseline's means of the users of both experiments."""
    n = np.where(pair.difference.n < 2, np.nan, pair.difference.n).astype(float)
    with_baseline = pair.covariance - pair.baseline.variance
    return Denominator(pair.baseline.mean, pair.baseline.variance / n, with_baseline / n)


def denominator_independent(baseline: Moments, candidate: Moments) -> Denominator:
    """The baseline's means where the candidate has different users."""
    error = squared_errors(baseline, candidate)[0]
    return Denominator(baseline.mean, error, -error)


def within_strata(
    arms: tuple[Moments, Moments], sizes: Sequence[Whole], confidence: float
) -> tuple[Estimate, Denominator]:
    """The mean of the differences within strata, which does not depend on how many users of each experiment they have.

    Each stratum counts with n0 n1 / (n0 + n1), as in least squares on the experiment and the strata. The variances of
    experiments and strata may differ; a single user has that of the other users of the experiment, around the means of
    their strata.

    Args:
        arms: Moments of baseline and candidate in s strata that have users of both.
        sizes: (s,) each: how many users, or lists, these means are over.
        confidence: In (0, 1).

    Returns:
        One row each; NaN without strata, and where nobody shares a stratum with another user of the experiment.

    Source: Imbens and Rubin, Causal Inference for Statistics, Social, and Biomedical Sciences (2015), 9.6; degrees of
    freedom of Satterthwaite (1946).

    >>> arms = [Moments.of([0.0, 2.0]), Moments.of([3.0, 5.0])]
    >>> test, of = within_strata((arms[0], arms[1]), [np.array([2]), np.array([2])], 0.95)  # one stratum: Welch's test
    >>> [round(float(each[0]), 9) for each in (test.difference, test.standard_error**2, test.df, of.mean)]
    [3.0, 2.0, 2.0, 1.0]
    """
    own, other = (np.asarray(size, float) for size in sizes)
    weights = own * other / (own + other)
    q, errors, freedom = weights / weights.sum(), [], []
    for arm in arms:
        n, df = arm.n.astype(float), arm.n.astype(float) - 1
        spread = np.where(df > 0, arm.variance, 0.0) * df
        pooled = spread.sum() / df.sum() if df.sum() else np.nan
        each = q**2 / n * np.where(df > 0, spread / np.maximum(df, 1), pooled)
        errors.append(np.array([each.sum()]))
        # Single users share the error of one variance.
        freedom += [np.sum(each[df > 0] ** 2 / df[df > 0]), each[df == 0].sum() ** 2 / max(df.sum(), 1)]
    squared, means = errors[0] + errors[1], [np.array([(q * arm.mean).sum() if len(q) else np.nan]) for arm in arms]
    df = squared**2 / sum(freedom)
    test = Estimate.of(means[1] - means[0], np.sqrt(squared), df, confidence, np.nan)
    return test, Denominator(means[0], errors[0], -errors[0])


def fieller(test: Estimate, critical: Floats, denominator: Denominator, above: Floats | None = None) -> Estimate:
    """Differences as a share of the baseline's mean, with Fieller's interval.

    It holds each share q that a test of difference - q * baseline with the same t does not reject, so it holds 0
    exactly where the interval of the difference does. Its bounds are the roots q of
    (d - q * b)**2 = t**2 * (var(d) - 2 * q * cov(d, b) + q**2 * var(b)).

    Args:
        test: Differences d of g pairs, with intervals of this t.
        critical: (g,) the t: standard errors from a difference to the bound of its interval.
        denominator: The means b.
        above: (g,) those to the upper bound, where they are others.

    Returns:
        The shares; NaN where b is 0. Bounds are NaN where the difference has none, and where they are not finite,
        because b is not clearly above or below 0. Errors and p-values are those of the differences.

    Source: Fieller, Some problems in interval estimation (1954).

    >>> one = np.ones(1)  # d = 2, b = 4, both with an error of 1: 12 * q**2 - 16 * q = 0
    >>> test = Estimate(2 * one, one, one, 0 * one, 4 * one, one)
    >>> share = fieller(test, 2 * one, Denominator(4 * one, one, 0 * one))
    >>> [each.tolist() for each in (share.difference, share.ci_low, share.ci_high)]
    [[0.5], [0.0], [1.3333333333333333]]
    """
    d, b, bounds = test.difference, denominator.mean, []
    with np.errstate(all="ignore"):
        # Where the baseline is below 0, a higher share is a lower difference.
        to_high = critical if above is None else above
        for sign, own, other in ((-1, critical, to_high), (1, to_high, critical)):
            squared = np.square(np.where(b < 0, other, own))
            # a * q**2 - 2 * h * q + c = 0
            a = b**2 - squared * denominator.squared_error
            h = d * b - squared * denominator.covariance
            c = d**2 - squared * np.square(test.standard_error)
            root = np.sqrt(np.maximum(h**2 - a * c, 0.0))
            bounds.append((h + sign * root) / np.where((a > 0) & ~np.isnan(test.ci_low), a, np.nan))
        low, high = (np.where(np.isnan(bounds[0] + bounds[1]), np.nan, bound) for bound in bounds)
        share = Estimate(d / nonzero(b), test.standard_error, test.df, low, high, test.p_value)
    return with_decision(share, test.excludes_zero)


def least_share(arms: tuple[Moments, Moments], hits: Floats, highest: Floats, level: Floats) -> Floats:
    """(g,) by how much at least the candidate's mean is above the baseline's, as a share of it, for values from 0 on.

    Where few users of the baseline have a hit, t does not know its mean. It is at most the share of users with a hit
    times the highest value, and that share has an exact bound (Clopper and Pearson). The candidate's has that of t.

    Args:
        arms: Baseline and candidate, of different users.
        hits: (g,) users of the baseline whose value is not 0.
        highest: (g,) highest value of the metric.
        level: (g,) of the two-sided statement; each of the two bounds takes a quarter of it.

    >>> arms = Moments.of([0.0] * 8), Moments.of([0.9, 0.9])
    >>> least_share(arms, np.zeros(1), np.ones(1), np.array([0.2])).round(3).tolist()  # 0.9 / (1 - 0.05 ** (1 / 8)) - 1
    [1.881]
    """
    (a, b), tail = arms, level / 4
    with np.errstate(all="ignore"):
        n, m = a.n.astype(float), b.n.astype(float)
        most = highest * np.where(hits < n, betaincinv(hits + 1, np.maximum(n - hits, 1), 1 - tail), 1.0)
        return np.asarray((b.mean - stdtrit(m - 1, 1 - tail) * np.sqrt(b.variance / m)) / most - 1)


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


def with_share(test: Estimate, denominator: Denominator, share: Floats, confidence: float) -> Estimate:
    """Test of difference + share * baseline against 0, which is that of candidate - (1 - share) * baseline.

    Args:
        test: Of g pairs.
        denominator: The baseline's means.
        share: (g,) of the baseline's mean, such as 0.01; less than 0 for the test from above.
        confidence: In (0, 1).

    Returns:
        The tests; without a spread, p is NaN.

    Source: Fieller (1954); Hauschke, Kieser, Hothorn, Proof of safety in toxicology based on the ratio of two means for
    normally distributed data (1999).
    """
    squared = test.standard_error**2 + 2 * share * denominator.covariance + share**2 * denominator.squared_error
    error = np.sqrt(np.maximum(squared, 0.0))
    return Estimate.of(test.difference + share * denominator.mean, error, test.df, confidence, np.nan)


def one_sided_p(test: Estimate, sign: int) -> Floats:
    """(g,) p-values of the test that the number is above 0 (``sign`` 1) or below 0 (-1), from the two-sided ones."""
    return np.where(sign * test.difference > 0, test.p_value / 2, 1 - test.p_value / 2)
