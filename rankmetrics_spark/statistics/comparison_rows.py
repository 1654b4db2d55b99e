"""Sums of experiments and pairs -> the rows of the table ``comparisons``: few rows, whatever the number of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.schemas import segment_label
from rankmetrics_spark.statistics import decomposition
from rankmetrics_spark.statistics.compared import INDEPENDENT, PAIRED, Compared, Rules
from rankmetrics_spark.statistics.resampled import Ranks, interval, ranked, resampled, with_cuped
from rankmetrics_spark.statistics.stacked import (
    arm_moments,
    experiments_of,
    refuse_unknown,
    replicate_means,
    stacked,
)
from rankmetrics_spark.statistics.totals import ARM_SUMS, Key, Name, Request, Totals
from rankmetrics_spark.statistics.verdicts import SMALL_RATIO_P, verdicts

__all__ = [
    "INDEPENDENT",
    "PAIRED",
    "SMALL_RATIO_P",
    "Ranks",
    "Rules",
    "comparison_rows",
    "decomposition_rows",
    "experiments_of",
    "mean_intervals",
    "refuse_unknown",
]


def comparison_rows(totals: Totals, ranks: Mapping[Key, Ranks], request: Request, rules: Rules) -> dict[str, Any]:
    """The table ``comparisons``, column by column.

    Args:
        totals: Of all users.
        ranks: Of all users; empty if no signed ranks are asked for.
        request: Which pairs.
        rules: How rows are made.

    Returns:
        Column -> (g,) values; NaN and None are null.

    Raises:
        ConfigError: There is no experiment with the name of the baseline, of a candidate or of a share.
    """
    rows = Compared.of(totals, request, rules)
    if not rows.keys:
        return {}
    tested = rows.described() | rows.tested() | rows.sized() | with_cuped(rows)
    return tested | resampled(rows) | ranked(rows, ranks) | verdicts(rows)


def mean_intervals(totals: Totals, rules: Rules) -> dict[str, Any]:
    """Bootstrap intervals of the mean of every experiment, segment and metric.

    Returns:
        Columns experiment_id, segment, metric, bootstrap_ci_low, bootstrap_ci_high; (g,) each.
    """
    keys = [key for key in totals.sums if key.kind == "arm"]
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    moments = arm_moments(stacked(totals, keys, len(ARM_SUMS)))
    for i, key in enumerate(keys):
        found = totals.replicates.get(key._replace(kind="bootstrap_arm"))
        if found is not None and moments.n[i] >= 2 and not totals.sums[key][ARM_SUMS.index("beyond")]:
            part = slice(i, i + 1)
            means, estimate, skew = replicate_means(found)[None], moments.mean[part], moments.skew_term()[part]
            low[i], high[i] = (bound[0] for bound in interval(means, estimate, skew, rules))
    return {
        "experiment_id": [key.candidate for key in keys],
        "segment": [key.segment for key in keys],
        "metric": [key.metric for key in keys],
        "bootstrap_ci_low": low,
        "bootstrap_ci_high": high,
    }


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
    cells = [key for key in totals.sums if key.kind == "arm" and key.segment.startswith(start)]
    chosen = [name for name in known if name != baseline and (not candidates or name in candidates)]
    columns: dict[str, list[Any]] = {}
    for candidate in chosen:
        for metric in dict.fromkeys(key.metric for key in cells):
            meant = {key.segment for key in cells if key.metric == metric and key.candidate in (baseline, candidate)}
            _decompose(totals, (baseline, candidate, metric), sorted(meant), columns)
    return columns


def _decompose(
    totals: Totals, of: tuple[Name, Name, str], labels: Sequence[str], columns: dict[str, list[Any]]
) -> None:
    baseline, candidate, metric = of
    keys = [[Key("arm", "", name, label, metric) for label in labels] for name in (baseline, candidate)]
    arms = [arm_moments(stacked(totals, each, len(ARM_SUMS))) for each in keys]
    found = decomposition.decompose(arms[0], arms[1])
    rows = {
        "experiment_id": [candidate] * len(labels),
        "baseline": [baseline] * len(labels),
        "metric": [metric] * len(labels),
        "segment": list(labels),
        "n_users_baseline": [int(n) for n in arms[0].n],
        "n_users_candidate": [int(n) for n in arms[1].n],
        "mean_baseline": arms[0].mean.tolist(),
        "mean_candidate": arms[1].mean.tolist(),
        "mix": found.mix.tolist(),
        "within": found.within.tolist(),
    }
    for column, values in rows.items():
        columns.setdefault(column, []).extend(values)
