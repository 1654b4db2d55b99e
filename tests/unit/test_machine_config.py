"""What labels of people and of a machine cannot have beside them is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from rankmetrics_spark.config import Comparison, Options, check_machine
from rankmetrics_spark.errors import ConfigError

BOTH: dict[str, Any] = {"judged": True, "judgement_columns": {"machine": "llm"}, "human_sample": "random"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"human_sample": None}, "human_sample is missing, and a machine has judged; allowed: those of people"),
        ({"human_sample": "all"}, "human_sample is 'all'; allowed: random, or a mapping such as {column: drawn}"),
        ({"judged": False}, "judgements is missing, and a machine has judged"),
        ({"judgement_columns": {}}, "human_sample is given, and no machine has judged; allowed: with"),
        ({"with_machine": True}, "judgement_columns.machine and machine_judgements are both given"),
        ({"machine_grades": {"high": 1}}, "machine_grades"),
        ({"convention": {"population": "judged"}}, "convention.population is 'judged'; allowed: another value where a"),
        ({"convention": {"zero_relevant": "skip"}}, "convention.zero_relevant is 'skip'; allowed: another value"),
        ({"convention": {"unjudged": "removed"}}, "convention.unjudged is 'removed'; allowed: another value"),
        *(({name: value}, f"{name} is {value!r}; allowed: another value where a machine has judged")
          for name, value in (("covariate", "past"), ("cluster", "home"), ("mean_over", "lists"), ("with_events", True),
                              ("only_changed", True), ("with_assignments", True))),
        ({"metrics": "softmax_loss(t=1)"}, "metrics is 'softmax_loss(t=1)'; allowed: another value"),
    ],
)  # fmt: skip
def test_an_evaluation_refuses_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Options(**(BOTH | given))
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    "given",
    [{"looks": "any"}, {"looks": {"planned": 3}}, {"cuped": {"column": "past"}}, {"wilcoxon": True}, {"pairs": "all"},
     {"bootstrap": True}, {"randomization": True}, {"aa_check": True}, {"shared_users": "drop"}, {"cluster": "home"},
     {"mean_over": "lists"}, {"only_changed": True}],
    ids=str,
)  # fmt: skip
def test_a_comparison_refuses_in_one_sentence(given: dict[str, Any]) -> None:
    usual = {} if "pairs" in given else {"baseline": "a"}
    check_machine(Comparison.read(usual | given), machine=False)
    with pytest.raises(ConfigError, match=r"comparison\.target is 'these_queries'; allowed: population, since no"):
        check_machine(Comparison.read({"target": "these_queries"}), machine=False)
    with pytest.raises(
        ConfigError, match=f"comparison.{next(iter(given))} is given, and a machine has judged the users; allowed"
    ):
        check_machine(Comparison.read(usual | given), machine=True)
