"""Delta and Iceberg tables, and a schema of a catalog that holds them.

Each write is one commit that replaces a run's partitions and nothing else.
"""

import json
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date as day
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import doors, engines as eng, errors as err
from rankmetrics_spark.pointers import FOLDER, REFUSED, Entry, Pointer, Pointers, newest
from rankmetrics_spark.schemas import DATE, EXPERIMENT, OF_DATES, PARTITION, RUN, SMALL_TABLES, quoted
from rankmetrics_spark.sinks import claims, partitions as pt, reading
from rankmetrics_spark.sinks.swapping import TABLES

#: How often the tables or a pointer are written at most when another run does the same at the same time.
ATTEMPTS = 3


def point(tables: "SqlTables", date: str, entry: Entry) -> bool:
    """Write the pointer of a date; False if another run has replaced rows of this one.

    If another run has written the pointer meanwhile, look again.
    """
    for _ in range(ATTEMPTS):
        stored = tables.pointer(date)
        updated = _with_versions(tables, (stored or Pointer(date)).with_run(entry))
        if tables.pointer(date) == stored:
            break
    current = updated.entries[0]
    if any(sum(current.counted(table) or ()) != entry.tables.get(table, {}).get("rows", 0) for table in current.tables):
        return False
    tables.write_pointer(updated)
    return True


def _with_versions(tables: "SqlTables", pointer: Pointer) -> Pointer:
    """The pointer with, for each run and table, the version that holds the run's rows, and their numbers.

    This is the current version, except for rows that another run has replaced meanwhile without writing its own
    pointer: these are read from the version in the pointer so far.
    """
    entries = list(pointer.entries)
    for table in TABLES:
        version = tables.version(table)
        if version is None:
            continue
        n = reading.rows_by(tables.at_version(table, version), {pointer.date: pointer}, EXPERIMENT)
        for i, entry in enumerate(entries):
            now = [n.get((entry.run_id, name), 0) for name in entry.experiments]
            earlier = entry.counted(table) if i else None
            counted, holder = (now, version) if earlier in (None, now) else (earlier, entry.tables[table]["version"])
            facts = {**entry.tables.get(table, {}), "rows": sum(counted or ()), "version": holder, "counted": counted}
            entries[i] = replace(entry, tables={**entry.tables, table: facts})
    return replace(pointer, entries=tuple(entries), format=tables.format)


