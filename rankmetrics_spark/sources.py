"""Readers of input tables: one decorated function per format. Schemas are read at once, rows only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config.sections import Input
from rankmetrics_spark.errors import ConfigError, InputError, first_sentence, unknown
from rankmetrics_spark.schemas import EXPERIMENT, ITEM, POSITION, RELEVANCE, SCORE, USER, quoted

Reader = Callable[[SparkSession, Input, Iterable[str]], DataFrame]
_READERS: dict[str, Reader] = {}


def source(*formats: str) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of some formats.

    Args:
        formats: Their names in the config.
    """

    def register(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(formats, reader))
        return reader

    return register


def read(spark: SparkSession, section: Input, columns: Iterable[str] = ()) -> DataFrame:
    """The rows of an input, filtered by its ``where``.

    Args:
        spark: The session to read with.
        section: The ``source`` or ``judgements`` section of a config: format, path or table, filter, reader options.
        columns: The columns that the caller needs, where they exist. Only JSON uses this: its files have no schema.

    Raises:
        ConfigError: There is no reader for the format.
        InputError: The path or table is missing or cannot be read, or the filter does not fit its columns.
    """
    if section.format not in _READERS:
        raise ConfigError(unknown("source format", section.format, sorted(_READERS)))
    try:
        rows = _READERS[section.format](spark, section, columns)
        rows = rows.where(section.where) if section.where else rows
        rows.schema  # noqa: B018  # Spark Connect reports a missing path only when the schema is requested.
    except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
        place = section.table or ", ".join(_paths(section))
        raise InputError(f"cannot read {section.format} from '{place}': {first_sentence(error)}") from error
    return rows


def _paths(section: Input) -> list[str]:
    return list(section.path or ())


@source("parquet", "orc", "delta", "iceberg")
def _files(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    if section.table:
        return spark.read.options(**section.options).table(section.table)
    reader = spark.read.format(section.format).options(**section.options)
    paths = _paths(section)
    return reader.load(paths if len(paths) > 1 else paths[0])


@source("table")
def _table(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    return spark.read.options(**section.options).table(section.table or _paths(section)[0])


@source("csv")
def _csv(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # No type inference: it would read the file twice and turn "007" into 7.
    return spark.read.options(**({"header": "true"} | dict(section.options))).csv(_paths(section))


@source("json")
def _json(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    if section.where:
        # The filter may name any column, so Spark has to infer the columns; their values stay text.
        return spark.read.options(**({"primitivesAsString": "true"} | dict(section.options))).json(_paths(section))
    # With a schema of strings, ids stay as they are written, and Spark does not read the files to infer a schema.
    wanted = list(dict.fromkeys(columns))
    schema = T.StructType([T.StructField(name, T.StringType()) for name in wanted])
    rows = spark.read.options(**section.options).schema(schema).json(_paths(section))
    return rows.drop(*_absent(rows, wanted))


def _absent(rows: DataFrame, columns: list[str]) -> list[str]:
    """The columns without a value in the first 1000 rows; none if there are no rows."""
    counts = [F.count(F.col(quoted(name))) for name in columns]
    head = rows.limit(1000).agg(*counts, F.count(F.lit(1))).first()
    *filled, total = head or (0,)
    return [name for name, values in zip(columns, filled, strict=False) if total and not values]


@source("trec_run")
def _trec_run(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # query Q0 item rank score tag. Like trec_eval, the package orders by score: ranks in such files can be wrong.
    return _fields(spark, section, {USER: 0, ITEM: 2, POSITION: 3, SCORE: 4, EXPERIMENT: 5}, 6)


@source("trec_qrels")
def _trec_qrels(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # query iteration item grade
    return _fields(spark, section, {USER: 0, ITEM: 2, RELEVANCE: 3}, 4)


def _fields(spark: SparkSession, section: Input, fields: Mapping[str, int], width: int) -> DataFrame:
    """Columns separated by white space; a line with too few has only nulls and is quarantined like any faulty row."""
    words = F.split(F.trim(F.regexp_replace("value", r"\s+", " ")), " ")
    lines = spark.read.options(**section.options).text(_paths(section)).where(F.trim("value") != "")
    complete = lines.select(F.when(F.size(words) >= width, words).alias("w"))
    return complete.select(*(F.expr(f"get(w, {index})").alias(name) for name, index in fields.items()))
