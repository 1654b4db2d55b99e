"""Gates: limits of means and of drops."""

import re
from typing import Any

import pytest

from rankmetrics_spark.config import Gate
from rankmetrics_spark.gates import Findings, gate_checks
from tests.helpers.gates import failed_gates
from tests.helpers.messages import json_cases, messages

NAN = float("nan")
MEAN = {"experiment_id": "b", "segment": "all", "metric": "ndcg@10", "mean": 0.5, "ci_low": 0.45, "ci_high": 0.55}
DROP = {
    "experiment_id": "b", "baseline": "a", "segment": "all", "metric": "ndcg@10", "difference": -0.02, "ci_low": -0.03,
    "ci_high": -0.01, "relative_difference": -0.04, "relative_ci_low": -0.06, "relative_ci_high": -0.02,
    "mean_baseline": 0.5, "mean_candidate": 0.48, "p_adjusted": 0.2,
}  # fmt: skip


def failed(gate: dict[str, Any], mean: dict[str, Any] | None = None, drop: dict[str, Any] | None = None) -> list[str]:
    changed = {"metric": gate.get("metric", "ndcg@10")}
    means, drops = MEAN | changed | (mean or {}), DROP | changed | (drop or {})
    return failed_gates([Gate(**{"metric": "ndcg@10", **gate})], [means], [drops])


@pytest.mark.parametrize("gate", json_cases("limits that are just kept"))
def test_a_limit_that_is_just_kept_passes(gate: dict[str, Any]) -> None:
    assert failed(gate) == []


CORRECTED = {"adjusted_ci_low": -0.04, "adjusted_ci_high": -0.005} | {
    "adjusted_relative_ci_low": -0.08, "adjusted_relative_ci_high": -0.01
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), messages("gates on what is clear"))
def test_a_gate_on_what_is_clear_fails_if_the_verdict_says_it_fell(given: list[dict[str, Any]], message: str) -> None:
    gate, change = given
    result = failed({**gate, "on": "clear"}, drop=CORRECTED | change)
    assert (result == []) == (message == "passes") and all(message in line for line in result) and len(result) <= 1


UNEVEN = "not trustworthy: the users do not follow the planned shares (p = 1e-09)"


def test_a_gate_that_asks_for_a_trusted_test_fails_where_the_test_is_in_doubt() -> None:
    doubted = {"note": UNEVEN}
    failure = f"the test of NDCG@10 of b against a is {UNEVEN}"
    assert failed({"trusted": True}, drop=doubted) == [failure]
    # Limits look at the numbers alone.
    assert failed({"max_drop": 0.1}, drop=doubted) == []
    assert failed({"max_drop": 0.1, "trusted": True}, drop=doubted) == [failure]
    assert failed({"max_drop": 0.01, "trusted": True}, drop=doubted) == [
        failure,
        "NDCG@10 of b fell by 0.0200 (0.500 → 0.480) against a; the gate allows 0.01; these numbers are not to be "
        "trusted",
    ]
    assert failed({"trusted": True, "segment": "lang=de"}, drop=doubted) == [
        "the gate on ndcg@10 cannot be checked: no row of segment 'lang=de'"
    ]
    assert failed({"trusted": True}, drop={"note": "2 users are in both experiments"}) == []
    # Without a test there is nothing to trust; a broken split may be why there is none.
    few = {"note": "fewer than two users in b", "p_adjusted": NAN, "sample_ratio_p": 1e-90}
    untested = "there is no test of NDCG@10 of b against a: "
    assert failed({"trusted": True}, drop=few) == [f"{untested}fewer than two users in b"]
    assert failed({"trusted": True}, drop={"note": None, "p_adjusted": None}) == [f"{untested}not tested"]


@pytest.mark.parametrize(("row", "sentence"), messages("tests without doubts"))
def test_a_test_without_doubts_says_whether_the_split_was_checked(row: dict[str, Any], sentence: str) -> None:
    (check,) = gate_checks([Gate(metric="ndcg@10", trusted=True)], [], [DROP | {"note": None} | row])
    assert check.sentence == f"the test of NDCG@10 of b against a is {sentence}"
    assert (check.name, check.status, check.experiment, check.segment, check.metric) == (
        ("trusted", "ok", "b", "all", "ndcg@10")
    )
    assert (check.observed, check.limit, check.margin) == (None, None, None)


