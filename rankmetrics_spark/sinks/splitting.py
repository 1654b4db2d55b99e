"""Rows -> one file per experiment, staged flat, and a list of these files. In this process or in tasks of Spark.

No engine places files here: names of partitions are escaped by ``partitions.escaped``, and a rename puts a file in
place. So it does not matter what an engine makes of ``partitionOverwriteMode`` or of a ``/`` in a name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankmetrics_spark.engines import ORDER
from rankmetrics_spark.schemas import DATE, EXPERIMENT
from rankmetrics_spark.sinks.files import Files
from rankmetrics_spark.sinks.partitions import ROWS_PER_FILE

MANIFEST = f"{EXPERIMENT} string, file string, n bigint, total bigint"
"""Columns of the list of files: experiment, name, rows, and the sum of one column."""
WRITERS = 4
"""Files that are written at the same time; PyArrow leaves Python's lock while it writes."""


@dataclass(frozen=True)
class Staged:
    """A file in the staging of a run that will become a file of a partition.

    Attributes:
        experiment: Whose rows it holds.
        name: Name of the file, both in the staging and in the partition.
        rows: Number of rows.
        total: Sum of the column that the books are checked with.
    """

    experiment: str | None
    name: str
    rows: int
    total: int = 0


@dataclass(frozen=True)
class Split:
    """How rows become files.

    Attributes:
        files: The files of the output.
        folder: The staging of the table.
        run_id: Part of the names of the files.
        total: Name of a column whose sum is listed; None = none.
    """

    files: Files
    folder: str
    run_id: str
    total: str | None = None

    def of_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: rows that are sorted by experiment -> files; yields the list of files."""
        for experiment, table in _by_experiment(batches):
            staged = self.write(experiment, table)
            columns = ([staged.experiment], [staged.name], [staged.rows], [staged.total])
            kinds = (pa.string(), pa.string(), pa.int64(), pa.int64())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, [EXPERIMENT, "file", "n", "total"])

    def rows_in(self, folder: str) -> int:
        """How many rows a staged folder has, by the footers of its files."""
        return sum(
            pq.read_metadata(path, filesystem=self.files.system).num_rows for path in self._parquet_files(folder)
        )

    def of_folder(self, folder: str, sort: str) -> tuple[list[Staged], pa.Table | None]:
        """In this process: the few rows of a staged folder -> files, in order of experiment and another column.

        Returns:
            The list of files, and the rows themselves.
        """
        tables = [pq.read_table(path, filesystem=self.files.system) for path in self._parquet_files(folder)]
        tables = [table for table in tables if table.num_rows]
        if not tables:
            return [], None
        table = pa.concat_tables(tables).replace_schema_metadata(None)
        order = pc.sort_indices(table, sort_keys=[(EXPERIMENT, "ascending"), (sort, "ascending")])
        table = table.take(order).combine_chunks()
        with ThreadPoolExecutor(WRITERS) as pool:
            return list(pool.map(lambda piece: self.write(*piece), _runs(table))), table

    def _parquet_files(self, folder: str) -> list[str]:
        return [self.files.at(path) for path in self.files.files(folder) if path.endswith(".parquet")]

    def write(self, experiment: str | None, table: pa.Table) -> Staged:
        """Write the rows of one experiment as one file; its partition keys are in its path, not in it."""
        # The whole of it: with 32 bits, two of 10,000 files have the same name once in a hundred runs.
        name = f"part-{self.run_id}-{uuid.uuid4().hex}.parquet"
        path = f"{self.folder}/{name}"
        self.files.write_table(
            path, table.select([c for c in table.column_names if c not in (EXPERIMENT, DATE, ORDER)])
        )
        total = pc.sum(table[self.total]).as_py() if self.total else 0
        return Staged(experiment, name, table.num_rows, int(total or 0))


def _by_experiment(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.Table]]:
    """Tables of one experiment each, with at most about ``ROWS_PER_FILE`` rows, from sorted batches."""
    held: list[pa.Table] = []
    for batch in batches:
        for experiment, piece in _runs(pa.Table.from_batches([batch])):
            if held and (_first(held[0]) != experiment or sum(map(len, held)) >= ROWS_PER_FILE):
                yield _first(held[0]), pa.concat_tables(held)
                held = []
            held.append(piece)
    if held:
        yield _first(held[0]), pa.concat_tables(held)


def _first(table: pa.Table) -> str | None:
    name: str | None = table[EXPERIMENT][0].as_py()
    return name


def _runs(table: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """Slices of equal experiments that stand together."""
    if not table.num_rows:
        return
    codes = table[EXPERIMENT].combine_chunks().dictionary_encode(null_encoding="encode")
    codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
    places = codes.indices.to_numpy(zero_copy_only=False)
    starts = [0, *(int(i) + 1 for i in (places[1:] != places[:-1]).nonzero()[0])]
    names = codes.dictionary.to_pylist()
    for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
        yield names[int(places[start])], table.slice(start, end - start)


def staged_of(row: Mapping[str, Any]) -> Staged:
    """An entry of the list of files from its row."""
    return Staged(row[EXPERIMENT], row["file"], row["n"], row["total"])
