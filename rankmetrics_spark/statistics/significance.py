"""Tests of the difference between two experiments: t, signed ranks, random signs; effect size, power.

Every difference is candidate - baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.special import binom, ndtr, ndtri, poch, stdtr, stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats, Moments, Whole
from rankmetrics_spark.statistics.shares import most_others

#: Up to this many differences, without zeros and ties, the p-value of the signed-rank test is exact.
EXACT_SIGNED_RANK = 25


R = TypeVar("R", bound="ByRow")


class ByRow:
    """What has a number per row in each of its fields."""

    def where(self: R, chosen: Any, other: R) -> R:
        """Row by row this one where it is ``chosen``, else the other one."""
        fields = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(a.where(chosen, b) if isinstance(a, ByRow) else np.where(chosen, a, b) for a, b in fields))

    @classmethod
    def joined(cls: type[R], parts: Sequence[R]) -> R:
        """The rows of all parts, one after the other."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(
            *(type(each[0]).joined(each) if isinstance(each[0], ByRow) else np.concatenate(each) for each in fields)
        )


@dataclass(frozen=True)
class Estimate(ByRow):
    """Differences of g pairs, each with a t test against 0.

    Attributes:
        difference: (g,) candidate - baseline, in the metric's unit; NaN where an arm has no user.
        standard_error: (g,) of the difference; like all that follows, NaN below two users.
        df: (g,) degrees of freedom of Student's t.
        ci_low: (g,) lower bound of the interval.
        ci_high: (g,) upper bound.
        p_value: (g,) two-sided.
    """

    difference: Floats
    standard_error: Floats
    df: Floats
    ci_low: Floats
    ci_high: Floats
    p_value: Floats

    @classmethod
    def of(
        cls, difference: Floats, standard_error: Floats, df: Floats, confidence: float, still_p: Floats | float = 0.0
    ) -> "Estimate":
        """A difference and its error -> interval and p-value.

        Without spread, t has nothing to measure with: p is 1 for a difference of 0, and ``still_p`` for any other; the
        interval is unknown.

        Args:
            difference: (g,).
            standard_error: (g,); NaN where it is unknown.
            df: (g,) more than 0 where the error is known.
            confidence: Of the interval, in (0, 1).
            still_p: (g,) p-values of differences without spread, such as those of a permutation test.
        """
        still = standard_error == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stdtr(df, -np.abs(difference / standard_error))
        p = np.where(still, np.where(difference == 0, 1.0, still_p), p)
        return cls(difference, standard_error, df, p, p, p).within(stdtrit(df, 0.5 + confidence / 2))

    def within(self, below: Floats, above: Floats | None = None) -> "Estimate":
        """The same tests with intervals of so many standard errors, (g,), on each side; unknown without a spread.

        Users who are all alike do not say how far others are from them: see ``bounds_without_spread``.
        """
        error = np.where(self.standard_error == 0, np.nan, self.standard_error)
        half = below * error
        return self.between(self.difference - half, self.difference + (half if above is None else above * error))

    def between(self, low: Floats, high: Floats) -> "Estimate":
        """The same tests with these bounds, (g,) each."""
        return Estimate(self.difference, self.standard_error, self.df, low, high, self.p_value)

    @property
    def excludes_zero(self) -> Any:
        """(g,) whether the interval does not hold 0; no where there is none."""
        return (self.ci_low > 0) | (self.ci_high < 0)

    @property
    def untested(self) -> "Estimate":
        """The same differences and errors, without intervals and p-values."""
        none = np.full(np.shape(self.difference), np.nan)
        return Estimate(self.difference, self.standard_error, self.df, none, none, none)


#: Where nothing can be tested.
NO_ESTIMATE = Estimate(*[np.array(np.nan)] * 6)


def paired_t(difference: Moments, confidence: float) -> Estimate:
    """Paired t test of the users who are in both experiments.

    If all differences are equal and not 0, p is that of the sign-flip test: 2 of 2**n signs give a sum of this size.

    Args:
        difference: Moments of candidate - baseline per user, of g pairs.
        confidence: In (0, 1).

    Source: Student, The Probable Error of a Mean (1908); same p-value as ``scipy.stats.ttest_rel``.

    >>> float(paired_t(Moments.of([1.0, 2.0, 3.0]), 0.95).p_value[0].round(4))
    0.0742
    """
    n = np.where(difference.n < 2, np.nan, difference.n).astype(float)
    return Estimate.of(difference.mean, difference.std / np.sqrt(n), n - 1, confidence, 2 ** (1 - n))


