"""Sums by key -> the few rows of a result: comparisons, bootstrap intervals of means, decompositions by segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rankmetrics_spark.comparison.columns import comparison_rows
from rankmetrics_spark.comparison.families import Question, interval
from rankmetrics_spark.comparison.measures import Key, Name, Totals
from rankmetrics_spark.comparison.registry import Statistic, types_of
from rankmetrics_spark.comparison.sums import read, refuse_several
from rankmetrics_spark.comparison.totals import arm_moments, experiments_of, refuse_unknown, replicate_means
from rankmetrics_spark.engines import Batches, rows_of
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, METRIC, SEGMENT, segment_label
from rankmetrics_spark.statistics import decompose, t_interval

DECOMPOSITION = {
    **dict.fromkeys((EXPERIMENT, BASELINE, METRIC, SEGMENT), "string"),
    **dict.fromkeys(("n_users_baseline", "n_users_candidate"), "long"),
    **dict.fromkeys(("mean_baseline", "mean_candidate", "mix", "within"), "double"),
}
"""Columns of a decomposition -> their types."""
MEANS = {
    **dict.fromkeys((EXPERIMENT, SEGMENT, METRIC), "string"),
    **dict.fromkeys(("bootstrap_ci_low", "bootstrap_ci_high"), "double"),
}
CLUSTER_MEANS = {
    **dict.fromkeys((EXPERIMENT, SEGMENT, METRIC), "string"),
    **dict.fromkeys(("ci_low", "ci_high"), "double"),
}


def final(batches: Batches, question: Question, statistics: Sequence[Statistic]) -> Iterator[pa.RecordBatch]:
    totals, ranks = read(batches)
    refuse_several(totals)
    parts = [(totals, question)] if totals.sums else []
    if question.by_test:
        parts = [(part, question.of_test(name)) for name, part in totals.by_test()]
        # An arm without a list is said where the lists are counted.
        parts = [(part, own) for part, own in parts if own.request.is_requested and _has_baseline(part, own)]
    for part, own in parts:
        yield from rows_of(comparison_rows(part, ranks, own, statistics), types_of(statistics))


def _has_baseline(totals: Totals, question: Question) -> bool:
    name = question.request.baseline
    return name is None or name in experiments_of(totals)


def final_means(batches: Batches, confidence: float) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(mean_intervals(totals, confidence), MEANS)


def final_cluster_means(batches: Batches, confidence: float) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    keys = [key for key in totals.sums if key.kind == "arm"]
    if keys:
        bounds = t_interval(arm_moments(totals.of("arm_lists", keys)), confidence)
        low, high = (np.where(totals.of("arm", keys)["beyond"] > 0, np.nan, bound) for bound in bounds)
        yield from rows_of(_names(keys) | {"ci_low": low, "ci_high": high}, CLUSTER_MEANS)


def final_decomposition(
    batches: Batches, baseline: str | None, candidates: tuple[str, ...], segment: str
) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(decomposition_rows(totals, baseline, candidates, segment), DECOMPOSITION)


def mean_intervals(totals: Totals, confidence: float) -> dict[str, Any]:
    """Bootstrap intervals of the mean of every experiment, segment and metric.

    Returns:
        Columns experiment_id, segment, metric, bootstrap_ci_low, bootstrap_ci_high; (g,) each.
    """
    keys = [key for key in totals.sums if key.kind == "arm"]
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    sums = totals.of("arm", keys)
    moments, beyond = arm_moments(sums), sums["beyond"]
    for i, key in enumerate(keys):
        replicates = totals.replicates.get(key._replace(kind="bootstrap_arm"))
        if replicates is not None and moments.n[i] >= 2 and not beyond[i]:
            part = slice(i, i + 1)
            bounds = interval(replicate_means(replicates)[None], moments.mean[part], confidence)
            low[i], high[i] = (bound[0] for bound in bounds)
    return _names(keys) | {"bootstrap_ci_low": low, "bootstrap_ci_high": high}


def _names(keys: Sequence[Key]) -> dict[str, Any]:
    fields = {EXPERIMENT: "candidate", SEGMENT: "segment", METRIC: "metric"}
    return {column: [getattr(key, field) for key in keys] for column, field in fields.items()}


def decomposition_rows(totals: Totals, baseline: Name, candidates: Sequence[Name], segment: str) -> dict[str, Any]:
    """Differences from the baseline, split by one segment column.

    Args:
        totals: Of all users.
        baseline: The experiment that the others are compared with.
        candidates: Only these; empty = all.
        segment: Name of the segment column, as its labels spell it.

    Returns:
        Column -> values; a row per (candidate, metric, label).

    Raises:
        ConfigError: There is no experiment with the name of the baseline or of a candidate.
    """
    known = experiments_of(totals)
    refuse_unknown([baseline, *candidates], known)
    start = segment_label(segment, "")
    arms = [key for key in totals.sums if key.kind == "arm" and key.segment.startswith(start)]
    chosen = [name for name in known if name != baseline and (not candidates or name in candidates)]
    columns: dict[str, list[Any]] = {}
    for candidate in chosen:
        for metric in dict.fromkeys(key.metric for key in arms):
            both = [key for key in arms if key.metric == metric and key.candidate in (baseline, candidate)]
            labels = sorted({key.segment for key in both})
            keys = [[Key("arm", "", name, label, metric) for label in labels] for name in (baseline, candidate)]
            ours, theirs = (arm_moments(totals.of("arm", each)) for each in keys)
            parts = decompose(ours, theirs)
            rows = {
                "experiment_id": [candidate] * len(labels),
                "baseline": [baseline] * len(labels),
                "metric": [metric] * len(labels),
                "segment": labels,
                "n_users_baseline": [int(n) for n in ours.n],
                "n_users_candidate": [int(n) for n in theirs.n],
                "mean_baseline": ours.mean.tolist(),
                "mean_candidate": theirs.mean.tolist(),
                "mix": parts.mix.tolist(),
                "within": parts.within.tolist(),
            }
            for column, values in rows.items():
                columns.setdefault(column, []).extend(values)
    return columns
