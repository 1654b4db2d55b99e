"""Metrics as pandas UDFs, for anyone's own query: ``df.groupBy("user").agg(ap_at(10)("position", "clicked"))``.

Each call sees the rows of one group as whole columns and gives one number. The rows that ``evaluate`` would set aside
(a rank or grade that is missing, NaN or no rank, the second row at one rank or of one item) are left out here as well,
so the values are those of the job; but nothing counts them. For large logs ``evaluate`` is many times faster: it moves
less than the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.layouts import LAYOUTS
from rankmetrics_spark.layouts.scores import Scoring, score_batch
from rankmetrics_spark.metrics import Convention, Metric, check, parse, resolve
from rankmetrics_spark.schemas import ENTRIES, HASH, ITEM, N_ROWS, POSITION, RELEVANCE, SCORE

RankBy = Literal["position", "score"]
DEFAULT_UDFS = ("ap@5", "ap@10", "ndcg@5", "ndcg@10")


def ap_at(k: int, convention: str | Mapping[str, object] | Convention = "standard") -> Callable[..., Column]:
    """AP@k of the rows of a group, as a pandas UDF; see ``metric_udf``."""
    return metric_udf(f"ap@{k}", convention)


def ndcg_at(k: int, convention: str | Mapping[str, object] | Convention = "standard") -> Callable[..., Column]:
    """NDCG@k of the rows of a group, as a pandas UDF; see ``metric_udf``."""
    return metric_udf(f"ndcg@{k}", convention)


def metric_udf(
    name: str | Metric,
    convention: str | Mapping[str, object] | Convention = "standard",
    rank_by: RankBy = "position",
) -> Callable[..., Column]:
    """Any metric of the rows of a group, as a grouped-aggregate pandas UDF.

    Call it with the rank (or the score), the relevance (a grade; a click is 1) and the item id. With ranks the item may
    be left out, and repeated items are then not looked for; with scores it orders the ties.

    Args:
        name: Such as ``rr@10``.
        convention: A preset, a mapping with overrides, or a ``Convention``. What was judged is what is in the group.
        rank_by: What the first column holds: ``position`` (ranks from 1) or ``score`` (the highest first).

    Returns:
        A function of columns that gives a double column; null where the convention leaves the list out.

    Raises:
        ConfigError: An unknown metric or convention, or a metric that needs scores with ``rank_by="position"``.
    """
    metric, rule = _parsed(name), resolve(convention)
    _check(metric, rule, rank_by)
    udf, wanted = _udf(metric, rule, rank_by == "position"), (2, 3) if rank_by == "position" else (3,)

    def of(*columns: str | Column) -> Column:
        if len(columns) not in wanted:
            raise ConfigError(
                f"{metric} by {rank_by} got {len(columns)} columns; "
                f"allowed: {rank_by}, relevance, item" + (" (the item may be left out)" if 2 in wanted else "")
            )
        found: Column = udf(*columns)
        return found

    return of


def register_udfs(
    spark: SparkSession,
    metrics: Iterable[str | Metric] = DEFAULT_UDFS,
    convention: str | Mapping[str, object] | Convention = "standard",
) -> list[str]:
    """Make metrics callable from SQL: ``SELECT user, ap_at_10(position, clicked) FROM log GROUP BY user``.

    Args:
        spark: The session that gets the functions; classic or Connect.
        metrics: Names such as ``ap@10``, or a text with commas.
        convention: As in ``metric_udf``.

    Returns:
        The names of the functions: ``ap_at_10`` for ``ap@10``.
    """
    wanted = [part.strip() for part in metrics.split(",")] if isinstance(metrics, str) else metrics
    chosen = [_parsed(metric) for metric in wanted]
    rule = resolve(convention)
    for metric in chosen:
        _check(metric, rule, "position")
        spark.udf.register(metric.column, _udf(metric, rule, by_position=True))
    return [metric.column for metric in chosen]


def _udf(metric: Metric, rule: Convention, by_position: bool) -> Any:
    def value(*columns: pd.Series) -> float:
        return _value(columns, metric, rule, by_position)

    value.__name__ = metric.column
    return pandas_udf(value, DoubleType())  # type: ignore[call-overload]


def _parsed(name: str | Metric) -> Metric:
    return parse(name) if isinstance(name, str) else name


def _check(metric: Metric, rule: Convention, rank_by: str) -> None:
    if rank_by not in ("position", "score"):
        raise ConfigError(f"rank_by is {rank_by!r}; allowed: position, score")
    if metric.needs == "scores" and rank_by == "position":
        raise ConfigError(f"metric '{metric}' needs scores; allowed: rank_by='score'")
    check([metric], rule)


def _value(columns: tuple[pd.Series, ...], metric: Metric, rule: Convention, by_position: bool) -> float:
    """The metric of one group; NaN, which Spark reads as no value, where the convention leaves it out."""
    order, grade = (pd.to_numeric(column, errors="coerce").to_numpy(np.float64) for column in columns[:2])
    item = columns[2].astype("string") if len(columns) == 3 else None
    sound = np.isfinite(grade) & ~np.isnan(order)
    if by_position:
        sound &= (order >= 1) & (order <= 2**31 - 1) & (order == np.rint(order))
    if item is not None:
        sound &= item.notna().to_numpy(bool)
    if not sound.any():
        return float("nan")
    entries = _entries(order[sound], grade[sound], None if item is None else item[sound], by_position)
    scoring = Scoring((metric,), (rule,), by_position, repeats=item is not None)
    (found,) = score_batch(entries, LAYOUTS["rows"], scoring)
    return float(found[metric.column][0])


def _entries(order: Any, grade: Any, item: pd.Series | None, by_position: bool) -> dict[str, pa.Array]:
    """The rows of one list as the layout ``rows`` has them."""
    fields = {POSITION: pa.array(order.astype(np.int64))} if by_position else {SCORE: pa.array(order)}
    fields[RELEVANCE] = pa.array(grade)
    if item is not None:
        names = item.astype(object)
        fields |= {HASH: pa.array(pd.factorize(names, sort=True)[0].astype(np.int64)), ITEM: pa.array(names.tolist())}
    rows = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    lists = pa.ListArray.from_arrays(pa.array([0, len(order)], pa.int32()), rows)
    return {N_ROWS: pa.array([len(order)]), ENTRIES: lists}
