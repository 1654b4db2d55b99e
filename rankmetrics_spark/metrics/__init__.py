"""Ranking metrics over NumPy arrays: a metric is a function from a batch of ranked lists to one number per list.

``kernels`` holds the metrics, ``names`` the registry and the grammar of names, ``batch`` and ``lists`` the data that
kernels read, ``discounts``, ``ties`` and ``intents`` the arithmetic that they share, ``conventions`` the choices on
which systems disagree, ``beyond_accuracy`` what lists show, whatever its relevance; ``compute`` runs kernels over a
batch. Nothing here imports Spark.

>>> import numpy as np
>>> compute(one_list([1, 0, 1]).batch, [parse("ap@3"), parse("rr")], STANDARD).round(3).tolist()
[[0.833, 1.0]]
"""

# Importing the kernels registers them.
from rankmetrics_spark.metrics import kernels  # noqa: F401
from rankmetrics_spark.metrics.batch import (
    Batch,
    Floats,
    Intents,
    Ints,
    grids,
    has_repeat,
    mixed_codes,
    order_within,
    pair_codes,
    pair_starts,
    place,
    spans,
)
from rankmetrics_spark.metrics.beyond_accuracy import (
    Overlap,
    coverage,
    entropy,
    gini,
    jaccard,
    kendall,
    list_hashes,
    novelty,
    overlap,
    rbo,
    same_top,
    unexpectedness,
)
from rankmetrics_spark.metrics.conventions import PRESETS, STANDARD, Convention, knobs, resolve
from rankmetrics_spark.metrics.discounts import (
    UNCUT,
    discount,
    gain,
    geometric,
    last_rank,
    power_of_two,
    reciprocal,
    running_sums,
    unit,
)
from rankmetrics_spark.metrics.lists import Lists, check, compute, m_relevant, one_list, sums
from rankmetrics_spark.metrics.names import (
    DIRECTIONS,
    REGISTRY,
    RESERVED,
    Definition,
    Metric,
    cut_of,
    deciding,
    hashed_cut,
    list_hash,
    metric,
    metric_of_column,
    parse,
    reference,
)

__all__ = [
    "DIRECTIONS",
    "PRESETS",
    "REGISTRY",
    "RESERVED",
    "STANDARD",
    "UNCUT",
    "Batch",
    "Convention",
    "Definition",
    "Floats",
    "Intents",
    "Ints",
    "Lists",
    "Metric",
    "Overlap",
    "check",
    "compute",
    "coverage",
    "cut_of",
    "deciding",
    "discount",
    "entropy",
    "gain",
    "geometric",
    "gini",
    "grids",
    "has_repeat",
    "hashed_cut",
    "jaccard",
    "kendall",
    "knobs",
    "last_rank",
    "list_hash",
    "list_hashes",
    "m_relevant",
    "metric",
    "metric_of_column",
    "mixed_codes",
    "novelty",
    "one_list",
    "order_within",
    "overlap",
    "pair_codes",
    "pair_starts",
    "parse",
    "place",
    "power_of_two",
    "rbo",
    "reciprocal",
    "reference",
    "resolve",
    "running_sums",
    "same_top",
    "spans",
    "sums",
    "unexpectedness",
    "unit",
]
