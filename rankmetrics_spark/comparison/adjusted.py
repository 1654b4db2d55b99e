"""Rows of ``comparisons``, less what the values of the users from before the experiment explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.comparison.totals import (
    BASELINE,
    BEFORE_PAIR_SUMS,
    BEFORE_SUMS,
    CANDIDATE,
    Key,
    Totals,
    arm,
    moments,
    stacked,
)
from rankmetrics_spark.statistics import (
    LIMB_UNIT,
    CovariateMoments,
    Estimate,
    Floats,
    Interval,
    Moments,
    PairMoments,
    cuped_independent,
    cuped_paired,
    paired_t,
    relative_cuped_independent,
    relative_cuped_paired,
    total_of,
    welch,
)

SMALL_EARLIER_P = 0.001
"""Below this p-value, the experiments differed before they began, and their earlier values are not used."""


@dataclass(frozen=True)
class Adjusted:
    """CUPED's test of g rows.

    Attributes:
        estimate: The difference, less what the earlier values explain.
        relative: The same as a share of the baseline, with its bounds.
        reduction: (g,) share of the variance that the earlier values explain.
        n_before: (g,) users with earlier values.
        spread: (g,) of the earlier values; 0 where they tell no user from another.
        earlier_p: (g,) p-value of the difference that the experiments had before.
    """

    estimate: Estimate
    relative: Interval
    reduction: Floats
    n_before: Floats
    spread: Floats
    earlier_p: Floats

    @property
    def decides(self) -> Any:
        """(g,) whether there is a test that the earlier values make sharper, and nothing speaks against them."""
        there = ~np.isnan(self.estimate.p_value) & (self.spread > 0)
        return there & ~(self.earlier_p < SMALL_EARLIER_P)


def of_arms(totals: Totals, keys: Sequence[Key], arms: tuple[Moments, Moments], confidence: float) -> Adjusted:
    """Independent rows: each user less what their own earlier value explains.

    Args:
        totals: All sums.
        keys: Kind ``pair``; one per row.
        arms: Of all users of baseline and candidate.
        confidence: Of the intervals.
    """
    known = [_known(totals, [arm(key, place) for key in keys], of) for place, of in zip(_PLACES, arms, strict=True)]
    baseline, candidate = _filled(known)
    before = [each[1] for each in known]
    with np.errstate(all="ignore"):
        found, reduction = cuped_independent(baseline, candidate, confidence)
        relative = relative_cuped_independent(baseline, candidate, confidence)
        earlier = welch(before[0], before[1], confidence)
    n = (before[0].n + before[1].n).astype(float)
    return Adjusted(found, relative, reduction, n, baseline.spread + candidate.spread, earlier.p_value)


def of_pairs(totals: Totals, keys: Sequence[Key], pair: PairMoments, confidence: float) -> Adjusted:
    """Paired rows: the difference of each user less what the difference of their earlier values explains.

    A user without an earlier value in both counts as one whose earlier values do not differ.

    Args:
        totals: All sums.
        keys: Kind ``pair``; one per row.
        pair: Of the users of both.
        confidence: Of the intervals.
    """
    sums = stacked(totals, [key._replace(kind="before_pair") for key in keys], len(BEFORE_PAIR_SUMS))
    known = moments(sums, sums[:, 0], BEFORE_PAIR_SUMS, ("x", "xx"))
    everyone = Moments(pair.difference.n, known.total, known.squares)
    difference = CovariateMoments(pair.difference, everyone, total_of(sums, BEFORE_PAIR_SUMS, "xd"))
    baseline = CovariateMoments(pair.baseline, everyone, total_of(sums, BEFORE_PAIR_SUMS, "xb"))
    with np.errstate(all="ignore"):
        found, reduction = cuped_paired(difference, confidence)
        relative = relative_cuped_paired(pair, difference, baseline, confidence)
        earlier = paired_t(known, confidence)
    return Adjusted(found, relative, reduction, known.n.astype(float), difference.spread, earlier.p_value)


def either(chosen: Any, of_pairs: Adjusted, of_arms: Adjusted) -> Adjusted:
    """Row by row the one or the other."""
    relative, low, high = (np.where(chosen, *each) for each in zip(of_pairs.relative, of_arms.relative, strict=True))
    names = ("reduction", "n_before", "spread", "earlier_p")
    others = (np.where(chosen, getattr(of_pairs, name), getattr(of_arms, name)) for name in names)
    return Adjusted(of_pairs.estimate.where(chosen, of_arms.estimate), (relative, low, high), *others)


_PLACES = (BASELINE, CANDIDATE)


def _known(totals: Totals, keys: list[Key], of: Moments) -> tuple[Moments, Moments, Any, Any]:
    """Of the users of an experiment: values, earlier values, sum of products, sum of values with an earlier one."""
    sums = stacked(totals, [key._replace(kind="before") for key in keys], len(BEFORE_SUMS))
    before = moments(sums, sums[:, 0], BEFORE_SUMS, ("b", "bb"))
    return of, before, total_of(sums, BEFORE_SUMS, "bv"), total_of(sums, BEFORE_SUMS, "v")


def _filled(arms: list[tuple[Moments, Moments, Any, Any]]) -> list[CovariateMoments]:
    """Moments in which a user without an earlier value has the mean of all users who have one."""
    n = arms[0][1].n + arms[1][1].n
    total = arms[0][1].total + arms[1][1].total
    fill = np.array([0 if not k else t // k for t, k in zip(total, n, strict=True)], dtype=object)
    unit = 2**LIMB_UNIT
    found = []
    for y, x, products, of_known in arms:
        missing = y.n - x.n
        filled = Moments(y.n, x.total + missing * fill, x.squares + missing * (fill * fill // unit))
        found.append(CovariateMoments(y, filled, products + (y.total - of_known) * fill // unit))
    return found
