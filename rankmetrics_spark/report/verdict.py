"""The answer in words: one sentence per comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.report.change import Change, change_of
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, SEGMENT, is_unknown

Row = Mapping[str, Any]

MOST_SENTENCES = 12
"""Sentences that a verdict has at most; the table ``comparisons`` holds all."""

CORRECTIONS = {
    "holm": "after Holm",
    "bonferroni": "after Bonferroni",
    "fdr_bh": "after Benjamini-Hochberg",
    "fdr_by": "after Benjamini-Yekutieli",
    "none": "without correction",
}
"""Correction of p-values -> how a sentence names it."""


def verdict(rows: Sequence[Row], metrics: Sequence[Metric] = ()) -> list[str]:
    """What the comparisons of all users say, differences that are shown first, the surest first.

    Args:
        rows: Of the table ``comparisons``; rows of segments are left out.
        metrics: Those of the run; a metric that is not among them is looked up by its name.

    Returns:
        At most ``MOST_SENTENCES`` sentences, and one that says how many more there are.
    """
    known = {str(metric): metric for metric in metrics}
    order = {name: place for place, name in enumerate(known)}
    whole = sorted(
        (row for row in rows if row[SEGMENT] == EVERYONE),
        key=lambda row: (
            row["better"] is None,
            _p_or_last(row) if len(rows) > MOST_SENTENCES else 0.0,
            str(row[EXPERIMENT]),
            str(row[BASELINE]),
            order.get(row[METRIC], 0),
        ),
    )
    said = [sentence(row, known.get(row[METRIC]) or parse(row[METRIC])) for row in whole[:MOST_SENTENCES]]
    rest = len(whole) - len(said)
    return [*said, f"... and {rest} more, in the table comparisons"] if rest else said


def sentence(row: Row, metric: Metric) -> str:
    """One comparison in words.

    >>> row = {"experiment_id": "b", "baseline": "a", "note": None, "better": "candidate", "mean_baseline": 0.5,
    ...        "difference": 0.05, "relative_difference": 0.1, "relative_ci_low": 0.08, "relative_ci_high": 0.12,
    ...        "ci_low": 0.04, "ci_high": 0.06, "p_adjusted": 0.00002, "correction": "holm", "n_comparisons": 4,
    ...        "confidence": 0.95, "n_users": 2000, "minimum_detectable_effect": 0.01}
    >>> sentence(row, parse("ndcg@10"))
    'b beats a on NDCG@10: +10.0 % [+8.0, +12.0], p < 0.001 after Holm (4 comparisons)'
    >>> sentence(row | {"better": None, "p_adjusted": 0.3}, parse("ap"))
    'b against a on MAP: no difference shown (+10.0 % [+8.0, +12.0], p = 0.300); 2,000 users could show 2.0 %'
    """
    candidate, baseline = row[EXPERIMENT], row[BASELINE]
    name = metric.headline.removeprefix("mean ")
    note = row["note"] or ""
    if is_unknown(row["p_adjusted"]) or note.startswith("not trustworthy"):
        return f"{candidate} against {baseline} on {name}: {note or 'not tested'}"
    found = change_of(row)
    change = found.plain if found else "-"
    if row["better"] is None:
        # Without a spread, nobody knows what could be shown.
        known = not is_unknown(row["minimum_detectable_effect"]) and row["minimum_detectable_effect"] > 0
        could = f"; {row['n_users']:,} users could show {_detectable(row)}" if known else ""
        says = "no difference shown" if metric.higher_is_better is not None else "neither direction is better"
        return f"{candidate} against {baseline} on {name}: {says} ({change}, {p_value(row)}){could}"
    verb = "beats" if row["better"] == "candidate" else "loses to"
    n = row["n_comparisons"]
    family = f"{CORRECTIONS[row['correction']]} ({n} {'comparison' if n == 1 else 'comparisons'})"
    return f"{candidate} {verb} {baseline} on {name}: {change}, {p_value(row)} {family}" + (f"; {note}" if note else "")


def _detectable(row: Row) -> str:
    effect = row["minimum_detectable_effect"]
    if is_unknown(row["mean_baseline"]) or not row["mean_baseline"]:
        return Change(effect, "").plain.removeprefix("+")
    return Change(100 * effect / abs(row["mean_baseline"]), " %").plain.removeprefix("+")


def p_value(row: Row) -> str:
    """The corrected p-value in words; nobody needs more digits of a small one."""
    p = row["p_adjusted"]
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def surest_first(row: Row) -> tuple[Any, ...]:
    """Sort key of rows of ``comparisons``: those of all users first, then by p-value, those without one last."""
    return (row[SEGMENT] != EVERYONE, _p_or_last(row), str(row[EXPERIMENT]), str(row.get(BASELINE)), row[METRIC])


def _p_or_last(row: Row) -> float:
    """The p-value, or a number above every p-value where there is none."""
    p: float | None = row.get("p_adjusted")
    return 2.0 if p is None or is_unknown(p) else p