class SqlTables(pt.Store):
    """The tables of a run under their SQL names. Each row holds the id of the run that wrote it."""

    format: str

    def current(self, table: str) -> DataFrame | None:
        """The current table, of all runs, or None if it does not exist."""
        name = self.name_of(table)
        try:
            if self.format == "iceberg":
                # Iceberg's catalog caches tables: without a refresh, commits of other sessions show up late.
                self.spark.catalog.refreshTable(name)
            rows = self.spark.table(name)
            rows.schema  # noqa: B018  # Spark Connect looks up a table only when its schema is requested.
        except AnalysisException as error:
            if FAILURES["missing table"].search(str(error)):
                return None
            explain(self.format, name, error)
            raise
        return rows

    def existing(self, table: str) -> DataFrame | None:
        """The rows of a table that are published, or None if it does not exist."""
        pointers = self.pointers()
        version = self.version(table) if pointers else None
        if version is None:
            return self.current(table)
        # Of one version: the current table may be another one when its rows are read.
        rows = self.at_version(table, version)
        return reading.published(rows, table, pointers, partial(self.at_version, table))

    def exists(self, table: str) -> bool:
        """Whether a table was written."""
        return self.current(table) is not None

    def days(self, table: str, pointers: Pointers, schema: T.StructType) -> DataFrame | None:
        """The rows that these pointers name, with these columns; None if there are none."""
        version = self.version(table) if pointers else None
        if version is None:
            return None
        # Of one version: an Iceberg table that is read later may hold what another run has committed meanwhile.
        of_dates = self.at_version(table, version).where(F.col(DATE).isin(*pointers))
        rows = reading.published(of_dates, table, pointers, partial(self.at_version, table))
        known = _lower(rows.columns)
        columns = {name: F.lit(None).cast(schema[name].dataType) for name in schema.names}
        columns |= {name: F.col(quoted(name)) for name in schema.names if name.lower() in known}
        # As text, like the dates of folders: tables of earlier versions have texts too.
        columns |= {EXPERIMENT: F.col(EXPERIMENT), DATE: F.col(DATE).cast("string")}
        return rows.select(*(column.alias(name) for name, column in columns.items()))

    @abstractmethod
    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer of a date, at once."""

    def write(self, table: str, rows: DataFrame, partitions: pt.Partitions, total: str | None = None) -> pt.Written:
        """Write the rows of a table beside it, with counts per experiment; nothing is published."""
        if not partitions.filled:
            return pt.Written(table, rows, partitions)
        return pt.count_rows(pt.Written(table, self.stage(partitions.stored(rows), table), partitions), total)

    def publish(self, written: Sequence[pt.Written], entry: Entry, date: str) -> None:
        """Replace the partitions of each table in one commit, then let the pointer of the date name the versions.

        Until the pointer is written, readers who follow it read the earlier versions.
        """
        unwritten = {table for table in TABLES if self.current(table) is not None} - {table.table for table in written}
        emptied = pt.Partitions(date, (), entry.experiments)
        tables = [*written, *(pt.Written(table, written[0].rows, emptied) for table in sorted(unwritten))]
        for _ in range(ATTEMPTS):
            for table in tables:
                commit(self.format, self.name_of(table.table), partial(replace_rows, self, table))
            if self.intact(written[0].partitions) and point(self, date, entry):
                return
        raise err.OutputError.of("runs_conflict", date=date, path=self.path)

    def version(self, table: str) -> int | None:
        """The current version of a table; None if it does not exist."""
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

    def result(self, written: pt.Written) -> DataFrame:
        """The rows of a table that this run has published, read back lazily."""
        rows = self.current(written.table)
        if rows is None or not written.partitions.filled:
            return self.spark.createDataFrame([], written.rows.schema)
        rows = rows.where((F.col(DATE) == written.partitions.date) & (F.col(RUN) == self.run_id))
        return rows.select(*(column for column in written.rows.columns if column not in PARTITION), *PARTITION)

    def intact(self, partitions: pt.Partitions) -> bool:
        """Whether the user and experiment metrics in these partitions are from this run, for the same experiments.

        A run writes one table after another and checks at the end. If two runs overlap, the one that wrote
        ``user_metrics`` first finds the rows of the other there, in whatever order the other tables were written.
        """
        writers: list[set[tuple[str | None, str | None]]] = []
        for table in ("user_metrics", "experiment_metrics"):
            rows = self.current(table)
            held = None if rows is None else rows.where(partitions.condition()).select(EXPERIMENT, RUN).distinct()
            writers.append(set() if held is None else {(row[EXPERIMENT], row[RUN]) for row in eng.few_rows(held)})
        users, averages = writers
        return users == averages and {run for _, run in users} <= {self.run_id}


_HOLDER = "rankmetrics.holder"
_DAY = 86_400.0


@dataclass(frozen=True)
class CatalogSchema(SqlTables):
    """Tables in a schema of a catalog (Unity Catalog, Hive, Iceberg, ...), including staging and run records.

    Attributes:
        spark: The session.
        path: SQL name of the schema.
        run_id: Name of the run.
        format: ``delta`` or ``iceberg``.
        by_date: Whether small tables are not partitioned by experiment.
    """

    spark: SparkSession
    path: str
    run_id: str
    format: str
    by_date: bool = False

    def name_of(self, table: str) -> str:
        """The SQL name of a table in the schema."""
        return f"{self.path}.{table}"

    def check(self) -> None:
        """Remove what killed runs have left."""
        # Looking up a table, as every run does, tells whether the catalog is there.
        with suppress(Exception):
            self._drop(self._is_dead)

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to a staging table of this run; return them as written."""
        table = self.name_of(f"staging_{self.run_id.replace('-', '_')}_{name}")
        # The next run asks the table whether its run still lives.
        holder = json.dumps(claims.process_identity() | {"beat": time.time()})
        writer = rows.writeTo(table).using(self.format).tableProperty(_HOLDER, holder)
        commit(self.format, table, writer.createOrReplace)
        return self.spark.table(table)

    def discard(self, like: DataFrame | None = None) -> None:
        """Drop the staging tables, also those that a server has made for a killed run; ``like`` is not used."""
        # Some catalogs keep names in lower case.
        run_part = self.run_id.replace("-", "_").lower()
        self._drop(lambda name: run_part in name.lower())
        self._drop(self._is_dead)

    def _is_dead(self, name: str) -> bool:
        """Whether the run of a staging table was killed: on this machine at once, elsewhere after a day."""
        row = self.spark.sql(f"SHOW TBLPROPERTIES {self.name_of(quoted(name))}").where(F.col("key") == _HOLDER).first()
        return row is not None and not claims.lives(json.loads(row["value"]), _DAY)

    def _drop(self, condition: Callable[[str], bool]) -> None:
        """Drop staging tables; where that fails, a later run does it."""
        with suppress(Exception):  # classic sessions raise a class of py4j
            tables = self.spark.sql(f"SHOW TABLES IN {self.path} LIKE 'staging_*'").select("tableName")
            for (name,) in eng.few_rows(tables):
                if condition(name):
                    # Without PURGE an Iceberg catalog may keep the files; Unity Catalog does not have the word.
                    purge = " PURGE" if self.format == "iceberg" else ""
                    self.spark.sql(f"DROP TABLE IF EXISTS {self.name_of(quoted(name))}{purge}")

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        table = self.current(FOLDER)
        return {} if table is None else newest(row[0] for row in eng.few_rows(table.select("pointer")))

    def write_pointer(self, pointer: Pointer) -> None:
        """Replace the pointer of a date in the table ``published``, in one commit."""
        rows = [(pointer.date, pointer.entries[0].run_id, pointer.as_json())]
        table = self.spark.createDataFrame(rows, f"{DATE} string, {RUN} string, pointer string")
        self._write_rows(FOLDER, table, F.col(DATE) == pointer.date)

    def record(self, record: Mapping[str, Any]) -> str:
        """Append the run record as one row to the table ``runs``; return the name of that table."""
        row = [(self.run_id, str(record[DATE]), pt.as_json(record))]
        self._write_rows("runs", self.spark.createDataFrame(row, f"{RUN} string, {DATE} string, record string"))
        return self.name_of("runs")

    def refuse(self, run: str, checks: pa.Table) -> None:
        """Append what was checked by a run that published nothing to a table, with its run."""
        self._write_rows(REFUSED, pt.rows_of_arrow(self.spark, checks).withColumn("run", F.lit(run)))

    def _write_rows(self, table: str, rows: DataFrame, replaced: Column | None = None) -> None:
        """Add rows to a table, which is made if needed, or put them in place of others."""

        def work() -> None:
            if self.current(table) is None:
                # Partitioned by date: Delta and Iceberg replace the row of a date without touching the others.
                create_table(self.name_of(table), self.format, rows, (DATE,) if table == FOLDER else ())
            writer = rows.writeTo(self.name_of(table))
            writer.append() if replaced is None else writer.overwrite(replaced)

        commit(self.format, self.name_of(table), work)

    def records(self) -> list[str]:
        """The texts of all run records."""
        runs = self.current("runs")
        return [] if runs is None else [row[0] for row in eng.few_rows(runs.select("record"))]


