"""The same lists under many conventions: assembled once per distinct order, one array of values each. No pyspark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.assembly import Assembled, from_rows
from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.conventions import STANDARD, Convention, knobs
from rankmetrics_spark.metrics import Metric, compute, m_relevant
from rankmetrics_spark.pooling import with_judgements

_ORDER = ("ties", "score_precision", "duplicates")
_TIES = ("ties", "ap_ties", "ndcg_ties", "score_precision")


@dataclass(frozen=True)
class Many:
    """What is to be computed for each list.

    Attributes:
        metrics: The metrics.
        conventions: Each reads the same rows its own way.
        by_position: Whether ranks are given (else: by score).
        items_matter: Whether repeated items are looked for.
    """

    metrics: tuple[Metric, ...]
    conventions: tuple[Convention, ...]
    by_position: bool = True
    items_matter: bool = True

    def values(self, columns: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Columns of n lists -> arrays of n rows.

        ``value`` holds conventions x metrics (NaN = left out), ``n_relevant`` and ``n_dropped`` one per convention.
        """
        shared: dict[tuple[object, ...], Assembled] = {}
        parts: list[npt.NDArray[Any]] = []
        relevant, dropped = [], []
        for rule in self.conventions:
            order = (*(getattr(rule, knob) for knob in _ORDER), rule.averages_ties)
            if order not in shared:
                shared[order] = from_rows(columns, rule, self.items_matter, self.by_position)
            batch = with_judgements(shared[order], columns, rule)
            parts.append(compute(batch, self.metrics, rule))
            relevant.append(m_relevant(batch, rule))
            dropped.append(shared[order].dropped)
        return {
            "value": np.concatenate(parts, axis=1),
            "n_relevant": np.stack(relevant, axis=1),
            "n_dropped": np.stack(dropped, axis=1),
        }


def with_tie_bounds(conventions: Sequence[Convention], by_position: bool) -> tuple[Convention, ...]:
    """The conventions, and below them what ties leave open: the standard one under the best and the worst order.

    >>> [rule.name for rule in with_tie_bounds([STANDARD], by_position=False)]
    ['standard', 'standard(ties=best)', 'standard(ties=worst)']
    """
    bounds = [] if by_position else [replace(STANDARD, ties="best"), replace(STANDARD, ties="worst")]
    return (*conventions, *bounds)


def differences(rule: Convention, by_position: bool, judged: bool) -> str:
    """The knobs in which a convention differs from the standard one, as far as they can change a value of this data.

    >>> from rankmetrics_spark.conventions import PRESETS
    >>> differences(PRESETS["trec_eval"], by_position=True, judged=False)
    'ap_denominator=m; duplicates=refuse'
    """
    idle = {*(_TIES if by_position else ()), *(() if judged else ("population",))}
    if not judged and rule.ideal_pool != "constant_k":
        idle.add("ideal_pool")
    changed = [k.name for k in knobs() if k.name not in idle and getattr(rule, k.name) != getattr(STANDARD, k.name)]
    return "; ".join(f"{name}={getattr(rule, name)}" for name in changed)
