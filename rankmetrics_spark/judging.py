"""Judgements -> one row per user with the judged grades, highest first."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.quality import REAL_TYPES, named, number
from rankmetrics_spark.schemas import ITEM, POOL, RELEVANCE, USER

COLUMNS = (USER, ITEM, RELEVANCE)


def pools(judgements: DataFrame, mapping: Mapping[str, str | None], every_grade: bool, text: bool) -> DataFrame:
    """Group sound judgements by user; of a repeated (user, item) the highest grade counts.

    Args:
        judgements: (user, item, relevance), items never shown included.
        mapping: Canonical name to the column that holds it.
        every_grade: Keep grades of 0 and less (for metrics that tell judged from unjudged).
        text: Grades may come as text.

    Returns:
        user_id, pool_grade (descending), pool_hash; a user with no relevant item keeps an empty list.
    """
    sound = judged(judgements, mapping, text).where(~F.col("faulty"))
    best = sound.groupBy(USER, F.xxhash64(ITEM).alias("hash")).agg(F.max("grade").alias("grade"))
    kept = F.lit(True) if every_grade else F.col("grade") > 0
    pool = F.sort_array(F.collect_list(F.when(kept, F.struct("grade", "hash"))), asc=False)
    grouped = best.groupBy(USER).agg(pool.alias(POOL))
    return grouped.select(USER, F.col(f"{POOL}.grade").alias("pool_grade"), F.col(f"{POOL}.hash").alias("pool_hash"))


def judged(judgements: DataFrame, mapping: Mapping[str, str | None], text: bool) -> DataFrame:
    """user_id, item_id, grade as the engine reads them, and ``faulty`` for rows with a null or NaN in one of them."""
    if any(mapping.get(name, name) is None for name in COLUMNS):
        raise InputError("judgements need a user, an item and a relevance column; one of them is mapped to null")
    table = named(judgements, mapping, COLUMNS, "judgements", text)
    kinds = {field.name: field.dataType for field in table.schema.fields}
    grade = f"double({number(RELEVANCE, kinds[RELEVANCE])})"
    real = [f"isnan({name})" for name in (USER, ITEM) if isinstance(kinds[name], REAL_TYPES)]
    missing = [f"{name} IS NULL" for name in (USER, ITEM, grade)]
    faulty = " OR ".join([*missing, *real, f"isnan({grade})", f"abs({grade}) = double('inf')"])
    ids = (f"string({name}) AS {name}" for name in (USER, ITEM))
    return table.selectExpr(*ids, f"{grade} AS grade", f"coalesce({faulty}, true) AS faulty")


def counts(judgements: DataFrame, mapping: Mapping[str, str | None], text: bool) -> DataFrame:
    """One row: how many judgements there are, how many are faulty, how many repeat a (user, item)."""
    table = judged(judgements, mapping, text)
    pairs = table.groupBy(USER, ITEM, "faulty").agg(F.count(F.lit(1)).alias("n"))
    rows, faulty = F.sum("n"), F.sum(F.when(F.col("faulty"), F.col("n")).otherwise(0))
    again = F.sum(F.when(~F.col("faulty"), F.col("n") - 1).otherwise(0))
    return pairs.agg(
        *(
            F.coalesce(column, F.lit(0)).alias(name)
            for name, column in (("rows", rows), ("invalid", faulty), ("repeated", again))
        )
    )
