"""The sinks in Delta and Iceberg: a folder of Delta tables, and a schema of a catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark.config import local_path
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.pointers import FOLDER as POINTERS
from rankmetrics_spark.pointers import Pointer, newest
from rankmetrics_spark.schemas import DATE, RUN, quoted
from rankmetrics_spark.sinks.claims import lives, process_identity
from rankmetrics_spark.sinks.parquet import Folder
from rankmetrics_spark.sinks.partitions import as_json
from rankmetrics_spark.sinks.reading import pointers_of
from rankmetrics_spark.sinks.sql_tables import SqlTables, commit, create_table, explain, is_not_set_up

_HOLDER = "rankmetrics.holder"
_DAY = 86_400.0


class DeltaFolder(SqlTables, Folder):
    """Delta tables in a folder, with the staging and run records of any folder."""

    format = "delta"
    files_name_runs = False

    def name_of(self, table: str) -> str:
        """The SQL name of a table: ``delta.`` and its path, which Delta requires to be absolute."""
        folder = local_path(self.path)
        path = self.path if folder is None or self.path.startswith("file:") else str(folder.absolute())
        return f"delta.{quoted(f'{path}/{table}')}"

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        return pointers_of(self.spark, self.path)

    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer of a date, at once where Python reaches the folder."""
        self.write_file(f"{POINTERS}/{pointer.date}.json", pointer.as_json())

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Check that the session can use Delta, then write rows to the staging; return them as written."""
        try:
            self.spark.read.format("delta").load(self.path).schema  # noqa: B018
        except Exception as error:  # expected: there is no table at this path
            if is_not_set_up(error):
                explain(self.format, self.name_of("user_metrics"), error)
        return Folder.stage(self, rows, name)


@dataclass(frozen=True)
class CatalogSchema(SqlTables):
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

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to a staging table of this run; return them as written."""
        table = self.name_of(f"staging_{self.run_id.replace('-', '_')}_{name}")
        # The next run asks the table whether its run still lives.
        writer = (
            rows.writeTo(table)
            .using(self.format)
            .tableProperty(_HOLDER, json.dumps(process_identity() | {"beat": time.time()}))
        )
        commit(self.format, table, writer.createOrReplace)
        return self.spark.table(table)

    def discard(self, like: DataFrame | None = None) -> None:
        """Drop the staging tables, also those that a server has made for a killed run; ``like`` is not used."""
        # Some catalogs keep names in lower case.
        run_part = self.run_id.replace("-", "_").lower()
        self._drop(lambda name: run_part in name.lower())
        self._drop(self._is_dead)

    def release(self) -> None:
        """Do nothing: nothing is claimed."""

    def _is_dead(self, name: str) -> bool:
        """Whether the run of a staging table was killed: on this machine at once, elsewhere after a day."""
        row = self.spark.sql(f"SHOW TBLPROPERTIES {self.name_of(quoted(name))}").where(F.col("key") == _HOLDER).first()
        return row is not None and not lives(json.loads(row["value"]), _DAY)

    def _drop(self, condition: Callable[[str], bool]) -> None:
        """Drop staging tables; where that fails, a later run does it."""
        with suppress(Exception):  # classic sessions raise a class of py4j
            tables = self.spark.sql(f"SHOW TABLES IN {self.path} LIKE 'staging_*'").select("tableName")
            for (name,) in few_rows(tables):
                if condition(name):
                    # Without PURGE an Iceberg catalog may keep the files; Unity Catalog does not have the word.
                    purge = " PURGE" if self.format == "iceberg" else ""
                    self.spark.sql(f"DROP TABLE IF EXISTS {self.name_of(quoted(name))}{purge}")

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        table = self.current(POINTERS)
        return {} if table is None else newest(row[0] for row in few_rows(table.select("pointer")))

    def write_pointer(self, pointer: Pointer) -> None:
        """Replace the pointer of a date in the table ``published``, in one commit."""
        rows = [(pointer.date, pointer.entries[0].run_id, pointer.as_json())]
        table = self.spark.createDataFrame(rows, f"{DATE} string, {RUN} string, pointer string")
        self._write_rows(
            POINTERS, table, lambda: table.writeTo(self.name_of(POINTERS)).overwrite(F.col(DATE) == pointer.date)
        )

    def record(self, record: Mapping[str, Any]) -> str:
        """Append the run record as one row to the table ``runs``; return the name of that table."""
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
                create_table(self.name_of(table), self.format, rows, (DATE,) if table == POINTERS else ())
            write()

        commit(self.format, self.name_of(table), work)

    def write_page(self, text: str) -> str | None:
        """Do nothing: a catalog holds no pages."""
        return None

    def records(self) -> list[str]:
        """The texts of all run records."""
        runs = self.current("runs")
        return [] if runs is None else [row[0] for row in few_rows(runs.select("record"))]
