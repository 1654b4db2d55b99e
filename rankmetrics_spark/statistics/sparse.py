"""Tests where t does not hold: few users with a hit, or skewed values in experiments of different size.

P-values are those of permutations, which need the values themselves. These are few: zeros are only counted, and of many
users, only the heaviest ones are taken one by one. They are sorted, and draws are seeded by their places, so a p-value
has the same bits anywhere.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import betaincinv, gammaln, ndtri, stdtr

from rankmetrics_spark.statistics import resampling, significance
from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, Bools, Floats, Moments, Whole

#: Permutations; the second number where fewer than ``_RARE`` of the first ones are as extreme as the data.
DRAWS = (2**13, 2**16)
_RARE = 25
_SEED = 50
#: Where not all are, so many of the largest values of each column are permuted one by one.
ONE_BY_ONE = 512
#: Statistics that would be equal may differ so much, relatively, by rounding.
_TIED = 2.0**-20
_ALIKE = 1e300
#: Below this spread, the resolution of the sums is too coarse for cubes.
_FINEST = 2.0**-15
#: The chance that the common rate is outside the range that ``boschloo_p`` looks at, which p is larger by.
_OUTSIDE = 1e-6


def heaviest(units: Floats, most: int) -> Bools:
    """(n,) which units a permutation takes one by one: those with the ``most`` largest values of each column.

    Those of all units are the heaviest ones of the heaviest ones of their parts, however they are split.

    Args:
        units: (n, w) values of each unit; of equal sizes in a column, the others decide.
        most: How many of each column.

    >>> heaviest(np.array([[1.0, 9.0], [5.0, 2.0], [4.0, 2.0], [5.0, 3.0]]), 1).tolist()
    [True, False, False, True]
    """
    kept, sizes = np.full(len(units), len(units) <= most), np.abs(units)
    for shift in range(0 if kept.all() else units.shape[1]):
        size = sizes[:, -1 - shift]
        some = np.flatnonzero(size >= np.partition(size, -most)[-most])
        keys = *units[some].T, *np.roll(sizes[some], shift, axis=1).T
        kept[some[np.lexsort(keys)[-most:]]] = True
    return kept


def permuted_p(
    baseline: Floats, candidate: Floats, n: tuple[int, int] | None = None, sums: Floats | None = None
) -> float:
    """Studentised permutation test of two experiments: how often users who change sides at random differ as much.

    The ``heaviest`` users change sides one by one, and the others, if these are not all, together: what a random part
    of them adds to the sums is about normal.

    Args:
        baseline: (u,) values other than 0, in any order; or, of ratios of sums, such as means over lists, (u, 2) sum of
            a user's values and number of their lists, with which users change sides.
        candidate: Likewise.
        n: Users of each experiment, at least 2; by default those that are given.
        sums: Where some are not given, (2, 2) sums of the values and of their squares of each experiment; of ratios,
            (2, 5): those of the lists, of their products with the values, and of their squares, too.

    Returns:
        Two-sided: twice the smaller tail, at most 1.

    Source: Chung and Romano, Exact and asymptotically robust permutation tests (2013); the data count as one of the
    permutations, Phipson and Smyth (2010).

    >>> round(permuted_p(np.array([]), np.ones(3), (3, 3)), 2)  # 1 of 20 ways in each tail
    0.1
    >>> one = np.ones(3)
    >>> round(permuted_p(np.stack([0 * one, one], 1), np.stack([2 * one, 2 * one], 1)), 1)  # likewise
    0.1
    """
    n = n or (len(baseline), len(candidate))
    pool = np.concatenate([baseline, candidate])
    pool = pool.reshape(len(pool), -1)
    order = np.lexsort(pool.T[::-1])
    if sums is not None:
        order = order[heaviest(pool[order], ONE_BY_ONE)]
    (y, *lists), side = pool[order].T, order >= len(baseline)
    columns = np.stack([y, y * y, *(each for k in lists for each in (k, y * k, k * k))])
    light, n_light = np.zeros((2, len(columns), 1)), sum(n) - len(order)
    if sums is not None:
        light = sums[..., None] - np.stack([np.cumsum(columns * of, axis=1)[:, -1:] for of in (~side, side)])
    everyone = np.cumsum(columns, axis=1)[:, -1:] + light.sum(axis=0)

    def permuted(draws: int, start: int) -> Floats:
        room = np.full(draws, float(n[1]))
        added = _added(_drawn(len(order), sum(n), room, start), columns)
        if sums is not None:
            added = added + _light(light.sum(axis=0), n_light, room, _chances(len(order), 2, draws, start))
        return _studentised(added, everyone, n)

    return _two_sided(_studentised(_added(side.astype(float)[:, None], columns) + light[1], everyone, n), permuted)


def _light(sums: Floats, n: int, room: Floats, chances: Iterator[Floats]) -> Floats:
    """(k, r) what ``room`` of n light units add to the sums: values and lists of a random part are about normal.

    Their squares are in proportion. Each has a list at least.
    """
    y, yy, k, yk, kk = sums[:, 0] if len(sums) > 2 else (*sums[:, 0], n, sums[0, 0], n)
    result, spread = sums * (room / n), np.sqrt(room * (n - room) / (n * max(n - 1, 1)))
    of_lists, shared = np.sqrt(max(kk - k * k / n, 0.0)), yk - y * k / n
    with_lists = shared / of_lists if of_lists > 0 else 0.0
    alone = np.sqrt(max(yy - y * y / n - with_lists**2, 0.0))
    first, second = (ndtri(chance + 2.0**-54) * spread for chance in chances)
    result[0] += with_lists * first + alone * second
    if len(sums) > 2:
        result[2] = np.clip(result[2] + of_lists * first, room, k - n + room)
    return np.asarray(result)


def swapped_ratio_p(pairs: Floats) -> float:
    """The same of users who are in both: how often chance gives such a difference if it says which side is whose.

    Args:
        pairs: (u, 4) sum of values and number of lists in the baseline, then in the candidate; in any order.

    >>> pairs = np.array([[0.0, 1.0, value, 1.0] for value in (1, 2, 3)])
    >>> round(swapped_ratio_p(pairs), 2)  # 2 of 8 ways: all that are swapped, and none
    0.25
    """
    x, m, y, n = pairs[np.lexsort(pairs.T[::-1])].T
    theirs, ours = (np.stack([v, v * v, k, v * k, k * k, v * other]) for v, k, other in ((y, n, m), (x, m, n)))
    both, of_ours, shared = (np.cumsum(v, axis=1)[:, -1:] for v in (theirs + ours, ours, np.stack([x * y, m * n])))

    def studentised(masks: Any) -> Floats:
        """Of the candidate, what it keeps and what the swapped users have in the baseline."""
        return _studentised(_added(masks, theirs - ours) + of_ours, both, (len(x), len(x)), shared)

    def swapped(draws: int, start: int) -> Floats:
        return studentised(chance < 0.5 for chance in _chances(0, len(x), draws, start))

    return _two_sided(studentised(np.ones((len(x), 1))), swapped)


def _two_sided(found: Floats, permuted: Any) -> float:
    """Twice the smaller tail of what is found among that of permutations, so many from a number of draws on."""
    larger = smaller = drawn = 0
    for draws in DRAWS:
        t = permuted(draws - drawn, drawn)
        slack = _TIED * np.maximum(1.0, np.abs(found))
        larger += int(np.count_nonzero(t >= found - slack))
        smaller += int(np.count_nonzero(t <= found + slack))
        drawn = draws
        if min(larger, smaller) >= _RARE:
            break
    return float(min(1.0, 2 * (1 + min(larger, smaller)) / (1 + drawn)))


def _chances(first: int, places: int, draws: int, start: int) -> Iterator[Floats]:
    """Yield the random numbers of each place, from 0 to below 1."""
    for place in range(first, first + places):
        words = resampling.random_bits(np.array([place], np.uint64), _SEED + start, draws)[0]
        yield (words >> np.uint64(11)) * 2.0**-53


def _drawn(places: int, users: int, room: Floats, start: int) -> Iterator[Bools]:
    """Yield whether the user of each place is the candidate's, who has room for so many; what is left stays there."""
    for place, chance in enumerate(_chances(0, places, len(room), start)):
        # Without replacement: so many of the places that are left are the candidate's.
        taken = chance * (users - place) < room
        room -= taken
        yield taken


