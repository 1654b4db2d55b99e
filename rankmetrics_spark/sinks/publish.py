"""What a run does with its finished tables: choose the store, refuse mixed conventions, choose the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.config.sections import Sink
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.errors import ConfigError, OutputError
from rankmetrics_spark.pointers import Entry
from rankmetrics_spark.schemas import CONVENTION, CONVENTION_HASH, DATE, EXPERIMENT, PARTITION
from rankmetrics_spark.sinks.lakehouse import CatalogSchema, DeltaFolder
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import Partitions, Store, Written, problem_with_name


def store_of(spark: SparkSession, sink: Sink, run_id: str, settings: Mapping[str, str] | None = None) -> Store:
    """The store that a config describes.

        Args:
            spark: The session to write with.
            sink: Format, and a folder or the schema of a catalog.
            run_id: Name of the run; staging and run record are named after it.
            settings: Settings of the config.

    Raises:
        OutputError: The engine cannot write there.
    """
    if engine_of(spark) == "sail" and (sink.format != "parquet" or local_path(sink.path or "") is None):
        place = sink.table or sink.path
        raise OutputError(
            f"the engine sail cannot write {sink.format} to '{place}'; allowed: parquet in a folder of this machine, "
            "or use --engine spark"
        )
    if sink.table:
        return CatalogSchema(spark, sink.table, run_id, sink.format)
    folder = DeltaFolder if sink.format == "delta" else ParquetFolder
    # The root of a file system stays what it is.
    return folder(spark, (sink.path or "").rstrip("/") or "/", run_id, settings or {})


def publish(store: Store, written: Sequence[Written], entry: Entry, partitions: Partitions) -> None:
    """Publish the complete tables of a run: the one way to every store.

    The tables are staged and their books are compared before this is called. Here they are put in place, and the
    pointer ``published/<date>.json`` is written last. See docs/publishing.md for what readers of each store see.

    Args:
        store: Where the run writes.
        written: The staged tables; the first is ``user_metrics``.
        entry: The run, with the convention of its tables.
        partitions: All experiments of the run, on its date.

    Raises:
        OutputError: The output cannot be written, or other runs keep replacing the same experiments.
    """
    facts = {one.table: {"rows": one.n, "columns": _columns(one), "files": len(one.files)} for one in written}
    own = replace(entry, experiments=tuple(sorted(partitions.experiments, key=str)), tables=facts)
    store.publish(written, own, partitions.date)


def _columns(written: Written) -> dict[str, str]:
    """Name -> type: a table without a file is read with these columns."""
    return {one.name: one.dataType.simpleString() for one in written.rows.schema.fields if one.name not in PARTITION}


def partitions_for(
    date: str, counts: Mapping[Any, Mapping[str, Any]], filled: str, most: int = 1, few: bool = True
) -> Partitions:
    """The partitions of a table that a run replaces: all its experiments on its date.

    Args:
        date: Evaluation date, ISO.
        counts: Experiment -> its counts (``rows``, ``evaluated``, ``quarantined``, ``lists``, ...).
        filled: The count that says whether an experiment has rows in the table, such as ``lists``.
        most: Rows of the largest experiment in the table.
        few: Whether one process may write all rows of the table.

    >>> counts = {"a": {"lists": 3, "quarantined": 0}, "b": {"lists": 0, "quarantined": 7}}
    >>> partitions_for("2026-11-21", counts, "lists")
    Partitions(date='2026-11-21', filled=['a'], emptied=['b'], most=1, few=True)
    """
    with_rows = [experiment for experiment, count in counts.items() if count[filled]]
    without = [experiment for experiment, count in counts.items() if not count[filled]]
    return Partitions(date, with_rows, without, most, few)


def refuse_names(store: Store, experiments: Iterable[str | None]) -> None:
    """Refuse names of experiments that no partition can have.

    Raises:
        OutputError: Names the experiment and what is allowed.
    """
    for name in experiments:
        problem = problem_with_name(name) if name else None
        if name and problem:
            raise OutputError(
                f"experiment {name!r} cannot be stored in {store.path}: {problem}; rename it in the input, or leave "
                "it out with a source.where"
            )


def refuse_other_date(store: Store, date: str, name: str, digest: str) -> None:
    """Refuse, before anything is computed, a date that holds metrics of other conventions only.

    Which experiments a run replaces is known only after its pass over the input. Whichever these are, they must not
    stand beside metrics of another convention on a date that has no other.

    Args:
        store: Where the run writes.
        date: Evaluation date of the run, ISO.
        name: Name of the run's convention.
        digest: Hash of the run's convention.

    Raises:
        ConfigError: The date holds metrics, and all of them have another convention.
    """
    if pointer := store.pointer(date):
        told = [entry for entry in pointer.entries if entry.convention]
        if told and all(entry.convention["hash"] != digest for entry in told):
            names = sorted(str(experiment) for entry in told for experiment in entry.experiments)
            raise _other_convention(store, (names[0], told[0].convention["name"]), date, name)
        if told:
            return
    old = store.existing("experiment_metrics")
    if old is None or CONVENTION_HASH not in old.columns:
        return
    there = old.where(F.col(DATE) == date).select(EXPERIMENT, CONVENTION, CONVENTION_HASH)
    # One row answers: one of this convention, if there is any.
    first = there.orderBy((F.col(CONVENTION_HASH) != digest).cast("int"), EXPERIMENT).first()
    if first is not None and first[CONVENTION_HASH] != digest:
        raise _other_convention(store, (first[EXPERIMENT], first[CONVENTION]), date, name)


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
    if pointer := store.pointer(partitions.date):
        mine = set(partitions.experiments)
        for entry in pointer.entries:
            shared = [one for one in entry.experiments if one in mine]
            if shared and entry.convention and entry.convention["hash"] != digest:
                raise _other_convention(store, (shared[0], entry.convention["name"]), partitions.date, name)
        if all(entry.convention for entry in pointer.entries):
            return
    old = store.existing("experiment_metrics")
    # A table that its owner has just created has no metrics yet, and it may lack the column.
    if old is None or CONVENTION_HASH not in old.columns:
        return
    other = old.where(partitions.condition() & (F.col(CONVENTION_HASH) != digest)).first()
    if other is not None:
        raise _other_convention(store, (other[EXPERIMENT], other[CONVENTION]), partitions.date, name)


def _other_convention(store: Store, there: tuple[str | None, str], date: str, name: str) -> ConfigError:
    experiment, convention = there
    return ConfigError(
        f"{store.name_of('experiment_metrics')} holds experiment '{experiment}' of {date} under the convention "
        f"'{convention}', and this run has '{name}'; choose another sink or date, or remove what is there"
    )
