"""Files that need more than the engine's reader.

* Patterns in local paths are expanded.
* Partition folders such as ``experiment_id=1.10``: an id is the text in the folder's name, on every engine. Spark
  infers numbers, so 1.1 and 1.10 would become one experiment. Sail reads every folder as text, also the one for null.
* Lines of JSON: a line that is not exactly one value becomes a row without values. Spark's reader takes the first value
  of a line and drops the others. Here each line is parsed as a field of an object, so a second value is an error.
* Columns of Parquet files with types that an engine cannot read, such as some that pandas writes. Both engines refuse
  the whole file, so it is read without these columns.
"""

import glob
import io
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession, functions as F, types as T
from pyspark.sql.pandas.types import from_arrow_type

from rankmetrics_spark import config as cfg, doors, engines as eng, errors as err, schemas as sch
from rankmetrics_spark.config import ENDING, Input, Source, local_path, problem_with_lines

_WILDCARDS = re.compile(r"[*?\[]")
_BRACES = re.compile(r"[{]([^{}]*)[}]")


def is_pattern(path: str) -> bool:
    """Whether a local path may stand for several files and folders."""
    return local_path(path) is not None and bool(_WILDCARDS.search(path) or _BRACES.search(path))


def expand_path(path: str) -> Iterator[str]:
    """Expand braces and wildcards of a local path; yield the files and folders that exist."""
    folder = local_path(path)
    for pattern in expand_braces(str(folder)) if folder else ():
        yield from sorted(glob.glob(pattern)) if _WILDCARDS.search(pattern) else [pattern] * os.path.exists(pattern)


def files_of(*paths: str) -> Iterator[str]:
    """Yield the files that local paths match, also those in their folders; hidden ones are skipped."""
    for base in chain.from_iterable(map(expand_path, paths)):
        yield from cfg.files_below(base)


