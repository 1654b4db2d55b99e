"""Sums by key -> moments of many experiments or pairs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import exact_sums, resampling
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.moments import Moments, PairMoments
from rankmetrics_spark.statistics.totals import ARM_SUMS, PAIR_SUMS, POWERS, Ints, Key, Name, Totals

BASELINE, CANDIDATE = 1, 2
"""Where a key of a pair holds the names of its experiments."""


def experiments_of(totals: Totals) -> list[Name]:
    """The experiments that have users, in the order of their names; None last."""
    names = {key.candidate for key in totals.sums if key.kind == "arm" and key.segment == EVERYONE}
    return sorted(names, key=lambda name: (name is None, name))


def refuse_unknown(asked: Sequence[str | None], known: Sequence[Name]) -> None:
    """Refuse the name of an experiment that has no users.

    Raises:
        ConfigError: Names the nearest known one.
    """
    names = [str(name) for name in known]
    for name in asked:
        if name is not None and name not in names:
            raise ConfigError(unknown("experiment", name, names))


def arm(key: Key, place: int) -> Key:
    """Key of the sums of the baseline or of the candidate of a pair."""
    return key._replace(kind="arm", baseline="", candidate=key[place])


def stacked(totals: Totals, keys: Sequence[Key], width: int) -> Ints:
    """(g, width) sums; zeros for a key that has none."""
    nothing = np.zeros(width, np.int64)
    return np.array([totals.sums.get(key, nothing) for key in keys], np.int64).reshape(len(keys), width)


def stacked_arms(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g, c) sums of the baseline or of the candidate of each pair."""
    return stacked(totals, [arm(key, place) for key in keys], len(ARM_SUMS))


def of_arm(sums: Ints, name: str) -> Ints:
    """(g,) one of ``ARM_SUMS``."""
    return sums[:, ARM_SUMS.index(name)]


def of_pair(sums: Ints, name: str) -> Ints:
    """(g,) one of ``PAIR_SUMS``."""
    return sums[:, PAIR_SUMS.index(name)]


def whole(sums: Ints, names: Sequence[str], kind: str) -> npt.NDArray[Any]:
    """(g,) exact sums of a kind, as Python integers in units of 2**-60."""
    at, exponents = names.index(f"{kind}_0"), POWERS[len(kind)]
    return exact_sums.total([sums[:, at + i].astype(object) for i in range(len(exponents))], exponents)


def moments(sums: Ints, n: Ints, names: Sequence[str], kinds: Sequence[str]) -> Moments:
    """Moments from the sums of a value, of its square and, where a third kind is given, of its cube."""
    total, squares, *cubes = (whole(sums, names, kind) for kind in kinds)
    return Moments(n.astype(object), total, squares, cubes[0] if cubes else None)


def arm_moments(sums: Ints) -> Moments:
    """Moments of experiments, from (g, c) sums."""
    return moments(sums, of_arm(sums, "n"), ARM_SUMS, ("v", "vv", "vvv"))


def pair_moments(sums: Ints) -> PairMoments:
    """Moments of the users of both experiments of pairs, from (g, c) sums."""
    n = of_pair(sums, "both")
    kinds = (("x", "xx"), ("y", "yy"), ("d", "dd", "ddd"))
    return PairMoments(*(moments(sums, n, PAIR_SUMS, each) for each in kinds))


def replicate_means(found: Ints) -> Floats:
    """(r,) weighted means from weighted sums of values and of ones; NaN where nobody has a weight."""
    values, weights = resampling.together(found)
    return np.asarray(np.divide(values, weights, out=np.full(len(values), np.nan), where=weights > 0))
