"""Who reaches the files of an output: this process, the tasks of Spark, or Spark alone."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.config import local_path
from rankmetrics_spark.engines import is_laptop
from rankmetrics_spark.sinks.files import Files, file_system


@dataclass(frozen=True)
class Reach:
    """The files of an output, and where functions over them run.

    Attributes:
        files: The files; they can be sent to a task.
        spark: The session.
        here: This process reaches them. Otherwise only the tasks of Spark do, as where a Connect server has its disk.
    """

    files: Files
    spark: SparkSession
    here: bool

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function over the files and return what it returns; both have to be plain values."""
        if self.here:
            return function(self.files, *arguments)
        return in_a_task(self.spark, partial(function, self.files, *arguments))


def in_a_task(spark: SparkSession, function: Callable[[], Any]) -> Any:
    """Run a function in one task of Spark; it may run twice if the task is repeated."""

    def body(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays([pa.array([json.dumps(function())])], ["found"])

    row = spark.range(0, 1, 1, 1).mapInArrow(body, "found string").first()
    return json.loads(row[0]) if row else None


def on_this_machine(spark: SparkSession, path: str) -> bool:
    """Whether Spark writes this path to a disk that this process sees under the same name."""
    if is_laptop(spark):
        return local_path(path) is not None
    if local_path(path) is None or "connect" in type(spark.conf).__module__:
        return False
    try:
        # Spark completes the address of its warehouse by the default file system.
        return (spark.conf.get("spark.sql.warehouse.dir", "") or "").startswith("file:")
    except PySparkException:  # a session that does not show its settings
        return False


def of_disk(path: str) -> Files | None:
    """The files of a folder on this machine, or None if the path is on another file system."""
    folder = local_path(path)
    system = file_system("file", "", lambda name: None)
    return Files(system[0], os.path.abspath(folder)) if folder is not None and system else None


def likely_reach(spark: SparkSession, path: str, settings: Mapping[str, str]) -> Reach | None:
    """Who probably reaches an output, before anything is staged: this process, if it sees the folder."""
    disk = of_disk(path)
    if disk is not None:
        return Reach(disk, spark, here=True) if disk.is_folder("") else None
    address = urlsplit(path)
    system = file_system(address.scheme, address.netloc, partial(_setting, spark, settings))
    files = Files(system[0], system[1] + unquote(address.path).rstrip("/")) if system else None
    return Reach(files, spark, here=True) if files and not files.local and _can_write(files) else None


def reach_of(
    spark: SparkSession, path: str, staged: DataFrame, folder: str, settings: Mapping[str, str]
) -> Reach | None:
    """Who reaches an output, by the example of rows that Spark has just staged there."""
    disk = of_disk(path)
    if disk is not None and Path(disk.at(folder)).is_dir():
        return Reach(disk, spark, here=True)
    files = _by_address(spark, staged, folder, settings)
    if files is None:
        return None
    if not files.local and _can_see(files, folder) and _can_write(files):
        return Reach(files, spark, here=True)
    try:
        return Reach(files, spark, here=False) if in_a_task(spark, partial(_can_see, files, folder)) else None
    except Exception:  # a session that runs no Python in its tasks
        return None


def _by_address(spark: SparkSession, staged: DataFrame, folder: str, settings: Mapping[str, str]) -> Files | None:
    """The files by the address that Spark gives them: with the scheme, and with the server's own folders."""
    try:
        address = urlsplit(next(iter(staged.inputFiles()), ""))
    except Exception:  # not every session says it
        return None
    head, separator, _ = unquote(address.path).rpartition(f"/{folder}/")
    system = file_system(address.scheme, address.netloc, partial(_setting, spark, settings)) if separator else None
    return Files(system[0], system[1] + head) if system else None


def _can_write(files: Files) -> bool:
    """Whether this process may write there; it may lack the keys that Spark has."""
    probe = f"_staging/.probe-{uuid.uuid4().hex}"
    try:
        files.write(probe, probe)
        is_readable = files.read(probe) == probe
        files.remove(probe)
    except OSError:
        return False
    return is_readable


def _setting(spark: SparkSession, settings: Mapping[str, str], name: str) -> str | None:
    """A setting of Hadoop, as a config or spark-submit gave it."""
    for key in (name, f"spark.hadoop.{name}"):
        if key in settings:
            return settings[key]
        try:
            value = spark.conf.get(key, None)
        except PySparkException:
            continue
        if value is not None:
            return str(value)
    return None


def _can_see(files: Files, folder: str) -> bool:
    try:
        return files.is_folder(folder)
    except OSError:
        return False
