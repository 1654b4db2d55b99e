"""Sums by key -> the few rows of a result: comparisons, bootstrap intervals of means, decompositions by segment."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from rankmetrics_spark import engines as eng, schemas as sch, statistics as st

# These register their functions, in this order.
from rankmetrics_spark.comparison import columns as _columns, contrasts as _contrasts, registry as reg, sums as summed  # noqa: F401
from rankmetrics_spark.comparison.compared import Compared
from rankmetrics_spark.comparison.families import Question, arm_moments, experiments_of, interval, replicate_means
from rankmetrics_spark.comparison.measures import TABLES, Key, Name, Totals, refuse_unknown

STATISTICS, statistic, types_of = reg.STATISTICS, reg.statistic, reg.types_of
#: Columns of a decomposition -> their types.
DECOMPOSITION = TABLES["decomposition"]
MEANS = TABLES["bootstrap_means"]
CLUSTER_MEANS = TABLES["cluster_means"]


def comparison_rows(totals: Totals, question: Question, statistics: Iterable[reg.Statistic] = ()) -> dict[str, Any]:
    """The table ``comparisons``, column by column.

    Args:
        totals: Of all users.
        question: Which pairs, and how rows are made.
        statistics: Those that become columns; by default all that are registered in this process.

    Returns:
        Column -> (g,) values; NaN and None are null. What was not asked for is left out.

    Raises:
        ConfigError: There is no experiment with the name of the baseline, of a candidate or of a share.
    """
    rows = Compared.of(totals, question)
    columns: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for each in (statistics or STATISTICS.values()) if rows.keys else ():
            if not each.needs or rows.has(each.needs):
                columns |= each.values(rows)
    return columns


#: The sums of all users -> the columns of a table.
Columns = Callable[[Totals], Mapping[str, Any]]


def table_of_sums(sums: DataFrame, make: Columns, kinds: Mapping[str, str]) -> DataFrame:
    """The table that is made of sums; without rows where there are none."""
    return eng.in_one_step(sums, partial(_made, make=make, kinds=kinds), kinds)


def _made(batches: eng.Batches, make: Columns, kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    totals = summed.read(batches)
    if totals.sums:
        yield from eng.rows_of(make(totals), kinds)


def final(batches: eng.Batches, question: Question, statistics: Sequence[reg.Statistic]) -> Iterator[pa.RecordBatch]:
    totals = summed.read(batches)
    summed.refuse_several(totals)
    parts = [(totals, question)] if totals.sums else []
    if question.by_test:
        parts = [(part, question.of_test(name)) for name, part in totals.by_test()]
        # An arm without a list is said where the lists are counted.
        known = ((part, own) for part, own in parts if own.request.baseline in (None, *experiments_of(part)))
        parts = [(part, own) for part, own in known if own.request.is_requested]
    for part, own in parts:
        yield from eng.rows_of(comparison_rows(part, own, statistics), types_of(statistics))


def cluster_intervals(totals: Totals, confidence: float) -> dict[str, Any]:
    """Intervals of the mean of every experiment, segment and metric, with clusters as units; columns as above."""
    keys = [key for key in totals.sums if key.kind == "arm"]
    bounds = st.t_interval(arm_moments(totals.of("arm_lists", keys)), confidence)
    low, high = (np.where(totals.of("arm", keys)["beyond"] > 0, np.nan, bound) for bound in bounds)
    return _names(keys) | {"ci_low": low, "ci_high": high}


def mean_intervals(totals: Totals, confidence: float) -> dict[str, Any]:
    """Bootstrap intervals of the mean of every experiment, segment and metric.

    Returns:
        Columns experiment_id, segment, metric, bootstrap_ci_low, bootstrap_ci_high; (g,) each.
    """
    keys = [key for key in totals.sums if key.kind == "arm"]
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    sums = totals.of("arm", keys)
    moments, beyond = arm_moments(sums), sums["beyond"]
    for i, key in enumerate(keys):
        replicates = totals.replicates(key._replace(kind="bootstrap_arm"))
        if replicates is not None and moments.n[i] >= 2 and not beyond[i]:
            bounds = interval(replicate_means(replicates)[None], moments.mean[slice(i, i + 1)], confidence)
            low[i], high[i] = (bound[0] for bound in bounds)
    return _names(keys) | {"bootstrap_ci_low": low, "bootstrap_ci_high": high}


def _names(keys: Sequence[Key]) -> dict[str, Any]:
    fields = {sch.EXPERIMENT: "candidate", sch.SEGMENT: "segment", sch.METRIC: "metric"}
    return {column: [getattr(key, field) for key in keys] for column, field in fields.items()}


def decomposition_rows(totals: Totals, baseline: Name, candidates: Sequence[Name], segment: str) -> dict[str, Any]:
    """Differences from the baseline, split by one segment column.

    Args:
        totals: Of all users.
        baseline: The experiment that the others are compared with.
        candidates: Only these; empty = all.
        segment: Name of the segment column, as its labels spell it.

    Returns:
        Column -> values; a row per (candidate, metric, label).

    Raises:
        ConfigError: There is no experiment with the name of the baseline or of a candidate.
    """
    known = experiments_of(totals)
    refuse_unknown([baseline, *candidates], known)
    start = sch.segment_label(segment, "")
    arms = [key for key in totals.sums if key.kind == "arm" and key.segment.startswith(start)]
    chosen = [name for name in known if name != baseline and (not candidates or name in candidates)]
    columns: dict[str, list[Any]] = {}
    for candidate in chosen:
        for metric in dict.fromkeys(key.metric for key in arms):
            both = [key for key in arms if key.metric == metric and key.candidate in (baseline, candidate)]
            labels = sorted({key.segment for key in both})
            keys = [[Key("arm", "", name, label, metric) for label in labels] for name in (baseline, candidate)]
            ours, theirs = (arm_moments(totals.of("arm", each)) for each in keys)
            users, means = ([getattr(side, name) for side in (ours, theirs)] for name in ("n", "mean"))
            names = ([name] * len(labels) for name in (candidate, baseline, metric))
            rows = zip(DECOMPOSITION, (*names, labels, *users, *means, *st.decompose(ours, theirs)), strict=True)
            for column, values in rows:
                columns.setdefault(column, []).extend(values)
    return columns
