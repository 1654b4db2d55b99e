"""Per-user metrics -> one row per (experiment, segment, metric): means with a t interval, and exact percentiles.

All metrics, segments and conventions share one aggregation: of sums that Python has taken over whole Arrow batches.
For percentiles, Python counts how often each value occurs in a batch; SQL adds the counts up and numbers the values of
each group in their order; Python picks the few of them that percentiles are made of. Sums and counts are whole numbers,
so no order of rows and no partition changes a bit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window, functions as F, types as T

from rankmetrics_spark import engines as eng, layouts as lay, metrics as mx, schemas as sch, statistics as st
from rankmetrics_spark.road.checking import literal

_SUMS = eng.SumTable((sch.EXPERIMENT, sch.SEGMENT, sch.METRIC, sch.CONVENTION_INDEX))
_COUNTS = (sch.N_USERS, sch.N_USERS_WITH_RELEVANT, sch.N_USERS_WITHOUT_LIST, sch.N_REPEATED)
#: Columns that may be missing -> their default.
_OPTIONAL = {sch.CONVENTION_INDEX: 0, sch.N_LISTS: 1}
#: Number of values that cannot be summed; an experiment with such a value has no mean.
_BEYOND = "beyond"
#: Sums over users: the counts, then values, their squares, and the values of users with a relevant item.
SUMS_OF_USERS = st.Measure(f"{' '.join((*_COUNTS, _BEYOND))} | v vv r")
#: The same of means over lists, where a value is lists times value; then lists, their products with the values, their
#: squares, and the lists of users with a relevant item.
SUMS_OVER_LISTS = st.Measure(f"{SUMS_OF_USERS.words} l vl ll m")
#: Metrics whose values are added up together: as many as leave their arrays in the cache of a core.
_TOGETHER = 16
_ESTIMATES = ("mean", "std", "ci_low", "ci_high", "mean_with_relevant")
#: Ways to split rows: labels, and the place of the label of each row.
Ways: TypeAlias = Iterable[tuple[list[str], mx.Ints]]


@dataclass(frozen=True)
class Summands:
    """What is added up over users or lists, and by which segments.

    Attributes:
        metrics: Whose values.
        segments: Name in the result -> column.
        combinations: Segments that split together, by their places.
        over_lists: Whether means are over lists.
        several: Whether a row is of one of several conventions, with its index in ``_convention``.
    """

    metrics: Sequence[mx.Metric]
    segments: Mapping[str, str] = field(default_factory=dict)
    combinations: Sequence[Sequence[int]] = ()
    over_lists: bool = False
    several: bool = False


def sums_of_lists(what: Summands, flagged: Sequence[str] = ()) -> eng.Step:
    """Rows of users, or of lists where each is a user's only one -> their exact sums, for ``averages_of_sums``.

    The columns of the segments are ``_segment_0``, ``_segment_1``, ... With ``flagged``, a list with ``_flagged`` is
    not added up: it comes back as a row with its experiment and these columns, which are null in the rows of sums.
    """
    kinds = {sch.RANK_MAY_REPEAT: T.BooleanType()}
    table = replace(_SUMS, more=tuple(T.StructField(name, kinds.get(name, T.StringType())) for name in flagged))
    return eng.Step(partial(_sums_of_batches, what=what, table=table), table.schema)


def _labels(segments: Mapping[str, str]) -> list[str]:
    """Segment columns under the names that the steps read; ``segments``: name in the result -> column."""
    return [f"{sch.quoted(column)} AS _segment_{i}" for i, column in enumerate(segments.values())]


def sums_of_users(users: DataFrame, what: Summands) -> DataFrame:
    """The exact sums of ``user_metrics``, just computed or read back."""
    counts = [sch.N_RELEVANT, sch.N_LISTS, sch.N_REPEATED] + [sch.CONVENTION_INDEX] * what.several
    values = [metric.column for metric in what.metrics]
    with_value = [name for name in map(sch.lists_with_value, values) if what.over_lists and name in users.columns]
    inputs = users.selectExpr(sch.EXPERIMENT, *counts, *_labels(what.segments), *values, *with_value)
    return sums_of_lists(what).of(inputs)


def averages_of_sums(
    partial_sums: DataFrame, conventions: Sequence[mx.Convention], confidence: float, over_lists: bool = False
) -> DataFrame:
    """``experiment_metrics``, from the sums of users or lists: a row for all users, and for each value of each segment.

    Doubles are null where they are not defined, and where a user's value is above ``LARGEST_SUMMAND``. With
    ``over_lists``, ``std`` is that of the users' influence on the mean, so that the interval is
    mean -+ t * std / sqrt(n_users) all the same.
    """
    added = _SUMS.added(partial_sums, len((SUMS_OVER_LISTS if over_lists else SUMS_OF_USERS).columns))
    made = T.StructType([T.StructField(name, T.LongType()) for name in _COUNTS])
    made = T.StructType([*made.fields, *(T.StructField(name, T.DoubleType()) for name in _ESTIMATES)])
    made = made.add(sch.N_LISTS, T.LongType()) if over_lists else made
    body = partial(_estimates, confidence=confidence, over_lists=over_lists)
    estimated = eng.computing(body, _KEYS, made).of(added)
    *estimates, of_relevant = _ESTIMATES
    return estimated.selectExpr(
        *_SUMS.key[:-1],
        _of_convention([rule.name for rule in conventions], sch.CONVENTION),
        *_COUNTS[:-1],
        *estimates,
        f"{float(confidence)!r}D AS confidence",
        of_relevant,
        _COUNTS[-1],
        _of_convention([rule.text() for rule in conventions], "convention_text"),
        _of_convention([rule.digest() for rule in conventions], sch.CONVENTION_HASH),
        f"'{'lists' if over_lists else 'users'}' AS {sch.MEAN_OVER}",
        sch.N_LISTS if over_lists else f"cast(null AS bigint) AS {sch.N_LISTS}",
    )


def _of_convention(texts: Sequence[str], name: str) -> str:
    """SQL: the text of the row's convention."""
    return f"element_at(array({', '.join(map(literal, texts))}), int({sch.CONVENTION_INDEX}) + 1) AS {name}"


