"""Which partitions of a table a run replaces, and what every store can do with them."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as day
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import engines as eng, schemas as sch
from rankmetrics_spark.pointers import REFUSED, Entry, Pointer, Pointers, record_path, refused_folder, sealed
from rankmetrics_spark.sinks.files import Files, of_disk

#: Columns of the list of files: experiment, name, rows, and the sum of one column.
MANIFEST = f"{sch.EXPERIMENT} string, file string, n bigint, total bigint"
_MANIFEST = pa.schema({sch.EXPERIMENT: pa.string(), "file": pa.string(), "n": pa.int64(), "total": pa.int64()})


@dataclass(frozen=True)
class StagedFile:
    """A file in the staging of a run that will become a file of a partition.

    Attributes:
        experiment: Whose rows it holds.
        name: Name of the file, both in the staging and in the partition.
        rows: Number of rows.
        total: Sum of the column that the row counts are checked with.
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
        whole: Whether rows that one process writes are one file, with the experiment as a column.
    """

    files: Files
    folder: str
    run_id: str
    total: str | None = None
    whole: bool = False

    def of_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: rows that are sorted by experiment -> files; yields the list of files."""
        for piece in _pieces(batches):
            (file,) = self.write([piece])
            row = {sch.EXPERIMENT: file.experiment, "file": file.name, "n": file.rows, "total": file.total}
            yield pa.RecordBatch.from_pylist([row], _MANIFEST)

    def of_folder(self, folder: str, sort: str, most: int) -> tuple[list[StagedFile], pa.Table | None] | None:
        """In this process: the rows of a staged folder -> files, in order of experiment and another column.

        None if the footers of its files count more than ``most`` rows.
        """
        if (read := self.files.read_tables(folder, most)) is None:
            return None
        tables = [table for table in read if table.num_rows]
        if not tables:
            return [], None
        table = pa.concat_tables(tables).replace_schema_metadata(None)
        order = pc.sort_indices(table, sort_keys=[(sch.EXPERIMENT, "ascending"), (sort, "ascending")])
        table = table.take(order).combine_chunks()
        if self.whole:
            (file,) = self.write([(None, table)])
            return [StagedFile(experiment, file.name, len(rows)) for experiment, rows in by_experiment(table)], table
        return self.write(by_experiment(table)), table

    def write(self, pieces: Iterable[tuple[str | None, pa.Table]]) -> list[StagedFile]:
        """Write the rows of each experiment as a file; its partition keys are in its path, not in it."""
        tables, staged = dict[str, pa.Table](), list[StagedFile]()
        for experiment, table in pieces:
            # All 128 bits: with 32, two of 10,000 files have the same name once in a hundred runs.
            name = f"part-{self.run_id}-{uuid.uuid4().hex}.parquet"
            columns = [c for c in table.column_names if c not in (sch.EXPERIMENT, sch.DATE, eng.ORDER)]
            tables[f"{self.folder}/{name}"] = table.select(columns + [sch.EXPERIMENT] * self.whole)
            total = pc.sum(table[self.total]).as_py() if self.total else 0
            staged.append(StagedFile(experiment, name, table.num_rows, int(total or 0)))
        self.files.write_tables(tables)
        return staged


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.Table]]:
    """Tables of one experiment each, with at most about ``ROWS_PER_FILE`` rows, from sorted batches."""
    pieces: list[pa.Table] = []
    for batch in batches:
        for experiment, piece in by_experiment(pa.Table.from_batches([batch])):
            if pieces and (_first(pieces[0]) != experiment or sum(map(len, pieces)) >= ROWS_PER_FILE):
                yield _first(pieces[0]), pa.concat_tables(pieces)
                pieces = []
            pieces.append(piece)
    if pieces:
        yield _first(pieces[0]), pa.concat_tables(pieces)


def _first(table: pa.Table) -> str | None:
    return table[sch.EXPERIMENT][0].as_py()  # type: ignore[no-any-return]


