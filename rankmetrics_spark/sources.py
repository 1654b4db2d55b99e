"""Readers: one decorated function per format. Nothing is read before a job needs it, but schemas are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.errors import ConfigError, InputError, first_sentence, unknown

TEXT_FORMATS = frozenset({"csv", "json", "trec_run", "trec_qrels"})
"""Formats without types of their own: numbers arrive as text and are read row by row."""


class Place(Protocol):
    """What a reader needs to know: the ``source`` or ``judgements`` section of a config."""

    @property
    def format(self) -> str: ...
    @property
    def path(self) -> str | tuple[str, ...] | None: ...
    @property
    def table(self) -> str | None: ...
    @property
    def where(self) -> str | None: ...
    @property
    def options(self) -> Mapping[str, str]: ...


Reader = Callable[[SparkSession, Place, Iterable[str]], DataFrame]
_READERS: dict[str, Reader] = {}


def source(*formats: str) -> Callable[[Reader], Reader]:
    """Register a reader for formats."""

    def register(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(formats, reader))
        return reader

    return register


def read(spark: SparkSession, place: Place, columns: Iterable[str] = ()) -> DataFrame:
    """The rows of a source, filtered by its ``where``.

    Args:
        spark: The session to read with.
        place: Format, path or table, filter and reader options.
        columns: The columns that are wanted (a JSON file does not say which it has).

    Raises:
        InputError: The path or table is missing or cannot be read, or the filter does not fit its columns.
    """
    if place.format not in _READERS:
        raise ConfigError(unknown("source format", place.format, sorted(_READERS)))
    where = place.table or ", ".join(_paths(place))
    try:
        rows = _READERS[place.format](spark, place, columns)
        rows = rows.where(place.where) if place.where else rows
        rows.schema  # noqa: B018  # Connect looks the schema up only when asked; a missing path must show here.
    except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
        raise InputError(f"cannot read {place.format} from '{where}': {first_sentence(error)}") from error
    return rows


def _paths(place: Place) -> list[str]:
    paths = place.path or ()
    return [paths] if isinstance(paths, str) else list(paths)


@source("parquet", "orc", "delta", "iceberg")
def _files(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    if place.table:
        return spark.read.options(**place.options).table(place.table)
    reader = spark.read.format(place.format).options(**place.options)
    paths = _paths(place)
    return reader.load(paths if len(paths) > 1 else paths[0])


@source("table")
def _table(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    return spark.read.options(**place.options).table(place.table or _paths(place)[0])


@source("csv")
def _csv(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    # No type inference: it would read the file twice and turn "007" into 7.
    return spark.read.options(**({"header": "true"} | dict(place.options))).csv(_paths(place))


@source("json")
def _json(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    if place.where:
        # The filter may name any column, so the columns have to be found; their values stay texts all the same.
        return spark.read.options(**({"primitivesAsString": "true"} | dict(place.options))).json(_paths(place))
    # A schema of texts keeps ids as they are written and spares the pass that inference would need.
    wanted = list(dict.fromkeys(columns))
    schema = T.StructType([T.StructField(name, T.StringType()) for name in wanted])
    rows = spark.read.options(**place.options).schema(schema).json(_paths(place))
    head = rows.limit(1000).agg(
        *(F.count(F.col(f"`{name}`")).alias(name) for name in wanted), F.count(F.lit(1)).alias("n")
    )
    found = head.first()
    missing = [] if found is None or not found["n"] else [name for name in wanted if not found[name]]
    return rows.drop(*missing)


@source("trec_run")
def _trec_run(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    # query Q0 item rank score tag. The rank is not to be trusted: trec_eval orders by score, and so do we.
    return _fields(spark, place, {"user_id": 0, "item_id": 2, "position": 3, "score": 4, "experiment_id": 5}, 6)


@source("trec_qrels")
def _trec_qrels(spark: SparkSession, place: Place, columns: Iterable[str]) -> DataFrame:
    # query iteration item grade
    return _fields(spark, place, {"user_id": 0, "item_id": 2, "relevance": 3}, 4)


def _fields(spark: SparkSession, place: Place, fields: Mapping[str, int], width: int) -> DataFrame:
    """White-space separated columns; a line with too few has nulls and is quarantined like any faulty row."""
    words = F.split(F.trim(F.regexp_replace("value", r"\s+", " ")), " ")
    lines = spark.read.options(**place.options).text(_paths(place)).where(F.trim("value") != "")
    complete = lines.select(F.when(F.size(words) >= width, words).alias("w"))
    return complete.select(*(F.expr(f"get(w, {index})").alias(name) for name, index in fields.items()))
