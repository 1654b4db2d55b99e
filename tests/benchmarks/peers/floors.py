"""What Spark needs for less than the work: a scan, a groupBy that counts, and the way of the lists to Python and back.

Nothing here uses the project.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

KEYS = ("experiment", "user")


def _read(path: str) -> DataFrame:
    return SparkSession.active().read.parquet(path)


def _away(table: DataFrame) -> dict:
    table.write.format("noop").mode("overwrite").save()
    return {}


def scan(path: str) -> dict:
    return _away(_read(path).select(*KEYS, "position", "relevance"))


def scan_item(path: str) -> dict:
    return _away(_read(path).select(*KEYS, "position", "relevance", "item"))


def count(path: str) -> dict:
    return _away(_read(path).groupBy(*KEYS).count())


def count_item(path: str) -> dict:
    """The same, looking at each item: what finding a repeated item costs at least."""
    hashed = F.bit_xor(F.xxhash64("item"))
    return _away(_read(path).groupBy(*KEYS).agg(F.count(F.lit(1)), hashed))


# The ways that Spark has for the work, with nothing computed on them: the lists are aggregated from the columns that
# the metrics need, Python gets them as Arrow batches and only counts them, and the counts are added up per experiment.
_BITS = "bit_or(shiftleft(1L, position - 1)) FILTER (WHERE {} > 0)"
_ITEM = "bit_xor(xxhash64(item)) FILTER (WHERE relevance > 0)"


def clicks(path: str) -> dict:
    """Relevant ranks as bits."""
    return _there_and_back(path, _BITS.format("relevance"))


def clicks_with_item(path: str) -> dict:
    """The same, looking at the items of the relevant rows."""
    return _there_and_back(path, _BITS.format("relevance"), _ITEM)


def grades(path: str) -> dict:
    """Two bits of a grade, and the items."""
    planes = (_BITS.format(f"grade & {bit}") for bit in (1, 2))
    return _there_and_back(path, *planes, _ITEM.replace("relevance", "grade"))


def real_valued(path: str) -> dict:
    """Ranks and gains of the relevant rows, collected."""
    return _there_and_back(path, "collect_list(struct(position, gain)) FILTER (WHERE gain > 0)")


def real_valued_with_item(path: str) -> dict:
    """The same, looking at their items."""
    return _there_and_back(path, "collect_list(struct(position, gain, xxhash64(item))) FILTER (WHERE gain > 0)")


def by_score(path: str) -> dict:
    """Score and click of every row, collected."""
    return _there_and_back(path, "collect_list(struct(score, relevance))")


def by_score_with_item(path: str) -> dict:
    """The same, looking at the items."""
    return _there_and_back(path, "collect_list(struct(score, relevance, xxhash64(item)))")


def _there_and_back(path: str, *aggregates: str) -> dict:
    told = (F.expr(f"{sql} AS a{i}") for i, sql in enumerate(aggregates))
    lists = _read(path).groupBy(*KEYS).agg(F.expr("count(1) AS n"), *told)
    counted = lists.mapInArrow(_counted, "experiment string, lists bigint")
    counted.groupBy("experiment").agg(F.sum("lists")).collect()
    return {}


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts = batch.column(0).value_counts()
        yield pa.RecordBatch.from_arrays(counts.flatten(), ["experiment", "lists"])