def welch(baseline: Moments, candidate: Moments, confidence: float, scale: Floats | float = 1.0) -> Estimate:
    """Welch's t test of two experiments with different users: of candidate - ``scale`` * baseline against 0.

    A few users of a sparse metric often all have the same value, which says little about the spread of others. If one
    arm has zero variance, use what its users leave open (``with_spread``) and the other arm's degrees of freedom. If
    both have, p is that of the permutation test: of all ways to choose as many users, one, or two between experiments
    of equal size, give a difference of this size.

    Args:
        baseline: Moments of g baselines.
        candidate: Moments of g candidates.
        confidence: In (0, 1).
        scale: (g,) or one number: 1 - a share of the baseline's mean, such as 0.01 of a margin.

    Source: Welch, The generalization of Student's problem (1947); same p-value as
    ``scipy.stats.ttest_ind(equal_var=False)``. With a scale: Tamhane and Logan, Finding the maximum safe dose level for
    heteroscedastic data (2004).
    """
    errors = squared_errors(baseline, candidate, scale)
    df = df_of_spread(errors, (baseline, candidate), (baseline.variance, candidate.variance))
    difference = candidate.mean - scale * baseline.mean
    return Estimate.of(difference, np.sqrt(errors[0] + errors[1]), df, confidence, permutation_p(baseline, candidate))


def diluted(test: Estimate, n: Any, n_everyone: Any, confidence: float) -> Estimate:
    """What a difference among some users is over everybody, if the others do not differ: times the share of these.

    Args:
        test: Of (g,) users of both arms together, by Welch.
        n: (g,) these users.
        n_everyone: (g,) all users; the share of the tested ones varies as well (delta method).
        confidence: In (0, 1).

    Source: Deng and Hu, Diluted Treatment Effect Estimation for Trigger Analysis in Online Controlled Experiments
    (2015).

    >>> one = np.ones(1)  # 25 of 100 users, 2 +- 1: 0.25**2 * 1**2 + 2**2 * 0.25 * 0.75 / 100 = 0.07
    >>> whole = diluted(Estimate(2 * one, one, 23 * one, 0 * one, 4 * one, one), 25 * one, 100 * one, 0.95)
    >>> [each.round(6).tolist() for each in (whole.difference, whole.standard_error**2)]
    [[0.5], [0.07]]
    """
    share = n / np.where(n_everyone > 0, n_everyone, np.nan)
    varies = test.difference**2 * share * (1 - share) / n_everyone
    error = np.sqrt((share * test.standard_error) ** 2 + varies)
    return Estimate.of(share * test.difference, error, test.df, confidence)


def squared_errors(baseline: Moments, candidate: Moments, scale: Floats | float = 1.0) -> list[Floats]:
    """(g,) squared standard errors of both means, ``with_spread``; of the baseline's times ``scale``."""
    n = [np.where(arm.n < 2, np.nan, arm.n).astype(float) for arm in (baseline, candidate)]
    of_baseline, of_candidate = with_spread(baseline, candidate)
    return [scale**2 * of_baseline / n[0], of_candidate / n[1]]


def with_spread(baseline: Moments, candidate: Moments) -> tuple[Floats, Floats]:
    """(g,) variances of both; where only one is 0, the variance that its n users leave open.

    At 95 % confidence, at most a share of 1 - 0.025**(1 / n) of others differs from n users who are all alike
    (``most_others``). These may differ by as much as the users of the other arm do. The variance gives the mean that
    bound, and is never larger than the mean square of how much the users of the other arm differ.
    """
    arms, result = (baseline, candidate), []
    distance = np.abs(candidate.mean - baseline.mean)
    for own, other in (arms, arms[::-1]):
        n = [np.maximum(arm.n.astype(float), 1) for arm in (own, other)]
        squares = other.variance * (1 - 1 / n[1]) + distance**2
        with np.errstate(all="ignore"):
            bound = most_others(n[0], 0.05) * squares / distance
            left_open = np.minimum(n[0] * (bound / ndtri(0.975)) ** 2, squares)
        result.append(np.where((own.variance == 0) & (other.variance > 0), left_open, own.variance))
    return result[0], result[1]


def df_of_spread(errors: list[Floats], arms: tuple[Moments, Moments], variances: tuple[Floats, Floats]) -> Floats:
    """(g,) degrees of freedom of a sum of squared errors, by Welch and Satterthwaite; NaN below two users in an arm.

    Those of the other arm where the variance of one is 0; the users of both - 2 where no arm has a spread.
    """
    less_one = [np.where(arm.n < 2, np.nan, arm.n - 1).astype(float) for arm in arms]
    added = sum(errors, np.zeros(len(less_one[0])))
    weighted = sum((e**2 / n for e, n in zip(errors, less_one, strict=True)), np.zeros(len(added)))
    none = weighted == 0
    df = np.where(none, less_one[0] + less_one[1], added**2 / np.where(none, 1.0, weighted))
    still = [variance == 0 for variance in variances]
    df = np.where(still[0] & ~still[1], arms[1].n.astype(float) - 1, df)
    return np.where(still[1] & ~still[0], arms[0].n.astype(float) - 1, df)


