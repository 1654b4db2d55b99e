"""The tables that a run leaves behind: each write replaces exactly what this run computed, and is read back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import sinks
from rankmetrics_spark.accounting import Counts
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.pipeline import Evaluation
from rankmetrics_spark.schemas import CONVENTION, CONVENTION_HASH, DATE, EXPERIMENT, REASON, REJECTED


@dataclass(frozen=True)
class Tables:
    """Where a run writes to.

    Attributes:
        spark: The session.
        out: Output folder.
        format: Of the sink.
        date: Evaluation date, ISO.
    """

    spark: SparkSession
    out: str
    format: str
    date: str

    def refuse_another_convention(self, rule: Convention, experiments: Iterable[str]) -> None:
        """A partition that once held a number under one convention never holds it under another."""
        path = f"{self.out}/experiment_metrics"
        old = sinks.earlier(self.spark, path)
        if old is None:
            return
        other = self.mine(old, experiments).where(F.col(CONVENTION_HASH) != rule.digest()).first()
        if other is not None:
            raise ConfigError(
                f"{path} holds experiment '{other[EXPERIMENT]}' of {self.date} under the convention "
                f"'{other[CONVENTION]}', and this run has '{rule.name}'; choose another sink.path or date, or remove "
                "what is there"
            )

    def write_users(self, work: Evaluation, table: DataFrame, counts: Counts) -> None:
        """``user_metrics`` from the outcome of the pass."""
        users = work.user_metrics(table.where(F.col(REJECTED).isNull()))
        marked = users.withColumn(CONVENTION_HASH, F.lit(work.scoring.convention.digest()))
        # A guess: ten rows a user.
        most = max(c["rows"] for c in counts.values()) // 10
        sinks.write(marked, self.format, f"{self.out}/user_metrics", self.date, most)

    def write_averages(self, work: Evaluation, counts: Counts) -> None:
        """``experiment_metrics`` from the written ``user_metrics``."""
        users = self.read_back("user_metrics", counts)
        sinks.write(work.experiment_metrics(users), self.format, f"{self.out}/experiment_metrics", self.date, 1)

    def clear_gone(self, counts: Counts) -> None:
        """Empty what an earlier run wrote of experiments that have no sound row left."""
        gone = [name for name, c in counts.items() if not c["lists"]]
        for name in ("user_metrics", "experiment_metrics") if gone else ():
            sinks.clear_stale(self.spark, f"{self.out}/{name}", self.date, gone)

    def write_quarantine(self, work: Evaluation, table: DataFrame, counts: Counts) -> dict[str, int]:
        """Write the rows left out; how many for each reason."""
        path, date = f"{self.out}/quarantine", self.date
        bad = sum(c["quarantined"] for c in counts.values())
        repeated = sum(c["repeated"] for c in counts.values())
        # Without repeats the input need not be looked at again.
        left_out = work.rejected(table.where(F.col(REJECTED).isNotNull()))
        if repeated:
            left_out = left_out.unionByName(work.repeated(table))
        if bad:
            sinks.write(left_out, self.format, path, date, max(c["quarantined"] for c in counts.values()))
        with_bad = [name for name, c in counts.items() if c["quarantined"]]
        sinks.clear_stale(self.spark, path, date, [name for name in counts if name not in with_bad])
        if not bad:
            return {}
        written = self.read_back("quarantine", with_bad)
        reasons = {row[REASON]: row["count"] for row in written.groupBy(REASON).count().toLocalIterator()}
        if sum(reasons.values()) != bad:
            raise RuntimeError(f"row counts do not add up: {bad} rows left out, {sum(reasons.values())} in quarantine")
        return reasons

    def read_back(self, name: str, experiments: Iterable[str]) -> DataFrame:
        """What this run wrote into a table: its experiments on its date."""
        return self.mine(sinks.read(self.spark, f"{self.out}/{name}"), experiments)

    def mine(self, written: DataFrame, experiments: Iterable[str]) -> DataFrame:
        """The rows of these experiments on the date of this run."""
        mine = self.spark.createDataFrame([(experiment,) for experiment in experiments], "mine string")
        same = written[EXPERIMENT].eqNullSafe(mine["mine"])
        return written.where(F.col(DATE) == self.date).join(F.broadcast(mine), same, "left_semi")
