"""Rows whose users are all alike: t has no spread to measure with, and exact bounds say what is known of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankmetrics_spark.statistics import Estimate, Floats, bounds_without_spread

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared


def with_exact(rows: Compared, test: Estimate, level: Floats | float) -> Estimate:
    """The tests with exact bounds where users are all alike, as far as these say of 0 what the p-value says.

    Args:
        rows: The rows.
        test: Their tests, with intervals at 1 - ``level``; without a spread they have none.
        level: One number, or (g,).
    """
    (low, high), highest = _bounds(rows, level), _highest(rows)
    told = (test.standard_error == 0) & ~(((low > 0) | (high < 0)) & (test.p_value >= level))
    return test.between(*(np.where(told, new * highest, old) for new, old in
                          ((low, test.ci_low), (high, test.ci_high))))  # fmt: skip


def side_of_margin(rows: Compared, margin: Floats, sign: int) -> tuple[Floats, Floats]:
    """(g,) exact one-sided p-values of a margin on one side, as in ``margins``, and how far it may be there.

    Where all values are 0, it takes users of one experiment alone to be beyond the margin, a share as large as it: that
    none of n is among them has the probability (1 - margin)**n. NaN where the experiments, or a pair, are not equal.

    Args:
        rows: The rows.
        margin: (g,) in the unit of the metric.
        sign: 1 for being no further below than the margin, -1 for being no further above.
    """
    low, high = _bounds(rows, 1 - rows.request.confidence)
    highest, alike = _highest(rows), rows.single.difference == 0
    n = np.log((1 - rows.request.confidence) / 2) / np.log1p(-np.where(sign > 0, -low, high))
    p = np.where(alike, np.maximum(1 - margin / highest, 0.0) ** n, np.nan)
    return p, np.where(alike, np.where(sign > 0, -low, high) * highest, np.nan)


def _bounds(rows: Compared, level: Floats | float) -> tuple[Floats, Floats]:
    """(g,) bounds as shares of the highest value; a pair counts with its difference."""
    highest = _highest(rows)
    a = np.where(rows.paired, 0.0, rows.moments[0].mean) / highest
    b = np.where(rows.paired, rows.pair.difference.mean, rows.moments[1].mean) / highest
    n = [np.where(rows.paired, rows.both["both"], sums["n"]).astype(float) for sums in rows.arms]
    return bounds_without_spread((a, b), (n[0], n[1]), level, rows.paired)


def _highest(rows: Compared) -> Floats:
    """(g,) highest value of a metric whose lowest is 0; NaN where users who are all alike say nothing of others.

    So it is over several looks, and where users or clusters have different weights.
    """
    ranges = [rows.question.ranges.get(key.metric, (np.nan, np.nan)) for key in rows.keys]
    highest = np.array([high if low == 0 and high < np.inf else np.nan for low, high in ranges], float)
    return np.where(rows.request.looks != "one" or rows.by_ratio, np.nan, highest)
