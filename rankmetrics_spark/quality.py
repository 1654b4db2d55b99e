"""Impressions as they came -> typed rows under canonical names, each faulty one with its reason.

Nothing is dropped here: a faulty row keeps its values (as text) in the struct column ``rejected``, which later is part
of the grouping key, so that faulty rows ride through the same shuffle as everything else and can be counted and
written without a second look at the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.schemas import (
    EVERYONE,
    EXPERIMENT,
    ITEM,
    POSITION,
    REASON,
    REJECTED,
    RELEVANCE,
    SCORE,
    USER,
    Columns,
    quoted,
)

_NUMBERS = (T.NumericType, T.BooleanType)
_IDS = (T.StringType, T.IntegralType, T.FractionalType, T.BooleanType, T.DateType, T.TimestampType)
REAL_TYPES = (T.FloatType, T.DoubleType)


def validated(
    impressions: DataFrame,
    mapping: Mapping[str, str | None],
    columns: Columns,
    text: bool = False,
    null_is_unjudged: bool = False,
) -> DataFrame:
    """Type the mapped columns and give every faulty row its reason; lazy, no shuffle, no job.

    Args:
        impressions: The rows as they came.
        mapping: Canonical name (``experiment_id``, ``user_id``, ...) to the column that holds it.
        columns: Which canonical columns there are.
        text: Numbers may come as text (CSV and the like); text that is no number is a fault of the row.
        null_is_unjudged: A null relevance means "not judged" (judgements are given) and is no fault.

    Returns:
        The keys, the value columns, the segments, and ``rejected`` (null for a sound row).

    Raises:
        InputError: A mapped column is missing or has a type that cannot serve.
    """
    table = named(impressions, mapping, (*columns.keys, *columns.values, *columns.segments), "impressions", text)
    kinds = {field.name: field.dataType for field in table.schema.fields}
    checked = (*columns.keys, *columns.values)
    faults = [
        f"WHEN {condition} THEN '{label}'"
        for name in checked
        for label, condition in _faults(name, kinds[name], null_is_unjudged and name == RELEVANCE)
    ]
    reason = f"CASE {' '.join(faults)} END"
    raw = ", ".join(f"string({quoted(name)}) AS {quoted(name)}" for name in checked)
    return table.selectExpr(
        *(f"{_typed(name, kinds[name])} AS {quoted(name)}" for name in checked),
        *(f"string({quoted(name)}) AS {quoted(name)}" for name in columns.segments),
        f"CASE WHEN {reason} IS NOT NULL THEN struct({reason} AS {REASON}, {raw}) END AS {REJECTED}",
    )


def named(
    table: DataFrame, mapping: Mapping[str, str | None], names: Sequence[str], what: str, text: bool
) -> DataFrame:
    """The mapped columns under their canonical names, with usable types; a name mapped to null becomes a constant.

    Raises:
        InputError: A mapped column is missing or has a type that cannot serve.
    """
    there = table.columns
    selected = []
    for name in names:
        source = mapping.get(name, name)
        if source is not None and source not in there:
            raise InputError(f"the {what} have no column for {name}: {unknown('column', source, there)}")
        value = f"'{EVERYONE}'" if source is None else quoted(source)
        selected.append(f"{value} AS {quoted(name)}")
    result = table.selectExpr(*selected)
    for field in result.schema.fields:
        _check_type(field, mapping.get(field.name, field.name), text)
    return result


def _check_type(field: T.StructField, source: str | None, text: bool) -> None:
    """Refuse a column whose type cannot serve, before any job starts."""
    is_number = field.name in (POSITION, SCORE, RELEVANCE)
    allowed: tuple[type[T.DataType], ...] = (*_NUMBERS, *((T.StringType,) if text else ())) if is_number else _IDS
    if field.name == POSITION:
        allowed = tuple(kind for kind in allowed if kind is not T.BooleanType)
    if not isinstance(field.dataType, allowed):
        wanted = "a number" if is_number else "a string, number, boolean, date or timestamp"
        raise InputError(
            f"column '{source}' ({field.name}) has type {field.dataType.simpleString()}; it must be {wanted}"
        )


def _typed(name: str, kind: T.DataType) -> str:
    """The column in the type that the engine computes with."""
    if name == POSITION:
        # A plain cast of NaN to an integer is an error in ANSI mode; such a row is faulty anyway.
        return f"try_cast({number(name, kind)} as bigint)"
    if name == RELEVANCE and isinstance(kind, T.IntegralType | T.BooleanType):
        return f"bigint({name})"
    return number(name, kind) if name in (SCORE, RELEVANCE) else f"string({quoted(name)})"


def number(name: str, kind: T.DataType) -> str:
    """A numeric column as double (integers stay exact as they are); text that is no number becomes null."""
    if isinstance(kind, T.IntegralType):
        return name
    return f"try_cast(trim({name}) as double)" if isinstance(kind, T.StringType) else f"double({name})"


def _faults(name: str, kind: T.DataType, null_allowed: bool) -> Iterator[tuple[str, str]]:
    """(reason, condition) of every way in which a value of this column can be faulty, in the order of the check."""
    short = {EXPERIMENT: "experiment", USER: "user", ITEM: "item"}.get(name, name)
    if not null_allowed:
        yield f"null_{short}", f"{quoted(name)} IS NULL"
    if name in (POSITION, SCORE, RELEVANCE):
        yield from _number_faults(name, kind)
    elif isinstance(kind, REAL_TYPES):
        yield f"nan_{short}", f"isnan({quoted(name)})"
    elif name == EXPERIMENT and isinstance(kind, T.StringType):
        # A partition directory cannot tell an empty name from a null one.
        yield "empty_experiment", f"{name} = ''"


def _number_faults(name: str, kind: T.DataType) -> Iterator[tuple[str, str]]:
    value = number(name, kind)
    if isinstance(kind, T.StringType):
        yield f"unreadable_{name}", f"{name} IS NOT NULL AND {value} IS NULL"
    if isinstance(kind, (*REAL_TYPES, T.StringType)):
        yield f"nan_{name}", f"isnan({value})"
    if name == RELEVANCE and not isinstance(kind, T.IntegralType | T.BooleanType):
        yield "infinite_relevance", f"abs({value}) = double('inf')"
    if name == POSITION:
        if not isinstance(kind, T.IntegralType):
            # Not floor: in ANSI mode it is an error for a number that no bigint can hold.
            yield "fractional_position", f"{value} != rint({value})"
        yield "position_below_1", f"{value} < 1"
        # Ranks are packed and squared in 64 bits; nobody scrolls past two billion items.
        yield "position_too_large", f"{value} > {2**31 - 1}"
