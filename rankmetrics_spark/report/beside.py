"""What stands beside a verdict: margins, what is clearly lost, and what is the other way round in every segment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.findings import Finding, by_metric
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.words import Change


def sentence_of_margin(found: Finding) -> str:
    """Whether a candidate is shown to be no worse than a margin; empty without a margin.

    Margins are not corrected. So only a row whose verdict says so is said to be above, or clearly below.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "within_margin": "no worse", "margin": None,
    ...        "relative_margin": 0.01, "relative_worst_case": 0.0042, "p_no_worse": 0.001, "confidence": 0.95,
    ...        "better": None}
    >>> def said(row): return sentence_of_margin(Finding.of(row))
    >>> said(row)
    'NDCG@10 of b is no more than 1 % below that of a: shown, at most 0.4 % below'
    >>> open_row = row | {"within_margin": None, "relative_worst_case": 0.0213, "p_no_worse": 0.2}
    >>> said(open_row)
    'NDCG@10 of b is no more than 1 % below that of a: not shown, it may be 2.1 % below'
    >>> said(open_row | {"p_no_worse": 0.99, "better": "baseline"})
    'NDCG@10 of b is clearly more than 1 % below that of a, by up to 2.1 %'
    >>> above = row | {"within_margin": "equivalent", "relative_worst_case": -0.002, "better": "candidate"}
    >>> said(above)
    'NDCG@10 of b and a are within 1 % of each other: shown, b is at least 0.2 % above'
    >>> said(above | {"better": None, "share_changed": 0.12})
    'NDCG@10 of b and a are within 1 % of each other among the 12 % of users whose lists changed: shown'
    >>> said(row | {"note": "not trustworthy: the users do not follow the planned shares"})
    'NDCG@10 of b is no more than 1 % below that of a: not tested, since these numbers are not to be trusted'
    """
    factor, unit, size, worst = 100, " %", found.relative_margin, found.relative_worst_case
    if size is None:
        factor, unit, size, worst = 1, "", found.margin, found.worst_case
    if size is None:
        return ""
    margin, is_better, among = f"{factor * size:g}{unit}", parse(found.metric).higher_is_better, found.among
    below, above = ("above", "below") if is_better is False else ("below", "above")
    subject, shown = f"{found.label} of {found.candidate}", found.within_margin
    limit = f"{subject} is no more than {margin} {below} that of {found.baseline}{among}"
    if shown == "equivalent" or is_better is None:
        limit = f"{subject} and {found.baseline} are within {margin} of each other{among}"
    if found.doubt:
        return f"{limit}: not tested, since these numbers are not to be trusted"
    if found.p_no_worse is None and shown is None:
        return f"{limit}: {'not tested' if found.p_equivalent is None else 'not shown'}"
    text = "" if worst is None else Change(factor * abs(worst), unit).unsigned
    is_below = worst is not None and worst >= 0
    is_beyond = 1 - (found.p_no_worse or 0.0) < found.level / 2
    if shown is None and is_beyond and found.better == "baseline":
        by = f", by up to {text}" if is_below else ""
        return f"{subject} is clearly more than {margin} {below} that of {found.baseline}{among}{by}"
    if shown is None:
        return f"{limit}: not shown{f', it may be {text} {below}' if is_below else ''}"
    if worst is not None and worst < 0:
        least = f", {found.candidate} is at least {text} {above}" if found.better == "candidate" else ""
        return f"{limit}: shown{least}"
    return f"{limit}: shown{f', at most {text} {below}' if is_below else ''}"


MOST_FALLS = 2
"""Metrics that are named beside a winner; the others are counted."""


def but(found: Finding, pair: Sequence[Finding]) -> str:
    """What the winner of a primary metric clearly loses: guardrails first, then the largest changes.

    Every change is that of the candidate, as in the sentence before: what rises where it loses, a baseline that wins
    has less of.

    Args:
        found: Of a primary metric.
        pair: Those of the candidate and its baseline, of all users.

    >>> row = {"metric": "ndcg@10", "role": "primary", "better": "candidate", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.05, "relative_difference": -0.1, "relative_ci_low": -0.12, "relative_ci_high": -0.08,
    ...        "ci_low": -0.06, "ci_high": -0.04}
    >>> lost = row | {"metric": "rr", "role": "secondary", "better": "baseline"}
    >>> guardrail = lost | {"metric": "p@10", "role": "guardrail", "relative_difference": -0.03}
    >>> def said(row, *pair): return but(Finding.of(row), [*map(Finding.of, pair)])
    >>> said(row, row, lost, guardrail)
    'but the guardrail Precision@10 falls by 3.0 %, and MRR by 10.0 %'
    >>> said(row | {"share_changed": 0.12}, guardrail)
    'but the guardrail Precision@10 falls by 3.0 %, among the 12 % of users whose lists changed'
    >>> said(row | {"better": "baseline"}, guardrail | {"better": "candidate", "relative_difference": 0.03})
    'but the guardrail Precision@10 rises by 3.0 %'
    >>> said(row | {"better": None}, lost), said(row, row)
    ('', '')
    """
    if found.better is None or found.role not in (None, sch.PRIMARY):
        return ""
    lost = sorted((other for other in pair if other.better not in (None, found.better)), key=_guardrails_first)
    parts, verb = [], ""
    for other in lost[:MOST_FALLS]:
        before, (verb, size) = verb, _moved(other)
        parts.append(f"{_name(other)}{f' {verb}' if verb != before else ''}{size}")
    more = len(lost) - len(parts)
    if more:
        is_or_are = "metric is" if more == 1 else "metrics are"
        parts.append(f"{more:,} more {is_or_are} clearly {'worse' if found.better == 'candidate' else 'better'}")
    return f"but {_joined(parts)}{f',{found.among}' if found.among else ''}" if parts else ""


def but_of_all(found: Iterable[Finding], winner: str, n_others: int) -> str:
    """On which metrics the experiment that is ahead of the others clearly loses to some of them: guardrails first.

    Args:
        found: Of all users, of every pair and metric.
        winner: The experiment.
        n_others: How many others there are.

    >>> def finding(candidate, baseline, better, metric="p@1", role="guardrail"):
    ...     return Finding({}, candidate, baseline, metric=metric, role=role, better=better)
    >>> lost = [finding("b", "a", "candidate"), finding("a", "c", "baseline")]
    >>> but_of_all(lost, "a", 2)
    'but loses to every other experiment on the guardrail Precision@1'
    >>> but_of_all([lost[1], finding("b", "a", "candidate", "rr", "secondary")], "a", 2)
    'but loses to 1 of 2 others on the guardrail Precision@1, and to 1 of 2 others on MRR'
    >>> but_of_all(lost, "b", 2)
    ''
    """
    lost = by_metric(each for each in found if each.winner and each.winner[1] == winner)
    metrics = sorted(lost.values(), key=lambda of: (not of[0].is_guardrail, -len(of)))
    parts = [f"to {beaten_text(len(of), n_others)} on {_name(of[0])}" for of in metrics[:MOST_FALLS]]
    more = len(metrics) - len(parts)
    parts += [f"on {more:,} more {'metric' if more == 1 else 'metrics'}"] if more else []
    return f"but loses {_joined(parts)}" if parts else ""


def beaten_text(n: int, n_others: int) -> str:
    """How many of the other experiments.

    >>> beaten_text(2, 2), beaten_text(1, 2)
    ('every other experiment', '1 of 2 others')
    """
    return "every other experiment" if n == n_others else f"{n:,} of {n_others:,} others"


def lost_guardrails(found: Iterable[Finding]) -> str:
    """The guardrail that clearly lost the most, and how many more did; empty where none did.

    >>> row = {"metric": "p@1", "role": "guardrail", "better": "baseline", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.33, "relative_difference": -0.66, "relative_ci_low": -0.7, "relative_ci_high": -0.6,
    ...        "ci_low": -0.35, "ci_high": -0.3, "experiment_id": "c05"}
    >>> def said(*rows): return lost_guardrails(map(Finding.of, rows))
    >>> said(row), said(row | {"better": None})
    ('the guardrail Precision@1 of c05 falls by 66.0 %', '')
    >>> said(row | {"relative_difference": -0.1}, row, row)
    'the guardrail Precision@1 of c05 falls by 66.0 %, and 2 more are clearly worse'
    """
    lost = sorted((each for each in found if each.is_lost_guardrail), key=_guardrails_first)
    if not lost:
        return ""
    (verb, size), more = _moved(lost[0]), len(lost) - 1
    also = f", and {more:,} more {'is' if more == 1 else 'are'} clearly worse" if more else ""
    return f"{_name(lost[0])} of {lost[0].candidate} {verb}{size}{lost[0].among}{also}"


def _guardrails_first(found: Finding) -> tuple[bool, float]:
    """Sort key: guardrails, then the largest changes."""
    return not found.is_guardrail, -abs(found.tested_share.value or 0.0)


def _moved(found: Finding) -> tuple[str, str]:
    """Whether a metric of the candidate falls or rises, and by how much."""
    change = found.change()
    return "rises" if change and change.value > 0 else "falls", f" by {change.unsigned}" if change else ""


def _name(found: Finding) -> str:
    return f"{'the guardrail ' if found.is_guardrail else ''}{found.label}"


def _joined(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}{', and ' if first else ''}{last}"


# ---- differences that are the other way round in every segment

Key = tuple[str, str, str]
"""Candidate, baseline and metric."""
LEAST_COVERED = 0.9
"""Share of the users who are in segments with a difference; with fewer, these do not speak for all."""


def reversals(found: Iterable[Finding], metrics: Collection[str]) -> dict[Key, dict[str, str]]:
    """The comparisons whose difference is shown over all users, and of the other sign in every segment of a column.

    Args:
        found: With those of segments.
        metrics: Names of those that are looked at.

    Returns:
        The column of the segments -> a sentence, for each of these comparisons.

    >>> row = {"experiment_id": "t", "baseline": "a", "metric": "rr@5", "note": None, "design": "independent"}
    >>> whole = row | {"segment": "all", "difference": -0.1, "better": "baseline"}
    >>> parts = [row | {"segment": f"country={name}", "difference": 0.03} for name in ("DE", "FR")]
    >>> for line in reversals(map(Finding.of, [whole, *parts]), {"rr@5"})["t", "a", "rr@5"].values():
    ...     print(line.replace(": ", ":\\n").replace("; ", ";\\n"))
    On MRR@5, t is below a over all users, but above it in each of the 2 segments of country:
    its users are in other segments than those of a, so the difference over all users is one of who they are;
    rankmetrics compare --decompose country splits it
    >>> reversals(map(Finding.of, [whole, parts[0], parts[1] | {"difference": -0.01}]), {"rr@5"})
    {}
    """
    everyone: dict[Key, Finding] = {}
    segments: dict[Key, dict[str, list[Finding]]] = {}
    for each in (each for each in found if each.metric in metrics):
        key = (*each.pair, each.metric)
        if each.is_of_all:
            everyone[key] = each
        else:
            segments.setdefault(key, {}).setdefault(sch.segment_columns(each.segment), []).append(each)
    # Tables have their rows in any order.
    said = {
        key: {
            column: text
            for column, parts in sorted(segments.get(key, {}).items())
            if (text := _sentence_of_reversal(whole, column, parts))
        }
        for key, whole in everyone.items()
    }
    return {key: texts for key, texts in said.items() if texts}


def sentences_of_reversals(found: Iterable[Finding], metric: str) -> list[str]:
    """The sentences of ``reversals`` on one metric."""
    return [line for lines in reversals(found, {metric}).values() for line in lines.values()]


def _sentence_of_reversal(whole: Finding, column: str, parts: Sequence[Finding]) -> str:
    """That the difference is of the other sign in all of these segments; empty where it is not."""
    if whole.better is None or whole.doubt:
        return ""
    known = [part for part in parts if part.tested.value is not None]
    size = whole.tested.value or 0.0
    if len(known) < 2 or not all((part.tested.value or 0.0) * size < 0 for part in known):
        return ""
    if sum(part.n_users for part in known) < LEAST_COVERED * whole.n_users:
        return ""
    there, here = ("below", "above") if size < 0 else ("above", "below")
    some = "" if len(known) == len(parts) else " that have a difference"
    text = f"On {whole.label}, {whole.candidate} is {there} {whole.baseline} over all users, but {here} it in each of "
    text += f"the {len(known):,} segments of {column}{some}"
    if whole.design != "independent":
        # The same users are on both sides, so it is not they who differ.
        return text
    text += f": its users are in other segments than those of {whole.baseline}, so the difference over all users is "
    text += "one of who they are"
    plain = not whole.over_lists and whole.cluster is None and whole.share_changed is None
    # What else compare refuses to split: several columns at once.
    return f"{text}; rankmetrics compare --decompose {column} splits it" if plain and " & " not in column else text
