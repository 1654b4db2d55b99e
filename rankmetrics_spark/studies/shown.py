"""Which items users see, without any relevance: how often each is shown -> coverage, Gini index, entropy, novelty."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window, functions as F
from scipy.special import ndtri

from rankmetrics_spark import engines as eng, errors as err, metrics as mx, road, schemas as sch, statistics as st
from rankmetrics_spark.config import Options, Section, count, key, number, text
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, HASH, ITEM, METRIC, USER, quoted
from rankmetrics_spark.studies import frame
from rankmetrics_spark.words import UNITS

#: Columns of the result of ``exposure`` -> their types.
EXPOSURE = frame.TABLES["exposure"]
#: Of the sums of some users only: how many the smallest experiment has; empty for those of all.
_EQUAL = "_equal"
_COUNTS = eng.SumTable((EXPERIMENT, ITEM, _EQUAL))
#: Users are taken by ranges of their hash, from the lowest on: of the 65,536 ranges, the last one, and how many users.
_RANGE, _LAST = "_range", "_last"
_RANGES = sch.columns(f"string: {EXPERIMENT}; long: {_LAST} {_EQUAL}")
_ITEM = "_item"
_OF_LOG = "total_of_log"
_INSIDE, _INTERACTIONS, _FIRST, _AT, _TIMES = "_inside", "_interactions", "_first", "_at", "_times"
#: What is counted of each (experiment, item, replicate) -> its value and how much a row adds to it.
_KINDS = {
    # kind: (value, how much a row adds)
    "shown": (_TIMES, f"int({_INSIDE})"),
    "rows": ("0L", f"if({_AT} = 0, {_TIMES}, 0L)"),
    "interactions": (_INTERACTIONS, f"if({_INTERACTIONS} IS NULL, 0L, {_TIMES})"),
    "outside": ("0L", f"int({_AT} = 0 AND NOT {_INSIDE})"),
    "unknown": ("0L", f"if({_AT} = 0 AND {_INTERACTIONS} IS NULL, {_TIMES}, 0L)"),
    "union": ("0L", f"int({_AT} = 0 AND {_FIRST})"),
}


_NONE = np.array([], np.int64)
#: Experiments that show more items than others by so much are not compared; by less, if chance does not explain it.
MOST_APART, CHANCE_APART = 0.1, 0.01


@dataclass(frozen=True)
class Exposure(Section):
    """What is computed: see ``exposure``."""

    k: int = key(10, count(1, frame.DEEPEST))
    baseline: str | None = key(None, text)
    replicates: int = key(100, count(20, 1_000, or_0=True))
    confidence: float = key(0.95, number(0, 1, inclusive=False))
    seed: int = key(1, count(0, 2**63 - 1))
    max_invalid_fraction: float = key(frame.MOST_FAULTY, number(0, 1, inclusive=True))


def exposure(
    impressions: eng.AnyTable,
    *,
    k: int = 10,
    baseline: str | None = None,
    catalogue: eng.AnyTable | int | None = None,
    interactions: eng.AnyTable | None = None,
    replicates: int = 100,
    confidence: float = 0.95,
    seed: int = 1,
    columns: Mapping[str, str | None] | None = None,
    rank_by: Literal["position", "score"] = "position",
    first_rank: int = 1,
    max_invalid_fraction: float = 0.01,
) -> eng.ResultTable:
    """Which items do users see in their top k: coverage, Gini index, entropy and novelty of each experiment.

    Every row down to rank k is one exposure of its item; relevance is not read. Reads the impressions once for the
    counts of faulty rows, once for the items, and with a baseline once for the users of each experiment.

    Args:
        impressions: One row per shown item, as in ``evaluate``. Faulty rows are left out, a few of them.
        k: Items down to this rank count, up to 1,000.
        baseline: The experiment that the others are compared with.
        catalogue: All items that could be shown: their number, or a table with the column of the items, which has the
            name that ``columns`` gives it, else ``item_id`` or ``item``. Without it, the items that any experiment
            shows. What is shown from outside a table is counted, and left out of ``coverage``, ``gini`` and
            ``entropy``.
        interactions: For ``novelty``: a table with one row per earlier interaction, and the column of the items.
        replicates: Bootstrap replicates over users for the intervals, 20 to 1,000; 0 = no intervals.
        confidence: Confidence level of the intervals.
        seed: Chooses the replicates; the same seed gives the same bits anywhere.
        columns: Role (experiment, user, item, position, score) -> column.
        rank_by: By ranks, or by score: the highest first, equal scores by descending item id.
        first_rank: What the column of ranks calls the first rank.
        max_invalid_fraction: Largest fraction of faulty rows.

    Returns:
        One row per experiment and metric (``coverage@k``, ``gini@k``, ``entropy@k`` in bits, ``novelty@k`` in bits),
        lazy like any DataFrame: n_shown (rows in the top k), n_items (distinct items of the catalogue among them),
        n_catalogue, n_outside (distinct items outside of it), n_unknown (rows of items without interactions, which
        novelty leaves out), value, ci_low, ci_high, baseline, difference (value minus that of the baseline) and its
        interval, note. An experiment that shows more has a higher coverage and entropy by that alone: where two show
        different numbers of items (by more than 10 %, or by more than 1 % and two standard deviations over replicates),
        differences are null except of novelty, and note says why. A value is null where nothing was shown, and where a
        number given as catalogue is below n_items.
        With a baseline, and where experiments differ in users, n_equal_users is how many the smallest one has,
        value_equal_users the value of the users with the lowest hashes, about as many of each experiment (up to one in
        65,536 fewer), and difference_equal_users that of two such values, with its interval; null if they still show
        different numbers of items, since their lists have different lengths. Others count once more for that.
        Intervals are value plus or minus normal quantiles times the standard deviation over replicates, since the
        replicates of coverage are lower than the value itself: a sample with repeats of the users shows fewer items.
        They are null if a replicate is empty: there are too few users. n_unknown is null without interactions.

    Raises:
        ConfigError: A wrong argument; an unknown baseline is refused when the rows are computed.
        InputError: A column is missing or has a wrong type; when the rows are computed: ranks seem to start at 0, or
            too many rows are faulty.
    """
    request = Exposure.of(locals())
    if isinstance(catalogue, int):
        catalogue = count(1, 2**53)("catalogue", catalogue)
    table, plan = frame.log_of_lists(impressions, columns, rank_by, first_rank)
    rows = road.top_rows(table, plan, request.k)
    size = catalogue if isinstance(catalogue, int) else None
    known = None if size or catalogue is None else _items(catalogue, "catalogue", plan.options, rows)
    seen = None if interactions is None else _items(interactions, "interactions", plan.options, rows)
    # How often each item is shown, in the log and in each replicate.
    shown = rows.selectExpr(EXPERIMENT, f"string({ITEM}) AS {ITEM}", f"xxhash64({USER}) AS {HASH}")
    if request.baseline is not None:
        ranges = _ranges(road.sound_rows(table, plan) if plan.columns.by_score else rows)
        shown = eng.beside(shown, F.broadcast(ranges), [EXPERIMENT])
    weigh = partial(_weighted, replicates=request.replicates, seed=request.seed)
    counts = _COUNTS.added(shown.mapInArrow(weigh, _COUNTS.schema), 1 + request.replicates)
    of_log = frame.log_counts(table, plan).select(F.posexplode(eng.SUMS).alias(_AT, _TIMES))
    of_log = of_log.selectExpr(f"string(NULL) AS {EXPERIMENT}", "''", "0", f"'{_OF_LOG}'", f"bigint({_AT})", _TIMES)
    spread = _spread(counts, known, seen).union(of_log)
    body = partial(_exposures, request=request, size=size, first_rank=plan.options.first_rank)
    return eng.result_table(eng.in_one_step(spread, body, EXPOSURE))


def _items(value: eng.AnyTable, name: str, options: Options, beside: DataFrame) -> DataFrame:
    """Return how many rows of a table each item has."""
    own = options.columns.get("item")
    table = eng.table_of(value, name, [own], (ITEM, "item"), beside)
    column = own or (ITEM if ITEM in table.columns else "item")
    if column not in table.columns:
        wanted = repr(own) if own else f"{ITEM!r} or 'item'"
        raise err.InputError(f"{name} has no column {wanted}; it has {', '.join(table.columns)}")
    texts = table.select(F.col(quoted(column)).cast("string").alias(_ITEM)).where(F.col(_ITEM).isNotNull())
    return texts.groupBy(_ITEM).agg(F.count("*").alias(_INTERACTIONS))


def _ranges(rows: DataFrame) -> DataFrame:
    """The last range of hashes of the users of each experiment that are as many as those of the smallest one.

    Without a row of experiments all of whose users are.
    """
    users = rows.selectExpr(EXPERIMENT, f"xxhash64({USER}) AS {HASH}").distinct()
    of_hash = F.expr(f"bigint(shiftright({HASH}, 48)) AS {_RANGE}")
    sizes = users.groupBy(EXPERIMENT, of_hash).agg(F.expr("count(1) AS n"))
    return eng.in_one_step(sizes, _last_ranges, _RANGES)


def _last_ranges(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    if full := [batch for batch in batches if batch.num_rows]:
        sizes = pa.Table.from_batches(full).to_pandas().sort_values(_RANGE).groupby(EXPERIMENT, dropna=False)
        least = int(sizes["n"].sum().min())
        for name, own in sizes:
            if own["n"].sum() > least:
                place = max(int((own["n"].cumsum() <= least).sum()) - 1, 0)
                known = name if isinstance(name, str) else None
                rows.append({EXPERIMENT: known, _LAST: int(own[_RANGE].iloc[place]), _EQUAL: least})
    yield from frame.row_batches(rows, _RANGES)


def _weighted(batches: eng.Batches, replicates: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Add up, per batch, the rows of each experiment and item: themselves, and with the weights of their users.

    Once more of the users up to the last range of hashes, where there is one.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        (names, experiment), (items, item) = (eng.coded(batch.column(at)) for at in range(2))
        users = batch.column(2).to_numpy()
        number = experiment * len(items) + item
        order = np.argsort(number, kind="stable")
        weights = st.poisson_weights(users[order].view(np.uint64), seed, replicates).astype(np.int64)
        cells = np.column_stack([np.ones(len(order), np.int64), weights])
        parts = [("", np.arange(len(order)))]
        if batch.num_columns > 3:
            # Nothing is up to a range that is missing.
            last = batch.column(3).to_numpy(zero_copy_only=False)
            some = np.flatnonzero((users >> 48 <= last)[order])
            parts += [(str(pc.max(batch.column(4)).as_py()), some)] if len(some) else []
        for equal, places in parts:
            own = number[order][places]
            first = np.flatnonzero(np.diff(own, prepend=-1))
            keys = np.divmod(own[first], len(items))
            texts = [names[i] for i in keys[0]], [items[i] for i in keys[1]], [equal] * len(first)
            yield _COUNTS.batch(texts, np.add.reduceat(cells[places], first, axis=0))


def _spread(counts: DataFrame, known: DataFrame | None, seen: DataFrame | None) -> DataFrame:
    """Return (experiment, replicate, kind, value, n): how many items or rows have each number."""
    sizes = []
    for name, table in ((_INSIDE, known), (_INTERACTIONS, seen)):
        if table is None:
            counts = counts.withColumn(name, F.lit(True) if name == _INSIDE else F.lit(None).cast("bigint"))
            continue
        value = F.lit(True) if name == _INSIDE else F.col(_INTERACTIONS)
        counts = counts.join(table.select(_ITEM, value.alias(name)), F.col(ITEM) == F.col(_ITEM), "left").drop(_ITEM)
        total = "count(1)" if name == _INSIDE else f"coalesce(sum({_INTERACTIONS}), 0L)"
        sizes.append(table.selectExpr("string(NULL)", "''", "0", f"'total{name}'", "0L", f"bigint({total})"))
    by_item = Window.partitionBy(ITEM).orderBy(_EQUAL, EXPERIMENT)
    counts = counts.withColumn(_INSIDE, F.coalesce(_INSIDE, F.lit(False)))
    counts = counts.withColumn(_FIRST, F.row_number().over(by_item) == 1)
    each = counts.select(EXPERIMENT, _EQUAL, _INSIDE, _INTERACTIONS, _FIRST, F.posexplode(eng.SUMS).alias(_AT, _TIMES))
    kinds = (f"named_struct('kind', '{kind}', 'value', {at}, 'n', bigint({n}))" for kind, (at, n) in _KINDS.items())
    own = EXPERIMENT, _EQUAL
    rows = each.where(F.col(_TIMES) > 0).selectExpr(*own, f"{_AT} AS replicate", f"inline(array({', '.join(kinds)}))")
    spread = rows.where("n > 0").groupBy(*own, "replicate", "kind", "value").agg(F.sum("n").alias("n"))
    for one in sizes:
        spread = spread.union(one)
    return spread.selectExpr(*own, "int(replicate) replicate", "kind", "bigint(value) value", "bigint(n) n")


def _exposures(batches: eng.Batches, request: Exposure, size: int | None, first_rank: int) -> Iterator[pa.RecordBatch]:
    """The rows of ``exposure``, from the counts of all experiments."""
    of_parts = _counts_of(batches)
    counts = of_parts.pop("")
    of_log = dict(zip(*(each.tolist() for each in counts.pop((None, 0, _OF_LOG))), strict=True))
    of_log = {name: of_log[at] for at, name in enumerate(frame.COUNTS)}
    frame.refuse_faulty(of_log, frame.Allowed(request.max_invalid_fraction, first_rank))
    if not counts:
        return
    names = sorted({name for name, _, kind in counts if not kind.startswith("total")}, key=lambda x: (x is None, x))

    def total(name: str | None, kind: str) -> int:
        return int(counts[name, 0, kind][1].sum())

    of_table, of_interactions = (
        total(None, kind) if (None, 0, kind) in counts else None
        for kind in (f"total{_INSIDE}", f"total{_INTERACTIONS}")
    )
    catalogue = size or (sum(total(name, "union") for name in names) if of_table is None else of_table)
    err.check_known("experiment", [request.baseline], [name for name in names if name is not None])

    of_part = partial(_part, replicates=request.replicates, catalogue=catalogue, n_interactions=of_interactions)
    whole, n_equal, equal = {name: of_part(counts, name) for name in names}, 0, {}
    for least, fewer in of_parts.items():
        # Of the smallest experiment, all users are as many.
        of_few, n_equal = {name for name, *_ in fewer}, int(least)
        equal = {name: of_part(fewer, name) if name in of_few else whole[name] for name in names}
    rows: list[dict[str, Any]] = []
    for name in names:
        apart, apart_of_equal = (_apart(part, name, request.baseline) for part in (whole, equal))
        if apart and equal and not apart_of_equal:
            apart = f"{apart}; difference_equal_users is of about {n_equal:,} {UNITS} of each"
        elif apart:
            apart += f"; leave out {UNITS} of the larger experiment by chance until both show as many"
        for metric, each in whole[name][0].items():
            low, high = _interval(each, request.confidence)
            row = {
                EXPERIMENT: name,
                METRIC: f"{metric}@{request.k}",
                "n_shown": total(name, "rows"),
                "n_items": total(name, "shown"),
                "n_catalogue": catalogue,
                "n_outside": total(name, "outside"),
                "n_unknown": None if of_interactions is None else total(name, "unknown"),
                "value": each[0],
                "ci_low": max(low, 0.0),
                "ci_high": min(high, 1.0) if metric in ("coverage", "gini") else high,
            }
            of_equal = equal and metric != "novelty"
            if of_equal:
                row |= {"n_equal_users": n_equal, "value_equal_users": equal[name][0][metric][0]}
            if request.baseline not in (None, name):
                row |= {BASELINE: request.baseline, "note": apart if metric != "novelty" else None}
                if not row["note"]:
                    row |= _difference(each - whole[request.baseline][0][metric], request.confidence)
                if of_equal and not apart_of_equal:
                    against = equal[name][0][metric] - equal[request.baseline][0][metric]
                    row |= _difference(against, request.confidence, "_equal_users")
            rows.append(row)
    yield from frame.row_batches(rows, EXPOSURE)


def _difference(against: mx.Floats, confidence: float, ending: str = "") -> dict[str, float]:
    """The columns of a difference and its interval."""
    names = (f"difference{ending}{bound}" for bound in ("", "_ci_low", "_ci_high"))
    return dict(zip(names, (float(against[0]), *_interval(against, confidence)), strict=True))


#: (experiment, replicate, kind) -> numbers, and how many items or rows have each; none of a key that is missing.
_Counts = dict[tuple[str | None, int, str], tuple[mx.Ints, mx.Ints]]


def _counts_of(batches: eng.Batches) -> dict[str, _Counts]:
    """The counts of all users, and of as many as the smallest experiment has where one has more."""
    counts: dict[str, _Counts] = defaultdict(lambda: defaultdict(lambda: (_NONE, _NONE)))
    if full := [batch for batch in batches if batch.num_rows]:
        rows_of_all = pa.Table.from_batches(full).to_pandas()
        key = [_EQUAL, EXPERIMENT, "replicate", "kind"]
        for (equal, name, replicate, kind), rows in rows_of_all.groupby(key, dropna=False):
            known = name if isinstance(name, str) else None
            counts[equal][known, int(replicate), kind] = rows["value"].to_numpy(), rows["n"].to_numpy()
    return counts


def _part(
    counts: _Counts, name: str | None, replicates: int, catalogue: int, n_interactions: int | None
) -> tuple[dict[str, mx.Floats], mx.Floats]:
    """Metric -> (1 + R,) its value in the log and in each replicate of an experiment; NaN where there is none.

    Also (1 + R,) items of the catalogue that it shows, with repeats.
    """
    values, sizes = [], []
    for replicate in range(1 + replicates):
        shown, items = counts[name, replicate, "shown"]
        interactions, rows = counts[name, replicate, "interactions"]
        n_items = int(items.sum())
        of_catalogue = np.nan, np.nan
        if 0 < n_items <= catalogue:
            of_catalogue = mx.coverage(n_items, catalogue), mx.gini(shown, items, catalogue)
        values.append((*of_catalogue, mx.entropy(shown, items), mx.novelty(interactions, rows, n_interactions or 0)))
        sizes.append(float((shown * items).sum()))
    named = dict(zip(("coverage", "gini", "entropy", "novelty"), np.array(values).T, strict=True))
    if n_interactions is None:
        del named["novelty"]
    return named, np.array(sizes)


def _apart(parts: Mapping[str | None, tuple[Any, mx.Floats]], name: str | None, baseline: str | None) -> str | None:
    """Why an experiment is not compared with the baseline: the numbers of items that they show differ by themselves."""
    if not parts or baseline in (None, name):
        return None
    one, other = parts[name][1], parts[baseline][1]
    apart = abs(one[0] - other[0])
    by_chance = 2 * (one - other)[1:].std(ddof=1) if len(one) > 2 else np.inf
    smaller = max(min(one[0], other[0]), 1.0)
    if apart <= CHANCE_APART * smaller or (apart <= MOST_APART * smaller and apart <= by_chance):
        return None
    return frame.said("not_compared", name=name, n=one[0], baseline=baseline, n_other=other[0])


def _interval(values: mx.Floats, confidence: float) -> tuple[float, float]:
    """The normal interval around the first value, with the standard deviation of the others."""
    half = float(ndtri((1 + confidence) / 2) * values[1:].std(ddof=1)) if len(values) > 2 else np.nan
    return values[0] - half, values[0] + half
