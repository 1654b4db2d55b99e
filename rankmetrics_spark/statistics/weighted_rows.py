"""The rows of ``off_policy``: one estimate per (experiment, metric, estimator), or one sentence why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rankmetrics_spark.schemas import EXPERIMENT, METRIC
from rankmetrics_spark.statistics.exact_sums import LARGEST
from rankmetrics_spark.statistics.moments import Whole
from rankmetrics_spark.statistics.weighted import SUMS, Estimate, WeightedMoments, ips, self_normalised

ESTIMATORS = ("ips", "clipped", "self_normalised")
ROW_COUNTS = ("faulty", "unweighted", "repeated")
"""Rows of an experiment that no estimate reads: with a fault, with an unusable propensity, repeated in their list."""
ALL_SUMS = (*ROW_COUNTS, *SUMS)


class Key(NamedTuple):
    """What a sum belongs to."""

    experiment: str | None
    metric: str
    estimator: str


@dataclass(frozen=True)
class Rules:
    """When there is an estimate, and how it is made.

    Attributes:
        policy: Whether another policy's probabilities are the target; otherwise position bias is removed.
        weights: What messages call the columns that the weights come from.
        least_effective: Fewer effective rows or users are too few.
        least_share: A smaller share of effective rows is too small.
        confidence: Of the intervals, in (0, 1).
    """

    policy: bool
    weights: str
    least_effective: float
    least_share: float
    confidence: float


def off_policy_rows(sums: Mapping[Key, Whole], rules: Rules, order: Sequence[Key]) -> dict[str, list[Any]]:
    """The columns of the result.

    Args:
        sums: Key -> (len(ALL_SUMS),) whole numbers.
        rules: When there is an estimate.
        order: The keys in the order of the result.
    """
    rows = [_row(key, np.asarray(sums[key], object), rules) for key in order]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _row(key: Key, sums: Whole, rules: Rules) -> dict[str, Any]:
    lost = dict(zip(ROW_COUNTS, map(int, sums), strict=False))
    moments = WeightedMoments.of_sums(sums[None, len(ROW_COUNTS) :])
    n_rows, effective = int(moments.counts["rows"][0]), float(moments.effective_rows[0])
    note = _refusal(key, moments, lost, rules)
    found = _estimate(key, moments, rules) if note is None else None
    return {
        EXPERIMENT: key.experiment,
        METRIC: key.metric,
        "estimator": key.estimator,
        "value": found and float(found.value[0]),
        "ci_low": found and float(found.low[0]),
        "ci_high": found and float(found.high[0]),
        "n_users": int(moments.counts["n"][0]),
        "n_rows": n_rows,
        "effective_sample_size": effective,
        "effective_share": effective / n_rows if n_rows else None,
        "effective_users": float(moments.effective_users[0]),
        "mean_weight": float(moments.mean_weight[0]),
        "n_faulty_rows": lost["faulty"] + lost["unweighted"],
        "n_repeated": lost["repeated"],
        "confidence": rules.confidence,
        "note": note,
    }


def _estimate(key: Key, moments: WeightedMoments, rules: Rules) -> Estimate:
    return (self_normalised if key.estimator == "self_normalised" else ips)(moments, rules.confidence)


def _refusal(key: Key, moments: WeightedMoments, lost: Mapping[str, int], rules: Rules) -> str | None:
    """Why there is no estimate, in one sentence; None if there is one."""
    if lost["unweighted"]:
        return f"rows with {rules.weights}: {lost['unweighted']:,}; allowed: none, so remove or repair them first"
    if not moments.counts["n"][0]:
        return f"no usable row; rows with a fault in another column: {lost['faulty']:,}"
    if n := int(moments.counts["beyond"][0]):
        clicks = " from relevance 0 or 1 (dcg takes grades)" if key.metric.startswith("ndcg") else ""
        return f"users without a usable value: {n:,}; allowed: none, so every value{clicks} up to {LARGEST:.2g}"
    if key.estimator == "self_normalised" and not rules.policy:
        return (
            "there is no self-normalised estimate without a target: a row is shown with certainty, so "
            "the mean of 1 / propensity is not 1 in expectation; use ips or clipped"
        )
    return _too_small(moments, rules)


def _too_small(moments: WeightedMoments, rules: Rules) -> str | None:
    rows, users, n = float(moments.effective_rows[0]), float(moments.effective_users[0]), int(moments.counts["rows"][0])
    for found, what in ((rows, "rows"), (users, "users")):
        if found < rules.least_effective:
            return (
                f"the weights leave {found:.1f} effective {what} of {n:,} rows; "
                f"an estimate needs at least {rules.least_effective:g}"
            )
    if rows < rules.least_share * n:
        return (
            f"the weights leave {rows:.1f} effective rows of {n:,}, which is {rows / n:.2%}; "
            f"an estimate needs at least {rules.least_share:.2%}"
        )
    return None
