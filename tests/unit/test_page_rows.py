"""What a page holds of its rows, and that what it says is about all of them."""

import json
import re
from collections import Counter
from typing import Any, ClassVar

import pytest

from rankmetrics_spark import findings as fd, metrics as mx, report as rep
from rankmetrics_spark.report import beside, html, notebook
from rankmetrics_spark.schemas import Check
from tests.helpers.figures import compared, large, mean, ranked


def test_of_all_pairs_the_accent_is_for_the_one_that_nobody_beats() -> None:
    # The last one in the order of the names is never a baseline, and here the worst one.
    figures = ranked(0.5, 0.7, 0.4)
    assert rep.leader(figures) == "b"
    actual = rep.payload_of(figures)
    assert [actual["experiments"][actual["leader"]], *actual["experiments"]] == ["b", "b", "a", "c"]
    assert rep.payload_of(ranked(0.5, 0.5, 0.5))["leader"] == -1
    colours = {row["name"]: row["colour"] for row in notebook._points(figures, {"ap@10"})}
    assert [name for name, colour in colours.items() if colour == rep.LIGHT["accent"]] == ["b"]


def test_the_columns_of_the_page_are_those_of_the_table() -> None:
    row = compared("a", "candidate", 0.1, p_adjusted=0.0496, p_value=0.01, mean_baseline=0.4, mean_candidate=0.5)
    row |= {"relative_difference": 0.2, "relative_ci_low": 0.11, "relative_ci_high": 0.33, "note": "a note"}
    actual = rep.payload_of(rep.Figures([mean("control"), mean("a")], [row]))["compared"]
    columns = ["n", "meanB", "meanC", "d", "low", "high", "rel", "relLow", "relHigh", "p", "said", "note", "state"]
    assert {name: actual[name] for name in columns} == {
        "n": [2000], "meanB": [0.4], "meanC": [0.5], "d": [0.1], "low": [0.1 - 0.02], "high": [0.1 + 0.02],
        "rel": [0.2], "relLow": [0.11], "relHigh": [0.33], "p": [0.0496], "said": ["0.0496"], "note": ["a note"],
        "state": ["better"],
    }  # fmt: skip


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_the_table_of_candidates_has_the_better_ones_first_and_what_is_in_doubt_last(lower_is_better: bool) -> None:
    pytest.importorskip("vl_convert")
    changes = {"e01": 0.2, "e02": 0.11, "e03": 0.1, "e05": 0.04, "e07": -0.05, "e09": -0.14}
    states = {"e02": "candidate", "e05": "candidate", "e07": "baseline"}
    sign, metric = (-1, "softmax_loss(t=1)") if lower_is_better else (1, "ap@10")
    rows = [compared(name, states.get(name), sign * change, metric=metric) for name, change in changes.items()]
    rows.append(compared("e10", None, sign * 0.9, metric=metric, note="not trustworthy: the shares"))
    figures = rep.Figures([mean(name, metric) for name in ("control", "e10", *changes)], rows)
    context = html._context(figures)
    order = [card.found.candidate for card in context["cards"]]
    assert order == ["e02", "e05", "e07", "e01", "e03", "e09", "e10"] and context["is_table"]
    lines = re.findall(r'<tr class="(\w+)"><th scope="row">.*?title="(\w+)"(.*?)</tr>', rep.page(figures), re.DOTALL)
    assert [name for _, name, _ in lines] == order and lines[0][0] == "better"
    # One scale: an interval is as wide as another, and what is in doubt has no number.
    ends = [re.findall(r'class="range" x1="([\d.]+)%" x2="([\d.]+)%"', line) for *_, line in lines]
    assert {round(float(high) - float(low), 1) for ((low, high),) in ends[:-1]} == {round(92 * 0.08 / 0.76, 1)}
    assert not ends[-1] and "not trustworthy: the shares" in lines[-1][2]


