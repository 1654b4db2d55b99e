"""Tables in Delta or Iceberg: each write is one commit that replaces a run's partitions and changes nothing else."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.few_rows import few_rows
from rankmetrics_spark.pointers import FOLDER as POINTERS
from rankmetrics_spark.pointers import Entry, Pointer, newest
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION, RUN, quoted
from rankmetrics_spark.sinks.commits import commit, explain, is_missing, is_not_set_up, shares_file
from rankmetrics_spark.sinks.folder import Folder
from rankmetrics_spark.sinks.leases import lives, who
from rankmetrics_spark.sinks.partitions import Partitions, Written, as_json, counted
from rankmetrics_spark.sinks.reading import pointers_of, published, rows_by
from rankmetrics_spark.sinks.swapping import TABLES

_IS_NEW = "__new"
_HOLDER = "rankmetrics.holder"
_DAY = 86_400.0
ATTEMPTS = 3
"""How often the tables are written at most when another run replaces the same partitions at the same time."""


class _SqlTables(ABC):
    """The tables of a run under their SQL names. Each row holds the id of the run that wrote it."""

    spark: SparkSession
    path: str
    run_id: str
    format: str

    @abstractmethod
    def name_of(self, table: str) -> str:
        """The SQL name of a table."""

    def current(self, table: str) -> DataFrame | None:
        """The table as it is now, from any run, or None if it does not exist.

        Raises:
            OutputError: The session is not set up for the format, or the catalog refuses the request.
        """
        name = self.name_of(table)
        try:
            if self.format == "iceberg":
                # Iceberg's catalog caches tables: without a refresh, commits of other sessions show up late.
                self.spark.catalog.refreshTable(name)
            found = self.spark.table(name)
            found.schema  # noqa: B018  # Spark Connect looks up a table only when its schema is requested.
        except AnalysisException as error:
            if is_missing(error):
                return None
            explain(self.format, name, error)
            raise
        return found

    def existing(self, table: str) -> DataFrame | None:
        """The rows of a table that are published, or None if it does not exist.

        Raises:
            OutputError: The session is not set up for the format, or the catalog refuses the request.
        """
        found, known = self.current(table), self.pointers()
        if found is None or not known:
            return found
        return published(found, table, known, lambda version: self.at_version(table, version))

    def pointer(self, date: str) -> Pointer | None:
        """What is published on a date, or None."""
        return self.pointers().get(date)

    @abstractmethod
    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""

    @abstractmethod
    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer of a date, at once."""

    @abstractmethod
    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to the staging of this run, as they are; return them as written."""

    def write(self, table: str, rows: DataFrame, partitions: Partitions, total: str | None = None) -> Written:
        """Write the rows of a table beside it, with counts per experiment; nothing is published.

        Args:
            table: Name of the table, such as ``user_metrics``.
            rows: All rows of these partitions. The second column spreads and sorts the rows of an experiment.
            partitions: What is going to be replaced; every other row stays as it is.
            total: A column whose sum per experiment is wanted.

        Raises:
            OutputError: The staging cannot be written.
        """
        if not partitions.filled:
            return Written(table, rows, partitions)
        return counted(Written(table, self.stage(partitions.stored(rows), table), partitions), total)

    def publish(self, written: Sequence[Written], entry: Entry, date: str) -> None:
        """Replace the partitions of each table in one commit, then let the pointer of the date name the versions.

        Until the pointer is written, readers who follow it read the earlier versions.

        Args:
            written: The staged tables; every table that is not among them loses the rows of these experiments.
            entry: The run and its experiments.
            date: Evaluation date, ISO.

        Raises:
            OutputError: A table cannot be written, or other runs keep replacing the same experiments.
        """
        gone = {table for table in TABLES if self.current(table) is not None} - {one.table for one in written}
        nothing = Partitions(date, (), entry.experiments)
        everything = [*written, *(Written(table, written[0].rows, nothing) for table in sorted(gone))]
        for _ in range(ATTEMPTS):
            for one in everything:
                self._commit(one)
            if self.intact(written[0].partitions) and self._point(date, entry):
                return
        raise OutputError(
            f"other runs keep replacing the same experiments of {date} in {self.path}; "
            "run this again when they have ended"
        )

    def _point(self, date: str, entry: Entry) -> bool:
        """Write the pointer of a date; False if another run has replaced rows of this one.

        If another run has written the pointer meanwhile, look again.
        """
        for _ in range(ATTEMPTS):
            there = self.pointer(date)
            before = there or self._first_pointer(date, entry)
            after = self._with_versions(before.with_run(entry))
            if self.pointer(date) == there:
                break
        mine = after.entries[0]
        if any(sum(mine.counted(table) or ()) != entry.tables.get(table, {}).get("rows", 0) for table in mine.tables):
            return False
        self.write_pointer(after)
        return True

    @abstractmethod
    def records(self) -> list[str]:
        """The texts of all run records."""

    def _first_pointer(self, date: str, entry: Entry) -> Pointer:
        """What earlier versions of this package have written on a date, without a pointer."""
        found = self.current("user_metrics")
        if found is None:
            return Pointer(date)
        # Their records were written at the end. A run that is just publishing, or was killed, is not one of them.
        records = map(json.loads, self.records())
        done = {record.get(RUN) for record in records if record.get("outcome", "done") == "done"}
        there = found.where((F.col(DATE) == date) & F.col(RUN).isNotNull()).select(RUN, EXPERIMENT).distinct()
        runs: dict[str, list[str | None]] = {}
        for row in few_rows(there):
            if row[0] in done:
                runs.setdefault(row[0], []).append(row[1])
        return Pointer(date, tuple(Entry(run, tuple(sorted(names, key=str))) for run, names in sorted(runs.items())))

    def _with_versions(self, pointer: Pointer) -> Pointer:
        """The pointer with a version of each table for each run that holds its rows that count, and their numbers.

        This is the version of now, except for rows that another run has replaced meanwhile without getting as far as
        its own pointer: these are read from the version that the pointer before named.
        """
        entries = list(pointer.entries)
        for table in TABLES:
            version = self.version(table)
            if version is None:
                continue
            n = rows_by(self.at_version(table, version), {pointer.date: pointer}, EXPERIMENT)
            for place, entry in enumerate(entries):
                now = [n.get((entry.run_id, name), 0) for name in entry.experiments]
                known = entry.counted(table) if place else None
                counted, holder = (now, version) if known in (None, now) else (known, entry.tables[table]["version"])
                facts = {
                    **entry.tables.get(table, {}),
                    "rows": sum(counted or ()),
                    "version": holder,
                    "counted": counted,
                }
                entries[place] = replace(entry, tables={**entry.tables, table: facts})
        return replace(pointer, entries=tuple(entries), format=self.format)

    def version(self, table: str) -> int | None:
        """The version of a table as it is now; None if it does not exist."""
        if self.current(table) is None:
            return None
        name = self.name_of(table)
        if self.format == "iceberg":
            row = self.spark.sql(f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'").first()
        else:
            row = self.spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version").first()
        return None if row is None else int(row[0])

    def at_version(self, table: str, version: int) -> DataFrame:
        """The table as it was."""
        return self.spark.sql(f"SELECT * FROM {self.name_of(table)} VERSION AS OF {int(version)}")

    def _commit(self, written: Written) -> None:
        """Replace the partitions of a table with the staged rows in one commit."""
        marked = written.partitions.prepared(written.rows).withColumn(RUN, F.lit(self.run_id))
        name = self.name_of(written.table)
        commit(self.format, name, lambda: self._replace(written.table, marked, written.partitions))

    def result(self, written: Written) -> DataFrame:
        """The rows of a table that this run has published, read back lazily."""
        found = self.current(written.table)
        if found is None or not written.partitions.filled:
            return self.spark.createDataFrame([], written.rows.schema)
        mine = found.where((F.col(DATE) == written.partitions.date) & (F.col(RUN) == self.run_id))
        return mine.select(*(column for column in written.rows.columns if column not in PARTITION), *PARTITION)

    def intact(self, partitions: Partitions) -> bool:
        """Whether the user and experiment metrics in these partitions are from this run, for the same experiments.

        A run writes one table after another and checks at the end. If two runs overlap, the one that wrote
        ``user_metrics`` first finds the rows of the other there, in whatever order the other tables were written.
        """
        users, averages = (self._writers(table, partitions) for table in ("user_metrics", "experiment_metrics"))
        return users == averages and {run for _, run in users} <= {self.run_id}

    def _writers(self, table: str, partitions: Partitions) -> set[tuple[str | None, str | None]]:
        """Every (experiment, run id) that these partitions hold."""
        found = self.current(table)
        if found is None:
            return set()
        writers = found.where(partitions.condition()).select(EXPERIMENT, RUN).distinct()
        return {(row[EXPERIMENT], row[RUN]) for row in few_rows(writers)}

    def _replace(self, table: str, rows: DataFrame, partitions: Partitions) -> None:
        """One attempt to replace the partitions; creates the table if it does not exist."""
        name, old = self.name_of(table), self.current(table)
        if old is None:
            if not partitions.filled:
                return
            old = self._created(name, rows, PARTITION)
        rows = self._aligned(name, rows, old.schema)
        if not partitions.filled:
            if old.where(partitions.condition()).isEmpty():
                return
            rows = self.spark.createDataFrame([], rows.schema)
        try:
            rows.writeTo(name).overwrite(partitions.condition())
        except Exception as error:
            if not shares_file(error):
                raise
            self._merge(name, rows, partitions)

    def _created(self, name: str, rows: DataFrame, partition: tuple[str, ...] = ()) -> DataFrame:
        """A new table without rows. Partitioning is set only here: afterwards, the table's owner may change it."""
        writer = rows.limit(0).writeTo(name).using(self.format)
        if partition:
            writer = writer.partitionedBy(*map(F.col, partition))
        writer.create()
        return self.spark.table(name)

    def _aligned(self, name: str, rows: DataFrame, schema: T.StructType) -> DataFrame:
        """Add new columns of ``rows`` to the table; return the rows with every column of the table, null if new."""
        old, given = _lower(schema.names), _lower(rows.columns)
        added = [field for field in rows.schema.fields if field.name.lower() not in old]
        if added:
            columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in added)
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
        missing = [field for field in schema.fields if field.name.lower() not in given]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in missing))

    def _merge(self, name: str, rows: DataFrame, partitions: Partitions) -> None:
        """Replace in one commit where a file also holds rows of other partitions; Iceberg's overwrite refuses that.

        This happens when the owner does not partition the table by experiment and date. It is slower: such files are
        rewritten.
        """
        keys = [(experiment, partitions.date) for experiment in partitions.experiments]
        old = self.spark.createDataFrame(keys, "old string, day string").toDF(*PARTITION)
        columns = ", ".join(map(quoted, rows.columns))
        view = f"rankmetrics_{uuid.uuid4().hex}"
        changes = rows.withColumn(_IS_NEW, F.lit(True)).unionByName(
            old.withColumn(_IS_NEW, F.lit(False)), allowMissingColumns=True
        )
        changes.createOrReplaceTempView(view)
        try:
            self.spark.sql(f"""
                MERGE INTO {name} AS t USING {view} AS s
                ON NOT s.{_IS_NEW} AND t.{DATE} = '{partitions.date}' AND t.{EXPERIMENT} <=> s.{EXPERIMENT}
                WHEN MATCHED THEN DELETE
                WHEN NOT MATCHED AND s.{_IS_NEW} THEN INSERT ({columns})
                VALUES ({", ".join(f"s.{quoted(column)}" for column in rows.columns)})
            """)
        finally:
            self.spark.catalog.dropTempView(view)


