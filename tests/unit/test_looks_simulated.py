"""Fourteen daily looks at tests without a difference, with users who return: how often one of them finds one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.looks import first_finds

pytestmark = pytest.mark.slow

DRAWS = 200


@pytest.mark.parametrize("paired", [False, True])
def test_any_number_of_looks_finds_nothing_in_95_of_100_tests_where_there_is_nothing(paired: bool) -> None:
    result = first_finds("any day", paired, 0.0, DRAWS)
    shares = {setting: np.mean(each > 0) for setting, each in result.items()}
    error = np.sqrt(0.05 * 0.95 / DRAWS)
    assert shares["any"] <= 0.05 + 2 * error
    # A single look at the end keeps its level; fourteen of them do not.
    assert abs(shares["last look alone"] - 0.05) <= 4 * error
    assert shares["one"] > 0.1


def test_planned_looks_keep_their_level_where_each_user_comes_once() -> None:
    result = first_finds("one day", False, 0.0, DRAWS)
    for setting in ("obrien_fleming", "pocock", "linear"):
        assert np.mean(result[setting] > 0) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / DRAWS)


def test_looks_cost_some_power_and_any_number_of_them_the_most() -> None:
    result = first_finds("any day", True, 0.13, DRAWS)
    power = {setting: np.mean(each > 0) for setting, each in result.items()}
    assert 0.5 < power["any"] < power["obrien_fleming"] < power["last look alone"] + 0.05
