"""The numbers of a page: every value once, names as places in lists, so that thousands of rows stay small."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date as date_of, timedelta
from math import isfinite
from operator import itemgetter
from typing import Any

from rankmetrics_spark import findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import assets, story
from rankmetrics_spark.report.figures import STEPS, Figures, over_lists
from rankmetrics_spark.words import STATES, UNITS, p_text, percent, worded

#: Column of names -> place of each name.
Index = Mapping[str, Mapping[str, int]]


def payload_of(figures: Figures, most: int | None = None, digits: int | None = None) -> dict[str, Any]:
    """Everything that the page draws and lists.

    Args:
        figures: The tables.
        most: Rows of a table; None for all.
        digits: Of the numbers of segments; None for all.
    """
    part = figures if most is None else shortened(figures, most)
    on_map, over_time = _on_map(figures)[: None if most is None else 5 * most], fd.findings(part.over_time)
    experiments, metrics = figures.experiments, _metrics(figures)
    names = {each.segment for rows in (part.averages, part.found, on_map) for each in rows}
    segments = sorted(names, key=lambda name: (name != sch.EVERYONE, name))
    index = {sch.EXPERIMENT: figures.places, sch.SEGMENT: _places(segments)}
    index |= {sch.BASELINE: index[sch.EXPERIMENT], sch.METRIC: _places(metric["name"] for metric in metrics)}
    confidence = {*(mean.confidence for mean in part.averages), *(found.confidence for found in part.found)}
    p_texts = [None if found.p_adjusted is None else p_text(found.p_adjusted, found.level) for found in part.found]
    order = (sch.FAIL, sch.WARN, sch.OK, sch.NOT_CHECKED)
    checks = sorted(sch.checks_of(figures.checks), key=lambda check: order.index(check.status))
    return {
        "experiments": experiments,
        "baselines": [index[sch.BASELINE][name] for name in figures.baselines if name in index[sch.BASELINE]],
        "letters": [figures.letters.get(name, "") for name in experiments],
        "beaten": [[figures.beaten.get((name, metric["name"]), "") for name in experiments] for metric in metrics],
        "leader": index[sch.EXPERIMENT].get(story.leader(figures) or "", -1),
        "segments": segments,
        "states": {name: {"word": state.word, "mark": state.mark} for name, state in STATES.items()},
        "metrics": metrics,
        "deciding": index[sch.METRIC].get(figures.primary_name, 0),
        "confidence": percent(level) if len(confidence) == 1 and (level := next(iter(confidence))) else "",
        "overLists": over_lists(part.averages),
        "nouns": worded("user users Users").split(),
        "valid": next(filter(None, (found.valid_at for found in part.found)), ""),
        "widened": any(found.is_widened for found in part.found),
        "totals": _totals(figures),
        "means": _table(part.means, index, "means", digits),
        "compared": _table([found.shown_row for found in part.found], index, "compared", digits)
        | {"state": [found.state for found in part.found], "said": p_texts},
        **_further(figures, index),
        "map": _table([*map(_place_on_map, on_map)], index, "map"),
        "checks": sch.columns_of(sch.rows_of(checks[:MOST_CHECKS]), sch.CHECK_COLUMNS),
        "steps": STEPS,
        "users": _table(_histograms(part.users, range(-1, STEPS)), index, "users"),
        "userChanges": _table(_histograms(part.user_changes, range(-STEPS, STEPS + 1)), index, "userChanges"),
        "trend": _table(part.trend, index, "trend"),
        "overTime": _table([found.shown_row for found in over_time], index, "overTime"),
        "validOverTime": next(filter(None, map(_valid_over_time, over_time)), ""),
        "alerts": bad_days(figures),
    }


def _on_map(figures: Figures) -> list[fd.Finding]:
    """The metric that decides by segment and candidate, the largest segments first."""
    size = Counter[str]()
    chosen = [each for each in figures.found if figures.decides(each) and not each.is_of_all and figures.only_baseline]
    for each in chosen:
        size[each.segment] += each.n_users
    return sorted(chosen, key=lambda each: (-size[each.segment], each.segment))


def _place_on_map(each: fd.Finding) -> sch.Row:
    """A segment and a candidate, as the map draws them."""
    x = _cell((each.shown_share if each.is_percentage else each.shown).value, 4)
    names = {sch.EXPERIMENT: each.candidate, sch.SEGMENT: each.segment, "state": each.state}
    return names | {"n": each.n_users, "x": x, "percent": int(each.is_percentage)}


def _totals(figures: Figures) -> dict[str, int]:
    """Rows of each table of the page before it was shortened."""
    means, n_compared = len(figures.everyone), len(figures.compared)
    return {
        "differences": n_compared,
        "means": means,
        "segments": max(len(figures.comparisons), figures.n_comparisons) - n_compared,
        "segmentMeans": max(len(figures.means), figures.n_means) - means,
        "pairs": sum(map(figures.decides, figures.compared)),
        "further": n_compared,
        "users": len({*map(_key, figures.users)}),
        "userChanges": len({*map(_key, figures.user_changes)}),
        "checks": len(figures.checks),
        "trend": len(figures.trend),
        "overTime": len(figures.over_time),
    }


def shortened(figures: Figures, most: int) -> Figures:
    """The figures with about so many rows per table.

    All rows of the only baseline and of the metric that decides stay, for all users; after them come the other metrics,
    then the segments: first those on the metric that decides, the largest first. Distributions and series of dates
    stay whole or are left out.
    """
    size = Counter[str]()
    for mean in figures.averages:
        size[mean.segment] += mean.n_users
    place = {name: at for at, (name, _) in enumerate(size.most_common())} | {sch.EVERYONE: -1}
    baseline, means = figures.only_baseline, fd.findings(figures.means)

    def rank(each: fd.Finding) -> tuple[bool, int]:
        """The metric that decides first, then by experiment: pairs of the best before those of one of them."""
        names = {each.candidate, each.baseline or each.candidate}
        return not figures.decides(each), max(figures.places.get(name, len(figures.places)) for name in names)

    def first(found: Sequence[fd.Finding], is_kept: Callable[[fd.Finding], bool]) -> list[sch.Row]:
        """So many rows, those of all users first, then the metric that decides in all segments."""

        def key(each: fd.Finding) -> tuple[Any, ...]:
            """All users; then metric, size of the segment, experiment."""
            whole, at = each.is_of_all, place.get(each.segment, len(place))
            return (not whole, not is_kept(each) if whole else rank(each)[0], at, *rank(each))

        n_kept = sum(each.is_of_all and is_kept(each) for each in found)
        return [each.row for each in sorted(found, key=key)[: max(most, n_kept)]]

    def series(rows: Sequence[sch.Row], limit: int, is_kept: Callable[[fd.Finding], bool]) -> list[sch.Row]:
        """Whole groups of an experiment and a metric, in the order of the rows."""
        found = fd.findings(rows)
        groups = fd.grouped(sorted(found, key=rank), lambda each: (each.candidate, each.metric))
        sums = itertools.accumulate(map(len, groups.values()))
        n_kept = {key for (key, group), n in zip(groups.items(), sums, strict=True) if n <= limit or is_kept(group[0])}
        return [each.row for each in found if (each.candidate, each.metric) in n_kept]

    def is_main(each: fd.Finding) -> bool:
        return figures.decides(each) or each.candidate == baseline

    return replace(
        figures,
        # Where something was compared, the page shows the differences by segment.
        means=first(fd.of_all(means) if figures.comparisons else means, is_main),
        # Of all pairs, and of all dates, the deciding metric alone can be more than a page holds.
        comparisons=first(figures.found, lambda each: figures.decides(each) and baseline is not None),
        users=series(figures.users, 3 * most, is_main),
        user_changes=series(figures.user_changes, 3 * most, figures.decides),
        trend=series(figures.trend, most, lambda each: figures.decides(each) and each.candidate == baseline),
        over_time=series(figures.over_time, most, lambda each: figures.decides(each) and baseline is not None),
    )


KEYS = {"e": sch.EXPERIMENT, "b": sch.BASELINE, "m": sch.METRIC}
WINS = ("wins", "ties", "losses")
#: What ``comparisons`` holds beside the test that decides: title, how it is shown, and its column, or two bounds.
_FURTHER = assets.file_text("further.json")
#: Rows of further tests on a page.
MOST_FURTHER = 400
#: Rows of ``checks`` on a page: those that failed or warned first.
MOST_CHECKS = 300


def _further(figures: Figures, index: Index) -> dict[str, Any]:
    """What the differences count, and their further tests over all users, the metric that decides first."""
    rows = [each.row for each in sorted(figures.compared, key=lambda each: not figures.decides(each))[:MOST_FURTHER]]
    further = json.loads(worded(_FURTHER))
    names = {name for column in further for name in column["keys"]}
    held = {name for name in names if any(_cell(row.get(name)) is not None for row in rows)}
    # Users who are in one experiment only neither win nor lose.
    held -= set() if any(row.get(name) for name in WINS for row in rows) else {*WINS}
    # What test it is says nothing beside a test that computed nothing.
    held -= held if held <= {"test", "design", "role", "look", "looks"} else set()
    power = next((f" ({percent(each.power)} power)" for each in figures.compared if each.power), "")
    # Means are always over users.
    units = "clusters" if any(found.cluster for found in figures.found) else str(UNITS)
    chosen = (column for column in further if {*column["keys"]} <= held)
    columns = [column | {"title": column["title"].format(units=units, power=power)} for column in chosen]
    shown = [name for column in columns for name in column["keys"]]
    cells = sch.columns_of(rows, (*KEYS.values(), *shown))
    keys = {short: [index[name].get(cell, -1) for cell in cells[name]] for short, name in KEYS.items()}
    values = {name: [_cell(cell, 6) for cell in cells[name]] for name in shown}
    return {"units": units, "furtherColumns": columns, "further": keys | values}


def _key(row: sch.Row) -> tuple[Any, ...]:
    """What a row of users is about: experiment, baseline and metric."""
    return tuple(map(row.get, KEYS.values()))


def _histograms(rows: Sequence[sch.Row], steps: range) -> list[sch.Row]:
    """One row per experiment, baseline and metric, with the users of every step.

    >>> row = {"experiment_id": "a", "metric": "ap", "step": 1, "low": 0.0, "high": 1.0, "users": 5}
    >>> _histograms([row, row | {"step": 0, "users": 2}], range(-1, 2))[0]["counts"]
    [0, 2, 5]
    """
    names, counts = (*KEYS.values(), "low", "high"), dict[tuple[Any, ...], list[int]]()
    for *group, step, n in zip(*sch.columns_of(rows, (*names, "step", "users")).values(), strict=True):
        counts.setdefault(tuple(group), [0] * len(steps))[step - steps.start] += n
    return [dict(zip(names, group, strict=True)) | {"counts": n} for group, n in counts.items()]


def _metrics(figures: Figures) -> list[dict[str, Any]]:
    roles, metrics = {found.metric: found.role for found in figures.compared}, []
    for metric in figures.metrics:
        name, label, is_better = str(metric), fd.label_of(metric), metric.higher_is_better
        names = {"name": name, "label": label, "family": label.partition("@")[0], "cut": metric.cut}
        words = {"direction": mx.DIRECTIONS[is_better], "lower": is_better is False, "role": roles.get(name)}
        metrics.append(names | words)
    return metrics


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _table(rows: Sequence[sch.Row], index: Index, table: str, digits: int | None = None) -> dict[str, list[Any]]:
    """The columns of a table: names as their places, and so many digits of the numbers of segments."""
    words = (word.partition(":") for word in assets.WORDS["page"][table].split())
    names = {short: name or short for short, _, name in words}
    keys = index.keys() & {*names.values()}
    listed = [row for row in rows if all(row.get(key) in index[key] for key in keys)]
    most = [None if row.get(sch.SEGMENT) == sch.EVERYONE else digits for row in listed]

    def column(name: str) -> list[Any]:
        cells = map(itemgetter(name), listed)
        return [*map(index[name].get, cells)] if name in keys else [*map(_cell, cells, most)]

    return {short: column(name) for short, name in names.items()}


def _cell(value: Any, digits: int | None = None) -> Any:
    """A cell as JSON has it, with so many digits.

    >>> _cell(1 / 3, 6), _cell(None), _cell("cuped"), _cell(1_234_567, 6), _cell(float("nan"))
    (0.333333, None, 'cuped', 1234567, None)
    """
    if isinstance(value, float):
        # JSON has neither NaN nor infinities.
        return None if not isfinite(value) else float(f"{value:.{digits}g}") if digits else value
    return value if value is None or isinstance(value, (int, list)) else str(value)


def bad_days(figures: Figures) -> list[dict[str, str]]:
    """The dates whose run failed or warned, and those between two dates for which there is none, with the reason."""
    days = []
    for record in figures.history:
        error, date = record.get("error"), str(record[sch.DATE])
        warnings = [str(text) for text in (record.get("quality") or {}).get("warnings", ())]
        texts = [str(error["message"] if isinstance(error, Mapping) else error)] if error else []
        state = "failed" if texts else "warned"
        days += [{"date": date, "text": "; ".join([*texts, *warnings]), "state": state}] * bool(texts or warnings)
    rows = fd.findings([*figures.trend, *figures.over_time])
    dates = {str(each.at or each.evaluation_date) for each in rows if each.kind in ("", "day", "cumulative")}
    known = {*dates, *(str(record[sch.DATE]) for record in figures.history)}
    between: list[str] = []
    with suppress(ValueError):  # a label that is no date
        shown = sorted(map(date_of.fromisoformat, dates))
        between = [(shown[0] + timedelta(n)).isoformat() for n in range((shown[-1] - shown[0]).days)] if shown else []
    missing = [date for date in between if date not in known]
    days += [{"date": date, "text": "nothing is published for this date", "state": "missing"} for date in missing]
    return sorted(days, key=lambda day: (day["date"], day["state"]))


def _valid_over_time(found: fd.Finding) -> str:
    """The looks that the interval up to a day holds for; empty for a day by itself.

    >>> _valid_over_time(fd.Finding({"valid_at": "every look"}, kind="cumulative")), _valid_over_time(fd.Finding({}))
    ('valid at every look', '')
    >>> _valid_over_time(fd.Finding({"valid_at": "a single look"}, kind="cumulative"))
    'each valid at a single look'
    """
    looks = found.row.get("valid_at") or "a single look"
    return f"{'each ' * (looks == 'a single look')}valid at {looks}" if found.kind == "cumulative" else ""
