"""Rows of ``comparisons``, less what users explain by their values from before the experiment, or by their strata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison.measures import FOLDS, MOST_STRATA, PRODUCTS, STRATUM, Key, Totals
from rankmetrics_spark.comparison.totals import arm_moments
from rankmetrics_spark.errors import ConfigError

#: Below this p-value, the experiments differed before they began, and their earlier values are not used.
SMALL_EARLIER_P = 0.001


@dataclass(frozen=True)
class Adjusted(st.ByRow):
    """CUPED's test of g rows.

    Attributes:
        estimate: The difference, less what the earlier values explain.
        denominator: What it is a share of.
        reduction: (g,) share of the variance that the earlier values explain.
        n_before: (g,) users with earlier values, or in strata of both experiments.
        spread: (g,) of the earlier values; 0 where they tell no user from another.
        earlier_p: (g,) p-value of the difference that the experiments had before.
    """

    estimate: st.Estimate
    denominator: st.Denominator
    reduction: st.Floats
    n_before: st.Floats
    spread: st.Floats
    earlier_p: st.Floats

    @property
    def decides(self) -> Any:
        """(g,) whether the earlier values explain some variance, and did not differ before the experiment."""
        is_tested = ~np.isnan(self.estimate.p_value) & (self.spread > 0)
        return is_tested & ~(self.earlier_p < SMALL_EARLIER_P)


def of_arms(totals: Totals, keys: Sequence[Key], arms: tuple[st.Moments, st.Moments], confidence: float) -> Adjusted:
    """Independent rows: each user less what their own earlier value explains; ``arms`` are all users of both."""
    sums = totals.sides("before", keys)
    before = [own.moments("b", "n_before") for own in sums]
    baseline, candidate = with_mean_covariate([*zip(arms, sums, strict=True)])
    with np.errstate(all="ignore"):
        estimate, reduction = st.cuped_independent(baseline, candidate, confidence)
        denominator = st.cuped_denominator_independent(baseline, candidate)
        earlier = st.welch(before[0], before[1], confidence)
    n = (before[0].n + before[1].n).astype(float)
    spread = baseline.spread + candidate.spread
    return Adjusted(estimate, denominator, reduction, n, spread, earlier.p_value)


def of_pairs(totals: Totals, keys: Sequence[Key], pair: st.PairMoments, confidence: float) -> Adjusted:
    """Paired rows: the difference of each user less what the difference of their earlier values explains.

    A user without an earlier value in both counts as one whose earlier values do not differ.
    """
    sums = totals.of("before_pair", keys)
    before = sums.moments("x", "n_before")
    everyone = st.Moments(pair.difference.n, before.total, before.squares)
    difference = st.CovariateMoments(pair.difference, everyone, sums["xd"])
    baseline = st.CovariateMoments(pair.baseline, everyone, sums["xb"])
    with np.errstate(all="ignore"):
        estimate, reduction = st.cuped_paired(difference, confidence)
        denominator = st.cuped_denominator_paired(pair, difference, baseline)
        earlier = st.paired_t(before, confidence)
    n = before.n.astype(float)
    return Adjusted(estimate, denominator, reduction, n, difference.spread, earlier.p_value)


def of_strata(totals: Totals, keys: Sequence[Key], by_ratio: bool, confidence: float) -> Adjusted:
    """Independent rows: the mean of the differences within strata, of all strata that have users of both."""
    kind, parts, none = "strata_lists" if by_ratio else "strata", [], np.full(1, np.nan)
    known = _strata(totals, kind)
    for key in keys:
        sums = totals.sides(kind, [_part(key, stratum) for stratum in _of_both(known, key)[1]])
        sizes = [own.ratio("y", "n").lists if by_ratio else own["n"] for own in sums]
        arms = arm_moments(sums[0]), arm_moments(sums[1])
        n = np.array([float(arms[0].n.sum() + arms[1].n.sum())])
        with np.errstate(all="ignore"):
            parts.append(Adjusted(*st.within_strata(arms, sizes, confidence), none, n, n, none))
    return Adjusted.joined(parts)


def of_covariates(
    totals: Totals, keys: Sequence[Key], paired: st.Bools, by_strata: bool, confidence: float
) -> Adjusted:
    """Rows less what several covariates explain, by cross-fitted ridge regression; independent ones within strata."""
    known, parts = _strata(totals, PRODUCTS), []
    for key, is_pair in zip(keys, paired.tolist(), strict=True):
        kind, both = known.get((*key[1:3], key.segment, key.metric), ("", set())) if is_pair else _of_both(known, key)
        if not both:
            none = np.full(1, np.nan)
            unknown = st.Estimate(*[none] * 6), st.Denominator(*[none] * 3)
            parts.append(Adjusted(*unknown, none, np.zeros(1), none, none))
            continue
        cells = [_part(key, stratum, str(fold)) for stratum in both for fold in range(FOLDS)]
        with np.errstate(all="ignore"):
            if is_pair:
                found = Adjusted(*st.covariates_paired(st.products(totals.of(kind, cells)), confidence))
            else:
                sides = totals.sides(kind, cells)
                whole = st.products(replace(sides[0], table=np.concatenate([each.table for each in sides])), 3)
                arms = whole.reshape(2, -1, FOLDS, *whole.shape[1:])
                found = Adjusted(*st.covariates_independent(arms, confidence, by_strata))
        # Strata alone say something too.
        parts.append(replace(found, spread=found.n_before) if by_strata else found)
    return Adjusted.joined(parts)


#: (baseline, candidate, segment, metric) -> the kind of the sums by stratum, and the strata.
_Strata = dict[tuple[object, ...], tuple[str, set[str]]]


def _strata(totals: Totals, kind: str) -> _Strata:
    """The strata of sums whose kind begins like this."""
    known: _Strata = {}
    for key in totals.sums:
        if key.kind.startswith(kind):
            segment, stratum, *_ = key.segment.split(STRATUM)
            known.setdefault((*key[1:3], segment, key.metric), (key.kind, set()))[1].add(stratum)
    return known


def _of_both(known: _Strata, key: Key) -> tuple[str, list[str]]:
    """The kind of the sums of a row's experiments, and the strata that have users of both."""
    (kind, ours), (_, theirs) = (known.get(("", name, key.segment, key.metric), ("", set())) for name in key[1:3])
    if len(ours | theirs) > MOST_STRATA:
        raise ConfigError(f"comparison.strata are {len(ours | theirs):,}; allowed: {MOST_STRATA:,} at most")
    return kind, sorted(ours & theirs)


def _part(key: Key, *parts: str) -> Key:
    """The key of a stratum, or of a fold in it."""
    return key._replace(segment=STRATUM.join([key.segment, *parts]))


def with_mean_covariate(arms: Sequence[tuple[st.Moments, st.Sums]]) -> list[st.CovariateMoments]:
    """Moments in which a user without an earlier value has the mean of all users who have one.

    ``arms``: the values of an experiment, and its sums of the kind ``before``.
    """
    before = [sums.moments("b", "n_before") for _, sums in arms]
    n, total = (np.sum([getattr(each, name) for each in before], axis=0) for name in ("n", "total"))
    fill = np.array([0 if not k else t // k for t, k in zip(total, n, strict=True)], dtype=object)
    unit = 2**st.LIMB_UNIT
    result = []
    for (y, sums), x in zip(arms, before, strict=True):
        n_without = y.n - x.n
        covariate = st.Moments(y.n, x.total + n_without * fill, x.squares + n_without * (fill * fill // unit))
        result.append(st.CovariateMoments(y, covariate, sums["bv"] + (y.total - sums["v"]) * fill // unit))
    return result
