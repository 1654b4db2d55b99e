"""How an effect develops, in words and as a table: does it fade, and did the users differ before the start?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankmetrics_spark import config as cfg, errors as err, findings as fd, metrics as mx, schemas as sch, words
from rankmetrics_spark.report import assets, formats


def difference_rows(comparisons: Iterable[fd.Row]) -> list[dict[str, Any]]:
    """Rows of ``comparisons`` of several dates as rows of ``effect_over_time``: of the day, or of a period up to it."""
    rows = []
    for found in fd.of_all(fd.findings(comparisons)):
        looks = {None: "a single look", "any": "every look"}.get(found.looks, "the look of its day")
        kind = "cumulative" if found.period_from else "day"
        label = {"kind": kind, "label": str(found.evaluation_date), "day_number": None, "valid_at": looks}
        rows.append({name: found.shown_row.get(name) for name in _OF_DIFFERENCE} | label)
    names = (sch.EXPERIMENT, sch.BASELINE, sch.METRIC, "label")
    return sorted(rows, key=lambda row: [*map(str, map(row.get, names))])


def left_out(section: cfg.Comparison) -> str:
    """Why a period has no differences over time; empty where it has.

    >>> left_out(cfg.Comparison(baseline="a", strata=("date",)))
    'Differences are not drawn over time: they cannot take comparison.strata into account.'
    >>> others = ({"cap": 0.99}, {"mean_over": "lists"}, {"cluster": "household"}, {"trigger": "flag"}, {})
    >>> [left_out(cfg.Comparison(baseline="a", **each)).partition(" take ")[2].split(" ")[0] for each in others]
    ['comparison.cap', 'comparison.mean_over', 'comparison.cluster', 'comparison.trigger', '']
    """
    try:
        section.check("over_time")
    except err.ConfigError as error:
        return f"Differences are not drawn over time: they cannot take {error.path} into account."
    return ""


_OF_DIFFERENCE = (
    *(sch.EXPERIMENT, sch.BASELINE, sch.METRIC, sch.N_USERS, "mean_baseline", "mean_candidate", "p_value"),
    *("confidence", *sch.RELATIVE, "difference", "ci_low", "ci_high"),
)


def sentences_over_time(rows: Sequence[fd.Row], metrics: fd.Metrics = (), main: mx.Metric | None = None) -> list[str]:
    """Whether each effect fades, and whether the users differed before the start.

    The metric that decides has a sentence for every pair. Other metrics have one where the effect changes, or where the
    users differed before.
    """
    first_metric = deciding_metric(rows, metrics) if main is None else str(main)
    by_pair = fd.grouped(fd.findings(rows), lambda each: (each.baseline, each.candidate, each.metric))
    places = {str(metric): place for place, metric in enumerate(metrics)}
    ordered = sorted(
        by_pair.items(), key=lambda item: (item[0][2] != first_metric, places.get(item[0][2], len(places)), item[0])
    )
    of_kinds = [(pair, fd.grouped(own, lambda each: each.kind)) for pair, own in ordered]
    texts = [(pair, _fading(kinds), _before(kinds)) for pair, kinds in of_kinds]
    later = [text for _, kinds in of_kinds if (text := _later(kinds))]
    before = [text for pair, _, (alarm, text) in texts if text and (alarm or pair[2] == first_metric)]
    within = [text for pair, (changes, text), _ in texts if text and (changes or pair[2] == first_metric)]
    return before + within + later


def deciding_metric(rows: Iterable[fd.Row], metrics: fd.Metrics = ()) -> str:
    """The metric that decides, among those of the rows."""
    names = fd.by_metric(fd.findings(rows))
    shown = [metric for metric in metrics if str(metric) in names] or [mx.parse(name) for name in names]
    return str(mx.deciding(shown)) if shown else ""


def _fading(kinds: Mapping[str, Sequence[fd.Finding]]) -> tuple[bool, str]:
    """Whether the effect changes with a user's days, and the sentence about it; empty without a slope."""
    slope = next(iter(kinds.get("slope", ())), None)
    if slope is None or not kinds.get("cumulative"):
        return False, ""
    whole = max(kinds["cumulative"], key=lambda found: found.at)
    on, effect = f"on {slope.label}", f"the effect of {slope.candidate} against {slope.baseline}"
    if doubt := slope.doubt or whole.doubt:
        return False, f"T{effect[1:]} {on} over time is {doubt}."
    if not (is_shown := _is_shown(whole, whole.p_value)):
        effect = f"the difference between {slope.candidate} and {slope.baseline}"
    if slope.p_adjusted is None:
        return False, f"Nobody can tell yet whether {effect} {on} changes with a {words.UNIT}'s days: {slope.note}."
    if (change := slope.change(_in_percent(slope))) is None:
        return False, ""
    per_day = f"{change.text} per day within {words.UNITS} ({_interval(slope, change)}, {slope.p})"
    if not _is_shown(slope, slope.p_adjusted):
        verb = "fades or grows" if is_shown else f"changes with a {words.UNIT}'s days"
        return False, f"No sign that {effect} {on} {verb}: {per_day}."
    rises = (slope.difference or 0.0) > 0
    verb = "rises" if rises else "falls"
    if is_shown:
        verb = "grows" if rises == ((whole.difference or 0.0) > 0) else "fades"
    of_first = next((found for found in kinds.get("days_since_first", ()) if found.day_number == 0), None)
    first = of_first and of_first.change(_in_percent(of_first))
    start = f" It is {first.text} on a {words.UNIT}'s first day." if first else ""
    return True, f"{effect[0].upper()}{effect[1:]} {on} {verb} with a {words.UNIT}'s days: {per_day}.{start}"