def _added(masks: Any, columns: Floats) -> Any:
    """(k, r) sums of what the users of the candidate add, one after the other; ``masks`` says who they are."""
    sums: Any = 0.0
    for one, each in zip(masks, columns.T, strict=True):
        sums = sums + each[:, None] * one
    return sums


def _studentised(sums: Floats, everyone: Floats, n: tuple[int, int], shared: Floats | None = None) -> Floats:
    """Differences of the means in standard errors, in every permutation.

    Args:
        sums: (k, r) of the candidate: values and their squares; of a ratio, lists, their products with the values, and
            their squares, too.
        everyone: (k, 1) those of both, added one after the other, as those of the candidate.
        n: Users of both.
        shared: (2, 1) of users in both: products of the two sides, of values and of lists.
    """
    if len(everyone) == 2:
        # A user has one list.
        whole = everyone[1] / sum(n)
        arms = [(v, vv, users, v, users) for (v, vv), users in zip((everyone - sums, sums), n, strict=True)]
    else:
        whole, arms = everyone[1] / everyone[4], [tuple((everyone - sums)[:5]), tuple(sums[:5])]
    means, errors = [], []
    for (y, yy, lists, yn, nn), users in zip(arms, n, strict=True):
        means.append(y / lists)
        variance = (yy - 2 * means[-1] * yn + means[-1] ** 2 * nn) / (users - 1) * (users / lists) ** 2
        errors.append(np.where(variance > _TIED * whole, variance, 0.0) / users)
    difference, squared = means[1] - means[0], errors[0] + errors[1]
    if shared is not None:
        lists = arms[0][2] * arms[1][2]
        crossed = means[0] * sums[5] + means[1] * (everyone - sums)[5]
        covariance = shared[0] - crossed + means[0] * means[1] * shared[1]
        squared = squared - 2 * covariance * n[0] / (n[0] - 1) / lists
        squared = np.where(squared > _TIED * whole / n[0], squared, 0.0)
    error = np.sqrt(squared)
    # Users who are all alike in both differ by more than any others.
    t = np.divide(difference, error, out=np.sign(difference) * _ALIKE, where=error > 0)
    return np.asarray(np.where(np.abs(difference) <= _TIED * np.sqrt(whole), 0.0, t))


