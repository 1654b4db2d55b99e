"""How alike two lists are: against loops over their definitions, SciPy, and what the package rbo printed."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.metrics import Overlap, jaccard, kendall, overlap, rbo, same_top, unexpectedness
from tests.helpers.messages import json_cases

Pair = tuple[Sequence[int], Sequence[int]]


def overlap_of(*pairs: Pair) -> Overlap:
    """The common items of some pairs of lists."""
    at = [np.repeat(np.arange(len(pairs)), [len(pair[side]) for pair in pairs]) for side in (0, 1)]
    items = [np.array([item for pair in pairs for item in pair[side]], np.int64) for side in (0, 1)]
    return overlap(at[0], items[0], at[1], items[1], len(pairs))


def random_pairs(n: int) -> list[Pair]:
    rng = random.Random(3)
    return [(rng.sample(range(12), rng.randint(0, 9)), rng.sample(range(12), rng.randint(0, 9))) for _ in range(n)]


PAIRS = random_pairs(300)


def rbo_by_definition(a: Sequence[int], b: Sequence[int], p: float) -> float:
    """Equation 32 of Webber et al., term by term."""
    short, long = sorted((a, b), key=len)
    s, n = len(short), len(long)
    if not s:
        return 0.0 if n else math.nan
    x = {d: len({*long[:d]} & {*short[:d]}) for d in range(1, n + 1)}
    first = sum(x[d] / d * p**d for d in range(1, n + 1))
    second = sum(x[s] * (d - s) / (s * d) * p**d for d in range(s + 1, n + 1))
    return (1 - p) / p * (first + second) + ((x[n] - x[s]) / n + x[s] / s) * p**n


@pytest.mark.parametrize("p", [0.5, 0.9, 0.98])
def test_rbo_is_that_of_the_paper(p: float) -> None:
    expected = [rbo_by_definition(a, b, p) for a, b in PAIRS]
    np.testing.assert_allclose(rbo(overlap_of(*PAIRS), p), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("a", "b", "printed"), json_cases("overlaps by rbo"))
def test_rbo_is_what_the_package_rbo_printed(a: str, b: str, printed: float) -> None:
    lists = [[ord(item) for item in side] for side in (a, b)]
    assert rbo(overlap_of((lists[0], lists[1])), 0.9)[0] == pytest.approx(printed, abs=1e-12)


def test_kendall_is_the_tau_of_scipy_over_the_common_items() -> None:
    values = kendall(overlap_of(*PAIRS))
    for (a, b), value in zip(PAIRS, values, strict=True):
        at = [b.index(item) for item in a if item in b]
        if len(at) > 1:
            assert value == pytest.approx(stats.kendalltau(range(len(at)), at).statistic, abs=1e-12)
        else:
            assert math.isnan(value)


def test_jaccard_and_the_same_top_are_those_of_sets_and_lists() -> None:
    pairs = [*PAIRS, ([1, 2], [1, 2]), ([1, 2], [2, 1]), ([1, 2], [1, 2, 3])]
    for (a, b), share, same in zip(pairs, jaccard(overlap_of(*pairs)), same_top(overlap_of(*pairs)), strict=True):
        either = {*a} | {*b}
        expected = (len({*a} & {*b}) / len(either), float(list(a) == list(b))) if either else (math.nan, math.nan)
        assert (share, same) == pytest.approx(expected, nan_ok=True)


def test_lists_without_a_common_item_are_unlike_and_the_same_list_is_alike() -> None:
    apart, same = overlap_of(([1, 2], [3])), overlap_of(([4, 5, 6], [4, 5, 6]))
    assert [float(of(apart)[0]) for of in (rbo, jaccard, same_top)] == [0.0, 0.0, 0.0]
    assert [float(of(same)[0]) for of in (rbo, jaccard, same_top, kendall)] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("measure", [rbo, jaccard, same_top, kendall])
def test_a_pair_has_the_same_bits_alone_and_among_others(measure: object) -> None:
    together = measure(overlap_of(*PAIRS))  # type: ignore[operator]
    alone = [measure(overlap_of(pair))[0] for pair in PAIRS]  # type: ignore[operator]
    np.testing.assert_array_equal(together, alone)


def test_unexpectedness_is_the_share_that_the_baseline_does_not_have() -> None:
    expected = [len({*b} - {*a}) / len(b) if b else math.nan for a, b in PAIRS]
    np.testing.assert_array_equal(unexpectedness(overlap_of(*PAIRS)), expected)


# RePlay 0.22.0, Unexpectedness([2, 4], mode=PerUser()) of its docstring: baselines, recommendations, values.
@pytest.mark.parametrize(("k", "printed"), [(2, (0.5, 0.0, 0.0)), (4, (0.5, 0.5, 0.5))])
def test_unexpectedness_is_that_of_replay_where_lists_have_k_items(k: int, printed: tuple[float, ...]) -> None:
    base = ([2, 3, 7], [5, 8, 3], [4, 9])
    recommended = ([3, 7, 10, 11, 2], [5, 8, 11, 1, 3], [4, 9, 2])
    pairs = [(a[:k], b[:k]) for a, b in zip(base, recommended, strict=True)]
    # RePlay divides by k, here by the length of the list.
    lengths = [len(b) for _, b in pairs]
    by_k = 1 - (1 - unexpectedness(overlap_of(*pairs))) * lengths / k
    assert by_k.tolist() == pytest.approx(printed)
    assert unexpectedness(overlap_of(*pairs)).tolist() == pytest.approx([*printed[:2], printed[2] if k == 2 else 1 / 3])
