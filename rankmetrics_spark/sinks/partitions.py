"""Which partitions of a table a run replaces, and what every store can do with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.schemas import DATE, EXPERIMENT

ROWS_PER_FILE = 1_000_000
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Folder name of a null partition value. "null" would not do: an experiment may have that name."""


@dataclass(frozen=True)
class Partitions:
    """The partitions of a table that a run replaces: some experiments on one date.

    Attributes:
        date: Evaluation date, ISO.
        filled: Experiments that have rows in this run.
        emptied: Experiments that have none in this run; their rows from earlier runs are removed.
        most: Rows of the largest experiment; above a million, they are spread over several files.
    """

    date: str
    filled: Sequence[str | None]
    emptied: Sequence[str | None] = ()
    most: int = 1

    @property
    def experiments(self) -> list[str | None]:
        """All experiments as they are stored: a partition value cannot be empty, so "" is stored as null."""
        return list(dict.fromkeys(name or None for name in (*self.filled, *self.emptied)))

    def condition(self) -> Column:
        """True for the rows of a table that belong to these partitions."""
        # Not isin: with a null among the values, Iceberg 1.11 fails.
        same = [F.col(EXPERIMENT).eqNullSafe(F.lit(name)) for name in self.experiments]
        return (F.col(DATE) == self.date) & _any_of(same)

    def prepared(self, rows: DataFrame) -> DataFrame:
        """The rows as they are written: with their date, and arranged for about one file per experiment.

        Args:
            rows: One row per line of the table. The second column spreads and sorts the rows of an experiment.
        """
        second = rows.columns[1]
        files = max(1, -(-self.most // ROWS_PER_FILE))
        file = F.pmod(F.xxhash64(second), F.lit(files))
        stored = F.when(F.col(EXPERIMENT) != "", F.col(EXPERIMENT))
        dated = rows.withColumns({EXPERIMENT: stored, DATE: F.lit(self.date)})
        return dated.repartition(EXPERIMENT, file).sortWithinPartitions(EXPERIMENT, second)


def _any_of(conditions: list[Column]) -> Column:
    """True where any condition is true."""
    # A balanced tree: Spark walks through a condition recursively, and a chain of thousands is too deep.
    while len(conditions) > 1:
        pairs = zip(conditions[::2], conditions[1::2], strict=False)
        unpaired = conditions[-1:] if len(conditions) % 2 else []
        conditions = [left | right for left, right in pairs] + unpaired
    return conditions[0] if conditions else F.lit(False)


LONGEST_NAME = 255
"""Bytes of a folder's name; the limit of every common file system."""


class Store(Protocol):
    """A place that holds the tables of runs, partitioned by experiment and date, with staging and run records."""

    @property
    def path(self) -> str:
        """The folder, or the schema of a catalog."""

    def name_of(self, table: str) -> str:
        """The full name of a table, for SQL and for messages."""

    def existing(self, table: str) -> DataFrame | None:
        """The table as it is now, or None if it does not exist."""

    def replace(self, table: str, rows: DataFrame, partitions: Partitions) -> DataFrame:
        """Replace the partitions of a table with ``rows``.

        Args:
            table: Name of the table, such as ``user_metrics``.
            rows: All rows of these partitions. The second column spreads and sorts the rows of an experiment.
            partitions: What is replaced; every other partition stays as it is.

        Returns:
            The rows as written, read back lazily.
        """

    def intact(self, partitions: Partitions) -> bool:
        """False if another run has replaced some of the same partitions since; True if that is not known."""

    def check(self) -> None:
        """Refuse a place that cannot be written, before anything is computed."""

    def claim(self, partitions: Partitions) -> None:
        """Reserve partitions until ``discard``, where that is possible."""

    def stage(self, rows: DataFrame) -> DataFrame:
        """Write rows to the staging of this run; return them as written."""

    def discard(self, like: DataFrame) -> None:
        """Remove the staging. ``like`` is any table; its schema is used where only an empty file can be left."""

    def record(self, record: Mapping[str, Any]) -> str:
        """Write the run record; return where it is."""


def escaped(value: str) -> str:
    """A partition value as Hive and Spark write it in a path."""
    special = "\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32)))
    return "".join(f"%{ord(c):02X}" if c in special else c for c in value)


def problem_with_name(experiment: str) -> str | None:
    """Why a partition cannot have the name of this experiment; None if it can.

    >>> problem_with_name("a/b=c"), problem_with_name("x" * 300)
    (None, 'its folder would have a name of 314 bytes; allowed: 255')
    """
    if experiment == NULL_PARTITION:
        return "that is the name of the partition of rows without an experiment"
    if "\0" in experiment:
        return "the name holds a NUL character"
    size = len(f"{EXPERIMENT}={escaped(experiment)}".encode())
    return f"its folder would have a name of {size} bytes; allowed: {LONGEST_NAME}" if size > LONGEST_NAME else None


def as_json(record: Mapping[str, Any]) -> str:
    """The run record as text, with sorted keys; the key of rows without an experiment is their partition folder."""
    return json.dumps(_sorted(record), indent=2, ensure_ascii=False, default=str)


def _sorted(value: Any) -> Any:
    """The value with the keys of every mapping in order."""
    if isinstance(value, Mapping):
        return {NULL_PARTITION if key is None else key: _sorted(value[key]) for key in sorted(value, key=str)}
    return value
