"""The page of several tests or days: a line for each, the worst news first, and the way to its own page."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rankmetrics_spark import findings as fd, schemas as sch
from rankmetrics_spark.report import overview, story, verdict
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.trust import checks
from rankmetrics_spark.words import STATES, counted_in


def said_of(figures: Figures) -> tuple[str, str]:
    """The state in words, and the first sentence of the verdict."""
    said = verdict.verdict_of(figures.comparisons, figures.metrics) or ["Nothing is compared."]
    return STATES[fd.news_of(figures.found)].word if figures.found else "-", str(said[0])


def title_of_tests(figures: Figures) -> str:
    """The title of the page of several tests."""
    return f"{len(figures.tests):,} tests of {figures.record.get(sch.DATE) or 'a ranking'}"


def lines_of(parts: Mapping[str, Figures], page: str, lost: Mapping[str, str]) -> list[dict[str, Any]]:
    """A line of the page of several tests, or days, for each: the lost ones, then the worst news first.

    Args:
        parts: The figures of each.
        page: Name of the file beside which their pages are.
        lost: A day whose run has published nothing -> why not.
    """
    lines = []
    for name, own in parts.items():
        with counted_in(own.unit):
            state, said = said_of(own)
            facts = [*overview.status_line(own), *overview.weak_checks(checks(own), story.answer(own).level == "ok")]
        n_bad = sum(fact.level in ("warn", "fail") for fact in facts)
        line = {"name": name, "state": state, "said": said, "facts": facts, "page": page and name_of_page(page, name)}
        lines.append((fd.NEWS.index(fd.news_of(own.found)), -n_bad, line))
    first = [{"name": day, "state": "not published", "said": said} for day, said in lost.items()]
    return [*first, *(line for *_, line in sorted(lines, key=lambda line: line[:2]))]


def name_of_page(page: str, test: str) -> str:
    """The file of a test beside the page of all.

    >>> name_of_page("report.html", "new/layout")
    'report.new%2Flayout.html'
    """
    stem, dot, suffix = page.rpartition(".")
    return f"{stem or suffix}.{quote(test, safe='')}{dot if stem else ''}{suffix if stem else ''}"
