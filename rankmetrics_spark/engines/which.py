"""Detect the engine of a session, and hide what differs between Spark and Sail."""

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
# Keyed by client: a session may be wrapped.
_engines: WeakKeyDictionary[Any, Engine] = WeakKeyDictionary()
_laptops: WeakSet[Any] = WeakSet()
# Spark always defines this setting; Sail returns only what a client has set.
_SPARK_SETTING = "spark.sql.catalogImplementation"


def engine_of(spark: SparkSession) -> Engine:
    """Return ``sail`` or ``spark``; asks the server once per session."""
    client = _client(spark)
    if client is None:
        return "spark"
    if client not in _engines:
        _engines[client] = "sail" if _is_sail(spark) else "spark"
    return _engines[client]


def version_of(spark: SparkSession) -> str:
    """Return the version of the engine; on Sail, ``spark.version`` is that of the Spark API."""
    row = spark.sql("SELECT version()").first() if engine_of(spark) == "sail" else None
    return str(row[0]) if row else spark.version


def name_of_engine() -> str:
    """Return the name of this process's engine for messages."""
    return "Sail" if "sail" in _engines.values() else "Spark"


def note_laptop(spark: SparkSession) -> None:
    """Remember that this session's engine is Sail in a child of this process."""
    _engines[_client(spark)] = "sail"
    _laptops.add(_client(spark))


def is_laptop(spark: SparkSession) -> bool:
    """Whether the engine is a child of this process, and so reads and writes the same disk."""
    return _client(spark) in _laptops


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server."""
    return "connect" in type(spark.conf).__module__


def _client(spark: SparkSession) -> Any:
    """The connection of a session to a Connect server; None for a classic session."""
    return spark.client if is_connect(spark) else None


ORDER = "_order"
"""Column that keeps the order of rows within a partition on Sail; a Python step may drop it."""


def in_order(rows: DataFrame, keys: Sequence[str | Column], order: Sequence[str]) -> DataFrame:
    """Bring rows with equal keys into one partition, and sort each partition, for a Python step.

    Sail drops a sort before a Python step, because nothing in the plan needs an order; a window needs it.
    """
    if engine_of(rows.sparkSession) != "sail":
        return rows.repartition(*keys).sortWithinPartitions(*order)
    window = Window.partitionBy(*keys).orderBy(*order)
    return rows.withColumn(ORDER, F.row_number().over(window))


def sail_path(path: str) -> str:
    """Return a local path as a URI, in which Sail expands no wildcard; other paths stay as they are.

    >>> sail_path("/out/runs[1]"), sail_path("s3://bucket/out")
    ('file:///out/runs%5B1%5D', 's3://bucket/out')
    """
    folder = local_path(path)
    return path if folder is None else Path(os.path.abspath(folder)).as_uri()


def _is_sail(spark: SparkSession) -> bool:
    # A server that hides its settings is a serverless Spark.
    with suppress(PySparkException):
        if spark.conf.get(_SPARK_SETTING, None) is None:
            row = spark.sql("SELECT current_catalog(), version()").first()
            return row is not None and row[1] != spark.version and str(row[1]).startswith("0.")
    return False