@pytest.mark.parametrize("most", [4_000, 500, 50])
def test_what_a_page_holds_keeps_the_baseline_and_the_metric_that_decides(most: int) -> None:
    figures = large(130, 31)
    actual = rep.payload_of(figures, most)
    assert actual["totals"] == {
        "differences": 130 * 31, "means": 131 * 31, "segments": 2 * 130 * 31 + 7, "segmentMeans": 2 * 131 * 31,
        "users": 131 * 31, "trend": 2 * 3 * 31, "overTime": 0, "pairs": 130, "further": 130 * 31, "userChanges": 0,
        "checks": 0,
    }  # fmt: skip
    last = len(actual["metrics"]) - 1
    assert actual["metrics"][last]["name"] == "dcg@31", "the metric that decides"

    def held(table: str) -> Any:
        columns = actual[table]
        segments = columns.get("s", [0] * len(columns["e"]))
        whole = [i for i, s in enumerate(segments) if actual["segments"][s] == "all"]
        return {(actual["experiments"][columns["e"][i]], columns["m"][i]) for i in whole}

    everyone = {(name, last) for name in actual["experiments"]}
    baseline = {("control", metric) for metric in range(31)}
    assert everyone | baseline <= held("means") and everyone | baseline <= held("users")
    assert everyone - {("control", last)} <= held("compared")
    assert ("control", last) in held("trend")
    # Distributions are whole: each of the 20 steps, or none; nobody is at the lowest value itself.
    assert all(counts == [0, *[50] * 20] for counts in actual["users"]["counts"])
    assert len(actual["compared"]["e"]) == max(most, 130)


def test_all_rows_of_all_users_are_read() -> None:
    rows = [mean(f"e{i}", segment=segment) for i in range(9) for segment in ("s=1", "all", "s=2")]
    large = [row | {"n_users": 2_000} if row["segment"] == "s=2" else row for row in rows]
    actual = Counter(row["segment"] for row in rep.everyone_and_largest(large, 3))
    assert actual == {"all": 9, "s=2": 3}
    # Engines return rows in any order.
    assert rep.everyone_and_largest(rows[::-1], 30) == rep.everyone_and_largest(rows, 30)


def test_a_table_that_is_cut_for_a_terminal_keeps_all_users() -> None:
    # By name, the segments come before all users.
    segments = [f"age={number:05}" for number in range(10_000)]
    rows = [mean(name, segment=segment) for name in "abc" for segment in ("all", *segments[:: 1 if name == "a" else 9])]
    actual = [(row["segment"], row["experiment_id"]) for row in rep.compared_rows(rows)]
    assert len(actual) == 10_000 and actual[-3:] == [("all", name) for name in "abc"]
    of_segments = [(row["segment"], row["experiment_id"]) for row in rows if row["segment"] != "all"]
    assert actual[:-3] == sorted(of_segments)[:9_997]


def test_the_metric_that_decides_stays_in_all_segments_then_the_largest_segments() -> None:
    actual = rep.payload_of(large(5, 2), 22)
    keys = zip(actual["compared"]["s"], actual["compared"]["m"], strict=True)
    sizes = Counter((actual["segments"][s], actual["metrics"][m]["name"]) for s, m in keys)
    assert sizes == {
        ("all", "dcg@1"): 5, ("all", "dcg@2"): 5, ("s=large", "dcg@2"): 5, ("s=small", "dcg@2"): 5,
        ("s=large", "dcg@1"): 2,
    }  # fmt: skip
    assert {actual["segments"][s] for s in actual["means"]["s"]} == {"all"}, "the page shows none of segments"


def test_further_columns_are_those_that_hold_a_value() -> None:
    rows = [compared("a", "candidate", 0.1, p_wilcoxon=0.0, wins=3, ties=0, losses=0, effect_size=None)]
    rows[0] |= {"effective_users_baseline": 41.5}
    rows.append(compared("b", None, 0.0, wins=1, ties=0, losses=0, bootstrap_ci_low=-0.1, bootstrap_ci_high=1 / 3))
    actual = rep.payload_of(rep.Figures([mean(name) for name in ("control", "a", "b")], rows))
    titles = [column["title"] for column in actual["furtherColumns"]]
    assert titles == [
        *("wins", "ties", "losses", "plain interval", "bootstrap interval", "p of Wilcoxon's test"),
        "effective users of baseline",
    ]
    powered = [row | {"power": 0.8, "minimum_detectable_effect": 0.1, "users_needed": 9} for row in rows]
    titles = rep.payload_of(rep.Figures([mean(name) for name in ("control", "a", "b")], powered))["furtherColumns"]
    assert [each["title"] for each in titles if "needed" in each["title"] or "detectable" in each["title"]] == [
        "detectable, one test (80 % power)", "users needed for the margin, effect or gate (80 % power)",
    ]  # fmt: skip
    assert actual["further"]["p_wilcoxon"] == [0.0, None] and actual["further"]["bootstrap_ci_high"] == [None, 0.333333]
    nobody = [row | {"wins": 0} for row in rows]
    actual = rep.payload_of(rep.Figures([mean(name) for name in ("control", "a", "b")], nobody))
    assert "wins" not in [column["title"] for column in actual["furtherColumns"]]
    untested = {"ci_low": None, "ci_high": None, "p_adjusted": None, "design": "paired", "role": "primary", "look": 1}
    actual = rep.payload_of(rep.Figures([mean("control"), mean("a")], [compared("a", None, 0.1) | untested]))
    assert actual["furtherColumns"] == [], "what test it is says nothing where nothing was tested"