def _lower(names: list[str]) -> set[str]:
    """Column names without case: upper and lower case are the same to Spark."""
    return {name.lower() for name in names}


class DeltaFolder(_SqlTables, Folder):
    """Delta tables in a folder, with the staging and run records of any folder."""

    format = "delta"
    files_name_runs = False

    def claim(self, partitions: Partitions) -> None:
        """Do nothing: commits of the table format tell two runs apart; see ``intact``."""

    def name_of(self, table: str) -> str:
        """The SQL name of a table: ``delta.`` and its path, which Delta requires to be absolute."""
        folder = local_path(self.path)
        path = self.path if folder is None or self.path.startswith("file:") else str(folder.absolute())
        return f"delta.{quoted(f'{path}/{table}')}"

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        return pointers_of(self.spark, self.path)

    def records(self) -> list[str]:
        """The texts of all run records."""
        return Folder.records(self)

    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer of a date, at once where Python reaches the folder."""
        self.write_file(f"{POINTERS}/{pointer.date}.json", pointer.as_json())

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Check that the session can use Delta, then write rows to the staging; return them as written.

        Raises:
            OutputError: The session was started without Delta.
        """
        try:
            self.spark.read.format("delta").load(self.path).schema  # noqa: B018
        except Exception as error:  # expected: there is no table at this path
            if is_not_set_up(error):
                explain(self.format, self.name_of("user_metrics"), error)
        return Folder.stage(self, rows, name)


