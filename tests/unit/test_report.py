"""What a report says in words, on the terminal, in a notebook and to MLflow."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rankmetrics_spark.cli.exit_codes import live
from rankmetrics_spark.config import Days
from rankmetrics_spark.engines import write_cached
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.report import (
    LIGHT,
    Answer,
    Figures,
    Shown,
    answer,
    assets,
    cards,
    checks,
    console,
    difference_rows,
    differences,
    everyone_and_largest,
    figures_of,
    html,
    leader,
    local_tables,
    logged_metrics,
    logged_parameters,
    newer_failures,
    notebook,
    page,
    payload_of,
    print_result,
    sentences_over_time,
    verdict_of,
    without_relevant,
)
from tests.helpers.results import Output


def mean(experiment: str, metric: str = "ap@10", value: float = 0.5, segment: str = "all") -> dict[str, Any]:
    counts = {"n_users": 1000, "n_users_with_relevant": 600, "confidence": 0.95, "convention": "standard"}
    bounds = {"mean": value, "ci_low": value - 0.01, "ci_high": value + 0.01}
    return {"experiment_id": experiment, "segment": segment, "metric": metric, **counts, **bounds}


def compared(
    candidate: str, better: str | None, change: float, baseline: str = "control", **more: Any
) -> dict[str, Any]:
    """A difference of ``change`` to a mean of 0.5, with an interval of 0.02 to either side."""
    names = {"experiment_id": candidate, "baseline": baseline, "segment": "all", "metric": "ap@10"}
    bounds = {"difference": change, "ci_low": change - 0.02, "ci_high": change + 0.02}
    relative = {"relative_difference": 2 * change, "relative_ci_low": 2 * change - 0.04}
    words = {"better": better, "note": None, "correction": "holm", "n_comparisons": 3, "confidence": 0.95}
    more = {"relative_ci_high": 2 * change + 0.04, "mean_baseline": 0.5, "mean_candidate": 0.5 + change, **more}
    return {**names, **bounds, **relative, **words, "p_adjusted": 0.0001, "n_users": 2000, **more}


def words(actual: Answer) -> str:
    """What stands below the title."""
    return " ".join(part for part in ("".join(actual.value), actual.change, "".join(actual.detail)) if part)


def title(*rows: dict[str, Any], names: str = "control a b") -> str:
    return "".join(answer(Figures([mean(name) for name in names.split()], rows)).title)


# ---- the answer in words


def test_what_clearly_falls_stands_in_the_title_and_in_the_verdict() -> None:
    won = compared("a", "candidate", 0.1, role="primary")
    guardrail = compared("a", "baseline", -0.085, role="guardrail", metric="p@10")
    others = [
        compared("a", "baseline", change, role="secondary", metric=name)
        for name, change in (("rr", -0.04), ("ndcg@5", -0.09), ("f1@10", -0.01))
    ]
    unclear = compared("a", None, -0.09, role="guardrail", metric="ndcg@10")
    assert title(won, guardrail) == "a beats control on MAP@10, but the guardrail Precision@10 falls by 17.0 %"
    assert title(won, unclear) == title(won) == "a beats control"
    assert title(won, others[0]) == "a beats control on MAP@10, but MRR falls by 8.0 %"
    assert title(won, *others, guardrail) == (
        "a beats control on MAP@10, but the guardrail Precision@10 falls by 17.0 %, NDCG@5 by 18.0 %, and 2 more "
        "metrics are clearly worse"
    )
    # A metric where lower is better is worse when it rises.
    higher = compared("a", "baseline", 0.02, role="guardrail", metric="softmax_loss")
    assert title(won, higher).endswith(" rises by 4.0 %") and "but the guardrail" in title(won, higher)
    assert title(won, compared("b", "baseline", -0.2, role="guardrail", metric="p@10")) == "a beats control"
    line = verdict_of([won, guardrail])[0]
    assert line.startswith("a beats control on MAP@10: ")
    assert line.endswith("; but the guardrail Precision@10 falls by 17.0 %")
    assert "but" not in verdict_of([won | {"better": None}, guardrail])[0]


def test_the_title_says_who_won() -> None:
    better, worse, open_ = compared("a", "candidate", 0.1), compared("b", "baseline", -0.1), compared("b", None, 0.01)
    assert title(better, worse) == "a beats control"
    assert title(better, compared("b", "candidate", 0.2)) == "b beats control"
    assert title(worse, open_ | {"experiment_id": "a"}) == "No candidate beats control"
    both = open_ | {"experiment_id": "a"}, open_
    assert title(*both) == "No clear winner yet: neither candidate differs clearly from control"
    assert title(*both, open_ | {"experiment_id": "c"}).endswith("none of 3 candidates differs clearly from control")
    assert title(open_) == "No clear difference between b and control"
    assert title(worse) == "b loses to control"
    assert title(worse, compared("a", "baseline", -0.2)) == "Every candidate loses to control"
    assert title() == "a has the highest MAP@10"
    note = {"note": "not trustworthy: the users do not follow the planned shares (p = 1e-9)"}
    assert title(better | note, worse | note) == "No verdict: these numbers are not to be trusted"


def test_of_all_pairs_the_one_that_nobody_beats_is_ahead() -> None:
    rows = [
        compared("b", "candidate", 0.1, baseline="a"),
        compared("control", "baseline", -0.1, baseline="a"),
        compared("control", "baseline", -0.2, baseline="b"),
    ]
    assert title(*rows) == "b beats every other experiment"
    open_ = [row | {"better": None} for row in rows]
    assert title(*open_) == "No experiment is ahead of all others"
    assert title(rows[0], *open_[1:]) == "b beats 1 of 2 others"


def ranked(*means: float, **more: Any) -> Figures:
    """Experiments a, b, ... with these means, all pairs compared; a difference of 0.05 or more is shown."""
    names = "abcdefgh"[: len(means)]
    rows = [
        compared(
            names[j],
            None if abs(d := means[j] - means[i]) < 0.05 else "candidate" if d > 0 else "baseline",
            d,
            baseline=names[i],
            mean_baseline=means[i],
            mean_candidate=means[j],
            **more,
        )
        for i in range(len(means))
        for j in range(i + 1, len(means))
    ]
    return Figures([mean(name, value=value) for name, value in zip(names, means, strict=True)], rows)


def test_of_all_pairs_the_accent_is_for_the_one_that_nobody_beats() -> None:
    # The last one in the order of the names is never a baseline, and here the worst one.
    figures = ranked(0.5, 0.7, 0.4)
    assert leader(figures) == "b"
    actual = payload_of(figures)
    assert [actual["experiments"][actual["leader"]], *actual["experiments"]] == ["b", "b", "a", "c"]
    assert payload_of(ranked(0.5, 0.5, 0.5))["leader"] == -1
    colours = {row["name"]: row["colour"] for row in notebook._points(figures, {"ap@10"})}
    assert [name for name, colour in colours.items() if colour == LIGHT["accent"]] == ["b"]


@pytest.mark.parametrize(("better", "changes"), [("a", (0.1, -0.1)), ("b", (-0.1, 0.1))])
def test_the_accent_follows_the_direction_of_the_metric(better: str, changes: tuple[float, float]) -> None:
    # Of a loss, less is better: the candidate whose loss fell.
    rows = [
        compared(name, "candidate" if name == better else "baseline", d, metric="softmax_loss(t=1)")
        for name, d in zip("ab", changes, strict=True)
    ]
    figures = Figures([mean(name, "softmax_loss(t=1)") for name in ("control", "a", "b")], rows)
    assert leader(figures) == better
    actual = payload_of(figures)
    states = {
        actual["experiments"][e]: state
        for e, state in zip(*(actual["compared"][name] for name in ("e", "state")), strict=True)
    }
    assert states == {better: "better", "ab".replace(better, ""): "worse"}


def test_without_a_winner_nothing_has_the_accent() -> None:
    means = [mean("control"), mean("a"), mean("b")]
    figures = Figures(means, [compared("a", "baseline", -0.1), compared("b", None, 0.01)])
    assert leader(figures) is None and payload_of(figures)["leader"] == -1
    assert LIGHT["accent"] not in {row["colour"] for row in notebook._points(figures, {"ap@10"})}


def test_the_closest_is_the_one_with_the_smallest_difference_whichever_side_it_is_on() -> None:
    # b is 0.1 ahead of a, 0.3 ahead of c. In the pair of b and c, b is the baseline.
    message = "The closest is a. MAP@10 rose from 0.600 (a) to 0.700 (b): +20.0 % (95 % interval +16.0 to +24.0 %)"
    assert words(answer(ranked(0.6, 0.7, 0.4))) == message and answer(ranked(0.6, 0.7, 0.4)).won
    # c is the closest, 0.1 behind b: as a candidate against b it has 2 * -0.1.
    message = "The closest is c. MAP@10 fell from 0.700 (b) to 0.600 (c): -20.0 % (95 % interval -24.0 to -16.0 %)"
    assert words(answer(ranked(0.4, 0.7, 0.6))).replace("\N{MINUS SIGN}", "-") == message
    assert not answer(ranked(0.4, 0.7, 0.6)).won, "the change is one for the worse"
    assert "".join(answer(ranked(0.7, 0.7, 0.4)).title) == "a beats 1 of 2 others"
    assert "".join(answer(ranked(0.7, 0.7, 0.4)).sure).endswith(" 1 other beats as many.")


def test_the_columns_of_the_page_are_those_of_the_table() -> None:
    row = compared("a", "candidate", 0.1, p_adjusted=0.0496, p_value=0.01, mean_baseline=0.4, mean_candidate=0.5)
    row |= {"relative_difference": 0.2, "relative_ci_low": 0.11, "relative_ci_high": 0.33, "note": "a note"}
    actual = payload_of(Figures([mean("control"), mean("a")], [row]))["compared"]
    columns = ["n", "meanB", "meanC", "d", "low", "high", "rel", "relLow", "relHigh", "p", "said", "note", "state"]
    assert {name: actual[name] for name in columns} == {
        "n": [2000], "meanB": [0.4], "meanC": [0.5], "d": [0.1], "low": [0.1 - 0.02], "high": [0.1 + 0.02],
        "rel": [0.2], "relLow": [0.11], "relHigh": [0.33], "p": [0.0496], "said": ["0.0496"], "note": ["a note"],
        "state": ["better"],
    }  # fmt: skip


# ---- many rows: what is said is about all of them


def large(candidates: int, metrics: int, winners: int = 8) -> Figures:
    """An experiment per candidate; the last ones by name win on all metrics, the others lose; two segments each."""
    names = [f"dcg@{cut}" for cut in range(1, metrics + 1)]
    experiments = ["control", *(f"c{i:04}" for i in range(candidates))]
    segments = {"all": 1000, "s=small": 10, "s=large": 500}
    shared = {"n_users_baseline": 1000, "n_users_candidate": 1000, "n_users_both": 1000, "design": "paired"}
    means, rows = [], []
    for place, name in enumerate(experiments):
        wins = place > candidates - winners
        for segment, users in segments.items():
            for metric in names:
                value = 0.5 + (0.1 if wins else -0.1) * (place > 0)
                means.append(mean(name, metric, value, segment) | {"n_users": users, "n_users_with_relevant": users})
                if place:
                    row = compared(name, "candidate" if wins else "baseline", value - 0.5, **shared)
                    rows.append(row | {"metric": metric, "segment": segment, "p_adjusted": 0.001 if wins else 0.0001})
    users = [
        {"experiment_id": name, "metric": metric, "step": step, "low": 0.0, "high": 1.0, "users": 50}
        for name in sorted(experiments)
        for metric in names
        for step in range(20)
    ]
    trend = [row | {"evaluation_date": day} for day in ("2026-11-19", "2026-11-20") for row in means[: 3 * metrics]]
    return Figures(means, rows, users, trend=trend, n_comparisons=len(rows) + 7)


@pytest.mark.parametrize(("candidates", "metrics"), [(130, 31), (49, 4), (199, 8)])
def test_of_many_rows_the_answer_the_cards_and_the_checks_are_about_all(candidates: int, metrics: int) -> None:
    figures = large(candidates, metrics)
    context = html._context(figures)
    assert "".join(context["answer"].title) == f"c{candidates - 8:04} beats control"
    assert "".join(context["answer"].sure).endswith(" 7 more candidates beat control as well.")
    assert context["n_cards"] == candidates
    assert {card.others for card in context["cards"]} == {f"better on {metrics} of {metrics} metrics"}
    message = {check.title: check.text for check in context["checks"]}
    assert message["Number of users"] == f"1,000 users, the same in all {candidates + 1} experiments (paired)."


@pytest.mark.parametrize("most", [4_000, 500, 50])
def test_what_a_page_holds_keeps_the_baseline_and_the_metric_that_decides(most: int) -> None:
    figures = large(130, 31)
    actual = payload_of(figures, most)
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
    actual = Counter(row["segment"] for row in everyone_and_largest(large, 3))
    assert actual == {"all": 9, "s=2": 3}


def test_a_table_that_is_cut_for_a_terminal_keeps_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    # By name, the segment comes before all users.
    monkeypatch.setattr(console, "MOST_ROWS", 4)
    rows = [mean(name, segment=segment) for name in "abc" for segment in ("age=1", "all")]
    actual = console.compared_rows(rows)
    assert [(row["segment"], row["experiment_id"]) for row in actual] == [
        ("age=1", "a"), ("all", "a"), ("all", "b"), ("all", "c"),
    ]  # fmt: skip


def test_the_metric_that_decides_stays_in_all_segments_then_the_largest_segments() -> None:
    actual = payload_of(large(5, 2), 22)
    keys = zip(actual["compared"]["s"], actual["compared"]["m"], strict=True)
    sizes = Counter((actual["segments"][s], actual["metrics"][m]["name"]) for s, m in keys)
    assert sizes == {
        ("all", "dcg@1"): 5, ("all", "dcg@2"): 5, ("s=large", "dcg@2"): 5, ("s=small", "dcg@2"): 5,
        ("s=large", "dcg@1"): 2,
    }  # fmt: skip
    assert {actual["segments"][s] for s in actual["means"]["s"]} == {"all"}, "the page shows none of segments"


def test_further_columns_are_those_that_hold_a_value() -> None:
    rows = [compared("a", "candidate", 0.1, p_wilcoxon=0.0, wins=3, ties=0, losses=0, effect_size=None)]
    rows.append(compared("b", None, 0.0, wins=1, ties=0, losses=0, bootstrap_ci_low=-0.1, bootstrap_ci_high=1 / 3))
    actual = payload_of(Figures([mean(name) for name in ("control", "a", "b")], rows))
    titles = [column["title"] for column in actual["furtherColumns"]]
    assert titles == ["wins", "ties", "losses", "plain interval", "bootstrap interval", "p of Wilcoxon's test"]
    assert actual["further"]["p_wilcoxon"] == [0.0, None] and actual["further"]["bootstrap_ci_high"] == [None, 0.333333]
    nobody = [row | {"wins": 0} for row in rows]
    actual = payload_of(Figures([mean(name) for name in ("control", "a", "b")], nobody))
    assert "wins" not in [column["title"] for column in actual["furtherColumns"]]


def test_of_all_pairs_the_cards_are_those_of_the_best_the_closest_first() -> None:
    figures = ranked(0.7, 0.65, 0.5, 0.2)
    context = html._context(figures)
    pairs = [{card.candidate, card.baseline} for card in context["cards"]]
    best = figures.experiments[0]
    assert [best in pair for pair in pairs] == [True] * 3 + [False] * 3
    assert [abs(card.row["difference"]) for card in context["cards"][:3]] == pytest.approx([0.05, 0.2, 0.5])


def test_the_map_of_segments_holds_the_metric_that_decides_whole() -> None:
    actual = payload_of(large(5, 2, winners=1), 10)["map"]
    assert len(actual["s"]) == 2 * 5 and {*actual["x"]} == {0.2, -0.2} and {*actual["percent"]} == {1}
    assert Counter(actual["state"]) == {"worse": 8, "better": 2}


@pytest.mark.parametrize("shown", [(130, 31), (199, 4)])
def test_a_page_of_many_experiments_is_small_and_its_sentences_are_about_all(shown: tuple[int, int]) -> None:
    pytest.importorskip("vl_convert")
    text = html.page(large(*shown))
    assert len(text.encode()) < 2_000_000
    heading = re.search(r"<h1.*?</h1>", text, re.DOTALL)
    assert heading and "beats" in heading[0] and f"c{shown[0] - 8:04}" in heading[0]
    assert f"the first 6 of {shown[0]}" in text and f"better on {shown[1]} of {shown[1]} metrics" in text


def test_a_page_names_the_licences_of_the_scripts_that_it_embeds() -> None:
    pytest.importorskip("vl_convert")
    text = html.page(Figures([mean("a")]))
    footer = text[text.index("<footer>") : text.index("</footer>")]
    for name in ("Vega", "Vega-Lite", "Vega-Embed", "BSD-3-Clause", "d3 (ISC)", "Redistributions in binary form"):
        assert name in footer
    assert "University of Washington Interactive Data Lab" in footer and "Mike Bostock" in footer


def test_all_pairs_of_many_experiments_are_read_in_time_that_grows_with_the_rows() -> None:
    # 4,950 pairs: the answer and the cards look at each row a few times, not at each pair of rows.
    names = [f"e{i:03}" for i in range(100)]
    rows = [compared(b, None, 0.001, baseline=a) for i, a in enumerate(names) for b in names[i + 1 :]]
    figures = Figures([mean(name) for name in names], [*rows, compared("e001", "candidate", 0.1, baseline="e000")])
    reads: Counter[str] = Counter()

    class Counted(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            reads[key] += 1
            return super().__getitem__(key)

    counted = replace(figures, comparisons=[Counted(row) for row in figures.comparisons])
    assert len(cards(counted)) == 4_951
    assert reads["baseline"] < 10 * 4_951
    assert len(payload_of(figures, 50)["compared"]["e"]) == 50


# ---- people


def arms(*users: int, shared: dict[str, int], design: str = "independent", pairs: bool = False) -> Figures:
    """Experiments with so many users, 40 % of them with a relevant item; ``shared`` by their two names."""
    names = "abcdefgh"[: len(users)]
    means = [
        mean(name) | {"n_users": n, "n_users_with_relevant": n * 2 // 5} for name, n in zip(names, users, strict=True)
    ]
    compared_pairs = [(i, j) for i in range(len(users)) for j in range(i + 1, len(users)) if pairs or i == 0]
    rows = [
        compared(names[j], None, 0.0, baseline=names[i], design=design)
        | {"n_users_both": shared.get(names[i] + names[j], 0)}
        for i, j in compared_pairs
    ]
    return Figures(means, rows)


@pytest.mark.parametrize(
    ("figures", "users", "without"),
    [
        # The same people in all experiments are counted once.
        (
            arms(943, 943, 943, shared={"ab": 943, "ac": 943}, design="paired"),
            "943 users, the same in all 3 experiments (paired).",
            ", in each experiment: 566",
        ),
        # 500 + 400 - 100.
        (
            arms(500, 400, shared={"ab": 100}, design="paired"),
            "800 users in all, 400 to 500 in each experiment (paired).",
            ", in each experiment: 240 to 300",
        ),
        # b and c have no users beside those of a.
        (
            arms(500, 400, 300, shared={"ab": 400, "ac": 300}, design="paired"),
            "500 users in all, 300 to 500 in each experiment (paired).",
            ", in each experiment: 180 to 300",
        ),
        # Nobody knows whether b and c share users.
        (
            arms(500, 400, 300, shared={}),
            "300 to 500 users in each of 3 experiments (independent).",
            ", in each experiment: 180 to 300",
        ),
        # All pairs were compared, and share nobody: people can be added up.
        (
            arms(500, 400, 300, shared={}, pairs=True),
            "1,200 users in all, 300 to 500 in each experiment (independent).",
            ": 720",
        ),
        (arms(500, 400, shared={}), "900 users in all, 400 to 500 in each experiment (independent).", ": 540"),
        (Figures([mean("a"), mean("b")]), "1,000 users in each of 2 experiments.", ", in each experiment: 400"),
        (Figures([mean("a")]), "1,000 users.", ": 400"),
    ],
)
def test_a_person_is_counted_once(figures: Figures, users: str, without: str) -> None:
    texts = {check.title: check.text for check in checks(figures)}
    assert texts["Number of users"] == users
    assert ": ".join(without_relevant(figures)) == f"users without a relevant item{without}"


def test_users_without_a_relevant_item_are_said_with_how_they_count() -> None:
    def sentence(rule: str, **more: Any) -> str:
        record = {
            "rows": {"in": 1, "evaluated": 1, "quarantined": 0},
            "convention": {"text": f"standard;zero_relevant={rule};ties=best"},
            "experiments": {name: {"lists": 50, "no_relevant": 10} for name in ("a", "b")},
        }
        figures = Figures([mean(name) | {"mean_with_relevant": 0.8} | more for name in ("a", "b")], record=record)
        return {check.title: check.text for check in checks(figures)}["Users without a relevant item"]

    # 600 of 1,000 users have one, and the mean over them is 0.8 where it is 0.5 over all.
    assert sentence("zero") == (
        "40 % of the users of each experiment had no relevant item; they count as 0 "
        "(without them MAP@10 of a is 0.800 instead of 0.500)."
    )
    assert sentence("one", n_users_with_relevant=996).startswith(
        "0.4 % of the users of each experiment had no relevant item; they count as 1"
    )
    # Who is left out of the mean is not among the users; the lists are counted before.
    assert sentence("skip", n_users_with_relevant=1000) == (
        "20 % of the lists of each experiment had no relevant item; their users are left out of the mean."
    )


def test_the_answer_says_how_large_and_how_sure_the_difference_is() -> None:
    actual = answer(Figures([mean("control"), mean("a")], [compared("a", "candidate", 0.1)]))
    assert words(actual) == "MAP@10 rose from 0.500 (control) to 0.600 (a): +20.0 % (95 % interval +16.0 to +24.0 %)"
    assert "".join(actual.sure) == "Chance alone would almost never give this (p < 0.001, corrected for 3 comparisons)."


def test_an_open_answer_says_what_the_test_would_have_found() -> None:
    # 0.04 / 0.5 = 8 %, after the correction.
    row = compared("a", None, 0.01, p_adjusted=0.18, adjusted_minimum_detectable_effect=0.04)
    actual = answer(Figures([mean("control"), mean("a")], [row]))
    assert words(actual) == "MAP@10 is 0.500 in control and 0.510 in a: +2.0 % (95 % interval \u22122.0 to +6.0 %)"
    assert "".join(actual.sure) == (
        "Chance alone could explain this (p = 0.180, corrected for 3 comparisons). "
        "The test would have found changes of 8.0 % or more."
    )


def test_an_answer_without_a_winner_is_about_what_is_open_not_about_a_loser() -> None:
    rows = [compared("a", "baseline", -0.1), compared("b", None, 0.01, p_adjusted=0.18)]
    actual = answer(Figures([mean("control"), mean("a"), mean("b")], rows))
    assert words(actual).startswith("MAP@10 is 0.500 in control and 0.510 in b: +2.0 %")
    assert "".join(actual.sure).startswith(
        "1 candidate is worse, 1 shows no clear difference. Chance alone could explain this (p = 0.180"
    )


def test_where_lower_is_better_the_lowest_mean_comes_first() -> None:
    rows = [mean("a", "softmax_loss(t=1)", 2.0), mean("b", "softmax_loss(t=1)", 1.0)]
    figures = Figures(rows)
    assert figures.experiments == ["b", "a"]
    assert "".join(answer(figures).title) == "b has the lowest Softmax loss (t = 1)"


def test_one_experiment_has_nothing_to_be_compared_with() -> None:
    actual = answer(Figures([mean("only")]))
    assert ("".join(actual.title), actual.change) == ("MAP@10 of only is 0.500", "0.5000")
    assert actual.sure == ("There is one experiment, so nothing to compare it with.",)


def test_the_primary_metric_decides_else_the_largest_cut_off_of_the_first_metric() -> None:
    names = ("ndcg@10", "ap@5", "ap@10")
    rows = [mean("a", metric) for metric in names]
    config = {"metrics": ["ap@5", "ap@10", "ndcg@10"]}
    assert str(Figures(rows, record={"config": config}).primary) == "ap@10"
    of_config = config | {"comparison": {"primary": ["ndcg@10"]}}
    assert str(Figures(rows, record={"config": of_config}).primary) == "ndcg@10"
    roles = dict(zip(names, ("secondary", "primary", "guardrail"), strict=True))
    of_rows = [compared("b", None, 0.1) | {"metric": name, "role": role} for name, role in roles.items()]
    assert str(Figures(rows, of_rows, record={"config": config}).primary) == "ap@5"


def test_a_card_without_a_relative_difference_shows_the_difference_itself() -> None:
    (card,) = cards(Figures([mean("a")], [compared("a", "candidate", 0.1, mean_baseline=0.0)]))
    assert card.change
    assert (card.difference, card.change.interval) == ("+0.1000", "+0.0800 to +0.1200")
    nan = float("nan")
    (card,) = cards(
        Figures([mean("a")], [compared("a", None, nan, mean_baseline=nan, p_adjusted=nan, note="no users")])
    )
    assert (card.state, card.difference, card.change, card.note) == ("doubtful", "-", None, "no users")


def test_cards_share_an_axis_so_they_share_a_unit() -> None:
    means = [mean("a"), mean("b")]
    both = cards(Figures(means, [compared("a", "candidate", 0.1), compared("b", "candidate", 0.1, mean_baseline=0.0)]))
    assert [card.difference for card in both] == ["+0.1000", "+0.1000"]


# ---- can it be trusted


def test_what_weakens_an_answer_is_a_warning() -> None:
    few = [mean("control") | {"n_users": 40, "n_users_with_relevant": 10}]
    counts = {"evaluated": 100, "tied": 30, "beyond_judgements": 2, "lists": 100, "judged_lists": 5}
    record = {
        "rows": {"in": 120, "evaluated": 100, "quarantined": 20},
        "experiments": {"control": counts},
        "config": {"rank_by": "score"},
        "judgements": {"rows": 3},
        "quality": {"warnings": ["ranks seem to start at 0"]},
    }
    rows = [compared("a", None, 0.1, sample_ratio_p=1e-9)]
    actual = {check.title: (check.level, check.text) for check in checks(Figures(few, rows, record=record))}
    assert {title for title, (level, _) in actual.items() if level == "warn"} == {
        "Number of users", "Users without a relevant item", "Split of the users", "Faulty rows", "Ties",
        "Judgements", "Judged lists", "Quality of the log",
    }  # fmt: skip
    assert actual["Faulty rows"][1] == "20 of 120 rows (16.67%) were faulty and are left out."
    assert actual["Ties"][1].startswith("30.0% of the rows")


def test_a_clean_run_has_no_warning() -> None:
    record = {"rows": {"in": 100, "evaluated": 100, "quarantined": 0}, "experiments": {}, "quality": {}}
    levels = {check.level for check in checks(Figures([mean("a")], record=record))}
    assert levels == {"ok", "none"}
    assert [check.title for check in checks(Figures([mean("a")]))][-1] == "Run record"


def test_the_page_says_the_checks_that_were_written_and_computes_none() -> None:
    pytest.importorskip("altair")

    def row(name: str, status: str, sentence: str, experiment: str = "b") -> dict[str, Any]:
        numbers = dict.fromkeys(("observed", "limit", "margin", "metric"))
        return {
            "experiment_id": experiment,
            "segment": "all",
            "name": name,
            "status": status,
            "sentence": sentence,
            **numbers,
        }

    written = [
        row("n_users", "ok", "12 users."),
        row("n_users", "ok", "12 users.", "a"),
        row("max_drop", "fail", "b fell"),
        row("min", "ok", "b is fine"),
        row("short_rate", "warn", "b: 50 % of the lists are shorter than the largest cut-off"),
        row("gap_rate", "not_checked", "no limit"),
        row("sample_ratio", "not_checked", "Not checked."),
        row("books_lists", "ok", "2 lists"),
    ]
    record = {"rows": {"in": 1, "evaluated": 1, "quarantined": 0}, "experiments": {}}
    figures = Figures([mean("a"), mean("b")], record=record, checks=written)
    assert [(check.level, check.title, check.text) for check in checks(figures)] == [
        ("fail", "Gates", "b fell."),
        ("warn", "Rates of the log", "b: 50 % of the lists are shorter than the largest cut-off."),
        ("ok", "Gates", "b is fine."),
        ("ok", "Books", "Every row and every list of the log is in a table, in each experiment."),
        ("ok", "Number of users", "12 users."),
        ("none", "Split of the users", "Not checked."),
    ]
    text = re.sub("<[^>]+>", "", page(Figures([mean("a"), mean("b")], checks=written)))
    assert "2 checks below weaken this answer." in text and "Not published" not in text


# ---- reading a folder


def test_the_figures_of_a_folder_are_its_rows(tmp_path: Path) -> None:
    output = Output(tmp_path, ["007", "null", "a/b=c"], users=50).write()
    tables = local_tables(str(output))
    assert tables
    figures = figures_of(tables)
    assert set(figures.experiments) == {"007", "null", "a/b=c"}
    # Two candidates and three experiments, by three segments and four metrics.
    assert (figures.n_means, figures.n_comparisons, len(figures.means)) == (3 * 3 * 4, 2 * 3 * 4, 3 * 3 * 4)
    assert figures.record["run_id"] == "20261120T010203-0a1b2c3d" and figures.trend == []
    per_metric = {key: 0 for key in {(row["experiment_id"], row["metric"]) for row in figures.users}}
    for row in figures.users:
        per_metric[row["experiment_id"], row["metric"]] += row["users"]
    assert set(per_metric.values()) == {50} and len(per_metric) == 12
    with pytest.raises(InputError, match="published on 2020-01-01; the nearest dates that are published: 2026-11-20"):
        figures_of(tables, "2020-01-01")


def test_a_page_opens_each_file_once_and_none_that_it_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = local_tables(str(Output(tmp_path, users=20).write()))
    assert tables
    metrics = figures_of(tables).metrics
    edges = dict.fromkeys(map(str, metrics), (0.0, 1.0))
    opened: list[str] = []
    file_of = pq.ParquetFile

    def counted(file: str, *more: Any, **options: Any) -> Any:
        opened.append(file.split("/")[-4] + "/" + file.split("/")[-3].partition("=")[2])
        return file_of(file, *more, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    tables.rows("experiment_metrics", "2026-11-20", 100)
    assert sorted(opened) == [f"experiment_metrics/{name}" for name in ("candidate_a", "candidate_b", "control")]
    shown = [
        lambda: tables.users("2026-11-20", edges, metrics, ["candidate_a"]),
        lambda: tables.history(["2026-11-20"], ["candidate_a"]),
        lambda: tables.differences(["2026-11-20"], ["candidate_a"]),
        lambda: tables.changes("2026-11-20", edges, metrics, [("control", "candidate_a")]),
    ]
    names = [["user_metrics/candidate_a"], ["experiment_metrics/candidate_a"], ["comparisons/candidate_a"]]
    for look, expected in zip(shown, [*names, ["user_metrics/candidate_a", "user_metrics/control"]], strict=True):
        opened.clear()
        assert look()
        assert sorted(opened) == expected


def test_the_order_of_experiments_takes_one_look_at_each_row() -> None:
    looks = []

    class Row(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            looks.append(name)
            return super().__getitem__(name)

    def n_looks(n_metrics: int) -> int:
        metrics = [parse(f"ndcg@{k}") for k in range(1, n_metrics + 1)]
        made: list[Any] = [
            Row(compared(c, "candidate", 0.001, b, metric=str(metric)))
            for metric in metrics
            for b, c in (("a", "b"), ("a", "c"), ("b", "c"))
        ]
        looks.clear()
        assert len(differences.sentences_of_order(made, metrics)) == n_metrics
        return len(looks)

    assert n_looks(40) == 10 * n_looks(4)


def test_a_table_on_the_terminal_goes_through_its_rows_as_often_for_many_experiments_as_for_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Cells(dict[Any, Any]):
        passes = 0

        def items(self) -> Any:
            self.passes += 1
            return super().items()

    def passes(n: int) -> int:
        result = Shown([mean(f"e{i}") for i in range(n)], metrics=[parse("ap@10")])
        cells = vars(result)["cells"] = Cells(result.cells)
        print_result(result)
        assert f"e{n - 1} " in capsys.readouterr().out
        return cells.passes

    assert 0 < passes(40) == passes(4)


def test_a_pointer_says_which_files_count(tmp_path: Path) -> None:
    output = Output(tmp_path, users=20).write()
    runs = {"old": "20261120T010203-00000000", "new": "20261120T020304-11111111"}
    for file in output.glob("*/*/*/part-0.parquet"):
        file.rename(file.with_name(f"part-0-{runs['old']}-0.parquet"))
    other = Output(tmp_path / "other", users=30).write()
    for file in other.glob("*/*/*/part-0.parquet"):
        target = output / file.relative_to(other)
        target.with_name(f"part-0-{runs['new']}-0.parquet").write_bytes(file.read_bytes())
    pointer = Pointer("2026-11-20").with_run(Entry(runs["old"], ("control", "candidate_a", "candidate_b")))
    pointer = pointer.with_run(Entry(runs["new"], ("candidate_a",)))
    (output / "published").mkdir()
    (output / "published" / "2026-11-20.json").write_text(pointer.as_json())
    tables = local_tables(str(output))
    assert tables
    users = {row["experiment_id"]: row["n_users"] for row in figures_of(tables).everyone}
    assert users == {"control": 20, "candidate_a": 30, "candidate_b": 20}


def test_the_payload_of_a_page_has_no_nan_and_no_row_of_an_unknown_experiment() -> None:
    nan = float("nan")
    figures = Figures([mean("a", value=nan)], [compared("gone", None, 0.1)], users=[])
    actual = payload_of(figures)
    assert actual["means"]["mean"] == [None] and actual["compared"]["e"] == []
    json.dumps(actual, allow_nan=False)


def test_without_its_libraries_the_report_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the others were there, also where the suite runs without them.
    monkeypatch.setattr(assets, "find_spec", lambda name: None if name == "vl_convert" else name)
    with pytest.raises(ConfigError, match=r"needs vl_convert, .* pip install 'altair>="):
        assets.check_page_libraries()
    assert not assets.has_page_libraries()


def test_the_scripts_of_a_page_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    monkeypatch.setattr(assets, "cache_folder", lambda: tmp_path)
    made = assets.scripts()
    with monkeypatch.context() as patched:
        patched.setattr(assets, "_made", lambda: pytest.fail("made again"))
        assert assets.scripts() == made
    assert "</script" not in made[0] and set(json.loads(made[1])) == {
        "forest", "cutoffs", "distribution", "changes", "trend", "byDate", "byDay",
    }  # fmt: skip
    # Those of other libraries, or what was left of a file, are replaced.
    monkeypatch.setattr(assets, "_made", lambda: ("new library", "new charts"))
    for spoilt in (b'{"made_of": "others", "library": "", "charts": ""}', b"{", b"[]", b'{"made_of": 1}', b"\xff"):
        (tmp_path / "page.json").write_bytes(spoilt)
        assert assets.scripts() == ("new library", "new charts")
        assert json.loads((tmp_path / "page.json").read_text())["library"] == "new library"


def test_the_theme_of_a_notebook_does_not_get_into_the_pages_of_others() -> None:
    altair = pytest.importorskip("altair")
    from rankmetrics_spark.report import templates

    def looks() -> list[Any]:
        return [chart["config"] for chart in templates().values()]

    usual = looks()
    with altair.theme.enable("dark"):
        assert looks() == usual


def test_libraries_of_a_page_that_cannot_be_imported_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match=r"cannot be imported: .*vl_convert.*; run: pip install"):
        assets._made()


def test_scripts_of_libraries_that_do_not_say_their_version_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert")

    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(assets, "version", unknown)
    monkeypatch.setattr(assets, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(assets, "_made", lambda: ("library", "charts"))
    assert assets.scripts() == ("library", "charts") and not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_cached(tmp_path / "page.json", "text")
    assert not [*tmp_path.iterdir()]


def test_a_page_needs_no_folder_to_keep_its_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    occupied = tmp_path / "a file, not a folder"
    occupied.touch()
    monkeypatch.setattr(assets, "cache_folder", lambda: occupied)
    monkeypatch.setattr(assets, "_made", lambda: ("library", "charts"))
    assert assets.scripts() == ("library", "charts")


# ---- the terminal


class Terminal(io.StringIO):
    """A stdout that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Print a result to a terminal of a width, or to a pipe."""

    def shown(result: Shown, width: int | None, every_segment: bool = False) -> str:
        for name, value in {"COLUMNS": str(width or 80), "TERM": "xterm-256color"}.items():
            monkeypatch.setenv(name, value)
        screen = Terminal() if width else io.StringIO()
        with redirect_stdout(screen):
            print_result(result, every_segment)
        return screen.getvalue()

    return shown


def result() -> Shown:
    segments = ["country=DE", "country=FR", "country=GB", "country=PL"]
    rows = [mean("control"), mean("a", value=0.6), mean("b[/b]", value=0.4)]
    rows += [mean(name, segment=segment) for name in ("control", "a", "b[/b]") for segment in segments]
    changes = {"country=DE": 0.1, "country=FR": 0.3, "country=GB": 0.12, "country=PL": -0.05}
    differences = [compared("a", "candidate", 0.1), compared("b[/b]", "baseline", -0.1)]
    p = {"country=DE": 0.8, "country=FR": 0.0001, "country=GB": 0.9, "country=PL": 0.0499}
    rest = {"rest_difference": 0.05, "rest_relative_difference": 0.1}
    differences += [
        compared("a", "candidate", change) | rest | {"segment": name, "p_rest": p[name] / 4, "p_rest_adjusted": p[name]}
        for name, change in changes.items()
    ]
    return Shown(rows, differences)


def test_a_pipe_gets_one_line_per_experiment_with_its_difference_and_the_segments_that_differ(
    printed: Callable[..., str],
) -> None:
    text = printed(result(), None).replace("\u2212", "-")
    lines = [re.sub(r"\s+", " ", line).strip(" │") for line in text.splitlines() if line.startswith("│")]
    assert lines[:3] == [
        "a │ 1,000 │ 0.6000 ± 0.0100 ▲ +20.0 %",
        "control │ 1,000 │ 0.5000 ± 0.0100 baseline",
        "b[/b] │ 1,000 │ 0.4000 ± 0.0100 ▼ -20.0 %",
    ]
    assert text.splitlines()[-4:] == [
        "The effect of a on MAP@10 differs in country=FR: +0.3000 (+60.0 %) against +0.0500 (+10.0 %) elsewhere "
        "(p < 0.001)",
        "The effect of a on MAP@10 differs in country=PL: -0.0500 (-10.0 %) against +0.0500 (+10.0 %) elsewhere "
        "(p = 0.0499)",
        "No sign that the effect of a on MAP@10 differs in the other 2 segments of country",
        "--segments prints the means of all segments",
    ]
    assert "\x1b" not in text


def test_without_comparisons_the_segments_are_shown_whose_means_are_furthest(printed: Callable[..., str]) -> None:
    means = {"country=DE": 0.52, "country=FR": 0.3, "country=GB": 0.51, "country=PL": 0.6}
    text = printed(Shown([mean("a"), *(mean("a", value=value, segment=name) for name, value in means.items())]), None)
    lines = [line.strip("│ ").split(" ")[0] for line in text.splitlines() if line.startswith("│")]
    # Half widths of 0.01 around 0.5: France is 20 away, Poland 10, Germany 2, Great Britain 1.
    assert lines[1:] == ["country=FR", "country=PL", "country=DE"] and "3 of 4 segments" in text


def test_every_segment_is_printed_on_request(printed: Callable[..., str]) -> None:
    text = printed(result(), None, every_segment=True)
    assert sum(line.startswith("│") for line in text.splitlines()) == 3 * 5


def test_a_terminal_has_colours_unless_no_color_is_set(
    printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32m" in printed(result(), 100)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3[0-9]", printed(result(), 100))


def test_a_narrow_terminal_gets_lines_that_fit(printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = re.sub(r"\x1b\[[\d;]*m", "", printed(result(), 60))
    assert max(map(len, text.splitlines())) <= 60
    assert "b[/b]" in text and "+20.0 %" in text


def test_stages_are_timed_on_a_terminal_and_are_plain_lines_elsewhere() -> None:
    pipe, screen = io.StringIO(), io.StringIO()
    with live(Console(file=pipe, width=20)) as progress:
        progress("evaluating [/b] (10 rows)")
        assert pipe.getvalue() == "evaluating [/b] (10 rows) ...\n", "said as the stage begins"
        progress("writing")
    assert pipe.getvalue().splitlines()[1:] == ["writing ..."]
    with live(Console(file=screen, force_terminal=True, width=80)) as progress:
        progress("evaluating [/b] (10 rows)")
        progress("writing")
    assert re.search(r"evaluating \[/b\] \(10 rows\)  \d+\.\d s", screen.getvalue())


# ---- the notebook and MLflow


def test_figures_without_a_record_keep_the_order_of_the_metrics_and_make_a_page() -> None:
    pytest.importorskip("altair")
    rows = [mean("a", "ap@10"), mean("a", "ndcg@10")]
    figures = Figures(rows, order=["ndcg@10", "ap@10"])
    assert [str(metric) for metric in figures.metrics] == ["ndcg@10", "ap@10"]
    assert [str(metric) for metric in Figures(rows).metrics] == ["ap@10", "ndcg@10"]
    assert "There is none, so the rows that came in are not known." in html.page(figures)


def test_a_notebook_shows_the_answer_and_names_as_text() -> None:
    figures = Figures([mean("control"), mean("<b>x", value=0.6)], [compared("<b>x", "candidate", 0.1)])
    shown = notebook.as_html(figures)
    assert "<bdi>&lt;b&gt;x</bdi> beats <bdi>control</bdi>" in shown and "<b>x" not in shown
    assert "0.6000" in shown and "&#9650; +20.0 %" in shown


def test_a_notebook_shows_margins_a_key_and_what_weakens_the_answer() -> None:
    figures = Figures([mean("control"), mean("a", value=0.6)], [compared("a", "candidate", 0.1)])
    shown = notebook.as_html(figures)
    assert re.sub("<[^>]+>", "", shown).count("± 0.0100") == 2
    assert "mean over users ± 95 % margin; &#9650; better, &#9660; worse than <bdi>control</bdi>" in shown
    assert "<b>Run record</b>" not in shown, "what was not looked at is no warning"
    check = {"experiment_id": "a", "name": "tied_rate", "segment": "all", "metric": None, "status": "warn"}
    warned = notebook.as_html(replace(figures, checks=[check | {"sentence": "1 of 3 rows <b>tie"}]))
    assert "<b>Ties</b>: 1 of 3 rows &lt;b&gt;tie" in warned


def test_comparisons_show_their_verdict_and_a_line_each() -> None:
    rows = [compared("<i>a", "candidate", 0.1), compared("b", None, 0.001, p_adjusted=0.8)]
    shown = notebook.compared_html([{**row, "design": "independent"} for row in rows])
    assert "&lt;i&gt;a beats control on MAP@10: 0.500 → 0.600" in shown and "<i>a" not in shown
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", shown)][1:]
    assert [(row[0], row[3], row[7]) for row in cells] == [
        ("<bdi>&lt;i&gt;a</bdi>", "MAP@10", "&lt; 0.001"),
        ("<bdi>b</bdi>", "MAP@10", "0.800"),
    ]


def test_the_summary_is_tidy_and_says_the_differences() -> None:
    rows = [mean("control"), mean("a", value=0.6), mean("a", value=0.7, segment="s=1")]
    frame = notebook.summary(Figures(rows, [compared("a", "candidate", 0.1)]))
    assert list(frame.columns) == [
        "experiment", "segment", "metric", "users", "mean", "ci_low", "ci_high",
        "baseline", "difference", "relative_difference", "p_adjusted", "better",
    ]  # fmt: skip
    assert frame["experiment"].tolist() == ["control", "a", "a"]
    assert frame["segment"].tolist() == ["all", "all", "s=1"]
    assert np.isnan(frame["difference"][0]) and frame["difference"][1] == 0.1
    assert len(notebook.summary(Figures(rows)).columns) == 7


def test_a_plot_of_a_metric_that_was_not_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'ndgc'"):
        notebook.plot(Figures([mean("a", "ndcg@10")]), "ndgc")


METRICS_SHOWN = ["ap@5", "ap@10", "hit_rate@10", "rr"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ["MAP@5", "MAP@10"]),
        ("map", ["MAP@5", "MAP@10"]),
        ("ap@10", ["MAP@10"]),
        ("mean_average_precision", ["MAP@5", "MAP@10"]),
        ("Hit rate", ["Hit rate@10"]),
        ("HR@10", ["Hit rate@10"]),
        ("hitrate", ["Hit rate@10"]),
        ("MRR", ["MRR"]),
        ("recip_rank", ["MRR"]),
    ],
)
def test_a_plot_takes_every_name_of_a_metric_and_shows_itself_without_a_network(
    text: str | None, expected: list[str]
) -> None:
    pytest.importorskip("altair")
    rows = [mean(name, metric) for metric in METRICS_SHOWN for name in ("control", "a")]
    figures = Figures(rows, [compared("a", "candidate", 0.1)], order=METRICS_SHOWN)
    bundle = notebook.plot(figures, text)._repr_mimebundle_()
    (vega,) = (value for name, value in bundle.items() if name.startswith("application/vnd.vegalite"))
    assert [row["metric"] for row in vega["datasets"]["rows"] if row["name"] == "a"] == expected
    # Altair's own HTML loads its scripts from a network.
    assert "text/html" not in bundle and "http" not in json.dumps({**vega, "$schema": ""})
    svg = bundle["image/svg+xml"]
    for word in (
        "control",
        "a",
        f"{expected[0] if len(expected) == 1 else 'MAP'}: mean over users, with 95 % intervals",
    ):
        assert f">{word}</text>" in svg, "legend and title"


def test_mlflow_gets_means_and_differences_under_keys_that_it_takes() -> None:
    figures = Figures([mean("control"), mean("a(1)", value=0.6)], [compared("a(1)", "candidate", 0.1)])
    assert logged_metrics(figures) == {
        "ap_at_10/control": 0.5,
        "ap_at_10/a_1_": 0.6,
        "ap_at_10_difference/a_1_": 0.1,
        "ap_at_10_p_adjusted/a_1_": 0.0001,
    }
    assert logged_parameters(figures) == {"convention": "standard", "baseline": "control"}
    period = {"period_from": "2026-11-08", "period_to": "2026-11-21"}
    of_period = replace(figures, comparisons=[{**row, **period} for row in figures.comparisons])
    assert logged_parameters(of_period) == {"convention": "standard", "baseline": "control", **period}


# ---- over time


def developed(kind: str, label: str, change: float, p: float = 0.5, **more: Any) -> dict[str, Any]:
    """A row of ``effect_over_time``: a difference of ``change`` to a mean of 0.5, and 0.02 to each side."""
    row = compared("b", None, change, baseline="a", **more)
    number = int(label) if kind == "days_since_first" else None
    return row | {"kind": kind, "label": label, "day_number": number, "p_value": p, "p_adjusted": p, "note": None}


def sentences(slope: dict[str, Any], whole_p: float = 0.001, whole: float = 0.05, *more: dict[str, Any]) -> list[str]:
    rows = [developed("cumulative", "2026-11-08", 0.2, 0.9), developed("cumulative", "2026-11-21", whole, whole_p),
            developed("days_since_first", "0", 0.1), developed("days_since_first", "1", 0.02), slope,
            *more]  # fmt: skip
    return [line.replace("\N{MINUS SIGN}", "-") for line in sentences_over_time(rows)]


def test_an_effect_that_gets_smaller_with_the_days_of_a_user_fades() -> None:
    assert sentences(developed("slope", "per day", -0.025, 0.0123)) == [
        "The effect of b against a on MAP@10 fades with a user's days: -5.0 % per day (95 % interval -9.0 to -1.0 %, "
        "p = 0.012). It is +20.0 % on a user's first day."
    ]
    # A candidate that is worse by less and less.
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01), 0.001, -0.05)
    assert line.startswith("The effect of b against a on MAP@10 fades with a user's days: +5.0 % per day")


def test_an_effect_that_gets_larger_grows_and_one_that_is_not_shown_is_a_difference() -> None:
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01))
    assert line.startswith("The effect of b against a on MAP@10 grows with a user's days: +5.0 % per day")
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01), 0.2)
    assert line.startswith("The difference between b and a on MAP@10 rises with a user's days: +5.0 % per day")
    (line,) = sentences(developed("slope", "per day", -0.025, 0.01), 0.2)
    assert line.startswith("The difference between b and a on MAP@10 falls with a user's days: -5.0 % per day")


def test_a_slope_that_chance_explains_is_no_sign() -> None:
    assert sentences(developed("slope", "per day", -0.005, 0.4)) == [
        "No sign that the effect of b against a on MAP@10 fades or grows: -1.0 % per day (95 % interval -5.0 to "
        "+3.0 %, p = 0.400)."
    ]
    (line,) = sentences(developed("slope", "per day", -0.005, 0.4), 0.2)
    assert line.startswith(
        "No sign that the difference between b and a on MAP@10 changes with a user's days: -1.0 % per"
    )
    unknown = developed("slope", "per day", -0.005) | {"p_adjusted": None, "note": "no slope: too few users"}
    assert sentences(unknown) == [
        "Nobody can tell yet whether the effect of b against a on MAP@10 changes with a user's days: no slope: too few "
        "users."
    ]


def test_users_who_differed_before_the_start_come_first() -> None:
    slope = developed("slope", "per day", -0.005, 0.4)
    same = sentences(slope, 0.001, 0.05, developed("before", "2026-11-08", 0.005, 0.6))
    assert same[0] == (
        "Before 2026-11-08, the users of b and a did not differ clearly, as it should be: +1.0 % on MAP@10 (95 % "
        "interval -3.0 to +5.0 %, p = 0.600)."
    )
    other = sentences(slope, 0.001, 0.05, developed("before", "2026-11-08", 0.05, 0.003, metric="ndcg@10"))
    assert len(other) == 2 and other[0].startswith(
        "Before 2026-11-08, the users of b and a differed already: +10.0 % on NDCG@10 (95 % interval +6.0 to +14.0 %, "
        "p = 0.003). Find the cause before you trust this effect"
    )
    # Of other metrics, only what is out of the ordinary is said.
    quiet = [developed(kind, "2026-11-08", 0.005, 0.6, metric="ndcg@10") for kind in ("before", "cumulative", "slope")]
    assert len(sentences(slope, 0.001, 0.05, *quiet)) == 1


def test_bad_days_are_those_that_failed_warned_or_are_missing() -> None:
    error = {"message": "the gate allows 0.09", "class": "MetricGateError"}
    history = [{"evaluation_date": f"2026-11-{day:02}"} for day in (8, 9, 10, 12)]
    history[1] |= {"quality": {"warnings": ["tie_rate is 31.00%"]}}
    history[2] |= {"error": error}
    rows = [developed("day", f"2026-11-{day:02}", 0.1) | {"p_adjusted": None} for day in (8, 9, 12)]
    actual = payload_of(Figures([mean("a"), mean("b")], rows[:1], over_time=rows, history=history))
    assert [(day["date"][-2:], day["state"], day["text"]) for day in actual["alerts"]] == [
        ("09", "warned", "tie_rate is 31.00%"),
        ("10", "failed", "the gate allows 0.09"),
        ("11", "missing", "nothing is published for this date"),
    ]
    assert actual["overTime"]["label"] == ["2026-11-08", "2026-11-09", "2026-11-12"]
    assert (actual["overTime"]["d"][0], actual["overTime"]["low"][0], actual["overTime"]["rel"][0]) == (0.1, 0.08, 0.2)


def test_failed_runs_of_newer_dates_are_named_above_the_headline() -> None:
    history: list[dict[str, Any]] = [
        {"evaluation_date": f"2026-11-{day}", "error": {"message": f"reason {day}"}} for day in range(19, 25)
    ]
    history += [{"evaluation_date": "2026-11-25"}, {"error": {"message": "refused"}}]
    shown = Figures([mean("a")], record={"evaluation_date": "2026-11-20"}, history=history)
    assert newer_failures(shown) == [
        *(
            f"The run of 2026-11-{day} failed, so nothing newer than 2026-11-20 is shown: reason {day}"
            for day in (24, 23, 22)
        ),
        "1 more run of a newer date failed.",
    ]
    assert len(newer_failures(replace(shown, record={"evaluation_date": "2026-11-22"}))) == 2
    assert newer_failures(Figures([mean("a")], record={"evaluation_date": "2026-11-26"}, history=history)) == []


def test_differences_of_dates_are_read_from_a_folder(tmp_path: Path) -> None:
    output = Output(tmp_path / "days")
    for day in ("2026-11-18", "2026-11-19"):
        output.write(day, seed=int(day[-2:]))
    tables = local_tables(str(output.path))
    assert tables is not None
    actual = figures_of(tables)
    assert actual.trend == [] and len(actual.over_time) == 2 * 2 * 4
    for row in actual.over_time:
        (file,) = output.path.glob(f"comparisons/*={row['experiment_id']}/*={row['label']}/*.parquet")
        expected = next(each for each in pq.read_table(file, partitioning=None).to_pylist()
                      if (each["segment"], each["metric"]) == ("all", row["metric"]))  # fmt: skip
        assert row["kind"] == "day" and row["difference"] == expected["difference"]
        assert row["relative_ci_high"] == expected["relative_ci_high"]
    of_period = difference_rows(
        [{**expected, "experiment_id": "b", "evaluation_date": "2026-11-19", "period_from": "2026-11-08"}]
    )
    assert of_period[0]["kind"] == "cumulative"


def test_the_page_says_which_looks_an_interval_up_to_a_day_holds_for() -> None:
    row = compared("b", None, 0.1, baseline="a") | {"evaluation_date": "2026-11-19", "sequential_ci_low": -0.5}
    row |= {"p_adjusted": None}
    row |= {f"sequential_{name}": 0.5 for name in ("ci_high", "relative_ci_low", "relative_ci_high")}
    of_period = row | {"period_from": "2026-11-08"}
    for given, valid in (
        (row | {"looks": None}, ""),
        (of_period | {"looks": None}, "each valid at a single look"),
        (row | {"looks": "any"}, ""),
        (of_period | {"looks": "any"}, "valid at every look"),
        (of_period | {"looks": "6 of 14, pocock"}, "valid at the look of its day"),
    ):
        payload = payload_of(Figures([mean("a"), mean("b")], over_time=difference_rows([given])))
        assert payload["validOverTime"] == valid
        assert payload["overTime"]["low"] == [-0.5 if given["looks"] else given["ci_low"]]


def test_failed_runs_after_a_period_are_named_after_its_last_day() -> None:
    days = Days("2026-11-08", "2026-11-30", ("2026-11-08", "2026-11-21"))
    history = [{"evaluation_date": f"2026-11-{day}", "error": {"message": "why"}} for day in (20, 22)]
    shown = Figures([mean("a")], record={"evaluation_date": "2026-11-08"}, history=history, days=days)
    assert newer_failures(shown) == ["The run of 2026-11-22 failed, so nothing newer than 2026-11-21 is shown: why"]


def test_of_two_small_experiments_the_other_one_is_one_more(tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path, ["a", "b"], users=60).write()))
    assert tables is not None
    (message,) = [check.text for check in checks(figures_of(tables)) if check.title == "Number of users"]
    assert message.startswith("a has only 60 users, so intervals are rough; 1 more has fewer than 100.")


def test_experiments_with_few_users_are_said_in_one_check(tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path, users=60).write()))
    assert tables is not None
    actual = [check.text for check in checks(figures_of(tables)) if check.title == "Number of users"]
    assert actual == [
        "candidate_a has only 60 users, so intervals are rough; 2 more have fewer than 100. 60 users in each of 3 "
        "experiments (independent)."
    ]