def _sums_of_batches(batches: eng.Batches, what: Summands, table: eng.SumTable) -> Iterator[pa.RecordBatch]:
    """Rows of users -> exact sums: a row per (experiment, segment, metric, convention) of each batch."""
    more = [field.name for field in table.more]
    for batch in batches:
        if more and pc.any(batch.column(sch.FLAGGED)).as_py():
            # The keys of flagged lists as rows without sums: once, though a batch comes back for each convention.
            lists = batch.filter(batch.column(sch.FLAGGED))
            lists = lists.filter(pc.equal(lists.column(sch.CONVENTION_INDEX), 0))
            others = [[None] * lists.num_rows] * (len(table.key) - 1)
            yield table.batch([lists.column(sch.EXPERIMENT).to_pylist(), *others], (), *map(lists.column, more))
            batch = batch.filter(pc.invert(batch.column(sch.FLAGGED)))
        if batch.num_rows:
            columns = {name: batch.column(name) for name in batch.schema.names}
            for keys, sums in _sums_of_batch(columns, what, _ways(batch, what)):
                yield table.batch(keys, sums, *(pa.nulls(len(sums), batch.column(name).type) for name in more))


def _ways(batch: pa.RecordBatch, what: Summands) -> Ways:
    """Each way to split the rows of a batch: the labels, and the place of that of each row."""
    codes = [eng.coded(batch.column(f"_segment_{i}")) for i in range(len(what.segments))]
    return st.splits(tuple(what.segments), codes, what.combinations, batch.num_rows)


