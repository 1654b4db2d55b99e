"""The report in a real browser: ``make test-report``. Needs Debian's chromium (``apt install chromium``)."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser

from rankmetrics_spark import cli
from rankmetrics_spark.report import Figures, figures_of, local_tables, write_page
from rankmetrics_spark.words import Change
from tests.helpers.browser import DESK, PHONE, Opened, texts
from tests.helpers.figures import compared, mean
from tests.helpers.results import Output

MARKUP, QUOTES = "<script>alert(1)</script>", "\"quotes' & <b>bold</b>"
HOSTILE = (MARKUP, QUOTES, "\u202eback\u202c \u05e2\u05d1\u05e8\u05d9\u05ea", "x" * 230)


# ---- the answer, without a click


def test_the_page_opens_with_the_winner_and_how_sure_that_is(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    assert result.page.locator("h1").inner_text() == "candidate_a beats control"
    first_screen = result.page.locator("#answer").inner_text()
    rows = {row["metric"]: row for row in parquet(three, "comparisons", "candidate_a") if row["segment"] == "all"}
    assert Change(100 * rows["ap@10"]["relative_difference"], " %").text in first_screen
    assert "Chance alone would almost never give this (p < 0.001, corrected for 24 comparisons)." in first_screen
    assert result.page.locator(".card").count() == 2
    box = result.page.locator(".card.better").bounding_box()
    assert box and box["y"] + box["height"] < DESK["height"]


def test_what_makes_a_verdict_untrustworthy_stands_at_the_top(opened: Callable[..., Opened], tmp_path: Path) -> None:
    note = "not trustworthy: the users do not follow the planned shares (p = 1e-09)"
    output = Output(tmp_path / "bad", users=60, note=note)
    result = opened(output.write(quality={"warnings": ["tie_rate is 31.00%"]}))
    assert result.page.locator("h1").inner_text() == "No verdict: these numbers are not to be trusted"
    assert result.page.locator(".check.warn strong").all_inner_texts() == [
        "Number of users", "Split of the users", "Quality of the log",
    ]  # fmt: skip
    answer = result.page.locator("#answer").inner_text()
    assert "The split of users is off (p < 0.001). Find the cause before you read the numbers." in answer
    weak = result.page.locator(".status a")
    assert weak.inner_text() == "Number of users and Quality of the log did not pass"
    assert "p <" not in result.page.locator(".card").first.inner_text()
    figures = figures_of(local_tables(str(output.path)))
    record = {**figures.record, "outcome": "failed", "error": {"message": "it fell"}}
    failed = opened(replace(figures, record=record))
    first = failed.page.locator("h1 .refused")
    assert "Not published: it fell" in first.inner_text()
    assert float(first.evaluate("element => parseFloat(getComputedStyle(element).marginBottom)")) > 12


# ---- the numbers


def parquet(output: Path, table: str, experiment: str) -> list[dict[str, Any]]:
    (file,) = (output / table / f"experiment_id={experiment}").glob("*/*.parquet")
    rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
    return rows


def test_the_numbers_of_the_page_are_those_of_the_parquet_files(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    data = json.loads(result.page.locator("#data").inner_text())
    names, segments, metrics = data["experiments"], data["segments"], [metric["name"] for metric in data["metrics"]]
    for table, short, columns in (
        ("means", "experiment_metrics", {"mean": "mean", "low": "ci_low", "high": "ci_high", "n": "n_users"}),
        ("compared", "comparisons", {"d": "difference", "rel": "relative_difference", "p": "p_adjusted"}),
    ):
        shown = data[table]
        keys = zip(shown["e"], shown["s"], shown["m"], strict=True)
        inside = {(names[e], segments[s], metrics[m]): i for i, (e, s, m) in enumerate(keys)}
        written = {
            (name, row["segment"], row["metric"]): row
            for name in names
            if (three / short / f"experiment_id={name}").exists()
            for row in parquet(three, short, name)
            # Where something was compared, the page shows the differences by segment, and no means of them.
            if table == "compared" or row["segment"] == "all"
        }
        assert inside.keys() == written.keys() and len(written) >= 12
        for key, row in written.items():
            assert [shown[name][inside[key]] for name in columns] == [row[column] for column in columns.values()]
    # And what a person sees of them.
    table = result.table("means")
    shown_means = dict(zip(zip(texts(table, 1), texts(table, 2), strict=True), texts(table, 3), strict=True))
    for name in names:
        for row in parquet(three, "experiment_metrics", name):
            if row["segment"] == "all":
                label = row["metric"].replace("ndcg", "NDCG").replace("ap@", "MAP@")
                assert shown_means[name, label] == f"{row['mean']:.4f}"


def test_the_users_of_each_step_are_those_of_the_parquet_files(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    table = result.table("users")
    result.section("users").get_by_role("searchbox").fill("control MAP@10")
    rows = list(zip(*(texts(table, column) for column in range(1, 6)), strict=True))
    upto = [row for row in rows if row[:2] == ("control", "MAP@10")]
    values = [row["ap_at_10"] for row in parquet(three, "user_metrics", "control")]
    assert sum(int(row[3]) for row in upto) == len(values) == 400
    cumulative = 0
    for row in sorted(upto, key=lambda row: float(row[2])):
        cumulative += int(row[3])
        assert cumulative == sum(value <= float(row[2]) for value in values)


# ---- what a person does


def test_hovering_over_a_mark_shows_its_values(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    result.section("differences").scroll_into_view_if_needed()
    mark = result.section("differences").locator(".chart svg .mark-symbol path").first
    box = mark.bounding_box()
    assert box
    result.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = result.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    rows = {row["metric"]: row for row in parquet(three, "comparisons", "candidate_a") if row["segment"] == "all"}
    message = tip.inner_text()
    # The metric that decides comes first.
    assert "candidate_a" in message and "MAP@10" in message and "800" in message
    assert Change(100 * rows["ap@10"]["relative_difference"], " %").text in message


def test_the_line_that_is_pointed_at_stands_out_among_ten(opened: Callable[..., Opened], tmp_path: Path) -> None:
    result = opened(Output(tmp_path / "ten", [f"model-{place}" for place in range(10)], [], users=60).write())
    for name in ("means", "users"):
        figure = result.section(name).locator("figure").first
        lines = figure.locator(".mark-line path")
        plain = lines.evaluate_all("paths => paths.map((path) => path.style.strokeOpacity)")
        figure.locator(".legend span", has_text="model-3").hover()
        faded = lines.evaluate_all("paths => paths.filter((path) => path.style.strokeOpacity === '0.1').length")
        assert (lines.count(), plain, faded) == (10, [""] * 10, 9)
    lines.nth(4).dispatch_event("pointerover")
    assert lines.nth(4).evaluate("path => path.style.strokeOpacity") == ""
    result.page.mouse.move(2, 2)
    # One that is chosen stays so, in ink: the accent is for what is better, and the answer calls the second one so.
    inks = "paths => paths.map((path) => getComputedStyle(path).stroke)"
    accent, before = result.page.locator(".change").evaluate("e => getComputedStyle(e).color"), lines.evaluate_all(inks)
    result.redraw(lambda: result.page.get_by_label("Experiment that stands out").select_option("model-7"))
    after = lines.evaluate_all(inks)
    assert before.count(accent) == after.count(accent) == 1 and before.index(accent) == after.index(accent)
    assert lines.evaluate_all("paths => paths.filter((path) => path.style.strokeOpacity === '0.1').length") == 9
    result.redraw(lambda: result.page.get_by_label("Experiment that stands out").select_option("none"))
    assert lines.evaluate_all("paths => paths.every((path) => !path.style.strokeOpacity)")


def test_experiments_and_metrics_can_be_switched_on_and_off(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    headings = result.section("differences").locator("h3")
    labels = result.section("differences").locator(".chart").first.locator("svg")
    assert (headings.count(), "candidate_b" in (labels.text_content() or "")) == (4, True)
    chips = result.page.locator("#controls")
    result.redraw(lambda: chips.get_by_role("button", name="MAP@5").click())
    assert headings.count() == 3
    assert chips.get_by_role("button", name="MAP@5").get_attribute("aria-pressed") == "false"
    result.redraw(lambda: chips.get_by_role("button", name="candidate_b").click())
    left = labels.text_content() or ""
    assert "candidate_b" not in left and "candidate_a" in left


def test_a_table_sorts_and_filters(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    table = result.table("differences")
    head = table.get_by_role("button", name="difference")
    numbers = lambda: [float(re.sub(r"[^-+.\d]", "", t.replace("\u2212", "-"))) for t in texts(table, 5)]  # noqa: E731
    head.click()
    assert len(numbers()) == 8 and numbers() == sorted(numbers(), reverse=True)
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    head.click()
    assert numbers() == sorted(numbers())
    result.section("differences").get_by_role("searchbox").fill("candidate_b ndcg")
    assert texts(table, 1) == ["candidate_b"] * 2 and set(texts(table, 2)) == {"NDCG@5", "NDCG@10"}
    assert result.section("differences").get_by_role("status").inner_text() == "2 rows"


def test_a_chart_zooms_with_shift_and_the_wheel_and_comes_back(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    chart = result.section("differences").locator(".chart").first
    chart.scroll_into_view_if_needed()
    axis = lambda: sorted(chart.locator("svg .role-axis-label text").all_text_contents())  # noqa: E731
    before, box = axis(), chart.bounding_box()
    assert box
    result.page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 20)
    result.page.mouse.wheel(0, -400)
    assert axis() == before, "the wheel alone scrolls the page"
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    result.page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 20)
    result.page.keyboard.down("Shift")
    result.page.mouse.wheel(0, -400)
    result.page.wait_for_timeout(300)
    assert axis() != before
    result.page.keyboard.up("Shift")
    result.page.mouse.dblclick(box["x"] + 0.7 * box["width"], box["y"] + 20)
    result.page.wait_for_timeout(300)
    assert axis() == before


# ---- how it looks


def colours(result: Opened) -> tuple[str, str, str]:
    """Paper, ink, and the ink of an axis."""
    read = "element => [getComputedStyle(element).backgroundColor, getComputedStyle(element).color]"
    paper, ink = result.page.locator("body").evaluate(read)
    label = result.page.locator("#differences svg .role-axis-label text").first
    return paper, ink, label.evaluate("element => getComputedStyle(element).fill")


def luminance(colour: str) -> float:
    """WCAG's relative luminance of ``rgb(...)``."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_light_and_dark_are_readable_in_text_and_charts(opened: Callable[..., Opened], three: Path) -> None:
    light, dark = (opened(three, color_scheme=scheme) for scheme in ("light", "dark"))
    assert luminance(colours(light)[0]) > 0.9 and luminance(colours(dark)[0]) < 0.05
    for result in (light, dark):
        paper, ink, label = colours(result)
        assert contrast(paper, ink) > 7 and contrast(paper, label) > 4.5
        soft = result.page.locator(".sure").first.evaluate("element => getComputedStyle(element).color")
        accent = result.page.locator(".card.better .number").evaluate("element => getComputedStyle(element).color")
        assert contrast(paper, soft) > 4.5 and contrast(paper, accent) > 4.5
    light.page.get_by_role("button", name="Dark colours").click()
    assert colours(light) == colours(dark)


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(opened: Callable[..., Opened], three: Path, width: int) -> None:
    result = opened(three, viewport={"width": width, "height": 800})
    for name in ("differences", "means", "users", "segments"):
        result.table(name)
    assert result.page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in result.page.locator(".chart svg").all():
        box = chart.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width + 1


