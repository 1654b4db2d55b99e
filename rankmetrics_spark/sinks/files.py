"""The files of an output, wherever a process of Python reaches them: a local disk, S3, HDFS.

Few calls, so that every store keeps the same promises: a file appears whole or not at all, and nothing is overwritten
before its successor is there.
"""

import errno
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import config as cfg, doors, engines as eng, errors as err

R = TypeVar("R")

#: Folder of files that are not published yet.
STAGING = "_staging"

#: Rows of a file that has no dictionaries.
FEW_ROWS = 32
#: Bytes of a file that are read at once.
_CHUNK = 1 << 20
#: Requests that an object store gets at the same time.
THREADS = 16
#: Tables that are written at the same time; PyArrow leaves Python's lock while it writes.
WRITERS = 4


@dataclass(frozen=True)
class Files:
    """Files below one folder. Paths are relative to it, with ``/``. Can be sent to a task of Spark.

    Attributes:
        system: A file system of PyArrow.
        root: The folder, as the file system calls it.
    """

    system: fs.FileSystem
    root: str

    @cached_property
    def local(self) -> bool:
        """Whether this is a disk, where a rename replaces a file at once and folders exist on their own."""
        return bool(self.system.type_name == "local")

    @cached_property
    def renames(self) -> bool:
        """Whether a file can be renamed; object stores can only copy it."""
        return self.system.type_name in ("local", "hdfs")

    def at(self, path: str) -> str:
        """The full path."""
        return f"{self.root}/{path}" if path else self.root

    def links(self, paths: Iterable[str]) -> list[str]:
        """Those of some paths that are links to another file or folder; only a disk has links."""
        return [path for path in paths if os.path.islink(f"{self.root}/{path}")] if self.local else []

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder; on an object store, whether anything lies below it."""
        return bool(self.system.get_file_info([self.at(path)])[0].type == fs.FileType.Directory)

    def entries(self, folder: str, recursive: bool = False) -> list[fs.FileInfo]:
        """Entries of a folder; none if there is no such folder."""
        selector = fs.FileSelector(self.at(folder), allow_not_found=True, recursive=recursive)
        try:
            return list(self.system.get_file_info(selector))
        except (NotADirectoryError, FileNotFoundError):
            return []

    def names(self, folder: str) -> list[str]:
        """Names of files and folders in a folder, in order."""
        return sorted(str(entry.base_name) for entry in self.entries(folder))

    def files(self, folder: str) -> list[str]:
        """Paths of the files in a folder, in order."""
        names = (str(entry.base_name) for entry in self.entries(folder) if entry.type == fs.FileType.File)
        return sorted(f"{folder}/{name}" for name in names)

    def read(self, path: str) -> str | None:
        """The text of a file, or None if there is no such file. One that Spark wrote is a folder with one part."""
        try:
            return self._text(path)
        except FileNotFoundError:
            return None
        except OSError:
            if parts := [name for name in self.names(path) if name.startswith("part-")]:
                return self.read(f"{path}/{parts[0]}")
            # A file may have just replaced the folder.
            return None if self.is_folder(path) else self._text(path)

    def _text(self, path: str) -> str:
        with self.system.open_input_stream(self.at(path)) as stream:
            return str(stream.read().decode("utf-8"))

    def write(self, path: str, text: str) -> None:
        """Write a file at once: a reader sees the earlier text or this one, never a part of it."""
        folder, _, name = path.rpartition("/")
        # An object store shows a file when it is complete.
        draft = f"{folder}/.{name}.{os.getpid()}" if self.renames else path
        self._with_folder(folder, lambda: self._write_stream(draft, text))
        if draft != path:
            self.settle([draft])
            self.replace(draft, path)
            self.settle([], [folder])

    def write_table(self, path: str, table: Any) -> None:
        """Write rows as one Parquet file that Spark reads without loss."""
        kinds = {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
        # Of a few rows, dictionaries save nothing and take as long as all the rest; each experiment has a file.
        kinds["use_dictionary"] = table.num_rows > FEW_ROWS

        def write() -> None:
            pq.write_table(table.replace_schema_metadata(None), self.at(path), filesystem=self.system, **kinds)

        self._with_folder(path.rpartition("/")[0], write)

    def write_tables(self, tables: Mapping[str, Any]) -> None:
        """Write tables as Parquet files, several at a time."""
        with ThreadPoolExecutor(WRITERS) as pool:
            [*pool.map(self.write_table, tables, tables.values())]

    def read_table(self, path: str) -> pa.Table:
        """The rows of a Parquet file, without the columns of its folders."""
        # Not ``pq.read_table``: it takes five times as long for a few rows.
        with self.system.open_input_file(self.at(path)) as file:
            return pq.ParquetFile(file).read()

    def sha256(self, path: str) -> str:
        """The SHA-256 of a file; empty if there is none."""
        digest = hashlib.sha256()
        try:
            with self.system.open_input_stream(self.at(path)) as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        except FileNotFoundError:
            return ""
        return digest.hexdigest()

    def read_tables(self, folder: str, most: int) -> list[pa.Table] | None:
        """The rows of the Parquet files in a folder; None if the footers of the files count more than ``most``."""
        paths = [path for path in self.files(folder) if path.endswith(".parquet")]
        if sum(map(self._rows_in, paths)) > most:
            return None
        return [pq.read_table(self.at(path), filesystem=self.system) for path in paths]

    def _rows_in(self, path: str) -> int:
        """The rows that the footer of a Parquet file counts; PyArrow 8 reads it from an open file only."""
        with self.system.open_input_file(self.at(path)) as file:
            return int(pq.read_metadata(file).num_rows)

    def _write_stream(self, path: str, text: str) -> None:
        with self.system.open_output_stream(self.at(path)) as stream:
            stream.write(text.encode("utf-8"))

    def drafts(self, path: str = "", folder: str = "") -> list[fs.FileInfo]:
        """Drafts that killed runs have left: of one text, or of every text in a folder."""
        above, _, name = path.rpartition("/")
        draft = re.compile(rf"\.{re.escape(name) if path else '.*'}\.\d+")
        return [entry for entry in self.entries(folder or above) if draft.fullmatch(str(entry.base_name))]

    def settle(self, paths: Sequence[str], folders: Iterable[str] = ()) -> None:
        """Make files, and the names in folders, survive a power failure, if this is a disk."""
        if self.local:
            self.for_each(lambda path: _sync(self.at(path)), paths)
            self.for_each(lambda folder: _sync(self.at(folder)), sorted(folders))

    def replace(self, source: str, target: str) -> None:
        """Rename a file, in place of another if there is one; also of a folder, as Spark writes a text."""
        kind = self.system.get_file_info([self.at(target)])[0].type
        if kind == fs.FileType.Directory:
            self.remove_tree(target)
        elif kind == fs.FileType.File and not self.local:
            # HDFS refuses to rename over a file.
            self.remove(target)
        self.system.move(self.at(source), self.at(target))

    def put(self, source: str, target: str) -> None:
        """Bring a staged file to its place, under a name that no other file has. The folder is made if needed."""
        move = self.system.move if self.renames else self.system.copy_file
        self._with_folder(target.rpartition("/")[0], lambda: move(self.at(source), self.at(target)))

    def _with_folder(self, folder: str, action: Callable[[], None]) -> None:
        """Do something in a folder; create the folder if that fails, because another run may remove an empty one."""
        for _ in range(3):
            try:
                return action()
            except FileNotFoundError:
                self.make_folder(folder)
        action()

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it; an object store has none."""
        if self.renames:
            self.system.create_dir(self.at(folder), recursive=True)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.at(path))

    def remove_tree(self, folder: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_dir(self.at(folder))

    def remove_if_empty(self, *folders: str) -> None:
        """Remove folders that are empty, each above the one before. Only on a disk does anyone see them."""
        if self.local:
            with suppress(OSError):
                for folder in folders:
                    os.rmdir(self.at(folder))

    def for_each(self, function: Callable[..., R], items: Sequence[Any], *more: Sequence[Any]) -> list[R]:
        """Apply a function to many files, several at a time: stores answer late, and disks delete slowly."""
        if len(items) < (64 if self.local else 2):
            return list(map(function, items, *more))
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(function, items, *more))


