"""The user guide in a real browser, from its files: ``make test-report``. Needs Debian's chromium."""

import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [ROOT / ".venvs/docs/bin/python", "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", folder]
    done = subprocess.run([*map(str, build)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def opened(browser: Browser, file: Path, width: int, scheme: str) -> tuple[Page, list[str]]:
    """A page of the guide, and everything that it says or asks for that it should not."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page, words = context.new_page(), []  # type: ignore[var-annotated]
    page.on("console", lambda message: words.append(message.text))
    page.on("pageerror", lambda error: words.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else words.append(request.url[:80]))
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    return page, [text for text in words if not text.startswith(("data:", "blob:"))]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_no_wider_than_a_phone_and_load_nothing(browser: Browser, site: Path, name: str, scheme: str) -> None:
    page, message = opened(browser, site / f"{name}.html", 390, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    assert message == []
    page.context.close()


def test_the_search_finds_a_page_without_a_server(browser: Browser, site: Path) -> None:
    page, message = opened(browser, site / "index.html", 1200, "light")
    page.click(".md-search__input")
    page.keyboard.type("bootstrap")
    result = page.locator(".md-search-result__item a.md-search-result__link")
    result.first.wait_for()
    # Other pages have the word too.
    assert any("comparing.html" in str(link.get_attribute("href")) for link in result.all())
    assert message == []
    page.context.close()


def test_a_signature_has_a_line_per_argument_and_a_doctest_is_code(browser: Browser, site: Path) -> None:
    page, _ = opened(browser, site / "reference.html", 1200, "light")
    lines = page.locator("[id='rankmetrics_spark.comparison.compare'] ~ .doc-signature").first.inner_text().splitlines()
    assert lines[0] == "compare(" and lines[1].strip() == "user_metrics: AnyTable," and lines[-1] == ") -> ResultTable"
    assert page.locator("pre code", has_text='("MAP@10", "Precision@5"').count() == 1
    assert ">>>" not in page.locator("article p").all_inner_texts()
    page.context.close()
