"""Per-user values -> exact sums for every experiment and every pair of experiments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.comparison import over_lists
from rankmetrics_spark.comparison.totals import ALL_PAIRED, SHARED, Ints, Key, Name, Request, Totals
from rankmetrics_spark.comparison.units import Units, UserRows, summable
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import (
    LARGEST_SUMMAND,
    Floats,
    group_sums,
    limbs_of_products,
    poisson_weights,
    random_signs,
    weighted_sums,
)

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
        request = self.request
        if request.bootstrap:
            self.weights["bootstrap"] = poisson_weights(self.keys, request.bootstrap_seed, request.bootstrap)
        if request.flips:
            self.weights["flips"] = _and_ones(random_signs(self.keys, request.flip_seed, request.flips))
        if request.reshuffles:
            signs = random_signs(self.keys, request.reshuffle_seed, request.reshuffles)
            self.weights["reshuffles"] = _and_ones(signs)

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
            columns = {metric: _summands(units, table, [] if at else arms, pairs) for metric, table in tables.items()}
            for kind, weights in self.weights.items():
                summands = [(metric, each) for metric, kinds in columns.items() for each in kinds[kind] if each.names]
                if summands:
                    _add_weighted(totals, units, weights, summands)


def _summands(
    units: Units, table: Floats, arms: list[tuple[Name, Name]], pairs: tuple[list[Name], Ints, Ints]
) -> dict[str, list[_Columns]]:
    """The columns that the weights of each kind multiply."""
    experiments, left, right = pairs
    names = [(experiments[i], experiments[j]) for i, j in zip(left, right, strict=True)]
    has_value = ~np.isnan(table)
    v = np.where(has_value, table, 0.0)
    x, y, both = units.of_both(table, left, right)
    one = has_value[:, left] ^ has_value[:, right]
    either = np.where(one, v[:, left] + v[:, right], 0.0)
    return {
        # Where all users are in both, x and y are columns of arms too, and equal columns are summed once.
        "bootstrap": [_Columns("bootstrap_arm", arms, (v, has_value)), _Columns("bootstrap_pair", names, (x, y, both))],
        "flips": [_Columns("flips", names, (y - x, both))],
        "reshuffles": [
            _Columns("aa_paired", names, (y - x, both)),
            _Columns("aa_independent", names, (either, either * either, one)),
        ],
    }


@dataclass(frozen=True)
class _Columns:
    """Columns that are summed for several names; the last one is 1 for users who count."""

    kind: str
    names: list[tuple[Name, Name]]
    columns: Sequence[npt.NDArray[Any]]


def _add_weighted(
    totals: Totals, units: Units, weights: npt.NDArray[Any], summands: Sequence[tuple[str, _Columns]]
) -> None:
    table = np.concatenate([column.astype(float) for _, each in summands for column in each.columns], axis=1)
    for label, part in units.slices():
        sums = weighted_sums(units.of_users(weights, part), table[part])
        start = 0
        for metric, each in summands:
            shape = (len(each.columns), len(each.names))
            # (limbs, replicates, columns and names) -> (limbs, columns, replicates) of each name
            own = sums[..., start : start + shape[0] * shape[1]].reshape(*sums.shape[:2], *shape).swapaxes(1, 2)
            start += shape[0] * shape[1]
            for i, (baseline, candidate) in enumerate(each.names):
                if each.columns[-1][part, i].any():
                    totals.add_replicates(Key(each.kind, baseline, candidate, label, metric), own[..., i])


def _and_ones(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([weights, np.ones((len(weights), 1), weights.dtype)], axis=1)


__all__ = ["Key", "Request", "Totals", "UserRows", "add_rows"]


def add_rows(totals: Totals, rows: UserRows, request: Request) -> None:
    """Add what these users contribute to the sums of every experiment and pair.

    Args:
        totals: Changed in place.
        rows: Whole users.
        request: Which pairs, and how often users are resampled.

    Raises:
        InputError: A user has two rows of one experiment.
    """
    for labels, code in rows.segments[:1]:
        _refuse_repeats(rows, len(labels), code)
    if request.drop_shared:
        rows = _without_shared(totals, rows, request)
        if not len(rows.user):
            return
    rows = _with_summable_lists(rows) if rows.lists else rows
    for labels, code in rows.segments:
        group = _Group(rows.experiments, labels, code * len(rows.experiments) + rows.experiment)
        for metric, values in rows.values.items():
            has_value = ~np.isnan(values)
            v = np.nan_to_num(summable(values))
            counts = (
                np.ones(len(v)),
                has_value,
                has_value & rows.relevant,
                has_value & (np.abs(values) > LARGEST_SUMMAND),
            )
            group.add(totals, "arm", metric, counts, ((v, 1), (v * v, 2), (v * v * v, 3)))
            if metric in rows.lists:
                _add_lists(totals, group, metric, summable(values), rows.lists[metric])
            if metric in rows.before:
                _add_before(totals, group, metric, summable(values), rows.before[metric])
    pairs = request.pairs(rows.experiments)
    # Most users of an independent test are in no pair.
    paired = rows.of_users(np.bincount(rows.user, minlength=len(rows.keys)) > 1)
    for labels, code in paired.segments if len(paired.user) else ():
        units = Units.of(paired, labels, code)
        for metric, values in paired.values.items():
            table = summable(units.dense(values))
            _add_pairs(totals, units, (rows.experiments, metric, pairs), table)
            if metric in paired.lists:
                lists = units.dense(paired.lists[metric])
                _add_list_pairs(totals, units, (rows.experiments, metric, pairs), (table, lists))
            if metric in paired.before_own:
                own = summable(units.dense(paired.before_own[metric]))
                _add_before_pairs(totals, units, (rows.experiments, metric, pairs), (table, own))
    if request.most_replicates:
        resample = Resampler(rows.keys, request)
        for labels, code in rows.segments:
            units = Units.of(rows, labels, code)
            tables = {metric: summable(units.dense(values)) for metric, values in rows.values.items()}
            resample.add(totals, units, (rows.experiments, pairs), tables)


def _without_shared(totals: Totals, rows: UserRows, request: Request) -> UserRows:
    """The rows of users who are in one of the compared experiments only; the others are counted."""
    table = compared_users(rows, request)
    shared = table.sum(axis=1) > 1
    if not shared.any():
        return rows
    if rows.segments[0][0] == [EVERYONE]:
        for name, n in zip(rows.experiments, table[shared].sum(axis=0).tolist(), strict=True):
            for metric in rows.values if n else ():
                totals.add(Key(SHARED, "", name, EVERYONE, metric), np.array([n], np.int64))
    return rows.of_users(~shared)


def compared_users(rows: UserRows, request: Request) -> npt.NDArray[np.bool_]:
    """(u, e) whether a user is in an experiment that is compared."""
    chosen = {request.baseline, *request.candidates} if request.candidates else {*rows.experiments}
    compared = np.array([name in chosen for name in rows.experiments])
    table = np.zeros((len(rows.keys), len(rows.experiments)), bool)
    table[rows.user, rows.experiment] = compared[rows.experiment]
    return table


def _refuse_repeats(rows: UserRows, n_labels: int, code: Ints) -> None:
    key = np.sort((rows.user * len(rows.experiments) + rows.experiment) * n_labels + code)
    if (key[1:] == key[:-1]).any():
        raise InputError(
            "a user has two rows of one experiment in user_metrics; allowed: one, so compare a single date, or give "
            "the dates of a period"
        )


@dataclass(frozen=True)
class _Group:
    """Rows by segment and experiment.

    Attributes:
        experiments: Names of the experiments.
        labels: The segments.
        number: (n,) segment * experiments + experiment of each row.
    """

    experiments: list[Name]
    labels: list[str]
    number: Ints

    def add(
        self, totals: Totals, kind: str, metric: str, counts: Iterable[npt.NDArray[Any]], summed: _Products
    ) -> None:
        """Add counts, and the sums of values and of products of values, of each experiment in each segment."""
        shape = (len(self.labels), len(self.experiments))
        nothing = np.zeros(shape, np.int64)
        columns = [*counts, *limbs_of_products(summed)]
        width = len(self.labels) * len(self.experiments)
        of_groups = (group_sums([each], self.number, width)[:, 0] if each.any() else nothing for each in columns)
        sums = [each.reshape(shape) for each in of_groups]
        _scatter(totals, kind, self.labels, metric, [("", name) for name in self.experiments], sums)


_Products = Sequence[tuple[Floats, int]]
"""Values, and how many factors each of them is made of."""


def _add_before(totals: Totals, group: _Group, metric: str, values: Floats, before: Floats) -> None:
    """Sums of the users of each experiment who have a value of an earlier date."""
    before = summable(before)
    known = ~np.isnan(values) & ~np.isnan(before)
    b, v = np.where(known, before, 0.0), np.where(known, values, 0.0)
    group.add(totals, "before", metric, [known], ((b, 1), (b * b, 2), (b * v, 2), (v, 1)))


def _with_summable_lists(rows: UserRows) -> UserRows:
    """The rows, with an infinite value where lists times value is too large to be summed."""
    too_large = {
        metric: np.abs(values * rows.lists[metric]) > LARGEST_SUMMAND for metric, values in rows.values.items()
    }
    return replace(
        rows, values={metric: np.where(too_large[metric], np.inf, values) for metric, values in rows.values.items()}
    )


def _add_lists(totals: Totals, group: _Group, metric: str, values: Floats, lists: Floats) -> None:
    """Sums of each experiment for means over lists."""
    has_value = ~np.isnan(values)
    n = np.where(has_value, lists, 0.0)
    group.add(totals, over_lists.ARM, metric, [has_value], over_lists.arm_products(np.nan_to_num(values) * n, n))


_Pairs = tuple[list[Name], str, tuple[Ints, Ints]]
"""Names of the experiments, the metric, and the pairs as indices of the experiments."""


def _add_pairs(totals: Totals, units: Units, of: _Pairs, table: Floats) -> None:
    experiments, metric, pairs = of
    for left, right in _some_pairs(pairs, len(table)):
        x, y, both = units.of_both(table, left, right)
        d = y - x
        columns = [units.sums(both), units.sums(d > 0), units.sums(d < 0)]
        summed = ((x, 1), (x * x, 2), (y, 1), (y * y, 2), (d, 1), (d * d, 2), (d * d * d, 3))
        columns += [limb for each, power in summed for limb in units.limb_sums(each, power)]
        names = _names(experiments, left, right)
        _scatter(totals, "pair", units.labels, metric, names, columns)
        if units.lists_hash is not None:
            everyone = [units.sums(~np.isnan(table[:, left] + table[:, right]))]
            _scatter(totals, ALL_PAIRED, units.labels, metric, names, everyone)


def _add_list_pairs(totals: Totals, units: Units, of: _Pairs, tables: tuple[Floats, Floats]) -> None:
    """Sums of the users of both experiments for means over lists."""
    experiments, metric, pairs = of
    for left, right in _some_pairs(pairs, len(tables[0])):
        x, y, both = units.of_both(tables[0], left, right)
        m, n = (np.where(both, tables[1][:, side], 0.0) for side in (left, right))
        summed = over_lists.pair_products(x * m, m, y * n, n)
        columns = [units.sums(both), *(limb for each, power in summed for limb in units.limb_sums(each, power))]
        _scatter(totals, over_lists.PAIR, units.labels, metric, _names(experiments, left, right), columns)


def _add_before_pairs(totals: Totals, units: Units, of: _Pairs, tables: tuple[Floats, Floats]) -> None:
    """Sums of the users of both experiments who have an earlier value in each."""
    experiments, metric, pairs = of
    for left, right in _some_pairs(pairs, len(tables[0])):
        b, v, valued = units.of_both(tables[0], left, right)
        before, after, known = units.of_both(tables[1], left, right)
        known &= valued
        x, d, b = (np.where(known, each, 0.0) for each in (after - before, v - b, b))
        summed = ((x, 1), (x * x, 2), (x * d, 2), (x * b, 2))
        columns = [units.sums(known), *(limb for each, power in summed for limb in units.limb_sums(each, power))]
        _scatter(totals, "before_pair", units.labels, metric, _names(experiments, left, right), columns)


def _some_pairs(pairs: tuple[Ints, Ints], n_units: int) -> Iterator[tuple[Ints, Ints]]:
    """As many pairs at once as fit into the caches."""
    step = max(1, 2**18 // max(1, n_units))
    for at in range(0, len(pairs[0]), step):
        yield pairs[0][at : at + step], pairs[1][at : at + step]


def _names(experiments: list[Name], left: Ints, right: Ints) -> list[tuple[Name, Name]]:
    return [(experiments[i], experiments[j]) for i, j in zip(left, right, strict=True)]


def _scatter(
    totals: Totals, kind: str, labels: list[str], metric: str, names: list[tuple[Name, Name]], columns: list[Ints]
) -> None:
    """Add (segments, names) columns under the key of each segment and name; those without any user are left out."""
    sums = np.stack(columns, axis=-1)
    for place, label in enumerate(labels):
        for i, (baseline, candidate) in enumerate(names):
            if sums[place, i, 0]:
                totals.add(Key(kind, baseline, candidate, label, metric), sums[place, i])
