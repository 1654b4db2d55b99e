"""Judgements -> one row per user with the judged items, highest grade first."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.engines import as_text, engine_of
from rankmetrics_spark.road.checking import faulty_id, number, renamed
from rankmetrics_spark.schemas import HASH, ITEM, POOL_GRADE, POOL_HASH, RELEVANCE, USER

COLUMNS = (USER, ITEM, RELEVANCE)
GRADE, FAULTY = "_grade", "_faulty"


def pools(judgements: DataFrame, mapping: Mapping[str, str | None], every_grade: bool, text: bool) -> DataFrame:
    """Group sound judgements by user; of a repeated (user, item) the highest grade counts.

    Args:
        judgements: (user, item, relevance), including items that were never shown.
        mapping: Canonical name to the column that holds it.
        every_grade: Keep grades of 0 and less, for metrics that tell judged from unjudged items.
        text: Grades may come as text.

    Returns:
        user_id, ``_pool_grade`` (array, descending), ``_pool_hash``; a user with no relevant item has empty arrays.

    Raises:
        InputError: A column is missing or has a type that cannot serve.
    """
    sound = typed_judgements(judgements, mapping, text).where(f"NOT {FAULTY}")
    best = sound.groupBy(USER, F.xxhash64(ITEM).alias(HASH)).agg(F.max(GRADE).alias(GRADE))
    kept = F.lit(True) if every_grade else F.col(GRADE) > 0
    pool = F.sort_array(F.collect_list(F.when(kept, F.struct(GRADE, HASH))), asc=False)
    grouped = best.groupBy(USER).agg(pool.alias("_pool"))
    return grouped.selectExpr(USER, f"_pool.{GRADE} AS {POOL_GRADE}", f"_pool.{HASH} AS {POOL_HASH}")


def typed_judgements(judgements: DataFrame, mapping: Mapping[str, str | None], text: bool) -> DataFrame:
    """user_id, item_id, ``_grade`` as the engine reads them; ``_faulty`` marks rows with a null or unsafe id."""
    table = renamed(judgements, mapping, COLUMNS, "judgements", text)
    kinds = {field.name: field.dataType for field in table.schema.fields}
    grade = f"double({number(RELEVANCE, kinds[RELEVANCE])})"
    unsafe = [faulty_id(name, kinds[name], text) for name in (USER, ITEM)]
    missing = [f"{name} IS NULL" for name in (USER, ITEM, grade)]
    faulty = " OR ".join([*missing, *unsafe, f"isnan({grade})", f"abs({grade}) = double('inf')"])
    engine = engine_of(judgements.sparkSession)
    ids = (f"{as_text(name, kinds[name], engine)} AS {name}" for name in (USER, ITEM))
    return table.selectExpr(*ids, f"{grade} AS {GRADE}", f"coalesce({faulty}, true) AS {FAULTY}")


def judgement_counts(judgements: DataFrame, mapping: Mapping[str, str | None], text: bool) -> DataFrame:
    """One row: ``rows`` (all judgements), ``invalid`` (faulty ones), ``repeated`` (a (user, item) once more)."""
    table = typed_judgements(judgements, mapping, text)
    pairs = table.groupBy(USER, ITEM, FAULTY).agg(F.count(F.lit(1)).alias("n"))
    invalid, repeated = f"CASE WHEN {FAULTY} THEN n ELSE 0 END", f"CASE WHEN {FAULTY} THEN 0 ELSE n - 1 END"
    sums = {"rows": "n", "invalid": invalid, "repeated": repeated}
    return pairs.agg(*(F.expr(f"coalesce(sum({sql}), 0) AS {name}") for name, sql in sums.items()))
