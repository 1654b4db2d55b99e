"""The numbers of a page: every value once, names as places in lists, so that thousands of rows stay small."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date as date_of
from datetime import timedelta
from typing import Any

from rankmetrics_spark.metrics import DIRECTIONS, parse
from rankmetrics_spark.report.changes import widened
from rankmetrics_spark.report.figures import STEPS, Figures, Row, label_of, over_lists, percent
from rankmetrics_spark.report.story import leader, state_of
from rankmetrics_spark.report.verdict import p_text, valid_at
from rankmetrics_spark.schemas import (
    BASELINE,
    DATE,
    EVERYONE,
    EXPERIMENT,
    METRIC,
    N_USERS,
    N_USERS_WITH_RELEVANT,
    SEGMENT,
    number,
    shown_of,
)

Table = dict[str, list[Any]]


def payload_of(figures: Figures, most: int | None = None) -> dict[str, Any]:
    """Everything that the page draws and lists."""
    part = figures if most is None else shortened(figures, most)
    rows = (*part.means, *part.comparisons)
    experiments, metrics = figures.experiments, [str(metric) for metric in figures.metrics]
    segments = sorted({row[SEGMENT] for row in rows}, key=lambda name: (name != EVERYONE, name))
    index = {EXPERIMENT: _places(experiments), METRIC: _places(metrics), SEGMENT: _places(segments)}
    index[BASELINE] = index[EXPERIMENT]
    confidence = {row["confidence"] for row in rows}
    return {
        "experiments": experiments,
        "baselines": [index[BASELINE][name] for name in figures.baselines if name in index[BASELINE]],
        "leader": index[EXPERIMENT].get(leader(figures) or "", -1),
        "segments": segments,
        "metrics": [_metric(name) for name in metrics],
        "confidence": percent(next(iter(confidence))) if len(confidence) == 1 else "",
        "overLists": over_lists(part.means),
        "valid": next(filter(None, map(valid_at, part.comparisons)), ""),
        "widened": any(map(widened, part.comparisons)),
        "totals": _totals(figures),
        "means": _table(part.means, index, MEANS),
        "compared": _table(part.comparisons, index, COMPARED)
        | {"state": [state_of(row) for row in part.comparisons], "said": [_p_text(row) for row in part.comparisons]},
        "users": _table(part.users, index, USERS) | {"steps": [STEPS]},
        "trend": _table(part.trend, index, TREND),
        "overTime": _table(part.over_time, index, OVER_TIME),
        "validOverTime": next(filter(None, map(_valid_over_time, part.over_time)), ""),
        "alerts": bad_days(figures),
    }


def _totals(figures: Figures) -> dict[str, int]:
    """Rows of each table of the page before it was shortened."""
    means, n_compared = len(figures.everyone), len(figures.compared)
    return {
        "differences": n_compared,
        "means": means,
        "segments": max(len(figures.comparisons), figures.n_comparisons) - n_compared,
        "segmentMeans": max(len(figures.means), figures.n_means) - means,
        "users": len(figures.users),
        "trend": len(figures.trend),
        "overTime": len(figures.over_time),
    }


def _p_text(row: Row) -> str | None:
    p = number(row["p_adjusted"])
    return None if p is None else p_text(p, 1 - row["confidence"])


def shortened(figures: Figures, most: int) -> Figures:
    """The figures with about so many rows per table.

    All rows of the only baseline and of the metric that decides stay, for all users; after them come the other metrics,
    then the largest segments. Distributions and series of dates stay whole or are left out.
    """
    size = Counter[str]()
    for row in figures.means:
        size[row[SEGMENT]] += row[N_USERS]
    place = {name: at for at, (name, _) in enumerate(size.most_common())} | {EVERYONE: -1}
    metric = str(figures.primary)
    baseline = figures.baselines[0] if len(figures.baselines) == 1 else None
    order = _places(figures.experiments)

    def rank(row: Row) -> tuple[bool, int]:
        """The metric that decides first, then by experiment."""
        return row[METRIC] != metric, order.get(row[EXPERIMENT], len(order))

    def first(rows: Sequence[Row], is_kept: Callable[[Row], bool]) -> list[Row]:
        """So many rows, those of all users first."""
        sorted_rows = sorted(rows, key=lambda row: (place.get(row[SEGMENT], len(place)), not is_kept(row), *rank(row)))
        n_kept = sum(row[SEGMENT] == EVERYONE and is_kept(row) for row in rows)
        return sorted_rows[: max(most, n_kept)]

    def series(rows: Sequence[Row], limit: int, is_kept: Callable[[Row], bool]) -> list[Row]:
        """Whole groups of an experiment and a metric, in the order of the rows."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(rows, key=rank):
            groups.setdefault((row[EXPERIMENT], row[METRIC]), []).append(row)
        sums = itertools.accumulate(map(len, groups.values()))
        n_kept = {key for (key, group), n in zip(groups.items(), sums, strict=True) if n <= limit or is_kept(group[0])}
        return [row for row in rows if (row[EXPERIMENT], row[METRIC]) in n_kept]

    def decides(row: Row) -> bool:
        return bool(row[METRIC] == metric)

    def is_main(row: Row) -> bool:
        return decides(row) or row[EXPERIMENT] == baseline

    return replace(
        figures,
        means=first(figures.means, is_main),
        # Of all pairs, and of all dates, the deciding metric alone can be more than a page holds.
        comparisons=first(figures.comparisons, lambda row: decides(row) and baseline is not None),
        users=series(figures.users, 3 * most, is_main),
        trend=series(figures.trend, most, lambda row: decides(row) and row[EXPERIMENT] == baseline),
        over_time=series(figures.over_time, most, lambda row: decides(row) and baseline is not None),
    )


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
OVER_TIME = {
    **{short: name for short, name in COMPARED.items() if short not in ("s", "p", "note")},
    "kind": "kind",
    "label": "label",
}
"""Short name of a column of the page -> the column of the table."""


