"""Users who lost and gained most in a real browser: ``make test-report``. Needs Debian's chromium."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from rankmetrics_spark.report import Examples, Figures, ListedItem, UserChange
from tests.helpers.browser import Opened

LONG = "q" * 100
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def row(user: str, metric: str, before: float, after: float) -> UserChange:
    kind = "gain" if after > before else "loss"
    return UserChange(metric, LONG, user, before, after, abs(after - before), kind)


def ranked(user: str, experiment: str, items: str, size: int) -> list[ListedItem]:
    """A list of items of one letter; capitals are relevant, and a dot is not judged."""
    grades = [None if item == "." else float(item.isupper()) for item in items]
    return [ListedItem(experiment, user, "", 1, size, rank, item, grade, bool(grade))
            for rank, (item, grade) in enumerate(zip(items, grades, strict=True), start=1)]  # fmt: skip


def figures() -> Figures:
    keys = {"segment": "all", "confidence": 0.95, "note": None, "correction": "holm", "convention": "standard"}
    shared = {**keys, "n_users": 9, "n_users_with_relevant": 9, "n_comparisons": 2, "ci_low": -0.1, "ci_high": 0.3}
    values = {"mean_baseline": 0.4, "mean_candidate": 0.5, "difference": 0.1, "p_adjusted": 0.6, "better": None}
    relative = dict.fromkeys(("relative_difference", "relative_ci_low", "relative_ci_high"))
    names = ("ap@10", "rr")
    means = [{**shared, "experiment_id": name, "metric": m, "mean": 0.4} for name in ("a", LONG) for m in names]
    rows = [{**shared, **values, **relative, "experiment_id": LONG, "baseline": "a", "metric": m} for m in names]
    changes = [row("u1", "ap@10", 1.0, 0.25), row(HOSTILE, "ap@10", 0.0, 0.5), row("u1", "rr", 1.0, 0.5)]
    lists = [*ranked("u1", "a", "Ab.d", 4), *ranked("u1", LONG, "xdAb", 9), *ranked(HOSTILE, "a", "Z", 1)]
    missed = [("u1", "lost item", 2.0, 3)]
    topics = [row("u1", "ap@10", 1.0, 0.25)._replace(size=-0.75), row(HOSTILE, "ap@10", 0.0, 0.5)]
    return Figures(means, rows, examples=Examples(changes, 7, lists, missed, topics, baseline="a"), order=names)


@pytest.fixture(params=[390, 1280])
def shown(request: pytest.FixtureRequest, opened: Callable[..., Opened]) -> Iterator[Page]:
    """The page on a phone and on a desk; afterwards, it is no wider than the screen."""
    page = opened(figures(), viewport={"width": request.param, "height": 900}).page
    yield page
    assert page.evaluate("document.documentElement.scrollWidth") == request.param


def cells(shown: Page, side: int) -> list[list[str]]:
    table = shown.locator("#examples details[open] table").nth(side)
    return [[cell.strip() for cell in line.locator("th, td").all_inner_texts()]
            for line in table.locator("tbody tr").all()]  # fmt: skip


def test_the_lists_stand_side_by_side_with_what_moved(shown: Page) -> None:
    both = [[" ".join(line) for line in cells(shown, side)] for side in (0, 1)]
    assert both[0] == ["1 A ● 1 ▼ 2", "2 b ○ 0 ▼ 2", "3 . not judged ▼ out", "4 d ○ 0 ▲ 2"]
    assert both[1] == ["1 x ○ 0 new", "2 d ○ 0 ▲ 2", "3 A ● 1 ▼ 2", "4 b ○ 0 ▼ 2"]
    section = shown.locator("#examples")
    assert "1.000 → 0.250 (\N{MINUS SIGN}0.750)" in " ".join(section.locator("summary").first.inner_text().split())
    assert "Relevant, and in no list: lost item (2) and 2 more" in section.inner_text()
    assert "3 of 7 changes are here" in section.inner_text()
    assert "(the first 4 of 9)" in section.locator("caption").nth(1).inner_text()


def test_metric_and_direction_are_chosen_and_names_are_text(shown: Page) -> None:
    metric, _, direction = shown.locator("#examples select").all()
    assert metric.locator("option").all_inner_texts() == ["MAP@10", "MRR"]
    direction.select_option(label="largest gains")
    first = shown.locator("#examples summary").first.inner_text()
    assert first.startswith("User <img src=x onerror=alert(1)>\\u202e")
    metric.select_option(label="MRR")
    assert "None gained on this metric." in shown.locator("#examples").inner_text()
    direction.select_option(label="largest losses")
    assert shown.locator("#examples summary").count() == 1


@pytest.mark.parametrize("width", [390, 1280])
def test_of_all_pairs_the_best_is_left_and_the_next_are_right(opened: Callable[..., Opened], width: int) -> None:
    of_pairs = Examples(
        [row("u1", "ap@10", 1.0, 0.25)], 1, ranked("u1", "a", "Ab", 2), baseline="a", others=(1, 11), is_ahead=True
    )
    for examples, message in (
        (of_pairs, "Left is a, which is ahead, right one of the best 1 of 11 others. Losses"),
        (replace(of_pairs, is_ahead=False, others=(1, 1)), "Left is a, which has the best mean, right another exp"),
        (Examples((), baseline="a", note="Each user has seen one experiment."), "Each user has seen one experiment."),
    ):
        shown = opened(replace(figures(), examples=examples), viewport={"width": width, "height": 900})
        section = shown.section("examples")
        assert section.locator("#examples-intro").inner_text().startswith(message)
        assert section.get_by_label("On the right").count() == len(examples.changes)
        assert shown.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_lists_side_by_side(opened: Callable[..., Opened], scheme: str) -> None:
    # The script of axe is no script of the page.
    shown = opened(figures(), color_scheme=scheme, bypass_csp=True)
    assert [result["id"] for result in Axe().run(shown.page).response["violations"]] == []


def test_a_few_users_have_a_bar_each_the_largest_loss_first(shown: Page) -> None:
    bars = shown.locator("#examples svg g")
    widths = [float(str(bar.get_attribute("width"))) for bar in bars.locator("rect").all()]
    assert widths[0] == pytest.approx(1.5 * widths[1], rel=1e-6), "0.75 against 0.5"
    assert [bar.get_attribute("class") for bar in bars.locator("rect").all()] == ["down", "up"]
    assert bars.locator("title").first.text_content() == "u1: 1.000 → 0.250"
