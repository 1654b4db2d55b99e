"""A session: which engine it has, the settings of a run, the few rows that it gives, and work at the same time.

What differs between Spark and Sail is hidden here. Without pyspark this module still loads: it names the engine.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from rankmetrics_spark import config as cfg, doors
from rankmetrics_spark.errors import HIDDEN, ConfigError, RankmetricsError, first_sentence, is_secret, raised_by_python

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

T = TypeVar("T")
Engine: TypeAlias = Literal["spark", "sail"]
# Its engine, and whether that is a child of this process. Keyed by client: a session may be wrapped.
_engines: WeakKeyDictionary[Any, tuple[Engine, bool]] = WeakKeyDictionary()
# Spark always defines this setting; Sail returns only what a client has set.
_SPARK_SETTING = "spark.sql.catalogImplementation"


def engine_of(spark: SparkSession) -> Engine:
    """Return ``sail`` or ``spark``; asks the server once per session."""
    return _known(spark)[0]


def is_laptop(spark: SparkSession) -> bool:
    """Whether the engine is a child of this process, and so reads and writes the same disk."""
    return _known(spark)[1]


def _known(spark: SparkSession) -> tuple[Engine, bool]:
    client = _client(spark)
    if client is None:
        return "spark", False
    if client not in _engines:
        from pyspark.errors import PySparkException

        engine: Engine = "spark"
        # A server that hides its settings is a serverless Spark.
        with suppress(PySparkException):
            if spark.conf.get(_SPARK_SETTING, None) is None:
                row = spark.sql("SELECT current_catalog(), version()").first()
                if row is not None and row[1] != spark.version and str(row[1]).startswith("0."):
                    engine = "sail"
        _engines[client] = engine, False
    return _engines[client]


def version_of(spark: SparkSession) -> str:
    """Return the version of the engine; on Sail, ``spark.version`` is that of the Spark API."""
    row = spark.sql("SELECT version()").first() if engine_of(spark) == "sail" else None
    return str(row[0]) if row else spark.version


def name_of_engine() -> str:
    """Return the name of this process's engine for messages."""
    return "Sail" if any(engine == "sail" for engine, _ in _engines.values()) else "Spark"


def note_laptop(spark: SparkSession) -> None:
    """Remember that this session's engine is Sail in a child of this process."""
    _engines[_client(spark)] = "sail", True


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server."""
    return "connect" in type(spark.conf).__module__


def _client(spark: SparkSession) -> Any:
    """The connection of a session to a Connect server; None for a classic session."""
    return spark.client if is_connect(spark) else None


#: Column that keeps the order of rows within a partition on Sail; a Python step may drop it.
ORDER = "_order"


def in_order(
    rows: DataFrame, keys: Sequence[str | Column], order: Sequence[str], blocks: Sequence[Column] = ()
) -> DataFrame:
    """Bring rows with equal keys into one partition, and sort each partition, for a Python step.

    Sail drops a sort before a Python step, because nothing in the plan needs an order; a window needs it.

    Args:
        rows: The rows.
        keys: Rows with equal ones stay together.
        order: The columns to sort by.
        blocks: What Sail brings together instead, where keys are many, since a window costs time for each of them:
            few values, which ascend with ``order`` and are equal where the keys are.
    """
    from pyspark.sql import Window, functions as F

    if engine_of(rows.sparkSession) != "sail":
        return rows.repartition(*keys).sortWithinPartitions(*order)
    return rows.withColumn(ORDER, F.row_number().over(Window.partitionBy(*(blocks or keys)).orderBy(*order)))


def sail_path(path: str, made: bool = False) -> str:
    """Return a local path as a URI, in which Sail expands no wildcard; other paths stay as they are.

    ``made``: the folder is made where there is none.

    >>> sail_path("/out/runs[1]"), sail_path("s3://bucket/out")
    ('file:///out/runs%5B1%5D', 's3://bucket/out')
    """
    folder = cfg.local_path(path)
    if folder is not None and made:
        os.makedirs(folder, exist_ok=True)
    return path if folder is None else Path(os.path.abspath(folder)).as_uri()


def spark_path(path: str) -> str:
    """Return a path as Spark's readers take it: they expand wildcards, and its writers do not.

    >>> print(spark_path("runs[1]/{a,b}"))
    runs\\[1\\]/\\{a,b\\}
    """
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", path)


def written_as_parquet(spark: SparkSession, rows: DataFrame, path: str) -> DataFrame:
    """Write rows as files of Parquet, in place of those that are there; return them as written."""
    engine, is_here = _known(spark)
    if engine != "sail":
        rows.write.mode("overwrite").parquet(path)
        return spark.read.parquet(spark_path(path))
    # Sail writes no file and no folder for an empty table, so its columns would be lost.
    place = sail_path(path, made=is_here)
    rows.write.mode("overwrite").parquet(place)
    return spark.read.schema(rows.schema).parquet(place)


# ---- what the driver reads and runs


def few_rows(table: DataFrame) -> list[Row]:
    """Collect a table whose size depends on experiments, segments and metrics only, or has a limit.

    Not ``toLocalIterator``: it starts a job per partition, and a classic session then keeps the shuffle files of the
    query until it ends.
    """
    with own_errors():
        return table.collect()


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise what a Python step has refused as the error of this package, instead of the engine's error around it."""
    try:
        yield
    except RankmetricsError:
        raise
    except Exception as error:
        if user_error := raised_by_python(error):
            raise user_error from error
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error):
            raise RankmetricsError("the Spark session was stopped; start another one and evaluate again") from error
        raise


