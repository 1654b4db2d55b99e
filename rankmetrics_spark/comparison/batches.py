"""Arrow batches of users -> NumPy, and sums by key as Arrow batches and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rankmetrics_spark.arrow_steps import Batches
from rankmetrics_spark.schemas import EXPERIMENT
from rankmetrics_spark.statistics.comparison_rows import Ranks
from rankmetrics_spark.statistics.pairs import Key, Totals, UserRows
from rankmetrics_spark.statistics.segments import ways

HASHES = ("_user_hash", "_user_check")
"""Two hashes of a user id, 128 bits: whole numbers sort faster than texts, and no two users share both."""
BEFORE = "_before_"
KEY = Key._fields


@dataclass(frozen=True)
class Layout:
    """Names of what travels to Python."""

    metrics: tuple[tuple[str, str], ...]
    segments: tuple[str, ...]
    combinations: tuple[tuple[int, ...], ...]
    before: bool
    rows_at_once: int
    whole: bool = True
    """Whether the users are also taken together, not only within their segments."""


def whole_users(batches: Batches, layout: Layout) -> Iterator[UserRows]:
    """Batches as rows of whole users: the last user of a batch may go on in the next one."""
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        waiting.append(batch)
        n += batch.num_rows
        if n >= layout.rows_at_once:
            table = pa.Table.from_batches(waiting).combine_chunks()
            end = _start_of_last_user(table)
            if end:
                yield _user_rows(table.slice(0, end), layout)
            waiting, n = table.slice(end).to_batches(), table.num_rows - end
    if n:
        yield _user_rows(pa.Table.from_batches(waiting).combine_chunks(), layout)


def _start_of_last_user(table: pa.Table) -> int:
    changes = np.flatnonzero(_new_user(table))
    return int(changes[-1]) if len(changes) else 0


def _new_user(table: pa.Table) -> Any:
    """(n,) whether a row belongs to another user than the row before it."""
    first, second = (table.column(name).to_numpy() for name in HASHES)
    return np.concatenate([[False], (first[1:] != first[:-1]) | (second[1:] != second[:-1])])


def _user_rows(table: pa.Table, layout: Layout) -> UserRows:
    new = _new_user(table)
    _check_order(table)
    user = np.cumsum(new)
    first = np.concatenate([[0], np.flatnonzero(new)])
    experiments, experiment = _coded(table.column(EXPERIMENT))
    coded = [_coded(table.column(f"_segment_{i}")) for i in range(len(layout.segments))]
    split = [*ways(layout.segments, coded, layout.combinations, len(user))]
    return UserRows(
        user=user,
        keys=table.column(HASHES[0]).to_numpy()[first].view(np.uint64),
        experiments=experiments,
        experiment=experiment,
        segments=split if layout.whole else split[1:],
        values={metric: _doubles(table.column(column)) for metric, column in layout.metrics},
        relevant=np.asarray(table.column("_relevant").fill_null(False).to_numpy(), bool),
        before={
            metric: _doubles(table.column(BEFORE + column))
            for metric, column in layout.metrics
            if layout.before and BEFORE + column in table.column_names
        },
    )


def _check_order(table: pa.Table) -> None:
    """Fail where an engine has not kept the order that was asked for: a user in two places would count twice."""
    first = table.column(HASHES[0]).to_numpy()
    if (first[1:] < first[:-1]).any():
        raise RuntimeError("the rows of a user did not arrive one after the other")


def _coded(column: pa.ChunkedArray) -> tuple[list[str | None], Any]:
    coded = column.combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    coded = coded.dictionary_encode(null_encoding="encode")
    return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _doubles(column: pa.ChunkedArray) -> Any:
    return column.to_numpy().astype(np.float64)


def as_batches(totals: Totals) -> Iterator[pa.RecordBatch]:
    keys = [*totals.sums, *totals.replicates]
    if not keys:
        return
    sums = [*totals.sums.values(), *([None] * len(totals.replicates))]
    replicates = [*([None] * len(totals.sums)), *(each.ravel() for each in totals.replicates.values())]
    columns = [pa.array([getattr(key, name) for key in keys], pa.string()) for name in KEY]
    arrays = [pa.array(values, pa.list_(pa.int64())) for values in (sums, replicates)]
    yield pa.RecordBatch.from_arrays(
        [*columns, *arrays, pa.nulls(len(keys), pa.string())], [*KEY, "sums", "replicates", "ranks"]
    )


def read(batches: Batches) -> tuple[Totals, dict[Key, Ranks]]:
    totals, ranks = Totals(), {}
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in (*KEY, "sums", "replicates", "ranks")]
        *names, sums, replicates, ranked = columns
        for i, fields in enumerate(zip(*(name.to_pylist() for name in names), strict=True)):
            key = Key(*fields)
            if sums[i].is_valid:
                totals.add(key, np.asarray(sums[i].values))
            if replicates[i].is_valid:
                totals.add_replicates(key, np.asarray(replicates[i].values).reshape(3, SHAPES[key.kind], -1))
            if ranked[i].is_valid:
                ranks[key] = Ranks(*map(int, ranked[i].as_py().split(",")))
    return totals, ranks


SHAPES = {"bootstrap_arm": 2, "bootstrap_pair": 3, "flips": 2, "aa_paired": 2, "aa_independent": 3}
"""Kind of replicates -> how many weighted sums it has."""
