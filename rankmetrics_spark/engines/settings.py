"""Settings of the session that a run makes for its own time and takes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rankmetrics_spark.engines.which import engine_of
from rankmetrics_spark.errors import HIDDEN, ConfigError, first_sentence, is_secret

_LISTS = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
SETTINGS_OF_RUNS = {
    # With more groups than this in a task, an aggregation that collects lists falls back to sorting its input. The
    # default of 128 makes every real log sort twice; 200,000 lists of their relevant rows are some 150 MB.
    _LISTS: "200000",
    # Lists per Arrow batch: bounds what a Python worker holds when lists are long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}
"""Settings of every run."""

SETTINGS_OF_ROWS = {
    # Where every row is collected, sorting takes no longer than collecting garbage does, and never the whole heap.
    _LISTS: "8192",
}
"""What a run in the layout ``rows`` has instead."""


@contextmanager
def session_settings(spark: SparkSession, asked: Mapping[str, str]) -> Iterator[list[str]]:
    """Session settings for the time of a run, those of a config above our own; yields those that have no effect.

    Ours save time and change no value, and serverless platforms accept few settings, so a run goes on without them.
    """
    held: list[str] = []
    refused: list[str] = []
    if engine_of(spark) == "sail":
        # Sail keeps any setting and heeds none of these; a config may serve both engines.
        yield sorted(asked)
        return
    try:
        for name, value in {**SETTINGS_OF_RUNS, **asked}.items():
            try:
                _HELD.set(spark, name, value)
                held.append(name)
            except PySparkException as error:
                if name in asked:
                    shown, cause = value, first_sentence(error)
                    if is_secret(name) and value:
                        shown, cause = HIDDEN, cause.replace(value, HIDDEN)
                    raise ConfigError(
                        f"spark: '{name}' cannot be '{shown}' here: {cause}; "
                        "allowed: settings that this session lets a run change"
                    ) from None
                refused.append(name)
        yield refused
    finally:
        for name in held:
            # Where the engine has ended, there is nothing to give back, and the error that ended it goes on.
            with suppress(ConnectionError):
                _HELD.give_back(spark, name)


class _Held:
    """Settings that runs hold at this moment, with the value from before the first of them.

    Several runs may share a session. The last one that ends brings the values back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[tuple[object, str], tuple[str | None, int]] = {}

    def set(self, spark: SparkSession, name: str, value: str) -> None:
        """Set a setting for a run."""
        with self._lock:
            key = (_identity(spark), name)
            before, runs = self._before.get(key) or (spark.conf.get(name, None), 0)
            spark.conf.set(name, value)
            self._before[key] = before, runs + 1

    def give_back(self, spark: SparkSession, name: str) -> None:
        """Bring the value back if no other run holds the setting."""
        with self._lock:
            key = (_identity(spark), name)
            before, runs = self._before.pop(key)
            if runs > 1:
                self._before[key] = before, runs - 1
            elif before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)


def _identity(spark: SparkSession) -> object:
    """What tells sessions apart: Connect has ids, a classic session is one object."""
    return getattr(spark, "session_id", None) or id(spark)


_HELD = _Held()
