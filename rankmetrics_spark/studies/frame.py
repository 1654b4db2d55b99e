"""What all studies do alike: take the rows of users, or add up their sums, refuse a log, and make a table.

A study gives the columns of its table, a step for a batch of users, and, where it adds up, the rows of all sums. A log
is refused once its rows are computed (ranks from 0, faulty rows, several lists of a user, foreign ids): the counts are
a table of one row, so nothing is computed before the result is, and the same job refuses it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, doors, engines as eng, layouts as lay, metrics as mx, road, schemas as sch
from rankmetrics_spark.errors import ConfigError, InputError, RankmetricsError, check_known, shape, unknown
from rankmetrics_spark.words import sentences

said = sentences(doors.settings_of(__name__, "sentences"))
#: Table -> its columns -> their types.
TABLES = {table: sch.columns(text) for table, text in doors.settings_of(__name__, "columns").items()}
#: Key -> sums over all users.
Sums = dict[tuple[Any, ...], np.ndarray[Any, Any]]
Rows = Iterable[Mapping[str, Any]]
#: Column of a table -> its type.
Columns = Mapping[str, str]
#: Columns that are read where the options name no other.
_ROLES = (*sch.ROLES, *sch.ROLES.values())
#: The usual ``max_invalid_fraction``, as in ``evaluate``.
MOST_FAULTY = 0.01
#: Rows; those with a fault; with a rank below the first one; sound ones at the first rank, of which a list has one.
COUNTS = ("n_rows", "n_faulty", "n_below", "n_first")
#: The largest k: Kendall's tau compares the items of a list with one another.
DEEPEST = 1000
_SUMS = eng.SumTable((sch.EXPERIMENT,))
_NAME, _ID, _SOUND, _KNOWN = "_name", "_id", "_sound", "_known"
_PAIRS = ", ".join(f"struct('{name}' AS {_NAME}, {name} AS {_ID})" for name in (sch.USER, sch.ITEM))
_EACH = f"inline(array({_PAIRS}))"


def column_types(table: DataFrame, named: Iterable[tuple[str, str]], kinds: Any, of: str, wrong: str) -> dict[str, Any]:
    """The types of the columns of a table, some of which it has to have.

    Args:
        table: The table.
        named: Column, and what it says, in the words of messages.
        kinds: The types that they may have.
        of: What messages call the table.
        wrong: What they say of another ``{kind}`` of a column ``{name}``.

    Raises:
        InputError: One is missing, has another type, or has the name of another column.
    """
    types = {field.name: field.dataType for field in table.schema.fields}
    verb = {"propensities": "table of propensities has"}.get(of, f"{of} have")
    for name, role in named:
        if name not in types:
            raise InputError(f"the {verb} no column for {role}: {unknown('column', name, types)}")
        eng.check_unambiguous(table, name, of)
        if not isinstance(types[name], kinds):
            raise InputError(wrong.format(name=name, role=role, kind=types[name].simpleString()))
    return types


def with_events(keywords: dict[str, Any], *more: str | None, log: str = "impressions") -> dict[str, Any]:
    """The arguments of a call: with events, its log has a row per shown item with the relevance that they give.

    Args:
        keywords: The arguments.
        more: Columns of the log that are read too.
        log: The argument that is the log.
    """
    if keywords["events"] is None:
        return keywords
    options = cfg.Options.of(keywords | {"with_events": True})
    table = eng.table_of(keywords[log], log, (*options.columns.values(), *options.list, *more), _ROLES)
    table, options = road.shown_rows(table, options, keywords["events"])
    return keywords | {log: table, "columns": options.columns, "list": options.list}


def log_of(
    log: eng.AnyTable,
    options: cfg.Options,
    *more: str,
    name: str = "impressions",
    usual: Sequence[str] = _ROLES,
    beside: object = None,
) -> tuple[DataFrame, cfg.Options]:
    """A log with a row per shown item, and the options that fit it.

    Args:
        log: The log.
        options: Its columns.
        more: Columns that are read too.
        name: What messages call it.
        usual: Columns that are read where the options name no other.
        beside: Another table of the same call, whose session reads this one.
    """
    table = eng.table_of(log, name, (*options.columns.values(), *options.list, *more), usual, beside)
    table, options, _ = road.flat_log(table, options)
    return table, options


def typed_rows(
    table: DataFrame, options: cfg.Options, mapped: Mapping[str, str | None] | None = None, **present: Any
) -> tuple[DataFrame, sch.Columns]:
    """The typed rows of a log, each faulty one with its reason, and which columns they have.

    Args:
        table: The log.
        options: Its columns.
        mapped: Role -> another column than that of the options.
        **present: Roles that are read, or not, whatever the options say.
    """
    plan = road.make_plan(options, table.schema)
    columns = replace(plan.columns, **present)
    mapping = {**plan.mapping, **(mapped or {})}
    return road.checked_rows(table, mapping, columns, text=options.text_numbers, null_is_unjudged=False), columns


def refuse_grades(n: int, largest: float) -> None:
    """Refuse rows whose relevance is no click."""
    if n:
        words = f"the relevance of {n:,} rows is neither 0 nor 1, such as {largest:g}"
        raise InputError(f"{words}; allowed: clicks, 0 or 1")


def of_users(users: DataFrame, columns: Columns, step: Callable[[pa.RecordBatch], Rows]) -> DataFrame:
    """The table that a step makes of each batch of users, column by column."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """Leave out empty batches."""
        for batch in batches:
            for made in step(batch) if batch.num_rows else ():
                yield from eng.rows_of(made, columns)

    return users.mapInArrow(body, eng.schema_text(columns))


def added_up(
    users: DataFrame, table: eng.SumTable, sums_of: Callable[..., Any], check: Callable[[Any], None] | None = None
) -> DataFrame:
    """Add up the exact sums by key of each batch of users, within partitions, whose sums ``check`` may refuse."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """Keys whose sums come first are first."""
        totals: Sums = {}
        for batch in batches:
            for key, sums in sums_of(batch) if batch.num_rows else ():
                totals[key] = totals[key] + sums if key in totals else sums
        if check:
            check(totals)
        if totals:
            yield table.batch([*zip(*totals, strict=True)], [*totals.values()])

    return users.mapInArrow(body, table.schema)


def of_sums(sums: DataFrame, table: eng.SumTable, columns: Columns, rows: Callable[[Sums], Rows]) -> eng.ResultTable:
    """The table whose rows are made of the sums of all users, which may refuse them."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """One batch."""
        yield from row_batches(rows(table.totals(batches)), columns)

    return eng.result_table(eng.in_one_step(sums, body, columns))


def row_batches(rows: Rows, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Rows as a batch, if there are any; null where a row has no value."""
    if cells := [*rows]:
        yield from eng.rows_of({name: [row.get(name) for row in cells] for name in columns}, columns)


