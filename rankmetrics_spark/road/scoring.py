"""Ranked lists -> one row per list with its metrics; and per user, where users have several lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.engines import Computed, Step, computing, struct_udf
from rankmetrics_spark.layouts import COUNTS, Arrays, Layout, Scoring, ints, score_batch
from rankmetrics_spark.metrics import Ints
from rankmetrics_spark.schemas import (
    ALL_ROWS_SEEN,
    CONVENTION_INDEX,
    COVARIATE,
    EXPERIMENT,
    JUDGED,
    MIXED,
    N_LISTS,
    N_RELEVANT,
    N_REPEATED,
    N_ROWS,
    N_SHOWN,
    POOL_GRADE,
    POOL_HASH,
    TOP,
    USER,
    Columns,
    only_value,
)
from rankmetrics_spark.statistics import LARGEST_SUMMAND, LIMB_EXPONENTS, exact_mean, limbs_of


def scored(lists: DataFrame, columns: Columns, layout: Layout, scoring: Scoring, then: Step | None = None) -> DataFrame:
    """Score lists that travel in a layout.

    Args:
        lists: Keys, segments, covariate, ``_rows``, the layout's columns and, with judgements, the judged items of the
            user.
        columns: What the impressions hold.
        layout: How the lists were packed.
        scoring: What to compute.
        then: What is made of the scored lists before they come back from Python.

    Returns:
        One row per (list, convention): keys, segments, covariate, ``_rows``, ``_all_rows_seen``, ``_judged``,
        ``_convention``, the counts and one column per metric (null = no value under the convention). With ``then``, its
        result.
    """
    judged = f"{POOL_GRADE} IS NOT NULL" if scoring.judged else "false"
    kept = [*columns.keys, *columns.of_user, N_ROWS]
    kept += [TOP] * (not columns.by_score) + [MIXED] * bool(columns.segments)
    flags = [f"{judged} AS {JUDGED}"]
    if layout.all_rows_seen is not None:
        flags.insert(0, f"{layout.all_rows_seen} AS {ALL_ROWS_SEEN}")
    read = lists.selectExpr(*kept, *flags, *layout.payload, *_pool_columns(columns, scoring))
    if then is None and not layout.arrays and not scoring.judged and len(scoring.conventions) == 1:
        return _by_pandas_udf(read, kept, layout, scoring)
    step = _arrow_step(kept, layout, scoring)
    return (step.then(then) if then else step).of(read)


def _pool_columns(columns: Columns, scoring: Scoring) -> list[str]:
    """The judged items, as far as they are read."""
    if not scoring.judged:
        return []
    counted = any(rule.duplicates == "count" for rule in scoring.conventions)
    return [POOL_GRADE, POOL_HASH] if counted or not columns.relevance else [POOL_GRADE]


def _arrow_step(kept: Sequence[str], layout: Layout, scoring: Scoring) -> Step:
    seen_in_sql = layout.all_rows_seen is not None
    kinds = dict.fromkeys(kept, T.StringType()) | {
        **{name: T.DoubleType() for name in [COVARIATE] if name in kept},
        **{name: T.LongType() for name in (N_ROWS, TOP) if name in kept},
        **{name: T.BooleanType() for name in (*[MIXED] * (MIXED in kept), *[ALL_ROWS_SEEN] * seen_in_sql, JUDGED)},
    }
    fields = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
    seen = [] if seen_in_sql else [T.StructField(ALL_ROWS_SEEN, T.BooleanType())]
    computed = T.StructType([T.StructField(CONVENTION_INDEX, T.IntegerType()), *seen, *_scores(scoring)])
    return computing(partial(score_batch, layout=layout, scoring=scoring), fields, computed)


def _by_pandas_udf(read: DataFrame, kept: Sequence[str], layout: Layout, scoring: Scoring) -> DataFrame:
    inputs = [name for name in read.columns if name == N_ROWS or name not in (*kept, ALL_ROWS_SEEN, JUDGED)]
    score = struct_udf(partial(_score_one, layout=layout, scoring=scoring), inputs, T.StructType(_scores(scoring)))
    found = read.select(*kept, ALL_ROWS_SEEN, JUDGED, score(*inputs).alias("_scores"))
    return found.selectExpr(*kept, ALL_ROWS_SEEN, JUDGED, f"0 AS {CONVENTION_INDEX}", "_scores.*")


def _score_one(columns: Arrays, layout: Layout, scoring: Scoring) -> Computed:
    """The scores under the only convention, without its index."""
    (found,) = score_batch(columns, layout, scoring)
    return {name: values for name, values in found.items() if name != CONVENTION_INDEX}


def _scores(scoring: Scoring) -> list[T.StructField]:
    """Columns of a scored list: counts, and one double per metric."""
    counts = [T.StructField(name, T.LongType()) for name in COUNTS]
    return counts + [T.StructField(metric.column, T.DoubleType()) for metric in scoring.metrics]


_USER_COUNTS = (N_LISTS, N_SHOWN, N_RELEVANT, N_REPEATED)


def per_user(lists: DataFrame, columns: Columns, scoring: Scoring, within: str | None = None) -> DataFrame:
    """One row per (experiment, user, convention): the list itself, or the mean over the user's lists.

    Args:
        lists: Scored lists.
        columns: What the impressions hold.
        scoring: What was computed.
        within: A segment: one row for each of its values that a list of the user has, over those lists.

    Returns:
        experiment_id, user_id, ``_convention``, ``_judged``, the segments (null where the lists of the user differ),
        n_lists, n_shown, n_relevant, n_repeated and one column per metric.
    """
    metrics = [metric.column for metric in scoring.metrics]
    ordered = [EXPERIMENT, USER, CONVENTION_INDEX, JUDGED, *columns.of_user, *_USER_COUNTS, *metrics]
    if not columns.list:
        return lists.selectExpr(*(f"1L AS {N_LISTS}" if name == N_LISTS else name for name in ordered))
    keys = (EXPERIMENT, USER, CONVENTION_INDEX, *([within] if within else []))
    limbs = [_limb(metric, i) for metric in metrics for i in range(len(LIMB_EXPONENTS))]
    # Judged items belong to the user, so they are the same in each of their lists; shown ones add up.
    of_user = [
        str(i) for i, rule in enumerate(scoring.conventions) if scoring.judged and rule.relevant_pool == "judged"
    ]
    is_of_user = f"{CONVENTION_INDEX} IN ({', '.join(of_user)})" if of_user else "false"
    relevant = f"CASE WHEN {is_of_user} THEN max({N_RELEVANT}) ELSE sum({N_RELEVANT}) END AS {N_RELEVANT}"
    grouped = (
        _with_limbs(lists, columns, metrics)
        .groupBy(*keys)
        .agg(
            F.expr(f"max({JUDGED}) AS {JUDGED}"),
            *(F.expr(f"{only_value(name)} AS {name}") for name in columns.of_user if name != within),
            F.expr(f"count(1) AS {N_LISTS}"),
            F.expr(relevant),
            *(F.expr(f"sum({name}) AS {name}") for name in (N_SHOWN, N_REPEATED, *limbs, *map(_counted, metrics))),
        )
    )
    return _means(grouped, metrics).select(*ordered)


_BEYOND = 2**40
"""Added to a user's number of lists by a value that cannot be summed: infinite, or above ``LARGEST_SUMMAND``."""


