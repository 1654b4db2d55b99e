"""An output folder, whatever the format of its tables: staging, claims, run records; tables in Parquet, or in Delta."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark.config import check_output, dates_in_words, local_path
from rankmetrics_spark.engines import engine_of, few_rows, spark_path, written_as_parquet
from rankmetrics_spark.errors import InputError, OutputError, RankmetricsError
from rankmetrics_spark.pointers import FOLDER, Entry, Pointer, Pointers, record_path, refused_folder
from rankmetrics_spark.schemas import DATE, EXPERIMENT, OF_DATES, PARTITION, SMALL_TABLES, quoted
from rankmetrics_spark.sinks import erasing, files as fl, partitions as pt, reading, sql_tables, swapping
from rankmetrics_spark.sinks.claims import LEASE, SLOW_LEASE, Claim, ClaimContent, Lease, ways


@contextmanager
def writing(path: str, tables: bool = False) -> Iterator[None]:
    """Raise one sentence for a cause that a user can fix; other errors pass."""
    try:
        yield
    except RankmetricsError:
        raise
    except Exception as error:  # classic sessions raise a class of py4j
        output_error = fl.output_failure(path, error)
        if output_error is None and tables and sql_tables.FAILURES["missing file"].search(str(error)):
            output_error = OutputError.of("files_vanished", path=path)
        if output_error is None:
            raise
        raise output_error from error


@dataclass
class Folder(pt.Store):
    """A folder with staging in ``_staging`` and run records in ``runs``.

    Attributes:
        spark: The session.
        path: A folder on any file system that Spark can access.
        run_id: Name of the run.
        settings: Settings of the config, such as the address and the keys of an object store.
        by_date: Whether small tables are not partitioned by experiment.
        files_name_runs: Whether the tables are plain files that carry the id of their run.
        _open_record: Whether the record says that the run goes on.
        _left: Whether files are left that the next run has to remove.
    """

    files_name_runs: ClassVar[bool] = True
    spark: SparkSession
    path: str
    run_id: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    by_date: bool = False
    _reach: fl.Reach | None = field(default=None, init=False, repr=False)
    _claim: Claim | Lease | None = field(default=None, init=False, repr=False)
    _staged: list[str] = field(default_factory=list, init=False, repr=False)
    _reached: bool = field(default=False, init=False, repr=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _open_record: bool = field(default=False, init=False, repr=False)
    _left: bool = field(default=False, init=False, repr=False)

    def check(self) -> None:
        """Refuse a folder that cannot be written, before anything is computed."""
        here = fl.on_this_machine(self.spark, self.path)
        if here:
            check_output(self.path)
        if engine_of(self.spark) != "sail":
            # Expected: nothing is staged there yet. Without its file system, the session cannot address the output.
            with writing(self.path), suppress(AnalysisException):
                # Two paths: for a single one that does not exist, Spark logs a stack trace.
                self.spark.read.parquet(*[spark_path(self._staging_of("outcome"))] * 2).schema  # noqa: B018
        # Only now: what Spark cannot address gets no run record either.
        disk = fl.of_disk(self.path) if here else None
        self._reach = fl.Reach(disk, self.spark, here=True) if disk else None

    def _staging_of(self, name: str) -> str:
        return f"{self.path}/{fl.STAGING}/{self.run_id}/{name}"

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to the staging of this run, as they are; return them as written."""
        path = self._staging_of(name)
        # One claim for all threads: to a second one, the file of the first would be that of a killed run.
        with writing(self.path), nullcontext() if self._reached else self._opening:
            if not self._reached:
                # Claimed before anything is written: the next run finds the staging of a run that was killed here.
                self._reach = self._reach or fl.likely_reach(self.spark, self.path, self.settings)
                self._open()
            self._staged.append(path)
            staged = written_as_parquet(self.spark, rows, path)
            if not self._reached:
                # Now that Spark has written files, it shows who can access them.
                reach = fl.reach_of(self.spark, self.path, staged, f"{fl.STAGING}/{self.run_id}", self.settings)
                if self._reach is None or reach is None or reach.files.root != self._reach.files.root or not reach.here:
                    if self._claim is not None:
                        self._claim.release()
                    self._claim, self._reach = None, reach
                    self._open()
                self._reached = True
            return staged

    def _open(self) -> None:
        """Announce this run, and clean up after killed ones."""
        if self._claim is not None or self._reach is None:
            return
        self._reach.do(swapping.remove_unclaimed)
        here, files = self._reach.here, self._reach.files
        folder = Path(files.at(fl.STAGING)) if here and files.local else None
        for claim in ways(self.run_id, self._recover, folder, self._reach.do, LEASE if here else SLOW_LEASE):
            self._claim = claim
            if claim.open():
                return

    def _recover(self, dead: ClaimContent) -> None:
        assert self._reach is not None
        # The files of a table that keeps a log of its own belong to that log.
        self._reach.do(swapping.recover, dead.run, dead.date if self.files_name_runs else None, dead.experiments)
        if self.files_name_runs:
            self._reach.do(swapping.remove_spark_staging)

    def claim(self, partitions: pt.Partitions) -> None:
        """Reserve partitions until ``release``, unless only Spark can access the files."""
        with writing(self.path):
            link = None
            if self._reach is not None and self.files_name_runs:
                link = self._reach.do(swapping.linked_folder, partitions.experiments, partitions.date)
            if link:
                raise OutputError.of("link_in_output", path=self.path, link=link)
            if self._claim is not None:
                self._claim.take(partitions, self.path)

    def discard(self, like: DataFrame | None = None) -> None:
        """Remove the staging."""
        with suppress(Exception):  # an output that cannot be written keeps its own error
            if self._reach is not None and self._claim is not None:
                self._reach.do(swapping.discard, self.run_id)
            elif like is not None:
                for path in self._staged:
                    if reading.exists(self.spark, path):
                        like.limit(0).coalesce(1).write.mode("overwrite").parquet(path)

    def release(self) -> None:
        """Release the claim. The next run of the output removes files that are left, and closes an open record."""
        with suppress(Exception):
            if self._claim is not None:
                claim, self._claim = self._claim, None
                claim.release(complete=not (self._open_record or self._left))
                if self._reach is not None and not self._left:
                    self._reach.do(swapping.discard, self.run_id)

    def note(self, record: Mapping[str, Any]) -> None:
        """Write the record of a run that has not ended, if this process can access the files."""
        if self._reach is not None and self._reach.here:
            with writing(self.path):
                # Claimed before: where the run is killed, the next one finds the claim, and closes the record.
                self._open()
            self._open_record = True
            self._write_record(record)

    def record(self, record: Mapping[str, Any]) -> str:
        """Write the run record as JSON to ``runs``; return its path. That of a run that has published is sealed."""
        reach, of_run, done = self._reach, (str(record[DATE]), self.run_id), record.get("outcome") == "done"
        of_files = {swapping.FILES: reach.do(swapping.hashes, *of_run, done)} if reach else {}
        path = self._write_record({**record, **of_files})
        self._open_record = False
        with suppress(Exception):  # published and on record; whoever verifies is told that there is no seal
            if reach and done:
                reach.do(swapping.seal, *of_run)
        return path

    def _write_record(self, record: Mapping[str, Any]) -> str:
        return self.write_file(record_path(self.run_id), pt.as_json(record) + "\n")

    def write_page(self, text: str) -> str | None:
        """Write a page to ``runs``; return its path, or None if only Spark reaches the folder."""
        return None if self._reach is None else self.write_file(f"runs/{self.run_id}.html", text)

    def refuse(self, run: str, checks: pa.Table) -> None:
        """Write what was checked by a run that published nothing, as Parquet."""
        with writing(self.path):
            if self._reach is not None:
                self._reach.do(fl.Files.write_table, f"{refused_folder(run)}/part-{run}.parquet", checks)
            else:
                rows = pt.rows_of_arrow(self.spark, checks).coalesce(1)
                rows.write.mode("overwrite").parquet(f"{self.path}/{refused_folder(run)}")

    def altered(self, date: str) -> tuple[list[str], list[str]]:
        """What of a date is not as it was published, and what no digest covers: sentences."""
        reach = self._reach or fl.likely_reach(self.spark, self.path, self.settings)
        found, uncovered = reach.do(swapping.altered, date) if reach else ([], ["only the engine reaches the files"])
        return found, uncovered + ["Delta tables have versions, no digests of files"] * (not self.files_name_runs)

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        return reading.pointers_of(self.spark, self.path)

    def records(self) -> list[str]:
        """The texts of all run records."""
        return reading.texts_of(self.spark, self.path, "runs")

    def write_file(self, path: str, text: str) -> str:
        """Write a text at once; return its path: a folder with one file if only Spark can access the files."""
        with writing(self.path):
            if self._reach is None:
                rows = self.spark.createDataFrame([(text,)], "value string")
                rows.coalesce(1).write.mode("overwrite").text(f"{self.path}/{path}")
                return f"{self.path}/{path}"
            self._reach.do(fl.Files.write, path, text)
            on_disk = self._reach.here and self._reach.files.local
            return str(local_path(f"{self.path}/{path}")) if on_disk else f"{self.path}/{path}"