def test_a_page_that_is_printed_at_once_has_every_chart(browser: Browser, three: Path) -> None:
    page = browser.new_page(viewport=DESK)
    # What is not on the screen is drawn when the browser has time; here it never has.
    page.add_init_script("requestIdleCallback = () => 0; delete window.IntersectionObserver")
    count = "[...document.querySelectorAll('.chart')].map((chart) => chart.querySelectorAll('svg path').length > 3)"
    page.add_init_script(f"addEventListener('afterprint', () => {{ window.printed = {count}; }})")
    page.goto(write_page(figures_of(local_tables(str(three))), three / "page.html").as_uri())
    page.wait_for_selector("html[data-seen]:not([data-seen=''])", state="attached")
    assert not all(page.evaluate(count))
    page.pdf()
    assert len(page.evaluate("printed")) >= 12 and all(page.evaluate("printed"))
    page.close()


def test_print_shows_the_differences_in_light_colours(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three, color_scheme="dark")
    result.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    result.page.emulate_media(media="print", color_scheme="dark")
    assert luminance(colours(result)[0]) > 0.9
    assert result.page.locator("details.numbers[open] table tbody tr").count() == 8
    assert not result.page.locator("#controls").is_visible()
    assert result.page.locator("select").count() > 1 and not result.page.locator("select:visible").count()
    result.page.emulate_media(media="screen")
    result.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert result.page.locator("details.numbers[open]").count() == 0


