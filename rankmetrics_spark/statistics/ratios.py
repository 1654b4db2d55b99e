"""Ratios: the mean over all lists, a difference as a share of the baseline's mean, a margin as a share of it.

The mean over lists is a ratio of two sums over users: with y = lists * value of a user and n = lists, it is
R = sum(y) / sum(n). A user's influence on it is z = (y - R * n) / mean(n): R moves by z / users if the user counts a
little more. The z add up to 0, and the variance of R is that of the mean of R + z over the users. So a ratio becomes
``Moments`` of R + z, and every test of a mean is one of the ratio, by the delta method with the users as clusters.

Source: Deng, Knoblich, Lu, Applying the Delta Method in Metric Analytics (KDD 2018), sections 3 and 4; Cochran,
Sampling Techniques (1977), chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, Floats, Moments, PairMoments, Whole
from rankmetrics_spark.statistics.significance import (
    Estimate,
    df_of_arms,
    df_of_spread,
    permutation_p,
    squared_errors,
    with_spread,
)

_UNIT = 2**LIMB_UNIT
_ROUNDING = 2**52
"""Products are rounded to doubles before they are summed; a spread below this part of the sums is their rounding."""


@dataclass(frozen=True)
class RatioSums:
    """Sums over the users of g groups: exact integers (object arrays) in units of 2**-60, and the number of users.

    Attributes:
        users: (g,) number of users, as Python integers.
        y: (g,) sum of the numerators: lists of the user times their value.
        n: (g,) sum of the denominators: their lists.
        yy: (g,) sum of the squared numerators.
        yn: (g,) sum of the products.
        nn: (g,) sum of the squared denominators.
    """

    users: Whole
    y: Whole
    n: Whole
    yy: Whole
    yn: Whole
    nn: Whole

    @classmethod
    def of(cls, values: Any, lists: Any) -> RatioSums:
        """The sums of one group of plain values, one per user, and of their numbers of lists.

        >>> both = RatioSums.of([1.0, 0.25], [1, 3])  # (1 * 1 + 3 * 0.25) / 4
        >>> float(both.moments.mean[0]), float(both.moments.n[0])
        (0.4375, 2.0)
        """
        n = np.asarray(lists, np.float64)
        y = n * np.asarray(values, np.float64)
        totals = (sum(round(each * _UNIT) for each in summed.tolist()) for summed in (y, n, y * y, y * n, n * n))
        return cls(*(np.array([total], dtype=object) for total in (len(y), *totals)))

    @property
    def lists(self) -> Whole:
        """(g,) all lists."""
        return np.asarray(self.n // _UNIT)

    @property
    def moments(self) -> Moments:
        """Moments of R + z per user: their mean is the ratio, and their variance that of the users' influence.

        Where every user has one list, these are the moments of the values, bit for bit.
        """
        users, y, n = self.known
        spread = self.spread
        spread = np.where(spread * _ROUNDING <= self.rounding, 0, spread)
        squares = users * y * y * n * n * _UNIT + users * users * spread * _UNIT * _UNIT
        return Moments(users, _rounded(users * y * _UNIT, n), _rounded(squares, n**4))

    @property
    def known(self) -> tuple[Whole, Whole, Whole]:
        """(g,) users, sum of y and sum of n; without any list no users, 0 and 1."""
        some = self.n != 0
        return np.where(some, self.users, 0), np.where(some, self.y, 0), np.where(some, self.n, 1)

    @property
    def spread(self) -> Whole:
        """(g,) sum((y - R * n)**2) * n**2, with n the sum of all: a whole number in units of 2**-180."""
        _, y, n = self.known
        return np.asarray(self.yy * n * n - 2 * y * n * self.yn + y * y * self.nn)

    @property
    def rounding(self) -> Whole:
        """(g,) what ``spread`` is a small part of, in the same units."""
        _, y, n = self.known
        return np.asarray(self.yy * n * n + y * y * self.nn)


@dataclass(frozen=True)
class RatioPairSums:
    """Sums over the users who are in both experiments of g pairs.

    Attributes:
        baseline: Of their y and n in the baseline.
        candidate: Of their y and n in the candidate.
        yy: (g,) sum of products, y of the baseline times y of the candidate; like all, in units of 2**-60.
        yn: (g,) likewise, y of the baseline times n of the candidate.
        ny: (g,) likewise, n of the baseline times y of the candidate.
        nn: (g,) likewise, n of both.
    """

    baseline: RatioSums
    candidate: RatioSums
    yy: Whole
    yn: Whole
    ny: Whole
    nn: Whole

    @property
    def moments(self) -> PairMoments:
        """Moments of R + z of the same users in both, and of their difference, which keeps what the two share."""
        (users, x, m), (_, y, n) = self.baseline.known, self.candidate.known
        shared = self.yy * m * n - y * m * self.yn - x * n * self.ny + x * y * self.nn
        spread = self.baseline.spread * n**4 + self.candidate.spread * m**4 - 2 * shared * m * m * n * n
        rounding = self.baseline.rounding * n**4 + self.candidate.rounding * m**4
        # Sums of both are rounded, and so are those of the products of the two.
        spread = np.where(spread * _ROUNDING <= 2 * rounding, 0, spread)
        lead = y * m - x * n
        squares = users * lead * lead * m * m * n * n * _UNIT + users * users * spread * _UNIT * _UNIT
        difference = Moments(users, _rounded(users * lead * _UNIT, m * n), _rounded(squares, (m * n) ** 4))
        return PairMoments(self.baseline.moments, self.candidate.moments, difference)


def _rounded(numerator: Whole, denominator: Whole) -> Whole:
    """(g,) nearest whole numbers; denominators are above 0."""
    return np.asarray((2 * numerator + denominator) // (2 * denominator), dtype=object)


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


def adjusted_levels(p: Floats, p_adjusted: Floats, alpha: float, strictest: Floats) -> Floats:
    """Levels of intervals that exclude 0 exactly where the corrected p-value is below ``alpha``.

    p_adjusted < alpha is p < alpha * p / p_adjusted, and the interval at a level excludes 0 where p is below it.

    Args:
        p: (g,) two-sided p-values.
        p_adjusted: (g,) the same, corrected.
        alpha: Level of significance.
        strictest: (g,) levels that are enough whatever the other p-values are; for p-values that are too small for a
            number, so 0.

    Returns:
        (g,) levels; ``alpha`` itself where the correction changes nothing, NaN without a p-value.

    >>> p, p_adjusted = np.array([0.01, 0.04, 0.0]), np.array([0.02, 0.04, 0.0])
    >>> adjusted_levels(p, p_adjusted, 0.05, np.full(3, 0.0125)).tolist()
    [0.025, 0.05, 0.0125]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(p == p_adjusted, alpha, alpha * p / p_adjusted)
    return np.where(p == 0, strictest, level)


