"""Ranked lists -> per-list metrics: the pandas UDF, and the averages over a user's lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.assembly import Assembled, from_masks, from_relevant, from_rows
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Metric, compute, m_relevant
from rankmetrics_spark.pooling import n_unknown, with_judgements
from rankmetrics_spark.ranking import PLANES
from rankmetrics_spark.schemas import (
    ENTRIES,
    EXPERIMENT,
    HASH,
    ITEM,
    N_DROPPED,
    N_LISTS,
    N_RELEVANT,
    N_ROWS,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
    POSITION,
    RELEVANCE,
    SCORE,
    USER,
    Columns,
    quoted,
)
from rankmetrics_spark.sums import exact_mean
from rankmetrics_spark.ties import SPREAD, spreads
from rankmetrics_spark.vectorized import udf

COUNTS = (N_SHOWN, N_RELEVANT, N_DROPPED, N_TIED, N_UNKNOWN)


@dataclass(frozen=True)
class Scoring:
    """What is to be computed for each list.

    Attributes:
        metrics: The metrics, each with its cut-off.
        convention: How they are defined.
        by_position: Whether ranks are given (else: by score).
        items_matter: Whether repeated items are looked for.
        judged: Whether judgements are given.
    """

    metrics: tuple[Metric, ...]
    convention: Convention
    by_position: bool = True
    items_matter: bool = True
    judged: bool = False

    @property
    def schema(self) -> T.StructType:
        """Counts and one double per metric; by score, the spread that ties leave to each metric as well."""
        counts = [T.StructField(name, T.LongType()) for name in COUNTS]
        doubles = [*(m.column for m in self.metrics), *self.spreads]
        return T.StructType(counts + [T.StructField(name, T.DoubleType()) for name in doubles])

    @property
    def spreads(self) -> list[str]:
        """Columns of what tied scores leave open; ranks have no ties."""
        return [] if self.by_position else [SPREAD + m.column for m in self.metrics]


def scored(lists: DataFrame, columns: Columns, form: str, scoring: Scoring) -> DataFrame:
    """Lists in the given form -> keys, segments, ``n_rows``, counts and one column per metric; null = left out."""
    values = udf(partial(score_batch, form=form, scoring=scoring), _payload(columns, form, scoring), scoring.schema)
    keys = [*map(quoted, (*columns.keys, *columns.segments)), N_ROWS]
    fields = (f"s.{name}" for name in scoring.schema.fieldNames())
    return lists.select("*", values.alias("s")).selectExpr(*keys, *fields)


def _payload(columns: Columns, form: str, scoring: Scoring) -> dict[str, Column]:
    """The columns that the UDF reads, by the names it knows them by."""
    if form == "masks":
        # Without nulls: pandas would turn a column that has one into doubles, and bits above 2**53 would be lost.
        planes = {name: F.expr(f"coalesce({name}, 0L)") for name in (f"plane_{b}" for b in range(PLANES))}
        payload = {N_ROWS: F.col(N_ROWS)} | planes
    else:
        text = [ITEM] if form == "rows" and columns.score and columns.item else []
        names = (
            [POSITION, *([HASH] if columns.item and scoring.items_matter else []), RELEVANCE]
            if form == "relevant"
            else [HASH, *text, *(name for name in (POSITION, SCORE, RELEVANCE) if getattr(columns, name))]
        )
        payload = {N_ROWS: F.col(N_ROWS)} | {name: F.col(f"{ENTRIES}.{name}") for name in names}
    if scoring.judged:
        payload |= {"pool_grade": F.col("pool_grade")}
    if scoring.judged and (not columns.relevance or scoring.convention.duplicates == "count"):
        payload |= {"pool_hash": F.col("pool_hash")}
    return payload


def score_batch(series: dict[str, pd.Series[Any]], form: str, scoring: Scoring) -> pd.DataFrame:
    """One Arrow batch: (n,) columns in, a frame with n rows out: the counts, then one column per metric."""
    lists = assembled(series, form, scoring)
    rule, metrics = scoring.convention, scoring.metrics
    batch = with_judgements(lists, series, rule)
    unknown = n_unknown(batch, rule) if scoring.judged else np.zeros(batch.size)
    counts = (batch.shown, m_relevant(batch, rule), lists.dropped, lists.tied, unknown)
    frame = {name: np.asarray(count, np.int64) for name, count in zip(COUNTS, counts, strict=True)}
    values = dict(zip((m.column for m in metrics), compute(batch, metrics, rule).T, strict=True))
    open_ = spreads(series, lists.tied, metrics, rule, scoring.items_matter) if scoring.spreads else np.empty((0, 0))
    return pd.DataFrame(frame | values | dict(zip(scoring.spreads, open_.T, strict=True)))


def assembled(series: dict[str, pd.Series[Any]], form: str, scoring: Scoring) -> Assembled:
    """The batch of lists in the given form, without the judged pool."""
    if form == "masks":
        return from_masks(series, PLANES)
    if form == "relevant":
        return from_relevant(series, scoring.convention, scoring.items_matter)
    return from_rows(series, scoring.convention, scoring.items_matter, scoring.by_position)


def per_user(lists: DataFrame, columns: Columns, scoring: Scoring) -> DataFrame:
    """One row per (experiment, user): the row itself, or the mean over the user's lists where there are several."""
    names = [metric.column for metric in scoring.metrics]
    if not columns.list:
        return lists.selectExpr(*(f"1L AS {N_LISTS}" if c == N_LISTS else c for c in user_columns(columns, names)))
    # Judged items belong to the user, so they are the same in each list; shown ones add up.
    relevant = "max" if scoring.judged else "sum"
    grouped = lists.groupBy(EXPERIMENT, USER).agg(
        *(F.expr(f"min({name}) AS {name}") for name in map(quoted, columns.segments)),
        F.expr(f"count(1) AS {N_LISTS}"),
        F.expr(f"sum({N_SHOWN}) AS {N_SHOWN}"),
        F.expr(f"{relevant}({N_RELEVANT}) AS {N_RELEVANT}"),
        *(exact_mean(name).alias(name) for name in names),
    )
    return grouped.selectExpr(*user_columns(columns, names))


def user_columns(columns: Columns, metrics: Sequence[str]) -> list[str]:
    """Columns of ``user_metrics``, in order, as SQL."""
    return [EXPERIMENT, USER, *map(quoted, columns.segments), N_LISTS, N_SHOWN, N_RELEVANT, *metrics]