def folder_values(paths: Sequence[str]) -> dict[str, set[str]]:
    """Return the values of partition folders such as ``day=2026-11-20`` below these paths, by column."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for base in chain.from_iterable(map(expand_path, paths)):
        for file in cfg.files_below(base):
            for folder in os.path.relpath(file, base).split(os.sep)[:-1]:
                name, equals, value = folder.partition("=")
                if equals:
                    values[unquote(name)].add(unquote(value))
    return dict(values)


def open_file(file: str) -> IO[bytes]:
    """Open a file as a stream of bytes; decompress it if its suffix says so."""
    return io.BufferedReader(pa.input_stream(file))


def expand_braces(path: str) -> Iterator[str]:
    """Expand ``a/{b,c}`` to ``a/b`` and ``a/c``.

    >>> list(expand_braces("a/{b,c}/{d,e}"))
    ['a/b/d', 'a/b/e', 'a/c/d', 'a/c/e']
    """
    braces = _BRACES.search(path)
    if not braces:
        yield path
        return
    for choice in braces[1].split(","):
        yield from expand_braces(path[: braces.start()] + choice + path[braces.end() :])


_MOST_FILES = 24


def refuse_lines(section: Input) -> None:
    """Refuse local files whose first lines cannot be what the format says; of many files the first ones.

    Raises:
        InputError: It says what they hold, and what helps.
    """
    of_lists = {section.columns.get("intents", sch.INTENTS)}
    names = [name for name in section.required_columns() if name not in of_lists]
    for file in islice(files_of(*section.paths), _MOST_FILES):
        if problem := problem_with_lines(Path(file), section.format, section.options, names):
            raise err.InputError(f"cannot read {section.format} from '{file}': {problem}")


def folders_of_files(section: Input) -> Input:
    """The folders that hold the files of an input whose files name the experiments; Spark reads no folders in folders.

    What is on other file systems stays as it is.
    """
    if getattr(section, "experiment_from", "tag") == "tag":
        return section
    paths: list[str] = []
    for path in section.paths:
        places: list[str] = []
        for base in expand_path(path):
            # Above any partition folders, but not above those that the path chooses.
            below = (os.path.dirname(file)[len(base) :] for file in cfg.files_below(base))
            folders = (base + re.sub(r"(/+[^/=]*=[^/]*)+$", "", folder) for folder in below)
            places += [base] if os.path.isfile(base) else dict.fromkeys(folders)
        paths += places or [path]
    return replace(section, path=tuple(eng.spark_path(path) if os.path.exists(path) else path for path in paths))


def split_by_folders(section: Source) -> dict[str, Source]:
    """Experiment -> its folders, where these hold partition folders; Spark reads those of one experiment at a time."""
    if section.experiment_from != "folder" or not folder_values(section.paths):
        return {}
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for path in folders_of_files(section).path or ():
        folders[cfg.experiment_of(f"{os.path.abspath(path)}/", "folder")].append(path)
    of_one = replace(section, columns={**section.columns, "experiment": None}, experiment_from="tag")
    return {name: replace(of_one, path=tuple(paths)) for name, paths in folders.items()}


#: Internal column: the experiment that a file names, on Sail.
OF_FILE = "_experiment_of_file"


def named_after_files(rows: DataFrame, experiment: Column | None) -> DataFrame:
    """The rows with the experiments that their files name, if these do."""
    return rows if experiment is None else rows.withColumn(sch.EXPERIMENT, experiment).drop(OF_FILE)


def experiment_column(spark: SparkSession, section: Input) -> Column | None:
    """The same as a column; None where no file names the experiment."""
    if getattr(section, "experiment_from", "tag") == "tag":
        return None
    if eng.engine_of(spark) == "sail":  # see ``on_sail.by_experiment``
        return F.col(OF_FILE)
    # Spark gives the path URL-encoded, but leaves + as it is.
    steps = "split(url_decode(replace(_metadata.file_path, '+', '%2B')), '/')"
    if getattr(section, "experiment_from", "") == "folder":
        folders = f"filter(slice({steps}, 1, size({steps}) - 1), step -> step != '' AND NOT contains(step, '='))"
        return F.expr(f"element_at({folders}, -1)")
    return F.regexp_replace(F.expr(f"element_at({steps}, -1)"), ENDING.pattern.replace("?P<", "?<"), "")


#: Function that reads the files of an input with a given reader, which may have a schema.
Load: TypeAlias = Callable[[DataFrameReader], DataFrame]
_NO_COLUMN = T.StructType([T.StructField("_no_column", T.StringType())])
#: Type that Spark infers for folders -> the pattern of their values. The first match counts; dates come after these.
_KINDS: dict[str, str] = doors.data_of(__name__, "folders")


def load_folders(spark: SparkSession, section: Input, files: Load, own: T.StructType | None = None) -> DataFrame:
    """Read files and their partition columns: ids as text, others in the types that Spark infers."""
    experiment = experiment_column(spark, section)
    if eng.engine_of(spark) == "sail":
        # Sail ignores a reader's schema.
        rows = files(spark.read)
        if own is None:
            rows.schema  # noqa: B018  where a type cannot be read, the caller names the columns
        else:
            folders = (F.col(sch.quoted(name)) for name in folder_values(section.paths) if name not in own.names)
            casts = (F.col(sch.quoted(field.name)).cast(field.dataType).alias(field.name) for field in own.fields)
            rows = rows.select(*casts, *folders)
        return named_after_files(typed_on_sail(rows, section), experiment)
    rows = files(spark.read.schema(own) if own else spark.read)
    texts = {field.name for field in rows.schema.fields if not isinstance(field.dataType, T.StringType)}
    texts &= set(section.ids())
    # Lists the folders again, but opens no file: none has the one column of this schema.
    texts &= set(files(spark.read.schema(_NO_COLUMN)).columns) if texts else set()
    if texts:
        fields = rows.schema.fields
        with_texts = [T.StructField(field.name, T.StringType()) if field.name in texts else field for field in fields]
        rows = files(spark.read.schema(T.StructType(with_texts)))
    return named_after_files(rows, experiment)


def typed_on_sail(rows: DataFrame, section: Input) -> DataFrame:
    """Give partition columns on Sail the nulls and types that Spark infers; ids stay text."""
    columns = {}
    for name, values in folder_values(section.paths).items():
        if name in rows.columns:
            text = F.when(F.col(sch.quoted(name)) != sch.NULL_PARTITION, F.col(sch.quoted(name)))
            is_id = name in (*section.ids(), OF_FILE)
            columns[name] = text if is_id else text.cast(_kind(values - {sch.NULL_PARTITION}))
    return rows.withColumns(columns) if columns else rows


def _kind(values: set[str]) -> str:
    """Return the type that Spark infers for partition folders with these values.

    >>> _kind({"9", "10"}), _kind({"1.1", "7"}), _kind({"2026-11-20"}), _kind({"de", "7"}), _kind(set())
    ('int', 'double', 'date', 'string', 'string')
    """
    kinds = (kind for kind, pattern in _KINDS.items() if all(re.fullmatch(pattern, value) for value in values))
    if not values:
        return "string"
    try:
        are_dates = all(date.fromisoformat(value).isoformat() == value for value in values)
    except ValueError:
        are_dates = False
    return next(kinds, "date" if are_dates else "string")


#: Internal column: the text of a line that is not JSON; null for all others.
UNREADABLE = "_unreadable_line"
_LINE = "value"
_OTHER_ENCODING = ("encoding", "charset")


def read_json_lines(
    spark: SparkSession, section: Input, options: Mapping[str, str], fields: Sequence[T.StructField]
) -> DataFrame:
    """Read objects of JSON files as rows with these columns, partition columns, and ``UNREADABLE``."""
    paths, experiment = list(section.paths), experiment_column(spark, section)
    lower_options = {name: value for name, value in json_options(options).items() if name != "mode"}
    if any(name in lower_options for name in _OTHER_ENCODING):
        # Spark reads text as UTF-8 only.
        schema = T.StructType([*fields, T.StructField(UNREADABLE, T.StringType())])
        reader = spark.read.options(**lower_options, columnnameofcorruptrecord=UNREADABLE)
        return named_after_files(reader.schema(schema).json(paths), experiment)
    reader, whole_files = spark.read.options(**lower_options), lower_options.get("multiline", "").lower() == "true"
    lines = reader.text(list(paths), wholetext=whole_files)
    if len(lines.columns) > 1:
        known_fields = {field.name: field for field in fields}
        folder_fields = [known_fields.get(field.name, field) for field in lines.schema.fields if field.name != _LINE]
        line_schema = T.StructType([T.StructField(_LINE, T.StringType()), *folder_fields])
        lines = reader.schema(line_schema).text(list(paths), wholetext=whole_files)
    # The first line of a file may start with a byte order mark.
    text = F.when(F.col(_LINE).startswith("\ufeff"), F.expr(f"substring({_LINE}, 2)")).otherwise(F.col(_LINE))
    lines = named_after_files(lines.withColumn(_LINE, text).where(F.col(_LINE).rlike(r"\S")), experiment)
    folders = [name for name in lines.columns if name != _LINE]
    own = T.StructType([field for field in fields if field.name not in folders])
    objects = lines.select(_LINE, *folders, F.explode_outer(_objects(own, lower_options)).alias("_object"))
    unreadable = F.when(F.col("_object").isNull(), F.col(_LINE)).alias(UNREADABLE)
    return objects.select(*(F.col("_object").getField(name).alias(name) for name in own.names), *folders, unreadable)


def json_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with names in lower case; with an encoding, Spark needs the line separator too.

    >>> json_options({"Encoding": "UTF-16"}), json_options({"encoding": "UTF-16", "multiLine": "true"})
    ({'linesep': '\\n', 'encoding': 'UTF-16'}, {'encoding': 'UTF-16', 'multiline': 'true'})
    """
    lower_options = {name.lower(): value for name, value in options.items()}
    is_encoded = any(name in lower_options for name in _OTHER_ENCODING)
    lines = is_encoded and lower_options.get("multiline", "").lower() != "true"
    return ({"linesep": "\n"} if lines else {}) | lower_options


