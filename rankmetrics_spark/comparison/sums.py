"""Users -> exact sums by key: one pass over the users, whatever the number of experiments and pairs.

Users travel to Python as Arrow batches, and sums by key travel back; steps that read the sums take them from ``read``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, metrics as mx, statistics as st
from rankmetrics_spark.comparison import measures as ms, table as tables
from rankmetrics_spark.comparison.families import most_replicates, pairs_of
from rankmetrics_spark.comparison.pairs import RowPairs, add_rows
from rankmetrics_spark.comparison.units import UserRows, refuse_repeats, rows_of_clusters, summable
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.schemas import CONVENTION_HASH, DATE, EVERYONE, EXPERIMENT, N_ASSIGNED, N_LISTS, N_RELEVANT, USER

#: Rows of users that Python looks at in one go.
ROWS_AT_ONCE = 65_536
#: Random weights that Python holds in one go.
CELLS_AT_ONCE = 2**24
#: Sums in a batch.
SUMS_AT_ONCE = 2**9
_PREFIX = "_alike_"
#: Column -> what is said where its rows have several values.
_SEVERAL = {CONVENTION_HASH: ms.said("several_conventions"), DATE: ms.said("several_dates")}

_SUM_TABLE = eng.SumTable(ms.KEY)
PARTIALS = _SUM_TABLE.schema


@dataclass(frozen=True)
class Layout:
    """Names of what travels to Python; what else a user has, the columns say."""

    metrics: tuple[tuple[str, str], ...]
    segments: tuple[str, ...]
    combinations: tuple[tuple[int, ...], ...] = ()
    #: Whether the users are also taken together, not only within their segments.
    whole: bool = True
    rows_at_once: int = ROWS_AT_ONCE


def sums_by_key(table: tables.UserTable, request: cfg.Comparison) -> DataFrame:
    """Sums by key of each partition of users; where there are many, already added up over partitions."""
    partials = _in_parts(_sums_of_users, PARTIALS, table, request)
    for more in (table.of_days, table.assigned):
        partials = partials if more is None else partials.unionByName(more)
    if request.pairs != "all" and not most_replicates(request):
        return partials
    return eng.Step(added, PARTIALS).of(partials.repartition(*ms.KEY))


def _in_parts(
    body: Callable[..., Any], schema: T.StructType, table: tables.UserTable, request: cfg.Comparison
) -> DataFrame:
    """Apply a Python step to the users as a whole, and to those within each segment of their lists."""
    metrics = tuple((str(metric), metric.column) for metric in table.metrics)
    n = max(512, min(ROWS_AT_ONCE, CELLS_AT_ONCE // max(1, most_replicates(request))))
    each = tables.parts(tables.capped(table, request))
    layouts = (Layout(metrics, tuple(part.segments), part.combinations, not i, n) for i, part in enumerate(each))
    steps = (
        eng.Step(partial(body, layout=layout, request=request), schema).of(
            tables.by_user(
                part,
                *(tables.lists_by_metric(part) if request.mean_over == "lists" else ()),
                *([tables.hash_of_lists(part)] if request.only_changed else ()),
                *([tables.flag_of(part, part.trigger)] if part.trigger is not None else ()),
                *([tables.stratum_of(part, request)] if request.strata else ()),
                *tables.shares_without(part),
                *tables.machine_columns(part),
                *alike_columns([*part.alike, *(name for name in part.rows.columns if name.startswith(tables.CAP))]),
                *[tables.REPEATED] * (tables.REPEATED in part.rows.columns),
            )
        )
        for part, layout in zip(each, layouts, strict=True)
    )
    return reduce(DataFrame.unionByName, steps)


def _sums_of_users(batches: eng.Batches, layout: Layout, request: cfg.Comparison) -> Iterator[pa.RecordBatch]:
    totals = ms.Totals()
    for rows in whole_users(noted(batches, totals), layout):
        for units in (rows,) if rows.member is None else rows_of_clusters(totals, rows):
            add_rows(totals, units, request)
    yield from as_batches(totals)


def added(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
    """Partial sums of the same key added up."""
    yield from as_batches(read(batches))


# ---- Arrow batches of users and of sums


def whole_users(batches: eng.Batches, layout: Layout) -> Iterator[UserRows]:
    """Batches as rows of whole users: the last user of a batch may go on in the next one."""
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        waiting.append(batch)
        n += batch.num_rows
        if n >= layout.rows_at_once:
            table = pa.Table.from_batches(waiting).combine_chunks()
            starts = np.flatnonzero(_new_user(table))
            end = int(starts[-1]) if len(starts) else 0
            if end:
                yield _user_rows(table.slice(0, end), layout)
            waiting, n = table.slice(end).to_batches(), table.num_rows - end
    if n:
        yield _user_rows(pa.Table.from_batches(waiting).combine_chunks(), layout)


def _new_user(table: pa.Table) -> Any:
    """(n,) whether a row belongs to another user than the row before it."""
    first, second = (table.column(name).to_numpy() for name in tables.HASHES)
    return np.concatenate([[False], (first[1:] != first[:-1]) | (second[1:] != second[:-1])])


def _user_rows(table: pa.Table, layout: Layout) -> UserRows:
    new, hashes = _new_user(table), table.column(tables.HASHES[0]).to_numpy()
    # Fail if an engine has lost the order of the rows: a user in two places would count twice.
    if (hashes[1:] < hashes[:-1]).any():
        raise RuntimeError("the rows of a user did not arrive one after the other")
    names = {*table.column_names}

    def column(name: str, kind: type[Any]) -> Any:
        """(n,) values of a column; None where it was not asked for."""
        return np.asarray(table.column(name).to_numpy(), kind) if name in names else None

    nameless = dict(zip(tables.HASHES, tables.NAMELESS, strict=True))
    if (member := column(tables.MEMBER, np.int64)) is not None:
        nameless = {tables.MEMBER: tables.NAMELESS[0]}
    if np.logical_and.reduce([table.column(name).to_numpy() == value for name, value in nameless.items()]).any():
        raise InputError(ms.said("no_user", user=USER))
    if tables.REPEATED in names:
        refuse_repeats(table.column(tables.REPEATED).to_numpy(), of_days=True)
    user = np.cumsum(new)
    first = np.concatenate([[0], np.flatnonzero(new)])
    experiments, experiment = _coded(table.column(EXPERIMENT))
    codes = [_coded(table.column(f"_segment_{i}")) for i in range(len(layout.segments))]
    split = [*st.splits(layout.segments, codes, layout.combinations, len(user))]
    named = [*layout.metrics, *((str(i), str(i)) for i in range(cfg.MOST_COVARIATES))]
    strata, stratum = _coded(table.column(tables.STRATUM)) if tables.STRATUM in names else ([], None)
    if stratum is not None:
        if len(strata) > ms.MOST_STRATA:
            raise ConfigError(f"comparison.strata are {len(strata):,}; allowed: {ms.MOST_STRATA:,} at most")
        order = sorted(range(len(strata)), key=lambda i: str(strata[i]))
        strata, stratum = [str(strata[i]) for i in order], np.argsort(order)[stratum]
    if tables.LISTS_HASH in names and (hashed := table.column(tables.LISTS_HASH)).null_count:
        name = table.column(EXPERIMENT).filter(hashed.is_null())[0].as_py()
        raise InputError(ms.said("no_hash", name=name))
    return UserRows(
        user=user,
        keys=hashes[first].view(np.uint64),
        experiments=experiments,
        experiment=experiment,
        segments=split if layout.whole else split[1:],
        values={metric: column(name, float) for metric, name in layout.metrics},
        relevant=np.asarray(table.column("_relevant").fill_null(False).to_numpy(), bool),
        member=None if member is None else member.view(np.uint64),
        alone=column(tables.IS_ALONE, bool),
        lists_hash=column(tables.LISTS_HASH, np.int64),
        triggered=column(tables.TRIGGERED, bool),
        strata=[*map(str, strata)],
        stratum=stratum,
        in_part=None if (to_judge := column(tables.TO_JUDGE, float)) is None else to_judge > 0,
        chance=column(tables.CHANCE, float),
        shown=None if (shown := column(tables.SHOWN, float)) is None else np.nan_to_num(shown),
        **{
            field: {metric: column(prefix + name, float) for metric, name in named if prefix + name in names}
            for field, prefix in tables.OF_METRICS.items()
        },
    )


def _coded(column: pa.ChunkedArray) -> tuple[list[str | None], Any]:
    whole = column.combine_chunks()
    return eng.coded(whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole)


def as_batches(totals: ms.Totals) -> Iterator[pa.RecordBatch]:
    """Sums by key, a few at a time, so that no batch is too large for an engine."""
    remaining = iter(totals.sums.items())
    while some := dict(islice(remaining, SUMS_AT_ONCE)):
        yield _SUM_TABLE.batch([*zip(*some, strict=True)], [*some.values()])


def read(batches: eng.Batches) -> ms.Totals:
    """The sums of batches, added up."""
    totals = ms.Totals()
    for batch in batches:
        for key, sums in zip(_SUM_TABLE.keys(batch), batch.column(len(ms.KEY)), strict=True):
            totals.add(ms.Key(*key), np.asarray(sums.values))
    return totals


# ---- what all rows have to share: the convention and, unless they are about a period, the date
# The values of these columns travel to Python with the users, and are noted among the sums: no job more.


def alike_columns(names: Iterable[str]) -> list[str]:
    """Columns for ``by_user``, as SQL: each value as text. Sail may fail to hash what is the same in every row."""
    return [f"string({name}) AS {_PREFIX}{name}" for name in names]


def noted(batches: eng.Batches, totals: ms.Totals) -> eng.Batches:
    """The batches, whose distinct values of these columns are added to the sums."""
    for batch in batches:
        for name in (name for name in batch.schema.names if name.startswith(_PREFIX)):
            for value in pc.unique(batch.column(name)).to_pylist():
                key = ms.Key(ms.ALIKE, "", str(value), EVERYONE, name.removeprefix(_PREFIX))
                totals.sums[key] = np.ones(1, np.int64)
        yield batch


def refuse_several(totals: ms.Totals) -> None:
    """Refuse rows that have several values of a column that all have to share, and rows without an experiment.

    Raises:
        InputError: Says of which column.
    """
    if any(key.kind == "arm" and key.candidate is None for key in totals.sums):
        raise InputError(f"user_metrics has rows without a value of {EXPERIMENT}; allowed: an experiment in each row")
    for name, sentence in _SEVERAL.items():
        if sum(key.kind == ms.ALIKE and key.metric == name for key in totals.sums) > 1:
            raise InputError(sentence)


# ---- days of a period


def days_of_experiments(dated: DataFrame, days: cfg.Days, metrics: Iterable[mx.Metric]) -> DataFrame:
    """Sums of each experiment on each day: users with a list, those of them with a relevant item, values of a metric.

    Args:
        dated: One row per (experiment_id, user_id, evaluation_date); other dates than those of the period are left out.
        days: The days.
        metrics: The metrics whose values are summed.
    """
    date = F.col(DATE).cast("string")
    keys = F.expr(f"string({EXPERIMENT}) AS candidate"), date.alias("segment")
    sums = [f"array(count_if({N_LISTS} > 0), count_if({N_LISTS} > 0 AND {N_RELEVANT} > 0))"]
    kinds = [("day", "")]
    for metric in metrics:
        if (name := metric.column) in dated.columns:
            known = f"CASE WHEN abs({name}) <= {ms.VALUE_UNIT} THEN bigint(round({name} * {ms.VALUE_UNIT})) END"
            sums.append(f"array(count({known}), coalesce(sum({known}), 0L))")
            kinds.append(("day_values", str(metric)))
    named = [F.expr(f"{each} AS _sums_{i}") for i, each in enumerate(sums)]
    counted = dated.where(date.isin([*days.dates])).groupBy(*keys).agg(*named)
    rows = ", ".join(f"'{kind}', '{metric}', _sums_{i}" for i, (kind, metric) in enumerate(kinds))
    return _of_arms(counted.selectExpr("candidate", "segment", f"stack({len(kinds)}, {rows}) AS (kind, metric, sums)"))


def assigned_users(arms: DataFrame) -> DataFrame:
    """The users who are assigned to each experiment, as sums by key; ``arms`` has a row per experiment."""
    key = (f"{EXPERIMENT} AS candidate", f"'{EVERYONE}' AS segment", "'assigned' AS kind", "'' AS metric")
    return _of_arms(arms.selectExpr(*key, f"array({N_ASSIGNED}) AS sums"))


def _of_arms(rows: DataFrame) -> DataFrame:
    """Sums of experiments, which have no baseline, as sums by key."""
    return rows.selectExpr("*", "'' AS baseline").select(*PARTIALS.fieldNames())


# ---- signed ranks


_SIZES = T.StructType([T.StructField(name, T.StringType()) for name in ms.KEY]).add("size", "double")
_SIZES = _SIZES.add("positive", "long").add("negative", "long")


def signed_ranks(table: tables.UserTable, request: cfg.Comparison) -> DataFrame:
    """Sums of signed ranks of every pair: the sizes of differences are counted, then ranked by a running sum."""
    pairs = replace(request, bootstrap=None, randomization=None, aa_check=None)
    plain = replace(table, before=None, covariates=(), alike=())
    sizes = _in_parts(_signed_sizes, _SIZES, plain, pairs).groupBy(*ms.KEY, "size")
    counted = sizes.agg(F.sum("positive").alias("positive"), F.sum("negative").alias("negative"))
    smaller = Window.partitionBy(*ms.KEY).orderBy("size").rowsBetween(Window.unboundedPreceding, -1)
    tied = F.col("positive") + F.col("negative")
    ranked = counted.withColumn("tied", tied).withColumn("before", F.coalesce(F.sum("tied").over(smaller), F.lit(0)))
    # Twice the mean rank of t tied sizes behind b smaller ones is 2 * b + t + 1.
    ties = (f"sum(tied * ((tied * tied - 1) {part} {ms.TIES_UNIT}L))" for part in ("div", "%"))
    sums = ", ".join(["sum(tied)", "sum(positive * (2 * before + tied + 1))", *ties])
    return ranked.groupBy(*ms.KEY).agg(F.expr(f"array({sums}) AS sums"))


def _signed_sizes(batches: eng.Batches, layout: Layout, request: cfg.Comparison) -> Iterator[pa.RecordBatch]:
    for rows in whole_users(batches, layout):
        counts = [*signed_sizes(rows, request)]
        if counts:
            repeats = pa.array(np.repeat(np.arange(len(counts)), [len(sizes) for _, sizes, _, _ in counts]))
            texts = [pa.array([getattr(key, name) for key, *_ in counts], pa.string()).take(repeats) for name in ms.KEY]
            numbers = [pa.array(np.concatenate([each[i] for each in counts])) for i in (1, 2, 3)]
            yield pa.RecordBatch.from_arrays([*texts, *numbers], _SIZES.fieldNames())


def signed_sizes(rows: UserRows, request: cfg.Comparison) -> Iterator[tuple[ms.Key, st.Floats, st.Ints, st.Ints]]:
    """The sizes of the differences of the users in both experiments of a pair, without zeros.

    Args:
        rows: Whole users.
        request: Which pairs.

    Yields:
        Key of the pair, (k,) distinct sizes, and how many differences of each size are positive and negative.
    """
    of_pairs = pairs_of(request, rows.experiments)
    for labels, code in rows.segments if len(of_pairs[0]) else ():
        for pairs in RowPairs.of(rows, labels, code, of_pairs):
            ends = np.flatnonzero(np.diff(pairs.groups.place)) + 1
            for metric, values in rows.values.items():
                x, y, _ = pairs.of_both(summable(values))
                for i, d in enumerate(np.split(y - x, ends)):
                    d = d[d != 0]
                    if len(d):
                        sizes, code_of = np.unique(np.abs(d), return_inverse=True)
                        counts = [np.bincount(code_of.reshape(-1)[s], minlength=len(sizes)) for s in (d > 0, d < 0)]
                        yield pairs.groups.key("ranks", metric, i), sizes, counts[0], counts[1]
