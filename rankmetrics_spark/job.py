"""``run``: read, check, rank, score, aggregate, publish. The job that command line, spark-submit and notebooks share.

The module is not called ``run``, because the function of that name would then be hidden by its own module.
"""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rankmetrics_spark
from rankmetrics_spark import judgements, pipeline, quality, ranking, sources
from rankmetrics_spark.config import Config, as_dict
from rankmetrics_spark.errors import InputError, OutputError, QualityError, RankmetricsError
from rankmetrics_spark.pipeline import Result
from rankmetrics_spark.plan import Plan, make_plan
from rankmetrics_spark.quality import Counts
from rankmetrics_spark.schemas import CONVENTION_HASH, ITEM, REASON, REJECTED, USER
from rankmetrics_spark.session_settings import ROWS, settings
from rankmetrics_spark.sinks import Store, partitions_for, refuse_names, refuse_other_convention, store_of

Progress = Callable[[str], None]

ATTEMPTS = 3
"""How often the tables are written at most when another run replaces the same partitions at the same time."""


@dataclass(frozen=True)
class Outcome:
    """What a run wrote.

    Attributes:
        run_id: Name of the run.
        path: Output folder, or schema of the tables.
        user_metrics: The written values of the users, read back; lazy.
        experiment_metrics: The written averages, read back; lazy.
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
    """Times the steps of a run and reports them to the caller."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[None]:
        self.progress(text)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


@dataclass(frozen=True)
class _Run:
    """What a run is called, and what its steps share."""

    spark: SparkSession
    config: Config
    steps: _Steps
    refused: list[str]
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    unique: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def run_id(self) -> str:
        return f"{self.started:%Y%m%dT%H%M%S}-{self.unique}"


