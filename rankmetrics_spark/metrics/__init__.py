"""Ranking metrics over NumPy arrays: a metric is a function from a batch of ranked lists to one number per list.

``kernels`` holds the metrics, ``names`` the registry and the grammar of names, ``batch`` and ``lists`` the data that
kernels read, ``discounts``, ``ties`` and ``intents`` the arithmetic that they share, ``conventions`` the choices on
which systems disagree, ``beyond_accuracy`` what lists show, whatever its relevance; ``compute`` runs kernels over a
batch. Nothing here imports Spark.

>>> from rankmetrics_spark.metrics import STANDARD, compute, one_list, parse
>>> compute(one_list([1, 0, 1]).batch, [parse("ap@3"), parse("rr")], STANDARD).round(3).tolist()
[[0.833, 1.0]]
"""

from rankmetrics_spark.doors import door

# Importing the kernels registers them.
from rankmetrics_spark.metrics import kernels

__getattr__, __dir__, __all__ = door(__name__)