def _objects(schema: T.StructType, options: Mapping[str, str]) -> Column:
    """Return the objects of a line as an array: its one value, or the elements of its array; null if it is no object.

    The parser reaches ``_end`` only if the line is exactly one value.
    """
    # The line break ends a comment, if comments are allowed.
    envelope_text = F.concat(F.lit('{"_line": '), F.col(_LINE), F.lit('\n, "_end": 1}'))

    def value_of(kind: T.DataType) -> Column:
        envelope = T.StructType([T.StructField("_line", kind), T.StructField("_end", T.IntegerType())])
        # Over Connect, an empty map has no type.
        parsed_envelope = F.from_json(envelope_text, envelope, dict(options) or None)
        return F.when(parsed_envelope["_end"] == 1, parsed_envelope["_line"])

    is_array = F.ltrim(F.col(_LINE)).startswith("[")
    objects = value_of(T.ArrayType(schema))
    # If an array has other elements than objects, engines read different parts of it.
    objects_only = ~F.exists(objects, lambda value: value.isNull())
    return F.when(is_array, F.when(objects_only, objects)).otherwise(F.array(value_of(schema)))


_REFUSED = re.compile(r"Parquet type|PARQUET_TYPE_|to Spark data type", re.IGNORECASE)
_UNSIGNED = {"uint8": T.ShortType(), "uint16": T.IntegerType(), "uint32": T.LongType(), "uint64": T.DecimalType(20, 0)}


