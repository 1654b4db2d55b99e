"""Which engine is behind a session, for what has to differ between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rankmetrics_spark.config import local_path

Engine: TypeAlias = Literal["spark", "sail"]
# By client: a session may come wrapped.
_known: WeakKeyDictionary[Any, Engine] = WeakKeyDictionary()
_beside: WeakSet[Any] = WeakSet()
# Every Spark has this setting, and Sail keeps no setting that nobody has made.
_SETTING_OF_SPARK = "spark.sql.catalogImplementation"


def engine_of(spark: SparkSession) -> Engine:
    """``sail`` if Sail answers behind this session, else ``spark``; asks the server once per session."""
    client = _client(spark)
    if client is None:
        return "spark"
    if client not in _known:
        _known[client] = "sail" if _is_sail(spark) else "spark"
    return _known[client]


def version_of(spark: SparkSession) -> str:
    """The version of the engine itself; Sail gives that of the Spark API as ``spark.version``."""
    row = spark.sql("SELECT version()").first() if engine_of(spark) == "sail" else None
    return str(row[0]) if row else spark.version


def name_of_engine() -> str:
    """What a message calls the engine of this process."""
    return "Sail" if "sail" in _known.values() else "Spark"


def note_laptop(spark: SparkSession) -> None:
    """Remember that this session's engine is Sail in a child of this process."""
    _known[_client(spark)] = "sail"
    _beside.add(_client(spark))


def is_laptop(spark: SparkSession) -> bool:
    """Whether the engine is a child of this process, and so reads and writes the same disk."""
    return _client(spark) in _beside


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server."""
    return "connect" in type(spark.conf).__module__


def _client(spark: SparkSession) -> Any:
    """The connection of a session to a Connect server; None for a classic session."""
    return spark.client if is_connect(spark) else None


ORDER = "_order"
"""A column that holds the rows of a partition in their order on Sail; a Python step may drop it."""


def in_order(rows: DataFrame, keys: Sequence[str | Column], order: Sequence[str]) -> DataFrame:
    """Rows with equal keys in one partition, and each partition sorted, for a Python step.

    Sail drops a sort in front of a Python step, because nothing in the plan asks for an order; a window does.
    """
    if engine_of(rows.sparkSession) != "sail":
        return rows.repartition(*keys).sortWithinPartitions(*order)
    window = Window.partitionBy(*keys).orderBy(*order)
    return rows.withColumn(ORDER, F.row_number().over(window))


def sail_path(path: str) -> str:
    """A local path as an address that Sail takes literally: it expands no wildcard and resolves no relative path.

    >>> sail_path("/out/runs[1]"), sail_path("s3://bucket/out")
    ('file:///out/runs%5B1%5D', 's3://bucket/out')
    """
    folder = local_path(path)
    return path if folder is None else Path(os.path.abspath(folder)).as_uri()


def _is_sail(spark: SparkSession) -> bool:
    # A server that does not show its settings is a serverless Spark.
    with suppress(PySparkException):
        if spark.conf.get(_SETTING_OF_SPARK, None) is None:
            row = spark.sql("SELECT current_catalog(), version()").first()
            return row is not None and row[1] != spark.version and str(row[1]).startswith("0.")
    return False