def _later(kinds: Mapping[str, Sequence[fd.Finding]]) -> str:
    """That users who come later have another effect on their first day; empty where that is not shown."""
    found = next(iter(kinds.get("slope_between", ())), None)
    change = found.change(_in_percent(found)) if found else None
    if found is None or change is None or found.doubt or not _is_shown(found, found.p_adjusted):
        return ""
    return assets.said("come_later", found=found, change=change, interval=_interval(found, change))


def _before(kinds: Mapping[str, Sequence[fd.Finding]]) -> tuple[bool, str]:
    """Whether the users differed before the start, and the sentence about it; empty where it is unknown."""
    found = next(iter(kinds.get("before", ())), None)
    change = found.change(_in_percent(found)) if found else None
    if found is None or change is None or found.p_adjusted is None:
        return False, ""
    users = f"the {words.UNITS} of {found.candidate} and {found.baseline}"
    if found.doubt:
        return False, f"Whether {users} differed before {found.at} on {found.label} is {found.doubt}."
    who = f"Before {found.at}, {users}"
    numbers = f"{change.text} on {found.label} ({_interval(found, change)}, {found.p})"
    if _is_shown(found, found.p_adjusted):
        return True, assets.said("differed_already", who=who, numbers=numbers)
    return False, f"{who} did not differ clearly, as it should be: {numbers}."


def _in_percent(found: fd.Finding) -> bool:
    """Whether the baseline's mean is above 0: then numbers are in percent of it."""
    return (found.means[0] or 0.0) > 0 and found.relative_difference is not None


def _is_shown(found: fd.Finding, p: float | None) -> bool:
    return p is not None and p < found.level


def _interval(found: fd.Finding, change: words.Change) -> str:
    return f"{words.percent(found.confidence)} interval {change.interval}"


def print_over_time(days: cfg.Days, rows: Sequence[fd.Row], style: str, metrics: fd.Metrics = ()) -> None:
    """The sentences, the dates and a line per row; of several metrics, the table holds the one that decides.

    Args:
        days: The dates of the users.
        rows: Of ``effect_over_time``.
        style: ``table``, ``json`` or ``csv``.
        metrics: In the order of the run.
    """
    sentences, about = sentences_over_time(rows, metrics), days.sentence_part
    period = {sch.PERIOD_FROM: days.first, sch.PERIOD_TO: days.last}
    if style == "json":
        more = {"missing": days.missing, "dates": f"{words.UNITS} of {about}"}
        formats.print_json({"period": period, **more, "over_time": [*rows], "sentences": sentences})
        return
    if style == "csv":
        formats.print_csv([{**period, **row} for row in rows])
        return
    for line in (*sentences, f"{words.UNITS:C} of {about}."):
        formats.print_sentence(line)
    main, of_metrics = deciding_metric(rows, metrics), fd.by_metric(fd.findings(rows))
    others = len(of_metrics) - 1
    note = f"; --metrics chooses another, JSON and CSV hold all {others + 1}" if others else ""
    texts, title = [], f"{fd.label_of(mx.parse(main))} over time{note}"
    for found in of_metrics.get(main, ()):
        difference, low, high = ("-" if value is None else f"{value:+.4f}" for value in found.further())
        change, p = found.change(True) if _in_percent(found) else None, found.p_value
        text = {
            "candidate": str(found.candidate),
            "baseline": str(found.baseline),
            "kind": words.worded(assets.WORDS["kinds"][found.kind]),
            "label": "" if found.kind.startswith("slope") else found.at,
            str(words.UNITS): f"{found.n_users:,}",
            "difference": f"{difference} ({low} to {high})",
            "change": change.plain if change else "-",
            "p": sch.NOT_TRUSTED if found.doubt else "-" if p is None else words.p_text(p, found.level),
        }
        texts.append(text)
    formats.print_texts(texts, ("candidate", "baseline", "kind", "label"), title)