def test_keyboards_reach_every_control_and_every_figure_has_a_name(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    reached = []
    for _ in range(60):
        result.page.keyboard.press("Tab")
        reached.append(result.page.evaluate("document.activeElement.textContent.trim().slice(0, 40)"))
    assert reached[0] == "Skip to the answer"
    # After the last one, the browser begins again.
    reached = reached[: reached.index("Skip to the answer", 1)]
    assert {"control", "candidate_a", "MAP@5", "NDCG@10"} <= set(reached)
    assert reached.count("The numbers as a table") == 4
    chip = result.page.locator("#controls").get_by_role("button", name="MAP@5")
    chip.focus()
    result.redraw(lambda: result.page.keyboard.press("Space"))
    assert chip.get_attribute("aria-pressed") == "false"
    figures = result.page.locator("[role=img]")
    assert figures.count() > 8
    named = [figure.get_attribute("aria-label") or "" for figure in figures.all()]
    assert all("The numbers are in the table below" in name for name in named)
    assert result.page.locator("h1").count() == 1
    controls = "[...document.querySelectorAll('button, select, input')]"
    unnamed = f"{controls}.filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).length"
    assert result.page.evaluate(unnamed) == 0


# ---- how much, and what names


def test_128_experiments_fit_and_the_page_says_how_many_it_draws(opened: Callable[..., Opened], tmp_path: Path) -> None:
    names = ["control", *(f"model-{number:03d}" for number in range(127))]
    countries = [f"country={name}" for name in ("DE", "FR", "GB", "PL", "SE", "IT", "ES", "NL")]
    result = opened(Output(tmp_path / "many", names, countries, users=200).write())
    assert "10 of 128 experiments are drawn" in result.section("differences").inner_text()
    table = result.table("differences")
    assert table.locator("tbody tr").count() == 50
    result.section("differences").get_by_role("button", name="Show all 508").click()
    assert table.locator("tbody tr").count() == 127 * 4
    result.page.locator(".picker summary").click()
    result.page.locator(".picker input[type=search]").fill("model-099")
    assert result.page.locator(".picker li:visible").count() == 1
    result.redraw(lambda: result.page.locator(".picker li:visible input").check())
    assert "11 of 128 experiments are drawn" in result.section("differences").inner_text()
    result.redraw(lambda: result.page.get_by_role("button", name="All", exact=True).click())
    drawn = result.section("differences").locator(".chart").first.locator("svg .mark-symbol path")
    assert drawn.count() == 127


def test_a_shortened_table_says_how_many_rows_there_are(opened: Callable[..., Opened], tmp_path: Path) -> None:
    # 130 candidates and 31 metrics: 4,030 differences, and more than a page holds of everything else.
    names = ["control", *(f"model-{number:03d}" for number in range(130))]
    metrics = [f"ndcg@{cut}" for cut in range(1, 32)]
    output = Output(tmp_path / "large", names, [], users=60, metrics=metrics, effects={"model-129": 0.3}).write()
    result = opened(output)
    assert result.page.locator("h1").inner_text() == "model-129 beats control"
    section = result.section("differences")
    held = json.loads(result.page.locator("#data").inner_text())["compared"]["e"]
    assert 130 <= len(held) < 4_030
    assert f"This page holds {len(held):,} of 4,030 rows." in section.inner_text()
    assert f"{len(held):,} of 4,030 rows" in result.table("differences").locator("caption").inner_text()


def test_the_interval_of_a_percentage_is_shown_from_low_to_high(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    rows = {row["metric"]: row for row in parquet(three, "comparisons", "candidate_a") if row["segment"] == "all"}
    table = result.table("differences")
    result.section("differences").get_by_role("searchbox").fill("candidate_a MAP@10")
    low, high = (Change(100 * rows["ap@10"][f"relative_ci_{end}"], " %").text for end in ("low", "high"))
    assert texts(table, 8) == [f"{low.removesuffix(' %')} to {high}"]


def test_names_that_look_like_markup_are_shown_as_text(opened: Callable[..., Opened], tmp_path: Path) -> None:
    segments = ["country=<img src=x onerror=alert(2)>", "city=" + "y" * 10_000]
    output = Output(tmp_path / "hostile", ["control", *HOSTILE], segments).write()
    result = opened(output)
    assert result.page.locator("h1").inner_text() == f"{HOSTILE[0]} beats control"
    shown = set(texts(result.table("differences"), 1))
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[3]} <= shown
    assert "\\u202eback\\u202c \u05e2\u05d1\u05e8\u05d9\u05ea" in shown
    in_segments = set(texts(result.table("segments"), 2))
    assert {segments[0], segments[1]} == in_segments
    assert result.page.locator("main img, main script, main b").count() == 0
    # Neither what is seen nor what a hovered mark or a reader of the screen says has a sign that turns it around.
    every = "[...document.querySelectorAll('*')].flatMap((one) => [...one.attributes].map(({ value }) => value))"
    said = [result.page.title(), result.page.locator("body").inner_text(), *result.page.evaluate(every)]
    assert "\\u202eback" in "".join(said) and not re.search("[\u202a-\u202e\x7f-\x9f]", "".join(said))
    assert result.page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]


