"""One batch of packed lists -> the values of each metric under each convention. This runs inside the Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.layouts.judged import n_graded, n_unknown, with_judgements
from rankmetrics_spark.layouts.lists import Arrays, Assembled, Layout, Reading
from rankmetrics_spark.metrics import Convention, Metric, compute, m_relevant
from rankmetrics_spark.schemas import (
    ALL_ROWS_SEEN,
    CONVENTION_INDEX,
    N_GRADED,
    N_KNOWN,
    N_RELEVANT,
    N_REPEATED,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
)

COUNTS = (N_SHOWN, N_RELEVANT, N_REPEATED, N_TIED, N_UNKNOWN, N_KNOWN, N_GRADED)


@dataclass(frozen=True)
class Scoring:
    """What is computed for each list.

    Attributes:
        metrics: The metrics, each with its cut-off.
        conventions: Each reads the same rows its own way; the scored lists have a row for each.
        by_position: Whether ranks are given; otherwise lists are ranked by score.
        repeats: Whether repeated items are looked for.
        judged: Whether judgements are given.
    """

    metrics: tuple[Metric, ...]
    conventions: tuple[Convention, ...]
    by_position: bool = True
    repeats: bool = True
    judged: bool = False

    def reading(self, rule: Convention) -> Reading:
        """How the rows are read under one of the conventions."""
        only_relevant = (
            all(metric.needs == "relevant" for metric in self.metrics) and not self.judged and not rule.averages_ties
        )
        return Reading(rule, self.repeats, self.by_position, only_relevant)


def score_batch(columns: Arrays, layout: Layout, scoring: Scoring) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
    """Score n lists under each convention.

    Args:
        columns: ``_rows``, the layout's columns and the judged items, as far as they are read.
        layout: How the lists were packed.
        scoring: What to compute.

    Yields:
        Per convention (n,) arrays: ``_convention`` (its index), the counts, one per metric (NaN = no value).
    """
    assembled: dict[tuple[object, ...], Assembled] = {}
    for index, rule in enumerate(scoring.conventions):
        order = (rule.ties, rule.score_precision, rule.duplicates, rule.averages_ties)
        if order not in assembled:
            assembled[order] = layout.unpack(columns, scoring.reading(rule))
        found = _score(assembled[order], columns, rule, scoring)
        yield {CONVENTION_INDEX: np.full(assembled[order].batch.size, index, np.int32), **found}


def _score(lists: Assembled, columns: Arrays, rule: Convention, scoring: Scoring) -> dict[str, npt.NDArray[Any]]:
    batch = with_judgements(lists, columns, rule)
    unknown = n_unknown(batch, rule) if scoring.judged else np.zeros(batch.size)
    known = np.bincount(batch.list, ~np.isnan(batch.grade), minlength=batch.size) if scoring.judged else unknown
    seen = {} if lists.all_rows_seen is None else {ALL_ROWS_SEEN: lists.all_rows_seen}
    counts = (batch.shown, m_relevant(batch, rule), lists.dropped, lists.tied, unknown, known, n_graded(batch))
    found = {name: np.asarray(count, np.int64) for name, count in zip(COUNTS, counts, strict=True)}
    values = compute(batch, scoring.metrics, rule).T
    return seen | found | dict(zip((metric.column for metric in scoring.metrics), values, strict=True))
