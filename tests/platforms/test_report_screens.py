"""What people decide from a page, at any size, on paper, on a phone and without eyes: ``make test-report``."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from rankmetrics_spark.report import Examples, Figures, ListedItem, UserChange, figures_of, html, local_tables, page
from tests.helpers.browser import DESK, PHONE, Opened, texts
from tests.helpers.hard_pages import PAIRED, compared, mean, systems, wide
from tests.helpers.results import Output


@pytest.fixture
def paired(tmp_path: Path) -> Path:
    output = Output(tmp_path / "paired", ["control", "candidate_a"], [], further=PAIRED)
    return output.write(judgements={"path": "qrels"})


# ---- the first screen


def test_five_questions_are_answered_above_the_charts(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    status = [text.strip() for text in result.page.locator(".status li").all_inner_texts()]
    users = "400 users in each experiment"
    assert status == ["Evaluation date 2026-11-20", users, "no gates", "split of users not checked"]
    answer = result.page.locator("#answer").inner_text()
    places = [answer.index(text) for text in ("Evaluation date", "candidate_a beats control", "MAP@10 rose from")]
    assert places == sorted(places)
    assert re.search(r"What else moved in candidate_a: NDCG@\d+ is better \(\+\d+\.\d %\); (N|M)", answer)
    card = result.page.locator(".card.better").inner_text()
    assert re.search(r"0\.\d+ → 0\.\d+", card) and "independent, 800 users" in card
    tops = [result.section(name).bounding_box() or {} for name in ("checks", "differences")]
    assert tops[0]["y"] < tops[1]["y"]


def test_the_contents_lead_to_every_section(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three)
    result.page.locator(".contents summary").click()
    links = result.page.locator("#contents a")
    assert {"Can this be trusted?", "Differences", "Segments", "The run"} <= {*links.all_inner_texts()}
    targets = [link.get_attribute("href") or "" for link in links.all()]
    assert all(result.page.locator(f"{target}:visible").count() == 1 for target in targets)


def test_a_section_that_the_contents_lead_to_begins_below_the_bar(opened: Callable[..., Opened]) -> None:
    result = opened(wide(30, 40, 4))
    for name in ("Differences", "Segments"):
        result.page.locator(".contents summary").click()
        result.page.locator("#contents a", has_text=name).click()
        title, bar = (result.page.locator(f"{each}").bounding_box() for each in (f"#{name.lower()}-title", "#controls"))
        assert title and bar and bar["y"] + bar["height"] <= title["y"] < 500, name


def test_the_pairs_of_many_systems_begin_with_the_best_and_the_closest_to_it(opened: Callable[..., Opened]) -> None:
    answer = opened(systems()).page.locator("#answer").inner_text()
    # system_10 is 0.015 behind, which is not clear; 0.03 of system_09 is.
    assert "system_11 beats 10 of 11 others" in answer
    assert "The closest of them is system_09. MAP rose from 0.500 (system_09) to 0.530 (system_11): +6.0 %" in answer
    assert "(95 % interval +2.0 to +10.0 %)" in answer and "What else moved in system_11 against system_09:" in answer


def test_three_questions_of_people_are_answered_by_the_page_alone(opened: Callable[..., Opened], paired: Path) -> None:
    figures = figures_of(local_tables(str(paired)))
    change = UserChange("ap@10", "candidate_a", "u7", 1.0, 0.5, 0.5, "loss")
    rows = [
        ListedItem(name, "u7", "", 1, 2, rank, item, float(item == "hit"), item == "hit")
        for name, items in (("control", ["hit", "miss"]), ("candidate_a", ["miss", "hit"]))
        for rank, item in enumerate(items, start=1)
    ]
    result = opened(replace(figures, examples=Examples([change], 1, rows, baseline="control")))
    answer = result.page.locator("#answer").inner_text()
    # Ship it?
    assert "candidate_a beats control" in answer and re.search(r"rose from 0\.\d+ \(control\) to 0\.\d+", answer)
    assert answer.count(" is better (+") == 3
    # Why did it lose? For the user who lost most, the relevant item moved down by one rank.
    lists = result.section("examples").locator("details[open] table")
    items = [line.split()[:2] for line in lists.nth(1).locator("tbody tr").all_inner_texts()]
    assert items == [["1", "miss"], ["2", "hit"]]
    assert "▼ 1" in lists.nth(1).locator("tr.hit").inner_text()
    # Can I trust today's number?
    checks = result.section("checks").inner_text()
    for name in ("Number of users", "Users without a relevant item", "Faulty rows", "Judged lists"):
        assert name in checks
    assert result.page.locator(".check.fail").count() == 0


# ---- what was computed


def test_further_tests_are_a_table(opened: Callable[..., Opened], paired: Path) -> None:
    table = opened(paired).table("further")
    heads = table.locator("thead th").all_inner_texts()
    shown = dict(zip(heads, table.locator("tbody tr").first.locator("th, td").all_inner_texts(), strict=True))
    assert (shown["wins"], shown["ties"], shown["losses"], shown["effect size d"]) == ("230", "80", "90", "0.3100")
    assert (shown["bootstrap interval"], shown["variance less by CUPED"]) == ("+0.0200 to +0.0900", "40.0 %")


def test_paired_users_are_counted_by_how_much_they_change(opened: Callable[..., Opened], paired: Path) -> None:
    result = opened(paired)
    values = []
    for name in ("control", "candidate_a"):
        (file,) = (paired / "user_metrics" / f"experiment_id={name}").glob("*/*.parquet")
        values.append({row["user_id"]: row["ap_at_10"] for row in pq.ParquetFile(file).read().to_pylist()})
    changes = np.array([values[1][user] - value for user, value in values[0].items()])
    up, down = int((changes > 0).sum()), int((changes < 0).sum())
    heading = result.section("users").locator("h3").first.inner_text()
    assert f"{up} better, {400 - up - down} equal, {down} worse of 400 users" in heading
    table = result.table("users")
    result.section("users").get_by_role("searchbox").fill("MAP@10")
    steps = dict(zip(texts(table, 4), map(int, texts(table, 5)), strict=True))
    assert steps["no change"] == 400 - up - down and sum(steps.values()) == 400
    assert steps["0.000 to +0.050"] == int(((changes > 0) & (changes <= 0.05)).sum())


# ---- large runs


def test_all_pairs_are_a_matrix_with_letters(opened: Callable[..., Opened]) -> None:
    result = opened(systems())
    lines = result.page.locator(".pairs tbody tr")
    assert lines.count() == 12
    first, last = (line.inner_text().replace("\t", " ") for line in (lines.first, lines.last))
    # The best one is 0.015 above its neighbour, which is not clear, and clearly above the ten others.
    assert "system_11" in first and first.endswith("cdefghijkl")
    assert "system_00" in last and last.split()[-1] == "\u2013"
    assert Counter(lines.first.locator("td").evaluate_all("cells => cells.map(cell => cell.className)"))["better"] == 10
    assert lines.last.locator("td.worse").count() == 10
    result.page.locator(".pairs select").select_option("MRR")
    assert "on MRR" in result.page.locator(".pairs caption").inner_text()
    intro = result.section("differences").locator(".intro").inner_text()
    assert "Each experiment against each other" in intro and "drawn" not in intro, "all 12 are there"
    assert "system_11 minus each other" in result.section("differences").locator("h3").first.inner_text()


def test_a_large_run_begins_with_the_metric_that_decides_and_says_what_is_left_out(
    opened: Callable[..., Opened], capsys: pytest.CaptureFixture[str]
) -> None:
    result = opened(wide())
    section = result.section("differences")
    assert section.locator(".chart").count() == 1
    assert "10 of 50 experiments are drawn. 1 of 30 metrics are drawn" in section.inner_text().replace("\n", " ")
    cells = section.locator(".by-metric tbody td")
    assert cells.count() == 30 * 30 and "30 of 49 candidates are shown" in section.inner_text()
    section.get_by_role("button", name="Show all 49").click()
    assert cells.count() == 49 * 30
    segments = result.section("segments")
    assert "30 of 200 segments are shown. 9 of 49 candidates are shown." in segments.inner_text()
    assert re.search(r"This page holds [\d,]+ of 294,000 rows\.", segments.inner_text())
    result.redraw(lambda: segments.get_by_role("searchbox", name="Find a segment").fill("c199"))
    assert segments.locator(".by-segment tbody th").all_inner_texts()[1:] == ["country=C199 & device=web"]
    toggle = """async () => {
        const button = document.querySelectorAll('.by-metric thead button')[5], start = performance.now();
        button.scrollIntoView({block: 'start'});
        button.click();
        while (!document.documentElement.dataset.seen) await new Promise((then) => setTimeout(then, 5));
        return performance.now() - start;
    }"""
    painted = result.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    loaded = result.page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
    milliseconds = result.page.evaluate(toggle)
    with capsys.disabled():
        print(f"\nlarge run: first paint {painted:.0f} ms, loaded {loaded:.0f}, metric toggled {milliseconds:.0f}")
    assert painted <= loaded and section.locator(".chart").count() == 2
    # A metric more is little beside the page itself, whatever the machine.
    assert milliseconds < 2 * loaded


@pytest.fixture
def sixty(tmp_path: Path) -> Path:
    """60 days: two were not published, one warned."""
    output = Output(tmp_path / "sixty", users=100, segments=[])
    days = [f"{date(2026, 9, 22) + timedelta(n)}" for n in range(60) if n not in (20, 21)]
    for n, day in enumerate(days):
        more = {"quality": {"warnings": ["31 % of the rows have tied scores"]}} if n == 30 else {}
        output.write(day, seed=n, **more)
    return output.path


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_sixty_days_have_dates_in_equal_steps_and_grey_days(
    opened: Callable[..., Opened], sixty: Path, size: dict[str, int]
) -> None:
    result = opened(sixty, viewport=size)
    trend = result.section("trend")
    assert trend.locator(".chart").count() == 4 and "Grey days, from light to dark" in trend.inner_text()
    labels = trend.locator(".chart").first.locator(".role-axis-label").first.locator("text").evaluate_all(
        "texts => texts.filter((text) => getComputedStyle(text).opacity > 0).map((text) => text.textContent)"
    )  # fmt: skip
    days = [datetime.strptime(f"{label} 2026", "%d %b %Y") for label in labels]
    assert len(days) >= 3 and len({later - day for day, later in pairwise(days)}) == 1, labels
    table = result.table("trend")
    trend.get_by_role("button", name=re.compile("Show all")).first.click()
    assert table.locator("tbody tr").count() == 58 * 2 * 4
    assert trend.locator("table").nth(1).locator("tbody tr").count() == 3
    assert result.page.evaluate("document.documentElement.scrollWidth") == size["width"]


@pytest.mark.parametrize("figures", [systems, wide], ids=["pairs", "large"])
def test_all_pairs_and_a_large_run_fit_a_phone(opened: Callable[..., Opened], figures: Callable[[], Figures]) -> None:
    result = opened(figures(), viewport=PHONE)
    assert result.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    lines = result.page.locator(".forest tbody tr")
    n, name = (49, "ranker-07") if figures is wide else (11, "system_07")
    assert lines.count() == result.page.locator(".forest td .interval").count() == n
    result.page.get_by_role("searchbox", name="Find an experiment in the table").fill(name[-3:])
    assert [line.inner_text().split()[0] for line in lines.all() if line.is_visible()] == [name]
    bottom = result.page.locator("#answer").bounding_box() or {}
    assert bottom["y"] + bottom["height"] < 2 * PHONE["height"], "the answer is on the first two screens"


def test_each_leaderboard_fits_a_phone_and_has_a_search_of_its_own(opened: Callable[..., Opened]) -> None:
    figures, ends = systems(28), ("", "_baseline")
    ranks = {f"rank_{to}{end}": at for to, at in (("low", 1), ("high", 28)) for end in ends}
    rows = [row | ranks | {"role": "primary"} for row in figures.comparisons]
    result = opened(replace(figures, comparisons=rows), viewport=PHONE)
    assert result.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    first, second = result.page.locator("section:has(> #leaderboard) .forest").all()
    result.page.get_by_role("searchbox", name="Find an experiment in the table").nth(1).fill("_07")
    shown = [[row.inner_text() for row in of.locator("tbody tr").all() if row.is_visible()] for of in (first, second)]
    assert len(shown[0]) == 28 and [line.split()[:4] for line in shown[1]] == [["system_07", "1", "to", "28"]]
    assert first.evaluate("board => board.scrollWidth <= board.clientWidth"), "the interval is on the screen"


# ---- tables


def test_rows_without_a_value_come_last_whichever_way_a_table_is_sorted(opened: Callable[..., Opened]) -> None:
    rows = [compared("a", name, "ap", change) for name, change in (("b", 0.1), ("c", -0.1))]
    nothing = {name: None for name in rows[0] if "difference" in name or name.endswith(("low", "high"))}
    rows.append(rows[0] | nothing | {"experiment_id": "d", "p_adjusted": None, "better": None})
    result = opened(Figures([mean(name, "ap", 0.5) for name in "abcd"], rows))
    table = result.table("differences")
    head = table.get_by_role("button", name="difference")
    orders = []
    for _ in range(2):
        head.click()
        orders.append((texts(table, 1), table.locator("th[aria-sort]").get_attribute("aria-sort")))
    assert orders == [(["b", "c", "d"], "descending"), (["c", "b", "d"], "ascending")]


def test_a_table_filters_by_numbers_and_can_be_taken_along(opened: Callable[..., Opened]) -> None:
    names = ["=SUM(A1)", 'with "quotes", and commas', "plain"]
    rows = [compared("a", name, "ap", 0.1 * (i + 1)) for i, name in enumerate(names)]
    result = opened(Figures([mean(name, "ap", 0.5) for name in ("a", *names)], rows))
    result.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    table, section = result.table("differences"), result.section("differences")
    search = section.get_by_role("searchbox")
    cases = {"difference>0.15": 2, "difference>=0.3": 1, "change<=20": 1, "change=40%": 1, "p<0.05": 3}
    for text, n in cases.items():
        search.fill(text)
        assert table.locator("tbody tr").count() == n, text
    search.fill("difference<0.25")
    with result.page.expect_download() as download:
        section.get_by_role("button", name="Download CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    cells = list(csv.DictReader(io.StringIO(text)))
    assert [row["experiment"] for row in cells] == ["'=SUM(A1)", names[1]]
    assert [float(row["interval low"]) for row in cells] == [pytest.approx(0.08), pytest.approx(0.18)]
    section.get_by_role("button", name="Copy").click()
    section.get_by_role("button", name="Copied").wait_for()


# ---- paper, contrast, phone, touch, screen reader


def test_the_demo_is_three_pages_of_a4(opened: Callable[..., Opened], tmp_path: Path) -> None:
    segments = [*(f"country={name}" for name in ("DE", "FR", "GB", "PL", "SE")), "device=desktop", "device=mobile"]
    result = opened(Output(tmp_path / "demo", segments=segments).write())
    pdf = result.page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page[^s]", pdf)) <= 3
    result.page.emulate_media(media="print")
    result.page.set_viewport_size({"width": 703, "height": 900})
    result.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert result.page.evaluate("document.documentElement.scrollWidth") <= 703


def test_intervals_stay_where_the_system_replaces_all_colours(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three, forced_colors="active")
    marks = result.page.locator(".card .interval")
    assert marks.count() == 2
    for part, paint in ((".range", "stroke"), (".dot", "fill"), (".zero", "stroke")):
        drawn = marks.first.locator(part).evaluate(f"element => getComputedStyle(element).{paint}")
        paper = result.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert drawn not in ("none", paper), part


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["three", "paired", "systems"])
def test_axe_finds_nothing(
    opened: Callable[..., Opened], request: pytest.FixtureRequest, kind: str, scheme: str
) -> None:
    output = systems() if kind == "systems" else request.getfixturevalue(kind)
    # The script of axe is no script of the page.
    result = opened(output, color_scheme=scheme, bypass_csp=True)
    result.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    violations = Axe().run(result.page).response["violations"]
    assert [(each["impact"], each["id"], each["nodes"][0]["html"]) for each in violations] == []


def test_a_phone_needs_no_sideways_scroll_with_long_names(opened: Callable[..., Opened], tmp_path: Path) -> None:
    names = [f"{letter}_{'long_name' * 11}" for letter in "abcdefghijklm"]
    segments = [f"country={'x' * 100}{i}" for i in range(3)]
    output = Output(tmp_path / "long", names, segments, users=60, further=PAIRED).write()
    result = opened(output, viewport=PHONE, has_touch=True, is_mobile=True)
    table = result.table("differences")
    assert table.locator("thead th").all_inner_texts()[:3] == ["experiment", "difference", "metric"]
    assert result.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    picker = result.page.locator(".picker").first
    picker.locator("summary").tap()
    assert result.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("unit", ["user", "query"])
def test_an_index_of_days_has_the_worst_first_and_links_each_page(browser: Browser, tmp_path: Path, unit: str) -> None:
    days = {}
    for day, change in (("2026-11-18", 0.05), ("2026-11-19", 0.0), ("2026-11-20", -0.05)):
        rows = [compared("control", "new", "ndcg@10", change, role="primary")]
        days[day] = Figures([mean(name, "ndcg@10", 0.5) for name in ("control", "new")], rows, told_of=unit)
        (tmp_path / f"days.{day}.html").write_text(page(days[day]), encoding="utf-8")
    file = tmp_path / "days.html"
    file.write_text(html.index(days, "Four days", "days.html", {"2026-11-21": "half of the rows"}), encoding="utf-8")
    shown = browser.new_context(viewport=PHONE).new_page()
    shown.goto(file.as_uri())
    lines = shown.locator(".tests > li").all_inner_texts()
    assert [re.findall(r"2026-11-\d\d", line)[0][-2:] for line in lines] == ["21", "20", "19", "18"]
    assert "half of the rows" in lines[0] and "new loses to control" in lines[1] and "new beats control" in lines[3]
    units = {"user": "users", "query": "queries"}
    assert units.pop(unit) in lines[1] and not any(other in line for other in units.values() for line in lines)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    shown.locator(".tests a", has_text="2026-11-20").click()
    assert "new loses to control" in shown.locator("#answer").inner_text()
    shown.context.close()


def test_a_tap_shows_the_numbers_of_a_mark(opened: Callable[..., Opened], three: Path) -> None:
    result = opened(three, viewport=PHONE, has_touch=True, is_mobile=True)
    mark = result.section("differences").locator(".chart svg .mark-symbol path").first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    result.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = result.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "candidate_a" in tip.inner_text()
    assert "Tap a mark for its numbers." in result.page.locator("p.hint").inner_text()
