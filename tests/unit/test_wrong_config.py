"""Every mistake in a config or in options is one sentence that names the field."""

import re
from typing import Any

import pytest

from rankmetrics_spark.config import Options
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import Convention, resolve
from tests.helpers.configs import config
from tests.helpers.messages import json_cases, messages

WRONG = messages("config")


@pytest.mark.outcome("a config with {changes}", "exit 2: {expected}")
@pytest.mark.parametrize(("changes", "expected"), WRONG, ids=[expected[:60] for _, expected in WRONG])
def test_a_wrong_config_is_refused_in_one_sentence(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert str(error.value) == expected
    assert error.value.exit_code == 2


WRONG_OPTIONS = [
    *messages("options"),
    (
        {"convention": Convention(ties="best")},
        "convention.ties is 'best', but rank_by is 'position' and ranks have no ties; "
        "allowed: rank_by 'score', or another order",
    ),
    (
        {"convention": Convention(population="judged", preset="mine")},
        "convention.population is 'judged', but judgements is missing; allowed without judgements: shown",
    ),
]


@pytest.mark.outcome("`evaluate` or `Options` with {given}", "`ConfigError`: {expected}")
@pytest.mark.parametrize(("given", "expected"), WRONG_OPTIONS, ids=[expected[:60] for _, expected in WRONG_OPTIONS])
def test_wrong_options_are_refused_in_one_sentence(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Options.read(given)
    assert str(error.value) == expected


@pytest.mark.outcome("`err@10` with `ties: expected`", "exit 2: the metric has no expected value over tied scores")
def test_a_metric_that_cannot_average_over_ties_is_refused_when_a_config_is_loaded() -> None:
    with pytest.raises(ConfigError, match=r"^metric 'err@10' has no expected value over tied scores"):
        config(metrics="err@10", convention={"ties": "expected"}, rank_by="score")


@pytest.mark.outcome("a config with {changes}", "exit 2: the unknown name, the nearest known one, and all known ones")
@pytest.mark.parametrize(("changes", "pattern"), messages("names of metrics and conventions"))
def test_a_wrong_metric_or_convention_is_named_after_its_key(changes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert re.fullmatch(pattern, str(error.value))


@pytest.mark.parametrize("preset", ["sklearn", "trec_eval", "recommenders"])
def test_a_preset_made_for_scores_and_judgements_works_without_them(preset: str) -> None:
    assert config(convention=preset).convention.preset == preset


@pytest.mark.parametrize("changes", [*json_cases("combinations that work"), {"convention": resolve("sklearn")}])
def test_a_combination_that_works_is_allowed(changes: dict[str, Any]) -> None:
    config(**changes)


@pytest.mark.parametrize(("source", "text"), messages("experiments"))
def test_one_thing_names_the_experiments(source: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(source=source)
    assert text in str(caught.value)
