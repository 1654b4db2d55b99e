"""Kernels against the loops in tests/oracles.py, against hand-checked lists, and bit for bit in any batch."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.metrics import (
    REGISTRY,
    RESERVED,
    Convention,
    Floats,
    Lists,
    Metric,
    check,
    compute,
    discount,
    geometric,
    m_relevant,
    metric,
    parse,
    power_of_two,
    reciprocal,
    reference,
    resolve,
    unit,
)
from rankmetrics_spark.schemas import METRIC, SEGMENT, USER_COLUMNS
from tests.helpers.builders import batch_of, shown, value_of, variants
from tests.oracles import ORACLES, One, ap_threshold, by_definition, expected

NAN = math.nan
GRADES = st.sampled_from([NAN, NAN, -1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0])
CONVENTIONS = st.builds(
    Convention,
    ap_denominator=st.sampled_from(["min(m,k)", "m", "hits", "k", "min(L,k)"]),
    gain=st.sampled_from(["linear", "exponential", "binary"]),
    ideal_pool=st.sampled_from(["judged", "shown", "constant_k"]),
    relevant_from=st.sampled_from([0.0, 1.0, 2.0]),
    relevant_pool=st.sampled_from(["judged", "shown"]),
    unjudged=st.sampled_from(["not_relevant", "removed"]),
    zero_relevant=st.just("skip"),
) | st.just(resolve({"gain": {0.5: 0.1, 2: 3, 3: 1}, "zero_relevant": "skip"}))
METRICS = [each for definition in REGISTRY.values() for each in variants(definition)]


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


def oracle(each: Metric, one: One, convention: Convention) -> float:
    return by_definition(each.name, one, convention, **each.arguments)


# ---- against the definitions


def test_every_registered_metric_has_an_oracle_and_is_tested() -> None:
    assert set(REGISTRY) == set(ORACLES) == {each.name for each in METRICS}


@given(st.lists(ones(), min_size=1, max_size=4), CONVENTIONS)
@settings(max_examples=120, deadline=None)
def test_kernels_agree_with_the_loops(lists: list[One], convention: Convention) -> None:
    values = compute(batch_of(*lists), METRICS, convention)
    target = [[oracle(each, one, convention) for each in METRICS] for one in lists]
    np.testing.assert_allclose(values, target, rtol=1e-12, atol=1e-12)


@given(st.lists(ones(longest=6, scores=(1.0, 2.0)), min_size=1, max_size=3), CONVENTIONS)
@settings(max_examples=40, deadline=None)
def test_expected_values_are_the_mean_over_all_orders_of_tied_items(lists: list[One], convention: Convention) -> None:
    averaged = [each for each in METRICS if "expected" in each.definition.readings]
    values = compute(batch_of(*lists), averaged, replace(convention, ties="expected"))
    target = [[expected(each.name, one, convention, **each.arguments) for each in averaged] for one in lists]
    np.testing.assert_allclose(values, target, rtol=1e-12, atol=1e-12)


@given(st.lists(ones(scores=(1.0, 2.0, 3.0)), min_size=1, max_size=3), st.sampled_from(["hits", "m"]))
@settings(max_examples=40, deadline=None)
def test_threshold_ap_reads_the_precision_at_the_end_of_a_tie(lists: list[One], denominator: str) -> None:
    convention = Convention(ap_ties="threshold", ap_denominator=denominator, zero_relevant="skip")
    values = compute(batch_of(*lists), [parse("ap")], convention)[:, 0]
    np.testing.assert_allclose(values, [_threshold(one, convention) for one in lists], rtol=1e-12)


@pytest.mark.parametrize(("denominator", "divisor"), [("hits", 1 + 1 / 3), ("m", 2), ("k", 2)])
def test_threshold_ap_reads_the_part_of_a_tie_inside_the_cut_off(denominator: str, divisor: float) -> None:
    # Ranks 2 to 4 are tied and hold one relevant item. One of these three places is inside the cut-off, so a third of
    # the item is: the precision at rank 2 is (1 + 1/3) / 2.
    one = shown(1, 0, 1, 0, scores=(2, 1, 1, 1))
    rule = Convention(ap_ties="threshold", ap_denominator=denominator)
    assert value_of("ap@2", one, rule) == pytest.approx((1 + 1 / 3 * (1 + 1 / 3) / 2) / divisor, abs=1e-15)
    # A cut-off at the end of the tie divides nothing: 2 relevant items down to rank 4.
    assert value_of("ap@4", one, replace(rule, ap_denominator="m")) == pytest.approx((1 + 2 / 4) / 2, abs=1e-15)


def _threshold(one: One, convention: Convention) -> float:
    value = ap_threshold(one, convention)
    relevant_unseen = convention.ap_denominator == "m" and math.isnan(value) and any(g > 0 for g in one.pool)
    return 0.0 if relevant_unseen else value


@given(ones(longest=8))
@settings(max_examples=40, deadline=None)
def test_without_ties_the_expected_value_is_the_plain_one(one: One) -> None:
    one = replace(one, scores=tuple(range(len(one.grades), 0, -1)))
    averaged = [each for each in METRICS if "expected" in each.definition.readings]
    plain, mean = (compute(batch_of(one), averaged, Convention(ties=ties)) for ties in ("item_desc", "expected"))
    np.testing.assert_array_equal(plain, mean)


# ---- range and direction, under the standard convention


@given(st.lists(ones(), min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_every_value_is_in_the_range_of_its_metric(lists: list[One]) -> None:
    values = compute(batch_of(*lists), METRICS, Convention())
    loops = [[oracle(each, one, Convention()) for each in METRICS] for one in lists]
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
    before, after = compute(batch_of(*pair), directed, Convention())
    sign = np.array([1 if each.higher_is_better else -1 for each in directed])
    without_value = np.isnan(before)
    assert (((after - before) * sign >= -1e-12) | without_value).all()
    assert (np.isnan(after) == without_value).all()


# ---- bits


FUNCTIONS = [unit, reciprocal, discount, geometric(0.8), geometric(0.123)]


@pytest.mark.parametrize("function", [*FUNCTIONS, np.exp, np.log, power_of_two])
def test_an_element_has_the_same_bits_in_an_array_of_any_length_and_offset(function: Callable[..., Floats]) -> None:
    values = np.arange(1, 3000) if function in FUNCTIONS else np.random.default_rng(5).gamma(1, 10, 3000)
    whole = function(values)
    for start in range(20):
        for size in (*range(70), 1000, 2500):
            part = slice(start, start + size)
            np.testing.assert_array_equal(function(values[part]), whole[part])


@given(st.lists(ones(), min_size=2, max_size=6), CONVENTIONS, st.sampled_from(["item_desc", "expected"]))
@settings(max_examples=60, deadline=None)
def test_a_list_has_the_same_bits_alone_and_among_others(lists: list[One], convention: Convention, ties: str) -> None:
    convention = replace(convention, ties=ties)
    able = [each for each in METRICS if ties != "expected" or "expected" in each.definition.readings]
    together = compute(batch_of(*lists), able, convention)
    alone = np.vstack([compute(batch_of(one), able, convention) for one in lists])
    np.testing.assert_array_equal(together, alone)


@given(st.lists(ones(), min_size=1, max_size=4), CONVENTIONS)
@settings(max_examples=60, deadline=None)
def test_irrelevant_items_may_be_left_out_without_a_change_of_bits(lists: list[One], convention: Convention) -> None:
    # Items can be removed from lists that hold them all.
    convention = replace(convention, unjudged="not_relevant")
    able = [each for each in METRICS if each.needs == "relevant"]
    full, sparse = (compute(batch_of(*lists, sparse=s), able, convention) for s in (False, True))
    np.testing.assert_array_equal(full, sparse)


def test_long_lists_in_a_large_batch_keep_their_bits() -> None:
    random = np.random.default_rng(7)
    lists = [shown(*random.choice([0.0, 0.0, 1.0, 2.5], size=n)) for n in random.integers(0, 400, size=60)]
    able = [each for each in METRICS if each.needs == "relevant"]
    together = compute(batch_of(*lists), able, Convention())
    alone = np.vstack([compute(batch_of(one, sparse=True), able, Convention()) for one in lists])
    np.testing.assert_array_equal(together, alone)


def test_one_metric_has_the_same_bits_as_among_many() -> None:
    batch = batch_of(shown(3, 0, 2, 2, 1, scores=(5, 4, 3, 2, 1)), shown(0, 1, scores=(2, 1)))
    many = compute(batch, METRICS, Convention())
    single = np.hstack([compute(batch, [each], Convention()) for each in METRICS])
    np.testing.assert_array_equal(many, single)


# ---- lists that can be checked by hand


def binary(*ranks: int, length: int = 10) -> One:
    return shown(*(float(rank in ranks) for rank in range(1, length + 1)))


def test_ap_of_hits_at_ranks_2_5_7_9() -> None:
    assert value_of("ap", binary(2, 5, 7, 9)) == pytest.approx(1 / 4 * (1 / 2 + 2 / 5 + 3 / 7 + 4 / 9))
    assert value_of("ap@10", binary(2, 5, 7, 9)) == pytest.approx(0.443, abs=5e-4)


def test_ap_of_hits_at_ranks_1_3_5_8() -> None:
    assert value_of("ap", binary(1, 3, 5, 8, length=8)) == pytest.approx(1 / 4 * (1 / 1 + 2 / 3 + 3 / 5 + 4 / 8))


def test_ap_of_hits_at_ranks_1_3_4_7() -> None:
    value = value_of("ap", binary(1, 3, 4, 7))
    assert value == pytest.approx(1 / 4 * (1 / 1 + 2 / 3 + 3 / 4 + 4 / 7))
    assert value == pytest.approx(0.747, abs=5e-4)


def test_map_of_three_lists() -> None:
    lists = [binary(1, 3, 4, 7), shown(0, 1, 0, 1, 0), shown(1, 1, 1, 0, 1)]
    parts = [1 / 4 * (1 + 2 / 3 + 3 / 4 + 4 / 7), 1 / 2 * (1 / 2 + 2 / 4), 1 / 4 * (1 + 1 + 1 + 4 / 5)]
    assert [value_of("ap", one) for one in lists] == pytest.approx(parts)
    assert sum(parts) / 3 == pytest.approx(0.732, abs=5e-4)


def test_ap_of_one_hit_at_each_of_five_ranks() -> None:
    values = compute(batch_of(*(binary(rank, length=5) for rank in range(1, 6))), [parse("ap@5")], Convention())
    assert values[:, 0].tolist() == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]


def test_ndcg_with_a_relevant_item_that_was_not_shown() -> None:
    one = shown(3, 0, 2, 2, 1, pool=[3, 0, 2, 2, 1, 3])
    gained = 3 / math.log2(2) + 2 / math.log2(4)
    ideal = 3 / math.log2(2) + 3 / math.log2(3) + 2 / math.log2(4)
    assert value_of("ndcg@3", one) == pytest.approx(gained / ideal)
    assert value_of("ndcg@3", one) == pytest.approx(0.679, abs=5e-4)
    assert value_of("ndcg@5", one) == pytest.approx(0.735, abs=5e-4)


def test_ndcg_of_a_list_ordered_by_grade_is_one() -> None:
    pairs = sorted(zip([0.9, 0.1, 0.7, 0.6, 0.3, 0.8], [3, 0, 2, 2, 1, 3], strict=True), reverse=True)
    assert [grade for _, grade in pairs] == [3, 3, 2, 2, 1, 0]
    assert value_of("ndcg@5", shown(*(grade for _, grade in pairs))) == 1.0


def test_a_short_list_is_not_padded() -> None:
    one = shown(1.0, pool=[1, 1, 1])
    assert value_of("p@3", one) == 1 / 3
    assert value_of("ap@3", one) == pytest.approx(1 / 3)
    assert value_of("ndcg@3", one) == pytest.approx(1 / (1 + 1 / math.log2(3) + 1 / 2))


def test_a_user_who_was_shown_nothing_counts_zero() -> None:
    values = compute(batch_of(One((), (1.0, 2.0))), [parse(n) for n in ("ap@5", "ndcg@5", "r@5", "rr")], Convention())
    assert values.tolist() == [[0.0, 0.0, 0.0, 0.0]]


def test_exponential_gain_of_whole_grades_is_exact() -> None:
    convention = resolve({"gain": "exponential"})
    assert value_of("cg", shown(31, 3), convention) == 2**31 - 1 + 2**3 - 1


@pytest.mark.parametrize("grades", [[2000.0, 0.0, 1.0], [0.0, 1.0, 2000.0]])
def test_a_gain_that_no_double_can_hold_gives_no_finite_value(grades: list[float]) -> None:
    convention = resolve({"gain": "exponential"})
    for name in ("ndcg@2", "ndcg", "cg", "dcg", "idcg@1"):
        assert value_of(name, shown(*grades), convention) == math.inf
    # Metrics that read no gain are not affected.
    assert value_of("p@3", shown(*grades), convention) == 2 / 3


def test_large_gains_that_a_double_can_hold_give_their_value() -> None:
    assert value_of("ndcg", shown(0.0, 2.0**800)) == 1 / math.log2(3)
    assert value_of("cg", shown(2.0**800, 2.0**800)) == 2.0**801


def test_a_grade_between_two_entries_of_a_gain_table_has_the_lower_gain() -> None:
    assert value_of("cg", shown(0.5, 1.0, 1.5, 9.0), resolve({"gain": {1: 10, 2: 20}})) == 0 + 10 + 10 + 20


def test_the_lowest_relevant_grade_changes_ap_and_not_ndcg() -> None:
    one, strict = shown(1, 2, 0), Convention(relevant_from=2)
    assert (value_of("ap", one), value_of("ap", one, strict)) == (1.0, 1 / 2)
    assert value_of("ndcg", one, strict) == value_of("ndcg", one)


def test_err_by_hand() -> None:
    assert value_of("err@2", shown(4, 4)) == pytest.approx(15 / 16 / 1 + 1 / 16 * 15 / 16 / 2)
    assert value_of("err@2", shown(0, 1), Convention(max_grade=1)) == pytest.approx(1 / 2 * 1 / 2)


def test_auc_of_two_relevant_items_among_five() -> None:
    # The item at rank 2 is above 2 of the 3 others, that at rank 4 above 1.
    one = shown(0, 1, 0, 1, 0)
    assert value_of("auc", one) == 3 / 6
    # Beyond rank 3, one pair is left to chance: items at ranks 4 and 5.
    assert value_of("auc@3", one) == (2 + 1 / 2) / 6
    assert value_of("auc@1", one) == (0 + 4 * 1 / 2) / 6


def test_auc_counts_a_tied_pair_half_where_the_convention_averages_ties() -> None:
    one = shown(1, 0, 1, 0, scores=(3, 2, 2, 1))
    assert value_of("auc", one, resolve("sklearn")) == (1 + 1 + 1 / 2 + 1) / 4
    assert value_of("auc", one) == (1 + 1 + 0 + 1) / 4


@pytest.mark.parametrize("grades", [(1.0, 2.0), (0.0, NAN), ()])
@pytest.mark.parametrize("policy", ["zero", "skip", "one"])
def test_auc_has_no_value_without_a_pair(grades: tuple[float, ...], policy: str) -> None:
    assert math.isnan(value_of("auc", shown(*grades), Convention(zero_relevant=policy)))


def test_the_average_rank_reads_shown_relevant_items_alone() -> None:
    assert value_of("average_rank", shown(0, 1, 0, 0, 3, pool=[1, 3, 2])) == (2 + 5) / 2
    assert value_of("average_rank", shown(1, 2, 3), Convention(relevant_from=2)) == (2 + 3) / 2
    assert math.isnan(value_of("average_rank", shown(0, 0, pool=[1])))


def test_graded_rbp_scales_gains_above_one_by_the_highest_judged_gain() -> None:
    one = shown(1, 0, 2, pool=[1, 0, 2, 4])
    assert value_of("graded_rbp(p=0.5)", one) == 0.5 * (1 / 4 + 2 / 4 * 0.25)
    assert value_of("graded_rbp(p=0.5)", one, Convention(ideal_pool="shown")) == 0.5 * (1 / 2 + 2 / 2 * 0.25)
    exponential = resolve({"gain": "exponential"})
    assert value_of("graded_rbp(p=0.5)", one, exponential) == pytest.approx(0.5 * (1 / 15 + 3 / 15 * 0.25))
    # Gains up to 1 are shares already, and clicks give the RBP.
    assert value_of("graded_rbp(p=0.5)", shown(0.5, 0.25)) == 0.5 * (0.5 + 0.25 * 0.5)
    assert value_of("graded_rbp@2", shown(1, 0, 1)) == value_of("rbp@2", shown(1, 0, 1))


def with_intents(*items: tuple[str, float, str]) -> One:
    """A list of (id, grade, intents as letters)."""
    pairs = tuple(tuple((name, grade) for name in names) for _, grade, names in items)
    ids = tuple(item for item, _, _ in items)
    judged = tuple((item, pair) for item, pair in zip(ids, pairs, strict=True) if not math.isnan(pair[0][1]))
    return replace(shown(*(grade for _, grade, _ in items)), items=ids, intents=pairs, judged=judged)


def test_metrics_of_intents_by_hand() -> None:
    # y and w are covered by judged items alone, z by one that is not relevant.
    one = with_intents(("a", 0, "xz"), ("b", 1, "x"), ("c", 1, "x"))
    one = replace(one, judged=(*one.judged, ("d", (("y", 1.0), ("w", 1.0)))))
    ideal = 2 + 1 / math.log2(3) + 1 / 2 / 2
    assert value_of("alpha_ndcg@3", one) == pytest.approx((1 / math.log2(3) + 1 / 2 / 2) / ideal)
    err = 1 / 2 + 1 / 2 / 3
    most = 1 + 1 / 2 / 2 + 1 / 4 / 3
    assert value_of("err_ia@3", one) == pytest.approx(err / most / 3)
    assert [value_of(f"distinct@{k}", one) for k in (1, 3)] == [2, 2]
    assert value_of("distinct@1", with_intents(("a", 1, "x"), ("b", 1, "y"))) == 1
    shown_only = Convention(ideal_pool="shown", relevant_pool="shown")
    ideal = 1 + 1 / 2 / math.log2(3)
    assert value_of("alpha_ndcg@3", one, shown_only) == pytest.approx((1 / math.log2(3) + 1 / 2 / 2) / ideal)
    assert value_of("err_ia@3", one, shown_only) == pytest.approx(err / most)


def test_the_greedy_ideal_takes_the_first_of_items_that_gain_the_same() -> None:
    # Each gains 2 at first; after xz, each of the others gains 1 1/2, and after xy the item zw still gains 2.
    best, greedy = 2 + 2 / math.log2(3), 2 + 3 / 2 / math.log2(3)
    assert value_of("alpha_ndcg@2", with_intents(("c", 1, "xz"), ("a", 1, "xy"), ("b", 1, "zw"))) == 1
    assert value_of("alpha_ndcg@2", with_intents(("a", 1, "xz"), ("c", 1, "xy"), ("b", 1, "zw"))) == greedy / best
    # A list may be better than the greedy one; its value stops at 1.
    assert value_of("alpha_ndcg@2", with_intents(("a", 1, "xy"), ("b", 1, "zw"), ("c", 1, "xz"))) == 1


def test_condensed_lists_keep_the_order_in_which_items_compete() -> None:
    one = with_intents(("z", NAN, "x"), ("a", 1, "xy"), ("b", 1, "xz"), ("c", 1, "y"))
    rule = Convention(unjudged="removed", ideal_pool="shown")
    # a and b gain 2 at first. b has the higher id; then a gains 1/2 + 1, more than c.
    assert value_of("alpha_ndcg@2", one, rule) == 1
    one = with_intents(("z", NAN, "x"), ("a", 1, "xz"), ("c", 1, "xy"), ("b", 1, "zw"))
    assert value_of("alpha_ndcg@2", one, rule) == (2 + 3 / 2 / math.log2(3)) / (2 + 2 / math.log2(3))


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_equal_gains_tie_exactly_whatever_alpha_is(alpha: float) -> None:
    # In doubles, 1 + 0.7 + 0.49 depends on the order of the three, and so would the item that is chosen.
    random = np.random.default_rng(11)
    for _ in range(60):
        sizes = random.integers(1, 6, size=12)
        names = ["".join(random.choice([*"stuvwxyz"], size, replace=False)) for size in sizes]
        one = with_intents(*((f"{i:02}", 1, each) for i, each in enumerate(names)))
        each = parse(f"alpha_ndcg(alpha={alpha})@12")
        assert value_of(str(each), one) == pytest.approx(oracle(each, one, Convention()), abs=1e-12)


def test_a_metric_of_intents_needs_them() -> None:
    with pytest.raises(InputError, match="needs intents"):
        compute(replace(batch_of(shown(1.0)), intents=None), [parse("distinct@1")], Convention())


@pytest.mark.parametrize(
    ("unjudged", "target"), [("not_relevant", [1 / 2 * (1 / 2 + 2 / 5), 1 / 2]), ("removed", [1 / 2 * (1 + 2 / 3), 1])]
)
def test_every_metric_reads_the_condensed_list(unjudged: str, target: list[float]) -> None:
    rule = Convention(unjudged=unjudged)
    assert [value_of(name, shown(NAN, 1, NAN, 0, 1), rule) for name in ("ap", "rr")] == pytest.approx(target)
    # A negative grade is a judgement.
    assert value_of("rr", shown(-1, 1), rule) == 1 / 2


def test_a_condensed_tie_is_that_of_its_judged_items() -> None:
    # Among the tied, one of two judged items is relevant: AP is 1 or 1/2.
    one = shown(NAN, 1, NAN, 0, scores=(2, 1, 1, 1))
    assert value_of("ap", one, Convention(ties="expected", unjudged="removed")) == pytest.approx((1 + 1 / 2) / 2)


@given(ones())
@settings(max_examples=40, deadline=None)
def test_rbp_with_every_missing_label_is_at_most_the_residual_above(one: One) -> None:
    low, residual = value_of("rbp(p=0.5)", one), value_of("rbp_residual(p=0.5)", one)
    best = tuple(1.0 if math.isnan(grade) else grade for grade in one.grades) + (1.0,) * 60
    result = value_of("rbp(p=0.5)", shown(*best))
    assert result == pytest.approx(low + residual, abs=1e-12)


def test_low_temperature_sharpens_and_high_temperature_flattens() -> None:
    one = shown(1, 0, scores=(1.0, 0.0))
    sharp, flat = value_of("softmax_entropy(t=0.01)", one), value_of("softmax_entropy(t=100)", one)
    assert (round(sharp, 6), round(flat, 3)) == (0.0, round(math.log(2), 3))
    assert value_of("softmax_loss", one) == pytest.approx(math.log(1 + math.exp(-1)))


def test_softmax_loss_is_stable_far_below_the_top_score() -> None:
    assert value_of("softmax_loss(t=0.001)", shown(0, 1, scores=(900.0, 0.0))) == pytest.approx(900_000)


def test_softmax_loss_needs_scores() -> None:
    with pytest.raises(InputError, match="needs scores"):
        value_of("softmax_loss", shown(1.0))


# ---- trec_eval itself, on random lists


def test_trec_eval_gives_the_same() -> None:
    names = {
        "map": "ap",
        "ndcg": "ndcg",
        "bpref": "bpref",
        "Rprec": "rprec",
        "recip_rank": "rr",
        "P_5": "p@5",
        "recall_5": "r@5",
        "map_cut_5": "ap@5",
        "ndcg_cut_5": "ndcg@5",
        "success_5": "hit_rate@5",
    }
    random = np.random.default_rng(3)
    for _ in range(50):
        grades = random.choice([NAN, -1, 0, 1, 2], size=random.integers(1, 12)).tolist()
        unseen = random.choice([0, 1, 2], size=3).tolist()
        run = {"q": {f"d{i:02}": float(len(grades) - i) for i in range(len(grades))}}
        judged = {f"d{i:02}": int(grade) for i, grade in enumerate(grades) if not math.isnan(grade)}
        qrels = {"q": judged | {f"u{i}": int(grade) for i, grade in enumerate(unseen)}}
        theirs = pytrec_eval.RelevanceEvaluator(qrels, set(names)).evaluate(run)["q"]
        one = shown(*grades, pool=[*grades, *unseen])
        mine = {name: value_of(own, one, resolve("trec_eval")) for name, own in names.items()}
        assert mine == pytest.approx({name: theirs[name] for name in names}, abs=1e-12)


# ---- what a list without relevant items counts as


@pytest.mark.parametrize(("policy", "value"), [("zero", 0.0), ("skip", NAN), ("one", 1.0)])
@pytest.mark.parametrize("each", [each for each in METRICS if each.definition.zero_policy], ids=str)
def test_the_policy_decides_what_an_undefined_metric_counts_as(each: Metric, policy: str, value: float) -> None:
    convention = Convention(zero_relevant=policy)
    assert value_of(str(each), shown(0.0, NAN), convention) == pytest.approx(value, nan_ok=True)


def test_sums_and_losses_do_not_follow_the_policy() -> None:
    one = shown(0.0, -1.0, scores=(2, 1))
    values = [value_of(name, one, Convention(zero_relevant="one")) for name in ("dcg@2", "idcg@2", "judged@2")]
    assert values == [0.0, 0.0, 1.0]
    assert math.isnan(value_of("softmax_loss", one))


def test_relevant_items_are_counted_whether_shown_or_not() -> None:
    batch = batch_of(shown(1, 0, pool=[1, 0, 2]), shown(0.0))
    assert m_relevant(batch, Convention()).tolist() == [2, 0]
    assert m_relevant(batch, Convention(relevant_from=2)).tolist() == [1, 0]


def test_an_empty_batch_gives_an_empty_result() -> None:
    for ties in ("item_desc", "expected"):
        able = [each for each in METRICS if ties != "expected" or "expected" in each.definition.readings]
        batch = replace(batch_of(), score=np.zeros(0), tie_first=np.zeros(0, int), tie_last=np.zeros(0, int))
        assert compute(batch, able, Convention(ties=ties)).shape == (0, len(able))
    assert compute(batch_of(shown(1.0)), [], Convention()).shape == (1, 0)


def test_a_metric_without_an_expected_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metric 'err@5' has no expected value over tied .* one of: ap, ndcg, p"):
        check([parse("ap@5"), parse("err@5")], Convention(ties="expected"))


def test_large_tie_groups_keep_their_precision() -> None:
    n, s = 2000, 1000
    one = shown(*([1.0] * s + [0.0] * (n - s)), scores=[1.0] * n)
    convention = Convention(ties="expected")
    assert value_of("p@10", one, convention) == pytest.approx(1 / 2, abs=1e-12)
    harmonic = math.fsum(1 / i for i in range(1, n + 1))
    others = math.fsum((i - 1) / i for i in range(1, n + 1)) * (s - 1) / (n - 1)
    assert value_of("ap", one, convention) == pytest.approx((harmonic + others) / n, abs=1e-12)


# ---- names


@pytest.mark.parametrize(
    ("text", "name", "column"),
    [
        ("AP@10", "ap@10", "ap_at_10"),
        ("map", "ap", "ap"),
        ("mrr@10", "rr@10", "rr_at_10"),
        ("Recall@20", "r@20", "r_at_20"),
        ("HR@5", "hit_rate@5", "hit_rate_at_5"),
        ("hit-rate@5", "hit_rate@5", "hit_rate_at_5"),
        ("success_5", "hit_rate@5", "hit_rate_at_5"),
        ("alpha_nDCG(alpha=0.9)@20", "alpha_ndcg(alpha=0.9)@20", "alpha_ndcg_alpha_0_9_at_20"),
        ("a-ndcg@5", "alpha_ndcg(alpha=0.5)@5", "alpha_ndcg_alpha_0_5_at_5"),
        ("ERR-IA@20", "err_ia@20", "err_ia_at_20"),
        ("Success@5", "hit_rate@5", "hit_rate_at_5"),
        ("ROC-AUC", "auc", "auc"),
        ("mean_rank", "average_rank", "average_rank"),
        ("rbp_graded(p=0.9)", "graded_rbp(p=0.9)", "graded_rbp_p_0_9"),
        ("P_5", "p@5", "p_at_5"),
        ("ndcg_at_10", "ndcg@10", "ndcg_at_10"),
        ("f1@10", "f1@10", "f1_at_10"),
        ("rbp", "rbp(p=0.8)", "rbp_p_0_8"),
        ("RBP(p=.8)@20", "rbp(p=0.8)@20", "rbp_p_0_8_at_20"),
        ("softmax_loss( t = 0.10 )", "softmax_loss(t=0.1)", "softmax_loss_t_0_1"),
        ("softmax_loss", "softmax_loss(t=1)", "softmax_loss_t_1"),
        (" r-prec ", "rprec", "rprec"),
    ],
)
def test_names_are_read_in_any_case_and_written_in_one(text: str, name: str, column: str) -> None:
    assert (str(parse(text)), parse(text).column) == (name, column)
    assert parse(name) == parse(text)


@pytest.mark.outcome("the metric {text}", "exit 2: ... {message} ...")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@10", "unknown metric 'ndgc@10'; did you mean 'ndcg@10'? known: ap, ndcg, p, r, "),
        ("zzz", "unknown metric 'zzz'; known: ap"),
        ("p", "metric 'p' needs a cut-off, such as p@10"),
        ("ap@0", "metric 'ap@0': the cut-off '0' must be a whole number from 1 to 1000000"),
        ("ap@-3", "the cut-off '-3' must be a whole number"),
        ("ap@1.5", "the cut-off '1.5' must be a whole number"),
        ("ap@", "the cut-off '' must be a whole number"),
        ("ap@²", "the cut-off '²' must be a whole number"),
        ("rprec@5", "metric 'rprec@5' takes no cut-off; write rprec"),
        ("rbp(p=1)", "metric 'rbp(p=1)': p is '1'; it must be a number above 0.0 below 1.0"),
        ("rbp(p=x)", "p is 'x'; it must be a number"),
        ("rbp(q=0.5)", "unknown parameter of metric 'rbp(q=0.5)' 'q'"),
        ("rbp(0.5)", "write a parameter as name=value, not '0.5'"),
        ("softmax_loss(t=0)", "t is '0'"),
        ("alpha_ndcg(alpha=1)@5", "alpha is '1'; it must be a number above 0.0 below 1.0"),
        ("alpha_ndcg(alpha=0.5)", "metric 'alpha_ndcg(alpha=0.5)' needs a cut-off, such as alpha_ndcg@10"),
        ("@10", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_a_wrong_name_is_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_columns_are_unique() -> None:
    assert len({each.column for each in METRICS}) == len(METRICS)


def test_every_metric_has_an_example_and_a_first_line() -> None:
    for definition in REGISTRY.values():
        assert parse(definition.example).name == definition.name
        assert ": " in definition.summary


def test_every_tie_knob_is_a_field_of_the_convention() -> None:
    assert all(hasattr(Convention(), definition.tie_knob) for definition in REGISTRY.values())


def test_a_metric_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(parse("rbp(p=0.9)@5"))) == parse("rbp@5").__class__(
        "rbp", (("p", 0.9),), 5, definition=REGISTRY["rbp"]
    )


# ---- registration


@pytest.fixture
def registry() -> Iterator[dict[str, Any]]:
    """The registry, restored after the test."""
    before = dict(REGISTRY)
    yield REGISTRY
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.usefixtures("registry")
def test_a_user_defined_metric_works_like_the_others() -> None:
    @metric(aliases=("first",), range=(0.0, math.inf), mean_name="MFG")
    def first_grade(lists: Lists, k: int = 1) -> Floats:
        """First grade: the gain at rank 1."""
        return lists.dcg_at(k)

    assert value_of("first@1", shown(3, 1)) == 3.0
    assert inspect.signature(first_grade).parameters["k"].default == 1
    assert parse("first@1").headline == "MFG@1"
    assert [str(each) for each in variants(REGISTRY["first_grade"])] == [f"first_grade@{k}" for k in (1, 3, 20)]
    assert reference()[-1]["summary"] == "First grade: the gain at rank 1."


def define(name: str, *aliases: str) -> None:
    def kernel(lists: Lists) -> Floats:
        return lists.hits_at(None)

    kernel.__name__ = kernel.__qualname__ = name
    metric(aliases=aliases)(kernel)


@pytest.mark.outcome("a new metric with the names {names}", "`ConfigError`: {message} ...")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ap"], "metric name 'ap' already belongs to metric 'ap'"),
        (["map"], "metric name 'map' already belongs to metric 'ap'"),
        (["mine", "recall"], "metric name 'recall' already belongs to metric 'r'"),
        (["ndcg_10"], "metric name 'ndcg_10' already belongs to metric 'ndcg'"),
        (["p_at_3"], "metric name 'p_at_3' already belongs to metric 'p'"),
        (["user_id"], "metric name 'user_id' is a column of the output tables"),
        (["mine", "metric"], "metric name 'metric' is a column of the output tables"),
        (["_mine"], "metric name '_mine' must start with a lower-case letter"),
        (["MyMetric"], "metric name 'MyMetric' must start with a lower-case letter"),
        (["mine", "my-metric"], "metric name 'my-metric' must start with a lower-case letter"),
    ],
)
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
    assert parse("new").name == "mine"
    with pytest.raises(ConfigError, match="unknown metric 'old'"):
        parse("old")


def test_no_metric_can_have_the_name_of_a_column() -> None:
    assert {*USER_COLUMNS, SEGMENT, METRIC} <= RESERVED


# ---- what people read


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("ap@10", "MAP@10"),
        ("ap", "MAP"),
        ("rr", "MRR"),
        ("ndcg@10", "mean NDCG@10"),
        ("rbp(p=0.8)@20", "mean RBP (p = 0.8)@20"),
        ("hit_rate@5", "mean Hit rate@5"),
        ("auc@10", "mean AUC@10"),
        ("average_rank", "mean Average rank"),
        ("graded_rbp(p=0.9)", "mean graded RBP (p = 0.9)"),
        ("rbp_resid(p=0.9)", "mean RBP residual (p = 0.9)"),
        ("alpha-nDCG@10", "mean alpha-NDCG (alpha = 0.5)@10"),
        ("ERR-IA@20", "mean ERR-IA@20"),
        ("distinct@5", "mean distinct intents@5"),
    ],
)
def test_a_headline_is_what_people_call_the_mean(name: str, headline: str) -> None:
    assert parse(name).headline == headline


def test_the_reference_describes_every_metric_in_words() -> None:
    rows = reference()
    assert [parse(row["name"]).name for row in rows] == list(REGISTRY)
    assert all(row["summary"] and row["range"] and row["direction"] for row in rows)
    result = {parse(row["name"]).name: (row["range"], row["direction"]) for row in rows}
    assert result["ndcg"] == ("0 to 1", "higher is better")
    assert result["softmax_loss"] == ("0 or more", "lower is better")
    assert result["idcg"] == ("0 or more", "neither direction is better")
