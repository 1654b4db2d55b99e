"""Intervals of rows of ``comparisons``: at the level of the run, and at those that agree with the corrected test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.comparison.families import Rules
from rankmetrics_spark.statistics import (
    Denominator,
    Estimate,
    Floats,
    Looks,
    adjusted_levels,
    bca,
    consistent,
    critical_value,
    over_looks,
    percentile,
    strictest_level,
)


@dataclass(frozen=True)
class Share:
    """The differences of g rows as a share of the baseline.

    Attributes:
        delta: By the delta method.
        denominator: What the differences are divided by.
    """

    delta: Estimate
    denominator: Denominator

    def where(self, chosen: Any, other: Share) -> Share:
        """Row by row this one where it is ``chosen``, else the other one."""
        return Share(self.delta.where(chosen, other.delta), self.denominator.where(chosen, other.denominator))


def intervals_at(
    confidence: Floats | float, single: Estimate, share: Share, n: Any = None, looks: Looks | None = None
) -> tuple[Estimate, Estimate]:
    """The test and the relative difference with intervals at these levels.

    Args:
        confidence: In (0, 1); one number, or (g,).
        single: Tests of a single look.
        share: Their differences as a share of the baseline.
        n: (g,) users of the test.
        looks: The rule; None for a single look.
    """
    critical = [critical_value(each.df, confidence, n, looks) for each in (single, share.delta)]
    test = single if looks is None else over_looks(single, n, looks, confidence)
    test, relative = test.within(critical[0], 1 - confidence), share.delta.within(critical[1], 1 - confidence)
    return test, consistent(relative, test, critical[0], share.denominator)


def levels_of(p: Floats, p_adjusted: Floats, correction: str, alpha: float) -> Floats:
    """(g,) levels of the intervals of one family, which agree with its corrected p-values."""
    strictest = strictest_level(alpha, int(np.count_nonzero(~np.isnan(p))), correction)
    return adjusted_levels(p, p_adjusted, alpha, np.full(len(p), strictest))


_CUT = 2.0**-28
"""Replicates so close to the estimate are equal to it."""


def interval(means: Floats, estimate: Floats, acceleration: Floats, rules: Rules) -> tuple[Floats, Floats]:
    """Bootstrap interval of (g, r) replicates, as the rules want it."""
    # Replicates are cut off and the estimate is not, so a replicate that is equal to it lies a little beside it.
    means = np.where(np.abs(means - estimate[:, None]) <= _CUT, estimate[:, None], means)
    if rules.bca:
        return bca(means, estimate, acceleration, rules.confidence)
    return percentile(means, rules.confidence)
