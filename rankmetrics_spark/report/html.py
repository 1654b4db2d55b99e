"""The report as one HTML file that loads nothing. Needs the extra ``report``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rankmetrics_spark import __version__
from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.redaction import without_secrets
from rankmetrics_spark.report import palette, story, trust, wording
from rankmetrics_spark.report.figures import Figures, Row, label_of, seconds_of
from rankmetrics_spark.report.fitting import printable
from rankmetrics_spark.report.payload import as_script, payload
from rankmetrics_spark.report.scripts import importing, scripts
from rankmetrics_spark.schemas import EVERYONE, EXPERIMENT, N_USERS, SEGMENT

MOST_BYTES = 1_990_000
"""Size of a page."""
MOST_CARDS = 6
MOST_COUNTED = 40
"""Experiments whose rows are listed."""
LONGEST_NAME = 60


def page(figures: Figures) -> str:
    """The report as HTML.

    Raises:
        ConfigError: The libraries for charts are not installed.
    """
    library, charts = scripts()
    for limit in (4_000, 2_000, 1_000, 500, 200, 50):
        shown = _limited(figures, limit)
        text = _rendered(shown, library, charts)
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES:
            break
    return text


def write(figures: Figures, file: str | Path) -> Path:
    """Write the page of a report.

    Raises:
        ConfigError: The libraries for charts are not installed.
        OutputError: The file cannot be written.
    """
    path = Path(file)
    text = page(figures)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise OutputError(
            f"cannot write the report to '{path}': {error.strerror or error}; choose another file"
        ) from error
    return path


def _limited(figures: Figures, limit: int) -> Figures:
    """The figures with at most ``limit`` rows per table: all users first, then the largest segments."""
    largest = Counter[str]()
    for row in figures.means:
        largest[row[SEGMENT]] += row[N_USERS]
    place = {name: at for at, (name, _) in enumerate(largest.most_common())} | {EVERYONE: -1}

    def first(rows: Sequence[Row]) -> list[Row]:
        # The sort is stable: within a segment, the rows keep their order.
        return sorted(rows, key=lambda row: place.get(row[SEGMENT], len(place)))[:limit]

    means = first(figures.means)
    known = {row[EXPERIMENT] for row in means}
    users = [row for row in figures.users if row[EXPERIMENT] in known][: 3 * limit]
    return replace(
        figures, means=means, comparisons=first(figures.comparisons), users=users, trend=figures.trend[-limit:]
    )


def _rendered(figures: Figures, library: str, charts: str) -> str:
    with importing():
        import jinja2
        from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.tests["name"] = lambda part: isinstance(part, story.Id)
    environment.filters["shortened"] = shortened
    own = {name: _file(f"page.{name}") for name in ("html", "css", "js")}
    safe = {
        "style": own["css"],
        "script": own["js"],
        "library": library,
        "charts": charts,
        "data": as_script(payload(figures)),
        "light": palette.css(palette.LIGHT),
        "dark": palette.css(palette.DARK),
    }
    # Our own files, and JSON that ``as_script`` has made safe.
    marked = {name: Markup(text) for name, text in safe.items()}  # noqa: S704
    made: str = environment.from_string(own["html"]).render(**_context(figures), **marked)
    return made


def _file(name: str) -> str:
    return files(__package__ or "rankmetrics_spark.report").joinpath(name).read_text(encoding="utf-8")


def shortened(name: str) -> str:
    r"""A name as it is shown in a sentence: without control characters, and without the middle of a long one.

    >>> shortened("a\x00b"), len(shortened("x" * 10_000))
    ('a\\x00b', 57)
    """
    text = printable(str(name))
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 20]}…{text[-16:]}"


# ---- what the template shows


def _context(figures: Figures) -> dict[str, Any]:
    answer, cards = story.answer(figures), story.cards(figures)
    shown = cards[:MOST_CARDS]
    checks = trust.checks(figures)
    warned = sum(check.level == "warn" for check in checks)
    return {
        "title": "Ranking report: " + "".join(shortened(part) for part in answer.title),
        "date": figures.record.get("evaluation_date") or _date(figures),
        "answer": answer,
        "warnings": {0: "", 1: "One check"}.get(warned, f"{warned} checks"),
        "cards": shown,
        "n_cards": len(cards),
        "several": len(figures.baselines) > 1,
        "states": story.STATES,
        "axis": _axis(shown),
        "primary": label_of(figures.primary) if figures.primary else "",
        "confidence": f"{figures.means[0]['confidence']:.0%}" if figures.means else "",
        "checks": checks,
        "version": __version__,
        **_rows(figures),
        **_run(figures),
    }


def _date(figures: Figures) -> str:
    return str(figures.means[0].get("evaluation_date", "")) if figures.means else ""


def _axis(cards: list[story.Card]) -> Any:
    """Difference -> percent of the width of a card; the same for all cards, with 0 inside."""
    shown = [card.change for card in cards if card.change]
    ends = [0.0, *(end for one in shown for end in (one.value, one.low, one.high) if end is not None)]
    low, high = min(ends), max(ends)
    width = (high - low) or 1.0
    return lambda value: round(4 + 92 * (value - low) / width, 2)


def _rows(figures: Figures) -> dict[str, Any]:
    record = figures.record
    if not record:
        return {}
    counts = sorted(record["experiments"].items(), key=lambda pair: (-pair[1]["rows"], pair[0]))
    reasons = sorted(record["quarantine_reasons"].items(), key=lambda pair: (-pair[1], pair[0]))
    users = {row[EXPERIMENT]: (row[N_USERS], row["n_users_with_relevant"]) for row in figures.everyone}
    return {
        "rows": record["rows"],
        "counts": counts[:MOST_COUNTED],
        "n_counts": len(counts),
        "reasons": reasons,
        "without_relevant": sum(n - relevant for n, relevant in users.values()),
    }


def _run(figures: Figures) -> dict[str, Any]:
    record = figures.record
    if not record:
        return {}
    config, versions = figures.config, record["versions"]
    names = sorted({metric.name for metric in figures.metrics})
    rules = wording.sentences(
        record["convention"]["text"], names, config.get("rank_by") == "score", bool(config.get("judgements"))
    )
    engine = f"Spark {versions['spark']}"
    if "sail" in versions:
        engine = f"Sail {versions['sail']}, with the client of {engine}"
    about = [
        ("run", record["run_id"]),
        ("started", record["started"].replace("T", " ").replace("+00:00", " UTC")),
        ("took", f"{seconds_of(record) or 0:.0f} s"),
        ("versions", f"rankmetrics_spark {versions['rankmetrics_spark']}, {engine}"),
    ]
    return {
        "rules": rules,
        "convention": f"{record['convention']['name']} ({record['convention']['hash']})",
        "about": about,
        "record": printable_lines(without_secrets(json.dumps(record, indent=2, ensure_ascii=False, default=str))),
    }


def printable_lines(text: str) -> str:
    """The text with its control characters escaped, line breaks apart."""
    return "\n".join(printable(line) for line in text.split("\n"))
