"""The page of several tests or days: a line for each, the worst news first, and the way to its own page."""

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from rankmetrics_spark.errors import printable
from rankmetrics_spark.findings import NEWS, news_of
from rankmetrics_spark.report import assets, overview, story, verdict
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.trust import checks
from rankmetrics_spark.schemas import DATE
from rankmetrics_spark.words import STATES, Fact, counted_in

_MARK = '<span class="mark" aria-hidden="true">{}</span><span class="unseen">{}: </span>'
_MARKS = {"warn": _MARK.format("!", "Warning"), "fail": _MARK.format("✗", "Failed")}


def said_of(figures: Figures) -> tuple[str, str]:
    """The state in words, and the first sentence of the verdict."""
    said = verdict.verdict_of(figures.comparisons, figures.metrics) or ["Nothing is compared."]
    return STATES[news_of(figures.found)].word if figures.found else "-", str(said[0])


def title_of_tests(figures: Figures) -> str:
    """The title of the page of several tests."""
    return f"{len(figures.tests):,} tests of {figures.record.get(DATE) or 'a ranking'}"


def index(parts: Mapping[str, Figures], title: str, page: str = "", lost: Mapping[str, str] | None = None) -> str:
    """The page of several tests, or days.

    Args:
        parts: The figures of each.
        title: Of the page.
        page: Name of the file beside which their pages are.
        lost: A day whose run has published nothing -> why not.
    """
    items = [_line(day, "not published", said, [], "") for day, said in (lost or {}).items()]
    rows = []
    for name, own in parts.items():
        with counted_in(own.unit):
            state, said = said_of(own)
            beside = [*overview.status_line(own), *overview.weak_checks(checks(own), story.answer(own).level == "ok")]
        bad = [fact for fact in beside if fact.level in ("warn", "fail")]
        rows.append((NEWS.index(news_of(own.found)), -len(bad), _line(name, state, said, beside, page)))
    items += [line for *_, line in sorted(rows, key=lambda row: row[:2])]
    colors = {"light": assets.css(assets.LIGHT), "dark": assets.css(assets.DARK)}
    return assets.file_text("index.html").format(
        title=escape(title), style=assets.file_text("page.css"), tests="\n".join(items), **colors
    )


def _line(name: str, state: str, said: str, beside: Sequence[Fact], page: str) -> str:
    shown = escape(printable(name))
    link = f'<a href="{escape(quote(name_of_page(page, name)))}">{shown}</a>' if page else shown
    texts = (f'<li class="{each.level}">{_MARKS.get(each.level, "")}{escape(printable(each))}</li>' for each in beside)
    facts = "".join(texts)
    status = f'<ul class="status">{facts}</ul>' if facts else ""
    return f"<li><b>{link}</b> ({escape(state)}): {escape(printable(said))}{status}</li>"


def name_of_page(page: str, test: str) -> str:
    """The file of a test beside the page of all.

    >>> name_of_page("report.html", "new/layout")
    'report.new%2Flayout.html'
    """
    stem, dot, suffix = page.rpartition(".")
    return f"{stem or suffix}.{quote(test, safe='')}{dot if stem else ''}{suffix if stem else ''}"
