"""Work of the driver: read small tables, and run independent functions at the same time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from rankmetrics_spark.errors import raised_by_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

T = TypeVar("T")


def few_rows(table: DataFrame) -> list[Row]:
    """Collect a table whose size depends on experiments, segments and metrics only, or has a limit.

    Not ``toLocalIterator``: it starts a job per partition, and a classic session then keeps the shuffle files of the
    query until it ends.
    """
    try:
        return table.collect()
    except Exception as error:
        if user_error := raised_by_python(error):
            raise user_error from error
        raise


def explain_in_notebooks() -> None:
    """In IPython, an action on a lazy table that fails by a user's mistake ends in its sentence, not in the trace.

    What this package raises itself does so by ``RankmetricsError._render_traceback_``. A handler that is there stays.
    """
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython else None
    if shell is None or shell.custom_exceptions:
        return
    from pyspark.errors import PySparkException

    def explain(shell: Any, kind: type[Exception], error: Exception, trace: Any, tb_offset: int | None = None) -> None:
        """Show the sentence of an error of this package, and any other error as always."""
        if ours := raised_by_python(error):
            shell._showtraceback(type(ours), ours, ours._render_traceback_())
        else:
            shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell.set_custom_exc((PySparkException,), explain)


def all_of(spark: SparkSession, functions: Sequence[Callable[[], T]]) -> list[T]:
    """Run independent functions at the same time; return their results in order.

    On Sail they run one after the other, because its queries share one memory pool.
    """
    from rankmetrics_spark.engines.which import engine_of

    if engine_of(spark) == "sail":
        return [function() for function in functions]
    pool = ThreadPoolExecutor(len(functions), "rankmetrics")
    try:
        futures = [pool.submit(_inherit_thread(spark, function)) for function in functions]
        wait(futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in futures]


def _inherit_thread(spark: SparkSession, function: Callable[[], T]) -> Callable[[], T]:
    """Return the function with the job group, tags and scheduler pool of this thread."""
    from pyspark import __version__ as version
    from pyspark import inheritable_thread_target as inherit
    from pyspark.sql.utils import is_remote

    from rankmetrics_spark.engines.which import is_connect

    if is_remote() != is_connect(spark):
        return function  # There are sessions of both kinds in this process, and Spark looks at the other kind.
    if version.startswith("3."):
        return function if is_connect(spark) else inherit(function)
    target: Callable[[], T] = inherit(spark)(function)
    return target
