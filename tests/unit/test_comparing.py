"""The sections ``comparison`` and ``gates``: what is allowed, and what is refused with one sentence."""

import re
from importlib import import_module
from typing import Any

import pytest

from rankmetrics_spark import config as cfg
from rankmetrics_spark.errors import ConfigError
from tests.helpers.messages import json_cases, messages


def config(**sections: Any) -> cfg.Config:
    whole = {"source": {"path": "logs"}, "metrics": ["ndcg@10", "ap"], "evaluation_date": "2026-11-20"}
    return cfg.from_mapping(whole | sections)


def test_without_a_section_nothing_is_compared() -> None:
    result = config()
    assert not result.comparison.is_requested and result.gates == ()
    asked = result.comparison
    assert (asked.correction, asked.confidence, asked.design) == ("holm", 0.95, "auto")


@pytest.mark.parametrize(("section", "expected"), json_cases("sections of comparison"))
def test_a_section_is_read_as_users_write_it(section: dict[str, Any], expected: dict[str, Any]) -> None:
    result = config(comparison=section).comparison
    assert cfg.as_dict(result) == cfg.as_dict(cfg.Comparison()) | expected and result.is_requested


def test_the_confidence_of_the_comparison_is_that_of_the_averages() -> None:
    assert config(comparison={"confidence": 0.9}).options.confidence == 0.9


@pytest.mark.parametrize(("section", "message"), messages("comparison"))
def test_a_wrong_comparison_is_refused_with_the_name_of_its_field(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        config(comparison=section)


@pytest.mark.parametrize(("section", "expected"), json_cases("sections of gates"))
def test_gates_are_read_as_users_write_them(section: Any, expected: list[dict[str, Any]]) -> None:
    usual = {"min": None, "max_drop": None, "max_relative_drop": None, "segment": "all", "experiment": None}
    result = cfg.as_dict(config(comparison={"baseline": "a"}, gates=section))["gates"]
    assert result == [usual | {"on": "point", "trusted": False} | gate for gate in expected]


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
