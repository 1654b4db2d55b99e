"""What a run does with its finished tables: choose the store, refuse mixed conventions, choose the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark.config.sections import Sink
from rankmetrics_spark.errors import ConfigError, OutputError
from rankmetrics_spark.schemas import CONVENTION, CONVENTION_HASH, EXPERIMENT
from rankmetrics_spark.sinks.lakehouse import CatalogSchema, DeltaFolder
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import Partitions, Store, problem_with_name

LONGEST_SHOWN = 60
"""Characters of a name that a message shows."""


def store_of(spark: SparkSession, sink: Sink, run_id: str) -> Store:
    """The store that a config describes.

    Args:
        spark: The session to write with.
        sink: Format, and a folder or the schema of a catalog.
        run_id: Name of the run; staging and run record are named after it.
    """
    if sink.table:
        return CatalogSchema(spark, sink.table, run_id, sink.format)
    folder = DeltaFolder if sink.format == "delta" else ParquetFolder
    return folder(spark, (sink.path or "").rstrip("/"), run_id)


def partitions_for(date: str, counts: Mapping[Any, Mapping[str, Any]], filled: str, most: int = 1) -> Partitions:
    """The partitions of a table that a run replaces: all its experiments on its date.

    Args:
        date: Evaluation date, ISO.
        counts: Experiment -> its counts (``rows``, ``evaluated``, ``quarantined``, ``lists``, ...).
        filled: The count that says whether an experiment has rows in the table, such as ``lists``.
        most: Rows of the largest experiment in the table.

    >>> counts = {"a": {"lists": 3, "quarantined": 0}, "b": {"lists": 0, "quarantined": 7}}
    >>> partitions_for("2026-11-21", counts, "lists")
    Partitions(date='2026-11-21', filled=['a'], emptied=['b'], most=1)
    """
    with_rows = [experiment for experiment, count in counts.items() if count[filled]]
    without = [experiment for experiment, count in counts.items() if not count[filled]]
    return Partitions(date, with_rows, without, most)


def refuse_names(store: Store, experiments: Iterable[str | None]) -> None:
    """Refuse names of experiments that no partition can have.

    Raises:
        OutputError: Names the experiment, shortened, and what is allowed.
    """
    for name in experiments:
        problem = problem_with_name(name) if name else None
        if name and problem:
            shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}... ({len(name):,} characters)"
            raise OutputError(
                f"experiment {shown!r} cannot be stored in {store.path}: {problem}; rename it in the input, or leave "
                "it out with a source.where"
            )


def refuse_other_convention(store: Store, partitions: Partitions, name: str, digest: str) -> None:
    """Refuse to replace metrics of one convention with metrics of another, so that no partition changes its meaning.

    Args:
        store: Where the run writes.
        partitions: What the run replaces.
        name: Name of the run's convention.
        digest: Hash of the run's convention.

    Raises:
        ConfigError: One of the partitions holds metrics of another convention.
    """
    old = store.existing("experiment_metrics")
    # A table that its owner has just created has no metrics yet, and it may lack the column.
    if old is None or CONVENTION_HASH not in old.columns:
        return
    other = old.where(partitions.condition() & (F.col(CONVENTION_HASH) != digest)).first()
    if other is not None:
        raise ConfigError(
            f"{store.name_of('experiment_metrics')} holds experiment '{other[EXPERIMENT]}' of {partitions.date} "
            f"under the convention '{other[CONVENTION]}', and this run has '{name}'; choose another sink or "
            "date, or remove what is there"
        )
