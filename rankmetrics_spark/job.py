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
from rankmetrics_spark import answer, judgements, pipeline, ranking, sources
from rankmetrics_spark.config import Config, as_dict
from rankmetrics_spark.errors import OutputError, RankmetricsError
from rankmetrics_spark.gates import quality as quality_gates
from rankmetrics_spark.gates.counts import Counts, total
from rankmetrics_spark.gates.findings import Inspected
from rankmetrics_spark.gates.rates import Findings
from rankmetrics_spark.pipeline import Result
from rankmetrics_spark.plan import Plan, make_plan
from rankmetrics_spark.schemas import CONVENTION_HASH, REASON
from rankmetrics_spark.session_settings import ROWS, settings
from rankmetrics_spark.sinks import (
    Store,
    partitions_for,
    previous_quality,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    store_of,
)

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
        comparisons: The written comparisons, read back; lazy. None if nothing is compared.
        record: The run record as a mapping.
        record_path: Where the record lies.
    """

    run_id: str
    path: str
    user_metrics: DataFrame
    experiment_metrics: DataFrame
    comparisons: DataFrame | None
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
        MetricGateError: A metric is beyond the limit of one of ``gates``.
    """
    with settings(spark, config.spark) as refused:
        if refused:
            progress(f"going on without {' and '.join(refused)}, which this session refuses")
        try:
            return _evaluated(_Run(spark, config, _Steps(progress), refused))
        except RankmetricsError:
            raise
        except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
            if sentence := sources.failed_file(error) or sources.failed_filter(error, config.inputs):
                raise sentence from error
            raise


def _evaluated(this: _Run) -> Outcome:
    """The road of the data, top to bottom."""
    config, steps = this.config, this.steps
    store = store_of(this.spark, config.sink, this.run_id)
    with steps("plan", "reading schemas"):
        store.check()
        rule = config.convention
        refuse_other_date(store, config.evaluation_date, rule.name, rule.digest())
        answer.refuse_missing_date(store, config)
        impressions, judged = inputs(this.spark, config)
        plan = make_plan(config.options, impressions.schema, judged.schema if judged is not None else None)
        rows = pipeline.typed_rows(impressions, plan)
        pools = pipeline.judged_items(judged, plan)
        plan = _suited(plan, rows, this)
    try:
        with steps("evaluate", f"evaluating ({plan.layout.name} layout)"):
            staged = store.stage(pipeline.outcome(rows, pools, plan))
        result = Result(plan, rows, pools, staged)
        with steps("check", "checking the rows"):
            found = _checked(result, judged, store, config)
            counts = found.counts
            refuse_names(store, counts)
            _refuse_other_convention(store, plan, config, counts)
            answer.refuse_unknown_experiments(config, counts)
        if config.gates:
            with steps("gates", "checking the gates"):
                answer.check_gates(store, result, config)
        users, averages, compared, reasons = _published(store, result, counts, this)
        record = _record(this, plan, counts, reasons)
        record["verdict"] = answer.in_words(compared, plan)
        record["judgements"] = _judgement_counts(judged, plan)
        record["quality"] = found.as_record()
        return Outcome(this.run_id, store.path, users, averages, compared, record, store.record(record))
    finally:
        store.discard(like=rows)


# ---- read


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    """Impressions and judgements of a config; schemas are looked up, nothing is computed.

    Raises:
        InputError: The input cannot be read.
    """
    covariate = [config.options.covariate] if config.options.covariate else []
    impressions = sources.read(spark, config.source, (*config.source.wanted(), *covariate))
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


def _checked(result: Result, judged: DataFrame | None, store: Store, config: Config) -> Findings:
    """What the pass found, after the gates of quality."""
    log = Inspected(
        result.plan,
        result.outcome,
        result.rows,
        judged,
        lambda: result.repeated,
        place=", ".join(config.source.path or ()) or str(config.source.table),
        tags=config.source.format == "trec_run" and config.source.experiment_from == "tag",
    )
    against_previous = any("_change" in level for levels in config.quality.gates.values() for level in levels)
    return quality_gates.check(log, config.quality, previous_quality(store, against_previous))


def _refuse_other_convention(store: Store, plan: Plan, config: Config, counts: Counts) -> None:
    (rule,) = plan.scoring.conventions
    everything = partitions_for(config.evaluation_date, counts, "rows")
    store.claim(everything)
    refuse_other_convention(store, everything, rule.name, rule.digest())


# ---- publish


def _published(
    store: Store, result: Result, counts: Counts, this: _Run
) -> tuple[DataFrame, DataFrame, DataFrame | None, dict[str, int]]:
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
            means = answer.averages(users, result, this.config.comparison)
            averages = store.replace("experiment_metrics", means, lists)
        compared = None
        if this.config.comparison.asked:
            with this.steps("comparisons", "comparing the experiments"):
                compared = answer.publish(store, users, result, this.config, counts)
        else:
            answer.withdraw(store, this.config, counts)
        with this.steps("quarantine", "writing quarantine"):
            reasons = _quarantined(store, result, counts, date)
        if store.intact(lists):
            _check_reasons(reasons, counts)
            return users, averages, compared, reasons
    raise OutputError(
        f"other runs keep replacing the same experiments of {date} in {store.path}; run this again when they have ended"
    )


def _quarantined(store: Store, result: Result, counts: Counts, date: str) -> dict[str, int]:
    """Write the rows left out; how many for each reason. Without repeats the input is not read again."""
    most = max(count["quarantined"] for count in counts.values())
    left_out = result.quarantine if total(counts, "repeated") else result.rejected
    written = store.replace("quarantine", left_out, partitions_for(date, counts, "quarantined", most))
    if not most:
        return {}
    return {row[REASON]: row["count"] for row in written.groupBy(REASON).count().toLocalIterator()}


def _check_reasons(reasons: Mapping[str, int], counts: Counts) -> None:
    bad = total(counts, "quarantined")
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
            "in": total(counts, "rows"),
            "evaluated": total(counts, "evaluated"),
            "quarantined": total(counts, "quarantined"),
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
