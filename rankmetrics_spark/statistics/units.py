"""The rows of some users as arrays, and the units that are compared: users, or users within a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics import exact_sums
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.totals import POWERS, Ints, Name


@dataclass(frozen=True)
class UserRows:
    """All rows of some users, ordered by user.

    Attributes:
        user: (n,) index of the user, from 0, ascending.
        keys: (u,) hash of each user's id.
        experiments: Names of the experiments.
        experiment: (n,) index of the experiment.
        segments: Per way of splitting the users: the labels, and the (n,) index of each row's label.
        values: Metric -> (n,) values, NaN where the user has none.
        relevant: (n,) whether the user has a relevant item.
        before: Metric -> (n,) values of an earlier date, NaN where there is none; empty if none are wanted.
    """

    user: Ints
    keys: npt.NDArray[np.uint64]
    experiments: list[Name]
    experiment: Ints
    segments: list[tuple[list[str], Ints]]
    values: dict[str, Floats]
    relevant: npt.NDArray[np.bool_]
    before: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Units:
    """The units of one way of splitting the users: a user, or a user within a segment; ordered by segment."""

    labels: list[str]
    starts: Ints
    user: Ints
    row_unit: Ints
    experiment: Ints
    n_experiments: int

    @classmethod
    def of(cls, rows: UserRows, labels: list[str], code: Ints) -> Units:
        n_users = len(rows.keys)
        if len(labels) == 1:
            # Every user is one unit; the general way sorts them again.
            return cls(
                labels, np.zeros(1, np.int64), np.arange(n_users), rows.user, rows.experiment, len(rows.experiments)
            )
        found, row_unit = np.unique(code * n_users + rows.user, return_inverse=True)
        there, starts = np.unique(found // n_users, return_index=True)
        row_unit = row_unit.reshape(-1).astype(np.int64)
        return cls(
            [labels[i] for i in there], starts, found % n_users, row_unit, rows.experiment, len(rows.experiments)
        )

    def dense(self, values: Floats) -> Floats:
        """(units, experiments) values; NaN where a unit has no row of an experiment."""
        table = np.full((len(self.user), self.n_experiments), np.nan)
        table[self.row_unit, self.experiment] = values
        return table

    def sums(self, table: npt.NDArray[Any]) -> Ints:
        """(segments, columns) sums of whole numbers."""
        return np.add.reduceat(table, self.starts, axis=0).astype(np.int64)

    def limb_sums(self, table: Floats, power: int) -> list[Ints]:
        """One (segments, columns) array per limb of a product of ``power`` values."""
        limbs = exact_sums.limbs(np.ascontiguousarray(table).ravel(), POWERS[power])
        nothing = np.zeros((len(self.starts), table.shape[1]), np.int64)
        return [self.sums(limb.reshape(table.shape)) if limb.any() else nothing for limb in limbs]

    def of_users(self, rows: npt.NDArray[Any], part: slice) -> npt.NDArray[Any]:
        """The rows of the users of some units, which are ordered by user."""
        users = self.user[part]
        return rows if len(users) == len(rows) else rows[users]

    def slices(self) -> Iterator[tuple[str, slice]]:
        """The units of each segment."""
        ends = [*self.starts[1:].tolist(), len(self.user)]
        for label, start, end in zip(self.labels, self.starts.tolist(), ends, strict=True):
            yield label, slice(start, end)


def of_both(table: Floats, left: Ints, right: Ints) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Values of baseline and candidate, 0 where a user is not in both; and who is in both."""
    x, y = table[:, left], table[:, right]
    both = ~(np.isnan(x) | np.isnan(y))
    return np.where(both, x, 0.0), np.where(both, y, 0.0), both
