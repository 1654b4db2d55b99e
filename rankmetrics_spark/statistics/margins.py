"""Tests of a difference against a margin: no worse than it, and within it on both sides."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Moments, PairMoments
from rankmetrics_spark.statistics.significance import Estimate, df_of_spread, permutation_p, with_spread


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