def permutation_p(baseline: Moments, candidate: Moments) -> Floats:
    """(g,) p-value of the permutation test of two experiments of equal values each."""
    n = [arm.n.astype(float) for arm in (baseline, candidate)]
    return np.asarray(np.where(n[0] == n[1], 2.0, 1.0) / binom(n[0] + n[1], n[0]))


def signed_rank(n: Whole, twice_w_plus: Whole, tie_term: Whole, n_zero: Whole) -> Floats:
    """Wilcoxon's signed-rank test, two-sided; zero differences are dropped, no continuity correction.

    Exact for at most 25 differences without zeros and ties, else the normal approximation with its tie correction: the
    choice of SciPy before 1.9. Newer SciPy is exact up to 50; from 26 differences on, the two differ by less than 0.02.
    With ties or zeros among fewer than ten differences, the approximation is rough: five equal ones have p = 0.025,
    while no test of five signs can be below 2 / 2**5 = 0.0625.

    Args:
        n: (g,) number of differences other than 0.
        twice_w_plus: (g,) 2 * sum of the (mid)ranks of the positive differences, as exact integers.
        tie_term: (g,) sum of t**3 - t over each set of t equal absolute differences other than 0, likewise.
        n_zero: (g,) number of differences that are 0.

    Returns:
        (g,) p-values; 1 where all differences are 0; NaN without differences.

    Source: Wilcoxon, Individual Comparisons by Ranking Methods (1945).

    >>> signed_rank(*(np.array([x], object) for x in (5, 30, 0, 0))).tolist()  # all 5 positive: 2 * (1 / 2) ** 5
    [0.0625]
    """
    rows = zip(n.tolist(), twice_w_plus.tolist(), tie_term.tolist(), n_zero.tolist(), strict=True)
    return np.array([_signed_rank(*map(int, row)) for row in rows], float)


def _signed_rank(n: int, twice_w_plus: int, tie_term: int, n_zero: int) -> float:
    if n == 0:
        return 1.0 if n_zero else float("nan")
    if n > EXACT_SIGNED_RANK or tie_term or n_zero:
        # Mean n (n + 1) / 4 and variance (n (n + 1) (2 n + 1) - tie_term / 2) / 24 of W+, all times a whole number.
        centred = 2 * twice_w_plus - n * (n + 1)
        variance = 2 * n * (n + 1) * (2 * n + 1) - tie_term
        return float(2 * ndtr(-abs(centred) / 4 / np.sqrt(variance / 48)))
    # Imported here: it takes long, and the Python workers of Spark import this module without testing anything.
    from scipy.stats import wilcoxon

    # The exact p-value is that of any signed ranks 1 to n with the same sum of positive ones.
    left, signed = twice_w_plus // 2, -np.arange(1, n + 1)
    for rank in range(n, 0, -1):
        if rank <= left:
            left, signed[rank - 1] = left - rank, rank
    return float(wilcoxon(signed, method="exact").pvalue)


def sign_flip_p(observed: Floats, replicates: Floats) -> Floats:
    """Randomisation test of paired differences: how often a sum with random signs is at least as large.

    Args:
        observed: (g,) sums of the differences.
        replicates: (g, R) sums of the same differences, each with a random sign per user.

    Returns:
        (g,) (1 + number of replicates with |sum| >= |observed|) / (R + 1), two-sided; never 0.

    Source: Fisher, The Design of Experiments (1935); the + 1 counts the observed signs, Phipson and Smyth (2010).

    >>> sign_flip_p(np.array([2.0]), np.array([[2.0, 0.0, -2.0]])).tolist()
    [0.75]
    """
    # Sums that would be equal may differ in what was cut off below 2**-30.
    as_large = np.abs(replicates) >= (1 - 2.0**-20) * np.abs(observed)[:, None]
    p = (1 + as_large.sum(axis=1)) / (replicates.shape[1] + 1)
    return np.where(np.isnan(observed), np.nan, p)


def effect_size_paired(difference: Moments) -> Floats:
    """(g,) Cohen's d of paired differences: their mean / their standard deviation; NaN at zero spread.

    Source: Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), d_z.
    """
    return np.asarray(difference.mean / np.where(difference.variance > 0, difference.std, np.nan))


def effect_size_independent(baseline: Moments, candidate: Moments) -> Floats:
    """(g,) Cohen's d of two experiments: difference of means / pooled standard deviation; NaN at zero spread.

    NaN below two users in an arm. Source: Cohen (1988), d_s.
    """
    less_one = [np.where(arm.n < 2, np.nan, arm.n - 1).astype(float) for arm in (baseline, candidate)]
    pooled = (less_one[0] * baseline.variance + less_one[1] * candidate.variance) / (less_one[0] + less_one[1])
    return np.asarray((candidate.mean - baseline.mean) / np.sqrt(np.where(pooled > 0, pooled, np.nan)))