def _sums_of_batch(columns: lay.Arrays, what: Summands, ways: Ways) -> Iterator[tuple[list[list[str]], mx.Ints]]:
    """Keys and sums of the users of a batch, for each way to split them."""
    metrics, over_lists = what.metrics, what.over_lists
    with_relevant, without_list = _numbers(columns[sch.N_RELEVANT]) > 0, _column_or_default(columns, sch.N_LISTS) == 0
    summands = (np.ones(len(with_relevant)), with_relevant, without_list, _numbers(columns[sch.N_REPEATED]))
    counts = [np.asarray(each, np.float64) for each in summands]  # in the order of ``_COUNTS``
    parts = [metrics[at : at + _TOGETHER] for at in range(0, len(metrics), _TOGETHER)]
    cells = []
    for part in parts:
        values = np.stack([_numbers(columns[metric.column]) for metric in part]).astype(np.float64, copy=False)
        lists = None
        if over_lists:
            every, stored = _column_or_default(columns, sch.N_LISTS), (sch.lists_with_value(m.column) for m in part)
            n = np.stack([_numbers(columns[name]) if name in columns else every for name in stored])
            # Who was judged and shown nothing has one list, which is empty.
            lists = np.maximum(np.where(np.isnan(n), every, n), 1).astype(np.float64)
        cells.append(_cells(values, lists, counts))
    # A list with an array of experiments counts in each of them.
    own, many = columns[sch.EXPERIMENT], pa.types.is_nested(columns[sch.EXPERIMENT].type)
    row, own = lay.flat(own) if many else (np.arange(len(own)), own)
    names, experiment = eng.coded(own)
    rules = _column_or_default(columns, sch.CONVENTION_INDEX).astype(np.int64)[row]
    for labels, label in ways:
        code = (rules * len(names) + experiment) * len(labels) + label[row]
        order = np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order], prepend=-1))
        groups = code[order[starts]]
        at, of_label = np.divmod(groups, len(labels))
        of_rule, of_name = np.divmod(at, len(names))
        keys = [names[i] for i in of_name], [labels[i] for i in of_label], [str(i) for i in of_rule]
        repeated = [key * len(metrics) for key in keys]
        repeated.insert(2, [str(metric) for metric in metrics for _ in groups])
        # Most batches hold one experiment.
        places = row[order] if len(groups) > 1 or many else slice(None)
        totals = [_totals(of_part, places, starts, len(part)) for of_part, part in zip(cells, parts, strict=True)]
        yield repeated, np.concatenate(totals)


def _cells(values: mx.Floats, lists: mx.Floats | None, counts: list[mx.Floats]) -> list[mx.Floats]:
    """Summands of the rows, for each count and for each limb of each sum: (metrics, n), or (n,) for every metric."""
    relevant = counts[1]
    has_value = ~np.isnan(values)
    if not has_value.all():
        # Repeated rows are counted for every user, with a value or without.
        counts = [*(count * has_value for count in counts[:-1]), counts[-1]]
        values = np.where(has_value, values, 0.0)
        lists = None if lists is None else np.where(has_value, lists, 0.0)
    values = values if lists is None else values * lists
    beyond = np.zeros(len(relevant))
    if np.abs(values).max(initial=0.0) > st.LARGEST_SUMMAND:
        beyond = (np.abs(values) > st.LARGEST_SUMMAND).astype(np.float64)
        values = np.where(beyond, 0.0, values)
    limbs = st.limbs_of(values)
    # Users without a relevant item usually have 0 everywhere.
    of_relevant = limbs if not values[:, relevant == 0].any() else [limb * relevant for limb in limbs]
    cells = [*counts, beyond, *limbs, *st.limbs_of(values * values, st.SQUARE_EXPONENTS), *of_relevant]
    if lists is None:
        return cells
    products = [limb for each in (values * lists, lists * lists) for limb in st.limbs_of(each, st.SQUARE_EXPONENTS)]
    of_lists = st.limbs_of(lists)
    return [*cells, *of_lists, *products, *(limb * relevant for limb in of_lists)]


def _totals(cells: Sequence[mx.Floats], places: mx.Ints | slice, starts: mx.Ints, n_metrics: int) -> mx.Ints:
    """(metrics * groups, kinds) sums: all groups of the first metric, then those of the second, ...

    ``places`` are the rows in the order of their groups, ``starts`` where each group begins in it.
    """
    # Doubles are exact here: a limb is below 2**31, and a batch has far fewer than 2**22 rows. The same array may serve
    # several sums.
    distinct = {id(cell): cell for cell in cells}
    sums = {key: np.add.reduceat(cell[..., places], starts, axis=-1) for key, cell in distinct.items()}
    rows = [np.broadcast_to(sums[id(cell)], (n_metrics, len(starts))) for cell in cells]
    return np.stack(rows, axis=-1).astype(np.int64).reshape(n_metrics * len(starts), -1)


