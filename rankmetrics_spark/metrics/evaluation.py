"""Runs kernels over a batch, and fills lists without a value as the convention says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rankmetrics_spark import errors
from rankmetrics_spark.metrics.batch import Batch, Floats, Ints
from rankmetrics_spark.metrics.conventions import Convention
from rankmetrics_spark.metrics.lists import Lists
from rankmetrics_spark.metrics.names import REGISTRY, Metric

ZERO_RELEVANT = {"zero": 0.0, "skip": np.nan, "one": 1.0}
"""Value of a metric without a value, per setting of the knob ``zero_relevant``."""


def compute(batch: Batch, metrics: Sequence[Metric], convention: Convention) -> Floats:
    """Value of each metric for each list.

    Args:
        batch: n ranked lists.
        metrics: Metrics from ``parse``.
        convention: How to read the lists. Its ``zero_relevant`` decides what NaN from a kernel becomes: 0, NaN or 1.
            With ``skip``, a list without a relevant item has no value in any metric, so that all have the same lists.

    Returns:
        (n, len(metrics)) values; NaN where a list has no value.

    Raises:
        ConfigError: If a metric cannot read tied scores as the convention asks.

    >>> from rankmetrics_spark.metrics import parse
    >>> batch = Batch(2, *map(np.array, ([0, 0], [1, 3], [1.0, 1.0], [3, 3], [0, 0], [1.0, 1.0])))
    >>> compute(batch, [parse("ap@3"), parse("rr")], Convention()).round(3).tolist()
    [[0.833, 1.0], [0.0, 0.0]]
    """
    check(metrics, convention)
    views: dict[str, Lists] = {}
    values = np.empty((batch.size, len(metrics)), order="F")
    for column, metric in enumerate(metrics):
        reading = metric.definition.reading(convention)
        lists = views.setdefault(reading, Lists(batch, convention, reading))
        scores = metric.definition.kernel(lists, **metric.arguments)
        if metric.definition.zero_policy:
            scores = np.where(np.isnan(scores), ZERO_RELEVANT[convention.zero_relevant], scores)
        values[:, column] = scores
    if convention.zero_relevant == "skip":
        values[~Lists(batch, convention).has_relevant] = np.nan
    return values


def check(metrics: Iterable[Metric], convention: Convention) -> None:
    """Refuse metrics that cannot read tied scores as the convention asks.

    Args:
        metrics: Metrics from ``parse``.
        convention: Its tie knobs are checked.

    Raises:
        ConfigError: Names the metric, and the metrics that can.
    """
    for metric in metrics:
        if metric.definition.reading(convention) not in metric.definition.readings:
            able = [name for name, definition in REGISTRY.items() if "expected" in definition.readings]
            raise errors.ConfigError(
                f"metric '{metric}' has no expected value over tied scores (ties: expected); "
                f"choose an order of ties, or one of: {', '.join(able)}"
            )


def m_relevant(batch: Batch, convention: Convention) -> Ints:
    """(n,) number of relevant judged items of each list, shown or not."""
    return Lists(batch, convention).m
