"""``changed``: how much the lists of a user, or of a query, differ between two experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rankmetrics_spark.comparison import rows_of, schema_text
from rankmetrics_spark.config import Options, Section, count, key, number, text
from rankmetrics_spark.engines import (
    REAL,
    AnyTable,
    Batches,
    ResultTable,
    coded,
    column_names,
    result_table,
    spark_table,
    with_fields,
)
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.layouts import entry, flat, ints
from rankmetrics_spark.metrics import Floats, Ints, Overlap, jaccard, kendall, overlap, rbo, same_top
from rankmetrics_spark.road import checked_rows, make_plan
from rankmetrics_spark.schemas import (
    BASELINE,
    ENTRIES,
    EXPERIMENT,
    HASH,
    ITEM,
    POSITION,
    REJECTED,
    ROLES,
    SCORE,
    USER,
)

COLUMNS = {
    **dict.fromkeys((BASELINE, EXPERIMENT, USER), "string"),
    **dict.fromkeys(("n_items_baseline", "n_items", "n_common"), "long"),
    **dict.fromkeys(("same_top", "jaccard", "rbo", "kendall"), "double"),
}
"""Columns of the result -> their types."""
DEEPEST = 1000
"""The largest k: Kendall's tau compares the items of a list with one another."""


@dataclass(frozen=True)
class Change(Section):
    """What is compared, and how deep: see ``changed``."""

    baseline: str = key("control", text)
    k: int = key(10, count(1, DEEPEST))
    p: float = key(0.9, number(0, 1, inclusive=False))


def changed(
    impressions: AnyTable,
    baseline: str,
    *,
    k: int = 10,
    p: float = 0.9,
    columns: Mapping[str, str | None] | None = None,
    rank_by: Literal["position", "score"] = "position",
    first_rank: int = 1,
) -> ResultTable:
    """How alike the top k of each user is to that of the same user in the baseline; relevance is not read.

    A user has one list per experiment; where they have several, name the column of the request as the user. Reads the
    impressions once, with one shuffle.

    Args:
        impressions: One row per shown item, as in ``evaluate``. Faulty rows are left out.
        baseline: The experiment that the others are compared with.
        k: Items down to this rank count, up to 1,000. A repeated item counts at its best rank.
        p: Of RBO, in (0, 1): the chance that a reader goes on to the next rank.
        columns: Role (experiment, user, item, position, score) -> column.
        rank_by: By ranks, or by score: the highest first, equal scores by descending item id.
        first_rank: What the column of ranks calls the first rank.

    Returns:
        One row per (experiment_id, user_id) of the users who are in the baseline too, lazy like any DataFrame:
        baseline, experiment_id, user_id, n_items_baseline, n_items, n_common, same_top (1 if both top k are the same,
        in the same order, else 0), jaccard (common items over items of either), rbo (rank-biased overlap, extrapolated:
        Webber, Moffat and Zobel, TOIS 2010, equation 32), kendall (tau of the common items; null below two of them).

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type.
    """
    change = Change.read({"baseline": baseline, "k": k, "p": p})
    roles = {role: column for role, column in (columns or {}).items() if role != "relevance"}
    options = Options(columns=roles, rank_by=rank_by, first_rank=first_rank)
    if options.lacks("item"):
        raise ConfigError("columns.item is null; allowed: the column of the items, since lists are compared by item")
    names = [*filter(None, options.columns.values())]
    needed = column_names(*names, *ROLES, *ROLES.values())
    table = with_fields(spark_table(impressions, "impressions", needed=needed), names)
    tops = _tops(table, options, change.k)
    return result_table(tops.mapInArrow(partial(_changes, change=change), schema_text(COLUMNS)))


def _tops(table: DataFrame, options: Options, k: int) -> DataFrame:
    """Return one row per user: the top k of each of their experiments."""
    plan = make_plan(options, table.schema)
    by_score = plan.columns.by_score
    roles = replace(plan.columns, item=True, relevance=False, position=not by_score)
    rows = checked_rows(table, plan.mapping, roles, text=False, null_is_unjudged=False)
    rows = rows.where(F.col(REJECTED).isNull())
    if by_score:
        # Sail sorts -0.0 and 0.0 as two values.
        score = F.col(SCORE) + F.lit(0.0) if isinstance(rows.schema[SCORE].dataType, REAL) else F.col(SCORE)
        order = Window.partitionBy(EXPERIMENT, USER).orderBy(score.desc(), F.col(ITEM).desc())
        rows = rows.withColumn(POSITION, F.row_number().over(order))
    row = entry(EXPERIMENT, f"bigint({POSITION}) AS {POSITION}", f"xxhash64({ITEM}) AS {HASH}")
    top = rows.where(F.col(POSITION) <= k).groupBy(USER)
    return top.agg(F.expr(f"collect_list({row}) AS {ENTRIES}"))


def _changes(batches: Batches, change: Change) -> Iterator[pa.RecordBatch]:
    """Compare the lists of each user of a batch with their list of the baseline."""
    for batch in batches:
        user, values = flat(batch.column(ENTRIES))
        experiments, experiment = coded(values.field(EXPERIMENT))
        if change.baseline not in experiments:
            continue
        arm = experiments.index(change.baseline)
        lists, of = np.unique(user * len(experiments) + experiment, return_inverse=True)
        of, items = _ranked(of.astype(np.int64), ints(values.field(POSITION)), ints(values.field(HASH)))
        users, arms = np.divmod(lists, len(experiments))
        base_of = np.full(batch.num_rows, -1)
        base_of[users[arms == arm]] = np.flatnonzero(arms == arm)
        others = np.flatnonzero((arms != arm) & (base_of[users] >= 0))
        if len(others):
            found = _pairs(of, items, base_of[users[others]], others)
            names = batch.column(USER).take(pa.array(users[others]))
            keys = {BASELINE: [change.baseline] * len(others), EXPERIMENT: [experiments[i] for i in arms[others]]}
            yield from rows_of({**keys, USER: names, **_measures(found, change.p)}, COLUMNS)


def _ranked(of: Ints, rank: Ints, item: Ints) -> tuple[Ints, Ints]:
    """Return list and item of each row in rank order; of a repeated item the best rank stays."""
    by = np.lexsort((rank, item, of))
    first = np.ones(len(by), bool)
    first[1:] = (of[by][1:] != of[by][:-1]) | (item[by][1:] != item[by][:-1])
    kept = by[first]
    order = kept[np.lexsort((item[kept], rank[kept], of[kept]))]
    return of[order], item[order]


def _pairs(of: Ints, items: Ints, bases: Ints, others: Ints) -> Overlap:
    """Return the common items of lists and their baselines, from the items of all lists."""
    counts = np.bincount(of)
    starts = np.cumsum(counts) - counts

    def rows(lists: Ints) -> tuple[Ints, Ints]:
        """Pair and item of each row of some lists, one after the other."""
        pair = np.repeat(np.arange(len(lists)), counts[lists])
        ends = np.cumsum(counts[lists])
        within = np.arange(len(pair)) - np.repeat(ends - counts[lists], counts[lists])
        return pair, items[starts[lists][pair] + within]

    return overlap(*rows(bases), *rows(others), len(others))


def _measures(found: Overlap, p: float) -> dict[str, Floats | Ints]:
    counts = {"n_items_baseline": found.n_a, "n_items": found.n_b, "n_common": found.common}
    values = {"same_top": same_top(found), "jaccard": jaccard(found), "rbo": rbo(found, p), "kendall": kendall(found)}
    return {**counts, **values}
