"""Parquet tables in a folder of this machine, read by PyArrow: a report needs no Spark there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rankmetrics_spark import pointers
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.report.figures import STEPS
from rankmetrics_spark.report.verdict import surest_first
from rankmetrics_spark.schemas import DATE, EVERYONE, EXPERIMENT, METRIC, N_USERS, SEGMENT
from rankmetrics_spark.tools.report_tables import Edges, Rows, counted, step_row


@dataclass(frozen=True)
class FolderTables:
    """Parquet tables in a folder on this machine; nothing but PyArrow reads them.

    Attributes:
        path: Output folder of the runs.
    """

    path: Path

    def dates(self) -> list[str]:
        return sorted({_value(folder) for folder in self.path.glob(f"experiment_metrics/{EXPERIMENT}=*/{DATE}=*")})

    def _pointer(self, date: str) -> pointers.Pointer | None:
        return pointers.parse(_text(self.path / pointers.FOLDER / f"{date}.json"))

    def run_of(self, date: str) -> str | None:
        pointer = self._pointer(date)
        return pointer.entries[0].run_id if pointer else None

    def _files(self, table: str, date: str) -> list[Path]:
        """The files that count: those of the run that the pointer of the date names, or of none where there is none."""
        files = sorted(self.path.glob(f"{table}/{EXPERIMENT}=*/{DATE}={date}/*.parquet"))
        pointer = self._pointer(date)
        runs = {str(name): run for name, run in pointer.file_run_of().items()} if pointer else {}
        return [
            file
            for file in files
            if runs.get(_value(file.parent.parent), pointers.WITHOUT_ID) == pointers.run_in_name(file.name)
        ]

    def _tables(self, table: str, dates: Sequence[str], columns: Callable[[Sequence[str]], list[str]]) -> Iterable[Any]:
        """(experiment, date, Arrow table) of each file."""
        for date in dates:
            for file in self._files(table, date):
                if found := columns(pq.read_schema(file).names):
                    experiment = _value(file.parent.parent)
                    yield experiment, date, ds.dataset(file, format="parquet").to_table(columns=found)

    def rows(self, table: str, date: str, most: int) -> Rows:
        found: Rows = []
        for experiment, day, rows in self._tables(table, [date], list):
            keys = {EXPERIMENT: experiment, DATE: day}
            found += [{**row, **keys} for row in rows.to_pylist()]
        return sorted(found, key=surest_first)[:most]

    def size(self, table: str, date: str) -> int:
        parts = self._tables(table, [date], lambda names: [SEGMENT])
        return sum(pc.sum(pc.equal(rows[SEGMENT], EVERYONE)).as_py() or 0 for _, _, rows in parts)

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        wanted, found = set(experiments), []
        columns = [SEGMENT, METRIC, N_USERS, "mean", "ci_low", "ci_high", "confidence"]
        for experiment, date, rows in self._tables("experiment_metrics", dates, lambda names: columns):
            if experiment in wanted:
                keys = {EXPERIMENT: experiment, DATE: date}
                found += [{**row, **keys} for row in rows.to_pylist() if row[SEGMENT] == EVERYONE]
        return found

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        found: dict[str, tuple[float, float]] = {}
        for _, name, values in self._values(date, metrics):
            if len(values):
                low, high = found.get(name, (0.0, 0.0))
                found[name] = (min(low, float(values.min())), max(high, float(values.max())))
        return found

    def _values(self, date: str, metrics: Sequence[Metric]) -> Iterable[tuple[str, str, Any]]:
        """(experiment, metric, values of its users) of each file."""
        columns = {metric.column: str(metric) for metric in metrics}
        chosen = lambda names: [name for name in columns if name in names]  # noqa: E731
        for experiment, _, table in self._tables("user_metrics", [date], chosen):
            for column in table.column_names:
                values = table[column].drop_null().to_numpy()
                yield experiment, columns[column], values[np.isfinite(values)]

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        counts: dict[tuple[str, str], Any] = {}
        wanted = set(experiments)
        for experiment, name, values in self._values(date, metrics):
            if experiment in wanted:
                counts.setdefault((experiment, name), np.zeros(STEPS + 1, dtype=np.int64))
                counts[experiment, name] += counted(values, *edges[name])
        return [
            step_row(experiment, name, step - 1, int(n), edges)
            for (experiment, name), numbers in counts.items()
            for step, n in enumerate(numbers)
            if n
        ]

    def records(self) -> Iterable[Mapping[str, Any]]:
        found = (_record(path) for path in sorted(self.path.glob("runs/*.json")))
        return [record for record in found if record]


def _text(path: Path) -> str | None:
    """The text of a file, or of the one file of a folder that Spark wrote; None if there is none."""
    file = path if path.is_file() else next(iter(sorted(path.glob("part-*"))), None)
    return file.read_text(encoding="utf-8") if file else None


def _record(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(_text(path) or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _value(folder: Path) -> str:
    """The value of a partition's folder, as it was written."""
    return unquote(folder.name.partition("=")[2])