@dataclass(frozen=True)
class CatalogSchema(_SqlTables):
    """Tables in a schema of a catalog (Unity Catalog, Hive, Iceberg, ...), including staging and run records.

    Attributes:
        spark: The session.
        path: SQL name of the schema.
        run_id: Name of the run.
        format: ``delta`` or ``iceberg``.
    """

    spark: SparkSession
    path: str
    run_id: str
    format: str

    def name_of(self, table: str) -> str:
        """The SQL name of a table in the schema."""
        return f"{self.path}.{table}"

    def check(self) -> None:
        """Remove what killed runs have left."""
        # Looking up a table, as every run does, tells whether the catalog is there.
        with suppress(Exception):
            self._drop(self._is_dead)

    def claim(self, partitions: Partitions) -> None:
        """Do nothing: commits of the table format tell two runs apart; see ``intact``."""

    def _staging_of(self, name: str) -> str:
        return self.name_of(f"staging_{self.run_id.replace('-', '_')}_{name}")

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to a staging table of this run; return them as written.

        Raises:
            OutputError: The catalog refuses the table.
        """
        place = self._staging_of(name)
        # The next run asks the table whether its run still lives.
        writer = (
            rows.writeTo(place).using(self.format).tableProperty(_HOLDER, json.dumps(who() | {"beat": time.time()}))
        )
        commit(self.format, place, writer.createOrReplace)
        return self.spark.table(place)

    def discard(self, like: DataFrame | None = None) -> None:
        """Drop the staging tables, also those that a server has made for a killed run; ``like`` is not used."""
        # Some catalogs keep names in lower case.
        mine = self.run_id.replace("-", "_").lower()
        self._drop(lambda name: mine in name.lower())
        self._drop(self._is_dead)

    def _is_dead(self, name: str) -> bool:
        """Whether the run of a staging table was killed: on this machine at once, elsewhere after a day."""
        found = (
            self.spark.sql(f"SHOW TBLPROPERTIES {self.name_of(quoted(name))}").where(F.col("key") == _HOLDER).first()
        )
        return found is not None and not lives(json.loads(found["value"]), _DAY)

    def _drop(self, chosen: Callable[[str], bool]) -> None:
        """Drop staging tables; where that fails, a later run does it."""
        with suppress(Exception):  # classic sessions raise a class of py4j
            found = self.spark.sql(f"SHOW TABLES IN {self.path} LIKE 'staging_*'").select("tableName")
            for (name,) in few_rows(found):
                if chosen(name):
                    # Without PURGE an Iceberg catalog may keep the files; Unity Catalog does not have the word.
                    purge = " PURGE" if self.format == "iceberg" else ""
                    self.spark.sql(f"DROP TABLE IF EXISTS {self.name_of(quoted(name))}{purge}")

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        found = self.current(POINTERS)
        return {} if found is None else newest(row[0] for row in few_rows(found.select("pointer")))

    def write_pointer(self, pointer: Pointer) -> None:
        """Replace the pointer of a date in the table ``published``, in one commit."""
        rows = [(pointer.date, pointer.entries[0].run_id, pointer.as_json())]
        table = self.spark.createDataFrame(rows, f"{DATE} string, {RUN} string, pointer string")
        self._write_rows(
            POINTERS, table, lambda: table.writeTo(self.name_of(POINTERS)).overwrite(F.col(DATE) == pointer.date)
        )

    def record(self, record: Mapping[str, Any]) -> str:
        """Append the run record as one row to the table ``runs``; return the name of that table.

        Raises:
            OutputError: The table cannot be written, or other runs commit to it during every attempt.
        """
        row = [(self.run_id, str(record[DATE]), as_json(record))]
        rows = self.spark.createDataFrame(row, f"{RUN} string, {DATE} string, record string")
        self._write_rows("runs", rows, lambda: rows.writeTo(self.name_of("runs")).append())
        return self.name_of("runs")

    def note(self, record: Mapping[str, Any]) -> None:
        """Do nothing: a record in a catalog is written once, when the run has ended."""

    def _write_rows(self, table: str, rows: DataFrame, write: Callable[[], None]) -> None:
        def work() -> None:
            if self.current(table) is None:
                # Partitioned by date: Delta and Iceberg replace the row of a date without touching the others.
                self._created(self.name_of(table), rows, (DATE,) if table == POINTERS else ())
            write()

        commit(self.format, self.name_of(table), work)

    def records(self) -> list[str]:
        """The texts of all run records."""
        found = self.current("runs")
        return [] if found is None else [row[0] for row in few_rows(found.select("record"))]
