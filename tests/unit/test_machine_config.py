"""What labels of people and of a machine cannot have beside them is refused before anything is read."""

from typing import Any

import pytest

from rankmetrics_spark.config import Comparison, Options, check_machine
from rankmetrics_spark.errors import ConfigError
from tests.helpers.messages import json_cases, messages

BOTH: dict[str, Any] = {"judged": True, "judgement_columns": {"machine": "llm"}, "human_sample": "random"}


@pytest.mark.parametrize(("given", "says"), messages("evaluations with a machine"))
def test_an_evaluation_refuses_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Options(**(BOTH | given))
    assert str(error.value).startswith(says)


@pytest.mark.parametrize("given", json_cases("comparisons that have no rule for a machine"), ids=str)
def test_a_comparison_refuses_in_one_sentence(given: dict[str, Any]) -> None:
    asked = Comparison.read({"baseline": "a"} | given)
    check_machine(asked, machine=False)
    with pytest.raises(ConfigError, match=r"comparison\.target is 'these_queries'; allowed: population, since no"):
        check_machine(Comparison.read({"target": "these_queries"}), machine=False)
    with pytest.raises(
        ConfigError, match=f"comparison.{next(iter(given))} is given, and a machine has judged the users; allowed"
    ):
        check_machine(asked, machine=True)
