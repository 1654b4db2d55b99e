"""Ranked lists -> per-list metrics: the function over Arrow batches, and the averages over a user's lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.assembly import Assembled, from_masks, from_relevant, from_rows
from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Metric, compute, m_relevant
from rankmetrics_spark.pooling import n_unknown, with_judgements
from rankmetrics_spark.ranking import PLANES
from rankmetrics_spark.schemas import (
    DOUBTFUL,
    ENTRIES,
    EXPERIMENT,
    N_DROPPED,
    N_LISTS,
    N_RELEVANT,
    N_ROWS,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
    USER,
    WHOLE,
    Columns,
    quoted,
)
from rankmetrics_spark.sums import exact_mean
from rankmetrics_spark.ties import SPREAD, spreads
from rankmetrics_spark.vectorized import Step, carried, step

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


_EVERY_ROW_SEEN = {"masks": "false", "relevant": "false", "again": DOUBTFUL, "rows": "true"}


def scored(lists: DataFrame, columns: Columns, form: str, scoring: Scoring, then: Step | None = None) -> DataFrame:
    """Lists in the given form -> keys, segments, counts and one column per metric (null = left out).

    ``whole`` says whether every row of a list was looked at one by one, or only its relevant ones.

    What is to be done with them ``then`` happens before they come back from Python.
    """
    keys = dict.fromkeys((*columns.keys, *columns.segments), T.StringType())
    kept = keys | {N_ROWS: T.LongType(), WHOLE: T.BooleanType()}
    told = lists.withColumn(WHOLE, F.expr(_EVERY_ROW_SEEN[form]))
    read = told.selectExpr(*carried(kept), *_payload(columns, form, scoring))
    scores = step(partial(score_batch, form=form, scoring=scoring), kept, scoring.schema)
    return (scores.then(then) if then else scores).of(read)


def _payload(columns: Columns, form: str, scoring: Scoring) -> list[str]:
    """What ``score_batch`` reads besides ``n_rows``, as SQL."""
    if form == "masks":
        # Arrow would hand a column with a null over as doubles, and bits above 2**53 would be lost.
        payload = [f"coalesce({name}, 0L) AS {name}" for name in (f"plane_{b}" for b in range(PLANES))]
    else:
        payload = [ENTRIES]
    if scoring.judged:
        payload.append("pool_grade")
    if scoring.judged and (not columns.relevance or scoring.convention.duplicates == "count"):
        payload.append("pool_hash")
    return payload


def score_batch(columns: Arrays, form: str, scoring: Scoring) -> dict[str, npt.NDArray[Any]]:
    """One Arrow batch of n lists -> (n,) arrays: the counts, then one per metric."""
    lists = assembled(columns, form, scoring)
    rule, metrics = scoring.convention, scoring.metrics
    batch = with_judgements(lists, columns, rule)
    unknown = n_unknown(batch, rule) if scoring.judged else np.zeros(batch.size)
    counts = (batch.shown, m_relevant(batch, rule), lists.dropped, lists.tied, unknown)
    found = {name: np.asarray(count, np.int64) for name, count in zip(COUNTS, counts, strict=True)}
    values = dict(zip((m.column for m in metrics), compute(batch, metrics, rule).T, strict=True))
    open_ = spreads(columns, lists.tied, metrics, rule, scoring.items_matter) if scoring.spreads else np.empty((0, 0))
    return found | values | dict(zip(scoring.spreads, open_.T, strict=True))


def assembled(columns: Arrays, form: str, scoring: Scoring) -> Assembled:
    """The batch of lists in the given form, without the judged pool."""
    if form == "masks":
        return from_masks(columns, PLANES)
    if form in ("relevant", "again"):
        return from_relevant(columns, scoring.convention, scoring.items_matter)
    return from_rows(columns, scoring.convention, scoring.items_matter, scoring.by_position)


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
