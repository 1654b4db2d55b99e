"""The order of experiments that were compared with one another, and what a change is over all users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase

from rankmetrics_spark.findings import Finding, by_metric, label_of
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import CUPED
from rankmetrics_spark.words import Change

FEWEST = 3
"""Fewer experiments are one pair, whose sentence says it all."""
MOST_NAMED = 6
"""Experiments that have a part of a sentence of their own, and that such a part names."""


def losers_of(found: Iterable[Finding]) -> dict[str, list[str]]:
    """Experiment -> those that it is better than on a metric, by the corrected tests.

    Args:
        found: Of all users, on the metric.

    Returns:
        Every compared experiment, in the order of the rows; an empty list where it is better than none. Empty where
        fewer than three are compared with one another.

    >>> pairs = [("a", "b", "candidate"), ("a", "c", None), ("b", "c", "baseline")]
    >>> found = [Finding({}, candidate=y, baseline=x, better=better) for x, y, better in pairs]
    >>> losers_of(found), losers_of(found[:1]), losers_of(found[:2])
    ({'a': [], 'b': ['a', 'c'], 'c': []}, {}, {})
    """
    losers: dict[str, list[str]] = {}
    baselines = set()
    for each in found:
        baselines.add(each.baseline)
        for name in (each.baseline, each.candidate):
            losers.setdefault(name, [])
        if each.winner:
            losers[each.winner[0]].append(each.winner[1])
    return losers if len(losers) >= FEWEST and len(baselines) > 1 else {}


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


def sentences_of_order(found: Iterable[Finding], metrics: Iterable[Metric]) -> list[str]:
    """Which experiments are above which on each metric, where every pair of at least three is compared.

    Args:
        found: Of all users.
        metrics: Those that have a sentence.

    >>> from rankmetrics_spark.metrics import parse
    >>> pairs = [("a", "b", "candidate"), ("a", "c", "candidate"), ("a", "d", None), ("b", "c", None),
    ...          ("b", "d", "baseline"), ("c", "d", None)]
    >>> def found(better): return [Finding({}, baseline=x, candidate=y, metric="ndcg@10", p_adjusted=0.01,
    ...                                    better=better and winner) for x, y, winner in pairs]
    >>> sentences_of_order(found("as it is"), [parse("ndcg@10")])
    ['NDCG@10: b is above a, d; c is above a; no other pair of the 4 experiments differs clearly']
    >>> sentences_of_order(found(None), [parse("ndcg@10")])
    ['NDCG@10: no pair of the 4 experiments differs clearly']
    """
    lines = []
    of_metrics = by_metric(found)
    for metric in metrics:
        of_metric = of_metrics.get(str(metric), [])
        losers = losers_of(of_metric)
        n_tested, n_pairs = sum(each.state != "doubtful" for each in of_metric), len(of_metric)
        if not losers or not n_tested or metric.higher_is_better is None:
            continue
        winners = sorted((name for name in losers if losers[name]), key=lambda name: -len(losers[name]))
        verb = "is above" if metric.higher_is_better else "is better, so lower, than"
        parts = []
        for winner in winners[:MOST_NAMED]:
            beaten, more = losers[winner], len(losers[winner]) - MOST_NAMED
            some = ", ".join([*beaten[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])
            parts.append(f"{winner} {verb} {f'all {len(beaten):,} others' if len(beaten) == len(losers) - 1 else some}")
        more = len(winners) - len(parts)
        parts += [f"{more:,} more {'is' if more == 1 else 'are'} above others"] if more else []
        if sum(map(len, losers.values())) < n_tested or not parts:
            other = "no other pair" if parts else "no pair"
            some = "" if n_tested == n_pairs else f", and {n_pairs - n_tested:,} of {n_pairs:,} have no verdict"
            parts.append(f"{other} of the {len(losers):,} experiments differs clearly{some}")
        lines.append(f"{label_of(metric)}: {'; '.join(parts)}")
    return lines


def sentence_of_dilution(found: Finding) -> str:
    """What a change among the users whose lists differ is over all users; empty where all users are tested.

    Its interval is that of one plain test. Where something else decides the row, the sentence says so.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "share_changed": 0.1, "n_users_both": 12000,
    ...        "diluted_difference": 0.004, "diluted_ci_low": 0.001, "diluted_ci_high": 0.007, "confidence": 0.95}
    >>> def said(more): return sentence_of_dilution(Finding.of(row | more))
    >>> said({})
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070) from a: same lists count as no change'
    >>> said({"looks": "any", "test": "cuped", "correction": "holm", "n_comparisons": 4}).partition(" from ")[0]
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070; one look, not corrected, without CUPED)'
    >>> said({"share_changed": 0.0})
    'Every user of both a and b gets the same lists in each: there is no change to test'
    >>> said({"diluted_difference": None}), said({"share_changed": None})
    ('', '')
    """
    diluted = found.further("diluted_")
    if found.share_changed is None or diluted.value is None:
        return ""
    if not found.share_changed:
        pair = f"{found.baseline} and {found.candidate}"
        return f"Every user of both {pair} gets the same lists in each: there is no change to test"
    is_corrected = (found.n_comparisons or 1) > 1 and found.correction != "none"
    limits = ["one look"] if found.looks is not None else []
    limits += ["not corrected"] if is_corrected or found.is_widened else []
    limits += ["without CUPED"] if found.test == CUPED else []
    size = Change(diluted.value, "", diluted.low, diluted.high).plain
    if limits:
        size = f"{size[:-1]}; " if size.endswith(")") else f"{size} ("
        size += f"{', '.join(limits)})"
    who = f"Over all {found.n_users_both:,} users, {found.candidate}"
    return f"{who} changes {found.label} by {size} from {found.baseline}: same lists count as no change"
