"""The tables that a run leaves behind: each write replaces exactly what this run computed, and is read back."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark.accounting import Counts
from rankmetrics_spark.config import Sink
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.lakehouse import DeltaFolder, Schema
from rankmetrics_spark.pipeline import Evaluation
from rankmetrics_spark.schemas import CONVENTION, CONVENTION_HASH, EXPERIMENT, REASON, REJECTED
from rankmetrics_spark.sinks import ParquetFolder, Share, Store


def store_of(spark: SparkSession, sink: Sink, run_id: str) -> Store:
    """The place that a config names."""
    if sink.table:
        return Schema(spark, sink.table, run_id, sink.format)
    folder = DeltaFolder if sink.format == "delta" else ParquetFolder
    return folder(spark, (sink.path or "").rstrip("/"), run_id)


@dataclass(frozen=True)
class Tables:
    """What a run writes.

    Attributes:
        store: Where to.
        date: Evaluation date, ISO.
    """

    store: Store
    date: str

    def refuse_another_convention(self, rule: Convention, counts: Counts) -> None:
        """A partition that once held a number under one convention never holds it under another."""
        old = self.store.earlier("experiment_metrics")
        # A table that its owner has just made has no numbers yet, and maybe no such column.
        if old is None or CONVENTION_HASH not in old.columns:
            return
        mine = old.where(Share(self.date, list(counts)).holds())
        other = mine.where(F.col(CONVENTION_HASH) != rule.digest()).first()
        if other is not None:
            raise ConfigError(
                f"{self.store.name_of('experiment_metrics')} holds experiment '{other[EXPERIMENT]}' of {self.date} "
                f"under the convention '{other[CONVENTION]}', and this run has '{rule.name}'; choose another sink or "
                "date, or remove what is there"
            )

    def write_users(self, work: Evaluation, table: DataFrame, counts: Counts) -> DataFrame:
        """``user_metrics`` from the outcome of the pass; as written."""
        lists = table.where(F.col(REJECTED).isNull())
        users = work.user_metrics(lists, lists)
        marked = users.withColumn(CONVENTION_HASH, F.lit(work.scoring.convention.digest()))
        # A guess: ten rows a user.
        most = max(c["rows"] for c in counts.values()) // 10
        return self.store.replace("user_metrics", marked, self._share(counts, "lists", most))

    def write_averages(self, work: Evaluation, users: DataFrame, counts: Counts) -> DataFrame:
        """``experiment_metrics`` from the written ``user_metrics``; as written."""
        averages = work.experiment_metrics(users)
        return self.store.replace("experiment_metrics", averages, self._share(counts, "lists"))

    def write_quarantine(self, work: Evaluation, table: DataFrame, counts: Counts) -> dict[str, int]:
        """Write the rows left out; how many for each reason."""
        bad = sum(c["quarantined"] for c in counts.values())
        repeated = sum(c["repeated"] for c in counts.values())
        # Without repeats the input need not be looked at again.
        left_out = work.rejected(table.where(F.col(REJECTED).isNotNull()))
        if repeated:
            left_out = left_out.unionByName(work.repeated(table))
        most = max(c["quarantined"] for c in counts.values())
        written = self.store.replace("quarantine", left_out, self._share(counts, "quarantined", most))
        if not bad:
            return {}
        reasons = {row[REASON]: row["count"] for row in written.groupBy(REASON).count().toLocalIterator()}
        if sum(reasons.values()) != bad and self.intact(counts):
            raise RuntimeError(f"row counts do not add up: {bad} rows left out, {sum(reasons.values())} in quarantine")
        return reasons

    def intact(self, counts: Counts) -> bool:
        """Whether what this run wrote has not been replaced by another one meanwhile."""
        return self.store.intact(self._share(counts, "lists"))

    def _share(self, counts: Counts, filled: str, most: int = 1) -> Share:
        """All experiments of the run; those without a ``filled`` of their own have no rows in the table."""
        there = [name for name, c in counts.items() if c[filled]]
        return Share(self.date, there, [name for name in counts if name not in there], most)