def shifted(found: Estimate, shift: Floats, confidence: float, still_p: Floats) -> Estimate:
    """Test of difference + ``shift`` against 0.

    Args:
        found: Of g pairs.
        shift: (g,) in the unit of the difference; a margin, or less than 0 for the test from above.
        confidence: Of the interval, in (0, 1).
        still_p: (g,) two-sided p-values where there is no spread.
    """
    return Estimate.of(found.difference + shift, found.standard_error, found.df, confidence, still_p)


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
    arms, scale = (baseline, candidate), 1 - share
    n = [np.where(arm.n < 2, np.nan, arm.n).astype(float) for arm in arms]
    of_baseline, of_candidate = with_spread(baseline.variance, candidate.variance)
    errors = [scale**2 * of_baseline / n[0], of_candidate / n[1]]
    df = df_of_spread(errors, arms, (baseline.variance, candidate.variance))
    mean = candidate.mean - scale * baseline.mean
    return Estimate.of(mean, np.sqrt(errors[0] + errors[1]), df, confidence, permutation_p(baseline, candidate))


def one_sided_p(found: Estimate, sign: int) -> Floats:
    """(g,) p-values of the test that the number is above 0 (``sign`` 1) or below 0 (-1), from the two-sided ones."""
    return np.where(sign * found.difference > 0, found.p_value / 2, 1 - found.p_value / 2)


def share_bounds(difference: Estimate, of_baseline: tuple[Floats, Floats, Floats], critical: Floats) -> list[Floats]:
    """The shares of the baseline's mean that just pass a test of candidate - (1 - share) * baseline: Fieller's bounds.

    Args:
        difference: d of g pairs, with its error.
        of_baseline: (g,) means b, their squared errors, and the covariances of the errors of d and b.
        critical: (g,) standard errors that the test asks for.

    Returns:
        Lower and upper bound of d / b; NaN where the baseline's mean is not clearly above 0.

    Source: Fieller, Some problems in interval estimation (1954).
    """
    d, squared, (b, error, covariance) = difference.difference, critical**2, of_baseline
    # The roots of (b**2 - t**2 * var(b)) * q**2 - 2 * (d * b - t**2 * cov) * q + d**2 - t**2 * var(d).
    a = b**2 - squared * error
    h = d * b - squared * covariance
    c = d**2 - squared * difference.standard_error**2
    root = np.sqrt(np.maximum(h**2 - a * c, 0.0))
    known = np.where((a > 0) & (b > 0), a, np.nan)
    return [(h - root) / known, (h + root) / known]


def critical_t(df: Floats, confidence: float) -> Floats:
    """(g,) standard errors from a difference to the bound of its interval."""
    return np.asarray(stdtrit(df, 0.5 + confidence / 2))
