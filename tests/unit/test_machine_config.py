"""What labels of people and of a machine cannot have beside them is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from rankmetrics_spark.config import Comparison, Options, check_machine
from rankmetrics_spark.errors import ConfigError
from tests.helpers.messages import messages

BOTH: dict[str, Any] = {"judged": True, "judgement_columns": {"machine": "llm"}, "human_sample": "random"}


@pytest.mark.parametrize(("given", "says"), messages("evaluations with a machine"))
def test_an_evaluation_refuses_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Options(**(BOTH | given))
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    "given",
    [{"looks": "any"}, {"looks": {"planned": 3}}, {"cuped": {"column": "past"}}, {"wilcoxon": True}, {"trigger": "on"},
     {"bootstrap": True}, {"randomization": True}, {"ranks": True, "pairs": "all"}, {"shared_users": "drop"},
     {"only_changed": True}, {"period": {"from": "2026-11-01", "to": "2026-11-02"}}, {"cap": 5},
     {"strata": ["country"]}],
    ids=str,
)  # fmt: skip
def test_a_comparison_refuses_in_one_sentence(given: dict[str, Any]) -> None:
    asked = Comparison.read({"baseline": "a"} | given)
    check_machine(asked, machine=False)
    with pytest.raises(ConfigError, match=r"comparison\.target is 'these_queries'; allowed: population, since no"):
        check_machine(Comparison.read({"target": "these_queries"}), machine=False)
    with pytest.raises(
        ConfigError, match=f"comparison.{next(iter(given))} is given, and a machine has judged the users; allowed"
    ):
        check_machine(asked, machine=True)
