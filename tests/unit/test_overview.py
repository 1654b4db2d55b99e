"""What stands around the answer of a page: status line, what else moved; changes of users."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark import config as cfg, findings as fd, report as rep
from rankmetrics_spark.report.html import index
from tests.helpers import figures as made, messages, results
from tests.helpers.figures import mean


def compared(metric: str = "ap@10", better: str | None = "candidate", **more: Any) -> dict[str, Any]:
    change = {"candidate": 0.1, "baseline": -0.1, None: 0.01}[better]
    row = made.compared("b", better, change, "a", metric=metric, p_adjusted=0.4 if better is None else 0.001)
    return row | more


def status(*rows: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    figures = rep.Figures([mean("a"), mean("b")], rows, **more)
    return [(item.level, str(item)) for item in rep.status_line(figures)]


def check(name: str, state: str) -> dict[str, Any]:
    return {"name": name, "status": state, "sentence": "", "experiment_id": "a"}


def test_the_status_line_says_users_gates_split_and_look() -> None:
    row = compared(n_users_both=0, look=1, sample_ratio_p=0.43)
    assert status(row, checks=[check("max_drop", "ok"), check("min", "ok")]) == [
        ("ok", "2,000 users"), ("ok", "all 2 gates are kept"), ("ok", "users split as planned (p = 0.430)"),
        ("ok", "first look"),
    ]  # fmt: skip
    row = compared(n_users_both=1000, design="paired", look=14)
    assert status(row, checks=[check("max_drop", "fail"), check("min", "ok")]) == [
        ("ok", "1,000 users"), ("fail", "1 of 2 gates failed"), ("ok", "same users on both sides"),
        ("warn", "look 14, and p is that of one look"),
    ]  # fmt: skip
    (look,) = [each for each in rep.checks(rep.Figures([mean("a"), mean("b")], [row])) if each.topic == "Looks"]
    assert look.level == "warn" and look.startswith("This is look 14: the pair was compared on 13 earlier dates. ")
    assert status(compared(look=2))[-1] == ("warn", "look 2, and p is that of one look")
    row = compared(sample_ratio_p=1e-9, look=6, looks="6 of 14, pocock")
    gates_and_split = [("none", "no gates"), ("fail", "split of users is off (p < 0.001)")]
    assert status(row)[1:] == [*gates_and_split, ("ok", "look 6 of 14")]
    assert status(compared(look=3, looks="any"))[-1] == ("ok", "look 3, valid at every look")
    (look,) = [each for each in rep.checks(rep.Figures([mean("a"), mean("b")], [row])) if each.topic == "Looks"]
    assert look.level == "ok" and look.startswith("Look 6 of 14. This is look 6, and no comparison.period is set")


def test_a_look_beyond_the_plan_is_not_valid(capsys: pytest.CaptureFixture[str]) -> None:
    late = {"look": 5, "looks": "5 of 4, pocock", "note": "not tested, since this is look 5 and 4 are planned"}
    row = compared(better=None, **late) | {"p_adjusted": None}
    assert status(row)[-1] == ("warn", "look 5 of 4 planned ones, not tested")
    bounds = {f"sequential_{share}ci_{end}": None for share in ("", "relative_") for end in ("low", "high")}
    for looks, valid in (("5 of 4, pocock", False), ("? of 4, pocock", False), ("4 of 4, pocock", True)):
        rep.print_result(rep.Figures([mean("a"), mean("b")], [row | bounds | {"looks": looks}]))
        assert ("(valid at look" in capsys.readouterr().out) == valid


@pytest.mark.parametrize(("sides", "level", "text"), messages.cases("users of one side"))
def test_users_of_one_side_are_not_the_same_on_both(sides: list[int], level: str, text: str) -> None:
    both = min(sides)
    row = compared(design="paired", n_users_both=both, n_users_baseline=sides[0], n_users_candidate=sides[1])
    assert status(row)[-1] == (level, text)


def test_gates_are_kept_by_numbers_that_may_not_be_trusted_and_may_not_be_looked_at() -> None:
    kept = [check("max_drop", "ok"), check("min", "ok")]
    off = "not trustworthy: the users do not follow the planned shares"
    said = "all 2 gates are kept, but by numbers that are not to be trusted"
    assert status(compared(note=off, sample_ratio_p=1e-9), checks=kept)[1] == ("warn", said)
    record = {"config": {"gates": [{"metric": "ap@10", "max_drop": 0.1}]}, "rows": {"in": 1, "quarantined": 0}}
    assert status(compared(), record=record)[1] == ("none", "gates not checked here")


def test_what_else_moved_begins_with_what_contradicts_the_answer() -> None:
    rows = [
        compared("ap@10", role="primary"),
        compared("ap@5", role="secondary"),
        compared("rr", None, role="guardrail"),
        compared("ndcg@5", None, role="secondary"),
        compared("p@1", None, role="secondary"),
        compared("ndcg@10", "baseline", role="secondary", relative_difference=-0.5),
        compared("p@5", "baseline", role="guardrail"),
    ]
    names = [row["metric"] for row in rows]
    figures = rep.Figures([mean(name, metric) for name in "ab" for metric in names], rows, order=names)

    def said(*more: dict[str, Any], better: str | None = "candidate") -> str:
        pair = fd.findings([rows[0] | {"better": better}, *rows[1:], *more])
        (card,) = rep.cards(rep.Figures(figures.means, [pair[0].row], order=names))
        return "".join(rep.what_else(card, pair)).replace("\N{MINUS SIGN}", "-").removeprefix("What else moved in b: ")

    worse = "the guardrail Precision@5 is worse (-20.0 %, -24.0 to -16.0 %); NDCG@10 is worse (-50.0 %)"
    is_open = "the guardrail MRR shows no clear change (+2.0 %, -2.0 to +6.0 %)"
    assert said() == f"{worse}; {is_open}; MAP@5 is better (+20.0 %); 2 other metrics show no clear change."
    # Where the answer is that it is worse, what is better contradicts it.
    assert said(better="baseline").startswith("MAP@5 is better (+20.0 %); the guardrail Precision@5 is worse")
    fifth = compared("p@10", "baseline", role="secondary")
    assert said(fifth).endswith(f"{is_open}; 1 other metric is better; 2 other metrics show no clear change.")
    alone = rep.Figures([mean("a"), mean("b")], rows[:1])
    assert rep.what_else(rep.cards(alone)[0], alone.compared) == ()
    # Where nothing has a verdict, nothing is known to have moved.
    doubted = [row | {"note": "not trustworthy: 1 of 4 days is missing"} for row in rows]
    assert rep.what_else(rep.cards(rep.Figures(alone.means, doubted))[0], fd.findings(doubted)) == ()


def test_of_all_pairs_what_else_moved_is_said_of_the_best_and_the_closest() -> None:
    pytest.importorskip("altair")
    names = ["ap@10", "rr"]
    pairs = [("a", "b", "candidate"), ("a", "c", "candidate"), ("b", "c", None)]
    rows = [compared(metric, better, baseline=x, experiment_id=y) for metric in names for x, y, better in pairs]
    rows = [row | {"difference": 0.2} if row["experiment_id"] == "b" else row for row in rows]
    bounds = {"ci_low": 0.4, "ci_high": 0.6}
    figures = rep.Figures([mean(name, metric) | bounds for name in "abc" for metric in names], rows, order=names)
    text = re.sub(r"<[^>]+>", "", rep.page(figures))
    assert "What else moved in b against a: MRR is better (+20.0 %)." in " ".join(text.split())
    assert "The closest of them is a. MAP@10 rose" in text, "nothing shows that c is beaten"


def plain(text: str) -> str:
    return " ".join(unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", "", text, flags=re.DOTALL)).split())


def test_each_fact_is_in_the_places_that_it_names_and_in_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("altair")
    monkeypatch.setenv("COLUMNS", "4000")
    effects, further = {"candidate_a": 0.0, "candidate_b": -0.2}, {"margin": 0.05, "look": 3, "n_comparisons": 1}
    output = results.Output(tmp_path, effects=effects, further=further)
    tables = rep.local_tables(str(output.write(n_runs=1)))
    assert tables is not None
    read = rep.figures_of(tables)
    # In every segment, the one that loses is above.
    rows = [row if row["segment"] == "all" else row | {"difference": 0.1} for row in read.comparisons]
    history = [{"evaluation_date": "2026-11-21", "error": {"message": "no rows"}}]
    days, soon = cfg.Days("2026-11-19", "2026-11-20", ("2026-11-20",)), ["candidate_a takes 3 more days"]
    record = read.record | {"outcome": "failed", "error": {"message": "a gate failed"}}
    about: dict[str, Any] = {"days": days, "outlook": soon, "history": history, "no_course": "Days are not drawn."}
    figures = replace(read, comparisons=rows, record=record, **about)
    rep.print_verdict(rep.facts(figures, "record"), "json", figures)
    first, *others = capsys.readouterr().err.splitlines()
    rep.print_result(figures)
    others += [capsys.readouterr().out, *rep.facts(figures, "terminal", "notes")]
    rep.print_all(rep.Compared("2026-11-20", 1, rows, {}, figures.metrics, days, soon), "json")
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    before, status, after = re.split(r'(<ul class="status".*?</ul>)', rep.page(figures), flags=re.DOTALL)
    page, notebook = before + after, rep.as_html(figures)
    texts = {"status": status, "headline": first, "terminal": "\n".join(others), "page": page, "notebook": notebook}
    places = {place: plain(text) for place, text in (texts | {"record": "\n".join(verdict)}).items()}
    facts = rep.facts(figures)
    assert {*dict.fromkeys(fact.part for fact in facts)} == {
        "status", "weak", "newer", "refused", "headline", "answer", "also", "turned", "verdict", "outlook", "period",
        "margins", "bad", "fine", "left_out", "no_course", "segments", "notes",
    }  # fmt: skip
    for fact in facts:
        # What one sentence says may be a part of another.
        named = {place for other in facts if fact in other for place in other.where}
        assert {place for place, text in places.items() if plain(fact) in text} == named, (fact, fact.part)


# ---- changes of users


def slow_step(change: float, low: float, high: float) -> int:
    """The step of a change by looking at each edge; 20 steps to either side."""
    if change == 0:
        return 0
    size = next((k for k in range(1, 20) if abs(change) <= k * (high - low) / 20 + 1e-12), 20)
    return size if change > 0 else -size


def test_changes_are_counted_in_steps_and_no_change_apart() -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.uniform(-1, 1, 200), [0.0, 0.0, 0.05, -0.05, 1.0, -1.0, 1e-12]])
    steps, counts = rep.change_steps(values, 0.0, 1.0)
    slow = [slow_step(float(value), 0.0, 1.0) for value in values]
    assert dict(zip(steps.tolist(), counts.tolist(), strict=True)) == {step: slow.count(step) for step in set(slow)}


def test_changes_are_those_of_users_in_both_whatever_their_order() -> None:
    mine = pa.table({"user_id": ["u3", "u1", "u9", "u2"], "ap_at_10": [0.5, 0.2, 1.0, None]})
    theirs = pa.table({"user_id": ["u1", "u2", "u3", "u4"], "ap_at_10": [0.2, 0.1, 0.3, 0.9]})
    rows = rep.change_rows(("b", "a"), {"b": mine, "a": theirs}, {"ap_at_10": "ap@10"}, {"ap@10": (0.0, 1.0)})
    # u3 rises by 0.2, which is 4 of 20 steps; u1 stays; u9 and u4 are on one side, and u2 has no value on one.
    assert [(row["metric"], row["step"], row["users"], row["baseline"]) for row in rows] == [
        ("ap@10", 0, 1, "a"), ("ap@10", 4, 1, "a"),
    ]  # fmt: skip


def test_an_index_has_the_worst_news_first() -> None:
    pytest.importorskip("jinja2")
    states = {"4 better": "candidate", "3 open": None, "2 warned": None, "1 worse": "baseline"}
    parts = {n: rep.Figures([mean("a"), mean("b")], [compared(better=s, role="primary")]) for n, s in states.items()}
    warned = parts["2 warned"]
    parts["2 warned"] = rep.Figures(warned.means, warned.comparisons, checks=[check("max_drop", "fail")])
    page = index(parts, "days", "days.html", {"0 lost": "<no rows>"})
    assert re.findall(r"<li><b>(?:<a [^>]*>)?(\d)", page) == ["0", "1", "2", "3", "4"]
    assert "(not published): &lt;no rows&gt;" in page and 'href="days.1%2520worse.html"' in page
    assert '<li class="fail"><span class="mark" aria-hidden="true">✗</span><span class="unseen">Failed: </span>' in page
