"""Sorting and searching inside groups, against one sort of everything."""

import numpy as np
import pytest

from rankmetrics_spark.metrics import grids, has_repeat, order_within

SIZES = [[], [1], [3], [0, 2, 0, 5], [1, 50, 2, 1000, 7, 1, 64, 65], [4] * 100, [*[1] * 2**16, 3, 2], [2**19, 2, 3]]
"""The last two have more groups, and more elements, than are sorted all together."""


@pytest.mark.parametrize("sizes", SIZES)
def test_groups_are_sorted_as_one_sort_by_group_and_key_would(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    key = np.random.default_rng(1).random(len(groups))
    key = (key - 0.5) ** 3
    key[key < -0.1], key[key > 0.1], key[np.abs(key) < 1e-4] = -np.inf, np.inf, -0.0
    key[0:1] = 0.0
    expected = np.lexsort((key, groups))
    result = order_within(groups, key)
    assert key[result].tolist() == key[expected].tolist()
    assert sorted(result.tolist()) == list(range(len(groups)))
    assert groups[result].tolist() == groups.tolist()


@pytest.mark.parametrize("late", [False, True])
def test_groups_in_order_stay_as_they_are_unless_one_far_down_is_not(late: bool) -> None:
    groups = np.repeat(np.arange(100), 50)
    key = np.tile(np.arange(50.0), 100)
    key[-1] = -1.0 if late else key[-1]
    result = order_within(groups, key)
    assert result.tolist() == np.lexsort((key, groups)).tolist()
    assert (result == np.arange(len(key))).all() == (not late)


@pytest.mark.parametrize("sizes", SIZES)
def test_every_element_is_in_one_cell_and_padding_fills_less_than_half_of_a_row(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    seen = [(at[inside], inside.mean(axis=1).min()) for at, inside in grids(groups)]
    assert sorted(index for cells, _ in seen for index in cells.tolist()) == list(range(len(groups)))
    assert all(share > 0.5 for _, share in seen)


def test_a_key_repeats_only_inside_its_group() -> None:
    largest = np.iinfo(np.int64).max
    assert not has_repeat(np.array([0, 0, 1, 1, 1]), np.array([3, largest, 3, 2, largest]))
    assert has_repeat(np.array([0, 0, 1, 1, 1]), np.array([3, 4, 7, 2, 7]))
    assert has_repeat(np.array([0, 0, 0]), np.array([largest, 1, largest]))
    # No more than a mix of group and key is compared at first: a clash of two mixes is no repeat.
    odd = 7046029254386353131
    assert not has_repeat(np.array([0, 1, 1]), np.array([5, 5 + odd, 3]))
    assert has_repeat(np.array([0, 1, 1]), np.array([5, 5 + odd, 5 + odd]))
    assert not has_repeat(np.empty(0, np.int64), np.empty(0, np.int64))