def readable_columns(section: Input, engine: str, error: Exception) -> T.StructType | None:
    """Return the columns that the engine can read; None if the error has another cause."""
    own = _own_columns(section) if _REFUSED.search(str(error)) else None
    if own is None:
        return None
    for name in section.required_columns():
        if sentence := unreadable_column(section, engine, name):
            raise err.InputError(sentence) from error
    for name in {*section.ids()} & {*own.names}:
        if pa.types.is_timestamp(own.field(name).type) and _has_nanoseconds(section, name):
            raise err.InputError.of("nanoseconds", name=name, engine=engine) from error
    kinds = {field.name: _readable(field.type, engine) for field in own}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items() if kind is not None])


def _has_nanoseconds(section: Input, name: str) -> bool:
    """Whether a time of a column in local files has more digits than microseconds have."""
    for file in files_of(*section.paths):
        for batch in pq.ParquetFile(file).iter_batches(columns=[name]):
            times = batch.column(0)
            if times.type.unit == "ns" and (np.asarray(times.cast(pa.int64()).fill_null(0)) % 1000).any():
                return True
    return False


def unreadable_column(section: Input, engine: str, name: str) -> str | None:
    """Return an error message if the engine cannot read the type of this column; else None."""
    own = _own_columns(section) if section.format == "parquet" else None
    if own is None or name not in own.names or _readable(kind := own.field(name).type, engine) is not None:
        return None
    advice = "floats of 32 or 64 bits" if pa.types.is_float16(kind) else "another type"
    if pa.types.is_timestamp(kind):
        advice = "microseconds, as df.to_parquet(..., coerce_timestamps='us') writes them"
    return err.said("unreadable_column", name=name, kind=kind, engine=engine, advice=advice)


