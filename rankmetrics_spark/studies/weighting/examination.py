"""``propensities``: how often users examine each rank, from a log in which items changed their ranks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, errors as err, layouts as lay, schemas as sch
from rankmetrics_spark.metrics import Ints
from rankmetrics_spark.studies import frame
from rankmetrics_spark.studies.weighting.harvesting import Harvest, rows_of_ranks

#: Columns of the result -> their types.
PROPENSITY_COLUMNS = frame.TABLES["propensities"]
_RANKS = "_ranks"
_READ = ("rank", "propensity")
#: Rows of a table of propensities.
MOST_RANKS = 1_000
#: Per key: rows with a fault, rows with another relevance than 0 and 1, whether it was shown at two ranks, all rows,
#: rows with a rank below the first one, and sound rows at the first rank, of which each list has one.
_COUNTS = ("_faulty", "_no_clicks", "_varied", "_all", "_below", "_first")
_GRADE, _DEEPEST = "_grade", "_deepest"
#: Sums in pieces, as an engine puts thousands of rows into one batch; or a grade that is no click.
_SUMS = eng.SumTable(("piece", "grade"))
_PIECE_SIZE = 2**11
_CHECKED = {**PROPENSITY_COLUMNS, **dict.fromkeys(_COUNTS[1:], "long"), _GRADE: "double"}


def propensities(
    impressions: eng.AnyTable,
    key: str | Sequence[str] = ("query", "item"),
    method: Literal["adjacent", "pivot", "all_pairs"] = "adjacent",
    *,
    k: int = 10,
    columns: Mapping[str, str | None] | None = None,
    list: str | Sequence[str] = (),
    events: eng.AnyTable | None = None,
    event_columns: Mapping[str, object] | None = None,
    grades: Mapping[str, float] | None = None,
    within: str | None = None,
    replicates: int = 1_000,
    seed: int = 1,
    confidence: float = 0.95,
    first_rank: int = 1,
) -> eng.ResultTable:
    """Estimate how often users examine each rank, relative to rank 1, from keys that a log shows at several ranks.

    Holds under the position-based model: a click is an examination, which depends on the rank alone, of something that
    is relevant, which depends on the key alone. Rankers may put relevant items first; what they know of the clicks
    of this log must not move items within it. Reads the log once, with one shuffle, and computes at once.

    Args:
        impressions: One row per shown item, by several rankers or experiments, or by one that changes. Rows at ranks
            deeper than ``k`` do not count.
        key: Columns that say what was shown, such as query and item: its relevance must be the same at every rank.
        method: ``adjacent`` multiplies the ratios of neighbouring ranks; ``pivot`` compares each rank with rank 1;
            ``all_pairs`` maximises the likelihood of all pairs of ranks.
        k: The last rank, up to 50; with ``all_pairs`` up to 20.
        columns: Role (position, relevance) -> column, as in ``evaluate``. Relevance is a click: 0 or 1.
        list: Columns that tell a user's lists apart; only events need them.
        events: A row per click, which makes its impression a clicked one, as in ``evaluate``; ``columns`` then also has
            the user, the item and, for ``within``, the time.
        event_columns: Role (list, user, item, kind, time) -> column of the events.
        grades: Kind of event -> its grade: 1 of those that are clicks.
        within: How long after its impression an event counts, such as ``1h``.
        replicates: Of the bootstrap over keys.
        seed: Of its random numbers: the same seed gives the same bits anywhere.
        confidence: Of its percentile intervals, in (0, 1).
        first_rank: What the column of ranks calls the first rank, which is 1 in the result.

    Returns:
        One row per rank down to ``k``, or to the last rank of the log: rank, propensity (1 at rank 1; null where the
        log does not connect the rank with rank 1), ci_low, ci_high, n_keys (shown at this rank and at one that it is
        compared with: the neighbours, rank 1, or any), n_impressions and n_clicks (of these keys at this rank), note
        (why there is no propensity or interval; in each row, whether more than 1 % of the rows are faulty), method,
        confidence, n_faulty_rows (left out; of the whole log).

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type, no row is sound, a relevance is neither 0 nor 1, ranks seem
            to start at 0, or no key was shown at two ranks.

    Source: intervention harvesting, see ``weighting.harvesting``: Agarwal et al. (WSDM 2019), Fang et al. (SIGIR 2019).

    Examples:
        Shown at rank 2, the item has half of the clicks that it has at rank 1.

        >>> shown = [(1, 1), (1, 1), (2, 1), (2, 0)]
        >>> log = [{"query": "q", "item": "a", "position": rank, "relevance": click} for rank, click in shown]
        >>> propensities(log).to_pandas()["propensity"].tolist()  # doctest: +SKIP
        [1.0, 0.5]
    """
    keywords = locals()
    harvest = Harvest.of(keywords)
    keywords = frame.with_events(keywords, *harvest.key)
    # What is shown is the key, and who saw it is not read.
    unread = {*sch.ROLES, *sch.ROLES.values()} - {sch.POSITION, sch.RELEVANCE}
    roles = {role: column for role, column in (keywords["columns"] or {}).items() if role not in unread}
    roles = {**roles, "item": None}
    options = cfg.Options(columns=roles, list=harvest.key, confidence=confidence, first_rank=first_rank)
    table, options = frame.log_of(keywords["impressions"], options, usual=(sch.POSITION, sch.RELEVANCE))
    sums = frame.added_up(_keys(table, options, harvest.k), _SUMS, partial(_sums, harvest=harvest))
    final = partial(_final, harvest=harvest, confidence=options.confidence)
    rows = [row.asDict() for row in eng.few_rows(eng.in_one_step(sums, final, _CHECKED))]
    if not rows:
        raise err.InputError("the impressions have no rows; allowed: a log with clicks")
    _refuse(rows[0], harvest, options.first_rank)
    more = frame.left_out(rows[0]["n_faulty_rows"], rows[0]["_all"])
    for row in rows:
        row["note"] = "; ".join(filter(None, (row["note"], more))) or None
    cells = [tuple(row[name] for name in PROPENSITY_COLUMNS) for row in rows]
    return eng.result_table(table.sparkSession.createDataFrame(cells, eng.schema_text(PROPENSITY_COLUMNS)))


def _refuse(first: Mapping[str, Any], harvest: Harvest, first_rank: int) -> None:
    """Refuse a log by its counts, which are in each row."""
    frame.refuse_ranks_from_0(first["_below"], first["_first"], first_rank)
    frame.refuse_grades(first["_no_clicks"], first[_GRADE])
    k, key = harvest.k, ", ".join(harvest.key)
    if not first["rank"]:
        raise err.InputError(frame.said("no_rank", k=k, first=first, first_rank=first_rank, key=key))
    if not first["_varied"]:
        raise err.InputError(frame.said("no_intervention", key=key, k=k))


def _keys(table: DataFrame, options: cfg.Options, k: int) -> DataFrame:
    """Return one row per key: its impressions and clicks at each rank; the only shuffle of raw rows."""
    present: dict[str, Any] = {"item": False, "relevance": True, "position": True}
    rows, roles = frame.typed_rows(table, options, {sch.EXPERIMENT: None, sch.USER: None}, **present)
    sound = f"{sch.REJECTED} IS NULL"
    shown = [f"{sound} AND {sch.POSITION} = {rank}" for rank in range(1, k + 1)]
    grade = f"{sound} AND NOT {sch.RELEVANCE} IN (0, 1)"
    clicked = [f"{at_rank} AND {sch.RELEVANCE} = 1" for at_rank in shown]
    counts = [f"count_if({condition})" for condition in (*shown, *clicked)]
    n_ranks = " + ".join(f"int(_{i} > 0)" for i in range(k))
    of_key, in_sql = ", ".join(roles.list_columns), frame.counts_in_sql(roles)
    of_key_counts = [in_sql[name] for name in ("n_rows", "n_below", "n_first")]
    sums = {
        _COUNTS[0]: f"count_if({sch.REJECTED} IS NOT NULL)",
        _COUNTS[1]: f"count_if({grade})",
        _GRADE: f"max(CASE WHEN {grade} THEN double({sch.RELEVANCE}) END)",
        _DEEPEST: f"max(CASE WHEN {sound} AND {sch.POSITION} <= {k} THEN bigint({sch.POSITION}) ELSE 0L END)",
        **dict(zip(_COUNTS[3:], of_key_counts, strict=True)),
        **{f"_{i}": sql for i, sql in enumerate(counts)},
    }
    grouped = rows.groupBy(*roles.list_columns).agg(*(F.expr(f"{sql} AS {name}") for name, sql in sums.items()))
    is_varied, ranks = f"{n_ranks} > 1", f"array({', '.join(f'_{i}' for i in range(2 * k))})"
    of_counts = (*_COUNTS[:2], f"bigint({is_varied}) AS {_COUNTS[2]}", *_COUNTS[3:], _GRADE, _DEEPEST)
    at_ranks = f"CASE WHEN {is_varied} THEN {ranks} END AS {_RANKS}"
    return grouped.selectExpr(*of_counts, f"xxhash64({of_key}) AS {sch.HASH}", at_ranks)


def _sums(batch: pa.RecordBatch, harvest: Harvest) -> Iterator[tuple[tuple[str | None, str | None], Ints]]:
    """Yield the sums of some keys: counts, keys by their last rank, and the sums of those with several ranks."""
    k = harvest.k
    counts = [int(lay.ints(batch.column(name)).sum()) for name in _COUNTS]
    by_depth = np.bincount(lay.ints(batch.column(_DEEPEST)), minlength=k + 1)
    varied = batch.filter(batch.column(_RANKS).is_valid())
    ranks = eng.matrix_of(varied.column(_RANKS)) if varied.num_rows else np.zeros((0, 2 * k), np.int64)
    hashes = lay.ints(varied.column(sch.HASH)).view(np.uint64)
    sums = np.concatenate([counts, by_depth, harvest.sums(ranks[:, :k], ranks[:, k:], hashes)])
    for start in range(0, len(sums), _PIECE_SIZE):
        yield (f"{start:012}", None), sums[start : start + _PIECE_SIZE]
    if (grade := pc.max(batch.column(_GRADE)).as_py()) is not None:
        yield (None, repr(grade)), np.ones(1, np.int64)


def _final(batches: eng.Batches, harvest: Harvest, confidence: float) -> Iterator[pa.RecordBatch]:
    """Make the rows of the result from the sums of all partitions; without a sound row one of rank 0."""
    pieces: dict[str, Ints] = {}
    grades = []
    for batch in batches:
        for (piece, grade), numbers in zip(_SUMS.keys(batch), batch.column(eng.SUMS), strict=True):
            if piece is None:
                grades.append(float(grade))
            else:
                pieces[piece] = pieces.get(piece, 0) + np.asarray(numbers.values)
    if pieces:
        total = np.concatenate([pieces[piece] for piece in sorted(pieces)])
        n_faulty, *n_others = map(int, total[: len(_COUNTS)])
        by_depth, sums = np.split(total[len(_COUNTS) :], [harvest.k + 1])
        deepest = int(np.flatnonzero(by_depth).max(initial=0))
        rows = [*rows_of_ranks(harvest, sums, deepest, confidence)] or [(0, *[None] * 7)]
        more = (harvest.method, confidence, n_faulty, *n_others, max(grades, default=None))
        yield from frame.row_batches((dict(zip(_CHECKED, (*row, *more), strict=True)) for row in rows), _CHECKED)


def examined_ranks(table: eng.AnyTable, beside: object = None) -> dict[int, float]:
    """Read the propensity of each rank from a table as ``propensities`` returns it; collects it.

    Args:
        table: With the columns rank and propensity, up to ``MOST_RANKS`` rows.
        beside: Another table of the same call, whose session reads this one.

    Returns:
        Rank -> propensity, at most 1; without the ranks that have none.

    Raises:
        InputError: The table has other columns, types or values.
    """
    own = eng.spark_table(table, "propensities", beside, needed=eng.column_names(*_READ))
    wrong = "column '{name}' of the propensities has type {kind}; allowed: a number"
    frame.column_types(own, zip(_READ, _READ, strict=True), T.NumericType, "propensities", wrong)
    numbers = [F.col(name).cast("double").alias(name) for name in _READ]
    propensity_of: dict[int, float] = {}
    rows = eng.few_rows(own.select(*numbers).limit(MOST_RANKS + 1))
    if not rows or len(rows) > MOST_RANKS:
        raise err.InputError(frame.said("rows_of_propensities", n=f"more than {MOST_RANKS:,}" if rows else "no"))
    for rank, propensity in rows:
        if rank is None or not rank >= 1 or rank % 1 or rank in propensity_of:
            shown = rank if rank is None else f"{rank:g}{' twice' if rank in propensity_of else ''}"
            raise err.InputError(f"the table of propensities has the rank {shown}; allowed: each of 1, 2, 3, ... once")
        if propensity is not None and not 0 < propensity < np.inf:
            raise err.InputError(f"the propensity of rank {rank:g} is {propensity}; allowed: a number above 0, or null")
        propensity_of[int(rank)] = np.nan if propensity is None else min(propensity, 1.0)
    return {rank: value for rank, value in sorted(propensity_of.items()) if not np.isnan(value)}
