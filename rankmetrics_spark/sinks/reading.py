"""Readers of what runs have written: they follow the pointers."""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, errors as err, schemas as sch
from rankmetrics_spark.pointers import FOLDER, RUN_ID, WITHOUT_ID, Entry, Pointer, Pointers, newest
from rankmetrics_spark.sinks import files as fl, partitions, swapping


def rows_of(
    spark: SparkSession, table: fl.Files, paths: Sequence[str], schema: T.StructType | None = None
) -> DataFrame | None:
    """The rows of some files of a table with their partition columns as strings; None if there are no files."""
    if not paths:
        return None
    if (of_dates := [path for path in paths if path.startswith(f"{sch.DATE}=")]) and len(of_dates) < len(paths):
        parts = (rows_of(spark, table, part, schema) for part in (of_dates, [*{*paths} - {*of_dates}]))
        first, second = filter(None, parts)
        return first.unionByName(second, allowMissingColumns=True)
    # The same files have the same folder, however often they are read.
    name = hashlib.sha256("\0".join(map(table.at, paths)).encode("utf-8", "surrogateescape")).hexdigest()
    folder = eng.temporary_folder("links") / name
    for path in paths:
        link = folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.symlink(table.at(path), link)
    reader = spark.read
    if schema is not None:
        reader = reader.schema(as_stored(schema))
    rows = reader.parquet(eng.sail_path(str(folder)))
    if sch.EXPERIMENT not in rows.columns:  # user_days, lists
        return rows
    # Sail reads the folder of a null value as a text.
    experiment = F.when(F.col(sch.EXPERIMENT) != sch.NULL_PARTITION, F.col(sch.EXPERIMENT))
    return rows.withColumn(sch.EXPERIMENT, experiment)


def as_stored(schema: T.StructType) -> T.StructType:
    """The columns of files, then those of their folders as texts; Spark would turn "007" into 7."""
    fields = [field for field in schema.fields if field.name not in sch.PARTITION]
    return T.StructType(fields + [T.StructField(name, T.StringType()) for name in sch.PARTITION])


def partition_files(table: fl.Files) -> list[str]:
    """Every file of a table, as a path below its folder."""
    paths = (entry.path for entry in table.entries("", recursive=True) if entry.is_file)
    return sorted(os.path.relpath(path, table.root) for path in paths if path.endswith(".parquet"))


Result = TypeVar("Result")

_FILE = "_metadata.file_name"
#: How often a table is looked at again because runs publish meanwhile.
ATTEMPTS = 5


def existing(spark: SparkSession, path: str, pointers: Pointers) -> DataFrame | None:
    """The rows of a table that the pointers name, or None if there are none."""
    if eng.engine_of(spark) != "sail" and _is_absent(spark, path):
        return None
    try:
        return live_rows(spark, path, pointers)
    except AnalysisException:
        return None


def live_rows(spark: SparkSession, path: str, pointers: Pointers) -> DataFrame:
    """The rows of a table that the pointers name, with the columns of all its files.

    Raises:
        AnalysisException: There are none.
    """
    disk = fl.of_disk(path)
    if eng.engine_of(spark) == "sail":
        if disk is None or not disk.is_folder(""):
            raise AnalysisException(f"there is no folder '{path}'")
        if (rows := rows_of(spark, disk, live_files(disk, pointers))) is None:
            raise AnalysisException(f"'{path}' holds no rows that were published")
        return rows
    named = {date: pointer.of_table(path.rpartition("/")[2]) for date, pointer in pointers.items()}
    if all(pointer is pointers[date] for date, pointer in named.items()):
        return _live_part(spark, path, named, [eng.spark_path(path)])
    # Spark refuses a folder with folders of dates beside those of experiments, and logs a stack trace for a pattern.
    here = disk.names("") if disk and fl.on_this_machine(spark, path) else None
    parts = []
    for key in sch.PARTITION:
        names = [f"{eng.spark_path(path)}/{key}=*"]
        if here is not None:
            names = [eng.spark_path(f"{path}/{name}") for name in here if name.startswith(f"{key}=")]
        with suppress(AnalysisException):
            parts += [_live_part(spark, path, named, names)] if names else []
    if not parts:
        raise AnalysisException(f"'{path}' holds no rows that were published")
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)


