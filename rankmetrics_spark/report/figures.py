"""What a report shows: small tables of one evaluation date, as plain rows, for the page and the notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, SEGMENT

Row = Mapping[str, Any]

STEPS = 20
"""Steps in which the values of users are counted."""


@dataclass(frozen=True)
class Figures:
    """The small tables behind a report.

    Attributes:
        means: Rows of ``experiment_metrics`` of the date.
        comparisons: Rows of ``comparisons`` of the date.
        users: Users per (experiment_id, metric, step), with the edges ``low`` and ``high`` of the step.
        record: The run record; empty if there is none.
        trend: Rows of ``experiment_metrics`` for all users, of every date.
        history: A run record per date.
        n_experiments: Experiments of the date, shown or not.
        n_comparisons: Comparisons of the date, shown or not.
    """

    means: Sequence[Row]
    comparisons: Sequence[Row] = ()
    users: Sequence[Row] = ()
    record: Row = field(default_factory=dict)
    trend: Sequence[Row] = ()
    history: Sequence[Row] = ()
    n_experiments: int = 0
    n_comparisons: int = 0

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics in the order of the run, then by name."""
        order = {name: place for place, name in enumerate(self.config.get("metrics") or ())}
        found = [parse(name) for name in {row[METRIC] for row in self.means}]
        return sorted(found, key=lambda metric: (order.get(str(metric), len(order)), metric.name, cut_of(metric)))

    @cached_property
    def experiments(self) -> list[str]:
        """The experiments: baselines first, then the best mean of the primary metric first."""
        metric = self.primary
        sign = -1.0 if metric is None or metric.higher_is_better is not False else 1.0
        means = {row[EXPERIMENT]: number(row["mean"]) for row in self.everyone if row[METRIC] == str(metric)}
        first = set(self.baselines) if len(self.baselines) == 1 else set()
        names = {row[EXPERIMENT] for row in self.means}

        def key(name: str) -> tuple[bool, bool, float, str]:
            mean = means.get(name)
            return name not in first, mean is None, sign * (mean or 0.0), str(name)

        return sorted(names, key=key)

    @cached_property
    def baselines(self) -> list[str]:
        """What the candidates are compared with."""
        return list(dict.fromkeys(row[BASELINE] for row in self.comparisons))

    @cached_property
    def everyone(self) -> list[Row]:
        """The means of all users."""
        return [row for row in self.means if row[SEGMENT] == EVERYONE]

    @cached_property
    def compared(self) -> list[Row]:
        """The comparisons of all users."""
        return [row for row in self.comparisons if row[SEGMENT] == EVERYONE]

    @property
    def config(self) -> Row:
        """The config of the run, as its record holds it; empty without a record."""
        found: Row = self.record.get("config") or {}
        return found

    @cached_property
    def primary(self) -> Metric | None:
        """The metric that decides: of the first gate, or the run's first one with its largest cut-off."""
        gates = self.config.get("gates") or ()
        named = [metric for metric in self.metrics if gates and str(metric) == gates[0].get("metric")]
        if named:
            return named[0]
        same = [metric for metric in self.metrics if metric.name == self.metrics[0].name]
        return max(same, key=cut_of, default=None)


def cut_of(metric: Metric) -> float:
    """The cut-off; infinity without one."""
    return metric.cut or math.inf


def label_of(metric: Metric) -> str:
    """What people call the metric.

    >>> label_of(parse("ndcg@10")), label_of(parse("ap"))
    ('NDCG@10', 'MAP')
    """
    return metric.headline.removeprefix("mean ")


def seconds_of(record: Mapping[str, Any]) -> float | None:
    """How long a run took; records of earlier versions of this package have only its steps, one after another.

    >>> seconds_of({"total_seconds": 3.5, "seconds": {"a": 2, "b": 2}}), seconds_of({"seconds": {"a": 2, "b": 1.5}})
    (3.5, 3.5)
    """
    steps = record.get("seconds")
    found: float | None = record.get("total_seconds", round(sum(steps.values()), 3) if steps else None)
    return found


def number(value: Any) -> float | None:
    """The value; None for NaN and the infinities, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else float(value)


def first_of(rows: Iterable[Row], **wanted: object) -> Row | None:
    """The first row with these values."""
    return next((row for row in rows if all(row[key] == value for key, value in wanted.items())), None)