#: Most files of a table that Spark reads quickly; each one costs milliseconds, whatever its size.
MANY_FILES = 200
#: Most rows of a table that this process keeps in memory, so that Spark need not read them back.
FEW_ROWS = 100_000


class ParquetFolder(Folder):
    """Tables as ``user_metrics/experiment_id=.../evaluation_date=.../*.parquet``."""

    def name_of(self, table: str) -> str:
        """The folder of a table."""
        return f"{self.path}/{table}"

    def existing(self, table: str) -> DataFrame | None:
        """The rows of a table that the pointers name, or None if it does not exist."""
        select = partial(reading.existing, self.spark, self.name_of(table))
        return reading.settled(self.path, self.pointers, select)

    def exists(self, table: str) -> bool:
        """Whether a table was written."""
        return reading.exists(self.spark, self.name_of(table))

    def days(self, table: str, pointers: Pointers, schema: T.StructType) -> DataFrame | None:
        """The rows that these pointers name, with these columns; None if there are none.

        Raises:
            InputError: A run has replaced some of them.
        """
        rows = reading.of_dates(self.spark, self.name_of(table), pointers, schema) if pointers else None
        # A run removes files after it has written its pointer: until then, all of them are there.
        now = self.pointers() if pointers else {}
        if replaced := [date for date in pointers if now.get(date) != pointers[date]]:
            raise InputError.of("published_meanwhile", place=self.name_of(table), dates=dates_in_words(replaced))
        return rows

    def pointer(self, date: str) -> Pointer | None:
        """What is published on a date, or None."""
        if self._reach is not None and self._reach.here:
            return swapping.pointer_of(self._reach.files, date)
        return reading.pointers_of(self.spark, self.path, date).get(date)

    def write(self, table: str, rows: DataFrame, partitions: pt.Partitions, total: str | None = None) -> pt.Written:
        """Write the rows of a table beside it; nothing is published."""
        with writing(self.path):
            if not partitions.filled:
                return pt.Written(table, rows, partitions)
            if self._reach is None:
                staged = self.stage(partitions.stored(rows), table)
                return pt.count_rows(pt.Written(table, staged, partitions), total)
            split = pt.Split(self._reach.files, f"{fl.STAGING}/{self.run_id}/{table}", self.run_id, total)
            if partitions.few and self._reach.here:
                split = replace(split, whole=self.by_date and table in SMALL_TABLES)
                rows = self.stage(partitions.stored(rows).coalesce(1), f"rows_of_{table}")
                folder = f"{fl.STAGING}/{self.run_id}/rows_of_{table}"
                if (few := split.of_folder(folder, rows.columns[1], pt.MOST_ROWS)) is not None:
                    files, here = few
                    here = None if here is None or len(here) > FEW_ROWS else here
                    return replace(pt.Written.of_files(table, rows, partitions, files), here=here)
            # The tasks of Spark write the files; a repeated task leaves files that the manifest does not name.
            manifest = partitions.prepared(rows).mapInArrow(split.of_batches, pt.MANIFEST)
            staged_files = [pt.StagedFile(*row) for row in few_rows(manifest)]
            return pt.Written.of_files(table, rows, partitions, staged_files)

    def publish(self, written: Sequence[pt.Written], entry: Entry, date: str) -> None:
        """Put the staged tables in place and let the pointer of the date name this run."""
        with writing(self.path, tables=True):
            if self._reach is None:
                return self._publish_by_spark(written, entry, date)
            try:
                staged = {table.table: table.files for table in written}
                self._reach.do(swapping.swap, swapping.Swap(date, entry, staged, self.by_date))
            except BaseException:
                # For example a full disk or an interrupt: remove unpublished files, or finish publishing.
                self._left = True
                with suppress(Exception):
                    self._reach.do(swapping.recover, self.run_id, date, entry.experiments)
                    self._left = False
                raise

    def switch(self, pointer: Pointer, runs: Sequence[erasing.Erased]) -> bool:
        """Publish a date anew, without some users; return False if its pointer has changed meanwhile."""
        if self._reach is None:
            raise OutputError(f"only the engine reaches the files of '{self.path}'; allowed: files that Python reaches")
        with writing(self.path, tables=True):
            self._left = True
            is_same: bool = self._reach.do(erasing.switch, pointer, runs, self.run_id)
            self._left = False
            return is_same

    def _publish_by_spark(self, written: Sequence[pt.Written], entry: Entry, date: str) -> None:
        """Where only Spark reaches the files: replace partitions by its own means, then write the pointer."""
        pointer = self.pointer(date) or Pointer(date)
        if self.by_date or pointer.by_date:
            raise OutputError.of("by_date_without_files", path=self.path)
        for table in written:
            if table.partitions.filled:
                # The option applies to this write only; the session keeps its own overwrite mode.
                keys = PARTITION[table.table in OF_DATES :]
                rows = table.partitions.prepared(table.rows).drop(*{*PARTITION} - {*keys})
                writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
                writer.partitionBy(*keys).parquet(self.name_of(table.table))
            # Overwrite each emptied partition that exists with an empty file; Spark cannot delete a folder.
            partitions, path = table.partitions, self.name_of(table.table)
            if partitions.emptied and reading.exists(self.spark, path):
                rows = reading.with_schema(self.spark, path, T.StructType())
                stored = rows.where(F.col(DATE) == partitions.date).select(EXPERIMENT).distinct()
                empty = table.rows.limit(0).drop(*PARTITION).coalesce(1)
                for name in sorted({row[0] for row in few_rows(stored)} & set(partitions.emptied)):
                    folder = swapping.folder_of(table.table, name, partitions.date)
                    empty.write.mode("overwrite").parquet(f"{self.path}/{folder}")
        # Spark gives its files names of its own, without the id of the run.
        self.write_file(f"published/{date}.json", pointer.with_run(replace(entry, named=False)).as_json())

    def result(self, written: pt.Written) -> DataFrame:
        """The rows of a table that this run has published, read back lazily."""
        if not written.partitions.filled:
            return self.spark.createDataFrame([], written.rows.schema)
        if written.here is not None and len(written.files) > MANY_FILES:
            schema = reading.as_stored(written.rows.schema)
            columns = [written.here[name].to_pylist() for name in schema.names if name != DATE]
            dates = [written.partitions.date] * len(written.here)
            return self.spark.createDataFrame(list(zip(*columns, dates, strict=True)), schema)
        # Spark would infer the schema from one file. If that file is from an earlier day, new metrics would be missing.
        if self._reach is None:
            rows = reading.with_schema(self.spark, self.name_of(written.table), written.rows.schema)
            return rows.where(written.partitions.condition())
        # Of a pattern, Spark logs a stack trace before it looks for what matches.
        date, names = written.partitions.date, [name or None for name in written.partitions.filled]
        folders = dict.fromkeys(swapping.folder_of(written.table, name, date) for name in names)
        paths = [spark_path(f"{self.path}/{folder}") for folder in folders]
        paths = paths if len(paths) <= MANY_FILES else [f"{spark_path(self.name_of(written.table))}/*/{DATE}={date}"]
        # Since then, `rankmetrics forget` may have given its files another id.
        pointer = self.pointer(date) or Pointer(date)
        ids = [entry.file_id for entry in pointer.entries if entry.run_id == self.run_id]
        file_id = (ids or [self.run_id])[0]
        if gathered := pointer.of_table(written.table) is not pointer:
            file_id, paths = pointer.by_date, [spark_path(f"{self.path}/{written.table}/{DATE}={date}")]
        rows = reading.of_run(self.spark, self.name_of(written.table), written.rows.schema, file_id, paths)
        return rows.where(written.partitions.condition()) if gathered else rows


class DeltaFolder(sql_tables.SqlTables, Folder):
    """Delta tables in a folder, with the staging and run records of any folder."""

    format = "delta"
    files_name_runs = False

    def name_of(self, table: str) -> str:
        """The SQL name of a table: ``delta.`` and its path, which Delta requires to be absolute."""
        folder = local_path(self.path)
        path = self.path if folder is None or self.path.startswith("file:") else str(folder.absolute())
        return f"delta.{quoted(f'{path}/{table}')}"

    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer of a date, at once where Python reaches the folder."""
        self.write_file(f"{FOLDER}/{pointer.date}.json", pointer.as_json())

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Check that the session can use Delta, then write rows to the staging; return them as written."""
        try:
            self.spark.read.format("delta").load(self.path).schema  # noqa: B018
        except Exception as error:  # expected: there is no table at this path
            if sql_tables.is_not_set_up(error):
                sql_tables.explain(self.format, self.name_of("user_metrics"), error)
        return Folder.stage(self, rows, name)