def _column_or_default(columns: lay.Arrays, name: str) -> npt.NDArray[Any]:
    """A column, or its default for every row if it is missing."""
    return _numbers(columns[name]) if name in columns else np.full(len(columns[sch.EXPERIMENT]), _OPTIONAL[name])


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A column as NumPy, in its own type; null becomes NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _estimates(columns: lay.Arrays, confidence: float, over_lists: bool) -> Iterator[eng.Computed]:
    """Estimates from counts and sums of limbs; few rows, whatever the number of users."""
    sums = st.Sums(SUMS_OVER_LISTS if over_lists else SUMS_OF_USERS, eng.matrix_of(columns[eng.SUMS]))
    counts, lists = {name: sums[name] for name in _COUNTS}, {}
    if over_lists:
        # The delta method over users.
        ratios, over = sums.ratio("v", "l"), sums["m"]
        moments, lists = ratios.moments, {sch.N_LISTS: ratios.lists.astype(np.int64)}
    else:
        moments = sums.moments("v", sch.N_USERS)
        over = counts[sch.N_USERS_WITH_RELEVANT].astype(object) * 2**st.LIMB_UNIT
    with_relevant = np.where(over == 0, np.nan, (sums["r"] / np.where(over == 0, 1, over)).astype(float))
    estimates = (moments.mean, moments.std, *st.t_interval(moments, confidence), with_relevant)
    # NaN where a value could not be summed.
    exact = sums[_BEYOND] == 0
    shown = (np.where(exact, values, np.nan) for values in estimates)
    yield {**counts, **dict(zip(_ESTIMATES, shown, strict=True)), **lists}


# ---- percentiles

_VALUE, _COUNT, _BEFORE, _TOTAL, _PLACE = "_value", "_count", "_before", "_total", "_place"
#: Order statistics that a percentile is made of: see ``statistics.quantile_ranks``.
_RANKS = 4
_KEYS = T.StructType(_SUMS.schema.fields[: len(_SUMS.key)])
_COUNTED = T.StructType(_KEYS.fields[:]).add(_VALUE, "double").add(_COUNT, "long")
_PICKED = T.StructType(_KEYS.fields[:]).add(_TOTAL, "long").add(_PLACE, "integer").add(_VALUE, "double")


@dataclass(frozen=True)
class Percentiles:
    """Which percentiles are computed.

    Attributes:
        percentiles: Each in (0, 100).
        confidence: Of their intervals.
    """

    percentiles: tuple[float, ...]
    confidence: float


def value_counts(users: DataFrame, what: Summands) -> DataFrame:
    """How often each value of each metric occurs, for ``percentiles_of``; null and NaN are no values."""
    rule = sch.CONVENTION_INDEX if what.several else f"0 AS {sch.CONVENTION_INDEX}"
    values = (metric.column for metric in what.metrics)
    inputs = users.selectExpr(sch.EXPERIMENT, rule, *_labels(what.segments), *values)
    return eng.Step(partial(_counts, what=what), _COUNTED).of(inputs)


def _counts(batches: eng.Batches, what: Summands) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        names, experiment = eng.coded(batch.column(sch.EXPERIMENT))
        rule = batch.column(sch.CONVENTION_INDEX).to_numpy().astype(np.int64)
        for labels, label in _ways(batch, what):
            group = (rule * len(names) + experiment) * len(labels) + label
            for metric in what.metrics:
                values = np.asarray(_numbers(batch.column(metric.column)), np.float64) + 0.0
                known = np.flatnonzero(~np.isnan(values))
                order = known[np.lexsort((values[known], group[known]))]
                starts = np.flatnonzero(mx.pair_starts(group[order], values[order]))
                first, counts = order[starts], np.diff(starts, append=len(order))
                at, of_label = np.divmod(group[first], len(labels))
                of_rule, of_name = np.divmod(at, len(names))
                texts = (
                    pa.array(names, pa.string()).take(pa.array(of_name)),
                    pa.array(labels, pa.string()).take(pa.array(of_label)),
                    pa.array([str(metric)] * len(first), pa.string()),
                    pa.array(of_rule).cast(pa.string()),
                )
                columns = [*texts, pa.array(values[first]), pa.array(counts)]
                yield pa.RecordBatch.from_arrays(columns, _COUNTED.fieldNames())


