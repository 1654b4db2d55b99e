"""``run``: read, evaluate once, check, write. The job that the command line, spark-submit and notebooks share."""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rankmetrics_spark
from rankmetrics_spark import accounting, judging, sources
from rankmetrics_spark.accounting import Counts
from rankmetrics_spark.config import Config, as_dict
from rankmetrics_spark.errors import ConfigError, InputError, OutputError, QualityError, first_sentence
from rankmetrics_spark.options import Options
from rankmetrics_spark.pipeline import Evaluation
from rankmetrics_spark.ranking import MASK_RANKS, PLANES
from rankmetrics_spark.schemas import (
    POSITION,
    REJECTED,
    RELEVANCE,
)
from rankmetrics_spark.tables import Tables, store_of

Progress = Callable[[str], None]

_LISTS = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
SESSION = {
    # With more groups than this in a task, an aggregation that collects lists falls back to sorting its input. The
    # default of 128 makes every real log sort twice; 200,000 lists of their relevant rows are some 150 MB.
    _LISTS: "200000",
    # Lists per Arrow batch: bounds what a Python worker holds when lists are long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}
"""Settings that ``run`` makes for its own session and takes back."""

ROWS = {
    # Where every row is collected, sorting takes no longer than collecting garbage does, and never the whole heap.
    _LISTS: "8192",
}
"""What the ``rows`` form has instead."""

ATTEMPTS = 3
"""How often the tables are written at most when another run replaces the same partitions at the same time."""


@dataclass(frozen=True)
class Outcome:
    """What a run wrote.

    Attributes:
        run_id: Name of the run.
        path: Output folder, or schema of the tables.
        user_metrics: The written values of the users, read back; lazy.
        experiment_metrics: The written averages, read back.
        record: The run record as a mapping.
        record_path: Where the record lies.
    """

    run_id: str
    path: str
    user_metrics: DataFrame
    experiment_metrics: DataFrame
    record: dict[str, Any]
    record_path: str


@dataclass
class _Steps:
    """Times the steps and tells the caller about them."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[None]:
        self.progress(text)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


def run(spark: SparkSession, config: Config, progress: Progress = lambda text: None) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes the outcome of the pass to a staging folder below the output, and the gates
    and every other table are computed from there. Nothing else is written when a gate fails.

    Raises:
        ConfigError: A setting of ``spark`` that the session refuses.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows.
    """
    with settings(spark, config.spark) as refused:
        if refused:
            progress(f"going on without {' and '.join(refused)}, which this session refuses")
        return _Run(spark, config, _Steps(progress), refused).outcome()


@contextmanager
def settings(spark: SparkSession, asked: Mapping[str, str]) -> Iterator[list[str]]:
    """Session settings for the time of a run, those of a config above our own; what was there before comes back.

    Yields:
        Those of our own that the session refuses. They save time and change no value, and serverless platforms take
        few settings, so a run goes on without.
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
                    raise ConfigError(
                        f"spark: '{name}' cannot be '{value}' here: {first_sentence(error)}; "
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


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None, Options]:
    """Impressions, judgements and options of a config; schemas are looked up, nothing is computed.

    Raises:
        InputError: The input cannot be read.
    """
    impressions = sources.read(spark, config.source, config.source.wanted())
    judged = config.judgements
    judgements = sources.read(spark, judged, judged.wanted()) if judged else None
    formats = {config.source.format, *([judged.format] if judged else [])}
    options = Options(
        metrics=config.metrics,
        convention=config.convention,
        rank_by=config.rank_by,
        columns=config.source.columns,
        judgement_columns=judged.columns if judged else None,
        list=config.source.list,
        segments=config.source.segments,
        confidence=config.comparison.confidence,
        repeated_items=config.quality.repeated_items,
        text=bool(formats & sources.TEXT_FORMATS),
    )
    return impressions, judgements, options


class _Run:
    """The steps of one run."""

    def __init__(self, spark: SparkSession, config: Config, steps: _Steps, refused: list[str]) -> None:
        self.spark, self.config, self.steps, self.refused = spark, config, steps, refused
        now = datetime.now(timezone.utc)
        self.started = now.isoformat(timespec="seconds")
        self.run_id = f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        self.store = store_of(spark, config.sink, self.run_id)
        self.tables = Tables(self.store, config.evaluation_date)
        self.judged: DataFrame | None = None

    def outcome(self) -> Outcome:
        with self.steps("plan", "reading schemas"):
            work = self.planned()
        try:
            with self.steps("evaluate", f"evaluating ({work.form} form)"):
                table = self.store.stage(work.table())
            with self.steps("check", "checking the rows"):
                counts = self.checked(table)
                _refuse_repeats(work, table, counts)
                self.tables.refuse_another_convention(work.scoring.convention, counts)
            return self.written(work, table, counts)
        finally:
            self.store.discard(like=work.rows)

    def planned(self) -> Evaluation:
        impressions, judgements, options = inputs(self.spark, self.config)
        work = Evaluation.of(impressions, judgements, options)
        if work.form == "rows":
            self.limit()
        if judgements is not None:
            self.judged = judging.counts(judgements, work.judgement_columns, options.text)
        if work.form == "masks" and not _fits_masks(work.rows):
            return Evaluation.of(impressions, judgements, replace(options, form="relevant"))
        return work

    def limit(self) -> None:
        """Hold fewer lists in memory, unless the config says how many, or the session takes no such setting."""
        for name in ROWS.keys() - self.config.spark.keys() - set(self.refused):
            self.spark.conf.set(name, ROWS[name])

    def checked(self, table: DataFrame) -> Counts:
        """Row counts per experiment; the gates."""
        counts = accounting.row_counts(table)
        rows = sum(c["rows"] for c in counts.values())
        bad = sum(c["quarantined"] for c in counts.values())
        if not rows:
            raise InputError(f"the input is empty: no rows in {self.config.source.path or self.config.source.table}")
        quality = self.config.quality
        allowed = 0.0 if quality.on_invalid == "fail" else quality.max_invalid_fraction
        if bad / rows > allowed:
            raise QualityError(
                f"{bad} of {rows} rows are faulty ({bad / rows:.2%}, allowed {allowed:.2%}: quality.on_invalid is "
                f"{quality.on_invalid}); reasons: {accounting.reasons(table)}"
            )
        return counts

    def written(self, work: Evaluation, table: DataFrame, counts: Counts) -> Outcome:
        """Write every table, all of them again where another run has replaced some meanwhile."""
        tables = self.tables
        for _ in range(ATTEMPTS):
            with self.steps("user_metrics", "writing user_metrics"):
                users = tables.write_users(work, table, counts)
            with self.steps("experiment_metrics", "writing experiment_metrics"):
                averages = tables.write_averages(work, users, counts)
            with self.steps("quarantine", "writing quarantine"):
                reasons = tables.write_quarantine(work, table, counts)
            if tables.intact(counts):
                break
        else:
            raise OutputError(
                f"other runs keep replacing the same experiments of {self.config.evaluation_date} in "
                f"{self.store.path}; run this again when they have ended"
            )
        record = self.record(work, counts, reasons)
        return Outcome(self.run_id, self.store.path, users, averages, record, self.store.record(record))

    def record(self, work: Evaluation, counts: Counts, reasons: dict[str, int]) -> dict[str, Any]:
        rule = work.scoring.convention
        judged = self.judged.first() if self.judged is not None else None
        return {
            "run_id": self.run_id,
            "started": self.started,
            "evaluation_date": self.config.evaluation_date,
            "config": as_dict(self.config),
            "form": work.form,
            "convention": {"name": rule.name, "text": rule.text(), "hash": rule.digest()},
            "versions": {
                "rankmetrics_spark": rankmetrics_spark.__version__,
                "spark": self.spark.version,
                "python": platform.python_version(),
            },
            "rows": {
                "in": sum(c["rows"] for c in counts.values()),
                "evaluated": sum(c["evaluated"] for c in counts.values()),
                "quarantined": sum(c["quarantined"] for c in counts.values()),
            },
            "experiments": counts,
            "quarantine_reasons": reasons,
            "judgements": judged.asDict() if judged else None,
            "refused_settings": self.refused,
            "seconds": self.steps.seconds,
        }


def _refuse_repeats(work: Evaluation, table: DataFrame, counts: Counts) -> None:
    """The gate of ``duplicates: refuse``: trec_eval itself stops at an item that is twice in a list."""
    rule = work.scoring.convention
    if rule.duplicates != "refuse" or not any(c["repeated"] for c in counts.values()):
        return
    repeats = accounting.repeated_items(work.repeated(table))
    if repeats:
        raise QualityError(
            f"{repeats} of {sum(c['rows'] for c in counts.values())} rows repeat an item of their list, and the "
            f"convention '{rule.name}' refuses that; to go on, give it duplicates: best_rank or highest_grade"
        )


def _fits_masks(rows: DataFrame) -> bool:
    """Whether the head of the input suggests that nearly all lists fit into masks: a guess about cost, not values."""
    # Taken, not aggregated: an aggregation behind a limit would read the head of every partition.
    head = rows.where(F.col(REJECTED).isNull()).select(POSITION, RELEVANCE).take(20_000)
    if not head:
        return True
    top = max(row[POSITION] for row in head)
    grades = [row[RELEVANCE] for row in head if (row[RELEVANCE] or 0) > 0]
    # With more relevant items than this in a list, the test for repeats would flag one in a thousand in vain.
    few = len(grades) / len(head) * top <= 8
    return bool(top <= MASK_RANKS and max(grades, default=0) < 2**PLANES and few)
