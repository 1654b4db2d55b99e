"""What replicates say: bootstrap intervals, and how often a test of equal arms finds a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Moments


def percentile(replicates: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Percentile bootstrap interval.

    For few users it is too short. Measured for the mean at 95 %, with 1,000 Poisson replicates, over 20,000 draws: of
    Beta(1, 3) values it covers 93.9 % with 30 users and 94.8 % with 100; of exponential values 92.1 % with 30 users,
    93.6 % with 100 and 94.7 % with 400. ``intervals.t_interval`` covers 94.5 % and 92.7 % with 30 users.

    Args:
        replicates: (g, R) estimates; NaN where a replicate has none.
        confidence: In (0, 1).

    Returns:
        Bounds, (g,) each; NaN without replicates.

    Source: Efron, Bootstrap Methods: Another Look at the Jackknife (1979).

    >>> [float(bound[0]) for bound in percentile(np.array([[3.0, 1.0, 2.0, np.nan]]), 0.5)]
    [1.5, 2.5]
    """
    tail = np.full(len(replicates), (1 - confidence) / 2)
    ordered = np.sort(replicates, axis=1)
    return _quantile(ordered, tail), _quantile(ordered, 1 - tail)


def bca(replicates: Floats, estimate: Floats, acceleration: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Bias-corrected and accelerated bootstrap interval.

    Measured as for ``percentile``: it covers 94.6 % of Beta(1, 3) means with 30 users; of exponential means 92.8 % with
    30 users, 93.8 % with 100 and 94.6 % with 400.

    Args:
        replicates: (g, R) estimates; NaN where a replicate has none.
        estimate: (g,) from the data themselves.
        acceleration: (g,), such as ``Moments.skew_term``.
        confidence: In (0, 1).

    Returns:
        Bounds, (g,) each; NaN without replicates and where all of them lie on one side of the estimate.

    Source: Efron, Better Bootstrap Confidence Intervals (1987); same steps as ``scipy.stats.bootstrap``.
    """
    ordered = np.sort(replicates, axis=1)
    count = np.maximum((~np.isnan(ordered)).sum(axis=1), 1)
    below = (ordered < estimate[:, None]).sum(axis=1) + (ordered <= estimate[:, None]).sum(axis=1)
    bias = ndtri(below / (2 * count))
    bounds = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        with np.errstate(invalid="ignore", divide="ignore"):
            shifted = bias + ndtri(tail)
            level = ndtr(bias + shifted / (1 - acceleration * shifted))
        bounds.append(_quantile(ordered, level))
    return bounds[0], bounds[1]


def _quantile(ordered: Floats, level: Floats) -> Floats:
    """(g,) quantile of each row, linear between neighbours; NaN sorts last and does not count."""
    count = (~np.isnan(ordered)).sum(axis=1)
    known = (count > 0) & ~np.isnan(level)
    place = np.where(known, level, 0.0) * np.maximum(count - 1, 0)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    lower, upper = (np.take_along_axis(ordered, each[:, None], axis=1)[:, 0] for each in (low, high))
    return np.where(known, lower + (upper - lower) * (place - low), np.nan)


def acceleration_of_difference(baseline: Moments, candidate: Moments) -> Floats:
    """Acceleration of the BCa interval of a difference of independent means.

    (a(c) * e(c)**1.5 - a(b) * e(b)**1.5) / (e(b) + e(c))**1.5 with a = ``Moments.skew_term`` of an arm and
    e = sum((v - mean)**2) / n**2.

    Args:
        baseline: Moments of g baselines, with cubes.
        candidate: Moments of g candidates, with cubes.

    Returns:
        (g,) accelerations; 0 where no arm has a spread.

    Source: Davison and Hinkley, Bootstrap Methods and their Application (1997), section 5.3.2: several samples; same
    number as in ``scipy.stats.bootstrap``.
    """
    arms = [baseline, candidate]
    n = [np.maximum(arm.n.astype(float), 1.0) for arm in arms]
    b, c = (np.nan_to_num(arm.variance) * (m - 1) / m**2 for arm, m in zip(arms, n, strict=True))
    whole = np.where(b + c > 0, b + c, 1.0)
    return np.asarray((candidate.skew_term() * c**1.5 - baseline.skew_term() * b**1.5) / whole**1.5)


def aa_share_paired(n: Any, squares_total: Any, flipped_sums: Floats, alpha: float) -> Floats:
    """A/A check of a paired design: how often the paired t test finds a difference when signs are random.

    Args:
        n: (...) users.
        squares_total: (...) sums of the squared differences: a flip does not change them.
        flipped_sums: (..., R) sums of the differences with random signs.
        alpha: Level of the test, such as 0.05.

    Returns:
        (...) share of the replicates with p < alpha, close to alpha where the test holds; NaN below two users.
    """
    n = np.asarray(n, float)[..., None]
    of_mean = flipped_sums**2 / np.maximum(n, 1.0)
    spread = np.maximum(np.asarray(squares_total, float)[..., None] - of_mean, 0.0)
    found = (n - 1) * of_mean > stdtrit(np.maximum(n - 1, 1.0), 1 - alpha / 2) ** 2 * spread
    return np.where(n[..., 0] < 2, np.nan, found.mean(axis=-1))


def aa_share_independent(totals: Sequence[Any], signed: Floats, alpha: float) -> Floats:
    """A/A check of an independent design: how often Welch's test finds a difference when users change arms at random.

    A user goes to the first arm where their sign is 1 and to the second where it is -1: arms of about the same size,
    whatever the sizes of the experiments. Welch's test may fit arms of very different sizes worse.

    Args:
        totals: Sum of the users' values, sum of their squares, number of users; (...) each.
        signed: (3, ..., R) the same three sums, every user with their sign in each replicate.
        alpha: Level of the test, such as 0.05.

    Returns:
        (...) share of the replicates with p < alpha, close to alpha where the test holds. A replicate with fewer than
        two users in an arm does not count; NaN without replicates. A standard deviation below 2**-14 counts as 0: the
        sums of replicates are not finer.
    """
    everyone = np.stack([np.asarray(each, float)[..., None] for each in totals])
    arms = [(everyone + sign * signed) / 2 for sign in (1, -1)]
    tested = np.minimum(arms[0][2], arms[1][2]) >= 2
    (mean, error, df), (other, of_other, other_df) = (_arm(*sums) for sums in arms)
    weighted = error**2 / df + of_other**2 / other_df
    freedom = np.where(weighted > 0, (error + of_other) ** 2, 1.0) / np.where(weighted > 0, weighted, 1.0)
    # Values are cut off at 2**-30, so a difference that small is none.
    critical = np.maximum(stdtrit(freedom, 1 - alpha / 2) * np.sqrt(error + of_other), 2.0**-29)
    found = tested & (np.abs(mean - other) > critical)
    count = tested.sum(axis=-1)
    return np.where(count > 0, found.sum(axis=-1) / np.maximum(count, 1), np.nan)


def _arm(total: Floats, squares: Floats, n: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, squared error of the mean and degrees of freedom; those of two users where there are fewer."""
    n = np.maximum(n, 2.0)
    mean = total / n
    variance = (squares - total * mean) / (n - 1)
    still = variance <= 2.0**-28 * (1 + 2 * np.abs(mean))
    return mean, np.where(still, 0.0, variance) / n, n - 1
