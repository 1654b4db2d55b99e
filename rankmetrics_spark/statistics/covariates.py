"""Several covariates from before the experiment: cross-fitted ridge regression from sums of products by fold.

Users are split into folds. Those of a fold are adjusted by coefficients that the other folds have, so that nobody has a
part in their own; the test is then that of the adjusted values, as if these had been measured.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT, POWERS, Floats, Moments, PairMoments, Sums
from rankmetrics_spark.statistics.ratios import Denominator, denominator_independent, denominator_paired, within_strata
from rankmetrics_spark.statistics.significance import Estimate, paired_t, welch

#: A part of numbers that is their rounding.
_ROUNDING = 2.0**-48
#: A test, its denominator, and the squares that it is measured with.
Tested = tuple[Estimate, Denominator, Floats]
#: The test less what covariates explain, its denominator, the share of the variance that they explain, users, the
#: squares of the covariates, and the p-value of the difference that these have, corrected for their number.
Adjustment = tuple[Estimate, Denominator, Floats, Floats, Floats, Floats]
#: (f, q, q) sums of products in folds of users, and (2 + p, q) weights that make 1, a value and its covariates of them.
Part = tuple[Floats, Floats]


def products(sums: Sums, known_from: int | None = None) -> Floats:
    """(c, q, q) sums of products of 1 and all letters, each rounded once.

    Args:
        sums: Of a count, of all letters, and of each two of them.
        known_from: From this letter on, pairs of a covariate, 0 where it is not known, and of whether it is: instead of
            each pair there is one letter, how far the user is from the mean of all who have the covariate, times the
            share of these; 0 for who has none.
    """
    q, unit = sum(len(word) == 1 for word in sums.measure.values), 2**LIMB_UNIT
    one, two = (np.array([2 ** (power + LIMB_UNIT) for power in POWERS[n]], object) for n in (1, 2))
    counts, singles, pairs = np.split(sums.table.astype(object), (1, 1 + q * len(one)), axis=1)
    (i, j), whole = np.triu_indices(q + 1), np.zeros((len(counts), q + 1, q + 1), object)
    each = [counts * unit, singles.reshape(-1, q, len(one)) @ one, pairs.reshape(len(counts), -1, len(two)) @ two]
    whole[:, i, j] = whole[:, j, i] = np.concatenate(each, axis=1)
    rows, total = np.eye(q + 1, dtype=int).astype(object) * unit, whole[:, 0].sum(axis=0)
    if known_from is not None:
        rows = np.concatenate([rows[:known_from], rows[known_from::2]])
        for at, row in enumerate(rows[known_from:], known_from):
            at += at - known_from
            a, k, squares = total[at], total[at + 1], whole[:, at, at].sum() * total[at + 1]
            # A spread below the rounding of the squares is none.
            moves = squares - a * a > squares // 2**48 + k * k // 2**58
            row[at : at + 2] = [k * unit // total[0] * moves, -a * unit // total[0] * moves]
    return np.asarray((rows @ whole @ rows.T / unit**3).astype(float))


def of_lists(cells: Floats, at: int) -> Floats:
    """(q,) weights of what a user adds to a mean R over lists, R + (y - R * n) / mean(n), of the letters y and n."""
    users, y, n = cells.sum(axis=0)[0, [0, at, at + 1]]
    row = np.zeros(cells.shape[1])
    row[[0, at, at + 1]] = y / n, users / n, -y * users / n**2
    return row


def moments(cells: Floats, weights: Floats) -> Moments:
    """Moments of the sum of the letters with these weights: (q,), or (f, q) of each fold."""

    def sums(w: Floats, x: Floats) -> Floats:
        """The sum of these values, and that of their squares."""
        return np.array([np.sum(w * x[:, 0]), np.einsum("fi,fij,fj->", w, x, w)])

    w, n, unit = np.broadcast_to(weights, cells.shape[:2]), round(cells[:, 0, 0].sum()), 2**LIMB_UNIT
    (total, squares), rounding = sums(w, cells), _ROUNDING * sums(abs(w), abs(cells))
    # What is left of much larger numbers is their rounding.
    whole = round(total * unit) if abs(total) > rounding[0] else 0
    spread = squares - (whole / unit) ** 2 / max(n, 1)
    squares = round(spread * unit * (spread > rounding[1])) + whole * whole // (max(n, 1) * unit)
    return Moments(*(np.array([each], object) for each in (n, whole, squares)))


def ridge(spread: Floats, df: float, penalty: float | None = None) -> Floats:
    """Coefficients of the first value on the others, all of them scaled to the same spread.

    Args:
        spread: (q, q) sums of products around means; a value without a spread explains nothing.
        df: Users less the means that the sums are around.
        penalty: Added to the diagonal of the correlations; by default 1 / F of the fit without one: what explains no
            more than chance is shrunk by half, and a clear fit hardly.

    Returns:
        (q - 1,) coefficients; 0 without three degrees of freedom for each of them.

    Source: Lawless and Wang, A simulation study of ridge and other regression estimators (1976).

    >>> spread = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> (ridge(spread, 14, 0) + 0).tolist(), (ridge(spread, 14) + 0).tolist()  # 1 / F is .75 / 12 / (.25 / 2) = 1 / 2
    ([1.0, 0.0], [0.6666666666666666, 0.0])
    """
    scale = np.sqrt(np.diagonal(spread))
    inverse = np.divide(1, scale, out=np.zeros(len(scale)), where=scale > 0)
    alike = spread * np.outer(inverse, inverse)
    sizes, axes = np.linalg.eigh(alike[1:, 1:])
    # Columns that others add up to are no further ones.
    sizes, axes = sizes[sizes > 1e-9], axes[:, sizes > 1e-9]
    along, left = alike[0, 1:] @ axes, df - len(sizes)
    explained = min(float(np.sum(along**2 / sizes)), 1.0)
    if not (explained > 0 and left > 2 * len(sizes)):
        return np.zeros(len(scale) - 1)
    penalty = len(sizes) * (1 - explained) / (left * explained) if penalty is None else penalty
    return np.asarray(axes @ (along / (sizes + penalty)) * scale[0] * inverse[1:])


def cross_fitted(parts: Sequence[Part], penalty: float | None = None) -> Floats:
    """(f, 1 + p) weights of the adjusted value: 1, and less the coefficients that the other folds have.

    Args:
        parts: Of each experiment, or of each of its strata, around whose means the sums are.
        penalty: See ``ridge``.
    """
    folds, weights = [rows @ cells @ rows.T for cells, rows in parts], []
    for fold in range(len(folds[0])):
        others = [np.delete(part, fold, axis=0).sum(axis=0) for part in folds]
        n, whole = [max(part[0, 0], 1.0) for part in others], np.sum(others, axis=0)
        around = [np.outer(part[0], part[0]) / size for part, size in zip(others, n, strict=True)]
        spread = whole - np.sum(around, axis=0)
        # What is left of values without a spread is their rounding.
        still = np.diagonal(spread) <= _ROUNDING * (np.diagonal(whole) + sum(n) * 2.0**-12)
        spread[still] = spread[:, still] = 0.0
        weights.append([1.0, *-ridge(spread[1:, 1:], sum(n) - len(n), penalty)])
    return np.array(weights)


def covariates_paired(arms: Floats, confidence: float, penalty: float | None = None) -> Adjustment:
    """Paired t test of the differences, less what the differences of covariates explain.

    Args:
        arms: (1, 1, f, q, q) products of the users of both in each fold: 1, values times lists, and lists, in the
            baseline and in the candidate; then how much each covariate differs, 0 where that is not known.
        confidence: In (0, 1).
        penalty: See ``ridge``.
    """
    cells, one = arms[0, 0], np.eye(arms.shape[-1])
    baseline, candidate = of_lists(cells, 1), of_lists(cells, 3)
    rows = np.array([one[0], candidate - baseline, *one[5:]])

    def test(weights: Floats) -> Tested:
        """Of what these weights make of the differences."""
        own = weights @ rows[1:]
        pair = PairMoments(*(moments(cells, each) for each in (baseline, baseline + own, own)))
        return paired_t(pair.difference, confidence), denominator_paired(pair), pair.difference.variance

    return _adjustment(test, [(cells, rows)], penalty)


def covariates_independent(
    arms: Floats, confidence: float, by_strata: bool = False, penalty: float | None = None
) -> Adjustment:
    """Welch's test, or that within strata, of values less what covariates explain.

    Args:
        arms: (2, s, f, q, q) products in each fold of the strata of baseline and candidate: 1, values times lists, and
            lists; then each covariate, around the mean of all users.
        confidence: In (0, 1).
        by_strata: Whether users are compared within strata.
        penalty: See ``ridge``.
    """
    one, k = np.eye(arms.shape[-1]), arms.shape[1]
    parts = [(cells, np.array([one[0], of_lists(cells, 1), *one[3:]])) for arm in arms for cells in arm]

    def test(weights: Floats) -> Tested:
        """Of what these weights make of the values."""
        each = [[*vars(moments(cells, weights @ rows[1:])).values()] for cells, rows in parts]
        both = Moments(*np.concatenate(each[:k], axis=1)), Moments(*np.concatenate(each[k:], axis=1))
        squares = sum(np.nansum(arm.variance * (arm.n - 1).astype(float), keepdims=True) for arm in both)
        if by_strata:
            return *within_strata(both, arms[..., 0, 2].sum(axis=2), confidence), squares
        return welch(*both, confidence), denominator_independent(*both), squares

    return _adjustment(test, parts, penalty)


def _adjustment(test: Callable[[Floats], Tested], parts: Sequence[Part], penalty: float | None) -> Adjustment:
    """The test of the adjusted values, and what the covariates alone say."""
    weights = cross_fitted(parts, penalty)
    fit, denominator, left = test(weights)
    (_, _, whole), *own = (test(each) for each in np.eye(weights.shape[1]))
    # What all users share tells nobody from another.
    moving = [np.full(1, np.nan), *(each.p_value for each, _, squares in own if squares > 0)]
    earlier_p = np.fmin.reduce(moving) * len(own)
    reduction, spread = 1 - left / np.where(whole > 0, whole, np.nan), np.nansum([each for _, _, each in own], axis=0)
    n = sum(cells[:, 0, 0].sum(keepdims=True) for cells, _ in parts)
    return fit, denominator, reduction, n, spread, earlier_p
