"""Settings of the session that a run makes for its own time and takes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rankmetrics_spark.errors import ConfigError, first_sentence
from rankmetrics_spark.redaction import HIDDEN, is_secret

_LISTS = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
SESSION = {
    # With more groups than this in a task, an aggregation that collects lists falls back to sorting its input. The
    # default of 128 makes every real log sort twice; 200,000 lists of their relevant rows are some 150 MB.
    _LISTS: "200000",
    # Lists per Arrow batch: bounds what a Python worker holds when lists are long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}
"""Settings of every run."""

ROWS = {
    # Where every row is collected, sorting takes no longer than collecting garbage does, and never the whole heap.
    _LISTS: "8192",
}
"""What a run in the layout ``rows`` has instead."""


@contextmanager
def settings(spark: SparkSession, asked: Mapping[str, str]) -> Iterator[list[str]]:
    """Session settings for the time of a run, those of a config above our own; what was there before comes back.

    Yields:
        Those of our own that the session refuses. They save time and change no value, and serverless platforms accept
        few settings, so a run goes on without them.
    """
    before: dict[str, str | None] = {}
    refused: list[str] = []
    try:
        for name, value in {**SESSION, **asked}.items():
            try:
                old = spark.conf.get(name, None)
                spark.conf.set(name, value)
                before[name] = old
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
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
