"""Sums -> the rows of the other two tables: bootstrap intervals of means, and what the mix of users changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.comparison.compared import Rules, interval
from rankmetrics_spark.comparison.totals import (
    ARM_SUMS,
    Key,
    Name,
    Totals,
    arm_moments,
    experiments_of,
    refuse_unknown,
    replicate_means,
    stacked,
)
from rankmetrics_spark.schemas import segment_label
from rankmetrics_spark.statistics import decompose


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
    found = decompose(arms[0], arms[1])
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