#: How often a commit is tried when other runs commit to the same table; each time, one of those has succeeded.
COMMIT_ATTEMPTS = 5

#: What failed -> the patterns of its text: errors of Delta and Iceberg have no Python classes, and on classic sessions
#: all of them are one class of py4j. A folder that is "being filled" will be a Delta table, or holds something else.
FAILURES = {what: re.compile("|".join(patterns)) for what, patterns in doors.data_of(__name__, "failures").items()}
#: Seconds before the next attempt on a table that another run may be creating.
PAUSE = 0.5
# Iceberg refuses to overwrite rows because their file also holds rows that stay.
_SHARED_FILE = "Cannot delete file where some, but not all, rows match"


def is_not_set_up(error: Exception) -> bool:
    """Whether the session was started without the jar or the catalog settings of the format."""
    return bool(FAILURES["not set up"].search(str(error)))


def commit(table_format: str, name: str, work: Callable[[], None]) -> None:
    """Do work that commits to a table; repeat it when another commit came first."""
    for attempt in range(1, COMMIT_ATTEMPTS + 1):
        try:
            return work()
        except Exception as error:  # classic sessions raise a class of py4j
            if FAILURES["being filled"].search(str(error)) and attempt < COMMIT_ATTEMPTS:
                time.sleep(PAUSE)
            elif not FAILURES["conflict"].search(str(error)):
                explain(table_format, name, error)
                raise
    raise err.OutputError.of("commits_conflict", table_format=table_format, name=name, attempts=COMMIT_ATTEMPTS)


