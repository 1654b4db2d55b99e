"""What the readers of a report's tables have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.pointers import Pointer
from rankmetrics_spark.report.figures import STEPS
from rankmetrics_spark.report.verdict import surest_first
from rankmetrics_spark.schemas import EVERYONE, EXPERIMENT, METRIC, N_USERS, SEGMENT

Rows = list[dict[str, Any]]
Edges = Mapping[str, tuple[float, float]]
"""Metric -> lowest and highest value of its steps."""

MOST_ROWS = 20_000
"""Rows of segments that are read at most, and rows of a history; the page shows fewer."""
MOST_EXPERIMENTS = 200
"""Experiments whose users are counted and whose history is shown."""
MOST_DATES = 90


class Tables(Protocol):
    """The tables of an output, by whatever reader."""

    @property
    def name(self) -> str:
        """What messages call the output."""

    def pointers(self) -> Mapping[str, Pointer]:
        """Date -> what is published there, as it is now."""

    def at(self, known: Mapping[str, Pointer]) -> Tables:
        """The tables as these pointers name them."""

    def dates(self) -> list[str]:
        """The evaluation dates that are published, ascending."""

    def rows(self, table: str, date: str, most: int) -> Rows:
        """All rows of all users, then at most so many of the largest segments; empty if there is no such table."""

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        """Rows of ``experiment_metrics`` for all users on these dates."""

    def size(self, table: str, date: str) -> int:
        """Number of rows."""

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        """Lowest and highest value of users."""

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        """Users per (experiment_id, metric, step)."""

    def records(self) -> Iterable[Mapping[str, Any]]:
        """The run records, oldest first."""


def everyone_and_largest(rows: Rows, most: int) -> Rows:
    """All rows of all users, the surest first, then at most so many of segments, the largest first."""

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row[SEGMENT] != EVERYONE, -row[N_USERS] if row[SEGMENT] != EVERYONE else 0, surest_first(row))

    ordered = sorted(rows, key=order)
    return ordered[: most + sum(row[SEGMENT] == EVERYONE for row in rows)]


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
