"""Lists by score as the columns of an Arrow batch, so that a test takes the road that rows take inside the UDF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rankmetrics_spark.conventions import Convention, resolve
from rankmetrics_spark.many import Many
from rankmetrics_spark.metrics import parse


class Case(NamedTuple):
    """One list: what was shown with which score, and what was judged how."""

    items: Sequence[str]
    scores: Sequence[float]
    judged: Mapping[str, int]


def columns(cases: Sequence[Case], by_position: bool = False) -> dict[str, pd.Series[Any]]:
    """The cases as a batch; with ``by_position`` the items stand in rank order."""
    names = sorted({item for case in cases for item in (*case.items, *case.judged)})
    code = {name: index for index, name in enumerate(names)}
    pools = [sorted(case.judged.items(), key=lambda pair: -pair[1]) for case in cases]
    found = {
        "hash": _arrays(([code[item] for item in case.items] for case in cases), np.int64),
        "item_id": _arrays((case.items for case in cases), object),
        "score": _arrays((case.scores for case in cases), np.float64),
        "pool_grade": _arrays(([grade for _, grade in pool] for pool in pools), np.float64),
        "pool_hash": _arrays(([code[item] for item, _ in pool] for pool in pools), np.int64),
    }
    places = (range(1, len(case.items) + 1) for case in cases)
    return found | ({"position": _arrays(map(list, places), np.int64)} if by_position else {})


def _arrays(lists: Iterable[Sequence[Any]], kind: Any) -> pd.Series[Any]:
    return pd.Series([np.array(list(values), kind) for values in lists], dtype=object)


def values(
    cases: Sequence[Case], metrics: Sequence[str], convention: object, by_position: bool = False
) -> list[list[float]]:
    """Per case the value of each metric."""
    rule: Convention = resolve(convention)  # type: ignore[arg-type]
    many = Many(tuple(parse(name) for name in metrics), (rule,), by_position)
    return [list(map(float, row)) for row in many.values(columns(cases, by_position))["value"]]
