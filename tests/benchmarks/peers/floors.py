"""Lower bounds of the work on Spark: a scan, a counting groupBy, and sending lists to Python and back.

Nothing here uses the project.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F

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
    """The same, reading each item: the minimum cost of detecting repeated items."""
    hashed = F.bit_xor(F.xxhash64("item"))
    return _away(_read(path).groupBy(*KEYS).agg(F.count(F.lit(1)), hashed))


def explode_and_group(path: str) -> dict:
    """What a log with a row per list costs where its items become rows, and these are grouped again."""
    exploded = _read(f"{path}-nested").selectExpr(*KEYS, "posexplode(items) AS (place, item)")
    return _away(exploded.groupBy(*KEYS).agg(F.expr("collect_list(struct(place, item.item, item.relevance))")))


# "Spark alone": moves the data that the metrics need and computes no metrics. Spark aggregates the needed columns to
# lists, Python gets the lists as Arrow batches and only counts them, and Spark adds up the counts per experiment.
_BITS = "bit_or(shiftleft(1L, position - 1)) FILTER (WHERE {} > 0)"
_ITEM = "bit_xor(xxhash64(item)) FILTER (WHERE {} > 0)"
_GAINS, _SCORES = "collect_list(struct({})) FILTER (WHERE gain > 0)", "collect_list(struct({}))"
MOVED = {
    # The ranks of relevant rows as a bit mask; of grades, one for each of their two bits.
    "clicks": [_BITS.format("relevance")],
    "clicks and items": [_BITS.format("relevance"), _ITEM.format("relevance")],
    "grades and items": [_BITS.format("grade & 1"), _BITS.format("grade & 2"), _ITEM.format("grade")],
    "real values": [_GAINS.format("position, gain")],
    "real values and items": [_GAINS.format("position, gain, xxhash64(item)")],
    "scores": [_SCORES.format("score, relevance")],
    "scores and items": [_SCORES.format("score, relevance, xxhash64(item)")],
}
"""What is moved -> its aggregates of a list."""


def there_and_back(path: str, what: str) -> dict:
    columns = (F.expr(f"{sql} AS a{i}") for i, sql in enumerate(MOVED[what]))
    lists = _read(path).groupBy(*KEYS).agg(F.expr("count(1) AS n"), *columns)
    counted = lists.mapInArrow(_counted, "experiment string, lists bigint")
    counted.groupBy("experiment").agg(F.sum("lists")).collect()
    return {}


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts = batch.column(0).value_counts()
        yield pa.RecordBatch.from_arrays(counts.flatten(), ["experiment", "lists"])
