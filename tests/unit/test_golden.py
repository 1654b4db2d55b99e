"""Every preset gives the golden values, which the system that it is named after returned."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rankmetrics_spark.metrics import PRESETS, Convention, resolve
from rankmetrics_spark.tools.golden import COUNTED_TWICE, PEERS, Value, cases, populations, values
from tests.helpers import frames, messages
from tests.helpers.builders import ranked, value_of
from tests.oracles import ORACLES

GOLDEN = Path(__file__).resolve().parents[2] / "rankmetrics_spark" / "tools" / "golden"
CASES = cases()


WITHOUT_DEFECT = [value for value in values() if value.defect is None]


def ours(value: Value) -> float:
    shown, judged = CASES[value.case]["list"], CASES[value.case]["judgments"]
    judgements = {row["item"]: row["relevance"] for row in judged}
    rule = value.convention
    one = ranked([row["item"] for row in shown], [row["score"] for row in shown], judgements, rule)
    return value_of(str(value.metric), one, rule)


def label(value: Value) -> str:
    return f"{value.system}-{value.case}-{value.column}"


@pytest.mark.parametrize("value", WITHOUT_DEFECT, ids=label)
def test_a_preset_gives_the_value_that_its_system_returned(value: Value) -> None:
    assert ours(value) == pytest.approx(value.number, abs=value.tolerance, rel=0, nan_ok=True)


@pytest.mark.parametrize("value", [value for value in values() if value.defect], ids=label)
def test_a_known_defect_is_not_copied(value: Value) -> None:
    assert 0 <= ours(value) <= 1


def test_every_label_of_the_golden_tables_has_a_convention() -> None:
    assert {value.system for value in values()} == set(PEERS)


def test_every_preset_has_golden_values() -> None:
    assert {value.convention.preset for value in values()} == set(PRESETS)


def test_values_above_one_occur_only_in_the_case_with_a_repeated_item() -> None:
    assert {value.case for value in values() if value.defect == COUNTED_TWICE} == {"u9_dup_recs"}


@pytest.mark.parametrize("value", [v for v in values() if v.system == "standard (by definition)"], ids=label)
def test_the_standard_values_are_those_of_the_definition(value: Value) -> None:
    case, rule = CASES[value.case], value.convention
    judgements = {row["item"]: row["relevance"] for row in case["judgments"]}
    one = ranked([row["item"] for row in case["list"]], [row["score"] for row in case["list"]], judgements, rule)
    assert value.number == ORACLES[value.metric.name](one, rule, 3)


# ---- Which users enter the mean. One user has a perfect list, two are judged but never shown, one is shown but never
# judged. So the means over the judged and over the shown users differ: (1 + 0 + 0) / 3 and (1 + 0) / 2.

SHOWN = {"perfect": ["a"], "unjudged": ["a"]}
JUDGED = {"perfect": {"a": 1}, "unseen": {"a": 1}, "unseen too": {"a": 1}}
MEMBERS = {
    "shown": lambda shown, judged: shown,
    "judged": lambda shown, judged: judged,
    "both": lambda shown, judged: shown & judged,
    "either": lambda shown, judged: shown | judged,
}
COVERAGE: dict[str, object] = dict(messages.json_cases("coverage of other systems"))


def mean_over(convention: Convention, metric: str) -> float:
    members = MEMBERS[convention.population]({*SHOWN}, {*JUDGED})
    lists = [
        ranked(SHOWN.get(user, []), [1.0] * len(SHOWN.get(user, [])), JUDGED.get(user, {}), convention)
        for user in sorted(members)
    ]
    return sum(value_of(metric, one, convention) for one in lists) / len(lists)


@pytest.mark.parametrize("row", populations("coverage.csv"), ids=lambda row: row["system"])
@pytest.mark.parametrize(("column", "metric"), [("map", "ap@1"), ("ndcg", "ndcg@1")])
def test_a_preset_takes_the_mean_over_the_users_of_its_system(row: dict[str, str], column: str, metric: str) -> None:
    rule = resolve(COVERAGE[row["system"]])  # type: ignore[arg-type]
    assert mean_over(rule, metric) == pytest.approx(float(row[column]), abs=1e-15)
    others = [replace(rule, population=name) for name in MEMBERS if name != rule.population]
    assert {mean_over(other, metric) for other in others} == {1 / 2, 1 / 1, 1 / 4}


def test_tfma_counts_an_item_that_is_shown_twice_as_two() -> None:
    # It has rows with labels and no ids: the gains 1, 0, 1 against the ideal 1, 1, 0. TFMA 0.52.0 prints this value.
    rule = resolve("tfma")
    one = ranked(["a", "b", "a"], [3, 2, 1], {"a": 1, "b": 0}, rule)
    assert value_of("ndcg@3", one, rule) == pytest.approx((1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3)), abs=1e-15)
    assert value_of("ndcg@3", one, rule) == pytest.approx(0.9197207891481876, abs=1e-15)
    case = frames.Case(["a", "b", "a"], [3.0, 2.0, 1.0], {"a": 1, "b": 0})
    assert frames.values([case], ["ndcg@3"], "tfma") == [[value_of("ndcg@3", one, rule)]]


@pytest.mark.parametrize("name", ["cases.json", "peer_values_at_3.csv", "population.csv"])
def test_the_fixture_is_a_copy_of_the_original(name: str, shared_data: Path) -> None:
    assert (GOLDEN / name).read_bytes() == (shared_data.parent / "golden" / name).read_bytes()
