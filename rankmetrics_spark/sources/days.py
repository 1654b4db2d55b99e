"""Whether a run evaluates one day of a log, or every day under the date of one."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from rankmetrics_spark.config.sections import Input
from rankmetrics_spark.schemas import quoted

NAMES = frozenset({"date", "day", "ds", "dt", "event_date", "event_day"})
"""Names of columns that hold the day of a row, also as text."""
_TIMES = (T.TimestampType, T.TimestampNTZType)


def whole_log(section: Input, schema: T.StructType, date: str) -> list[str]:
    """A sentence if the log has dates and nothing selects those of the evaluation date; empty otherwise.

    Args:
        section: The ``source`` of a config.
        schema: The columns of the log.
        date: The evaluation date.
    """
    selects = section.where or any(date in path for path in section.path or ())
    column = None if selects else _day_column(schema.fields, set(section.columns.values()))
    if column is None:
        return []
    value = f"to_date({quoted(column.name)})" if isinstance(column.dataType, _TIMES) else quoted(column.name)
    return [
        f"no filter selects a day: every row of the log counts as {date}, whatever its '{column.name}' is; one day: "
        f'{section.path_of("where")}: "{value} = \'{{date}}\'"; all on purpose: {section.path_of("where")}: "true"'
    ]


def _day_column(fields: Iterable[T.StructField], mapped: set[str | None]) -> T.StructField | None:
    """The column that tells the day of a row: a date, then a text with such a name, then a time."""
    free = [field for field in fields if field.name not in mapped]
    dates = [field for field in free if isinstance(field.dataType, T.DateType)]
    texts = [f for f in free if f.name.lower() in NAMES and isinstance(f.dataType, (T.StringType, T.IntegerType))]
    times = [field for field in free if isinstance(field.dataType, _TIMES)]
    return next(iter(dates + texts + times), None)