def test_a_mean_is_clearly_below_its_limit_where_its_whole_interval_is() -> None:
    assert failed({"min": MEAN["ci_high"], "on": "clear"}) == []
    (message,) = failed({"min": MEAN["ci_high"] + 0.01, "on": "clear"})
    assert message.startswith(f"the upper bound of NDCG@10 of b is {MEAN['ci_high']:.4f}; the gate asks for at least")


def test_a_limit_that_is_just_kept_passes_where_the_difference_is_rounded() -> None:
    # 49 hits of 100 against 50: 0.49 - 0.5 is a little below -0.01.
    drop = {"difference": 0.49 - 0.5, "relative_difference": 0.49 / 0.5 - 1}
    assert drop["difference"] < -0.01 and drop["relative_difference"] < -0.02
    assert failed({"max_drop": 0.01, "max_relative_drop": 0.02}, drop=drop) == []
    assert failed({"min": 0.3}, mean={"mean": 0.1 * 3 - 1e-16}) == []


def test_an_experiment_without_a_row_keeps_no_limit() -> None:
    gates = [Gate(metric="ndcg@10", min=0.1), Gate(metric="ndcg@10", max_drop=0.1)]
    result = failed_gates(gates, [MEAN], [DROP], ["a", "b"], ["b", "c"])
    without = "the gate on ndcg@10 cannot be checked: no row of segment 'all' and experiment"
    assert result == [f"{without} 'a'", f"{without} 'c'"]


@pytest.mark.parametrize(("gate", "message"), messages("a failed gate"))
def test_a_limit_that_is_not_kept_is_one_sentence(gate: dict[str, Any], message: str) -> None:
    assert failed(gate) == [message]


def test_an_increase_of_a_loss_is_a_drop() -> None:
    result = failed({"metric": "softmax_loss(t=1)", "max_drop": 0.01}, drop={"difference": 0.02})
    moved = "rose by 0.0200 (0.500 → 0.480) against a"
    assert result == [f"Softmax loss (t = 1) of b {moved}; the gate allows 0.01"]


@pytest.mark.parametrize("value", [None, NAN])
def test_what_has_no_value_fails(value: float | None) -> None:
    assert failed({"min": 0.1}, mean={"mean": value}) == ["b has no mean of NDCG@10; the gate cannot be checked"]
    assert failed({"max_drop": 0.1, "on": "bound"}, drop={"ci_low": value}) == [
        "b against a has no interval of the difference on NDCG@10; the gate cannot be checked"
    ]


def test_the_sentences_follow_the_names_of_the_experiments() -> None:
    rows = [MEAN | {"experiment_id": name} for name in "cab"]
    result = failed_gates([Gate(metric="ndcg@10", min=0.6)], rows, [])
    assert [message.split(" of ")[1][0] for message in result] == ["a", "b", "c"]


def test_every_limit_of_every_gate_is_looked_at() -> None:
    gates = [Gate(metric="ndcg@10", min=0.6, max_drop=0.001), Gate(metric="ndcg@10", max_relative_drop=0.001)]
    assert len(failed_gates(gates, [MEAN, MEAN | {"experiment_id": "c"}], [DROP])) == 4


@pytest.mark.parametrize("limit", [{"min": 0.1}, {"max_drop": 0.1}, {"max_relative_drop": 0.1}])
def test_a_gate_that_no_row_belongs_to_fails_instead_of_passing(limit: dict[str, float]) -> None:
    message = "the gate on ndcg@10 cannot be checked: no row of segment 'country=de'"
    segment = Gate(metric="ndcg@10", segment="country=de", **limit)
    assert failed_gates([segment], [MEAN], [DROP]) == [message]
    # The rows may have been chosen by segment already.
    assert failed_gates([segment], [], []) == [message]
    experiment = Gate(metric="ndcg@10", experiment="c", **limit)
    assert failed_gates([experiment], [MEAN], [DROP]) == [
        "the gate on ndcg@10 cannot be checked: no row of segment 'all' and experiment 'c'"
    ]