# ---- what a log may hold


class Allowed(NamedTuple):
    """What a log may hold.

    Attributes:
        faulty: Largest share of faulty rows, and of rows that repeat a rank of their list.
        first_rank: What the column of ranks calls the first rank.
        baseline: An experiment that has to be there.
    """

    faulty: float = MOST_FAULTY
    first_rank: int = 1
    baseline: str | None = None


def log_of_lists(
    impressions: eng.AnyTable, columns: sch.ColumnMap | None, rank_by: str, first_rank: int
) -> tuple[DataFrame, road.Plan]:
    """The log of lists that are compared by their items, and its plan; relevance is not read."""
    roles = {role: column for role, column in (columns or {}).items() if role != "relevance"}
    options = cfg.Options(columns=roles, rank_by=rank_by, first_rank=first_rank)
    if options.lacks("item"):
        raise ConfigError("columns.item is null; allowed: the column of the items, since lists are compared by item")
    table, options = log_of(impressions, options)
    return table, road.make_plan(options, table.schema)


def counts_in_sql(columns: sch.Columns) -> dict[str, str]:
    """Name out of ``COUNTS`` -> SQL over typed rows that counts it."""
    below = f"{sch.REJECTED}.{sch.REASON} = 'position_below_{columns.first_rank}'"
    first = f"{sch.REJECTED} IS NULL AND {sch.POSITION} = 1"
    by_rank = {"n_below": f"count_if({below})", "n_first": f"count_if({first})"}
    counts = {"n_rows": "count(1)", "n_faulty": f"count_if({sch.REJECTED} IS NOT NULL)"}
    return counts | (dict.fromkeys(by_rank, "0L") if columns.by_score else by_rank)


