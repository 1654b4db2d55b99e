"""What all studies do alike: take the rows of users, or add up their sums, and make a table of them.

A study gives the columns of its table, a step for a batch of users, and, where it adds up, the rows of all sums.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from rankmetrics_spark import engines as eng, schemas as sch
from rankmetrics_spark.config import Options
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.road import checked_rows, flat_log, make_plan, shown_rows

#: Key -> sums over all users.
Sums = dict[tuple[Any, ...], np.ndarray[Any, Any]]
Rows = Iterable[Mapping[str, Any]]
#: Columns that are read where the options name no other.
_ROLES = (*sch.ROLES, *sch.ROLES.values())


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
    options = Options.of(keywords | {"with_events": True})
    names = (*options.columns.values(), *options.list, *more)
    table = eng.table_of(keywords[log], log, names, _ROLES)
    table, options = shown_rows(table, options, keywords["events"])
    return keywords | {log: table, "columns": options.columns, "list": options.list}


def log_of(
    log: eng.AnyTable,
    options: Options,
    *more: str,
    name: str = "impressions",
    usual: Sequence[str] = _ROLES,
    beside: object = None,
) -> tuple[DataFrame, Options]:
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
    table, options, _ = flat_log(table, options)
    return table, options


def typed_rows(
    table: DataFrame, options: Options, mapped: Mapping[str, str | None] | None = None, **present: Any
) -> tuple[DataFrame, sch.Columns]:
    """The typed rows of a log, each faulty one with its reason, and which columns they have.

    Args:
        table: The log.
        options: Its columns.
        mapped: Role -> another column than that of the options.
        **present: Roles that are read, or not, whatever the options say.
    """
    plan = make_plan(options, table.schema)
    columns = replace(plan.columns, **present)
    mapping = {**plan.mapping, **(mapped or {})}
    return checked_rows(table, mapping, columns, text=options.text_numbers, null_is_unjudged=False), columns


def refuse_grades(n: int, largest: float) -> None:
    """Refuse rows whose relevance is no click."""
    if n:
        words = f"the relevance of {n:,} rows is neither 0 nor 1, such as {largest:g}"
        raise InputError(f"{words}; allowed: clicks, 0 or 1")


def of_users(users: DataFrame, columns: Mapping[str, str], step: Callable[[pa.RecordBatch], Rows]) -> DataFrame:
    """The table that a step makes of each batch of users, column by column."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """Leave out empty batches."""
        for batch in batches:
            for made in step(batch) if batch.num_rows else ():
                yield from eng.rows_of(made, columns)

    return users.mapInArrow(body, eng.schema_text(columns))


def added_up(
    users: DataFrame,
    table: eng.SumTable,
    sums_of: Callable[..., Any],
    check: Callable[[Any], None] = lambda totals: None,
) -> DataFrame:
    """Add up the exact sums by key of each batch of users, within partitions, whose sums ``check`` may refuse."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """Keys whose sums come first are first."""
        totals: Sums = {}
        for batch in batches:
            for key, sums in sums_of(batch) if batch.num_rows else ():
                totals[key] = totals[key] + sums if key in totals else sums
        check(totals)
        if totals:
            yield table.batch([*zip(*totals, strict=True)], [*totals.values()])

    return users.mapInArrow(body, table.schema)


def of_sums(
    sums: DataFrame, table: eng.SumTable, columns: Mapping[str, str], rows: Callable[[Sums], Rows]
) -> eng.ResultTable:
    """The table whose rows are made of the sums of all users, which may refuse them."""

    def body(batches: eng.Batches) -> Iterator[pa.RecordBatch]:
        """One batch."""
        yield from row_batches(rows(table.totals(batches)), columns)

    return eng.result_table(eng.in_one_step(sums, body, columns))


def row_batches(rows: Rows, columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Rows as a batch, if there are any; null where a row has no value."""
    if cells := [*rows]:
        yield from eng.rows_of({name: [row.get(name) for row in cells] for name in columns}, columns)