def test_dates_make_a_line_of_differences_with_bad_days_shaded(opened: Callable[..., Opened], tmp_path: Path) -> None:
    output = Output(tmp_path / "days")
    for day in (1, 2, 3, 5):
        more = {"quality": {"warnings": ["tie_rate is 31.00%"]}} if day == 3 else {}
        output.write(f"2026-11-0{day}", seed=day, **more)
    result = opened(output.path)
    trend = result.section("trend")
    assert trend.is_visible() and trend.locator(".chart").count() == 4
    assert "Difference of each day by itself, with 95 % intervals; 0 is no difference to control." in trend.inner_text()
    assert "Grey days, from light to dark: the run warned, nothing is published." in trend.inner_text()
    table = result.table("trend")
    assert table.locator("tbody tr").count() == 4 * 2 * 4
    assert set(texts(table, 1)) == {f"2026-11-0{day}" for day in (1, 2, 3, 5)}
    (file,) = (output.path / "comparisons" / "experiment_id=candidate_a").glob("*-05/*.parquet")
    rows = {row["metric"]: row for row in pq.ParquetFile(file).read().to_pylist() if row["segment"] == "all"}
    cells = [row.locator("td, th").all_inner_texts() for row in table.locator("tbody tr").all()]
    shown = next(row for row in cells if row[:3] == ["2026-11-05", "candidate_a", "MAP@10"])
    assert shown[7] == Change(100 * rows["ap@10"]["relative_difference"], " %").text
    days = trend.locator("table").nth(1)
    assert texts(days, 1) == ["2026-11-04", "2026-11-03"], "the worst first"
    assert texts(days, 2) == ["nothing is published", "the run warned"]
    trend.locator(".chart").first.locator("svg .mark-rect path").first.hover(force=True)
    tip = result.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "tie_rate is 31.00%" in tip.inner_text()