def minimum_detectable_effect(
    standard_error: Floats, df: Floats, confidence: Floats | float, power: float = 0.8, critical: Floats | None = None
) -> Floats:
    """Smallest true difference that a test of this size finds with probability ``power``.

    (b * t + z(power) * sqrt(1 + t**2 * (1 - b**2))) * standard_error, with t = t(1 - (1 - confidence) / 2, df) and the
    mean b of the standard deviation of df + 1 draws. The exact answer needs quantiles of the noncentral t; this one
    differs from them by less than 0.5 % from 6 users on, also where a correction leaves a level of 0.00001.

    Args:
        standard_error: (g,) of the difference.
        df: (g,) degrees of freedom.
        confidence: Of the two-sided test, in (0, 1); one number, or (g,).
        power: In (0, 1).
        critical: (g,) standard errors that a difference needs, where they are more than t, as over several looks.

    Returns:
        (g,) differences, at least 0, in the metric's unit.

    Source: Johnson and Welch, Applications of the non-central t-distribution (1940).
    """
    t, b = stdtrit(df, 0.5 + confidence / 2), poch(df / 2, 0.5) / np.sqrt(df / 2)
    t = t if critical is None else np.maximum(t, critical)
    return np.asarray((b * t + ndtri(power) * np.sqrt(1 + t**2 * (1 - b**2))) * standard_error)


def users_needed(
    n_users: Any, difference: Floats, standard_error: Floats, confidence: float, power: float = 0.8, bound: Any = None
) -> Floats:
    """How many users would show the observed difference with probability ``power``, were it the true one.

    n_users * ((z(1 - (1 - confidence) / 2) + z(power)) * standard_error / difference)**2, rounded up, with quantiles of
    the normal distribution: the error shrinks with the root of the users. The noncentral t asks for one or two users
    more.

    Args:
        n_users: (g,) users of the test, of both arms together where they differ.
        difference: (g,) observed.
        standard_error: (g,) of the difference.
        confidence: Of the two-sided test, in (0, 1).
        power: In (0, 1).
        bound: The z-value that shows a difference; by default that of a single look.

    Returns:
        (g,) users in the same proportion of the arms, at least 2; NaN where the difference is 0 or not known.
    """
    quantiles = (ndtri(0.5 + confidence / 2) if bound is None else bound) + ndtri(power)
    known = np.where(difference == 0, np.nan, difference)
    needed = np.asarray(n_users, dtype=float) * (quantiles * standard_error / known) ** 2
    return np.asarray(np.maximum(np.ceil(needed), 2.0))


def difference_of_differences(
    rest: tuple[Moments, Moments], segment: tuple[Moments, Moments], confidence: float
) -> Estimate:
    """By how much the difference of two experiments in a segment is above that among the rest of the users.

    (b - a of the segment) - (b - a of the rest), with the error of four means of different users. A few users of a
    sparse metric often all have the same value, which says little about others: for a group with zero variance, the
    variance and the degrees of freedom of the other experiment there are used, else of the same experiment elsewhere.
    If all variances are zero, p of a difference other than 0 is unknown.

    Args:
        rest: Moments of baseline and candidate, of g groups each.
        segment: Likewise.
        confidence: In (0, 1).

    Returns:
        NaN below two users in one of the four.

    Source: Welch, The Generalization of "Student's" Problem (1947), for a sum of several means; same error as the
    interaction of a least-squares fit with the covariance HC2.
    """
    groups = (*rest, *segment)
    n = [np.where(arm.n < 2, np.nan, arm.n).astype(float) for arm in groups]
    variances, less_one = [arm.variance for arm in groups], [users - 1 for users in n]
    squared, weighted = np.zeros(len(n[0])), np.zeros(len(n[0]))
    for place, users in enumerate(n):
        own, df = variances[place], less_one[place]
        # Places 0 to 3 are two pairs: the other one of the pair, then the same one of the other pair.
        for other in (place ^ 1, place ^ 2, place ^ 3):
            df, own = (np.where(own == 0, values[other], mine) for values, mine in ((less_one, df), (variances, own)))
        squared = squared + own / users
        weighted = weighted + (own / users) ** 2 / df
    difference = (segment[1].mean - segment[0].mean) - (rest[1].mean - rest[0].mean)
    df = np.where(weighted == 0, 1.0, squared**2 / np.where(weighted == 0, 1.0, weighted))
    return Estimate.of(difference, np.sqrt(squared), df, confidence, np.nan)
