"""The typical hand-written solution: a pandas function of one user's rows, applied per group."""

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession, functions as F

from tests.benchmarks.peers.common import COLUMNS, CUTOFFS


def one_user(rows: pd.DataFrame) -> pd.DataFrame:
    hit = rows.sort_values("position")["relevance"].to_numpy() > 0
    rank = np.arange(1, len(hit) + 1)
    discount = 1 / np.log2(rank + 1)
    m = int(hit.sum())
    values = {}
    for k in CUTOFFS:
        top = hit[:k]
        result = int(top.sum())
        precisions = np.cumsum(top) / rank[:k]
        ideal = discount[: min(m, k)].sum()
        values[f"ap@{k}"] = float(precisions[top].sum() / min(m, k)) if m else 0.0
        values[f"ndcg@{k}"] = float(discount[:k][top].sum() / ideal) if m else 0.0
        values[f"p@{k}"] = result / k
        values[f"r@{k}"] = result / m if m else 0.0
    return pd.DataFrame([[rows["experiment"].iloc[0], *(values[name] for name in COLUMNS)]])


def run(path: str) -> dict:
    schema = "experiment string, " + ", ".join(f"`{name}` double" for name in COLUMNS)
    rows = SparkSession.active().read.parquet(path).select("experiment", "user", "position", "relevance")
    users = rows.groupBy("experiment", "user").applyInPandas(one_user, schema)
    means = users.groupBy("experiment").agg(*(F.avg(f"`{name}`").alias(name) for name in COLUMNS))
    return {(row["experiment"], name): row[name] for row in means.collect() for name in COLUMNS}