def explain(table_format: str, name: str, error: Exception) -> None:
    """Raise an error of one sentence if a user can fix the cause; otherwise return."""
    if is_not_set_up(error):
        cause = f"this session was started without the jar or the catalog settings of {table_format}"
    elif isinstance(error, AnalysisException):
        cause = err.first_sentence(error)
    else:
        return
    raise err.OutputError(f"cannot write the {table_format} table {name}: {cause}") from error


_IS_NEW = "__new"


def replace_rows(tables: SqlTables, written: pt.Written) -> None:
    """One attempt to replace the partitions of a table with the staged rows."""
    name, partitions = tables.name_of(written.table), written.partitions
    rows = partitions.prepared(written.rows).withColumn(RUN, F.lit(tables.run_id))
    old = tables.current(written.table)
    if old is None:
        if not partitions.filled:
            return
        keys = (DATE,) if written.table in (*OF_DATES, *(SMALL_TABLES if tables.by_date else ())) else PARTITION
        old = create_table(name, tables.format, rows.withColumn(DATE, F.col(DATE).cast("date")), keys)
    # The owner of a table, or an earlier version, may have made it with texts, or without this column.
    kind = {field.name.lower(): field.dataType for field in old.schema.fields}.get(DATE, T.DateType())
    rows = rows.withColumn(DATE, F.col(DATE).cast(kind))
    existing, names = _lower(old.schema.names), _lower(rows.columns)
    if new := [field for field in rows.schema.fields if field.name.lower() not in existing]:
        columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in new)
        rows.sparkSession.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
    absent = [field for field in old.schema.fields if field.name.lower() not in names]
    rows = rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in absent))
    # A condition of the table's own type: Iceberg translates no cast.
    of_type = F.lit(day.fromisoformat(partitions.date)) if isinstance(kind, T.DateType) else F.lit(partitions.date)
    condition = partitions.condition(of_type)
    if not partitions.filled:
        if old.where(condition).isEmpty():
            return
        rows = rows.sparkSession.createDataFrame([], rows.schema)
    try:
        rows.writeTo(name).overwrite(condition)
    except Exception as error:
        if _SHARED_FILE not in str(error):
            raise
        _merge(name, rows, partitions)


def create_table(name: str, format: str, rows: DataFrame, partition: tuple[str, ...] = ()) -> DataFrame:
    """A new table without rows. Partitioning is set only here: afterwards, the table's owner may change it."""
    writer = rows.limit(0).writeTo(name).using(format)
    (writer.partitionedBy(*map(F.col, partition)) if partition else writer).create()
    return rows.sparkSession.table(name)


def _merge(name: str, rows: DataFrame, partitions: pt.Partitions) -> None:
    """Replace in one commit where a file also holds rows of other partitions; Iceberg's overwrite refuses that.

    This happens when the owner does not partition the table by experiment and date. It is slower: such files are
    rewritten.
    """
    spark = rows.sparkSession
    keys = [(experiment, partitions.date) for experiment in partitions.experiments]
    old = spark.createDataFrame(keys, "old string, day string").toDF(*PARTITION)
    old = old.withColumn(DATE, F.col(DATE).cast(rows.schema[DATE].dataType)).withColumn(_IS_NEW, F.lit(False))
    columns = ", ".join(map(quoted, rows.columns))
    view = f"rankmetrics_{uuid.uuid4().hex}"
    changes = rows.withColumn(_IS_NEW, F.lit(True)).unionByName(old, allowMissingColumns=True)
    changes.createOrReplaceTempView(view)
    try:
        spark.sql(f"""
            MERGE INTO {name} AS t USING {view} AS s
            ON NOT s.{_IS_NEW} AND t.{DATE} = '{partitions.date}' AND t.{EXPERIMENT} <=> s.{EXPERIMENT}
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED AND s.{_IS_NEW} THEN INSERT ({columns})
            VALUES ({", ".join(f"s.{quoted(column)}" for column in rows.columns)})
        """)
    finally:
        spark.catalog.dropTempView(view)


def _lower(names: list[str]) -> set[str]:
    """Column names without case: upper and lower case are the same to Spark."""
    return {name.lower() for name in names}
