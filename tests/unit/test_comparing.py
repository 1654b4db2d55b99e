"""The sections ``comparison`` and ``gates``: what is allowed, and what is refused with one sentence."""

import re
from importlib import import_module
from typing import Any

import pytest

from rankmetrics_spark import config as cfg
from rankmetrics_spark.errors import ConfigError
from tests.helpers.messages import messages


def config(**sections: Any) -> cfg.Config:
    whole = {"source": {"path": "logs"}, "metrics": ["ndcg@10", "ap"], "evaluation_date": "2026-11-20"}
    return cfg.from_mapping(whole | sections)


def test_without_a_section_nothing_is_compared() -> None:
    result = config()
    assert not result.comparison.is_requested and result.gates == ()
    asked = result.comparison
    assert (asked.correction, asked.confidence, asked.design) == ("holm", 0.95, "auto")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"baseline": "control"}, cfg.Comparison(baseline="control")),
        ({"baseline": 7, "candidates": "8, 9"}, cfg.Comparison(baseline="7", candidates=("8", "9"))),
        ({"pairs": "ALL"}, cfg.Comparison(pairs="all")),
        ({"baseline": "a", "candidates": ["b", "b"]}, cfg.Comparison(baseline="a", candidates=("b",))),
        ({"pairs": "all", "bootstrap": True}, cfg.Comparison(pairs="all", bootstrap=cfg.Bootstrap())),
        ({"pairs": "all", "bootstrap": False}, cfg.Comparison(pairs="all")),
        ({"pairs": "all", "bootstrap": {"seed": 3}}, cfg.Comparison(pairs="all", bootstrap=cfg.Bootstrap(seed=3))),
        ({"pairs": "all", "randomization": True}, cfg.Comparison(pairs="all", randomization=cfg.Resampling())),
        ({"pairs": "all", "cuped": {"date": "2026-11-13"}}, cfg.Comparison(pairs="all", cuped=cfg.Cuped("2026-11-13"))),
        ({"pairs": "all", "cuped": {"column": "x"}}, cfg.Comparison(pairs="all", cuped=cfg.Cuped(column="x"))),
        (
            {"pairs": "all", "shares": {"a": 0.334, "b": 0.667}},
            cfg.Comparison(pairs="all", shares={"a": 0.334, "b": 0.667}),
        ),
        ({"pairs": "all", "shares": {"a": 0.4, "b": 0.4}}, cfg.Comparison(pairs="all", shares={"a": 0.4, "b": 0.4})),
        ({"pairs": "all", "shares": {"a": 1, "b": 2}}, cfg.Comparison(pairs="all", shares={"a": 1.0, "b": 2.0})),
    ],
)
def test_a_section_is_read_as_users_write_it(section: dict[str, Any], expected: cfg.Comparison) -> None:
    result = config(comparison=section).comparison
    assert result == expected and result.is_requested


def test_the_defaults_of_resampling() -> None:
    result = config(comparison={"pairs": "all", "bootstrap": True, "randomization": True, "aa_check": True}).comparison
    assert result.bootstrap and result.randomization and result.aa_check
    assert (result.bootstrap.replicates, result.bootstrap.seed) == (1_000, 1)
    assert (result.randomization.replicates, result.aa_check.replicates) == (9_999, 1_000)


def test_the_confidence_of_the_comparison_is_that_of_the_averages() -> None:
    assert config(comparison={"confidence": 0.9}).options.confidence == 0.9


@pytest.mark.parametrize(("section", "message"), messages("comparison"))
def test_a_wrong_comparison_is_refused_with_the_name_of_its_field(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        config(comparison=section)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ([{"metric": "NDCG@10", "min": 0.3}], (cfg.Gate(metric="ndcg@10", min=0.3),)),
        ({"metric": "map", "min": 0}, (cfg.Gate(metric="ap", min=0.0),)),
        (
            [{"metric": "ap", "max_drop": 0.01}, {"metric": "ap", "max_relative_drop": 0.1, "on": "Bound"}],
            (cfg.Gate(metric="ap", max_drop=0.01), cfg.Gate(metric="ap", max_relative_drop=0.1, on="bound")),
        ),
        ([], ()),
    ],
)
def test_gates_are_read_as_users_write_them(section: Any, expected: tuple[cfg.Gate, ...]) -> None:
    result = config(comparison={"baseline": "a"}, gates=section)
    assert result.gates == expected
    assert all(gate.segment == "all" and gate.experiment is None for gate in result.gates)


@pytest.mark.parametrize(("section", "message"), messages("gates"))
def test_a_wrong_gate_is_refused_with_the_name_of_its_field(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        config(comparison={"baseline": "a"}, gates=section)


@pytest.mark.parametrize("comparison", [{}, {"pairs": "all"}])
def test_a_drop_needs_a_baseline(comparison: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"the gate on ap is about a comparison, but comparison\.baseline is null; "):
        config(comparison=comparison, gates=[{"metric": "ap", "max_drop": 0.1}])


def test_the_run_record_holds_both_sections() -> None:
    result = cfg.as_dict(config(comparison={"baseline": "a", "bootstrap": True}, gates=[{"metric": "ap", "min": 0.1}]))
    assert result["comparison"]["bootstrap"] == {"replicates": 1_000, "seed": 1}
    assert result["gates"][0]["metric"] == "ap" and result["gates"][0]["min"] == 0.1


@pytest.mark.outcome(
    "fractions of shares that add up to less than 1 and name every experiment", "exit 2: {shares} add up to 0.8"
)
@pytest.mark.parametrize("shares", [{"a": 0.4, "b": 0.4}])
def test_shares_below_1_need_an_experiment_that_they_do_not_name(shares: dict[str, float]) -> None:
    pytest.importorskip("pyspark")
    results = import_module("rankmetrics_spark.job.results")
    request = config(comparison={"baseline": "a", "shares": shares})
    results.refuse_comparison(request, {name: {"lists": 9} for name in "abc"}, dict)
    with pytest.raises(ConfigError, match=r"^comparison\.shares add up to 0\.8, and name every experiment;"):
        results.refuse_comparison(request, {name: {"lists": 9} for name in "ab"}, dict)
