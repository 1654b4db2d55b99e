"""Lists with scores as columns of an Arrow batch: tests call the same functions as the Python worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from rankmetrics_spark.layouts import LAYOUTS, Arrays, Scoring, score_batch
from rankmetrics_spark.metrics import Convention, parse, resolve


class Case(NamedTuple):
    """One list: the items shown, their scores, and the judgements."""

    items: Sequence[str]
    scores: Sequence[float]
    judged: Mapping[str, int]


ENTRY = {"_hash": pa.int64(), "item_id": pa.string(), "score": pa.float64(), "position": pa.int64()}


def columns(cases: Sequence[Case], by_position: bool = False) -> Arrays:
    """Return the cases as a batch; with ``by_position`` each entry also has its position."""
    names = sorted({item for case in cases for item in (*case.items, *case.judged)})
    code = {name: index for index, name in enumerate(names)}
    pools = [sorted(case.judged.items(), key=lambda pair: -pair[1]) for case in cases]
    kinds = {name: kind for name, kind in ENTRY.items() if by_position or name != "position"}
    shown = [
        [
            {"_hash": code[item], "item_id": item, "score": score, "position": rank}
            for rank, (item, score) in enumerate(zip(case.items, case.scores, strict=True), 1)
        ]
        for case in cases
    ]
    return {
        "_rows": pa.array([len(case.items) for case in cases]),
        "_entries": pa.array(shown, pa.list_(pa.struct(kinds.items()))),
        "_pool_grade": pa.array([[grade for _, grade in pool] for pool in pools], pa.list_(pa.float64())),
        "_pool_hash": pa.array([[code[item] for item, _ in pool] for pool in pools], pa.list_(pa.int64())),
    }


def values(
    cases: Sequence[Case], metrics: Sequence[str], convention: object, by_position: bool = False
) -> list[list[float]]:
    """Return the value of each metric, for each case."""
    rule: Convention = resolve(convention)  # type: ignore[arg-type]
    scoring = Scoring(tuple(parse(name) for name in metrics), (rule,), by_position, judged=True)
    (found,) = score_batch(columns(cases, by_position), LAYOUTS["rows"], scoring)
    by_metric = [found[metric.column].tolist() for metric in scoring.metrics]
    return [list(row) for row in zip(*by_metric, strict=True)]
