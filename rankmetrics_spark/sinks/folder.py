"""An output folder, whatever the format of its tables: staging, claims, run records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.config import check_output, local_path
from rankmetrics_spark.engines import engine_of, is_laptop, sail_path
from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.pointers import page_path, record_path
from rankmetrics_spark.sinks.claims import LEASE, SLOW_LEASE, Claim, ClaimContent, Lease
from rankmetrics_spark.sinks.files import STAGING, Reach, likely_reach, of_disk, on_this_machine, reach_of, writing
from rankmetrics_spark.sinks.partitions import Partitions, as_json
from rankmetrics_spark.sinks.reading import exists, literal, texts_of
from rankmetrics_spark.sinks.swapping import (
    discard,
    linked_folder,
    recover,
    remove_spark_staging,
    remove_unclaimed,
)


def write_text(files: Any, path: str, text: str) -> None:
    """Write a file of the output at once."""
    files.write(path, text)


@dataclass
class Folder:
    """A folder with staging in ``_staging`` and run records in ``runs``.

    Attributes:
        spark: The session.
        path: A folder on any file system that Spark can access.
        run_id: Name of the run.
        settings: Settings of the config, such as the address and the keys of an object store.
    """

    files_name_runs: ClassVar[bool] = True
    """Whether the tables are plain files that carry the id of their run."""

    spark: SparkSession
    path: str
    run_id: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    _reach: Reach | None = field(default=None, init=False, repr=False)
    _claim: Claim | Lease | None = field(default=None, init=False, repr=False)
    _staged: list[str] = field(default_factory=list, init=False, repr=False)
    _open_record: bool = field(default=False, init=False, repr=False)
    """Whether the record says that the run goes on."""
    _left: bool = field(default=False, init=False, repr=False)
    """Whether files are left that the next run has to remove."""

    def check(self) -> None:
        """Refuse a folder that cannot be written, before anything is computed."""
        here = on_this_machine(self.spark, self.path)
        if here:
            check_output(self.path)
        with writing(self.path):
            self._address()
        # Only now: what Spark cannot address gets no run record either.
        disk = of_disk(self.path) if here else None
        self._reach = Reach(disk, self.spark, here=True) if disk else None

    def _address(self) -> None:
        """Fail if Spark cannot address the output, for example because the session lacks the file system."""
        if engine_of(self.spark) == "sail":
            return
        with suppress(AnalysisException):  # expected: nothing is staged there yet
            # Two paths: for a single one that does not exist, Spark logs a stack trace.
            self.spark.read.parquet(*[literal(self._staging_of("outcome"))] * 2).schema  # noqa: B018

    def _staging_of(self, name: str) -> str:
        return f"{self.path}/{STAGING}/{self.run_id}/{name}"

    def stage(self, rows: DataFrame, name: str = "outcome") -> DataFrame:
        """Write rows to the staging of this run, as they are; return them as written."""
        path = self._staging_of(name)
        with writing(self.path):
            if not self._staged:
                # Claimed before anything is written: the next run finds the staging of a run that was killed here.
                self._reach = self._reach or likely_reach(self.spark, self.path, self.settings)
                self._open()
            self._staged.append(path)
            if is_laptop(self.spark):
                # Sail writes no file and no folder for an empty table, so its columns would be lost.
                os.makedirs(local_path(path) or "", exist_ok=True)
            if engine_of(self.spark) == "sail":
                place = sail_path(path)
                rows.write.mode("overwrite").parquet(place)
                staged = self.spark.read.schema(rows.schema).parquet(place)
            else:
                rows.write.mode("overwrite").parquet(path)
                staged = self.spark.read.parquet(literal(path))
            if len(self._staged) == 1:
                self._settle_reach(staged)
            return staged

    def _settle_reach(self, staged: DataFrame) -> None:
        """Find out who can access the files, now that Spark has written some."""
        reach = reach_of(self.spark, self.path, staged, f"{STAGING}/{self.run_id}", self.settings)
        if self._reach is None or reach is None or reach.files.root != self._reach.files.root or not reach.here:
            if self._claim is not None:
                self._claim.release()
            self._claim, self._reach = None, reach
            self._open()

    def _open(self) -> None:
        """Announce this run, and clean up after killed ones."""
        if self._claim is not None or self._reach is None:
            return
        self._reach.do(remove_unclaimed)
        if self._reach.here and self._reach.files.local:
            self._claim = Claim(self.run_id, self._recover)
            if self._claim.open(self._staging_folder):
                return
        lease = LEASE if self._reach.here else SLOW_LEASE
        self._claim = Lease(self._reach.do, self.run_id, self._recover, lease)
        self._claim.open()

    @property
    def _staging_folder(self) -> Path:
        assert self._reach is not None
        return Path(self._reach.files.at(STAGING))

    def _recover(self, dead: ClaimContent) -> None:
        assert self._reach is not None
        # The files of a table that keeps a log of its own belong to that log.
        self._reach.do(recover, dead.run, dead.date if self.files_name_runs else None, dead.experiments)
        if self.files_name_runs:
            self._reach.do(remove_spark_staging)

    def claim(self, partitions: Partitions) -> None:
        """Reserve partitions until ``release``, unless only Spark can access the files."""
        with writing(self.path):
            self._refuse_links(partitions)
            if isinstance(self._claim, Claim):
                self._claim.take(self._staging_folder, partitions, self.path)
            elif self._claim is not None:
                self._claim.take(partitions, self.path)

    def _refuse_links(self, partitions: Partitions) -> None:
        if self._reach is None or not self.files_name_runs:
            return
        if link := self._reach.do(linked_folder, partitions.experiments, partitions.date):
            raise OutputError(
                f"cannot write to '{self.path}': '{link}' is a link, and a run replaces no files behind one; "
                "allowed: folders of the output itself"
            )

    def discard(self, like: DataFrame | None = None) -> None:
        """Remove the staging."""
        with suppress(Exception):  # an output that cannot be written keeps its own error
            if self._reach is not None and self._claim is not None:
                self._reach.do(discard, self.run_id)
            elif like is not None:
                for path in self._staged:
                    if exists(self.spark, path):
                        like.limit(0).coalesce(1).write.mode("overwrite").parquet(path)

    def release(self) -> None:
        """Release the claim. The next run of the output removes files that are left, and closes an open record."""
        with suppress(Exception):
            if self._claim is not None:
                claim, self._claim = self._claim, None
                claim.release(complete=not (self._open_record or self._left))
                if self._reach is not None:
                    self._reach.do(discard, self.run_id)

    def note(self, record: Mapping[str, Any]) -> None:
        """Write the record of a run that has not ended, if this process can access the files."""
        if self._reach is not None and self._reach.here:
            with writing(self.path):
                # Claimed before: where the run is killed, the next one finds the claim, and closes the record.
                self._open()
            self._open_record = True
            self._write_record(record)

    def record(self, record: Mapping[str, Any]) -> str:
        """Write the run record as JSON to ``runs``; return its path."""
        path = self._write_record(record)
        self._open_record = False
        return path

    def _write_record(self, record: Mapping[str, Any]) -> str:
        return self.write_file(record_path(self.run_id), as_json(record) + "\n")

    def write_page(self, text: str) -> str | None:
        """Write a page to ``runs``; return its path, or None if only Spark reaches the folder."""
        return None if self._reach is None else self.write_file(page_path(self.run_id), text)

    def records(self) -> list[str]:
        """The texts of all run records."""
        return texts_of(self.spark, self.path, "runs")

    def write_file(self, path: str, text: str) -> str:
        """Write a text at once; return its path: a folder with one file if only Spark can access the files."""
        with writing(self.path):
            if self._reach is None:
                rows = self.spark.createDataFrame([(text,)], "value string")
                rows.coalesce(1).write.mode("overwrite").text(f"{self.path}/{path}")
                return f"{self.path}/{path}"
            self._reach.do(write_text, path, text)
            on_disk = self._reach.here and self._reach.files.local
            return str(local_path(f"{self.path}/{path}")) if on_disk else f"{self.path}/{path}"