def _live_part(spark: SparkSession, path: str, pointers: Pointers, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.option("mergeSchema", "true").option("basePath", path)
    return live(with_schema(spark, path, reader.parquet(*paths).schema, paths), pointers)


def dated(rows: DataFrame) -> DataFrame:
    """The rows with ``evaluation_date`` as a date; folders and pointers have texts."""
    # A folder that another program has named may hold no date.
    return rows.withColumn(sch.DATE, F.expr(f"try_cast({sch.DATE} AS date)")) if sch.DATE in rows.columns else rows


def _is_absent(spark: SparkSession, path: str) -> bool:
    """Whether a place of this machine is not there; asked, Spark logs a stack trace before it says so."""
    return fl.on_this_machine(spark, path) and not Path(cfg.local_path(path) or "").exists()


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a table was written; unlike ``existing``, it opens no file."""
    if eng.engine_of(spark) == "sail":
        disk = fl.of_disk(path)
        return disk is not None and bool(partition_files(disk))
    if _is_absent(spark, path):
        return False
    try:
        # With a schema, Spark lists the files and reads none of their footers; some may be in other folders.
        reader = spark.read.schema(T.StructType([])).option("recursiveFileLookup", "true")
        reader.parquet(eng.spark_path(path)).schema  # noqa: B018
    except AnalysisException:
        return False
    return True


def with_schema(spark: SparkSession, path: str, schema: T.StructType, paths: Sequence[str] = ()) -> DataFrame:
    """Read with this schema; the columns of folders are texts."""
    reader = spark.read.schema(as_stored(schema)).option("basePath", path)
    return reader.parquet(*(paths or [eng.spark_path(path)]))


def of_run(spark: SparkSession, path: str, schema: T.StructType, file_id: str, paths: Sequence[str]) -> DataFrame:
    """The rows of the files that carry an id."""
    if eng.engine_of(spark) == "sail":
        disk = fl.of_disk(path)
        files = [name for name in partition_files(disk) if swapping.run_in_name(name) == file_id] if disk else []
        rows = rows_of(spark, disk, files, schema) if disk else None
        return spark.createDataFrame([], schema) if rows is None else rows
    rows = with_schema(spark, path, schema, paths)
    return rows.where(F.col(_FILE).contains(file_id))


def of_dates(spark: SparkSession, path: str, pointers: Pointers, schema: T.StructType) -> DataFrame | None:
    """The rows of a table of Parquet files that these pointers name, with these columns; None if there are none."""
    disk = fl.of_disk(path)
    files = live_files(disk, pointers, pointers.__contains__) if disk else []
    if eng.engine_of(spark) == "sail":
        return rows_of(spark, disk, files, schema) if disk else None
    # Spark refuses a folder with folders of dates beside those of experiments.
    kinds = [key for key in sch.PARTITION if any(file.startswith(f"{key}=") for file in files)]
    places = [[f"{eng.spark_path(path)}/{key}=*"] for key in kinds] if disk else [[]]
    try:
        parts = [with_schema(spark, path, schema, each).where(F.col(sch.DATE).isin(*pointers)) for each in places]
    except AnalysisException:  # no date has a row in this table
        return None
    if not parts:
        return None
    rows = reduce(DataFrame.unionByName, parts)
    if disk is None:
        return live(rows, pointers)
    # Names in a list: a pattern would be looked for in each row. Spark leaves out the other files as it plans.
    return rows.where(F.col(_FILE).isin(*(file.rpartition("/")[2] for file in files)))


def pointers_of(spark: SparkSession | None, root: str, date: str = "") -> dict[str, Pointer]:
    """Date -> its pointer; of one date, or of all. Spark reads them where this process does not see the folder."""
    return newest(texts_of(spark, root, FOLDER, date))


def settled(
    root: str, pointers: Callable[[], Pointers], select: Callable[[Pointers], Result], current: Pointers | None = None
) -> Result:
    """What a look at the files of an output finds while no run publishes."""
    current = pointers() if current is None else current
    for _ in range(ATTEMPTS):
        error = None
        try:
            rows = select(current)
        except Exception as caught:  # each kind of session has a class of its own for a file that is gone
            error = caught
        before, current = current, pointers()
        if current == before:
            if error is not None:
                raise error
            return rows
    raise err.InputError(f"cannot read '{root}': runs publish to it all the time; read it again when they have ended")


def texts_of(spark: SparkSession | None, root: str, folder: str, prefix: str = "") -> list[str]:
    """The texts of the JSON files in a folder of an output whose names start so."""
    disk = fl.of_disk(root)
    if disk is not None and disk.is_folder(""):
        names = [name for name in disk.names(folder) if name.startswith(prefix) and name.endswith(".json")]
        return [text for name in names if (text := disk.read(f"{folder}/{name}"))]
    if spark is None:
        return []
    try:
        # Named twice: of one path, Spark logs a stack trace where there is no such file.
        names = [f"{eng.spark_path(root)}/{folder}/{prefix}*.json"] * 2
        return [*dict.fromkeys(row[0] for row in eng.few_rows(spark.read.text(names, wholetext=True)))]
    except AnalysisException:  # nothing has been written there
        return []


def live(rows: DataFrame, pointers: Pointers) -> DataFrame:
    """The rows that the pointers name, as Spark reads them from files."""
    return rows.where(_is_current(F.regexp_extract(F.col(_FILE), f"({RUN_ID})", 1), pointers))


def _is_current(run: Column, pointers: Pointers) -> Column:
    """Whether a row counts, by its date, its experiment and the run that its file names."""
    complete, parts = [], [~F.col(sch.DATE).isin(*pointers) & (run == WITHOUT_ID) if pointers else run == WITHOUT_ID]
    for date, pointer in pointers.items():
        if len(pointer.entries) == 1 and pointer.entries[0].file_id:
            complete.append(f"{date}/{pointer.entries[0].file_id}")
            continue
        parts += [_is_of_entry(run, date, entry) for entry in pointer.entries]
    if complete:
        parts.append(F.concat_ws("/", F.col(sch.DATE), run).isin(*complete))
    return partitions.any_of(parts)


def _is_of_entry(run: Column, date: str, entry: Entry) -> Column:
    """Whether a row is one of those that count of a run on a date."""
    is_member = partitions.any_of([F.col(sch.EXPERIMENT).eqNullSafe(F.lit(name)) for name in entry.experiments])
    return (F.col(sch.DATE) == date) & (run == entry.file_id) & is_member


def _run_column() -> Column:
    """The run of a row of a Delta or Iceberg table; rows of other programs have none."""
    return F.coalesce(F.col(sch.RUN), F.lit(WITHOUT_ID))


def rows_by(rows: DataFrame, pointers: Pointers, other: str) -> dict[tuple[str, str | None], int]:
    """(run, value of another column) -> rows of a Delta or Iceberg table that count."""
    run = _run_column()
    value = F.col(other).cast("string").alias(other)
    counts = rows.where(_is_current(run, pointers)).groupBy(run.alias(sch.RUN), value).count()
    return {(row[0], row[1]): row[2] for row in eng.few_rows(counts)}


def published(rows: DataFrame, table: str, pointers: Pointers, at_version: Callable[[int], DataFrame]) -> DataFrame:
    """The rows of a Delta or Iceberg table that the pointers name.

    What another run has begun to replace, without getting as far as the pointer, is read from its earlier version.
    """
    n, run = rows_by(rows, pointers, sch.DATE), _run_column()
    replaced = [
        (date, entry)
        for date, pointer in pointers.items()
        for entry in pointer.entries
        if (counted := entry.counted(table)) is not None and sum(counted) != n.get((entry.run_id, date), 0)
    ]
    selected = rows.where(_is_current(run, pointers))
    if replaced:
        selected = selected.where(~partitions.any_of([_is_of_entry(run, date, entry) for date, entry in replaced]))
    for date, entry in replaced:
        earlier = at_version(entry.tables[table]["version"]).where(_is_of_entry(run, date, entry))
        selected = selected.unionByName(earlier, allowMissingColumns=True)
    return selected


def live_files(table: fl.Files, pointers: Pointers, is_wanted: Callable[[str], bool] = lambda date: True) -> list[str]:
    """The files of a table that the pointers name, as paths below its folder."""
    name = table.root.rpartition("/")[2]
    runs = {date: pointer.of_table(name).file_run_of() for date, pointer in pointers.items()}
    paths = []
    for folder in table.names(""):
        if folder.startswith(f"{sch.EXPERIMENT}="):
            for day in table.names(folder):
                date = day.partition("=")[2]
                if is_wanted(date):
                    run = runs[date].get(swapping.experiment_of(folder)) if date in runs else WITHOUT_ID
                    paths += [path for path in table.files(f"{folder}/{day}") if swapping.run_in_name(path) == run]
        elif folder.startswith(f"{sch.DATE}=") and is_wanted(date := folder.partition("=")[2]) and date in pointers:
            run = runs[date].get(None) if name in sch.OF_DATES else pointers[date].by_date
            paths += [path for path in table.files(folder) if swapping.run_in_name(path) == run]
    return paths
