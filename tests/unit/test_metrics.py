"""Kernels against the loops in tests/oracles.py, and bit for bit in any batch."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rankmetrics_spark import errors as err, metrics as mx
from tests.helpers.builders import METRICS, batch_of, shown, value_of
from tests.oracles import ORACLES, One, ap_threshold, by_definition, expected

NAN = math.nan


GRADES = st.sampled_from([NAN, NAN, -1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0])


CONVENTIONS = st.builds(
    mx.Convention,
    ap_denominator=st.sampled_from(["min(m,k)", "m", "hits", "k", "min(L,k)"]),
    gain=st.sampled_from(["linear", "exponential", "binary"]),
    ideal_pool=st.sampled_from(["judged", "shown", "constant_k"]),
    relevant_from=st.sampled_from([0.0, 1.0, 2.0]),
    relevant_pool=st.sampled_from(["judged", "shown"]),
    unjudged=st.sampled_from(["not_relevant", "removed"]),
    zero_relevant=st.just("skip"),
) | st.just(mx.resolve({"gain": {0.5: 0.1, 2: 3, 3: 1}, "zero_relevant": "skip"}))


@st.composite
def ones(draw: st.DrawFn, longest: int = 8, scores: tuple[float, ...] = ()) -> One:
    grades = tuple(draw(st.lists(GRADES, max_size=longest)))
    unseen = draw(st.lists(GRADES, max_size=4))
    drawn = [draw(st.sampled_from(scores or (0.1, 0.2, 0.7, 1.5, 3.0))) for _ in grades]
    one = shown(*grades, pool=[*grades, *unseen], scores=sorted(drawn, reverse=True))
    ids = draw(st.permutations([f"d{i:02}" for i in range(len(grades) + len(unseen))]))
    names = [draw(st.frozensets(st.sampled_from("abcd"), max_size=4)) for _ in ids]
    pairs = [tuple((name, grade) for name in of) for of, grade in zip(names, [*grades, *unseen], strict=True)]
    judged = tuple(zip(ids, pairs, strict=True))
    return replace(one, items=tuple(ids[: len(grades)]), intents=tuple(pairs[: len(grades)]), judged=judged)


def oracle(each: mx.Metric, one: One, convention: mx.Convention) -> float:
    return by_definition(each.name, one, convention, **each.arguments)


# ---- against the definitions


def test_every_registered_metric_has_an_oracle_and_is_tested() -> None:
    assert set(mx.REGISTRY) == set(ORACLES) == {each.name for each in METRICS}


@given(st.lists(ones(), min_size=1, max_size=4), CONVENTIONS)
@settings(max_examples=120, deadline=None)
def test_kernels_agree_with_the_loops(lists: list[One], convention: mx.Convention) -> None:
    values = mx.compute(batch_of(*lists), METRICS, convention)
    target = [[oracle(each, one, convention) for each in METRICS] for one in lists]
    np.testing.assert_allclose(values, target, rtol=1e-12, atol=1e-12)


@given(st.lists(ones(longest=6, scores=(1.0, 2.0)), min_size=1, max_size=3), CONVENTIONS)
@settings(max_examples=40, deadline=None)
def test_expected_values_are_means_over_all_orders_of_tied_items(lists: list[One], convention: mx.Convention) -> None:
    averaged = [each for each in METRICS if "expected" in each.definition.readings]
    values = mx.compute(batch_of(*lists), averaged, replace(convention, ties="expected"))
    target = [[expected(each.name, one, convention, **each.arguments) for each in averaged] for one in lists]
    np.testing.assert_allclose(values, target, rtol=1e-12, atol=1e-12)


@given(st.lists(ones(scores=(1.0, 2.0, 3.0)), min_size=1, max_size=3), st.sampled_from(["hits", "m"]))
@settings(max_examples=40, deadline=None)
def test_threshold_ap_reads_the_precision_at_the_end_of_a_tie(lists: list[One], denominator: str) -> None:
    convention = mx.Convention(ap_ties="threshold", ap_denominator=denominator, zero_relevant="skip")
    values = mx.compute(batch_of(*lists), [mx.parse("ap")], convention)[:, 0]
    np.testing.assert_allclose(values, [_threshold(one, convention) for one in lists], rtol=1e-12)


def _threshold(one: One, convention: mx.Convention) -> float:
    value = ap_threshold(one, convention)
    relevant_unseen = convention.ap_denominator == "m" and math.isnan(value) and any(g > 0 for g in one.pool)
    return 0.0 if relevant_unseen else value


@given(ones(longest=8))
@settings(max_examples=40, deadline=None)
def test_without_ties_the_expected_value_is_the_plain_one(one: One) -> None:
    one = replace(one, scores=tuple(range(len(one.grades), 0, -1)))
    averaged = [each for each in METRICS if "expected" in each.definition.readings]
    plain, mean = (mx.compute(batch_of(one), averaged, mx.Convention(ties=ties)) for ties in ("item_desc", "expected"))
    np.testing.assert_array_equal(plain, mean)


# ---- range and direction, under the standard convention


@given(st.lists(ones(), min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_every_value_is_in_the_range_of_its_metric(lists: list[One]) -> None:
    values = mx.compute(batch_of(*lists), METRICS, mx.Convention())
    loops = [[oracle(each, one, mx.Convention()) for each in METRICS] for one in lists]
    low, high = np.array([each.definition.range for each in METRICS]).T
    for result in (values, np.array(loops)):
        inside = (result >= low - 1e-12) & (result <= high + 1e-12)
        assert (inside | np.isnan(result)).all()


@st.composite
def swaps(draw: st.DrawFn) -> tuple[One, One]:
    """A list, and the same list after an item traded places with one of a higher grade further down."""
    one = draw(ones().filter(lambda one: len({max(grade, 0.0) for grade in one.grades if grade == grade}) > 1))
    worth = [grade if grade > 0 else 0.0 for grade in one.grades]
    pairs = [(i, j) for i in range(len(worth)) for j in range(i) if worth[i] != worth[j]]
    i, j = draw(st.sampled_from(pairs))
    grades = list(one.grades)
    grades[i], grades[j] = grades[j], grades[i]
    other = replace(one, grades=tuple(grades))
    return (one, other) if worth[i] > worth[j] else (other, one)


@given(swaps())
@settings(max_examples=120, deadline=None)
def test_moving_a_relevant_item_up_changes_each_metric_in_its_direction(pair: tuple[One, One]) -> None:
    directed = [each for each in METRICS if each.higher_is_better is not None]
    before, after = mx.compute(batch_of(*pair), directed, mx.Convention())
    sign = np.array([1 if each.higher_is_better else -1 for each in directed])
    without_value = np.isnan(before)
    assert (((after - before) * sign >= -1e-12) | without_value).all()
    assert (np.isnan(after) == without_value).all()


@given(ones())
@settings(max_examples=40, deadline=None)
def test_rbp_with_every_missing_label_is_at_most_the_residual_above(one: One) -> None:
    low, residual = value_of("rbp(p=0.5)", one), value_of("rbp_residual(p=0.5)", one)
    best = tuple(1.0 if math.isnan(grade) else grade for grade in one.grades) + (1.0,) * 60
    result = value_of("rbp(p=0.5)", shown(*best))
    assert result == pytest.approx(low + residual, abs=1e-12)


# ---- bits


FUNCTIONS = [mx.unit, mx.reciprocal, mx.discount, mx.geometric(0.8), mx.geometric(0.123)]


@pytest.mark.parametrize("function", [*FUNCTIONS, np.exp, np.log, mx.power_of_two])
def test_an_element_has_the_same_bits_in_an_array_of_any_length_and_offset(function: Callable[..., mx.Floats]) -> None:
    values = np.arange(1, 3000) if function in FUNCTIONS else np.random.default_rng(5).gamma(1, 10, 3000)
    whole = function(values)
    for start in range(20):
        for size in (*range(70), 1000, 2500):
            part = slice(start, start + size)
            np.testing.assert_array_equal(function(values[part]), whole[part])


@given(st.lists(ones(), min_size=2, max_size=6), CONVENTIONS, st.sampled_from(["item_desc", "expected"]))
@settings(max_examples=60, deadline=None)
def test_a_list_has_equal_bits_alone_and_among_others(lists: list[One], convention: mx.Convention, ties: str) -> None:
    convention = replace(convention, ties=ties)
    able = [each for each in METRICS if ties != "expected" or "expected" in each.definition.readings]
    together = mx.compute(batch_of(*lists), able, convention)
    alone = np.vstack([mx.compute(batch_of(one), able, convention) for one in lists])
    np.testing.assert_array_equal(together, alone)


@given(st.lists(ones(), min_size=1, max_size=4), CONVENTIONS)
@settings(max_examples=60, deadline=None)
def test_irrelevant_items_may_be_left_out_without_a_change_of_bits(lists: list[One], convention: mx.Convention) -> None:
    # Items can be removed from lists that hold them all.
    convention = replace(convention, unjudged="not_relevant")
    able = [each for each in METRICS if each.needs == "relevant"]
    full, sparse = (mx.compute(batch_of(*lists, sparse=s), able, convention) for s in (False, True))
    np.testing.assert_array_equal(full, sparse)


def test_long_lists_in_a_large_batch_keep_their_bits() -> None:
    random = np.random.default_rng(7)
    lists = [shown(*random.choice([0.0, 0.0, 1.0, 2.5], size=n)) for n in random.integers(0, 400, size=60)]
    able = [each for each in METRICS if each.needs == "relevant"]
    together = mx.compute(batch_of(*lists), able, mx.Convention())
    alone = np.vstack([mx.compute(batch_of(one, sparse=True), able, mx.Convention()) for one in lists])
    np.testing.assert_array_equal(together, alone)


def test_one_metric_has_the_same_bits_as_among_many() -> None:
    batch = batch_of(shown(3, 0, 2, 2, 1, scores=(5, 4, 3, 2, 1)), shown(0, 1, scores=(2, 1)))
    many = mx.compute(batch, METRICS, mx.Convention())
    single = np.hstack([mx.compute(batch, [each], mx.Convention()) for each in METRICS])
    np.testing.assert_array_equal(many, single)


# ---- what a list without relevant items counts as


@pytest.mark.parametrize(("policy", "value"), [("zero", 0.0), ("skip", NAN), ("one", 1.0)])
@pytest.mark.parametrize("each", [each for each in METRICS if each.definition.zero_policy], ids=str)
def test_the_policy_decides_what_an_undefined_metric_counts_as(each: mx.Metric, policy: str, value: float) -> None:
    convention = mx.Convention(zero_relevant=policy)
    assert value_of(str(each), shown(0.0, NAN), convention) == pytest.approx(value, nan_ok=True)


def test_an_empty_batch_gives_an_empty_result() -> None:
    for ties in ("item_desc", "expected"):
        able = [each for each in METRICS if ties != "expected" or "expected" in each.definition.readings]
        batch = replace(batch_of(), score=np.zeros(0), tie_first=np.zeros(0, int), tie_last=np.zeros(0, int))
        assert mx.compute(batch, able, mx.Convention(ties=ties)).shape == (0, len(able))
    assert mx.compute(batch_of(shown(1.0)), [], mx.Convention()).shape == (1, 0)


def test_a_metric_without_an_expected_value_is_refused() -> None:
    with pytest.raises(err.ConfigError, match=r"metric 'err@5' has no expected value over tied .* one of: ap, ndcg, p"):
        mx.check([mx.parse("ap@5"), mx.parse("err@5")], mx.Convention(ties="expected"))
