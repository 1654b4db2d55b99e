"""Names of metrics: how they are read, written, registered and shown."""

import inspect
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rankmetrics_spark import metrics as mx, schemas as sch
from rankmetrics_spark.errors import ConfigError
from tests.helpers.builders import METRICS, shown, value_of, variants
from tests.helpers.messages import json_cases, messages

# ---- names


@pytest.mark.parametrize(("text", "expected"), messages("names of metrics"))
def test_names_are_read_in_any_case_and_written_in_one(text: str, expected: str) -> None:
    name, column = expected.split()
    assert (str(mx.parse(text)), mx.parse(text).column) == (name, column)
    assert mx.parse(name) == mx.parse(text)


@pytest.mark.outcome("the metric {text}", "exit 2: ... {message} ...")
@pytest.mark.parametrize(("text", "message"), messages("no metrics"))
def test_a_wrong_name_is_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mx.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [None, 10, ["ap"]])
def test_what_is_no_text_names_no_metric(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not of the form name, name@10 or name\(p=0.8\)"):
        mx.parse(name)


def test_columns_are_unique() -> None:
    assert len({each.column for each in METRICS}) == len(METRICS)


def test_every_metric_has_an_example_and_a_first_line() -> None:
    for definition in mx.REGISTRY.values():
        assert mx.parse(definition.example).name == definition.name
        assert ": " in definition.summary


def test_every_tie_knob_is_a_field_of_the_convention() -> None:
    assert all(hasattr(mx.Convention(), definition.tie_knob) for definition in mx.REGISTRY.values())


def test_a_metric_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(mx.parse("rbp(p=0.9)@5"))) == mx.parse("rbp@5").__class__(
        "rbp", (("p", 0.9),), 5, definition=mx.REGISTRY["rbp"]
    )


def test_properties_that_another_thread_may_keep_meanwhile_do_not_travel() -> None:
    metric = mx.parse("rbp@5")
    assert (metric.column, metric.definition.parameters) == ("rbp_p_0_8_at_5", {"k": None, "p": 0.8})
    sent = pickle.loads(pickle.dumps(metric))
    assert "column" not in vars(sent) and "parameters" not in vars(sent.definition)


# ---- registration


@pytest.fixture
def registry() -> Iterator[dict[str, Any]]:
    """The registry, restored after the test."""
    before = dict(mx.REGISTRY)
    yield mx.REGISTRY
    mx.REGISTRY.clear()
    mx.REGISTRY.update(before)


@pytest.mark.usefixtures("registry")
def test_a_user_defined_metric_works_like_the_others() -> None:
    @mx.metric(aliases=("first",), range=(0.0, math.inf), mean_name="MFG")
    def first_grade(lists: mx.Lists, k: int = 1) -> mx.Floats:
        """First grade: the gain at rank 1."""
        return lists.dcg_at(k)

    assert value_of("first@1", shown(3, 1)) == 3.0
    assert inspect.signature(first_grade).parameters["k"].default == 1
    assert mx.parse("first@1").headline == "MFG@1"
    assert [str(each) for each in variants(mx.REGISTRY["first_grade"])] == [f"first_grade@{k}" for k in (1, 3, 20)]
    assert mx.reference()[-1]["summary"] == "First grade: the gain at rank 1."


@pytest.mark.outcome("a new metric that returns one number for all lists, or none", "`ConfigError` with its shape")
@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(("returned", "what"), json_cases("what no metric returns"))
def test_a_metric_returns_one_number_per_list(returned: Any, what: str) -> None:
    @mx.metric
    def spread_out(lists: mx.Lists, k: int) -> Any:
        return returned

    # Two lists of one item.
    batch = mx.Batch(2, *map(np.array, ([0, 1], [1, 1], [1.0, 1.0], [1, 1], [0, 1], [1.0, 1.0])))
    with pytest.raises(ConfigError) as caught:
        mx.compute(batch, [mx.parse("spread_out@5")], mx.STANDARD)
    assert str(caught.value) == (
        f"metric 'spread_out@5' returns {what} for 2 lists; allowed: one number per list, an array of shape "
        "(lists.batch.size,)"
    )


def define(name: str, *aliases: str) -> None:
    def kernel(lists: mx.Lists) -> mx.Floats:
        return lists.hits_at(None)

    kernel.__name__ = kernel.__qualname__ = name
    mx.metric(aliases=aliases)(kernel)


@pytest.mark.outcome("a new metric with the names {names}", "`ConfigError`: {message} ...")
@pytest.mark.parametrize(("names", "message"), messages("names of new metrics"))
def test_a_name_that_cannot_be_used_is_refused(registry: dict[str, Any], names: list[str], message: str) -> None:
    before = dict(registry)
    with pytest.raises(ConfigError) as caught:
        define(*names)
    assert message in str(caught.value)
    assert registry == before


def test_a_metric_that_is_defined_again_replaces_its_old_version(registry: dict[str, Any]) -> None:
    define("mine", "old")
    first = registry["mine"].kernel
    define("mine", "new")
    assert registry["mine"].kernel is not first
    assert mx.parse("new").name == "mine"
    with pytest.raises(ConfigError, match="unknown metric 'old'"):
        mx.parse("old")


def test_no_metric_can_have_the_name_of_a_column() -> None:
    assert {*sch.USER_COLUMNS, sch.SEGMENT, sch.METRIC} <= mx.RESERVED


# ---- what people read


@pytest.mark.parametrize(("name", "headline"), messages("headlines"))
def test_a_headline_is_what_people_call_the_mean(name: str, headline: str) -> None:
    assert mx.parse(name).headline == headline


def test_the_reference_describes_every_metric_in_words() -> None:
    rows = mx.reference()
    assert [mx.parse(row["name"]).name for row in rows] == list(mx.REGISTRY)
    assert all(row["summary"] and row["range"] and row["direction"] for row in rows)
    result = {mx.parse(row["name"]).name: (row["range"], row["direction"]) for row in rows}
    assert result["ndcg"] == ("0 to 1", "higher is better")
    assert result["softmax_loss"] == ("0 or more", "lower is better")
    assert result["idcg"] == ("0 or more", "neither direction is better")
