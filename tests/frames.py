"""Lists by score as the columns of an Arrow batch, so that a test takes the road that rows take inside the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.conventions import Convention, resolve
from rankmetrics_spark.many import Many
from rankmetrics_spark.metrics import parse


class Case(NamedTuple):
    """One list: what was shown with which score, and what was judged how."""

    items: Sequence[str]
    scores: Sequence[float]
    judged: Mapping[str, int]


ENTRY = {"hash": pa.int64(), "item_id": pa.string(), "score": pa.float64(), "position": pa.int64()}


def columns(cases: Sequence[Case], by_position: bool = False) -> Arrays:
    """The cases as a batch; with ``by_position`` the items stand in rank order."""
    names = sorted({item for case in cases for item in (*case.items, *case.judged)})
    code = {name: index for index, name in enumerate(names)}
    pools = [sorted(case.judged.items(), key=lambda pair: -pair[1]) for case in cases]
    kinds = {name: kind for name, kind in ENTRY.items() if by_position or name != "position"}
    shown = [
        [
            {"hash": code[item], "item_id": item, "score": score, "position": place}
            for place, (item, score) in enumerate(zip(case.items, case.scores, strict=True), 1)
        ]
        for case in cases
    ]
    return {
        "entries": pa.array(shown, pa.list_(pa.struct(kinds.items()))),
        "pool_grade": pa.array([[grade for _, grade in pool] for pool in pools], pa.list_(pa.float64())),
        "pool_hash": pa.array([[code[item] for item, _ in pool] for pool in pools], pa.list_(pa.int64())),
    }


def values(
    cases: Sequence[Case], metrics: Sequence[str], convention: object, by_position: bool = False
) -> list[list[float]]:
    """Per case the value of each metric."""
    rule: Convention = resolve(convention)  # type: ignore[arg-type]
    many = Many(tuple(parse(name) for name in metrics), (rule,), by_position)
    found: list[list[float]] = many.values(columns(cases, by_position))["value"].tolist()
    return found