def test_of_many_checks_a_page_holds_what_failed() -> None:
    rows = [Check("min", status, f"{status} {i}", "a") for i in range(200) for status in ("not_checked", "ok", "warn")]
    rows.append(Check("min", "fail", "the last one", "a"))
    held = rep.payload_of(rep.Figures([mean("a")], checks=[row.as_row() for row in rows]))["checks"]
    assert (held["sentence"][0], len(held["status"])) == ("the last one", 300)
    assert Counter(held["status"]) == {"fail": 1, "warn": 200, "ok": 99}


def test_of_all_pairs_the_table_has_those_of_the_best_as_it_sees_them_the_closest_first() -> None:
    # The best one is the candidate against the first, and the baseline of the others.
    context = html._context(ranked(0.5, 0.7, 0.67, 0.2, 0.4))
    lines = [(card.other, card.state, card.difference, card.means) for card in context["cards"]]
    assert lines == [
        ("c", "open", "+0.0300", "0.670 \u2192 0.700"), ("a", "better", "+0.2000", "0.500 \u2192 0.700"),
        ("e", "better", "+0.3000", "0.400 \u2192 0.700"), ("d", "better", "+0.5000", "0.200 \u2192 0.700"),
    ]  # fmt: skip
    assert (context["center"], context["n_cards"], context["is_table"]) == ("b", 4, True)
    # Where none is ahead, those of the best mean; few of them have cards.
    context = html._context(ranked(0.5, 0.51, 0.52))
    assert [{*card.found.pair} for card in context["cards"]] == [{"b", "c"}, {"a", "c"}] and not context["is_table"]


def test_the_map_of_segments_holds_the_metric_that_decides_whole() -> None:
    actual = rep.payload_of(large(5, 2, winners=1), 10)["map"]
    assert len(actual["s"]) == 2 * 5 and {*actual["x"]} == {0.2, -0.2} and {*actual["percent"]} == {1}
    assert Counter(actual["state"]) == {"worse": 8, "better": 2}


@pytest.mark.parametrize("shown", [(130, 31), (199, 4)])
def test_a_page_of_many_experiments_is_small_and_its_sentences_are_about_all(shown: tuple[int, int]) -> None:
    pytest.importorskip("vl_convert")
    text = html.page(large(*shown))
    assert len(text.encode()) < 2_000_000
    heading = re.search(r"<h1.*?</h1>", text, re.DOTALL)
    assert heading and "beats" in heading[0] and f"c{shown[0] - 8:04}" in heading[0]
    # Rows of other metrics, which leave the data first.
    assert "What else moved in " in text
    assert text.count('<tr class="better"><th scope="row">') == 8 and text.count('<tr class="worse">') == shown[0] - 8


class Looked(fd.Finding):
    """What counts how often its fields are read."""

    reads: ClassVar[Counter[str]] = Counter()

    def __getattribute__(self, name: str) -> Any:
        Looked.reads[name] += 1
        return super().__getattribute__(name)


def test_all_pairs_of_many_experiments_are_read_in_time_that_grows_with_the_rows() -> None:
    # 4,950 pairs: the answer and the cards look at each row a few times, not at each pair of rows.
    names = [f"e{i:03}" for i in range(100)]
    rows = [compared(b, None, 0.001, baseline=a) for i, a in enumerate(names) for b in names[i + 1 :]]
    figures = rep.Figures([mean(name) for name in names], [*rows, compared("e001", "candidate", 0.1, baseline="e000")])
    vars(figures)["found"] = [*map(Looked.of, figures.comparisons)]
    assert len(rep.cards(figures)) == 4_951
    assert 4_951 <= Looked.reads["pair"] < 10 * 4_951
    assert len(rep.payload_of(figures, 50)["compared"]["e"]) == 50


def test_the_order_of_experiments_takes_one_look_at_each_row() -> None:
    def n_looks(n_metrics: int) -> int:
        metrics = [mx.parse(f"ndcg@{k}") for k in range(1, n_metrics + 1)]
        made = [
            Looked.of(compared(c, "candidate", 0.001, b, metric=str(metric)))
            for metric in metrics
            for b, c in (("a", "b"), ("a", "c"), ("b", "c"))
        ]
        Looked.reads.clear()
        assert len(beside.sentences_of_order(made, metrics)) == n_metrics
        return Looked.reads.total()

    assert n_looks(40) == 10 * n_looks(4)


