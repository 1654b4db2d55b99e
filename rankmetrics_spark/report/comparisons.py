"""Comparisons for people and programs: a table with a verdict, JSON or CSV on stdout; the verdict of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from rankmetrics_spark.report.change import Change, change_of, is_percentage
from rankmetrics_spark.report.console import LIST_PRINTERS, print_json
from rankmetrics_spark.report.fitting import print_records, printable
from rankmetrics_spark.report.verdict import verdict
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, SEGMENT, is_unknown

Row = Mapping[str, Any]


def print_verdict(sentences: Sequence[str], style: str = "table") -> None:
    """The verdict of a run: below the table on stdout, and on stderr where stdout holds JSON or CSV.

    Args:
        sentences: Of ``verdict``.
        style: ``table``, ``json`` or ``csv``.
    """
    out = sys.stdout if style == "table" else sys.stderr
    for line in sentences:
        out.write(printable(line) + "\n")


def print_comparisons(rows: Sequence[Row]) -> None:
    """The verdict, and one line per comparison."""
    print_verdict(verdict(rows))
    texts = [_texts(row, any(row[SEGMENT] != EVERYONE for row in rows)) for row in rows]
    made = Table()
    for name in texts[0] if texts else {}:
        made.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold")
    for text in texts:
        made.add_row(*(Text(printable(value)) for value in text.values()))
    print_records(texts, made)


_LEFT = ("candidate", "baseline", "segment", "metric", "design")


def _texts(row: Row, segmented: bool) -> dict[str, str]:
    interval = (
        f"{_number(row['difference'], '+.4f')} [{_number(row['ci_low'], '+.4f')}, {_number(row['ci_high'], '+.4f')}]"
    )
    return {
        "candidate": str(row[EXPERIMENT]),
        "baseline": str(row[BASELINE]),
        **({"segment": str(row[SEGMENT])} if segmented else {}),
        "metric": str(row[METRIC]),
        "design": str(row["design"]),
        "users": f"{row['n_users']:,}",
        "difference": interval,
        "change": _percentage(row),
        "p adjusted": _number(row["p_adjusted"], ".3g"),
        "wins/ties/losses": f"{row['wins']:,}/{row['ties']:,}/{row['losses']:,}",
    }


def _percentage(row: Row) -> str:
    change = change_of(row) if is_percentage(row) else None
    return Change(change.value, change.unit).plain if change else "-"


def _number(value: float | None, style: str) -> str:
    return "-" if is_unknown(value) else format(value, style)


def print_all(rows: Sequence[Row], more: Mapping[str, Sequence[Row]], style: str) -> None:
    """Comparisons and further tables.

    Args:
        rows: The comparisons.
        more: Name of a table -> its rows. JSON is one mapping of all tables if there are some; otherwise one table
            follows another, with an empty line in between.
        style: ``table``, ``json`` or ``csv``.
    """
    if style == "json" and more:
        print_json({"comparisons": rows, **more})
        return
    PRINTERS[style](list(rows))
    for name, table in more.items():
        sys.stdout.write("\n" if style == "csv" else f"\n{_TITLES[name]}\n")
        LIST_PRINTERS[style](list(table))


_TITLES = {
    "losses": "users with the largest losses",
    "decomposition": "what the mix of users changed, and what did not",
}

PRINTERS: dict[str, Callable[[list[Any]], None]] = LIST_PRINTERS | {"table": print_comparisons}