def run(spark: SparkSession, config: Config, progress: Progress = lambda text: None) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes the outcome of the pass to a staging folder below the output, and the gates
    and every other table are computed from there. When a gate fails, nothing else is written.

    Args:
        spark: The session; its settings are changed for the time of the run only.
        config: What to evaluate, and where to write.
        progress: Called with a few words before each step.

    Raises:
        ConfigError: A setting of ``spark`` that the session refuses, or a partition that holds another convention.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows.
    """
    with settings(spark, config.spark) as refused:
        if refused:
            progress(f"going on without {' and '.join(refused)}, which this session refuses")
        try:
            return _evaluated(_Run(spark, config, _Steps(progress), refused))
        except RankmetricsError:
            raise
        except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
            if sentence := sources.failed_file(error):
                raise sentence from error
            raise


def _evaluated(this: _Run) -> Outcome:
    """The road of the data, top to bottom."""
    config, steps = this.config, this.steps
    with steps("plan", "reading schemas"):
        impressions, judged = inputs(this.spark, config)
        plan = make_plan(config.options, impressions.schema, judged.schema if judged is not None else None)
        rows = pipeline.typed_rows(impressions, plan)
        pools = pipeline.judged_items(judged, plan)
        plan = _suited(plan, rows, this)
    store = store_of(this.spark, config.sink, this.run_id)
    try:
        with steps("evaluate", f"evaluating ({plan.layout.name} layout)"):
            staged = store.stage(pipeline.outcome(rows, pools, plan))
        result = Result(plan, rows, pools, staged)
        with steps("check", "checking the rows"):
            counts = _checked_counts(staged, config)
            _refuse_foreign_judgements(rows, judged, plan, counts)
            refuse_names(store, counts)
            _refuse_repeats(result, counts)
            _refuse_other_convention(store, plan, config, counts)
        users, averages, reasons = _published(store, result, counts, this)
        record = _record(this, plan, counts, reasons)
        record["judgements"] = _judgement_counts(judged, plan)
        return Outcome(this.run_id, store.path, users, averages, record, store.record(record))
    finally:
        store.discard(like=rows)


# ---- read


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    """Impressions and judgements of a config; schemas are looked up, nothing is computed.

    Raises:
        InputError: The input cannot be read.
    """
    impressions = sources.read(spark, config.source, config.source.wanted())
    judged = config.judgements
    return impressions, sources.read(spark, judged, judged.wanted()) if judged else None


# ---- plan


def _suited(plan: Plan, rows: DataFrame, this: _Run) -> Plan:
    """The plan with the layout that suits the head of the log, and the session with the settings that suit both."""
    if plan.layout.name == "masks" and not ranking.head_fits_masks(rows):
        return plan.with_layout("relevant")
    if plan.layout.name == "rows":
        # Hold fewer lists in memory, unless the config says how many, or the session takes no such setting.
        for name in ROWS.keys() - this.config.spark.keys() - set(this.refused):
            this.spark.conf.set(name, ROWS[name])
    return plan


# ---- check


def _checked_counts(staged: DataFrame, config: Config) -> Counts:
    """Row counts per experiment, after the quality gate."""
    counts = quality.row_counts(staged)
    rows, bad = _total(counts, "rows"), _total(counts, "quarantined")
    if not rows:
        raise InputError(f"the input is empty: no rows in {config.source.path or config.source.table}")
    allowed = 0.0 if config.quality.on_invalid == "fail" else config.quality.max_invalid_fraction
    if bad / rows > allowed:
        raise QualityError(
            f"{bad} of {rows} rows are faulty ({bad / rows:.2%}, allowed {allowed:.2%}: quality.on_invalid is "
            f"{config.quality.on_invalid}); reasons: {quality.reasons_in_words(staged)}"
        )
    return counts


def _total(counts: Counts, name: str) -> int:
    return sum(count[name] for count in counts.values())


def _refuse_foreign_judgements(rows: DataFrame, judged: DataFrame | None, plan: Plan, counts: Counts) -> None:
    """Refuse judgements that match no shown user or no shown item: every value would be 0, and look like a result."""
    if judged is None or not _total(counts, "lists"):
        return
    typed = judgements.typed(judged, plan.judgement_mapping, plan.options.text_numbers)
    sound = rows.where(F.col(REJECTED).isNull())
    name = USER if not _total(counts, "judged_lists") else ITEM
    # Items are looked up only where the rows have no relevance; judged items may all be irrelevant.
    if name == ITEM and (plan.columns.relevance or _total(counts, "judged_items")):
        return
    if sound.join(typed.where(F.col(name).isNotNull()), name, "left_semi").isEmpty():
        raise InputError(
            f"no {name} of the impressions is in the judgements, so every value would be 0; shown: "
            f"{_some_ids(sound, name)}; judged: {_some_ids(typed, name)}; an id has to be the same text in both"
        )


def _some_ids(table: DataFrame, name: str) -> str:
    return ", ".join(repr(row[name]) for row in table.select(name).distinct().limit(3).toLocalIterator()) or "none"


def _refuse_repeats(result: Result, counts: Counts) -> None:
    """The gate of ``duplicates: refuse``: trec_eval itself stops at an item that is twice in a list."""
    (rule,) = result.plan.scoring.conventions
    if rule.duplicates != "refuse" or not _total(counts, "repeated") or not result.plan.columns.item:
        return
    repeats = result.repeated.where(F.col(REASON) == "duplicate_item").count()
    if repeats:
        raise QualityError(
            f"{repeats} of {_total(counts, 'rows')} rows repeat an item of their list, and the "
            f"convention '{rule.name}' refuses that; to go on, give it duplicates: best_rank or highest_grade"
        )


def _refuse_other_convention(store: Store, plan: Plan, config: Config, counts: Counts) -> None:
    (rule,) = plan.scoring.conventions
    everything = partitions_for(config.evaluation_date, counts, "rows")
    refuse_other_convention(store, everything, rule.name, rule.digest())


# ---- publish


def _published(store: Store, result: Result, counts: Counts, this: _Run) -> tuple[DataFrame, DataFrame, dict[str, int]]:
    """Aggregate and write every table, and all of them again if another run has replaced some meanwhile."""
    (rule,), date = result.plan.scoring.conventions, this.config.evaluation_date
    user_metrics = result.user_metrics.withColumn(CONVENTION_HASH, F.lit(rule.digest()))
    lists = partitions_for(date, counts, "lists")
    # A guess: ten rows a user.
    most_users = max(count["rows"] for count in counts.values()) // 10
    for _ in range(ATTEMPTS):
        with this.steps("user_metrics", "writing user_metrics"):
            users = store.replace("user_metrics", user_metrics, partitions_for(date, counts, "lists", most_users))
        with this.steps("experiment_metrics", "writing experiment_metrics"):
            averages = store.replace("experiment_metrics", pipeline.averages(users, result.plan), lists)
        with this.steps("quarantine", "writing quarantine"):
            reasons = _quarantined(store, result, counts, date)
        if store.intact(lists):
            _check_reasons(reasons, counts)
            return users, averages, reasons
    raise OutputError(
        f"other runs keep replacing the same experiments of {date} in {store.path}; run this again when they have ended"
    )


def _quarantined(store: Store, result: Result, counts: Counts, date: str) -> dict[str, int]:
    """Write the rows left out; how many for each reason. Without repeats the input is not read again."""
    most = max(count["quarantined"] for count in counts.values())
    left_out = result.quarantine if _total(counts, "repeated") else result.rejected
    written = store.replace("quarantine", left_out, partitions_for(date, counts, "quarantined", most))
    if not most:
        return {}
    return {row[REASON]: row["count"] for row in written.groupBy(REASON).count().toLocalIterator()}


def _check_reasons(reasons: Mapping[str, int], counts: Counts) -> None:
    bad = _total(counts, "quarantined")
    if sum(reasons.values()) != bad:
        raise RuntimeError(f"row counts do not add up: {bad} rows left out, {sum(reasons.values())} in quarantine")


# ---- record


def _record(this: _Run, plan: Plan, counts: Counts, reasons: dict[str, int]) -> dict[str, Any]:
    (rule,) = plan.scoring.conventions
    return {
        "run_id": this.run_id,
        "started": this.started.isoformat(timespec="seconds"),
        "evaluation_date": this.config.evaluation_date,
        "config": as_dict(this.config),
        "layout": plan.layout.name,
        "convention": {"name": rule.name, "text": rule.text(), "hash": rule.digest()},
        "versions": {
            "rankmetrics_spark": rankmetrics_spark.__version__,
            "spark": this.spark.version,
            "python": platform.python_version(),
        },
        "rows": {
            "in": _total(counts, "rows"),
            "evaluated": _total(counts, "evaluated"),
            "quarantined": _total(counts, "quarantined"),
        },
        "experiments": counts,
        "quarantine_reasons": reasons,
        "refused_settings": this.refused,
        "seconds": this.steps.seconds,
    }


def _judgement_counts(judged: DataFrame | None, plan: Plan) -> dict[str, int] | None:
    if judged is None:
        return None
    row = judgements.counts(judged, plan.judgement_mapping, plan.options.text_numbers).first()
    return row.asDict() if row else None
