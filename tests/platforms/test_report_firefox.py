"""The page in Firefox: ``make test-report`` runs this where Firefox is there. Needs Debian's firefox-esr."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankmetrics_spark.report import Figures, figures_of, local_tables, page
from tests.helpers.firefox import Firefox, firefox
from tests.helpers.hard_pages import PAIRED, systems, wide
from tests.helpers.results import Output

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with firefox(tmp_path_factory.mktemp("profile")) as started:
        yield started


def of_output(output: Path) -> Figures:
    return figures_of(local_tables(str(output)))


def three(folder: Path) -> Figures:
    return of_output(Output(folder / "three").write())


def paired(folder: Path) -> Figures:
    return of_output(Output(folder / "paired", ["control", "candidate_a"], [], further=PAIRED).write())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [three, paired, lambda _: systems(), lambda _: wide(20, 10, 60)],
                         ids=["three", "paired", "pairs", "large"])  # fmt: skip
def test_a_page_is_drawn_without_an_error_and_is_no_wider_than_the_screen(
    window: Firefox, tmp_path: Path, kind: Callable[[Path], Figures], width: int
) -> None:
    file = tmp_path / "r.html"
    file.write_text(page(kind(tmp_path)), encoding="utf-8")
    window.open(file, width)
    result = window.script("""const root = document.documentElement;
        const count = (what) => document.querySelectorAll(what).length;
        return {wide: root.scrollWidth - root.clientWidth, charts: count('#differences .chart svg, .pairs table'),
                cards: count('.card .interval .range'), asked: performance.getEntriesByType('resource').length};""")
    assert (result["wide"], result["asked"], window.errors()) == (0, 0, [])
    assert result["charts"] > 0 and result["cards"] > 0


def test_a_table_sorts_filters_and_a_metric_is_switched_off(window: Firefox, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    file.write_text(page(three(tmp_path)), encoding="utf-8")
    window.open(file, WIDTHS[0])
    window.script("document.querySelector('#differences details.numbers summary').click()")
    window.wait("return Boolean(document.querySelector('#differences details.numbers tbody tr'))")
    rows = """const search = document.querySelector('#differences input[type=search]');
        search.value = arguments[0];
        search.dispatchEvent(new Event('input', {bubbles: true}));
        return document.querySelectorAll('#differences details.numbers tbody tr').length"""
    assert [window.script(rows, [text]) for text in ("", "candidate_a", "difference<0", "users=1")] == [8, 4, 4, 0]
    head = """const heads = [...document.querySelectorAll('#differences details.numbers thead button')];
        heads.find((each) => each.textContent.startsWith('difference')).click();
        return document.querySelector('#differences th[aria-sort]').getAttribute('aria-sort')"""
    assert [window.script(head) for _ in range(2)] == ["descending", "ascending"]
    charts = "return document.querySelectorAll('#differences .chart').length"
    before = window.script(charts)
    window.script("[...document.querySelectorAll('#controls button')].find((b) => b.textContent === 'NDCG@5').click()")
    window.wait(f"return (() => {{ {charts} }})() === {before - 1}")
    assert window.errors() == []
