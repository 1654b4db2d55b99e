"""What the readers of a report's tables have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.report.figures import STEPS
from rankmetrics_spark.schemas import EXPERIMENT, METRIC

Rows = list[dict[str, Any]]
Edges = Mapping[str, tuple[float, float]]
"""Metric -> lowest and highest value of its steps."""

MOST_ROWS = 20_000
"""Rows of a table that are read at most; the page shows fewer."""
MOST_EXPERIMENTS = 200
"""Experiments whose users are counted and whose history is shown."""
MOST_DATES = 90


class Tables(Protocol):
    """The tables of an output, by whatever reader."""

    def dates(self) -> list[str]:
        """The evaluation dates, ascending."""

    def rows(self, table: str, date: str, most: int) -> Rows:
        """Rows of a table, those of all users first; empty if there is no such table."""

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        """Rows of ``experiment_metrics`` for all users on these dates."""

    def size(self, table: str, date: str) -> int:
        """Number of rows for all users."""

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        """Lowest and highest value of users."""

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        """Users per (experiment_id, metric, step)."""

    def records(self) -> Iterable[Mapping[str, Any]]:
        """The run records, oldest first."""

    def run_of(self, date: str) -> str | None:
        """The run that the pointer ``published/<date>.json`` names; None without a pointer."""


def counted(values: Any, low: float, high: float) -> Any:
    """(STEPS + 1,) users at the lowest value, and in each step up to and with its upper edge.

    >>> counted(np.array([0.0, 0.05, 0.051, 1.0]), 0.0, 1.0).tolist()[:3]
    [1, 1, 1]
    """
    steps = np.ceil(np.round((values - low) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    return np.bincount(np.clip(steps, 0, STEPS), minlength=STEPS + 1)


def step_row(experiment: str, metric: str, step: int, users: int, edges: Edges) -> dict[str, Any]:
    low, high = edges[metric]
    return {EXPERIMENT: experiment, METRIC: metric, "step": step, "low": low, "high": high, "users": users}
