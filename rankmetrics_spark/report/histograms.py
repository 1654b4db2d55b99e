"""Users counted in steps of a metric: by their value, and by how much it changes between two experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, functions as F

from rankmetrics_spark import engines as eng, findings as fd, schemas as sch
from rankmetrics_spark.report.figures import STEPS, Figures

#: Metric -> lowest and highest value of its steps.
Edges = Mapping[str, tuple[float, float]]
#: Experiment and baseline.
Pairs = Sequence[tuple[str, str]]


#: Pairs of experiments whose users are compared one by one.
MOST_PAIRED = 12


def paired_of(figures: Figures) -> list[tuple[str, str]]:
    """The pairs (experiment, baseline) that the same users see, those of the better experiments first."""
    pairs = {found.pair for found in figures.compared if found.design == "paired"}
    place = {name: at for at, name in enumerate(figures.experiments)}
    return sorted(pairs, key=lambda pair: [place.get(name, len(place)) for name in pair])[:MOST_PAIRED]


def counted(values: Any, low: float, high: float) -> Any:
    """(STEPS + 1,) users at the lowest value, and in each step up to and with its upper edge.

    >>> counted(np.array([0.0, 0.05, 0.051, 1.0]), 0.0, 1.0).tolist()[:3]
    [1, 1, 1]
    """
    steps = np.ceil(np.round((values - low) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    return np.bincount(np.clip(steps, 0, STEPS), minlength=STEPS + 1)


def change_steps(values: Any, low: float, high: float) -> tuple[Any, Any]:
    """The steps of changes, and how many there are of each: 0 = no change, 1 = a rise of up to one step.

    >>> [part.tolist() for part in change_steps(np.array([0.0, 0.05, -0.051, 0.04]), 0.0, 1.0)]
    [[-2, 0, 1], [1, 1, 2]]
    """
    sizes = np.ceil(np.round(np.abs(values) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    steps = np.where(values == 0, 0, np.sign(values) * np.clip(sizes, 1, STEPS))
    return np.unique(steps.astype(np.int64), return_counts=True)


def step_row(experiment: str, metric: str, step: int, users: int, edges: Edges) -> dict[str, Any]:
    low, high = edges[metric]
    return {sch.EXPERIMENT: experiment, sch.METRIC: metric, "step": step, "low": low, "high": high, "users": users}


def change_rows(pair: tuple[str, str], tables: Mapping[str, Any], columns: Mapping[str, str], edges: Edges) -> sch.Rows:
    """Users per metric and step who are in both Arrow tables of a pair, by the change of their value.

    Args:
        pair: Experiment and baseline.
        tables: Experiment -> its users.
        columns: Column of a metric -> its name.
        edges: Where the steps of each metric begin and end.
    """
    experiment, baseline = pair
    mine, theirs = tables[experiment], tables[baseline]
    partners = theirs.take(pc.index_in(mine[sch.USER], value_set=theirs[sch.USER].combine_chunks()))
    rows = []
    for column in sorted({*mine.column_names} & {*theirs.column_names} & {*columns}):
        name, (low, high) = columns[column], edges[columns[column]]
        values = pc.subtract(mine[column], partners[column]).drop_null().to_numpy()
        steps, sizes = change_steps(values[np.isfinite(values)], low, high)
        for step, n in zip(steps, sizes, strict=True):
            rows.append({**step_row(experiment, name, int(step), int(n), edges), sch.BASELINE: baseline})
    return rows


# ---- the same in queries


def step_column(column: str, low: float, high: float) -> Column:
    """The step of a user's value, as ``counted`` has it."""
    step = F.ceil(F.round((F.col(column) - low) / ((high - low) or 1.0) * STEPS, 9))
    finite = F.col(column).isNotNull() & ~F.isnan(column) & (F.abs(column) != float("inf"))
    return F.when(finite, F.least(F.greatest(step, F.lit(0)), F.lit(STEPS)).cast("int"))


def step_rows(rows: DataFrame, steps: Mapping[str, Column], edges: Edges, first: int = 0) -> sch.Rows:
    """Users per (experiment_id, metric, step), which begin with ``first``; ``steps`` has those of each metric."""
    parts = (F.struct(F.lit(name).alias(sch.METRIC), step.alias("step")) for name, step in steps.items())
    known = rows.select(sch.EXPERIMENT, F.inline(F.array(*parts))).where("step IS NOT NULL")
    groups = sorted(eng.few_rows(known.groupBy(sch.EXPERIMENT, sch.METRIC, "step").count()), key=str)
    return [step_row(experiment, metric, first + step, n, edges) for experiment, metric, step, n in groups]


def changes_between(
    users: DataFrame, baseline: str, experiments: Sequence[str], metrics: fd.Metrics, edges: Edges
) -> sch.Rows:
    """Users per (experiment_id, metric, step) who are also in the baseline, by the step of ``change_steps``."""
    columns = [F.col(metric.column).alias(f"_b{i}") for i, metric in enumerate(metrics)]
    theirs = users.where(F.col(sch.EXPERIMENT) == baseline).select(sch.USER, *columns)
    both = users.where(F.col(sch.EXPERIMENT).isin([*experiments])).join(theirs, sch.USER)
    steps = {}
    for i, metric in enumerate(metrics):
        low, high = edges[str(metric)]
        change = F.col(metric.column) - F.col(f"_b{i}")
        size = F.ceil(F.round(F.abs(change) / ((high - low) or 1.0) * STEPS, 9))
        step = F.signum(change) * F.least(F.greatest(size, F.lit(1)), F.lit(STEPS))
        finite = change.isNotNull() & ~F.isnan(change) & (F.abs(change) != float("inf"))
        steps[str(metric)] = F.when(finite, F.when(change == 0, 0).otherwise(step).cast("int"))
    return [{**row, sch.BASELINE: baseline} for row in step_rows(both, steps, edges)]
