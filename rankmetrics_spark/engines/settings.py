"""Session settings that a run changes and restores at its end."""

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
    # If every row is collected, sorting costs as little as garbage collection, and never fills the heap.
    _LISTS: "8192",
}
"""Settings that a run in the layout ``rows`` has instead."""


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[list[str]]:
    """Change session settings during a run; those of a config take precedence. Yield those without effect.

    The defaults save time and change no value. Serverless platforms accept few settings, so a run continues without
    them.
    """
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
                if name in settings:
                    shown, cause = value, first_sentence(error)
                    if is_secret(name) and value:
                        shown, cause = HIDDEN, cause.replace(value, HIDDEN)
                    raise ConfigError(
                        f"spark: '{name}' cannot be '{shown}' here: {cause}; "
                        "allowed: settings that this session lets a run change"
                    ) from None
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