@pytest.mark.parametrize("view", [DESK, PHONE], ids=["desk", "phone"])
def test_one_experiment_without_comparisons_has_a_page_too(
    opened: Callable[..., Opened], tmp_path: Path, view: dict[str, int]
) -> None:
    output = Output(tmp_path / "one", ["only <one>"]).write()
    result = opened(output, viewport=view)
    assert result.page.evaluate("document.documentElement.scrollWidth") <= view["width"]
    (file,) = (output / "experiment_metrics").glob("*/*/*.parquet")
    rows = {(row["segment"], row["metric"]): row["mean"] for row in pq.ParquetFile(file).read().to_pylist()}
    mean = rows["all", "ap@10"]
    assert result.page.locator("h1").inner_text() == f"MAP@10 of only <one> is {mean:.3f}"
    assert "There is one experiment, so nothing to compare it with." in result.page.locator("#answer").inner_text()
    assert not result.section("differences").is_visible() and result.section("segments").is_visible()


# ---- the command


def test_the_command_writes_the_page_without_spark(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_session(master: str | None) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rankmetrics_spark.cli.options.session_of", no_session)
    monkeypatch.setattr(cli, "session_of", no_session)
    target = tmp_path / "new folder" / "report.html"
    arguments = ["report", "--input", str(three), "--html", str(target)]
    cli.main(arguments, "rankmetrics", standalone_mode=False)
    assert f"open the report: {target}" in capsys.readouterr().err
    assert "candidate_a beats control" not in target.read_text(encoding="utf-8")[:200]
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--date", "2020-01-01"], "rankmetrics", standalone_mode=False)
    assert caught.value.code == 3
    assert "--date: nothing is published on 2020-01-01" in capsys.readouterr().err


def test_a_chart_without_a_number_is_a_sentence(opened: Callable[..., Opened]) -> None:
    # Two users in each experiment, and no click: nothing differs, and nothing can be said of it.
    unknown = compared("b", None, 0.0, "a", note="no users with relevant items in a and b") | {
        name: None for name in ("difference", "relative_difference", "ci_low", "ci_high", "p_adjusted")
    }
    result = opened(Figures([mean("a", value=0.0), mean("b", value=0.0)], [unknown]))
    nothing = result.page.locator("#differences figure.nothing p")
    assert nothing.all_inner_texts() == ["There is nothing to draw: no difference is known, and the table says why."]
    assert not result.page.locator("#differences .chart").count()
    # Where nobody has a relevant item, there is one sentence, and what to check.
    means = [mean(name, value=0.0) | {"n_users_with_relevant": 0} for name in "ab"]
    result = opened(Figures(means, [unknown]))
    assert result.page.locator("h1").inner_text() == "Nobody has a relevant item, so there is nothing to compare"
    assert "source.columns.relevance" in result.page.locator("#answer .sure").inner_text()
    assert result.page.locator(".card, .chart, #controls:visible, figure, #further:visible").count() == 0
    # On other dates, somebody has: these are drawn.
    trend = [mean(name) | {"evaluation_date": date} for name in "ab" for date in ("2026-11-19", "2026-11-20")]
    assert opened(Figures(means, [unknown], trend=trend)).section("trend").locator(".chart").count() == 1
