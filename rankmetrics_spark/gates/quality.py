"""Quality gates, checked before anything is written: faulty rows, foreign judgements, rates of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.config import Quality
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import InputError, QualityError, shape
from rankmetrics_spark.gates.findings import (
    MOST_NAMED,
    REPEATED,
    Counts,
    Inspected,
    Reasons,
    arms,
    faulty_checks,
    findings,
    longest_cut,
    ranks_seem_to_start_at_0,
    reasons,
    row_counts,
    total_counts,
    within_limits,
)
from rankmetrics_spark.gates.limits import Findings
from rankmetrics_spark.road import FAULTY, GRADE, typed_judgements
from rankmetrics_spark.schemas import EXPERIMENT, FAIL, ITEM, REASON, REJECTED, RELEVANCE, USER, Check
from rankmetrics_spark.statistics import LARGEST_SUMMAND


def check_quality(log: Inspected, settings: Quality, previous: Mapping[str, Any] | None = None) -> Findings:
    """Count the rows and lists of a log; raise an error if its result would be wrong."""
    metrics = log.plan.scoring.metrics
    # Values can be too large to be summed under metrics without a maximum, and under NDCG because of its gains.
    unbounded = [metric for metric in metrics if metric.definition.range[1] == float("inf")]
    unbounded += [metric for metric in metrics if metric.definition.name == "ndcg"][:1]
    counts = row_counts(log.outcome, longest_cut(log.plan), [metric.column for metric in unbounded])
    if not total_counts(counts, "rows"):
        raise InputError(f"the input is empty: no rows in {log.place}")
    try:
        # As trec_eval does.
        rule = log.plan.scoring.conventions[0]
        if rule.duplicates == "refuse" and total_counts(counts, "repeated") and log.plan.columns.item:
            repeats = log.repeated().where(F.col(REASON) == "duplicate_item").count()
            if repeats:
                raise QualityError(
                    f"{repeats} of {total_counts(counts, 'rows')} rows repeat an item of their list, and the "
                    f"convention '{rule.name}' refuses that; to go on, give it duplicates: best_rank or highest_grade"
                    f"{_several_lists(log)}"
                )
        _refuse_faulty(log, counts, settings)
        for name, count in counts.items():
            for column in count["beyond_sums"]:
                metric = next(m for m in log.plan.scoring.metrics if m.column == column)
                gain = log.plan.scoring.conventions[0].gain
                graded = metric.needs != "scores"
                hint = f"; the highest grade is {_highest_grade(log):g}, and the gain is {gain}" if graded else ""
                raise QualityError(
                    f"{metric} of experiment '{name}' has values above {LARGEST_SUMMAND:.3g}, which cannot be averaged"
                    + hint
                )
    except QualityError as error:
        rows = faulty_checks(counts, settings.allowed_fraction)
        whole = [] if any(row.status == FAIL for row in rows) else [Check("log", FAIL, str(error))]
        error.checks = (*rows, *whole)
        raise
    _refuse_foreign_judgements(log, counts)
    return within_limits(findings(log, counts, settings.gates, previous), settings.gates)


# ---- faulty rows


def _refuse_faulty(log: Inspected, counts: Counts, settings: Quality) -> None:
    """Refuse too many faulty rows, over all and in each experiment."""
    allowed = settings.allowed_fraction
    rows, n_faulty = total_counts(counts, "rows"), total_counts(counts, "quarantined")
    affected = {name: c for name, c in arms(counts).items() if c["quarantined"] / c["rows"] > allowed}
    if n_faulty / rows > allowed:
        sentence, faulty = f"{n_faulty} of {rows} rows are faulty ({n_faulty / rows:.2%}", log.outcome
    elif affected:
        n_faulty, rows = total_counts(affected, "quarantined"), total_counts(affected, "rows")
        sentence = f"{n_faulty} of {rows} rows of {_experiment_names(affected)} are faulty ({n_faulty / rows:.2%}"
        faulty = log.outcome.where(F.col(EXPERIMENT).isin([*affected]))
    else:
        if ranks_seem_to_start_at_0(log, counts) and allowed < 1:
            # Without the faulty rows, the other ranks would be off by one.
            raise QualityError(
                f"{total_counts(counts, 'below_first_rank')} rows have a rank below 1, and there are "
                f"{total_counts(counts, 'lists')} lists: "
                f"the ranks seem to start at 0; set {log.plan.options.path_of('first_rank')} to 0, or allow faulty "
                "rows with max_invalid_fraction: 1"
            )
        return
    emptied = {name: c for name, c in arms(counts).items() if not c["lists"]}
    reason_counts = reasons(faulty)
    key = "on_invalid" if settings.on_invalid == "fail" else "max_invalid_fraction"
    raise QualityError(
        f"{sentence}, allowed {allowed:.2%}: {settings.path_of(key)} is {getattr(settings, key)})"
        + (f"; {_experiment_names(emptied)} would have no result" if emptied else "")
        + f"; reasons: {', '.join(f'{reason} {n}' for reason, n in reason_counts.items())}"
        + _hint(log, reason_counts, n_faulty)
    )


def _experiment_names(counts: Counts) -> str:
    """Name experiments, the one with the largest share of faulty rows first.

    >>> _experiment_names({"a": {"quarantined": 1, "rows": 2}, "b": {"quarantined": 2, "rows": 2}})
    "experiments 'b', 'a'"
    """
    ordered = sorted(counts, key=lambda name: (-counts[name]["quarantined"] / counts[name]["rows"], name))
    names = ", ".join(f"'{name}'" for name in ordered[:MOST_NAMED])
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return f"experiment{'s' if len(counts) > 1 else ''} {names}{more}"


def _hint(log: Inspected, reason_counts: Reasons, n_faulty: int) -> str:
    """Return advice for the most frequent reason, if it explains most faulty rows."""
    reason, n = next(iter(reason_counts.items()))
    if 2 * n <= n_faulty:
        return ""
    if reason == REPEATED:
        return _several_lists(log)
    if reason == "position_below_1":
        return f"; if your ranks start at 0, set {log.plan.options.path_of('first_rank')} to 0"
    return ""


def _several_lists(log: Inspected) -> str:
    if log.tags:
        return "; if several files have the same tag, set source.experiment_from to file"
    if log.plan.columns.list:
        return ""
    return f"; if users have several requests each, set {log.plan.options.path_of('list')} to the request's column"


# ---- values


def _highest_grade(log: Inspected) -> float:
    """Return the highest grade of the impressions and the judgements."""
    tables = [log.rows.where(F.col(REJECTED).isNull()).select(RELEVANCE)] if log.plan.columns.relevance else []
    if log.judged is not None:
        tables.append(_typed(log, log.judged).where(f"NOT {FAULTY}").select(GRADE))
    rows = (table.agg(F.max(F.col(table.columns[0]).cast("double"))).first() for table in tables)
    return max(float(row[0]) for row in rows if row and row[0] is not None)


# ---- judgements


def _typed(log: Inspected, judged: DataFrame) -> DataFrame:
    return typed_judgements(judged, log.plan.judgement_mapping, log.plan.options.text_numbers)


def _refuse_foreign_judgements(log: Inspected, counts: Counts) -> None:
    """Refuse judgements that match no shown user or no shown item: every value would be 0."""
    if log.judged is None or not total_counts(counts, "lists"):
        return
    typed = _typed(log, log.judged)
    sound = log.rows.where(F.col(REJECTED).isNull())
    name = USER if not total_counts(counts, "judged_lists") else ITEM
    # Check items only if relevance comes from the judgements; judged items may all be irrelevant.
    if name == ITEM and (log.plan.columns.relevance or total_counts(counts, "judged_items")):
        return
    if sound.join(typed.where(F.col(name).isNotNull()), name, "left_semi").isEmpty():
        raise InputError(
            f"no {name} of the impressions is in the judgements, so every value would be 0; shown: "
            f"{_some_shapes(sound, name)}; judged: {_some_shapes(typed, name)} (letters shown as a, digits as 9); an "
            "id has to be the same text in both"
        )


def _some_shapes(table: DataFrame, name: str) -> str:
    ids = table.select(name).distinct().limit(MOST_NAMED)
    return ", ".join(dict.fromkeys(repr(shape(row[name])) for row in few_rows(ids))) or "none"
