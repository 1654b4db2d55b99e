"""Draw the pictures of README and docs from the output folder of the demo: ``make pictures``."""

import re
import shutil
import sys
from io import StringIO
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.read import figures_of, local_tables
from rankmetrics_spark.report.terminal import Shown, table

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DRAWN = "html[data-drawn]:not([data-drawn=''])"
SCREENS = {
    "report": {"viewport": {"width": 1120, "height": 720}},
    "report_dark": {"viewport": {"width": 1120, "height": 720}, "color_scheme": "dark"},
    "report_phone": {"viewport": {"width": 390, "height": 720}},
}
"""Picture -> what the browser pretends to be."""


def draw_terminal(figures: Figures, file: Path) -> None:
    """Verdict and table, as ``make run`` prints them."""
    console = Console(record=True, width=142, file=StringIO())
    for line in figures.record["verdict"]:
        console.print(line, highlight=False, markup=False)
    shown = Shown(list(figures.means), figures.comparisons, figures.metrics)
    console.print(table(shown, shown.columns))
    # Remove the web fonts, because a picture must not download anything.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make run"), flags=re.DOTALL)
    file.write_text(svg, encoding="utf-8")


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
    draw_terminal(figures_of(tables), folder / "result.svg")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        draw_page(chromium, written / "report.html", folder)
        chromium.close()
