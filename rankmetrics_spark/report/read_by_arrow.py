"""Parquet tables in a folder of this machine, read by PyArrow: a report needs no Spark there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.pointers import Pointer
from rankmetrics_spark.report.figures import STEPS
from rankmetrics_spark.report.tables import Edges, Rows, counted, everyone_and_largest, step_row
from rankmetrics_spark.schemas import DATE, EVERYONE, EXPERIMENT, METRIC, N_USERS, SEGMENT
from rankmetrics_spark.sinks import Files, experiment_of, live_files, pointers_of, records_in


@dataclass(frozen=True)
class FolderTables:
    """Parquet tables in a folder on this machine; nothing but PyArrow reads them.

    Attributes:
        disk: Output folder of the runs.
        known: Date -> its pointer; as everywhere, it says which files count.
    """

    disk: Files
    known: Mapping[str, Pointer]

    @property
    def name(self) -> str:
        return self.disk.root

    def pointers(self) -> Mapping[str, Pointer]:
        return pointers_of(None, self.disk.root)

    def at(self, known: Mapping[str, Pointer]) -> FolderTables:
        return replace(self, known=known)

    def dates(self) -> list[str]:
        without_pointer = self._files("experiment_metrics", lambda date: date not in self.known)
        return sorted({*self.known, *(date for _, date, _ in without_pointer)})

    def _files(self, table: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
        """(experiment, date, path) of each file that counts."""
        for path in live_files(Files(self.disk.system, self.disk.at(table)), self.known, wanted):
            experiment, date, _ = path.split("/")
            yield str(experiment_of(experiment)), date.partition("=")[2], self.disk.at(f"{table}/{path}")

    def _tables(self, table: str, dates: Sequence[str], columns: Callable[[Sequence[str]], list[str]]) -> Iterable[Any]:
        """(experiment, date, Arrow table) of each file."""
        for experiment, date, file in self._files(table, {*dates}.__contains__):
            if found := columns(pq.read_schema(file).names):
                yield experiment, date, ds.dataset(file, format="parquet").to_table(columns=found)

    def rows(self, table: str, date: str, most: int) -> Rows:
        found: Rows = []
        for experiment, day, rows in self._tables(table, [date], list):
            keys = {EXPERIMENT: experiment, DATE: day}
            found += [{**row, **keys} for row in rows.to_pylist()]
        return everyone_and_largest(found, most)

    def size(self, table: str, date: str) -> int:
        return sum(pq.read_metadata(file).num_rows for _, _, file in self._files(table, {date}.__contains__))

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
        return [*reversed(records_in(self.disk.root) or [])]