def test_the_payload_of_a_page_has_no_nan_and_no_row_of_an_unknown_experiment() -> None:
    nan = float("nan")
    figures = rep.Figures([mean("a", value=nan)], [compared("gone", None, 0.1)], users=[])
    actual = rep.payload_of(figures)
    assert actual["means"]["mean"] == [None] and actual["compared"]["e"] == []
    json.dumps(actual, allow_nan=False)


def with_ranks(*means: float, metric: str = "ap@10") -> rep.Figures:
    """Experiments a, b, ... with these means, which may have ranks up to one above and two below their place."""
    figures = ranked(*means, metric=metric)
    sign, most = 1 if metric == "average_rank" else -1, len(means)
    places = {
        n: 1 + p for p, n in enumerate(sorted("abcdefgh"[:most], key=lambda e: sign * means["abcdefgh".index(e)]))
    }

    def of(row: dict[str, Any], column: str, end: str) -> dict[str, Any]:
        place = places[row[column]]
        return {f"rank_low{end}": max(1, place - 1), f"rank_high{end}": min(most, place + 2)}

    rows = [row | of(row, "baseline", "_baseline") | of(row, "experiment_id", "") for row in figures.comparisons]
    return rep.Figures([row | {"metric": metric} for row in figures.means], rows)


def test_a_leaderboard_has_the_best_mean_first_with_its_ranks() -> None:
    pytest.importorskip("jinja2")
    figures = with_ranks(0.5, 0.7, 0.67, 0.2, 0.4)
    text = html.page(figures)
    board = text[text.index('id="leaderboard"') : text.index('id="candidates"')]
    lines = [
        [*filter(None, re.sub(r"<wbr>|<[^>]*>", "|", line).replace("\n", "").split("|"))]
        for line in re.findall("<tr class.*?</tr>", board, re.DOTALL)
    ]
    best = ["\u25cf", " could be the best"]
    assert lines == [
        ["1", "b", "1 to 3", *best, "0.7000", "0.6900 to 0.7100"],
        ["2", "c", "1 to 4", *best, "0.6700", "0.6600 to 0.6800"],
        ["3", "a", "2 to 5", "0.5000", "0.4900 to 0.5100"], ["4", "e", "3 to 5", "0.4000", "0.3900 to 0.4100"],
        ["5", "d", "4 to 5", "0.2000", "0.1900 to 0.2100"],
    ]  # fmt: skip
    said = "Any of 2 of the 5 experiments could be the best on MAP@10 (95 % confidence): b and c"
    assert f"{said}." in re.sub("<[^>]*>", "", text) and rep.verdict_of(figures.comparisons)[0] == said
    assert 'id="leaderboard"' not in html.page(ranked(0.5, 0.7, 0.67))


def test_the_lowest_mean_is_the_first_of_a_metric_of_which_less_is_better() -> None:
    (board,) = html._context(with_ranks(3.0, 5.0, 1.0, metric="average_rank"))["boards"]
    assert [(name, ranks, mean.value) for name, ranks, mean in board["lines"]] == [
        ("c", (1, 3), 1.0), ("a", (1, 3), 3.0), ("b", (2, 3), 5.0),
    ]  # fmt: skip
    said = rep.verdict_of(with_ranks(3.0, 5.0, 1.0, metric="average_rank").comparisons)[0]
    assert said.endswith("(95 % confidence): c and a")


def test_more_than_26_experiments_have_letters_and_the_page_holds_the_pairs_of_the_best() -> None:
    names = [f"e{i:02}" for i in range(30)]
    pairs = [(a, b) for a in names for b in names if a < b]
    # Each is better than those that are ten or more places behind.
    rows = [compared(b, "baseline" if int(b[1:]) - int(a[1:]) >= 10 else None, -0.1, a) for a, b in pairs]
    figures = rep.Figures([mean(name, value=0.9 - 0.01 * i) for i, name in enumerate(names)], rows)
    held = rep.payload_of(figures, 45)
    assert held["letters"][24:] == ["y", "z", "aa", "ab", "ac", "ad"]
    assert held["beaten"][0][:2] == ["k-ad", "l-ad"] and held["beaten"][0][18:21] == ["ac-ad", "ad", ""]
    assert {*held["compared"]["e"], *held["compared"]["b"]} == {*range(10)}, "45 pairs are those of the ten best"
