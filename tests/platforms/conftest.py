"""Fixtures of the platform suites: a browser, and pages of the report in it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from rankmetrics_spark.report import Figures
    from tests.helpers.browser import Opened


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    from tests.helpers.browser import FLAGS

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "chromium not found: apt install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: "Browser", tmp_path: Path) -> "Iterator[Callable[..., Opened]]":
    """Open the page of an output folder or of figures; afterwards, it has reported no error and asked for nothing."""
    from rankmetrics_spark.report import MOST_BYTES, figures_of, local_tables, page
    from tests.helpers.browser import Opened

    pages: list[Opened] = []

    def open_page(output: "Path | Figures", **options: Any) -> "Opened":
        file = tmp_path / f"report-{len(pages)}.html"
        shown = figures_of(local_tables(str(output))) if isinstance(output, Path) else output
        file.write_text(page(shown), encoding="utf-8")
        assert file.stat().st_size < MOST_BYTES < 2_000_000
        pages.append(Opened.of(file, browser, **options))
        return pages[-1]

    yield open_page
    for each in pages:
        assert (each.messages, each.requests) == ([], [])
        each.page.context.close()


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """The output of a run of three experiments."""
    from tests.helpers.results import Output

    return Output(tmp_path / "three").write()