def explain_in_notebooks() -> None:
    """In IPython, an action on a DataFrame made from a result that fails by a user's mistake ends in its sentence.

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


#: Most rows that queries of Sail read at the same time.
_MOST_TOGETHER = 500_000


def all_of(spark: SparkSession, functions: Sequence[Callable[[], T]], n_rows: int) -> list[T]:
    """Run independent functions, each of which reads ``n_rows``, at the same time; return their results in order.

    On Sail they run one after the other if these are many, because its queries share one memory pool.
    """
    if engine_of(spark) == "sail" and n_rows > _MOST_TOGETHER:
        return [function() for function in functions]
    from pyspark import __version__ as version, inheritable_thread_target as inherit
    from pyspark.sql.utils import is_remote

    # They get the job group, tags and scheduler pool of this thread, unless there are sessions of both kinds in this
    # process: Spark then looks at the other kind.
    if is_remote() == is_connect(spark):
        if not version.startswith("3."):
            functions = [inherit(spark)(function) for function in functions]
        elif not is_connect(spark):
            functions = [*map(inherit, functions)]
    pool = ThreadPoolExecutor(len(functions), "rankmetrics")
    try:
        # Each thread gets the words of now, and what else follows the context.
        futures = [pool.submit(copy_context().run, function) for function in functions]
        wait(futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in futures]


# ---- settings of a run

#: Settings of every run.
SETTINGS_OF_RUNS = doors.settings_of(__name__, "runs")
#: Setting of Spark's log, which a session has to start with; a running one goes on without it.
LOG_LEVEL = "spark.log.level"
#: Settings that a run in the layout ``rows`` has instead.
SETTINGS_OF_ROWS = doors.settings_of(__name__, "rows")


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[list[str]]:
    """Change session settings during a run; those of a config take precedence. Yield those without effect.

    The defaults save time and change no value. Serverless platforms accept few settings, so a run continues without
    them.
    """
    from pyspark.errors import PySparkException

    applied: list[str] = []
    without_effect: list[str] = []
    if engine_of(spark) == "sail":
        # Sail stores any setting and ignores these; a config may be for both engines.
        yield sorted(settings)
        return
    try:
        for name, value in {**SETTINGS_OF_RUNS, **settings}.items():
            try:
                _SHARED.set(spark, name, value)
                applied.append(name)
            except PySparkException as error:
                if name in settings and spark.conf.get(name, None) == value:
                    continue  # this session was started with it
                if name in settings and name != LOG_LEVEL:
                    shown, cause = value, first_sentence(error)
                    if value and is_secret(name, value):
                        shown, cause = HIDDEN, cause.replace(value, HIDDEN)
                    raise ConfigError.of("setting_refused", name=name, shown=shown, cause=cause) from None
                without_effect.append(name)
        yield without_effect
    finally:
        for name in applied:
            # If the engine has ended, nothing can be restored; its own error propagates.
            with suppress(ConnectionError):
                _SHARED.restore(spark, name)


class _SharedSettings:
    """Settings that active runs have changed, with the original values.

    Several runs may share a session. The last one that ends restores the values.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._originals: dict[tuple[object, str], tuple[str | None, int]] = {}

    def set(self, spark: SparkSession, name: str, value: str) -> None:
        """Change a setting for a run."""
        with self._lock:
            key = (_identity(spark), name)
            original, runs = self._originals.get(key) or (spark.conf.get(name, None), 0)
            spark.conf.set(name, value)
            self._originals[key] = original, runs + 1

    def restore(self, spark: SparkSession, name: str) -> None:
        """Restore the value if no other run uses the setting."""
        with self._lock:
            key = (_identity(spark), name)
            original, runs = self._originals.pop(key)
            if runs > 1:
                self._originals[key] = original, runs - 1
            elif original is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, original)


def _identity(spark: SparkSession) -> object:
    """Return an identity of the session: Connect has ids, a classic session is one object."""
    return getattr(spark, "session_id", None) or id(spark)


_SHARED = _SharedSettings()


_FILES = "rankmetrics-files-"


def temporary_folder(kind: str) -> Path:
    """A folder of this process that only this account reads.

    It is deleted when the process ends, and by the next one if the process was killed.
    """
    folder = _files_of(os.getpid()) / kind
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@cache
def _files_of(process: int) -> Path:
    """Make the folder of this process, which holds a lock on it; delete those that nobody holds."""
    if os.name == "posix":  # Windows has no such locks
        for other in Path(tempfile.gettempdir()).glob(f"{_FILES}*"):
            with suppress(OSError):  # it is in use, or gone
                _delete_if_left(other)
    folder = Path(tempfile.mkdtemp(prefix=_FILES))
    if os.name == "posix":
        with suppress(OSError):  # a disk without locks, on which nobody gets one
            fcntl.flock(os.open(folder, os.O_DIRECTORY), fcntl.LOCK_EX)

    def remove() -> None:
        """Delete the folder, but not at the end of a process that was forked from this one."""
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    # Another process may have had the lock first.
    return folder if folder.exists() else _files_of.__wrapped__(process)


def _delete_if_left(folder: Path) -> None:
    descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