def _limb(metric: str, i: int) -> str:
    return f"_{metric}_{i}"


def _counted(metric: str) -> str:
    return f"_{metric}_n"


def _with_limbs(lists: DataFrame, columns: Columns, metrics: Sequence[str]) -> DataFrame:
    """Each metric of a list as whole numbers, so that adding them up in any order gives the same bits."""
    names = (EXPERIMENT, USER, CONVENTION_INDEX, JUDGED, *columns.of_user, N_SHOWN, N_RELEVANT, N_REPEATED)
    fields = {field.name: field for field in lists.schema.fields}
    computed = [name for metric in metrics for name in (*_limbs_of(metric), _counted(metric))]
    step = computing(
        partial(_limbs, metrics=tuple(metrics)),
        T.StructType([fields[name] for name in names]),
        T.StructType([T.StructField(name, T.LongType()) for name in computed]),
    )
    return step.of(lists.select(*names, *metrics))


def _limbs_of(metric: str) -> list[str]:
    return [_limb(metric, i) for i in range(len(LIMB_EXPONENTS))]


def _limbs(columns: Arrays, metrics: Sequence[str]) -> Iterator[Computed]:
    found: dict[str, Ints] = {}
    for metric in metrics:
        values = columns[metric].to_numpy(zero_copy_only=False)
        there, beyond = ~np.isnan(values), np.abs(values) > LARGEST_SUMMAND
        parts = limbs_of(np.where(there & ~beyond, values, 0.0))
        found |= {name: part.astype(np.int64) for name, part in zip(_limbs_of(metric), parts, strict=True)}
        found[_counted(metric)] = there + _BEYOND * beyond
    yield found


def _means(grouped: DataFrame, metrics: Sequence[str]) -> DataFrame:
    summed = {name for metric in metrics for name in (*_limbs_of(metric), _counted(metric))}
    kept = T.StructType([field for field in grouped.schema.fields if field.name not in summed])
    doubles = T.StructType([T.StructField(metric, T.DoubleType()) for metric in metrics])
    return computing(partial(_mean_of_limbs, metrics=tuple(metrics)), kept, doubles).of(grouped)


def _mean_of_limbs(columns: Arrays, metrics: Sequence[str]) -> Iterator[Computed]:
    sums = {name: ints(columns[name]) for metric in metrics for name in (*_limbs_of(metric), _counted(metric))}
    means = {
        metric: exact_mean([sums[name] for name in _limbs_of(metric)], sums[_counted(metric)]) for metric in metrics
    }
    yield {metric: np.where(sums[_counted(metric)] < _BEYOND, values, np.inf) for metric, values in means.items()}
