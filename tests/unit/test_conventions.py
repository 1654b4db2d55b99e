"""Knobs and presets: what is accepted, what is refused and how, and when two conventions are equal."""

import hashlib
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import PRESETS, Convention, knobs, resolve
from tests.helpers.messages import json_cases, messages


def test_the_presets_are_those_of_the_contract() -> None:
    names = "standard trec_eval spark_mllib recommenders replay rectools ranx ranx_burges ir_measures"
    more = "ir_measures_judged_only sklearn torchmetrics tfma kaggle lightgbm"
    assert sorted(PRESETS) == sorted([*names.split(), *more.split()])
    assert all(convention.preset == name for name, convention in PRESETS.items())


def test_the_default_is_the_standard_preset() -> None:
    assert resolve("standard") == resolve({}) == Convention() == PRESETS["standard"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_resolves_in_any_case_and_is_named_after_itself(name: str) -> None:
    assert resolve(name.upper()) is PRESETS[name]
    assert PRESETS[name].name == name
    assert resolve(PRESETS[name]) is PRESETS[name]


def test_overrides_change_only_what_they_name() -> None:
    changed = resolve({"preset": "trec_eval", "ties": "expected"})
    assert changed == replace(PRESETS["trec_eval"], ties="expected")
    assert changed.name == "trec_eval(ties=expected)"


@pytest.mark.parametrize("knob", [knob for knob in knobs() if "values" in knob.metadata], ids=lambda knob: knob.name)
def test_every_allowed_value_of_a_choice_is_accepted_as_text_in_any_case(knob: Any) -> None:
    for value in knob.metadata["values"]:
        extra = {"gain_table": {1: 1}} if value == "table" else {}
        convention = resolve({knob.name: str(value).upper(), **extra})
        assert getattr(convention, knob.name) == value


@pytest.mark.outcome("the convention {value}", "exit 2: ... {message} ...")
@pytest.mark.parametrize(("value", "message"), messages("conventions"))
def test_a_wrong_value_is_refused_with_what_is_allowed(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(value)
    assert message in str(caught.value)


def test_a_gain_table_may_be_given_as_the_gain() -> None:
    convention = resolve({"gain": {2: 1, 1: 0.5}})
    assert (convention.gain, convention.gain_table) == ("table", ((1.0, 0.5), (2.0, 1.0)))
    assert resolve({"gain": "table", "gain_table": [[1, 0.5], [2, 1]]}) == convention
    assert convention.name == "standard(gain=table;gain_table=1.0:0.5,2.0:1.0)"


def test_any_grade_above_zero_is_relevant_by_default() -> None:
    grades = np.array([np.nan, -1.0, 0.0, 0.25, 1.0, 2.0])
    assert Convention().relevant(grades).tolist() == [False, False, False, True, True, True]
    assert Convention(relevant_from=1).relevant(grades).tolist() == [False, False, False, False, True, True]


def test_equality_and_digest_ignore_the_name_of_the_preset() -> None:
    same = resolve({"preset": "kaggle"})
    assert same == PRESETS["spark_mllib"]
    assert same.digest() == PRESETS["spark_mllib"].digest()
    assert same.text() != PRESETS["spark_mllib"].text()


def test_different_conventions_have_different_digests_and_equal_ones_the_same() -> None:
    distinct = set(PRESETS.values())
    assert len({convention.digest() for convention in distinct}) == len(distinct)
    assert Convention().digest() == resolve({"relevant_from": "0", "ap_denominator": "min(m, k)"}).digest()
    assert all(len(convention.digest()) == 8 for convention in distinct)


def test_a_knob_that_came_later_changes_no_hash_of_a_table_that_was_written_before_it() -> None:
    # The hash of these settings, as they were before relevant_pool and unjudged.
    settings = Convention().text().removeprefix("standard;")
    settings = settings.replace("relevant_pool=judged;", "").replace("unjudged=not_relevant;", "")
    assert Convention().digest() == hashlib.sha256(settings.encode()).hexdigest()[:8] == "f6792186"
    assert Convention(relevant_pool="shown").digest() != Convention().digest()
    assert Convention(unjudged="removed").digest() != Convention().digest()


def test_text_names_the_preset_and_every_knob_in_order() -> None:
    preset, *settings = PRESETS["trec_eval"].text().split(";")
    names = [setting.split("=")[0] for setting in settings]
    assert preset == "trec_eval"
    assert names == sorted(names) == [knob.name for knob in knobs()]


def test_a_convention_is_read_back_from_its_text() -> None:
    own = resolve({"preset": "kaggle", "gain": {1: 0.5, 2.5: 1}, "relevant_from": 2})
    for convention in (*PRESETS.values(), own, replace(own, preset="mine")):
        read = resolve(convention.text())
        assert (read, read.preset) == (convention, convention.preset)
    with pytest.raises(ConfigError, match="unknown convention knob 'gian'"):
        resolve("standard;gian=linear")


@pytest.mark.parametrize(("value", "averages"), json_cases("a convention says whether it needs tie groups"))
def test_a_convention_says_whether_it_needs_tie_groups(value: Any, averages: bool) -> None:
    assert resolve(value).averages_ties is averages


def test_a_convention_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(PRESETS["sklearn"])) == PRESETS["sklearn"]
