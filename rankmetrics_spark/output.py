"""A run's result for people and programs: a table, JSON or CSV on stdout."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from rankmetrics_spark.schemas import EVERYONE, EXPERIMENT, METRIC, SEGMENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS = 10_000
"""Result rows that are printed at most; the Parquet tables hold all."""

COLUMNS = (
    EXPERIMENT,
    SEGMENT,
    METRIC,
    "convention",
    "n_users",
    "n_users_with_relevant",
    "n_users_without_list",
    "mean",
    "std",
    "ci_low",
    "ci_high",
    "confidence",
    "mean_with_relevant",
)


def result_rows(averages: DataFrame) -> list[dict[str, Any]]:
    """The averages as plain rows, ordered by segment, metric and experiment."""
    ordered = averages.select(*COLUMNS).orderBy(SEGMENT, METRIC, EXPERIMENT).limit(MOST_ROWS)
    return [row.asDict() for row in ordered.toLocalIterator()]


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per experiment and segment, one column per metric: mean and half width of the interval."""
    names = list(dict.fromkeys(row[METRIC] for row in rows))
    confidence = f"{rows[0]['confidence']:.0%}" if rows else ""
    table = Table(
        title=f"mean over users, with the {confidence} interval ({rows[0]['convention'] if rows else ''})",
        title_justify="left",
    )
    table.add_column("experiment")
    if any(row[SEGMENT] != EVERYONE for row in rows):
        table.add_column("segment")
    table.add_column("users", justify="right")
    for name in names:
        table.add_column(headline(name), justify="right")
    for (segment, experiment), cells in _grouped(rows).items():
        best = [_cell(cells[name], _best(rows, segment, name)) if name in cells else "" for name in names]
        users = f"{max(cell['n_users'] for cell in cells.values()):,}"
        middle = [segment] if len(table.columns) > len(names) + 2 else []
        table.add_row(str(experiment), *middle, users, *best)
    Console(width=None if sys.stdout.isatty() else 60 + 22 * len(names)).print(table)


def headline(metric: str) -> str:
    """How people name the mean of a metric: MAP@10 for ap@10, mean NDCG@10 for ndcg@10."""
    name, _, rest = metric.partition("@")
    known = {"ap": "MAP", "rr": "MRR"}
    return (known.get(name) or f"mean {name.upper()}") + ("@" + rest if rest else "")


def _grouped(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda r: (r[SEGMENT] != EVERYONE, r[SEGMENT], str(r[EXPERIMENT]))):
        groups.setdefault((row[SEGMENT], row[EXPERIMENT]), {})[row[METRIC]] = row
    return groups


def _best(rows: list[dict[str, Any]], segment: str, metric: str) -> float:
    means = [r["mean"] for r in rows if r[SEGMENT] == segment and r[METRIC] == metric and r["mean"] is not None]
    return max(means, default=float("nan"))


def _cell(row: Mapping[str, Any], best: float) -> str:
    if row["mean"] is None:
        return "-"
    half = "" if row["ci_low"] is None else f" ± {row['mean'] - row['ci_low']:.4f}"
    text = f"{row['mean']:.4f}{half}"
    return f"[bold]{text}[/bold]" if row["mean"] == best else text


def print_json(rows: list[dict[str, Any]]) -> None:
    """A JSON array of the averages."""
    json.dump(rows, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def print_csv(rows: list[dict[str, Any]]) -> None:
    """The averages as CSV with a header."""
    writer = csv.DictWriter(sys.stdout, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


PRINTERS: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "table": print_table,
    "json": print_json,
    "csv": print_csv,
}


def accounting(record: Mapping[str, Any]) -> list[str]:
    """Where the rows went, in one line or two."""
    rows = record["rows"]
    lines = [f"rows: {rows['in']:,} in = {rows['evaluated']:,} evaluated + {rows['quarantined']:,} quarantined"]
    if record["quarantine_reasons"]:
        reasons = sorted(record["quarantine_reasons"].items(), key=lambda pair: (-pair[1], pair[0]))
        lines.append("quarantined: " + ", ".join(f"{name} {count:,}" for name, count in reasons))
    return lines