def test_the_rows_of_a_segment_are_named() -> None:
    gate = Gate(metric="ndcg@10", segment="country=de", min=0.6)
    assert failed_gates([gate], [MEAN | {"segment": "country=de"}, MEAN], []) == [
        "NDCG@10 in country=de of b is 0.5000; the gate asks for at least 0.6"
    ]


@pytest.mark.parametrize(("gate", "message"), json_cases("drops below a negative mean"))
def test_a_drop_below_a_negative_mean_is_a_drop(gate: dict[str, Any], message: list[str]) -> None:
    # From -0.5 to -0.52: the difference is -0.02, and -0.02 / -0.5 = 0.04.
    of_negative = {"mean_baseline": -0.5, "relative_difference": 0.04}
    result = failed(gate, drop=of_negative | {"relative_ci_low": 0.02, "relative_ci_high": 0.06})
    assert len(result) == bool(message) and all("fell" in line or "fallen" in line for line in result)
    assert re.findall(r"[0-9.]+ %", " ".join(result)) == message


# ---- every limit is a row


def test_a_gate_has_a_row_for_each_limit_with_what_was_observed_and_how_far_that_is_from_the_limit() -> None:
    gate = Gate(metric="ndcg@10", min=0.45, max_drop=0.03, max_relative_drop=0.01)
    result = {check.name: check for check in gate_checks([gate], [MEAN], [DROP])}
    assert {name: (check.observed, check.limit, check.status) for name, check in result.items()} == {
        "min": (0.5, 0.45, "ok"),
        "max_drop": (0.02, 0.03, "ok"),
        "max_relative_drop": (0.04, 0.01, "fail"),
    }
    margins = {"min": 0.05, "max_drop": 0.01, "max_relative_drop": -0.03}
    assert {name: check.margin for name, check in result.items()} == pytest.approx(margins)
    assert {(check.experiment, check.segment, check.metric) for check in result.values()} == {("b", "all", "ndcg@10")}
    assert result["min"].sentence == "NDCG@10 of b is 0.5000; the gate asks for at least 0.45"
    # What is better has a negative drop, and says so.
    (better,) = gate_checks(
        [Gate(metric="ndcg@10", max_drop=0.01)], [], [DROP | {"difference": 0.02, "mean_candidate": 0.52}]
    )
    assert (better.observed, better.margin, better.status) == (-0.02, 0.03, "ok")
    assert better.sentence == "NDCG@10 of b rose by 0.0200 (0.500 → 0.520) against a; the gate allows a drop of 0.01"


def test_with_cuped_the_means_do_not_add_up_to_the_difference_and_are_not_named() -> None:
    row = DROP | {"test": "cuped", "cuped_difference": -0.05, "cuped_ci_low": -0.06}
    (check,) = gate_checks([Gate(metric="ndcg@10", max_drop=0.01)], [], [row])
    assert check.sentence == "NDCG@10 of b fell by 0.0500 against a; the gate allows 0.01"


def test_a_gate_that_cannot_be_checked_fails_in_each_experiment() -> None:
    gate = Gate(metric="ndcg@10", min=0.1, segment="country=de")
    result = gate_checks([gate], [], [], ["a", "b"])
    assert [(check.experiment, check.status, check.observed, check.margin) for check in result] == [
        ("a", "fail", None, None),
        ("b", "fail", None, None),
    ]
    assert len({check.sentence for check in result}) == 1


def test_findings_show_counts_rates_and_warnings_in_a_notebook() -> None:
    counts = {name: {"rows": 1200, "quarantined": 3, "lists": 40} for name in ("<b>", "b")}
    result = Findings(counts, {"<b>": {"gap_rate": 0.25}, "b": {}}, {}, warnings=("a < b",))
    shown = result._repr_html_()
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", shown)]
    assert cells == [
        ["", "<b>&lt;b&gt;</b>", "<b>b</b>"],
        ["rows read", "1,200", "1,200"],
        ["rows left out", "3", "3"],
        ["lists", "40", "40"],
        ["lists whose last rank is greater than their number of rows", "25.0%", "-"],
    ]
    assert "<li>a &lt; b</li>" in shown and "no warnings" not in shown