def percentiles_of(counts: DataFrame, conventions: Sequence[mx.Convention], request: Percentiles) -> DataFrame:
    """Percentiles with their intervals, from ``value_counts``: a row per (experiment, segment, metric, convention)."""
    added = counts.groupBy(*_SUMS.key, _VALUE).agg(F.sum(_COUNT).alias(_COUNT))
    group = Window.partitionBy(*_SUMS.key)
    smaller = group.orderBy(_VALUE).rowsBetween(Window.unboundedPreceding, -1)
    numbered = added.withColumn(_BEFORE, F.coalesce(F.sum(_COUNT).over(smaller), F.lit(0)))
    numbered = numbered.withColumn(_TOTAL, F.sum(_COUNT).over(group))
    picked = eng.Step(partial(_picked, request=request), _PICKED).of(numbered)
    places = range(len(request.percentiles) * _RANKS)
    one_row = picked.groupBy(*_SUMS.key).agg(
        F.max(_TOTAL).alias(_TOTAL),
        *(F.expr(f"max(CASE WHEN {_PLACE} = {place} THEN {_VALUE} END) AS _{place}") for place in places),
    )
    computed = T.StructType([T.StructField(name, T.DoubleType()) for name in columns_of(request.percentiles)])
    step = eng.computing(partial(_percentiles, request=request), _KEYS, computed)
    digest = _of_convention([rule.digest() for rule in conventions], sch.CONVENTION_HASH)
    return step.of(one_row).selectExpr(*_SUMS.key[:-1], digest, *map(sch.quoted, computed.fieldNames()))


def columns_of(percentiles: Sequence[float]) -> list[str]:
    """The columns of percentiles in ``experiment_metrics``."""
    return [f"{sch.percentile_column(each)}{part}" for each in percentiles for part in sch.PERCENTILE_PARTS]


def _picked(batches: eng.Batches, request: Percentiles) -> Iterator[pa.RecordBatch]:
    """The values at the ranks that the percentiles of their group are made of, with their place among these ranks."""
    # Imported here and below: a worker that scores lists loads no SciPy.
    from rankmetrics_spark.statistics import quantile_ranks

    for batch in batches:
        if not batch.num_rows:
            continue
        n, before, count = (batch.column(name).to_numpy() for name in (_TOTAL, _BEFORE, _COUNT))
        sizes, size = np.unique(n, return_inverse=True)
        ranks = [quantile_ranks(sizes, each / 100, request.confidence) for each in request.percentiles]
        rank = np.concatenate(ranks, axis=1)[size.reshape(-1)]
        row, place = np.nonzero((before[:, None] < rank) & (rank <= (before + count)[:, None]))
        keys = [batch.column(name).take(pa.array(row)) for name in (*_SUMS.key, _TOTAL)]
        columns = [*keys, pa.array(place, pa.int32()), batch.column(_VALUE).take(pa.array(row))]
        yield pa.RecordBatch.from_arrays(columns, _PICKED.fieldNames())


def _percentiles(columns: lay.Arrays, request: Percentiles) -> Iterator[eng.Computed]:
    from rankmetrics_spark.statistics import interpolated

    n = np.asarray(columns[_TOTAL].to_numpy(), np.int64)
    values: dict[str, Any] = {}
    for i, each in enumerate(request.percentiles):
        at = range(i * _RANKS, (i + 1) * _RANKS)
        below, above, low, high = (np.asarray(_numbers(columns[f"_{place}"]), np.float64) for place in at)
        numbers = (interpolated(below, above, n, each / 100), low, high)
        values |= dict(zip(columns_of([each]), numbers, strict=True))
    yield values
