"""Which engine is behind a session, for what has to differ between them."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

Engine: TypeAlias = Literal["spark", "sail"]
_known: WeakKeyDictionary[SparkSession, Engine] = WeakKeyDictionary()
# Every Spark has this setting, and Sail keeps no setting that nobody has made.
_SETTING_OF_SPARK = "spark.sql.catalogImplementation"


def engine_of(spark: SparkSession) -> Engine:
    """``sail`` if Sail answers behind this session, else ``spark``; asks the server once per session."""
    if "connect" not in type(spark).__module__:
        return "spark"
    if spark not in _known:
        _known[spark] = "sail" if _is_sail(spark) else "spark"
    return _known[spark]


def version_of(spark: SparkSession) -> str:
    """The version of the engine itself; Sail gives that of the Spark API as ``spark.version``."""
    row = spark.sql("SELECT version()").first() if engine_of(spark) == "sail" else None
    return str(row[0]) if row else spark.version


def _is_sail(spark: SparkSession) -> bool:
    # A server that does not show its settings is a serverless Spark.
    with suppress(PySparkException):
        if spark.conf.get(_SETTING_OF_SPARK, None) is None:
            row = spark.sql("SELECT current_catalog(), version()").first()
            return row is not None and row[1] != spark.version and str(row[1]).startswith("0.")
    return False
