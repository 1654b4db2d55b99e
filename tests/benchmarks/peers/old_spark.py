"""A session for peers that need their own Spark version. It works with Spark 3.5 and newer."""

from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.benchmarks.peers.settings import SETTINGS


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("peer")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def jobs() -> int:
    return len(session().sparkContext.statusTracker().getJobIdsForGroup(None))


def rankings(path: str) -> DataFrame:
    """The rankings of all experiments as one set of users: a single evaluation is the cheapest option for this peer."""
    rows = session().read.parquet(path)
    key = F.xxhash64("experiment", "user").alias("user")
    return rows.select(
        key, F.xxhash64("item").alias("item"), (-F.col("position")).cast("double").alias("rating"), "relevance"
    )


def truth(path: str) -> DataFrame:
    rows = rankings(path).where("relevance > 0")
    return rows.select("user", "item", F.lit(1.0).alias("rating"))
