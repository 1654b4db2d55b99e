"""A run's result for programs: one JSON object, or one table as CSV, on stdout."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from unicodedata import category

from rankmetrics_spark.errors import every_text_without_secrets
from rankmetrics_spark.schemas import DATE, NULL_PARTITION, RUN

Row = Mapping[str, Any]

RESULT_TABLES = ("means", "comparisons", "checks")
"""The tables of a result; CSV holds one of them."""
_COUNTS = ("rows", "experiments", "quarantine_reasons", "tables")
"""What the entry ``counts`` of a result has, under the names of the run record."""


def result_object(record: Row, tables: Mapping[str, Sequence[Row]], paths: Row) -> dict[str, Any]:
    """The result of a run as one object: what it found, what it counted, and where that is.

    Args:
        record: The run record.
        tables: Rows by the names of ``RESULT_TABLES``.
        paths: Name -> path.
    """
    return {
        **{name: record.get(name) for name in (RUN, DATE, "period")},
        **{name: tables.get(name, ()) for name in RESULT_TABLES if name != "checks"},
        "verdict": record.get("verdict", []),
        "counts": {name: record[name] for name in _COUNTS if name in record},
        "checks": tables.get("checks", ()),
        **{name: record.get(name) or [] for name in ("notes", "warnings")},
        "paths": every_text_without_secrets(paths),
    }


def print_json(value: Any) -> None:
    """A value as JSON, in one piece; what is no number is null.

    Where stdout and stderr are one file, a line of a log would else stand in the middle of it.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False, default=str)
    sys.stdout.flush()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """The value without NaN and infinities, which JSON does not have.

    >>> _plain({"mean": float("nan"), "rows": ({"n": 1},), None: float("inf")})
    {'mean': None, 'rows': [{'n': 1}], '__HIVE_DEFAULT_PARTITION__': None}
    """
    if isinstance(value, Mapping):
        return {NULL_PARTITION if name is None else str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """One table with a header; without ``columns``, those of the first row."""
    names = columns or list(rows[0] if rows else ())
    writer = csv.DictWriter(sys.stdout, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)


_FORMULA = ("=", "+", "-", "@")
safe_cells: ContextVar[bool] = ContextVar("safe_cells", default=False)
"""Whether a text cell of CSV that a spreadsheet would compute gets an apostrophe in front."""


def _csv_cell(value: object) -> object:
    r"""A cell: texts without control characters, numbers as they are, nothing where there is no number.

    >>> _csv_cell("a\x1b[1m\nb"), _csv_cell(-0.13), _csv_cell("=1+1"), _csv_cell(float("nan"))
    ('a\\x1b[1m\\nb', -0.13, '=1+1', None)
    """
    if not isinstance(value, str):
        return _plain(value)
    text = "".join(c if category(c) not in _CONTROLS else c.encode("unicode_escape").decode() for c in value)
    return f"'{text}" if safe_cells.get() and text.startswith(_FORMULA) else text


_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
