"""Shares of users: are they split as planned, are as many left out, and what users who are all alike say of others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtri

from rankmetrics_spark.statistics.exact_sums import Floats


def sample_ratio_p(counts: Any, shares: Any) -> Floats:
    """Sample-ratio mismatch: are the users split as planned? A chi-square test.

    Args:
        counts: (..., k) users per experiment.
        shares: (k,) or (..., k) planned shares, each above 0; only their proportions count.

    Returns:
        (...) p-values; NaN without users. A tiny one, below 0.001 say, means that users were lost or assigned wrongly.

    Raises:
        ValueError: A share is not above 0.

    Source: Fabijan et al., Diagnosing Sample Ratio Mismatch in Online Controlled Experiments (2019).

    >>> round(float(sample_ratio_p([821588, 815482], [0.5, 0.5])), 9)
    1.822e-06
    """
    observed, planned = np.asarray(counts, float), np.asarray(shares, float)
    if not (planned > 0).all():
        raise ValueError(f"planned shares must be above 0; found {planned.tolist()}")
    users = observed.sum(axis=-1, keepdims=True)
    expected = planned / planned.sum(axis=-1, keepdims=True) * np.where(users > 0, users, np.nan)
    # The steps of scipy.stats.chisquare, without its module: a Python worker takes 0.3 s to load that.
    squares = ((observed - expected) ** 2 / expected).sum(axis=-1)
    return np.asarray(chdtrc(planned.shape[-1] - 1, squares))


def left_out_p(users: Sequence[Floats], some: Sequence[Floats], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Do two experiments leave out the same share of what their users have? Pearson's chi-square test.

    Of counts, that is the test of two by two counts without a correction; of shares per user, it uses their pooled
    variance. Where fewer than five users are expected to be left out of an arm, Fisher's exact test has to agree.

    Args:
        users: (g,) users of baseline and candidate.
        some: (g,) those who are left out in part or as a whole.
        sums: (g,) sums of the shares that are left out, and of their squares.

    Returns:
        (g,) p-values; 1 where nothing or everything is left out.

    >>> hundred, few, none = np.array([100.0]), np.array([10.0]), np.array([0.0])
    >>> left_out_p([hundred, hundred], [few, none], [(few, few), (none, none)]).round(4).tolist()
    [0.0012]
    """
    n, total, squares = users[0] + users[1], sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]
    with np.errstate(all="ignore"):
        difference = sums[1][0] / users[1] - sums[0][0] / users[0]
        variance = squares / n - (total / n) ** 2
        p = chdtrc(1, difference**2 / (variance * (1 / users[0] + 1 / users[1])))
    p = np.where(variance > 0, p, 1.0)
    rare = np.minimum(total, n - total) * np.minimum(*users) < 5 * n
    for i in np.flatnonzero(rare & (p < 1)).tolist():
        from scipy.stats import fisher_exact

        counts = [(int(k[i]), int(m[i] - k[i])) for k, m in zip(some, users, strict=True)]
        p[i] = max(p[i], fisher_exact(counts).pvalue)
    return np.asarray(p)


def most_others(n: Floats, level: Floats | float) -> Floats:
    """(g,) how many may differ from n users who are all alike, as a share: the exact bound of Clopper and Pearson.

    Were it more, so many alike would have a probability below ``level`` / 2.

    >>> most_others(np.array([8.0, 50.0]), 0.05).round(3).tolist()
    [0.369, 0.071]
    """
    return np.asarray(1 - (np.asarray(level) / 2) ** (1 / n))


def bounds_without_spread(
    means: tuple[Floats, Floats], n: tuple[Floats, Floats], level: Floats | float, paired: Any
) -> tuple[Floats, Floats]:
    """Bounds of the difference of two experiments of users who are all alike in each, of a metric from 0 to 1.

    All values at one end of the metric: others may have any value, so the exact bound of how many there may be is that
    of the mean too. At different ends: Newcombe's interval. Paired, where all differences are 0, 1 or -1: the exact
    bound. NaN for other values.

    Args:
        means: (g,) the value of all users of baseline and candidate.
        n: (g,) users of each.
        level: 1 - confidence, one number or (g,).
        paired: (g,) whether the users are the same.

    Source: Clopper and Pearson (1934); Newcombe, Interval estimation for the difference between independent proportions
    (1998), method 10.

    >>> four = np.array([4.0])
    >>> bounds = bounds_without_spread((0 * four, four / 4), (four, four), 0.05, np.array([False]))
    >>> [bound.round(2).tolist() for bound in bounds]
    [[0.31], [1.0]]
    """
    (a, b), q = means, [most_others(each, level) for each in n]
    d = b - a
    z = ndtri(1 - np.asarray(level) / 2) ** 2
    half = np.sqrt(sum((z / (each + z)) ** 2 for each in n))
    ends = ((a == 0) | (a == 1)) & ((b == 0) | (b == 1))
    same = np.where(a == 0, -q[0], -q[1]), np.where(a == 0, q[1], q[0])
    low = np.where(d == 0, same[0], np.where(d > 0, 1 - half, -1.0))
    high = np.where(d == 0, same[1], np.where(d > 0, 1.0, half - 1))
    low, high = np.where(paired, d - q[0] * (1 + d), low), np.where(paired, d + q[0] * (1 - d), high)
    known = np.where(paired, np.isin(d, (-1, 0, 1)), ends)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)
