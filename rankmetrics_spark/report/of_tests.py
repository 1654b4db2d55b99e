"""The page of several tests: a line for each, the worst news first, and the way to its own page."""

from html import escape
from urllib.parse import quote

from rankmetrics_spark.errors import printable
from rankmetrics_spark.findings import news_of
from rankmetrics_spark.report.assets import DARK, LIGHT, css, file_text
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.verdict import verdict_of
from rankmetrics_spark.schemas import DATE
from rankmetrics_spark.words import STATES

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="rankmetrics_spark">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>{style}
:root {{{light}}} @media (prefers-color-scheme: dark) {{:root {{{dark}}}}}
</style></head>
<body><main><section class="answer"><h1>{title}</h1><ul class="tests">{tests}</ul></section></main></body></html>
"""


def lines_of_tests(figures: Figures) -> list[tuple[str, str, str]]:
    """Each test, its state in words, and what its first sentence says; the worst news first."""
    lines = []
    for name, own in figures.tests.items():
        said = verdict_of(own.comparisons, own.metrics) or ["Nothing is compared."]
        lines.append((name, STATES[news_of(own.found)].word if own.found else "-", str(said[0])))
    return lines


def index(figures: Figures, page: str = "") -> str:
    """The page of several tests; ``page`` is the name of the file beside which those of the tests are."""
    items = []
    for name, state, sentence in lines_of_tests(figures):
        shown = escape(printable(name))
        link = f'<a href="{escape(quote(name_of_page(page, name)))}">{shown}</a>' if page else shown
        items.append(f"<li><b>{link}</b> ({escape(state)}): {escape(printable(sentence))}</li>")
    title = f"{len(items):,} tests of {figures.record.get(DATE) or 'a ranking'}"
    colors = {"light": css(LIGHT), "dark": css(DARK)}
    return _PAGE.format(title=escape(title), style=file_text("page.css"), tests="\n".join(items), **colors)


def name_of_page(page: str, test: str) -> str:
    """The file of a test beside the page of all.

    >>> name_of_page("report.html", "new/layout")
    'report.new%2Flayout.html'
    """
    stem, dot, suffix = page.rpartition(".")
    return f"{stem or suffix}.{quote(test, safe='')}{dot if stem else ''}{suffix if stem else ''}"
