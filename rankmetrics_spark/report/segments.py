"""In which segments the effect differs from that among the rest of the users, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.report.changes import Change
from rankmetrics_spark.report.figures import Row, label_of
from rankmetrics_spark.report.verdict import p_text, units_of
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, SEGMENT, number, segment_columns

MOST_NAMED = 5
"""Segments of a column that are named for a candidate."""
MOST_PAIRS = 6
"""Pairs of experiments that have sentences of their own."""


def sentences_of_segments(rows: Sequence[Row], metric: Metric | None) -> list[str]:
    r"""Where the effect on a metric differs from that among the rest of the users; empty without segments.

    Args:
        rows: Of ``comparisons``.
        metric: The one that decides.

    >>> from rankmetrics_spark.metrics import parse
    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "confidence": 0.95, "note": None,
    ...        "correction": "holm", "difference": 0.012, "relative_difference": 0.021, "rest_difference": -0.002,
    ...        "rest_relative_difference": -0.003, "p_rest": 0.001, "p_rest_adjusted": 0.003, "segment": "country=DE"}
    >>> other = row | {"p_rest": 0.4, "p_rest_adjusted": 0.8}
    >>> rows = [row, *(other | {"segment": f"country={name}"} for name in ("FR", "GB"))]
    >>> for line in sentences_of_segments(rows, parse("ndcg@10")):
    ...     print(line.replace("\N{MINUS SIGN}", "-"))
    The effect of b on NDCG@10 differs in country=DE: +0.0120 (+2.1 %) against -0.0020 (-0.3 %) elsewhere (p = 0.003)
    No sign that the effect of b on NDCG@10 differs in the other 2 segments of country
    """
    pairs: dict[tuple[Any, Any], dict[str, list[Row]]] = {}
    for row in rows:
        if metric is not None and row[SEGMENT] != EVERYONE and row[METRIC] == str(metric) and "p_rest" in row:
            columns = pairs.setdefault((row[EXPERIMENT], row[BASELINE]), {})
            columns.setdefault(segment_columns(row[SEGMENT]), []).append(row)
    several = len({baseline for _, baseline in pairs}) > 1
    lines = []
    for (candidate, baseline), columns in [*pairs.items()][:MOST_PAIRS]:
        effect = f"the effect of {candidate}{f' against {baseline}' if several else ''} on {label_of(metric)}"  # type: ignore[arg-type]
        lines += _of_pair(effect, columns)
    more = len(pairs) - MOST_PAIRS
    return [*lines, *([f"The other {more:,} pairs are in the table comparisons (p_rest_adjusted)"] if more > 0 else [])]


def _of_pair(effect: str, columns: dict[str, list[Row]]) -> list[str]:
    lines, still, unknown = [], [], []
    # Tables have their rows in any order.
    for column, rows in sorted(columns.items()):
        tested = [row for row in rows if _p(row) is not None]
        named = sorted((row for row in tested if _differs(row)), key=lambda row: (_p(row), row[SEGMENT]))
        if len(tested) < 2:
            unknown += [column] if len(rows) > 1 else []
        elif not named:
            still.append(f"the {len(tested):,} segments of {column}")
        elif len(tested) == 2 and len(named) == 2:
            one, two = (f"{_change(row)} in {row[SEGMENT]}" for row in named)
            lines.append(f"{_sentence(effect)} differs by {column}: {one} against {two} ({_p_text(named[0])})")
        else:
            lines += [_named(effect, row) for row in named[:MOST_NAMED]]
            n = len(tested) - len(named)
            if len(named) > MOST_NAMED:
                lines.append(f"{_sentence(effect)} differs in {len(named) - MOST_NAMED:,} more segments of {column}")
            if n:
                where = f"the other {n:,} segments of {column}" if n > 1 else f"the other segment of {column}"
                lines.append(f"No sign that {effect} differs in {where}")
    if still:
        lines.append(f"No sign that {effect} differs between {' or '.join(still)}")
    if unknown:
        row = next(iter(columns[unknown[0]]))
        why = f"{units_of(row)} are in several of them, or too few in one of the groups"
        lines.append(f"Not known whether {effect} differs between segments of {' and '.join(unknown)}: {why}")
    return lines


def _named(effect: str, row: Row) -> str:
    rest = _change(row, "rest_")
    return f"{_sentence(effect)} differs in {row[SEGMENT]}: {_change(row)} against {rest} elsewhere ({_p_text(row)})"


def _change(row: Row, prefix: str = "") -> str:
    """Both numbers of the plain test, which is what segments are compared by."""
    value, share = (number(row[f"{prefix}{name}"]) for name in ("difference", "relative_difference"))
    in_percent = f" ({Change(100 * share, ' %').text})" if share is not None else ""
    return f"{Change(value or 0.0, '').text}{in_percent}"


def _p(row: Row) -> float | None:
    return None if str(row["note"] or "").startswith("not trustworthy") else number(row["p_rest_adjusted"])


def _differs(row: Row) -> bool:
    p = _p(row)
    return p is not None and p < 1 - row["confidence"]


def _p_text(row: Row) -> str:
    text = p_text(row["p_rest_adjusted"], 1 - row["confidence"])
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _sentence(effect: str) -> str:
    return effect[:1].upper() + effect[1:]
