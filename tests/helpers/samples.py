"""Moments of arrays, for the tests of the statistics."""

from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics import CovariateMoments, Moments, PairMoments, RatioSums, exact_total, limbs_of

Floats = npt.NDArray[np.float64]


def moments(values: Any) -> Moments:
    """Moments of g groups of n values, from a (g, n) array."""
    v = np.asarray(values, float)
    n = np.full(len(v), v.shape[1], dtype=object)
    return Moments(n, *(exact(power) for power in (v, v * v)))


def exact(values: Floats) -> npt.NDArray[Any]:
    """(g,) sums of (g, n) values in units of 2**-60."""
    limbs = limbs_of(values.ravel())
    return exact_total([limb.reshape(values.shape).sum(axis=1).astype(np.int64).astype(object) for limb in limbs])


def ratio_sums(values: Any, lists: Any) -> RatioSums:
    """Sums of one group of values, one per user, and of their numbers of lists."""
    n = np.asarray(lists, float)
    y = n * np.asarray(values, float)
    return RatioSums(np.array([len(y)], object), *(exact(each[None]) for each in (y, n, y * y, y * n, n * n)))


def joined(groups: list[Moments]) -> Moments:
    """Moments of several groups of different sizes."""
    names = ("n", "total", "squares")
    return Moments(*(np.concatenate([getattr(group, name) for group in groups]) for name in names))


def pair_moments(baseline: Any, candidate: Any) -> PairMoments:
    """Moments of g pairs, from two (g, n) arrays."""
    return PairMoments(moments(baseline), moments(candidate), moments(np.subtract(candidate, baseline)))


def covariate_moments(y: Any, x: Any) -> CovariateMoments:
    """Moments of values and covariates of g groups, from two (g, n) arrays."""
    return CovariateMoments(moments(y), moments(x), exact(np.multiply(y, x)))
