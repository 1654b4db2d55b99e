"""Arrow batches of users -> NumPy, and sums by key as Arrow batches and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rankmetrics_spark.comparison.columns import comparison_rows
from rankmetrics_spark.comparison.compared import Ranks, Rules
from rankmetrics_spark.comparison.pairs import Key, Request, Totals, UserRows
from rankmetrics_spark.comparison.registry import Statistic, types_of
from rankmetrics_spark.comparison.rows import decomposition_rows, mean_intervals
from rankmetrics_spark.engines import Batches
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, METRIC, SEGMENT
from rankmetrics_spark.statistics import splits

T = TypeVar("T")

HASHES = ("_user_hash", "_user_check")
"""Two hashes of a user id, 128 bits: whole numbers sort faster than texts, and no two users share both."""
BEFORE = "_before_"
BEFORE_OWN = "_before_own_"
"""Prefixes of columns with earlier values: of the user, and of the user in the experiment of the row."""
KEY = Key._fields
SUMS = ("sums", "replicates", "piece", "ranks")
"""Columns of partial sums beside their key."""
PIECE = 2**11
"""Numbers in a row of replicates: an engine puts thousands of rows into one batch, and a key may have a million."""
ROWS_OF_PIECES = 2**9


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
    split = [*splits(layout.segments, coded, layout.combinations, len(user))]
    return UserRows(
        user=user,
        keys=table.column(HASHES[0]).to_numpy()[first].view(np.uint64),
        experiments=experiments,
        experiment=experiment,
        segments=split if layout.whole else split[1:],
        values={metric: _doubles(table.column(column)) for metric, column in layout.metrics},
        relevant=np.asarray(table.column("_relevant").fill_null(False).to_numpy(), bool),
        before=_earlier(table, BEFORE, layout),
        before_own=_earlier(table, BEFORE_OWN, layout),
    )


def _earlier(table: pa.Table, prefix: str, layout: Layout) -> dict[str, Any]:
    """Metric -> (n,) earlier values, as far as the table has them."""
    there = table.column_names if layout.before else ()
    return {metric: _doubles(table.column(prefix + name)) for metric, name in layout.metrics if prefix + name in there}


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
    """Sums by key, a few rows at a time; replicates in pieces, so that no batch of rows is too large for an engine."""
    for some in _some(totals.sums.items()):
        yield _batch([key for key, _ in some], sums=[found for _, found in some])
    pieces = (
        (key, at // PIECE, flat[at : at + PIECE])
        for key, found in totals.replicates.items()
        # Once for all pieces: they are a view of a larger array, and laying them flat copies them.
        for flat in (found.ravel(),)
        for at in range(0, found.size, PIECE)
    )
    for part in _some(pieces):
        keys, places, numbers = zip(*part, strict=True)
        yield _batch(keys, replicates=numbers, piece=places)


def _some(rows: Iterable[T]) -> Iterator[list[T]]:
    """As many rows as go into one batch."""
    left = iter(rows)
    while some := list(islice(left, ROWS_OF_PIECES)):
        yield some


def _batch(
    keys: Sequence[Key], sums: Sequence[Any] = (), replicates: Sequence[Any] = (), piece: Sequence[int] = ()
) -> pa.RecordBatch:
    n = len(keys)
    columns = [pa.array([getattr(key, name) for key in keys], pa.string()) for name in KEY]
    columns += [_lists(each, n) for each in (sums, replicates)]
    columns += [pa.array(piece or [0] * n, pa.int32()), pa.nulls(n, pa.string())]
    return pa.RecordBatch.from_arrays(columns, [*KEY, *SUMS])


def _lists(arrays: Sequence[Any], n: int) -> pa.Array:
    """One list per array, without a look at each number; n nulls if there are none."""
    if not arrays:
        return pa.nulls(n, pa.list_(pa.int64()))
    ends = np.cumsum([0, *map(len, arrays)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.concatenate(arrays)))


def read(batches: Batches) -> tuple[Totals, dict[Key, Ranks]]:
    totals, ranks = Totals(), {}
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in (*KEY, *SUMS)]
        *names, sums, replicates, piece, ranked = columns
        for i, fields in enumerate(zip(*(name.to_pylist() for name in names), strict=True)):
            key = Key(*fields)
            if sums[i].is_valid:
                totals.add(key, np.asarray(sums[i].values))
            if replicates[i].is_valid:
                totals.add_piece(key, piece[i].as_py(), np.asarray(replicates[i].values))
            if ranked[i].is_valid:
                ranks[key] = Ranks(*map(int, ranked[i].as_py().split(",")))
    return totals.joined(), ranks


DECOMPOSITION = {
    **dict.fromkeys((EXPERIMENT, BASELINE, METRIC, SEGMENT), "string"),
    **dict.fromkeys(("n_users_baseline", "n_users_candidate"), "long"),
    **dict.fromkeys(("mean_baseline", "mean_candidate", "mix", "within"), "double"),
}
"""Columns of a decomposition -> their types."""
MEANS = {
    **dict.fromkeys((EXPERIMENT, SEGMENT, METRIC), "string"),
    **dict.fromkeys(("bootstrap_ci_low", "bootstrap_ci_high"), "double"),
}


def schema_text(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def final(
    batches: Batches, request: Request, rules: Rules, statistics: Sequence[Statistic]
) -> Iterator[pa.RecordBatch]:
    totals, ranks = read(batches)
    if totals.sums:
        yield from rows_of(comparison_rows(totals, ranks, request, rules, statistics), types_of(statistics))


def final_means(batches: Batches, rules: Rules) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(mean_intervals(totals, rules), MEANS)


def final_decomposition(
    batches: Batches, baseline: str | None, candidates: tuple[str, ...], segment: str
) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(decomposition_rows(totals, baseline, candidates, segment), DECOMPOSITION)


_ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}


def rows_of(columns: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    if columns:
        n = len(columns[EXPERIMENT])
        arrays = [
            pa.array(columns[name], _ARROW[kind], from_pandas=True) if name in columns else pa.nulls(n, _ARROW[kind])
            for name, kind in kinds.items()
        ]
        yield pa.RecordBatch.from_arrays(arrays, [*kinds])
