"""Kernels on lists that can be checked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.metrics import Convention, Lists, compute, parse, resolve
from tests.helpers.builders import batch_of, shown, value_of
from tests.oracles import One, by_definition

NAN = math.nan


@pytest.mark.parametrize(("denominator", "divisor"), [("hits", 1 + 1 / 3), ("m", 2), ("k", 2)])
def test_threshold_ap_reads_the_part_of_a_tie_inside_the_cut_off(denominator: str, divisor: float) -> None:
    # Ranks 2 to 4 are tied and hold one relevant item. One of these three places is inside the cut-off, so a third of
    # the item is: the precision at rank 2 is (1 + 1/3) / 2.
    one = shown(1, 0, 1, 0, scores=(2, 1, 1, 1))
    rule = Convention(ap_ties="threshold", ap_denominator=denominator)
    assert value_of("ap@2", one, rule) == pytest.approx((1 + 1 / 3 * (1 + 1 / 3) / 2) / divisor, abs=1e-15)
    # A cut-off at the end of the tie divides nothing: 2 relevant items down to rank 4.
    assert value_of("ap@4", one, replace(rule, ap_denominator="m")) == pytest.approx((1 + 2 / 4) / 2, abs=1e-15)


def test_exponential_gain_of_whole_grades_is_exact() -> None:
    assert value_of("cg", shown(31, 3), resolve({"gain": "exponential"})) == 2**31 - 1 + 2**3 - 1


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
        assert value_of(str(each), one) == pytest.approx(
            by_definition(each.name, one, Convention(), **each.arguments), abs=1e-12
        )


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


def test_sums_and_losses_do_not_follow_the_policy() -> None:
    one = shown(0.0, -1.0, scores=(2, 1))
    values = [value_of(name, one, Convention(zero_relevant="one")) for name in ("dcg@2", "idcg@2", "judged@2")]
    assert values == [0.0, 0.0, 1.0]
    assert math.isnan(value_of("softmax_loss", one))


def test_relevant_items_are_counted_whether_shown_or_not() -> None:
    batch = batch_of(shown(1, 0, pool=[1, 0, 2]), shown(0.0))
    assert Lists(batch, Convention()).m.tolist() == [2, 0]
    assert Lists(batch, Convention(relevant_from=2)).m.tolist() == [1, 0]


def test_large_tie_groups_keep_their_precision() -> None:
    n, s = 2000, 1000
    one = shown(*([1.0] * s + [0.0] * (n - s)), scores=[1.0] * n)
    convention = Convention(ties="expected")
    assert value_of("p@10", one, convention) == pytest.approx(1 / 2, abs=1e-12)
    harmonic = math.fsum(1 / i for i in range(1, n + 1))
    others = math.fsum((i - 1) / i for i in range(1, n + 1)) * (s - 1) / (n - 1)
    assert value_of("ap", one, convention) == pytest.approx((harmonic + others) / n, abs=1e-12)
