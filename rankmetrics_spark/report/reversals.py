"""A difference over all users that is the other way round in every segment: one of who the users are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report.figures import Row, label_of, over_lists
from rankmetrics_spark.schemas import (
    BASELINE,
    CLUSTER,
    EVERYONE,
    EXPERIMENT,
    METRIC,
    N_USERS,
    SEGMENT,
    SHARE_CHANGED,
    doubt_of,
    number,
    of_test,
    segment_columns,
)

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
        if row[METRIC] not in metrics:
            continue
        key = row.get(EXPERIMENT, ""), row.get(BASELINE, ""), row[METRIC]
        if row[SEGMENT] == EVERYONE:
            everyone[key] = row
        else:
            segments.setdefault(key, {}).setdefault(segment_columns(row[SEGMENT]), []).append(row)
    sentences: dict[Key, dict[str, str]] = {}
    for key, row in everyone.items():
        # Tables have their rows in any order.
        for column, parts in sorted(segments.get(key, {}).items()):
            if _is_reversed(row, parts):
                sentences.setdefault(key, {})[column] = _sentence(row, column, parts)
    return sentences


def sentences_of_reversals(rows: Sequence[Row], metric: str) -> list[str]:
    """The sentences of ``reversals`` on one metric."""
    return [line for lines in reversals(rows, {metric}).values() for line in lines.values()]


def _is_reversed(whole: Row, parts: Sequence[Row]) -> bool:
    if whole.get("better") is None or doubt_of(whole):
        return False
    size, known = number(of_test(whole, "difference")) or 0.0, _with_difference(parts)
    if len(known) < 2 or not all((number(of_test(part, "difference")) or 0.0) * size < 0 for part in known):
        return False
    covered = sum(part.get(N_USERS) or 0 for part in known)
    return bool(covered >= LEAST_COVERED * (whole.get(N_USERS) or 0))


def _with_difference(parts: Sequence[Row]) -> list[Row]:
    return [part for part in parts if number(of_test(part, "difference")) is not None]


def _sentence(whole: Row, column: str, parts: Sequence[Row]) -> str:
    candidate, baseline, n = whole[EXPERIMENT], whole[BASELINE], len(_with_difference(parts))
    there, here = ("below", "above") if of_test(whole, "difference") < 0 else ("above", "below")
    some = "" if n == len(parts) else " that have a difference"
    text = f"On {label_of(parse(whole[METRIC]))}, {candidate} is {there} {baseline} over all users, but {here} it in "
    text += f"each of the {n:,} segments of {column}{some}"
    if whole.get("design") != "independent":
        # The same users are on both sides, so it is not they who differ.
        return text
    text += f": its users are in other segments than those of {baseline}, so the difference over all users is one of "
    text += "who they are"
    plain = not over_lists([whole]) and whole.get(CLUSTER) is None and number(whole.get(SHARE_CHANGED)) is None
    # What else compare refuses to split: several columns at once.
    return f"{text}; rankmetrics compare --decompose {column} splits it" if plain and " & " not in column else text
