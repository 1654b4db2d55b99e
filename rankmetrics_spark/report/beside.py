"""What stands beside a verdict: margins, what is clearly lost, and what is the other way round in every segment."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report.differences import Change, change_of
from rankmetrics_spark.report.figures import label_of, over_lists

Row = Mapping[str, Any]


def sentence_of_margin(row: Row) -> str:
    """Whether a candidate is shown to be no worse than a margin; empty without a margin.

    Margins are not corrected. So only a row whose verdict says so is said to be above, or clearly below.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "within_margin": "no worse", "margin": None,
    ...        "relative_margin": 0.01, "relative_worst_case": 0.0042, "p_no_worse": 0.001, "confidence": 0.95,
    ...        "better": None}
    >>> sentence_of_margin(row)
    'NDCG@10 of b is no more than 1 % below that of a: shown, at most 0.4 % below'
    >>> open_row = row | {"within_margin": None, "relative_worst_case": 0.0213, "p_no_worse": 0.2}
    >>> sentence_of_margin(open_row)
    'NDCG@10 of b is no more than 1 % below that of a: not shown, it may be 2.1 % below'
    >>> sentence_of_margin(open_row | {"p_no_worse": 0.99, "better": "baseline"})
    'NDCG@10 of b is clearly more than 1 % below that of a, by up to 2.1 %'
    >>> above = row | {"within_margin": "equivalent", "relative_worst_case": -0.002, "better": "candidate"}
    >>> sentence_of_margin(above)
    'NDCG@10 of b and a are within 1 % of each other: shown, b is at least 0.2 % above'
    >>> sentence_of_margin(above | {"better": None, "share_changed": 0.12})
    'NDCG@10 of b and a are within 1 % of each other among the 12 % of users whose lists changed: shown'
    >>> sentence_of_margin(row | {"note": "not trustworthy: the users do not follow the planned shares"})
    'NDCG@10 of b is no more than 1 % below that of a: not tested, since these numbers are not to be trusted'
    """
    share, size = sch.number(row.get("relative_margin")), sch.number(row.get("margin"))
    if share is None and size is None:
        return ""
    metric, (candidate, baseline) = parse(row[sch.METRIC]), (row[sch.EXPERIMENT], row[sch.BASELINE])
    factor, unit, worst = (
        (100, " %", sch.number(row["relative_worst_case"]))
        if share is not None
        else (1, "", sch.number(row["worst_case"]))
    )
    margin = f"{factor * (share or size or 0.0):g}{unit}"
    below, above = ("above", "below") if metric.higher_is_better is False else ("below", "above")
    name, shown, among = label_of(metric), row["within_margin"], sch.among_changed(row)
    limit = f"{name} of {candidate} is no more than {margin} {below} that of {baseline}{among}"
    if shown == "equivalent" or metric.higher_is_better is None:
        limit = f"{name} of {candidate} and {baseline} are within {margin} of each other{among}"
    if sch.doubt_of(row):
        return f"{limit}: not tested, since these numbers are not to be trusted"
    if sch.number(row["p_no_worse"]) is None and shown is None:
        return f"{limit}: {'not shown' if sch.number(row.get('p_equivalent')) is not None else 'not tested'}"
    bound = None if worst is None else Change(factor * abs(worst), unit)
    text = "" if bound is None else f"{bound.value:.{bound.digits}f}{bound.unit}"
    is_below, better = worst is not None and worst >= 0, row["better"]
    is_beyond = 1 - (sch.number(row["p_no_worse"]) or 0.0) < (1 - row["confidence"]) / 2
    if shown is None and is_beyond and better == "baseline":
        by = f", by up to {text}" if is_below else ""
        return f"{name} of {candidate} is clearly more than {margin} {below} that of {baseline}{among}{by}"
    if shown is None:
        return f"{limit}: not shown{f', it may be {text} {below}' if is_below else ''}"
    if worst is not None and worst < 0:
        return f"{limit}: shown{f', {candidate} is at least {text} {above}' if better == 'candidate' else ''}"
    return f"{limit}: shown{f', at most {text} {below}' if is_below else ''}"


MOST_FALLS = 2
"""Metrics that are named beside a winner; the others are counted."""


def but(row: Row, pair: Sequence[Row]) -> str:
    """What the winner of a primary metric clearly loses: guardrails first, then the largest changes.

    Every change is that of the candidate, as in the sentence before: what rises where it loses, a baseline that wins
    has less of.

    Args:
        row: Of a primary metric.
        pair: The rows of the candidate and its baseline, of all users.

    >>> row = {"metric": "ndcg@10", "role": "primary", "better": "candidate", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.05, "relative_difference": -0.1, "relative_ci_low": -0.12, "relative_ci_high": -0.08,
    ...        "ci_low": -0.06, "ci_high": -0.04}
    >>> lost = row | {"metric": "rr", "role": "secondary", "better": "baseline"}
    >>> guardrail = lost | {"metric": "p@10", "role": "guardrail", "relative_difference": -0.03}
    >>> but(row, [row, lost, guardrail])
    'but the guardrail Precision@10 falls by 3.0 %, and MRR by 10.0 %'
    >>> but(row | {"share_changed": 0.12}, [guardrail])
    'but the guardrail Precision@10 falls by 3.0 %, among the 12 % of users whose lists changed'
    >>> but(row | {"better": "baseline"}, [guardrail | {"better": "candidate", "relative_difference": 0.03}])
    'but the guardrail Precision@10 rises by 3.0 %'
    >>> but(row | {"better": None}, [lost]), but(row, [row])
    ('', '')
    """
    winner = row["better"]
    if winner is None or row.get(sch.ROLE, sch.PRIMARY) != sch.PRIMARY:
        return ""
    lost = sorted((other for other in pair if other["better"] not in (None, winner)), key=_guardrails_first)
    parts, verb = [], ""
    for other in lost[:MOST_FALLS]:
        before, (verb, size) = verb, _moved(other)
        parts.append(f"{_name(other)}{f' {verb}' if verb != before else ''}{size}")
    more = len(lost) - len(parts)
    if more:
        is_or_are = "metric is" if more == 1 else "metrics are"
        parts.append(f"{more:,} more {is_or_are} clearly {'worse' if winner == 'candidate' else 'better'}")
    among = sch.among_changed(row)
    return f"but {_joined(parts)}{f',{among}' if among else ''}" if parts else ""


def but_of_all(rows: Iterable[Row], winner: str, n_others: int) -> str:
    """On which metrics the experiment that is ahead of the others clearly loses to some of them: guardrails first.

    Args:
        rows: Of all users, of every pair and metric.
        winner: The experiment.
        n_others: How many others there are.

    >>> row = {"metric": "p@1", "role": "guardrail"}
    >>> lost = [row | {"baseline": "a", "experiment_id": "b", "better": "candidate"},
    ...         row | {"baseline": "c", "experiment_id": "a", "better": "baseline"}]
    >>> but_of_all(lost, "a", 2)
    'but loses to every other experiment on the guardrail Precision@1'
    >>> but_of_all([*lost[1:], lost[0] | {"metric": "rr", "role": "secondary"}], "a", 2)
    'but loses to 1 of 2 others on the guardrail Precision@1, and to 1 of 2 others on MRR'
    >>> but_of_all(lost, "b", 2)
    ''
    """
    lost: dict[str, list[Row]] = {}
    for row in rows:
        if (
            row["better"] is not None
            and row[sch.BASELINE if row["better"] == "candidate" else sch.EXPERIMENT] == winner
        ):
            lost.setdefault(row[sch.METRIC], []).append(row)
    metrics = sorted(lost.values(), key=lambda of: (of[0].get(sch.ROLE) != sch.GUARDRAIL, -len(of)))
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


def lost_guardrails(rows: Iterable[Row]) -> str:
    """The guardrail that clearly lost the most, and how many more did; empty where none did.

    >>> row = {"metric": "p@1", "role": "guardrail", "better": "baseline", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.33, "relative_difference": -0.66, "relative_ci_low": -0.7, "relative_ci_high": -0.6,
    ...        "ci_low": -0.35, "ci_high": -0.3, "experiment_id": "c05"}
    >>> lost_guardrails([row]), lost_guardrails([row | {"better": None}])
    ('the guardrail Precision@1 of c05 falls by 66.0 %', '')
    >>> lost_guardrails([row | {"relative_difference": -0.1}, row, row])
    'the guardrail Precision@1 of c05 falls by 66.0 %, and 2 more are clearly worse'
    """
    lost = sorted(filter(is_lost_guardrail, rows), key=_guardrails_first)
    if not lost:
        return ""
    (verb, size), more = _moved(lost[0]), len(lost) - 1
    also = f", and {more:,} more {'is' if more == 1 else 'are'} clearly worse" if more else ""
    return f"{_name(lost[0])} of {lost[0][sch.EXPERIMENT]} {verb}{size}{sch.among_changed(lost[0])}{also}"


def is_lost_guardrail(row: Row) -> bool:
    """Whether a candidate clearly loses on a guardrail."""
    return row.get(sch.ROLE) == sch.GUARDRAIL and row["better"] == "baseline"


def _guardrails_first(row: Row) -> tuple[bool, float]:
    """Sort key: guardrails, then the largest changes."""
    return row.get(sch.ROLE) != sch.GUARDRAIL, -abs(sch.number(sch.of_test(row, sch.RELATIVE[0])) or 0.0)


def _moved(row: Row) -> tuple[str, str]:
    """Whether a metric of the candidate falls or rises, and by how much."""
    change = change_of(row)
    size = f" by {abs(change.value):.{change.digits}f}{change.unit}" if change else ""
    return "rises" if change and change.value > 0 else "falls", size


def _name(row: Row) -> str:
    return f"{'the guardrail ' if row.get(sch.ROLE) == sch.GUARDRAIL else ''}{label_of(parse(row[sch.METRIC]))}"


def _joined(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}{', and ' if first else ''}{last}"


# ---- differences that are the other way round in every segment

Key = tuple[str, str, str]
"""Candidate, baseline and metric."""
LEAST_COVERED = 0.9
"""Share of the users who are in segments with a difference; with fewer, these do not speak for all."""


def reversals(rows: Iterable[Row], metrics: Container[str]) -> dict[Key, dict[str, str]]:
    """The comparisons whose difference is shown over all users, and of the other sign in every segment of a column.

    Args:
        rows: Of ``comparisons``, with those of segments.
        metrics: Names of those that are looked at.

    Returns:
        The column of the segments -> a sentence, for each of these comparisons.

    >>> row = {"experiment_id": "t", "baseline": "a", "metric": "rr@5", "note": None, "design": "independent"}
    >>> whole = row | {"segment": "all", "difference": -0.1, "better": "baseline"}
    >>> parts = [row | {"segment": f"country={name}", "difference": 0.03} for name in ("DE", "FR")]
    >>> for line in reversals([whole, *parts], {"rr@5"})["t", "a", "rr@5"].values():
    ...     print(line.replace(": ", ":\\n").replace("; ", ";\\n"))
    On MRR@5, t is below a over all users, but above it in each of the 2 segments of country:
    its users are in other segments than those of a, so the difference over all users is one of who they are;
    rankmetrics compare --decompose country splits it
    >>> reversals([whole, parts[0], parts[1] | {"difference": -0.01}], {"rr@5"})
    {}
    """
    everyone: dict[Key, Row] = {}
    segments: dict[Key, dict[str, list[Row]]] = {}
    for row in rows:
        if row[sch.METRIC] not in metrics:
            continue
        key = row.get(sch.EXPERIMENT, ""), row.get(sch.BASELINE, ""), row[sch.METRIC]
        if row[sch.SEGMENT] == sch.EVERYONE:
            everyone[key] = row
        else:
            segments.setdefault(key, {}).setdefault(sch.segment_columns(row[sch.SEGMENT]), []).append(row)
    sentences: dict[Key, dict[str, str]] = {}
    for key, row in everyone.items():
        # Tables have their rows in any order.
        for column, parts in sorted(segments.get(key, {}).items()):
            if text := _sentence_of_reversal(row, column, parts):
                sentences.setdefault(key, {})[column] = text
    return sentences


def sentences_of_reversals(rows: Sequence[Row], metric: str) -> list[str]:
    """The sentences of ``reversals`` on one metric."""
    return [line for lines in reversals(rows, {metric}).values() for line in lines.values()]


def _sentence_of_reversal(whole: Row, column: str, parts: Sequence[Row]) -> str:
    """That the difference is of the other sign in all of these segments; empty where it is not."""
    if whole.get("better") is None or sch.doubt_of(whole):
        return ""
    known = [part for part in parts if sch.number(sch.of_test(part, "difference")) is not None]
    size = sch.number(sch.of_test(whole, "difference")) or 0.0
    if len(known) < 2 or not all((sch.number(sch.of_test(part, "difference")) or 0.0) * size < 0 for part in known):
        return ""
    covered = sum(part.get(sch.N_USERS) or 0 for part in known)
    if covered < LEAST_COVERED * (whole.get(sch.N_USERS) or 0):
        return ""
    candidate, baseline = whole[sch.EXPERIMENT], whole[sch.BASELINE]
    there, here = ("below", "above") if size < 0 else ("above", "below")
    some = "" if len(known) == len(parts) else " that have a difference"
    text = (
        f"On {label_of(parse(whole[sch.METRIC]))}, {candidate} is {there} {baseline} over all users, but {here} it in "
    )
    text += f"each of the {len(known):,} segments of {column}{some}"
    if whole.get("design") != "independent":
        # The same users are on both sides, so it is not they who differ.
        return text
    text += f": its users are in other segments than those of {baseline}, so the difference over all users is one of "
    text += "who they are"
    plain = (
        not over_lists([whole]) and whole.get(sch.CLUSTER) is None and sch.number(whole.get(sch.SHARE_CHANGED)) is None
    )
    # What else compare refuses to split: several columns at once.
    return f"{text}; rankmetrics compare --decompose {column} splits it" if plain and " & " not in column else text
