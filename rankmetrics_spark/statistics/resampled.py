"""What resampling, signed ranks and an earlier date add to the rows of ``comparisons``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.statistics import exact_sums, nonparametric, replicates, resampling, variance_reduction
from rankmetrics_spark.statistics.compared import Bools, Compared, Rules
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Moments
from rankmetrics_spark.statistics.stacked import (
    BASELINE,
    CANDIDATE,
    arm,
    moments,
    of_pair,
    replicate_means,
    stacked,
    whole,
)
from rankmetrics_spark.statistics.totals import BEFORE_SUMS, PAIR_SUMS, Ints, Key, Totals

_CUT = 2.0**-28
"""Replicates so close to the estimate are equal to it."""
_FINEST_ERROR, _FINEST_DIFFERENCE = 2.0**-22, 2.0**-20
"""Sums of replicates are cut off at 2**-30 per user; below these, too much of the difference would be cut off."""


@dataclass(frozen=True)
class Ranks:
    """Sums of signed ranks of one pair: see ``nonparametric.signed_rank``."""

    n: int
    twice_w_plus: int
    tie_term: int


def resampled(rows: Compared) -> dict[str, Any]:
    """Bootstrap interval, sign-flip test and A/A share; only those that were asked for."""
    kinds = {key.kind for key in rows.totals.replicates}
    columns: dict[str, Any] = {}
    if "bootstrap_arm" in kinds:
        columns["bootstrap_ci_low"], columns["bootstrap_ci_high"] = _bootstrap(rows)
    if "flips" in kinds:
        columns["p_randomization"] = _flips(rows)
    if kinds & {"aa_paired", "aa_independent"}:
        columns["aa_share"] = _aa(rows)
    return columns


def interval(means: Floats, estimate: Floats, acceleration: Floats, rules: Rules) -> tuple[Floats, Floats]:
    """Bootstrap interval of (g, r) replicates, as the rules want it."""
    # Replicates are cut off and the estimate is not, so a replicate that is equal to it lies a little beside it.
    means = np.where(np.abs(means - estimate[:, None]) <= _CUT, estimate[:, None], means)
    if rules.bca:
        return replicates.bca(means, estimate, acceleration, rules.confidence)
    return replicates.percentile(means, rules.confidence)


def _resampled(rows: Compared) -> Bools:
    """(g,) whether a row has a t test, and replicates that are fine enough for its difference."""
    error, difference = rows.estimate.standard_error, np.abs(rows.estimate.difference)
    still = (error == 0) & ((difference == 0) | (difference >= _FINEST_DIFFERENCE))
    return np.asarray(still | (error >= _FINEST_ERROR))


def _replicates(rows: Compared, kind: str, i: int, place: int | None = None) -> Ints | None:
    key = rows.keys[i] if place is None else arm(rows.keys[i], place)
    return rows.totals.replicates.get(key._replace(kind=kind))


def _bootstrap(rows: Compared) -> tuple[Floats, Floats]:
    low, high = np.full(len(rows.keys), np.nan), np.full(len(rows.keys), np.nan)
    of_arms = replicates.acceleration_of_difference(*rows.moments)
    acceleration = np.where(rows.paired, rows.pair.difference.skew_term(), of_arms)
    for i in np.flatnonzero(_resampled(rows)):
        means = _difference_replicates(rows, int(i))
        if means is not None:
            part = slice(i, i + 1)
            bounds = interval(means[None], rows.estimate.difference[part], acceleration[part], rows.rules)
            low[i], high[i] = bounds[0][0], bounds[1][0]
    return low, high


def _difference_replicates(rows: Compared, i: int) -> Floats | None:
    if rows.paired[i]:
        pair = _replicates(rows, "bootstrap_pair", i)
        return None if pair is None else replicate_means(pair[:, 1:]) - replicate_means(pair[:, ::2])
    arms = [_replicates(rows, "bootstrap_arm", i, place) for place in (BASELINE, CANDIDATE)]
    if arms[0] is None or arms[1] is None:
        return None
    return replicate_means(arms[1]) - replicate_means(arms[0])


def _flips(rows: Compared) -> Floats:
    p = np.full(len(rows.keys), np.nan)
    for i in np.flatnonzero(_resampled(rows) & rows.paired):
        found = _replicates(rows, "flips", int(i))
        if found is not None:
            sums = resampling.together(found)[0]
            p[i] = nonparametric.sign_flip_p(sums[-1:], sums[None, :-1])[0]
    return p


def _aa(rows: Compared) -> Floats:
    share = np.full(len(rows.keys), np.nan)
    for i in np.flatnonzero(_resampled(rows)):
        found = _replicates(rows, "aa_paired" if rows.paired[i] else "aa_independent", int(i))
        if found is not None:
            share[i] = _aa_paired(rows, int(i), found) if rows.paired[i] else _aa_independent(rows, found)
    return share


def _aa_paired(rows: Compared, i: int, found: Ints) -> float:
    both = rows.both[i : i + 1]
    squares = whole(both, PAIR_SUMS, "dd") / 2**exact_sums.UNIT
    sums = resampling.together(found)[:1, :-1]
    n = of_pair(both, "both").astype(float)
    return float(replicates.aa_share_paired(n, squares.astype(float), sums, 1 - rows.rules.confidence)[0])


def _aa_independent(rows: Compared, found: Ints) -> float:
    sums = resampling.together(found)
    return float(replicates.aa_share_independent([*sums[:, -1]], sums[:, :-1], 1 - rows.rules.confidence))


def ranked(rows: Compared, ranks: Mapping[Key, Ranks]) -> dict[str, Any]:
    """P-values of Wilcoxon's signed rank test; 1 where all differences are 0."""
    if not rows.rules.wilcoxon:
        return {}
    found = [ranks.get(key._replace(kind="ranks"), Ranks(0, 0, 0)) for key in rows.keys]
    n, rank_sums, ties = (
        np.array([getattr(each, name) for each in found], dtype=object) for name in ("n", "twice_w_plus", "tie_term")
    )
    n_zero = of_pair(rows.both, "both").astype(object) - n
    with np.errstate(all="ignore"):
        p = nonparametric.signed_rank(n, rank_sums, ties, n_zero)
    return {"p_wilcoxon": np.where(rows.testable & rows.paired, p, np.nan)}