def as_record(text: str | None) -> dict[str, Any]:
    """What the text of a record or of a claim says; empty for one that was cut off."""
    try:
        record = json.loads(text or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _sync(path: str) -> None:
    """Wait until a file or a folder is on the disk, if the file system supports that."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise


def file_system(scheme: str, host: str, setting: Callable[[str], str | None]) -> tuple[Any, str] | None:
    """The file system of PyArrow for an address, and the prefix of paths there; None if PyArrow has none."""
    if scheme == "file":
        return fs.LocalFileSystem(), ""
    try:
        if scheme in ("s3", "s3a", "s3n"):
            return _s3(host, setting), host
        if scheme == "hdfs":
            return fs.FileSystem.from_uri(f"hdfs://{host}/")[0], ""
        if scheme == "gs":
            return fs.GcsFileSystem(), host
    except (OSError, ValueError, ImportError, AttributeError):  # PyArrow was built without it, or nothing answers
        return None
    return None


def _s3(bucket: str, setting: Callable[[str], str | None]) -> Any:
    """S3 with the address and the keys that Spark uses; without keys, those that Amazon's tools find."""

    def bucket_setting(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    endpoint, keys = bucket_setting("endpoint"), {}
    if bucket_setting("access.key") and bucket_setting("secret.key"):
        names = {"access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token"}
        keys = {name: bucket_setting(setting_of) for name, setting_of in names.items()}
    region = bucket_setting("endpoint.region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint is None:
        return fs.S3FileSystem(**keys, region=region or fs.resolve_s3_region(bucket))
    scheme, _, address = endpoint.rpartition("://")
    secure = scheme or ("https" if bucket_setting("connection.ssl.enabled") != "false" else "http")
    # Without a bound, PyArrow waits a minute for a server that is not there.
    bounds = {"connect_timeout": 5, "request_timeout": 30}
    return fs.S3FileSystem(**keys, **bounds, region=region or "us-east-1", endpoint_override=address, scheme=secure)


#: The job that writes also reads the input; such an error is about the input.
_READING = re.compile(r"while reading file|CANNOT_READ_FILE|FAILED_READ_FILE", re.IGNORECASE)
#: What an error says -> its cause in words.
_CAUSES = doors.data_of(__name__, "causes")


def output_failure(path: str, error: Exception) -> err.OutputError | None:
    """The error for an output that cannot be written; None if the cause is something else.

    >>> print(output_failure("out", OSError("java.io.IOException: No space left on device")))
    cannot write to 'out': the disk is full, here or where Spark keeps temporary files; allowed: a place with more space
    """
    text = str(error)
    if _READING.search(text):
        return None
    if problem := err.no_file_system(path, error):
        return err.OutputError(f"cannot write to '{path}': {problem}")
    for pattern, sentence in _CAUSES.items():
        if re.search(pattern, text, re.IGNORECASE):
            return err.OutputError(f"cannot write to '{path}': {sentence}")
    return None


# ---- who reaches them: this process, the tasks of Spark, or Spark alone


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
    if eng.is_laptop(spark):
        return cfg.local_path(path) is not None
    if cfg.local_path(path) is None or eng.is_connect(spark):
        return False
    try:
        # Spark completes the address of its warehouse by the default file system.
        return (spark.conf.get("spark.sql.warehouse.dir", "") or "").startswith("file:")
    except PySparkException:  # a session that does not show its settings
        return False


def of_disk(path: str) -> Files | None:
    """The files of a folder on this machine, or None if the path is on another file system."""
    folder = cfg.local_path(path)
    return None if folder is None else Files(fs.LocalFileSystem(), os.path.abspath(folder))


def likely_reach(spark: SparkSession, path: str, settings: Mapping[str, str]) -> Reach | None:
    """Who probably reaches an output, before anything is staged: this process, if it sees the folder."""
    disk = of_disk(path)
    if disk is not None:
        return Reach(disk, spark, here=True) if disk.is_folder("") else None
    address = urlsplit(path)
    system = file_system(address.scheme, address.netloc, partial(_setting, spark, settings))
    files = Files(system[0], system[1] + unquote(address.path).rstrip("/")) if system else None
    return Reach(files, spark, here=True) if files and not files.local and _can_write(files) else None


def reach_of(spark: SparkSession, path: str, rows: DataFrame, folder: str, settings: Mapping[str, str]) -> Reach | None:
    """Who reaches an output, by the example of rows that Spark has just staged there."""
    disk = of_disk(path)
    if disk is not None and Path(disk.at(folder)).is_dir():
        return Reach(disk, spark, here=True)
    try:
        # As Spark gives it: with the scheme, and with the server's own folders.
        address = urlsplit(next(iter(rows.inputFiles()), ""))
    except Exception:  # not every session says it
        return None
    head, separator, _ = unquote(address.path).rpartition(f"/{folder}/")
    system = file_system(address.scheme, address.netloc, partial(_setting, spark, settings)) if separator else None
    if system is None:
        return None
    files = Files(system[0], system[1] + head)
    if not files.local and _can_see(files, folder) and _can_write(files):
        return Reach(files, spark, here=True)
    try:
        return Reach(files, spark, here=False) if in_a_task(spark, partial(_can_see, files, folder)) else None
    except Exception:  # a session that runs no Python in its tasks
        return None


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
