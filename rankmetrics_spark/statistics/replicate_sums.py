"""Values of users, times their random weights -> exact sums of every replicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics import resampling
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.totals import Ints, Key, Name, Request, Totals
from rankmetrics_spark.statistics.units import Units, of_both

Tables = Mapping[str, Floats]

MOST_VALUES = 2**24
"""Values of users in pairs that are resampled in one go."""


@dataclass(frozen=True)
class Resampler:
    """Weighted sums of the users of one chunk in every replicate."""

    keys: npt.NDArray[np.uint64]
    request: Request
    weights: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Draws the weights of the users once for all metrics and segments."""
        asked = self.request
        if asked.bootstrap:
            weights = resampling.poisson_weights(self.keys, asked.bootstrap_seed, asked.bootstrap)
            self.weights["bootstrap"] = weights
        if asked.flips:
            self.weights["flips"] = _and_ones(resampling.signs(self.keys, asked.flip_seed, asked.flips))
        if asked.reshuffles:
            seed, n = asked.reshuffle_seed, asked.reshuffles
            self.weights["reshuffles"] = _and_ones(resampling.signs(self.keys, seed, n))

    def add(self, totals: Totals, units: Units, of: tuple[list[Name], tuple[Ints, Ints]], tables: Tables) -> None:
        """Add the weighted sums of all metrics: one product of matrices for each kind of weights.

        Args:
            totals: Changed in place.
            units: One way of splitting the users.
            of: Names of the experiments, and the pairs as indices of them.
            tables: Metric -> (units, experiments) values that can be summed.
        """
        experiments, (left, right) = of
        arms: list[tuple[Name, Name]] = [("", name) for name in experiments]
        # As many pairs at once as fit into memory.
        step = max(1, MOST_VALUES // max(1, len(units.user) * len(tables)))
        for at in range(0, max(1, len(left)), step):
            pairs = experiments, left[at : at + step], right[at : at + step]
            drawn = {metric: _drawn(table, [] if at else arms, pairs) for metric, table in tables.items()}
            for kind, weights in self.weights.items():
                wanted = [(metric, each) for metric, found in drawn.items() for each in found[kind] if each.names]
                if wanted:
                    _add_weighted(totals, units, weights, wanted)


def _drawn(
    table: Floats, arms: list[tuple[Name, Name]], pairs: tuple[list[Name], Ints, Ints]
) -> dict[str, list[_Columns]]:
    """What is summed with the weights of each kind."""
    experiments, left, right = pairs
    names = [(experiments[i], experiments[j]) for i, j in zip(left, right, strict=True)]
    there = ~np.isnan(table)
    v = np.where(there, table, 0.0)
    x, y, both = of_both(table, left, right)
    one = there[:, left] ^ there[:, right]
    either = np.where(one, v[:, left] + v[:, right], 0.0)
    return {
        # Where all users are in both, x and y are columns of arms too, and equal columns are summed once.
        "bootstrap": [_Columns("bootstrap_arm", arms, (v, there)), _Columns("bootstrap_pair", names, (x, y, both))],
        "flips": [_Columns("flips", names, (y - x, both))],
        "reshuffles": [
            _Columns("aa_paired", names, (y - x, both)),
            _Columns("aa_independent", names, (either, either * either, one)),
        ],
    }


@dataclass(frozen=True)
class _Columns:
    """Columns that are summed for several names; the last one says who counts."""

    kind: str
    names: list[tuple[Name, Name]]
    columns: Sequence[npt.NDArray[Any]]


def _add_weighted(
    totals: Totals, units: Units, weights: npt.NDArray[Any], wanted: Sequence[tuple[str, _Columns]]
) -> None:
    table = np.concatenate([column.astype(float) for _, each in wanted for column in each.columns], axis=1)
    for label, part in units.slices():
        sums = resampling.weighted_sums(units.of_users(weights, part), table[part])
        start = 0
        for metric, each in wanted:
            shape = (len(each.columns), len(each.names))
            # (limbs, replicates, columns and names) -> (limbs, columns, replicates) of each name
            own = sums[..., start : start + shape[0] * shape[1]].reshape(*sums.shape[:2], *shape).swapaxes(1, 2)
            start += shape[0] * shape[1]
            for i, (baseline, candidate) in enumerate(each.names):
                if each.columns[-1][part, i].any():
                    totals.add_replicates(Key(each.kind, baseline, candidate, label, metric), own[..., i])


def _and_ones(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([weights, np.ones((len(weights), 1), weights.dtype)], axis=1)
