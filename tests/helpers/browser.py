"""A page of the report in a real browser."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DRAWN = "html[data-drawn]:not([data-drawn=''])"
PHONE, DESK = {"width": 390, "height": 800}, {"width": 1280, "height": 900}


@dataclass
class Opened:
    """A page in the browser, and everything that it should not have said or asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path, browser: Browser, **options: Any) -> "Opened":
        result = cls(browser.new_context(**{"viewport": DESK, **options}).new_page())

        def console(message: ConsoleMessage) -> None:
            result.messages.append(f"{message.type}: {message.text}")

        def request(question: Request) -> None:
            if not question.url.startswith(("file:", "data:", "blob:")):
                result.requests.append(question.url)

        result.page.on("console", console)
        result.page.on("request", request)
        result.page.on("pageerror", lambda error: result.messages.append(f"error: {error}"))
        result.page.on("dialog", lambda dialog: result.messages.append(f"dialog: {dialog.message}"))
        result.page.goto(file.as_uri())
        result.page.wait_for_selector(DRAWN, state="attached")
        return result

    def section(self, name: str) -> Locator:
        return self.page.locator(f"section#{name}")

    def table(self, name: str) -> Locator:
        """The table of a section, opened as a person opens it."""
        details = self.section(name).locator("details.numbers")
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        details.locator("tbody tr").first.wait_for()
        return details.locator("table").first

    def redraw(self, act: Callable[[], Any]) -> None:
        """Do something that draws the charts again, and wait for them."""
        self.page.evaluate("document.documentElement.dataset.drawn = ''")
        act()
        self.page.wait_for_selector(DRAWN, state="attached")


def texts(table: Locator, column: int) -> list[str]:
    return [text.strip() for text in table.locator(f"tbody tr > :nth-child({column})").all_inner_texts()]