def log_rows(table: DataFrame, plan: road.Plan) -> tuple[DataFrame, dict[str, str]]:
    """The rows of a log whose relevance is not read, and ``counts_in_sql`` of them."""
    roles = replace(plan.columns, item=True, relevance=False, position=not plan.columns.by_score)
    rows = road.checked_rows(table, plan.mapping, roles, text=False, null_is_unjudged=False)
    return rows, counts_in_sql(roles)


def log_counts(table: DataFrame, plan: road.Plan) -> DataFrame:
    """One row with the ``COUNTS`` of a log whose relevance is not read."""
    rows, counts = log_rows(table, plan)
    sums = F.expr(f"array({', '.join(counts.values())}) AS {eng.SUMS}")
    return rows.agg(sums).selectExpr(f"string(NULL) AS {sch.EXPERIMENT}", eng.SUMS)


def refuse_faulty(counts: Mapping[str, int], allowed: Allowed) -> None:
    """Refuse ranks that start at 0, and more faulty rows than allowed.

    Raises:
        InputError: It says how many rows there are.

    >>> refuse_faulty({"n_rows": 40, "n_faulty": 10, "n_below": 10, "n_first": 10}, Allowed())
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: 10 rows have a rank below 1, and there are 10 lists: the ranks seem to start \
at 0; set first_rank to 0
    >>> refuse_faulty({"n_rows": 40, "n_faulty": 4, "n_below": 0, "n_first": 10}, Allowed(0.1))
    """
    if allowed.faulty < 1:
        refuse_ranks_from_0(counts["n_below"], counts["n_first"], allowed.first_rank)
    n, n_rows = counts["n_faulty"], counts["n_rows"]
    if n > allowed.faulty * n_rows:
        limit = _limit(n, n_rows, allowed)
        raise InputError(said("faulty_rows", n=n, n_rows=n_rows, limit=limit, counts=counts, allowed=allowed))


def refuse_ranks_from_0(
    n_below: int, n_lists: int, first_rank: int, setting: str = "first_rank", error: type[RankmetricsError] = InputError
) -> None:
    """Refuse a log with a row below the first rank for each list: without these rows, all ranks are off by one.

    Raises:
        RankmetricsError: The one that is given; it says what to set.
    """
    if first_rank == 1 and 0 < n_lists <= n_below:
        raise error(said("ranks_from_0", n_below=n_below, n_lists=n_lists, setting=setting))


def left_out(n: int, n_rows: int) -> str | None:
    """A note on rows that are left out, where they are more than usual.

    >>> left_out(30, 1000), left_out(1, 1000)
    ('30 of 1,000 rows (3.00%) have a fault and are left out', None)
    """
    if n <= MOST_FAULTY * n_rows:
        return None
    return f"{n:,} of {n_rows:,} rows ({n / n_rows:.2%}) have a fault and are left out"


def _limit(n: int, n_rows: int, allowed: Allowed) -> str:
    return f"{n / n_rows:.2%}, allowed {allowed.faulty:.2%}: max_invalid_fraction is {allowed.faulty:g}"


# ---- judgements of other ids


def counts_of_known(table: DataFrame, plan: road.Plan, judged: DataFrame) -> DataFrame:
    """``log_counts``, which fail to be computed if no user or no item of the log is in the judgements.

    Ids are counted before they are shuffled, so the raw rows are not.
    """
    rows, counts = log_rows(table, plan)
    sums = {f"_{at}": sql for at, sql in enumerate((*counts.values(), f"count_if({sch.REJECTED} IS NULL)"))}
    *of_rows, sound = sums
    each = rows.selectExpr("*", _EACH).groupBy(_NAME, _ID).agg(*(F.expr(sql).alias(at) for at, sql in sums.items()))
    typed = road.typed_judgements(judged, plan.judgement_mapping, text=False)
    ids = typed.selectExpr(_EACH).where(f"{_ID} IS NOT NULL").distinct()
    found = each.join(ids.withColumn(_KNOWN, F.lit(True)), [_NAME, _ID], "left")
    # Each row is counted once, as one of its user.
    once = ", ".join(f"coalesce(sum(CASE WHEN {_NAME} = '{sch.USER}' THEN {at} END), 0L)" for at in of_rows)
    facts = [f"array({once}) AS {eng.SUMS}"]
    for name in (sch.USER, sch.ITEM):
        facts.append(f"sum(CASE WHEN {_NAME} = '{name}' AND {_KNOWN} THEN {sound} END) AS matched_{name}")
        facts.append(f"min(CASE WHEN {_NAME} = '{name}' AND {sound} > 0 THEN {_ID} END) AS shown_{name}")
    of_judged = (f"min(CASE WHEN {_NAME} = '{name}' THEN {_ID} END) AS judged_{name}" for name in (sch.USER, sch.ITEM))
    one = found.agg(*map(F.expr, facts)).crossJoin(ids.agg(*map(F.expr, of_judged)))
    return eng.in_one_step(one, _refuse_foreign, {sch.EXPERIMENT: "string", eng.SUMS: "array<bigint>"})


