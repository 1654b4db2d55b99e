"""What this process does itself: it reads tables that do not grow with the users, and starts independent steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from rankmetrics_spark.errors import raised_by_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")


def few_rows(table: DataFrame) -> list[Row]:
    """The rows of a table whose size depends on experiments, segments and metrics, or has a limit.

    Not ``toLocalIterator``: it starts a job per partition, and a classic session then keeps the shuffle files of the
    query until it ends.
    """
    try:
        return table.collect()
    except Exception as error:
        if ours := raised_by_python(error):
            raise ours from error
        raise


def all_of(spark: SparkSession, works: Sequence[Callable[[], T]]) -> list[T]:
    """Do independent works, and return what each of them returns.

    On Sail, one after the other: its queries share one pool of memory.
    """
    from rankmetrics_spark.engines.which import engine_of

    if engine_of(spark) == "sail":
        return [work() for work in works]
    pool = ThreadPoolExecutor(len(works), "rankmetrics")
    try:
        futures = [pool.submit(_inheriting(spark, work)) for work in works]
        wait(futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in futures]


def _inheriting(spark: SparkSession, work: Callable[[], T]) -> Callable[[], T]:
    """The work with the job group, the tags and the pool of this thread."""
    from pyspark import __version__ as version
    from pyspark import inheritable_thread_target as inherited
    from pyspark.sql.utils import is_remote

    from rankmetrics_spark.engines.which import is_connect

    if is_remote() != is_connect(spark):
        return work  # There are sessions of both kinds in this process, and Spark looks at the other kind.
    if version.startswith("3."):
        return work if is_connect(spark) else inherited(work)
    found: Callable[[], T] = inherited(spark)(work)
    return found