# ---- CUPED


def with_cuped(rows: Compared) -> dict[str, Any]:
    """The independent comparisons, less what the values of an earlier date explain."""
    names = ("cuped_difference", "cuped_ci_low", "cuped_ci_high", "cuped_p_value", "cuped_variance_reduction")
    if not rows.rules.cuped:
        return {}
    arms = [
        _covariates(rows.totals, [arm(key, place) for key in rows.keys], of)
        for place, of in zip((BASELINE, CANDIDATE), rows.moments, strict=True)
    ]
    with np.errstate(all="ignore"):
        baseline, candidate = _filled(arms)
        found, reduction = variance_reduction.cuped_independent(baseline, candidate, rows.rules.confidence)
    values = (found.difference, found.ci_low, found.ci_high, found.p_value, reduction)
    there = rows.testable & ~rows.paired & ~rows.unresolved
    return {name: np.where(there, value, np.nan) for name, value in zip(names, values, strict=True)}


def _covariates(totals: Totals, keys: list[Key], of: Moments) -> tuple[Moments, Moments, Any, Any]:
    """Of the users of an experiment: values, earlier values, sum of products, sum of values with an earlier one."""
    sums = stacked(totals, [key._replace(kind="before") for key in keys], len(BEFORE_SUMS))
    before = moments(sums, sums[:, 0], BEFORE_SUMS, ("b", "bb"))
    return of, before, whole(sums, BEFORE_SUMS, "bv"), whole(sums, BEFORE_SUMS, "v")


def _filled(arms: list[tuple[Moments, Moments, Any, Any]]) -> list[variance_reduction.CovariateMoments]:
    """Moments in which a user without an earlier value has the mean of all users who have one."""
    n = arms[0][1].n + arms[1][1].n
    total = arms[0][1].total + arms[1][1].total
    fill = np.array([0 if not k else t // k for t, k in zip(total, n, strict=True)], dtype=object)
    unit = 2**exact_sums.UNIT
    found = []
    for y, x, products, of_known in arms:
        missing = y.n - x.n
        filled = Moments(y.n, x.total + missing * fill, x.squares + missing * (fill * fill // unit))
        found.append(variance_reduction.CovariateMoments(y, filled, products + (y.total - of_known) * fill // unit))
    return found
