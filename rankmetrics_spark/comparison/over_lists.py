"""The mean over all lists: exact sums of the users of experiments and pairs, and the moments that they become.

A user's lists belong together, so the user stays the unit of every error: see ``statistics.RatioSums``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankmetrics_spark.comparison.totals import BASELINE, CANDIDATE, Ints, Key, Totals, arm, sum_table
from rankmetrics_spark.statistics import (
    Floats,
    Moments,
    PairMoments,
    RatioPairSums,
    RatioSums,
    limb_columns,
    total_of,
)

ARM, PAIR = "arm_lists", "pair_lists"
"""Kinds of sums."""
LIST_SUMS = ("users", *limb_columns("y", "n", "yy", "yn", "nn"))
"""Sums over the users of an experiment who have a value: their lists (n), lists times value (y), products."""
LIST_PAIR_SUMS = (
    "both",
    *limb_columns("x", "m", "xx", "xm", "mm", "y", "n", "yy", "yn", "nn", "xy", "xn", "my", "mn"),
)
"""The same over the users of both experiments: of the baseline (x, m) and the candidate (y, n), and their products."""


def arm_products(y: Floats, n: Floats) -> list[tuple[Floats, int]]:
    """What ``LIST_SUMS`` adds up after the users, each with its number of factors."""
    return [(y, 1), (n, 1), (y * y, 2), (y * n, 2), (n * n, 2)]


def pair_products(x: Floats, m: Floats, y: Floats, n: Floats) -> list[tuple[Floats, int]]:
    """What ``LIST_PAIR_SUMS`` adds up after the users."""
    return [*arm_products(x, m), *arm_products(y, n), (x * y, 2), (x * n, 2), (m * y, 2), (m * n, 2)]


def list_sums(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g, c) sums of the baseline or of the candidate of each pair."""
    return sum_table(totals, [arm(key, place)._replace(kind=ARM) for key in keys], len(LIST_SUMS))


def list_pair_sums(totals: Totals, keys: Sequence[Key]) -> Ints:
    """(g, c) sums of the users of both."""
    return sum_table(totals, [key._replace(kind=PAIR) for key in keys], len(LIST_PAIR_SUMS))


def ratio_of(sums: Ints) -> RatioSums:
    """The sums of experiments, put together."""
    return RatioSums(sums[:, 0].astype(object), *(total_of(sums, LIST_SUMS, name) for name in _NAMES))


def pair_moments_of(sums: Ints) -> PairMoments:
    """Moments of the users of both, from (g, c) sums."""
    users = sums[:, 0].astype(object)
    baseline, candidate = (
        RatioSums(users, *(total_of(sums, LIST_PAIR_SUMS, name) for name in names))
        for names in (("x", "m", "xx", "xm", "mm"), _NAMES)
    )
    shared = (total_of(sums, LIST_PAIR_SUMS, name) for name in ("xy", "xn", "my", "mn"))
    return RatioPairSums(baseline, candidate, *shared).moments


_NAMES = ("y", "n", "yy", "yn", "nn")


def arm_moments_over_lists(totals: Totals, keys: Sequence[Key]) -> tuple[Moments, Moments]:
    """Moments of baseline and candidate of each pair, whose means are those over lists."""
    return (
        ratio_of(list_sums(totals, keys, BASELINE)).moments,
        ratio_of(list_sums(totals, keys, CANDIDATE)).moments,
    )


def rest_over_lists(
    totals: Totals, keys: Sequence[Key], everyone: Sequence[Key]
) -> tuple[tuple[Moments, Moments], PairMoments]:
    """The same of ``everyone`` less the users of each key: of the experiments, and of the users of both."""
    baseline, candidate = (
        ratio_of(list_sums(totals, everyone, place) - list_sums(totals, keys, place)).moments
        for place in (BASELINE, CANDIDATE)
    )
    return (baseline, candidate), pair_moments_of(list_pair_sums(totals, everyone) - list_pair_sums(totals, keys))


def n_lists(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g,) lists of the baseline or of the candidate of each pair."""
    return np.asarray(ratio_of(list_sums(totals, keys, place)).lists, dtype=np.int64)