def by_experiment(table: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """Slices of adjacent rows with the same experiment."""
    if not table.num_rows:
        return
    codes = table[sch.EXPERIMENT].combine_chunks().dictionary_encode(null_encoding="encode")
    codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
    indices = codes.indices.to_numpy(zero_copy_only=False)
    starts = [0, *(int(i) + 1 for i in (indices[1:] != indices[:-1]).nonzero()[0])]
    names = codes.dictionary.to_pylist()
    for start, end in zip(starts, [*starts[1:], len(indices)], strict=True):
        yield names[int(indices[start])], table.slice(start, end - start)


ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class Partitions:
    """The partitions of a table that a run replaces: some experiments on one date.

    Attributes:
        date: Evaluation date, ISO.
        filled: Experiments that have rows in this run.
        emptied: Experiments that have none in this run; their rows from earlier runs are removed.
        most: Rows of the largest experiment; above a million, they are spread over several files.
        few: Whether one process may write all rows of the table.
    """

    date: str
    filled: Sequence[str | None]
    emptied: Sequence[str | None] = ()
    most: int = 1
    few: bool = True

    @cached_property
    def experiments(self) -> list[str | None]:
        """All experiments as they are stored: a partition value cannot be empty, so "" is stored as null."""
        return list(dict.fromkeys(name or None for name in (*self.filled, *self.emptied)))

    def condition(self, date: Column | None = None) -> Column:
        """True for the rows of a table that belong to these partitions; ``date`` is the date in the table's type."""
        # Not isin: with a null among the values, Iceberg 1.11 fails.
        same = [F.col(sch.EXPERIMENT).eqNullSafe(F.lit(name)) for name in self.experiments]
        return (F.col(sch.DATE) == (self.date if date is None else date)) & any_of(same)

    def prepared(self, rows: DataFrame) -> DataFrame:
        """The rows with their date, arranged for about one file per experiment."""
        key = rows.columns[1]
        files = max(1, -(-self.most // ROWS_PER_FILE))
        file = F.pmod(F.xxhash64(key), F.lit(files))
        with_date = self.stored(rows).withColumn(sch.DATE, F.lit(self.date))
        return eng.in_order(with_date, [F.col(sch.EXPERIMENT), file], [sch.EXPERIMENT, key])

    def stored(self, rows: DataFrame) -> DataFrame:
        """The rows with their experiment as it is stored: a partition value cannot be empty, so "" becomes null."""
        return rows.withColumn(sch.EXPERIMENT, F.when(F.col(sch.EXPERIMENT) != "", F.col(sch.EXPERIMENT)))


def any_of(conditions: list[Column]) -> Column:
    """True where any condition is true."""
    # A balanced tree: Spark walks through a condition recursively, and a chain of thousands is too deep.
    while len(conditions) > 1:
        pairs = zip(conditions[::2], conditions[1::2], strict=False)
        unpaired = conditions[-1:] if len(conditions) % 2 else []
        conditions = [left | right for left, right in pairs] + unpaired
    return conditions[0] if conditions else F.lit(False)


@dataclass(frozen=True)
class Written:
    """A table of a run that is complete, but not published yet.

    Attributes:
        table: Name of the table.
        rows: Its rows, to compute from.
        partitions: The partitions that it will replace.
        files: The staged files, where Python reaches them.
        counts: Experiment -> rows.
        totals: Experiment -> sum of the column ``total`` of ``Store.write``.
        here: The rows as a table of PyArrow, if they are few and this process has written them.
    """

    table: str
    rows: DataFrame
    partitions: Partitions
    files: tuple[StagedFile, ...] = ()
    counts: Mapping[str | None, int] = field(default_factory=dict)
    totals: Mapping[str | None, int] = field(default_factory=dict)
    here: Any = None

    @classmethod
    def of_files(cls, table: str, rows: DataFrame, partitions: Partitions, files: Sequence[StagedFile]) -> "Written":
        """A table with the row counts of its staged files."""
        counts: Counter[str | None] = Counter()
        totals: Counter[str | None] = Counter()
        for file in files:
            counts[file.experiment] += file.rows
            totals[file.experiment] += file.total
        return cls(table, rows, partitions, tuple(files), dict(counts), dict(totals))

    @cached_property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.counts.values())

    def without(self, experiments: Collection[str]) -> "Written":
        """The table without some experiments, whose partitions stay as they are."""

        def kept(names: Iterable[str | None]) -> list[str | None]:
            return [name for name in names if name not in experiments]

        filled, emptied = kept(self.partitions.filled), kept(self.partitions.emptied)
        names = pa.array([*experiments], pa.string())
        return replace(
            self,
            rows=self.rows.where(F.col(sch.EXPERIMENT).isNull() | ~F.col(sch.EXPERIMENT).isin([*experiments])),
            partitions=replace(self.partitions, filled=filled, emptied=emptied),
            files=tuple(file for file in self.files if file.experiment not in experiments),
            counts={name: self.counts[name] for name in kept(self.counts)},
            here=self.here and self.here.filter(pc.invert(pc.is_in(self.here[sch.EXPERIMENT], names))),
        )

    def rows_here(self) -> list[dict[str, Any]] | None:
        """The rows, if this process has them."""
        return None if self.here is None else self.here.to_pylist()


def rows_of_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of PyArrow as one of Spark; Spark 3.5 makes none of it."""
    kinds = {"double": "double", "date32[day]": "date"}
    schema = ", ".join(f"{field.name} {kinds.get(str(field.type), 'string')}" for field in table.schema)
    return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)


def count_rows(written: Written, total: str | None = None) -> Written:
    """The table with its counts, by reading it."""
    sums = F.sum(total) if total else F.lit(0)
    groups = written.rows.groupBy(sch.EXPERIMENT).agg(F.count(F.lit(1)).alias("n"), sums.alias("total"))
    rows = [(row[0], row["n"], row["total"]) for row in eng.few_rows(groups)]
    counts, totals = ({name: values[i] for name, *values in rows} for i in (0, 1))
    return replace(written, counts=counts, totals=totals)


#: Most rows of a table that one process splits into files; for more, the tasks of Spark do it.
MOST_ROWS = 500_000


class Store(Protocol):
    """A place that holds the tables of runs, partitioned by experiment and date, with staging and run records.

    Attributes:
        spark: The session.
        path: The folder, or the schema of a catalog.
        run_id: Name of the run.
        by_date: Whether small tables are not partitioned by experiment.
    """

    spark: SparkSession
    path: str
    run_id: str
    by_date: bool

    def name_of(self, table: str) -> str:
        """The full name of a table, for SQL and for messages."""

    def existing(self, table: str) -> DataFrame | None:
        """The rows of a table that are published, or None if it does not exist."""

    def exists(self, table: str) -> bool:
        """Whether a table was written; it opens no file."""

    def days(self, table: str, pointers: Pointers, schema: T.StructType) -> DataFrame | None:
        """The rows that these pointers name, with these columns, null where a date lacks one; None if there are none.

        Reading them later gives these rows or fails, even if a run replaces them meanwhile.
        """

    def pointer(self, date: str) -> Pointer | None:
        """What is published on a date; None if nothing is."""
        return self.pointers().get(date)

    def pointers(self) -> dict[str, Pointer]:
        """Date -> what is published there."""

    def check(self) -> None:
        """Refuse a place that cannot be written, before anything is computed."""

    def claim(self, partitions: Partitions) -> None:
        """Reserve partitions until ``release``; commits of a table format tell two runs apart, see ``intact``."""
        return

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to the staging of this run, as they are; return them as written."""

    def write(self, table: str, rows: DataFrame, partitions: Partitions, total: str | None = None) -> Written:
        """Write the rows of a table beside it, with counts per experiment; nothing is published."""

    def publish(self, written: Sequence[Written], entry: Entry, date: str) -> None:
        """Put tables in place, then let the pointer of the date name this run.

        Every table that is not among them loses the rows of these experiments.
        """

    def result(self, written: Written) -> DataFrame:
        """The rows of a table that this run has published, read back lazily."""

    def discard(self, like: DataFrame | None = None) -> None:
        """Remove the staging. ``like`` is any table; its schema is used where only an empty file can be left."""

    def release(self) -> None:
        """Give back what was reserved, when the end of the run is on record."""
        return

    def note(self, record: Mapping[str, Any]) -> None:
        """Write the record of a run that has not ended, where that costs next to nothing."""
        return

    def record(self, record: Mapping[str, Any]) -> str:
        """Write the run record; return where it is."""

    def refuse(self, run: str, checks: pa.Table) -> None:
        """Write what was checked by a run that published nothing."""

    def records(self) -> list[str]:
        """The texts of all run records."""

    def write_page(self, text: str) -> str | None:
        """Write a page beside the run record; return its path, or None in a place without files that people open."""
        return None


def as_json(record: Mapping[str, Any]) -> str:
    """The run record as text, with sorted keys; the key of rows without an experiment is their partition folder."""
    return sealed(_sorted(record), indent=2)


def _sorted(value: Any) -> Any:
    """The value with the keys of every mapping in order."""
    if isinstance(value, Mapping):
        return {sch.NULL_PARTITION if key is None else key: _sorted(value[key]) for key in sorted(value, key=str)}
    return value


# ---- ``refused_checks``: the checks of runs that published nothing, and why, so that an alert can ask for them

_KINDS = {"string": pa.string(), "double": pa.float64()}
#: The columns of ``checks``, with the date, which is in no folder here.
SCHEMA = pa.schema([*((name, _KINDS[kind]) for name, kind in sch.CHECK_COLUMNS.items()), (sch.DATE, pa.date32())])
#: Stands for a run where none was refused yet: its file has no row, so that every reader finds the table.
NO_RUN = "none"


def refused_checks(record: Mapping[str, Any]) -> pa.Table:
    """The rows of a run that failed: one named ``run`` with its exit code and its sentence, then what was checked."""
    error = record["error"]
    run = sch.Check("run", sch.FAIL, error["message"], observed=float(error["exit_code"])).as_row()
    of_day = day.fromisoformat(record[sch.DATE])
    return pa.Table.from_pylist([{**row, sch.DATE: of_day} for row in (run, *record.get("checks", ()))], SCHEMA)


def refuse(store: Store, record: Mapping[str, Any]) -> None:
    """Write the checks of a run that published nothing, and its record, which has their digest."""
    store.refuse(record[sch.RUN], refused_checks(record))
    store.record(record)


def refuse_on_disk(path: str | None, record: Mapping[str, Any]) -> None:
    """The same without an engine, if the output is a folder of this machine."""
    files = of_disk(path) if path else None
    if files is not None:
        files.write(record_path(record[sch.RUN]), as_json(record) + "\n")
        files.write_table(f"{refused_folder(record[sch.RUN])}/part-{record[sch.RUN]}.parquet", refused_checks(record))


def begin(store: Store) -> None:
    """Make the table where no run was refused yet."""
    if not store.exists(REFUSED):
        store.refuse(NO_RUN, SCHEMA.empty_table())
