"""Per-user values -> exact sums for every experiment and every pair of experiments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.statistics import exact_sums
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.replicate_sums import Resampler
from rankmetrics_spark.statistics.totals import Ints, Key, Name, Request, Totals
from rankmetrics_spark.statistics.units import Units, UserRows, of_both

__all__ = ["Key", "Request", "Totals", "UserRows", "add_rows", "signed_sizes"]


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
    resample = Resampler(rows.keys, request) if request.most_replicates else None
    pairs = request.pairs(rows.experiments)
    for labels, code in rows.segments:
        units = Units.of(rows, labels, code)
        relevant = units.dense(rows.relevant.astype(float))
        tables = {}
        for metric, values in rows.values.items():
            table = units.dense(values)
            _add_arms(totals, units, (rows.experiments, metric), table, relevant)
            table = _summable(table)
            if metric in rows.before:
                _add_before(totals, units, (rows.experiments, metric), table, units.dense(rows.before[metric]))
            _add_pairs(totals, units, (rows.experiments, metric, pairs), table)
            tables[metric] = table
        if resample:
            resample.add(totals, units, (rows.experiments, pairs), tables)


def _refuse_repeats(rows: UserRows, n_labels: int, code: Ints) -> None:
    key = np.sort((rows.user * len(rows.experiments) + rows.experiment) * n_labels + code)
    if (key[1:] == key[:-1]).any():
        raise InputError(
            "a user has two rows of one experiment in user_metrics; allowed: one, so compare a single date"
        )


def _summable(table: Floats) -> Floats:
    """The values without those that are too large to be summed."""
    beyond = np.abs(table) > exact_sums.LARGEST
    return np.where(beyond, np.nan, table) if beyond.any() else table


def _add_arms(totals: Totals, units: Units, of: tuple[list[Name], str], table: Floats, relevant: Floats) -> None:
    """Sums of each experiment; an experiment whose users have no value has a key too."""
    experiments, metric = of
    there, users = ~np.isnan(table), ~np.isnan(relevant)
    v = np.nan_to_num(_summable(table))
    counted = (users, there, there & (relevant > 0), there & (np.abs(table) > exact_sums.LARGEST))
    columns = [units.sums(each) for each in counted]
    columns += [limb for power, each in enumerate((v, v * v, v * v * v), 1) for limb in units.limb_sums(each, power)]
    _scatter(totals, "arm", units.labels, metric, [("", name) for name in experiments], columns)


def _add_before(totals: Totals, units: Units, of: tuple[list[Name], str], table: Floats, before: Floats) -> None:
    """Sums of the users of each experiment who have a value of an earlier date."""
    experiments, metric = of
    before = _summable(before)
    known = ~np.isnan(table) & ~np.isnan(before)
    b, v = np.where(known, before, 0.0), np.where(known, table, 0.0)
    summed = ((b, 1), (b * b, 2), (b * v, 2), (v, 1))
    columns = [units.sums(known), *(limb for each, power in summed for limb in units.limb_sums(each, power))]
    _scatter(totals, "before", units.labels, metric, [("", name) for name in experiments], columns)


def _add_pairs(totals: Totals, units: Units, of: tuple[list[Name], str, tuple[Ints, Ints]], table: Floats) -> None:
    experiments, metric, (baselines, candidates) = of
    # As many pairs at once as fit into the caches.
    step = max(1, 2**18 // max(1, len(table)))
    for at in range(0, len(baselines), step):
        left, right = baselines[at : at + step], candidates[at : at + step]
        x, y, both = of_both(table, left, right)
        d = y - x
        columns = [units.sums(both), units.sums(d > 0), units.sums(d < 0)]
        summed = ((x, 1), (x * x, 2), (y, 1), (y * y, 2), (d, 1), (d * d, 2), (d * d * d, 3))
        columns += [limb for each, power in summed for limb in units.limb_sums(each, power)]
        names = [(experiments[i], experiments[j]) for i, j in zip(left, right, strict=True)]
        _scatter(totals, "pair", units.labels, metric, names, columns)


def _scatter(
    totals: Totals, kind: str, labels: list[str], metric: str, names: list[tuple[Name, Name]], columns: list[Ints]
) -> None:
    """Add (segments, names) columns under the key of each segment and name; those without any user are left out."""
    stacked = np.stack(columns, axis=-1)
    for place, label in enumerate(labels):
        for i, (baseline, candidate) in enumerate(names):
            if stacked[place, i, 0]:
                totals.add(Key(kind, baseline, candidate, label, metric), stacked[place, i])


def signed_sizes(rows: UserRows, request: Request) -> Iterator[tuple[Key, Floats, Ints, Ints]]:
    """The sizes of the differences of the users in both experiments of a pair, without zeros.

    Args:
        rows: Whole users.
        request: Which pairs.

    Yields:
        Key of the pair, (k,) distinct sizes, and how many differences of each size are positive and negative.
    """
    baselines, candidates = request.pairs(rows.experiments)
    for labels, code in rows.segments:
        units = Units.of(rows, labels, code)
        for metric, values in rows.values.items():
            table = _summable(units.dense(values))
            for i, j in zip(baselines, candidates, strict=True):
                difference = table[:, j] - table[:, i]
                for label, part in units.slices():
                    d = difference[part]
                    d = d[~np.isnan(d) & (d != 0)]
                    if len(d):
                        sizes, code_of = np.unique(np.abs(d), return_inverse=True)
                        counts = [np.bincount(code_of.reshape(-1)[s], minlength=len(sizes)) for s in (d > 0, d < 0)]
                        names = rows.experiments[i], rows.experiments[j]
                        yield Key("ranks", *names, label, metric), sizes, counts[0], counts[1]
