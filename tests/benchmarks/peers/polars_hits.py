"""Polars, alternative."""

import os

os.environ["POLARS_MAX_THREADS"] = "2"
import polars as pl
from tests.benchmarks.peers.common import COLUMNS, CUTOFFS
from tests.benchmarks.peers.polars_lazy import KEYS, _sums, _ratios


def run(path: str, engine="auto") -> dict:
    rows = pl.scan_parquet(f"{path}/*.parquet")
    hits = rows.filter(pl.col("relevance") > 0).select(*KEYS, "position")
    hits = hits.with_columns(hit=pl.col("position").rank("ordinal").over(KEYS))
    sums = hits.group_by(KEYS).agg(pl.len().alias("m"), *(e for k in CUTOFFS for e in _sums(k)))
    users = sums.select("experiment", *(e for k in CUTOFFS for e in _ratios(k)))
    totals = users.group_by("experiment").agg(pl.col(*COLUMNS).sum())
    counts = rows.select(KEYS).unique().group_by("experiment").agg(n=pl.len())
    totals, counts = pl.collect_all([totals, counts], engine=engine)
    means = totals.join(counts, on="experiment").with_columns(pl.col(*COLUMNS) / pl.col("n"))
    return {(row["experiment"], name): row[name] for row in means.to_dicts() for name in COLUMNS}
