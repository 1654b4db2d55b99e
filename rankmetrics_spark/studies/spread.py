"""How often items are shown -> the values of the metrics of ``exposure``, in the log and in each replicate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rankmetrics_spark.engines import Batches
from rankmetrics_spark.metrics import Floats, Ints, coverage, entropy, gini, novelty
from rankmetrics_spark.schemas import EXPERIMENT

_NONE = np.array([], np.int64)


def counts_of(batches: Batches) -> dict[tuple[str | None, int, str], tuple[Ints, Ints]]:
    """(experiment, replicate, kind) -> numbers, and how many items or rows have each; none of a key that is missing."""
    counts: dict[tuple[str | None, int, str], tuple[Ints, Ints]] = defaultdict(lambda: (_NONE, _NONE))
    if full := [batch for batch in batches if batch.num_rows]:
        rows_of_all = pa.Table.from_batches(full).to_pandas()
        for (name, replicate, kind), rows in rows_of_all.groupby([EXPERIMENT, "replicate", "kind"], dropna=False):
            known = name if isinstance(name, str) else None
            counts[known, int(replicate), kind] = rows["value"].to_numpy(), rows["n"].to_numpy()
    return counts


def values_of(
    counts: Mapping[Any, tuple[Ints, Ints]],
    name: str | None,
    replicates: int,
    n_catalogue: int,
    n_interactions: int | None,
) -> dict[str, Floats]:
    """Metric -> (1 + R,) its value in the log and in each replicate; NaN where there is none."""
    values = []
    for replicate in range(1 + replicates):
        shown, items = counts[name, replicate, "shown"]
        interactions, rows = counts[name, replicate, "interactions"]
        n_items = int(items.sum())
        fits = bool(n_items) and n_items <= n_catalogue
        values.append(
            (
                coverage(n_items, n_catalogue) if fits else math.nan,
                gini(shown, items, n_catalogue) if fits else math.nan,
                entropy(shown, items),
                novelty(interactions, rows, n_interactions or 0),
            )
        )
    named = dict(zip(("coverage", "gini", "entropy", "novelty"), np.array(values).T, strict=True))
    return {metric: each for metric, each in named.items() if metric != "novelty" or n_interactions is not None}