def flipped_p(differences: Floats) -> float:
    """Exact sign-flip test: the share of all signs of the differences that give a sum at least as large, two-sided.

    Args:
        differences: Those other than 0, in any order; their number is the exponent of the cost.

    >>> flipped_p(np.array([1.0, 2.0, 3.0]))  # only +++ and --- of 8
    0.25
    """
    sizes = np.sort(np.abs(differences))
    sums = np.zeros(1)
    for size in sizes[:-1].tolist():
        sums = np.concatenate([sums + size, sums - size])
    # The largest one has the sign +; with -, all sums are the other way round.
    sums, found = np.abs(sums + sizes[-1:].sum()), np.abs(np.sort(differences).sum())
    return float(np.mean(sums >= found * (1 - _TIED)))


def boschloo_p(hits: tuple[int, int], n: tuple[int, int]) -> float:
    """Boschloo's test of two rates: Fisher's exact p as a statistic, whose chance is the largest over the common rate.

    The common rate is looked for where the hits of both make it possible (Berger and Boos).

    Args:
        hits: Users of baseline and candidate whose value is 1; the others have 0.
        n: Users of each.

    Returns:
        Two-sided: twice the smaller one-sided p, at most 1, as ``scipy.stats.boschloo_exact``.

    Source: Boschloo, Raised conditional level of significance for the 2 x 2 table (1970); Berger and Boos, P values
    maximized over a confidence set for the nuisance parameter (1994).

    >>> round(boschloo_p((0, 3), (5, 5)), 3)
    0.062
    """
    # Few hits or few others, in the smaller experiment: so few rows and columns have a chance worth counting.
    if 2 * sum(hits) > sum(n):
        hits = n[0] - hits[0], n[1] - hits[1]
    if n[0] > n[1]:
        hits, n = hits[::-1], n[::-1]
    users, found = sum(n), sum(hits)
    low, high = betaincinv([max(found, 1e-300), found + 1], [users - found + 1, max(users - found, 1e-300)],
                           [_OUTSIDE / 2, 1 - _OUTSIDE / 2])  # fmt: skip
    most = int(min(users, np.ceil(users * high + 8 * np.sqrt(users * high) + 30)))
    x, s = np.arange(min(n[0], most) + 1)[:, None], np.arange(most + 1)
    chance = np.exp(_log_binomial(n[0], x) + _log_binomial(n[1], s - x) - _log_binomial(users, s))
    rates = np.linspace(np.arcsin(np.sqrt(low)), np.arcsin(np.sqrt(high)), 512)
    rates = np.sin(rates[:, None]) ** 2
    of_sum = np.exp(_log_binomial(users, s) + s * np.log(rates) + (users - s) * np.log1p(-rates))
    tails = []
    for fisher in (np.cumsum(chance, axis=0), np.cumsum(chance[::-1], axis=0)[::-1]):
        observed = fisher[hits[0], found]
        # Given a sum, Fisher's p is its own chance: the largest one that is no larger than the observed one.
        inside = np.where((fisher <= observed * (1 + 1e-9)) & (chance > 0), fisher, 0.0).max(axis=0)
        tails.append(float(np.max(of_sum @ inside + np.maximum(1 - of_sum.sum(axis=1), 0.0) * observed)))
    return min(1.0, 2 * (min(tails) + _OUTSIDE))


