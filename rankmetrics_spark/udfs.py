"""Metrics as pandas UDFs, for anyone's own query: ``df.groupBy("user").agg(ap_at(10)("position", "clicked"))``.

Each call sees the rows of one group as whole columns and gives one number. The rows that ``evaluate`` would set aside
(a rank or grade that is missing, NaN or no rank, the second row at one rank or of one item) are left out here as well,
so the values are those of the job; but nothing counts them. A rank of 0 beside ranks from 1 ends the query. For large
logs ``evaluate`` is many times faster: it moves less than the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, SparkSession, functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType

from rankmetrics_spark import config as cfg, engines as eng, layouts as lay
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.metrics import Convention, Floats, Ints, Metric
from rankmetrics_spark.schemas import ENTRIES, HASH, ITEM, N_ROWS, POSITION, SCORE

RankBy = Literal["position", "score"]
FirstRank = Literal[0, 1]
#: A preset, a mapping with overrides, or a ``Convention``.
AnyRule: TypeAlias = str | Mapping[str, object] | Convention
#: What the UDFs read, in order.
_COLUMNS = {"position": ("position", "relevance", "item"), "score": ("score", "relevance", "item", "position")}


def ap_at(k: int, convention: AnyRule = "standard", *, first_rank: FirstRank = 1) -> Callable[..., Column]:
    """AP@k of the rows of a group, as a pandas UDF; see ``metric_udf``."""
    return metric_udf(f"ap@{k}", convention, first_rank=first_rank)


def ndcg_at(k: int, convention: AnyRule = "standard", *, first_rank: FirstRank = 1) -> Callable[..., Column]:
    """NDCG@k of the rows of a group, as a pandas UDF; see ``metric_udf``."""
    return metric_udf(f"ndcg@{k}", convention, first_rank=first_rank)


def metric_udf(
    name: str | Metric, convention: AnyRule = "standard", rank_by: RankBy = "position", *, first_rank: FirstRank = 1
) -> Callable[..., Column]:
    """Any metric of the rows of a group, as a grouped-aggregate pandas UDF; on Sail, as one of lists.

    Call it with the rank, the relevance (a grade; a click is 1) and perhaps the item id, without which repeated items
    are not looked for. By score, call it with the score, the relevance, the item id, which orders the ties, and perhaps
    the rank, for conventions whose ties go by it.

    Args:
        name: Such as ``rr@10``.
        convention: A preset, a mapping with overrides, or a ``Convention``. What was judged is what is in the group.
        rank_by: What the first column holds: ``position`` (ranks) or ``score`` (the highest first).
        first_rank: What the column of ranks calls the first rank. If it is 1, a rank of 0 ends the query
            with an error of the engine that says so.

    Returns:
        A function of columns that gives a double column; null where the convention leaves the list out. It looks at
        the active session to know the engine.

    Raises:
        ConfigError: An unknown metric or convention, or one that does not fit ``rank_by``.
    """
    metric, rule = _checked(name, convention, rank_by, first_rank)
    udf = _udf(metric, rule, rank_by, first_rank)

    def of(*columns: str | Column) -> Column:
        _check_number(metric, rank_by, len(columns))
        read = [F.col(column) if isinstance(column, str) else column for column in columns]
        # As text, in which Spark and the job compare ids; pandas would turn integers with a null into doubles.
        texts = [column.cast("string") if i == 2 else column for i, column in enumerate(read)]
        session = SparkSession.getActiveSession()
        if session is not None and eng.engine_of(session) == "sail":
            return _of_lists(texts, metric, rule, rank_by, first_rank)
        return udf(*texts)  # type: ignore[no-any-return]

    return of


def _of_lists(columns: Sequence[Column], metric: Metric, rule: Convention, rank_by: RankBy, first_rank: int) -> Column:
    """The metric over the lists of a group's columns.

    To Sail, each group of an aggregate function in Python is as large as the batch that its rows come from: its memory
    grows with the square of the groups. Lists are as large as they are.
    """
    complete = reduce(Column.__and__, (c.isNotNull() for c in columns[:3]))
    # The rank after the item only orders ties.
    args = [*columns[:3], *(F.coalesce(c.cast("double"), F.lit(float("nan"))) for c in columns[3:])]
    names = _COLUMNS[rank_by]

    def values(*lists: pd.Series) -> pd.Series:
        arrays = [pa.array(c) for c in lists]
        flat = {name: c.flatten().to_pandas() for name, c in zip(names, arrays, strict=False)}
        return pd.Series(_values(flat, arrays[0].value_lengths().to_numpy(), metric, rule, first_rank))

    values.__name__ = metric.column
    value: Column = pandas_udf(values, DoubleType())(*(F.collect_list(F.when(complete, c)) for c in args))  # type: ignore[call-overload]
    return value


def register_udfs(
    spark: SparkSession,
    metrics: str | Metric | Sequence[str | Metric] = cfg.DEFAULT_METRICS,
    convention: AnyRule = "standard",
    *,
    first_rank: FirstRank = 1,
) -> list[str]:
    """Make metrics callable from SQL: ``SELECT user, ap_at_10(position, clicked) FROM log GROUP BY user``.

    A third argument, the item id as a string, lets them find repeated items. On Sail their memory grows with the square
    of the groups (8,000 groups of 5 rows want 1.5 GB): use ``ap_at`` and its like or ``evaluate`` there.

    Args:
        spark: The session that gets the functions; classic or Connect.
        metrics: Names such as ``ap@10``, or one text with commas.
        convention: As in ``metric_udf``.
        first_rank: As in ``metric_udf``.

    Returns:
        The names of the functions: ``ap_at_10`` for ``ap@10``.

    Raises:
        ConfigError: An unknown metric or convention, or a metric that needs scores.
    """
    chosen = cfg.Options.read({"metrics": metrics}).metrics
    for metric in chosen:
        metric, rule = _checked(metric, convention, "position", first_rank)
        spark.udf.register(metric.column, _udf(metric, rule, "position", first_rank))
    return [metric.column for metric in chosen]


def _checked(name: str | Metric, convention: object, rank_by: str, first_rank: int = 1) -> tuple[Metric, Convention]:
    """The metric and the convention, after the checks of ``evaluate``."""
    given = {"metrics": [name], "convention": convention, "rank_by": rank_by, "first_rank": first_rank}
    options = cfg.Options.read(given)
    (metric,) = options.metrics
    if metric.needs == "scores" and rank_by == "position":
        raise ConfigError(f"metric '{metric}' needs scores; allowed: rank_by='score'")
    if metric.needs in ("intents", "shown_intents"):
        raise ConfigError(f"metric '{metric}' needs intents, which a UDF does not read; allowed: evaluate")
    return metric, options.convention


def _check_number(metric: Metric, rank_by: str, n: int) -> None:
    """Refuse a call with n columns, if it wants more or fewer."""
    names = _COLUMNS[rank_by]
    if n not in (len(names) - 1, len(names)):
        allowed = f"{', '.join(names)}; the last one may be left out"
        raise ConfigError(f"{metric} by {rank_by} got {n} columns; allowed: {allowed}")


def _udf(metric: Metric, rule: Convention, rank_by: str, first_rank: int) -> Any:
    def value(*columns: pd.Series) -> float:
        _check_number(metric, rank_by, len(columns))
        rows = dict(zip(_COLUMNS[rank_by], columns, strict=False))
        return float(_values(rows, np.array([len(columns[0])]), metric, rule, first_rank)[0])

    value.__name__ = metric.column
    return pandas_udf(value, DoubleType())  # type: ignore[call-overload]


def _values(columns: Mapping[str, pd.Series], sizes: Ints, metric: Metric, rule: Convention, first_rank: int) -> Floats:
    """The metric of each list; NaN, which Spark reads as no value, where the convention leaves it out.

    ``columns`` hold the rows of one list after another; ``sizes`` are the numbers of their rows.
    """
    item = columns.get("item")
    if item is not None and pd.api.types.is_float_dtype(item):
        raise ConfigError(f"{metric} got item ids as floating-point numbers; allowed: CAST(item AS STRING)")
    values = {name: column for name, column in columns.items() if name != "item"}
    numbers = {name: pd.to_numeric(each, errors="coerce").to_numpy(np.float64) for name, each in values.items()}
    by_position = "score" not in numbers
    sound = np.isfinite(numbers["relevance"])
    if by_position:
        if first_rank == 1 and (numbers["position"] == 0).any():
            raise InputError(f"{metric} got a rank of 0, but first_rank is 1; allowed: first_rank=0 for ranks from 0")
        rank = numbers["position"] = numbers["position"] + (1 - first_rank)
        sound &= (rank >= 1) & (rank <= 2**31 - 1) & (rank == np.rint(rank))
    else:
        sound &= ~np.isnan(numbers["score"])
    if item is not None:
        sound &= item.notna().to_numpy(bool)
    if not sound.any():
        return np.full(len(sizes), np.nan)
    fields = {name: pa.array(values[sound]) for name, values in numbers.items()}
    if by_position:
        fields[POSITION] = fields[POSITION].cast(pa.int64())
    else:
        score = columns["score"]
        # Different integers or decimals can round to the same double.
        if pd.api.types.is_integer_dtype(score) or any(isinstance(value, Decimal) for value in score.dropna()[:1]):
            fields[SCORE] = pa.array(score[sound].tolist())
    n_rows = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[sound], minlength=len(sizes))
    if item is not None:
        ids = item[sound].astype(str)
        fields |= {HASH: pa.array(pd.factorize(ids, sort=True)[0].astype(np.int64)), ITEM: pa.array(ids.tolist())}
    rows = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    offsets = pa.array(np.concatenate([[0], np.cumsum(n_rows)]).astype(np.int32))
    entries = {N_ROWS: pa.array(n_rows), ENTRIES: pa.ListArray.from_arrays(offsets, rows)}
    scoring = lay.Scoring((metric,), (rule,), by_position, repeats=item is not None)
    (scores,) = lay.score_batch(entries, lay.LAYOUTS["rows"], scoring)
    return np.where(n_rows > 0, scores[metric.column], np.nan)
