"""Small batches from plain Python lists, and the metrics to compute from them."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.metrics import REGISTRY, Batch, Convention, Definition, Intents, Metric, compute, parse
from tests.oracles import One


def batch_of(*ones: One, sparse: bool = False) -> Batch:
    """One batch from lists in rank order; ``sparse`` keeps only items with a grade above 0."""
    rows = [(i, *row) for i, one in enumerate(ones) for row in _rows(one) if row[1] > 0 or not sparse]
    pool = [(i, g) for i, one in enumerate(ones) for g in sorted(one.pool, reverse=True) if g > 0 or not sparse]
    at, rank, grade, score, first, last = map(np.array, zip(*rows, strict=True)) if rows else [np.zeros(0, int)] * 6
    pool_list, pool_grade = map(np.array, zip(*pool, strict=True)) if pool else [np.zeros(0, int)] * 2
    lengths, pooled = np.array([len(one.grades) for one in ones]), (pool_list, pool_grade.astype(float))
    more: dict[str, Any] = {"intents": _intents_of(ones, sparse)}
    if all(len(one.scores) == len(one.grades) for one in ones):
        more |= {"score": score.astype(float), "tie_first": first, "tie_last": last}
    return Batch(len(ones), at, rank, grade.astype(float), lengths, *pooled, **more)


def _intents_of(ones: Sequence[One], sparse: bool) -> Intents:
    numbers: dict[tuple[int, str], int] = {}
    shown: list[tuple[int, int, float]] = []
    places: list[int] = []
    pool: list[tuple[int, int, int, float]] = []
    for i, one in enumerate(ones):
        items = one.items or tuple(map(str, range(len(one.grades))))
        kept = [at for at, grade in enumerate(one.grades) if grade > 0 or not sparse]
        descending = sorted(kept, key=lambda at, ids=items: ids[at], reverse=True)
        first, first_of_pool = len(places), sum(len(each.judged) for each in ones[:i])
        places += [first + descending.index(at) for at in kept]
        for at, place in enumerate(kept):
            pairs = one.intents[place] if one.intents else ()
            shown += [(first + at, numbers.setdefault((i, name), len(numbers)), grade) for name, grade in pairs]
        for at, (_, pairs) in enumerate(sorted(one.judged, reverse=True)):
            pool += [(i, first_of_pool + at, numbers.setdefault((i, name), len(numbers)), g) for name, g in pairs]
    entry, intent, grade = map(np.array, zip(*shown, strict=True)) if shown else [np.zeros(0, int)] * 3
    of_pool = map(np.array, zip(*pool, strict=True)) if pool else [np.zeros(0, int)] * 4
    pool_list, pool_item, pool_intent, pool_grade = of_pool
    order = np.array(places, int)
    return Intents(
        entry, intent, grade.astype(float), order, pool_list, pool_item, pool_intent, pool_grade.astype(float)
    )


def _rows(one: One) -> Iterable[tuple[int, float, float, int, int]]:
    scores = list(one.scores or range(len(one.grades), 0, -1))
    for rank, (grade, score) in enumerate(zip(one.grades, scores, strict=True), start=1):
        first = scores.index(score) + 1
        yield rank, grade, score, first, first + scores.count(score) - 1


def ranked(
    items: Sequence[object], scores: Sequence[float], judgements: Mapping[Any, float], convention: Convention
) -> One:
    """One list from the shown and the judged items; the convention decides about repeated items, order and ties."""
    rows = [(item, score, judgements.get(item, math.nan)) for item, score in zip(items, scores, strict=True)]
    if convention.duplicates != "count":
        rows = list({row[0]: row for row in reversed(rows)}.values())[::-1]
    if convention.ties == "item_desc":
        rows.sort(key=lambda row: str(row[0]), reverse=True)
    if convention.ties == "worst":
        rows.sort(key=lambda row: -1.0 if math.isnan(row[2]) else row[2])
    rows.sort(key=lambda row: -row[1])
    shown = [row[0] for row in rows]
    pool = [grade for item, grade in judgements.items() for _ in range(max(1, shown.count(item)))]
    return One(tuple(row[2] for row in rows), tuple(pool), tuple(row[1] for row in rows))


def value_of(metric: str, one: One, convention: Convention | None = None) -> float:
    return float(compute(batch_of(one), [parse(metric)], convention or Convention())[0, 0])


def shown(*grades: float, pool: Sequence[float] | None = None, scores: Sequence[float] = ()) -> One:
    """A list from its grades in rank order; the default pool is the shown items."""
    known = grades if pool is None else pool
    return One(grades, tuple(grade for grade in known if not math.isnan(grade)), tuple(scores))


def variants(definition: Definition) -> list[Metric]:
    """A metric with each kind of cut-off that it takes, and without one with other values of its parameters."""
    cuts = {inspect.Parameter.empty: ["@1", "@3", "@20"], None: ["", "@1", "@3", "@20"]}
    taken = cuts.get(definition.parameters["k"], ["@1", "@3", "@20"]) if "k" in definition.parameters else [""]
    named = {name: default for name, default in definition.parameters.items() if name != "k"}
    others = [f"({name}={value})" for name, default in named.items() for value in _others(definition, name, default)]
    return [parse(definition.name + text) for text in [*taken, *(other + taken[0] for other in others)]]


def _others(definition: Definition, name: str, default: float) -> list[float]:
    low, high = definition.bounds.get(name, (-math.inf, math.inf))
    return [value for value in (default / 8, default / 2, default + 1) if low < value < high]


METRICS = [each for definition in REGISTRY.values() for each in variants(definition)]
"""Every registered metric, in its variants."""
