"""Rows of ``comparisons``, less what users explain by their values from before the experiment, or by their strata."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rankmetrics_spark import config as cfg, errors as err, statistics as st
from rankmetrics_spark.comparison.measures import FOLDS, MOST_STRATA, PRODUCTS, STRATUM, Key, Totals

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
    return Adjusted(estimate, denominator, reduction, n, baseline.spread + candidate.spread, earlier.p_value)


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


def of_products(totals: Totals, keys: Sequence[Key], paired: st.Bools, request: cfg.Comparison) -> Adjusted:
    """Rows less what several covariates explain, by cross-fitted ridge regression; independent ones within strata.

    Strata that have users of one experiment only are left out.
    """
    known, parts, none = dict[tuple[object, ...], tuple[str, set[str]]](), [], np.full(1, np.nan)
    for key in totals.sums:
        if key.kind.startswith(PRODUCTS):
            segment, _, stratum = key.segment.rpartition(STRATUM)[0].partition(STRATUM)
            known.setdefault((*key[1:3], segment, key.metric), (key.kind, set()))[1].add(stratum)
    folds = range(FOLDS if request.covariates else 1)
    for key, is_pair in zip(keys, paired.tolist(), strict=True):
        names = [key[1:3]] if is_pair else [("", name) for name in key[1:3]]
        kinds, strata = zip(*(known.get((*name, key.segment, key.metric), ("", set())) for name in names), strict=True)
        if (n := len(set.union(*strata))) > MOST_STRATA:
            raise err.ConfigError(f"comparison.strata are {n:,}; allowed: {MOST_STRATA:,} at most")
        both = sorted(set.intersection(*strata))
        segments = [STRATUM.join([key.segment, stratum, str(fold)]) for stratum in both for fold in folds]
        if not both:
            unknown = st.Estimate(*[none] * 6), st.Denominator(*[none] * 3)
            parts.append(Adjusted(*unknown, none, np.zeros(1), none, none))
            continue
        cells = [Key(kinds[0], *name, segment, key.metric) for name in names for segment in segments]
        with np.errstate(all="ignore"):
            whole = st.products(totals.of(kinds[0], cells), None if is_pair else 3)
            arms = whole.reshape(len(names), len(both), len(folds), *whole.shape[1:])
            of_arms = partial(st.covariates_independent, by_strata=bool(request.strata))
            found = Adjusted(*(st.covariates_paired if is_pair else of_arms)(arms, request.confidence))
        # Strata alone say something too.
        parts.append(replace(found, spread=found.n_before) if request.strata else found)
    return Adjusted.joined(parts)


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
