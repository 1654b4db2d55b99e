"""Columns of the tables that a comparison makes, and the few rows that one task makes of all sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rankmetrics_spark.arrow_steps import Batches
from rankmetrics_spark.comparison.batches import read
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, METRIC, SEGMENT
from rankmetrics_spark.statistics.comparison_rows import Rules, comparison_rows, decomposition_rows, mean_intervals
from rankmetrics_spark.statistics.pairs import Request

COLUMNS = {
    **dict.fromkeys((EXPERIMENT, BASELINE, SEGMENT, METRIC, "design"), "string"),
    "n_users": "long",
    **dict.fromkeys(
        ("mean_baseline", "mean_candidate", "difference", "relative_difference", "ci_low", "ci_high"), "double"
    ),
    **dict.fromkeys(("p_value", "p_adjusted"), "double"),
    **dict.fromkeys(("wins", "ties", "losses"), "long"),
    "better": "string",
    "note": "string",
    "confidence": "double",
    "correction": "string",
    "family": "string",
    **dict.fromkeys(("n_comparisons", "n_users_baseline", "n_users_candidate", "n_users_both"), "long"),
    **dict.fromkeys(
        (
            "standard_error",
            "relative_ci_low",
            "relative_ci_high",
            "effect_size",
            "minimum_detectable_effect",
            "users_needed",
            "p_wilcoxon",
            "p_randomization",
            "bootstrap_ci_low",
            "bootstrap_ci_high",
            "aa_share",
            "sample_ratio_p",
            "cuped_difference",
            "cuped_ci_low",
            "cuped_ci_high",
            "cuped_p_value",
            "cuped_variance_reduction",
        ),
        "double",
    ),
}
"""Columns of ``comparisons`` -> their types; what was not asked for is null."""

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


def schema_text(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def final(batches: Batches, request: Request, rules: Rules) -> Iterator[pa.RecordBatch]:
    totals, ranks = read(batches)
    if totals.sums:
        yield from rows_of(comparison_rows(totals, ranks, request, rules), COLUMNS)


def final_means(batches: Batches, rules: Rules) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(mean_intervals(totals, rules), MEANS)


def final_decomposition(
    batches: Batches, baseline: str | None, candidates: tuple[str, ...], segment: str
) -> Iterator[pa.RecordBatch]:
    totals, _ = read(batches)
    if totals.sums:
        yield from rows_of(decomposition_rows(totals, baseline, candidates, segment), DECOMPOSITION)


_ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}


def rows_of(columns: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    if columns:
        n = len(columns[EXPERIMENT])
        arrays = [
            pa.array(columns[name], _ARROW[kind], from_pandas=True) if name in columns else pa.nulls(n, _ARROW[kind])
            for name, kind in kinds.items()
        ]
        yield pa.RecordBatch.from_arrays(arrays, [*kinds])
