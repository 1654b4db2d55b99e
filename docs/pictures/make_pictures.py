"""Draw the pictures of README and docs from the output folder of the demo: ``make pictures``."""

import os
import re
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

from rankmetrics_spark.report import Figures, figures_of, local_tables, print_result, print_verdict

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DRAWN = "html[data-drawn]:not([data-drawn=''])"
SCREENS = {
    "report": {"viewport": {"width": 1120, "height": 720}},
    "report_dark": {"viewport": {"width": 1120, "height": 720}, "color_scheme": "dark"},
    "report_phone": {"viewport": {"width": 390, "height": 720}},
}
"""Picture -> what the browser pretends to be."""


THEMES: dict[str, TerminalTheme] = {"result": DEFAULT_TERMINAL_THEME, "result_dark": DIMMED_MONOKAI}
"""Picture -> the colours of its terminal."""
WIDTH = 142
"""Characters of a line."""


class Terminal(StringIO):
    """A stdout that says that it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def draw_terminal(figures: Figures, folder: Path) -> None:
    """What ``make run`` prints on stdout, in light and in dark colours."""
    os.environ |= {"COLUMNS": str(WIDTH), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    printed = Terminal()
    with redirect_stdout(printed):
        print_verdict(figures.record["verdict"], result=figures)
        print_result(figures)
    for name, theme in THEMES.items():
        console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
        console.print(Text.from_ansi(printed.getvalue()))
        # Remove the web fonts, because a picture must not download anything.
        svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make run", theme=theme), flags=re.DOTALL)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def draw_page(browser: Browser, report: Path, folder: Path) -> None:
    """The first screen of the report in each state, and its differences."""
    for name, options in SCREENS.items():
        page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
        page.goto(report.resolve().as_uri())
        page.wait_for_selector(DRAWN, state="attached")
        page.screenshot(path=folder / f"{name}.png")
        if name == "report":
            page.locator("#differences").screenshot(path=folder / "report_differences.png")


if __name__ == "__main__":
    written, folder = Path(sys.argv[1]), Path(sys.argv[2])
    tables = local_tables(str(written))
    assert tables, f"{written} holds no result: run rankmetrics demo --output {written}"
    draw_terminal(figures_of(tables), folder)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        draw_page(chromium, written / "report.html", folder)
        chromium.close()