def _log_binomial(n: int, k: Any) -> Any:
    inside = (k >= 0) & (k <= n)
    kept = np.where(inside, k, 0)
    return np.where(inside, gammaln(n + 1) - gammaln(kept + 1) - gammaln(n - kept + 1), -np.inf)


def newcombe(hits: tuple[Any, Any], n: tuple[Any, Any], level: Floats | float) -> tuple[Floats, Floats]:
    """Bounds of the difference of two rates, from Wilson's intervals of each.

    Args:
        hits: (g,) users of baseline and candidate whose value is 1; the others have 0.
        n: (g,) users of each.
        level: 1 - confidence, one number or (g,).

    Source: Newcombe, Interval estimation for the difference between independent proportions (1998), method 10.

    >>> [bound.round(4).tolist() for bound in newcombe((48, 56), (80, 70), 0.05)]  # example (a)
    [0.0524, 0.3339]
    """
    z = ndtri(1 - np.asarray(level) / 2)
    (a, b), around = (np.asarray(k) / size for k, size in zip(hits, n, strict=True)), []
    for rate, size in ((a, n[0]), (b, n[1])):
        middle, half = rate + z * z / (2 * size), z * np.sqrt(rate * (1 - rate) / size + (z / (2 * size)) ** 2)
        around.append([(middle + sign * half) / (1 + z * z / size) for sign in (-1, 1)])
    (a_low, a_high), (b_low, b_high) = around
    low = b - a - np.sqrt((b - b_low) ** 2 + (a_high - a) ** 2)
    return np.asarray(low), np.asarray(b - a + np.sqrt((b_high - b) ** 2 + (a - a_low) ** 2))


def straightened(t: Floats, skewness: Floats | float) -> Floats:
    """(g,) t without the skewness of its numerator, by Hall's cubic transformation, which rises everywhere.

    Args:
        t: (g,) differences in standard errors.
        skewness: (g,) of the difference; with 0, t stays as it is.

    Source: Hall, On the removal of skewness by transformation (1992); Zhou and Dinh, Nonparametric confidence intervals
    for the one- and two-sample problems (2005).

    >>> straightened(np.array([1.0]), np.array([0.3])).round(6).tolist()  # 1 + 0.3 / 3 + 0.09 / 27 + 0.3 / 6
    [1.153333]
    """
    return np.asarray(t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6)


def bent(straight: Floats, skewness: Floats | float) -> Floats:
    """(g,) the t whose ``straightened`` value is given.

    >>> bent(np.array([1.153333]), np.array([0.3])).round(5).tolist()
    [1.0]
    """
    still = np.equal(skewness, 0)
    g = np.where(still, 1.0, skewness)
    return np.asarray(np.where(still, straight, 3 / g * (np.cbrt(1 + g * (straight - g / 6)) - 1)))


def skewed_p(test: significance.Estimate, skewness: Floats, sign: int = 0) -> Floats:
    """(g,) p-values of differences with this skewness, by t of what is ``straightened``.

    Args:
        test: The differences, with their errors.
        skewness: (g,).
        sign: 1 or -1: one-sided, that the difference is above or below 0; 0: two-sided.
    """
    with np.errstate(all="ignore"):
        straight = straightened(test.difference / test.standard_error, skewness)
    return np.asarray(stdtr(test.df, -sign * straight) if sign else 2 * stdtr(test.df, -np.abs(straight)))


def third_cumulant(moments: Moments, cubes: Whole) -> Floats:
    """(g,) unbiased third central moment; 0 below three values, and where a spread is too small for the sums of cubes.

    >>> third_cumulant(Moments.of([0.0, 0.0, 3.0]), np.array([27 * 2**60], object)).tolist()  # 3 / 2 * (-1 - 1 + 8)
    [9.0]
    """
    unit, n = 2**LIMB_UNIT, np.where(moments.n < 3, 3, moments.n)
    exact = n * n * cubes * unit * unit - 3 * n * moments.total * moments.squares * unit + 2 * moments.total**3
    cumulant = (exact / (n * (n - 1) * (n - 2) * unit**3)).astype(float)
    return np.asarray(np.where((moments.n < 3) | ~(moments.std > _FINEST), 0.0, cumulant))