def _metric(name: str) -> dict[str, Any]:
    metric = parse(name)
    family = label_of(metric).partition("@")[0]
    direction = DIRECTIONS[metric.higher_is_better]
    return {"name": name, "label": label_of(metric), "family": family, "cut": metric.cut, "direction": direction}


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _table(rows: Sequence[Row], index: Mapping[str, Mapping[str, int]], columns: Mapping[str, str]) -> Table:
    listed = [row for row in rows if all(row[key] in index[key] for key in index if key in row)]
    return {short: [_cell(shown_of(row, name), index.get(name)) for row in listed] for short, name in columns.items()}


def _cell(value: Any, index: Mapping[str, int] | None) -> Any:
    if index is not None:
        return index[value]
    return (
        number(value) if isinstance(value, float) else value if value is None or isinstance(value, int) else str(value)
    )


def bad_days(figures: Figures) -> list[dict[str, str]]:
    """The dates whose run failed or warned, and those between two dates for which there is none, with the reason."""
    days = []
    for record in figures.history:
        error, date = record.get("error"), str(record[DATE])
        warnings = [str(text) for text in (record.get("quality") or {}).get("warnings", ())]
        texts = [str(error["message"] if isinstance(error, Mapping) else error)] if error else []
        if texts or warnings:
            days.append(
                {"date": date, "text": "; ".join([*texts, *warnings]), "state": "failed" if texts else "warned"}
            )
    dates = {str(row[DATE]) for row in figures.trend} | {str(row["label"]) for row in by_date(figures.over_time)}
    known = {*dates, *(str(record[DATE]) for record in figures.history)}
    missing = [date for date in _between(dates) if date not in known]
    days += [{"date": date, "text": "nothing is published for this date", "state": "missing"} for date in missing]
    return sorted(days, key=lambda day: (day["date"], day["state"]))


def _valid_over_time(row: Row) -> str:
    """The looks that the interval up to a day holds for; empty for a day by itself.

    >>> _valid_over_time({"kind": "cumulative", "valid_at": "every look"}), _valid_over_time({"kind": "day"})
    ('valid at every look', '')
    >>> _valid_over_time({"kind": "cumulative", "valid_at": "a single look"})
    'each valid at a single look'
    """
    looks = row.get("valid_at") or "a single look"
    each = "each " if looks == "a single look" else ""
    return f"{each}valid at {looks}" if row["kind"] == "cumulative" else ""


def by_date(rows: Sequence[Row]) -> list[Row]:
    """The rows of an effect over time that are about a date."""
    return [row for row in rows if row["kind"] in ("day", "cumulative")]


def _between(dates: Collection[str]) -> list[str]:
    """Every date from the first to the last one; none where a date is none."""
    with suppress(ValueError):
        days = sorted(date_of.fromisoformat(text) for text in dates)
        return [(days[0] + timedelta(n)).isoformat() for n in range((days[-1] - days[0]).days)] if days else []
    return []


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
