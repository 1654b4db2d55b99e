"""What tied scores leave open: how far apart the best and the worst order of tied items lie. No pyspark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rankmetrics_spark.assembly import from_rows
from rankmetrics_spark.batch import Arrays, Floats, Ints
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Metric, compute
from rankmetrics_spark.pooling import with_judgements

SPREAD = "spread_"
"""Prefix of a metric's column: its value under the best order of tied items minus that under the worst."""


def spreads(columns: Arrays, tied: Ints, metrics: Sequence[Metric], convention: Convention, items: bool) -> Floats:
    """(n, len(metrics)) value under the best order of tied items minus the value under the worst.

    Only the lists with ties are looked at again, so a log without ties pays nothing.

    Args:
        columns: The rows of n lists, as ``from_rows`` takes them.
        tied: (n,) tied rows of each list.
        metrics: From ``parse``.
        convention: Everything but its rule for ties.
        items: Whether repeated items are looked for.
    """
    result = np.zeros((len(tied), len(metrics)))
    which = np.flatnonzero(tied)
    if len(which):
        part = {name: array.take(pa.array(which)) for name, array in columns.items()}
        best, worst = (_values(part, metrics, replace(convention, **_order(ties)), items) for ties in ("best", "worst"))
        result[which] = np.nan_to_num(np.abs(best - worst))
    return result


def _order(ties: str) -> dict[str, Any]:
    return {"ties": ties, "ap_ties": "same", "ndcg_ties": "same"}


def _values(columns: Arrays, metrics: Sequence[Metric], convention: Convention, items: bool) -> Floats:
    lists = from_rows(columns, convention, items, by_position=False)
    return compute(with_judgements(lists, columns, convention), metrics, convention)


def tie_lines(experiments: Mapping[str, Mapping[str, Any]], means: Mapping[tuple[str, str], float]) -> list[str]:
    """What a person should know about ties: their rate per experiment, and which differences they could turn about.

    Args:
        experiments: ``tied``, ``evaluated`` and ``tie_spread`` (metric to mean spread) of each, from the run record.
        means: (metric, experiment) to the mean over all users.

    >>> a, b = ({"tied": 1, "evaluated": 4, "tie_spread": {"ap": 0.3}}, {"tied": 0, "evaluated": 4, "tie_spread": {}})
    >>> for line in tie_lines({"a": a, "b": b}, {("ap", "a"): 0.5, ("ap", "b"): 0.6}):
    ...     print(line)
    tied scores: a 25.00% of its rows, b 0.00%
    warning: ap: ties move a by 0.3000 (best order minus worst), more than the 0.1000 between a and b
    """
    tied = {name: counts for name, counts in experiments.items() if "tied" in counts}
    if not any(counts["tied"] for counts in tied.values()):
        return []
    rates = [f"{name} {counts['tied'] / max(counts['evaluated'], 1):.2%}" for name, counts in tied.items()]
    metrics = dict.fromkeys(metric for counts in tied.values() for metric in counts["tie_spread"])
    warnings = (_warning(metric, tied, means) for metric in metrics)
    return ["tied scores: " + ", ".join([rates[0] + " of its rows", *rates[1:]]), *filter(None, warnings)]


def _warning(
    metric: str, experiments: Mapping[str, Mapping[str, Any]], means: Mapping[tuple[str, str], float]
) -> str | None:
    """The pair of experiments whose difference the ties could most easily turn about, if there is one."""
    there = sorted((means[metric, name], name) for name in experiments if means.get((metric, name)) is not None)
    worst = (0.0, "")
    # Neighbours in the order of the means suffice: no other pair lies closer.
    for (low, a), (high, b) in itertools.pairwise(there):
        for moved in (a, b):
            spread = experiments[moved]["tie_spread"].get(metric, 0.0)
            text = (
                f"warning: {metric}: ties move {moved} by {spread:.4f} (best order minus worst), "
                f"more than the {high - low:.4f} between {a} and {b}"
            )
            if spread - (high - low) > worst[0]:
                worst = (spread - (high - low), text)
    return worst[1] or None
