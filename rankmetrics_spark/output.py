"""A run's result for people and programs: a table, JSON or CSV on stdout."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.schemas import EVERYONE, EXPERIMENT, METRIC, SEGMENT
from rankmetrics_spark.ties import tie_lines

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
    """The table on stdout; wide enough for every column where stdout is not a terminal."""
    shown = table(rows)
    Console(width=None if sys.stdout.isatty() else 40 + 22 * len(shown.columns)).print(shown)


def table(rows: list[dict[str, Any]]) -> Table:
    """One line per experiment and segment, one column per metric: mean and half width of the interval."""
    names = sorted({row[METRIC] for row in rows}, key=_by_cut)
    segmented = any(row[SEGMENT] != EVERYONE for row in rows)
    made = Table(title=_title(rows), title_justify="left", title_style="")
    for label in ["experiment", *(["segment"] if segmented else [])]:
        made.add_column(label)
    for label in ["users", *map(headline, names)]:
        made.add_column(label, justify="right")
    for segment, lines in groupby(_grouped(rows).items(), key=lambda item: item[0][0]):
        for (_, experiment), cells in lines:
            values = [_cell(cells[name], _best(rows, segment, name)) if name in cells else "" for name in names]
            users = f"{max(cell['n_users'] for cell in cells.values()):,}"
            made.add_row(str(experiment), *([segment] if segmented else []), users, *values)
        made.add_section()
    return made


def _title(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "no users"
    return f"mean over users ± half of the {rows[0]['confidence']:.0%} interval; convention {rows[0]['convention']}"


def _by_cut(metric: str) -> tuple[str, int]:
    """ap@5 before ap@10, the uncut metric last."""
    name, _, cut = metric.partition("@")
    return name, int(cut) if cut.isdigit() else sys.maxsize


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


def print_conventions(rows: list[dict[str, Any]]) -> None:
    """One line per convention, a block per experiment: users, a column per metric, what differs from the standard."""
    names = list(rows[0]) if rows else []
    table = Table(title="mean over the users of each convention", title_justify="left")
    for name in names:
        table.add_column(_SHORT.get(name, name), justify="left" if name in _TEXT else "right")
    last = None
    for row in rows:
        if last not in (None, row[EXPERIMENT]):
            table.add_section()
        last = row[EXPERIMENT]
        table.add_row(*(_plain(row[name]) for name in names))
    width = sum(max(len(_SHORT.get(n, n)), *(len(_plain(row[n])) for row in rows)) + 3 for n in names) + 1
    Console(width=None if sys.stdout.isatty() else width).print(table)


_SHORT = {
    EXPERIMENT: "experiment",
    "n_users": "users",
    "n_users_with_relevant": "with relevant",
    "n_users_without_list": "without list",
    "n_faulty_rows": "faulty rows",
    "differs": "differs from standard in",
}
_TEXT = (EXPERIMENT, "convention", "differs")


def _plain(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else "-" if value is None else str(value)


def print_conventions_csv(rows: list[dict[str, Any]]) -> None:
    """The conventions as CSV with a header."""
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


CONVENTION_PRINTERS: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "table": print_conventions,
    "json": print_json,
    "csv": print_conventions_csv,
}


def accounting(record: Mapping[str, Any], rows_out: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Where the rows went, how many scores are tied, and what in the input contradicts itself: a line each."""
    rows = record["rows"]
    lines = [f"rows: {rows['in']:,} in = {rows['evaluated']:,} evaluated + {rows['quarantined']:,} quarantined"]
    if record["quarantine_reasons"]:
        reasons = sorted(record["quarantine_reasons"].items(), key=lambda pair: (-pair[1], pair[0]))
        lines.append("quarantined: " + ", ".join(f"{name} {count:,}" for name, count in reasons))
    beyond = sum(counts.get("beyond_judgements", 0) for counts in record["experiments"].values())
    if beyond:
        lines.append(
            f"warning: {beyond:,} lists show more relevant items than the judgements hold; their values stop at 1"
        )
    return lines + _ties(record["experiments"], rows_out)


def _ties(experiments: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ties leave open, with metrics under the names of the result."""
    everyone = [row for row in rows if row[SEGMENT] == EVERYONE]
    names = {parse(row[METRIC]).column: row[METRIC] for row in everyone}
    means = {(row[METRIC], row[EXPERIMENT]): row["mean"] for row in everyone}
    named = {
        name: {**counts, "tie_spread": {names.get(m, m): value for m, value in counts.get("tie_spread", {}).items()}}
        for name, counts in experiments.items()
    }
    return tie_lines(named, means)