def _refuse_foreign(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
    """The counts, unless none of the shown ids is judged."""
    for batch in batches:
        for row in batch.to_pylist():
            for name in (sch.USER, sch.ITEM):
                shown, judged = row[f"shown_{name}"], row[f"judged_{name}"]
                if shown is not None and judged is not None and not row[f"matched_{name}"]:
                    raise InputError(said("other_ids", name=name, shown=shape(shown), judged=shape(judged)))
        none = pa.nulls(batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([none, batch.column(eng.SUMS)], [sch.EXPERIMENT, eng.SUMS])


# ---- lists of which a user has one per experiment


def sound_lists(lists: DataFrame, counts: DataFrame, allowed: Allowed) -> DataFrame:
    """The lists of users, which fail to be computed if their log is to be refused.

    Args:
        lists: One row per user, with the entries of their lists: one list in each experiment.
        counts: ``log_counts`` of the log.
        allowed: What it may hold.
    """
    # Spark shuffles the rows once for both uses of the lists.
    every = counts.unionAll(added_up(lists, _SUMS, list_counts))
    verdict = eng.in_one_step(every, partial(_verdict, allowed=allowed), {_SOUND: "long"})
    # Sail holds the left side, which is one row.
    return F.broadcast(verdict).crossJoin(lists).select(*lists.columns)


def list_counts(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str | None], mx.Ints]]:
    """Yield each experiment of the lists of some users with its rows, and those that repeat a rank of their user."""
    user, values = lay.flat(batch.column(sch.ENTRIES))
    names, experiment = eng.coded(values.field(sch.EXPERIMENT))
    n = distinct = np.bincount(experiment, minlength=len(names))
    if names and values.type.get_field_index(sch.POSITION) >= 0:
        # As numbers, which are sorted faster than rows of them.
        rank = lay.ints(values.field(sch.POSITION))
        places = int(rank.max()) + 1
        cells = np.unique((user * len(names) + experiment) * places + rank)
        distinct = np.bincount(cells // places % len(names), minlength=len(names))
    yield from zip(zip(names, strict=True), np.stack([n, n - distinct], axis=1), strict=True)


def _verdict(batches: eng.Batches, allowed: Allowed) -> Iterator[pa.RecordBatch]:
    """One row if the log may be read."""
    refuse({name: sums for (name,), sums in _SUMS.totals(batches).items()}, allowed)
    yield from eng.rows_of({_SOUND: [1]}, {_SOUND: "long"})


def refuse(totals: Mapping[str | None, Any], allowed: Allowed) -> None:
    """Refuse a log by its ``COUNTS``, under None, and the ``list_counts`` of each of its experiments.

    Raises:
        ConfigError: No experiment has the name of the baseline.
        InputError: There are too many faulty rows, or too many that repeat a rank.
    """
    refuse_faulty(dict(zip(COUNTS, totals[None], strict=True)), allowed)
    names = [name for name in totals if name is not None]
    n_rows, n = (sum(int(totals[name][place]) for name in names) for place in range(2))
    if n > allowed.faulty * n_rows:
        raise InputError(said("repeated_rank", n=n, n_rows=n_rows, limit=_limit(n, n_rows, allowed)))
    check_known("experiment", [allowed.baseline] if names else [], sorted(names))