def odd_file(section: Input) -> err.InputError | None:
    """Return an error that names a local Parquet file in which a column has another type than in most; else None."""
    files = files_of(*section.paths) if section.format == "parquet" else ()
    schemas = {file: schema for file in files if (schema := schema_of(file)) is not None}
    for name in dict.fromkeys(name for schema in schemas.values() for name in schema.names):
        kinds = {file: schema.field(name).type for file, schema in schemas.items() if name in schema.names}
        counts = Counter(kinds.values()).most_common()
        if len(counts) > 1:
            usual = counts[0][0]
            file = next(file for file, kind in kinds.items() if kind != usual)
            other = next(file for file, kind in kinds.items() if kind == usual)
            return err.InputError.of("two_types", file=file, name=name, kind=kinds[file], other=other, usual=usual)
    return None


def _own_columns(section: Input) -> pa.Schema | None:
    """Return the schema of the first file; None if the files are not local."""
    file = next(files_of(*section.paths), None)
    return None if file is None else schema_of(file)


def schema_of(file: str) -> pa.Schema | None:
    """Return the schema of a Parquet file; None if the file is none, or broken."""
    with suppress(OSError, pa.ArrowException):
        return pq.read_schema(file)
    return None


def _readable(kind: pa.DataType, engine: str) -> T.DataType | None:
    """Return the type in which the engine reads a column; None if it cannot."""
    if pa.types.is_dictionary(kind):
        return _readable(kind.value_type, engine)
    if pa.types.is_float16(kind):
        return T.FloatType() if engine == "sail" else None
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and engine == "spark":
        return None
    if pa.types.is_duration(kind):
        return T.LongType() if engine == "spark" else None
    if str(kind) in _UNSIGNED:
        return _UNSIGNED[str(kind)]
    try:
        return from_arrow_type(kind, True)
    except Exception:  # the class differs between versions of Spark
        return None


# ---- local files that no engine reads, or that an engine would misread


def parsed_rows(section: Input) -> pa.Table:
    """Parse the local files of an input here; the values are texts, as in the files."""
    files = [*files_of(*section.paths)]
    if not files:
        raise err.InputError.of("parsed_files_only", section=section, other=cfg.ROWS_OF[section.format])
    is_log, named_by = isinstance(section, Source), getattr(section, "experiment_from", "tag")
    rows: list[tuple[str | None, ...]] = []
    for file in files:
        named = None if named_by == "tag" else cfg.experiment_of(os.path.abspath(file), named_by)
        rows += [(*row, named) for row in cfg.parsed(Path(file), section.format, section.options, is_log)]
    if not rows:
        raise err.InputError(f"cannot read {section.format} from '{section.place}': no rows; allowed: at least one")
    cells = dict(zip((*cfg.PARSED_NAMES.values(), sch.EXPERIMENT), zip(*rows, strict=True), strict=True))
    texts = {name: values for name, values in cells.items() if any(value is not None for value in values)}
    return pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()})


def split_lines(spark: SparkSession, section: Input, separator: str) -> DataFrame:
    """Read fields without names with several characters between them, which Sail's reader of CSV does not take."""
    first = _first_line(section)
    lines = load_folders(spark, section, lambda reader: reader.text([*section.paths])).where(F.trim("value") != "")
    words = F.split(F.regexp_replace("value", "^\ufeff|\r$", ""), re.escape(separator))
    lines = lines.withColumn("value", words)
    cells = [F.expr(f"nullif(get(value, {n}), '')").alias(f"_c{n}") for n in range(first.count(separator) + 1)]
    return lines.select(*cells, *(F.col(sch.quoted(name)) for name in lines.columns if name != "value"))


def without_nameless(rows: DataFrame, section: Input) -> DataFrame:
    """Leave out columns without a name, such as the index of pandas: Spark calls them by number, Sail by nothing."""
    first = _first_line(section)
    numbered = [name for at, name in enumerate(rows.columns) if first and name == f"_c{at}"]
    return rows.drop(*(name for name in numbered if name not in first))


def _first_line(section: Input) -> str:
    """The first line of the first local file, without its end; empty if there is none."""
    for file in files_of(*section.paths):
        with open_file(file) as lines:
            return lines.readline().decode("utf-8", "replace").rstrip("\r\n")
    return ""
