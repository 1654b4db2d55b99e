"""The numbers of a page: every value once, names as places in lists, so that thousands of rows stay small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.metrics.names import DIRECTIONS
from rankmetrics_spark.report.figures import STEPS, Figures, Row, label_of, number
from rankmetrics_spark.report.story import state_of
from rankmetrics_spark.schemas import (
    BASELINE,
    DATE,
    EVERYONE,
    EXPERIMENT,
    METRIC,
    N_USERS,
    N_USERS_WITH_RELEVANT,
    SEGMENT,
)

Table = dict[str, list[Any]]


def payload(figures: Figures) -> dict[str, Any]:
    """Everything that the page draws and lists.

    Returns:
        Lists of names, and tables of columns; a column of names holds places in those lists.
    """
    rows = (*figures.means, *figures.comparisons)
    experiments, metrics = figures.experiments, [str(metric) for metric in figures.metrics]
    segments = sorted({row[SEGMENT] for row in rows}, key=lambda name: (name != EVERYONE, name))
    places = {EXPERIMENT: _places(experiments), METRIC: _places(metrics), SEGMENT: _places(segments)}
    places[BASELINE] = places[EXPERIMENT]
    confidence = {row["confidence"] for row in rows}
    return {
        "experiments": experiments,
        "baselines": [places[BASELINE][name] for name in figures.baselines if name in places[BASELINE]],
        "segments": segments,
        "metrics": [_metric(name) for name in metrics],
        "primary": str(figures.primary) if figures.primary else None,
        "confidence": f"{next(iter(confidence)):.0%}" if len(confidence) == 1 else "",
        "counts": {"experiments": figures.n_experiments, "comparisons": figures.n_comparisons},
        "means": _table(figures.means, places, MEANS),
        "compared": _table(figures.comparisons, places, COMPARED)
        | {"state": [state_of(row) for row in figures.comparisons]},
        "users": _table(figures.users, places, USERS) | {"steps": [STEPS]},
        "trend": _table(figures.trend, places, TREND),
        "alerts": [{"date": date, "text": text} for date, text in alerts(figures.history)],
    }


MEANS = {
    "e": EXPERIMENT,
    "s": SEGMENT,
    "m": METRIC,
    "n": N_USERS,
    "relevant": N_USERS_WITH_RELEVANT,
    "mean": "mean",
    "low": "ci_low",
    "high": "ci_high",
}
COMPARED = {
    "e": EXPERIMENT,
    "b": BASELINE,
    "s": SEGMENT,
    "m": METRIC,
    "n": "n_users",
    "meanB": "mean_baseline",
    "meanC": "mean_candidate",
    "d": "difference",
    "low": "ci_low",
    "high": "ci_high",
    "rel": "relative_difference",
    "relLow": "relative_ci_low",
    "relHigh": "relative_ci_high",
    "p": "p_adjusted",
    "note": "note",
}
USERS = {"e": EXPERIMENT, "m": METRIC, "step": "step", "low": "low", "high": "high", "n": "users"}
TREND = {"e": EXPERIMENT, "m": METRIC, "date": DATE, "n": N_USERS, "mean": "mean", "low": "ci_low", "high": "ci_high"}
"""Short name of a column of the page -> the column of the table."""


def _metric(name: str) -> dict[str, Any]:
    metric = parse(name)
    family = label_of(metric).partition("@")[0]
    direction = DIRECTIONS[metric.higher_is_better]
    return {"name": name, "label": label_of(metric), "family": family, "cut": metric.cut, "direction": direction}


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _table(rows: Sequence[Row], places: Mapping[str, Mapping[str, int]], columns: Mapping[str, str]) -> Table:
    known = [row for row in rows if all(row[key] in places[key] for key in places if key in row)]
    return {short: [_cell(row[name], places.get(name)) for row in known] for short, name in columns.items()}


def _cell(value: Any, places: Mapping[str, int] | None) -> Any:
    if places is not None:
        return places[value]
    return (
        number(value) if isinstance(value, float) else value if value is None or isinstance(value, int) else str(value)
    )


def alerts(history: Iterable[Row]) -> list[tuple[str, str]]:
    """What the runs of the dates warn of: gates that failed, and quality.

    Args:
        history: Run records.
    """
    found = []
    for record in history:
        error = record.get("error")
        said = [str(error["message"] if isinstance(error, Mapping) else error)] if error else []
        said += [str(text) for text in (record.get("quality") or {}).get("warnings", ())]
        found += [(str(record["evaluation_date"]), "; ".join(said))] if said else []
    return sorted(found)


def as_script(value: Any) -> str:
    r"""JSON that may stand in a script element: no name in it can end the element or open a comment.

    >>> as_script("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate has no UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()
