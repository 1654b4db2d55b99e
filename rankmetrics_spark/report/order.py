"""The order of experiments where every pair is compared: the letters of tables in papers, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.report.figures import label_of
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, SEGMENT, is_unknown

Row = Mapping[str, Any]

FEWEST = 3
"""Fewer experiments are one pair, whose sentence says it all."""
MOST_NAMED = 6
"""Experiments that have a part of a sentence of their own, and that such a part names."""


def losers_of(rows: Iterable[Row], metric: str) -> dict[str, list[str]]:
    """Experiment -> those that it is better than on a metric, of all users, by the corrected tests.

    Args:
        rows: Of ``comparisons``.
        metric: Its name.

    Returns:
        Every compared experiment, in the order of the rows; an empty list where it is better than none. Empty where
        fewer than three are compared with one another.

    >>> pairs = [("a", "b", "candidate"), ("a", "c", None), ("b", "c", "baseline")]
    >>> rows = [{"baseline": x, "experiment_id": y, "metric": "ap", "segment": "all", "better": better}
    ...         for x, y, better in pairs]
    >>> losers_of(rows, "ap"), losers_of(rows[:1], "ap"), losers_of(rows[:2], "ap")
    ({'a': [], 'b': ['a', 'c'], 'c': []}, {}, {})
    """
    found: dict[str, list[str]] = {}
    baselines = set()
    for row in rows:
        if row[METRIC] == metric and row[SEGMENT] == EVERYONE:
            baseline, candidate = row[BASELINE], row[EXPERIMENT]
            baselines.add(baseline)
            for name in (baseline, candidate):
                found.setdefault(name, [])
            if row["better"] == "candidate":
                found[candidate].append(baseline)
            elif row["better"] == "baseline":
                found[baseline].append(candidate)
    return found if len(found) >= FEWEST and len(baselines) > 1 else {}


def letters_of(names: Sequence[str]) -> dict[str, str]:
    """Experiment -> its letter, in this order; none where there are more experiments than letters.

    >>> letters_of(["new", "old"]), letters_of(["x"] * 27)
    ({'new': 'a', 'old': 'b'}, {})
    """
    return dict(zip(names, ascii_lowercase, strict=False)) if len(names) <= len(ascii_lowercase) else {}


def raised(losers: Iterable[str], letters: Mapping[str, str]) -> str:
    """The letters of the experiments that one is better than, in their order.

    >>> raised(["old", "older"], {"new": "a", "older": "b", "old": "c"})
    'bc'
    """
    return "".join(sorted(letters[name] for name in losers if name in letters))


def sentences_of_order(rows: Sequence[Row], metrics: Iterable[Metric]) -> list[str]:
    """Which experiments are above which on each metric, where every pair of at least three is compared.

    Args:
        rows: Of ``comparisons``, of all users.
        metrics: Those that have a sentence.

    >>> from rankmetrics_spark.metrics import parse
    >>> pairs = [("a", "b", "candidate"), ("a", "c", "candidate"), ("a", "d", None), ("b", "c", None),
    ...          ("b", "d", "baseline"), ("c", "d", None)]
    >>> rows = [{"baseline": x, "experiment_id": y, "metric": "ndcg@10", "segment": "all", "better": better,
    ...          "p_adjusted": 0.01} for x, y, better in pairs]
    >>> sentences_of_order(rows, [parse("ndcg@10")])
    ['NDCG@10: b is above a, d; c is above a; no other pair of the 4 experiments differs clearly']
    >>> sentences_of_order([row | {"better": None} for row in rows], [parse("ndcg@10")])
    ['NDCG@10: no pair of the 4 experiments differs clearly']
    """
    lines = []
    for metric in metrics:
        losers = losers_of(rows, str(metric))
        tested = [row for row in rows if row[METRIC] == str(metric) and not is_unknown(row["p_adjusted"])]
        if not losers or not tested or metric.higher_is_better is None:
            continue
        winners = sorted((name for name in losers if losers[name]), key=lambda name: -len(losers[name]))
        verb = "is above" if metric.higher_is_better else "is better, so lower, than"
        parts = [f"{name} {verb} {_named(losers[name], len(losers) - 1)}" for name in winners[:MOST_NAMED]]
        more = len(winners) - len(parts)
        parts += [f"{more:,} more {'is' if more == 1 else 'are'} above others"] if more else []
        n_found = sum(map(len, losers.values()))
        if n_found < len(tested) or not parts:
            other = "no other pair" if parts else "no pair"
            parts.append(f"{other} of the {len(losers):,} experiments differs clearly")
        lines.append(f"{label_of(metric)}: {'; '.join(parts)}")
    return lines


def _named(losers: Sequence[str], n_others: int) -> str:
    if len(losers) == n_others:
        return f"all {n_others:,} others"
    more = len(losers) - MOST_NAMED
    return ", ".join([*losers[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])
