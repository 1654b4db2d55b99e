"""Sums of pairs of rankers -> rows: tests, the check of the draft, and each sentence, without an engine."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.statistics import POWERS, limbs_of
from rankmetrics_spark.studies.drafts import COLUMNS, LIST_COUNTS, PAIR_SUMS, RANK_COUNTS, Preferences, preference_rows

RULES = Preferences()


def sums(values: list[float], slots: tuple[list[int], list[int]] = ([], []), lists: int = 0) -> Any:
    """The sums of a pair, from the preference of each of its users, each of one list."""
    each = np.array(values, float)
    of_users = [len(each), (each < 0).sum(), (each > 0).sum()]
    limbs = [int(limb.sum()) for i in (1, 2) for limb in limbs_of(each**i, POWERS[i])]
    won = {"lists_a": of_users[1], "lists_b": of_users[2], "n_lists_clicked": len(each), "n_lists": lists or len(each)}
    ranks = [*slots[0], *[0] * (10 - len(slots[0])), *slots[1], *[0] * (10 - len(slots[1]))]
    result = [*(won.get(name, 0) for name in LIST_COUNTS), *ranks, *of_users, *limbs]
    assert (len(result), len(ranks)) == (len(PAIR_SUMS.columns), len(RANK_COUNTS))
    return np.array([*map(int, result)], object)


def rows(
    pairs: dict[tuple[str, str], Any], rules: Preferences = RULES, counts: tuple[int, ...] = (100, 1, 0, 0, 0, 50)
) -> Any:
    names = dict.fromkeys((name, None) for pair in pairs for name in pair)
    nothing = np.zeros(2, object)
    totals: dict[Any, Any] = {(None, None): np.array(counts, object), **dict.fromkeys(names, nothing), **pairs}
    return preference_rows(totals, rules)


def sentence(values: list[float], slots: tuple[list[int], list[int]] = ([], []), **rules: Any) -> str:
    (row,) = rows({("old", "new"): sums(values, slots)}, Preferences(**{**vars(RULES), "baseline": "old", **rules}))
    return str(row["sentence"])


def test_a_row_has_every_column_and_its_numbers_are_those_of_scipy() -> None:
    values = [0.5, 0.5, -0.5, 0.25, 0.0, 0.5, 1 / 6, 0.5]
    (row,) = rows({("a", "b"): sums(values, ([40, 60], [60, 40]))})
    assert set(row) == set(COLUMNS)
    test = stats.ttest_1samp(values, 0)
    assert row["p_value"] == pytest.approx(test.pvalue)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert row["p_sign"] == pytest.approx(stats.binomtest(6, 7).pvalue)
    assert row["draft_shares"] == [0.6, 0.4]
    assert row["p_draft"] == pytest.approx(2 * stats.chisquare([40, 60]).pvalue)
    assert row["lists_tied"] == 1


def test_a_rank_without_a_slot_is_neither_counted_nor_named() -> None:
    (row,) = rows({("a", "b"): sums([0.5, -0.5], ([10, 0, 30], [10, 0, 10]))})
    assert row["draft_shares"] == pytest.approx([0.5, np.nan, 0.25], nan_ok=True)
    assert row["p_draft"] == pytest.approx(2 * stats.chisquare([30, 10]).pvalue)
    (row,) = rows({("a", "b"): sums([0.5, -0.5])})
    assert row["draft_shares"] == [] and np.isnan(row["p_draft"])


def test_the_p_values_of_all_pairs_are_corrected_together() -> None:
    pairs = {("a", "b"): sums([0.5] * 9 + [-0.5]), ("a", "c"): sums([0.5, 0.5, -0.5]), ("b", "c"): sums([])}
    result = rows(pairs)
    p = [row["p_value"] for row in result]
    assert [row["p_adjusted"] for row in result][:2] == pytest.approx([min(1, 2 * p[0]), p[1]])
    assert "corrected for 2 pairs" in result[0]["sentence"] and result[2]["p_sign"] is None
    plain = rows(pairs, Preferences(**{**vars(RULES), "correction": "none"}))
    assert [row["p_adjusted"] for row in plain][:2] == p[:2] and "corrected" not in plain[0]["sentence"]


def test_a_preference_that_the_correction_takes_away_is_not_clear() -> None:
    won = {("a", "b"): sums([0.5] * 13 + [-0.5] * 4), ("a", "c"): sums([0.5, -0.5] * 5), ("b", "c"): sums([0.5, -0.5])}
    row, *_ = rows(won)
    assert row["p_value"] < 0.05 < row["p_adjusted"]
    assert row["sentence"].startswith("No clear preference between a and b: on average, b won 76.5 % of a user's lists")
    assert f"Chance alone could explain this (p = {row['p_adjusted']:.3f}, corrected for 3 pairs)." in row["sentence"]


def test_users_who_all_agree_have_no_interval() -> None:
    for values, first in (([0.0] * 30, "No clear preference between old and new"), ([0.5] * 30, "new beats old")):
        result = sentence(values)
        assert result.startswith(f"{first}: on average, new won {100 * (0.5 + values[0]):.1f} % of a user's lists")
        assert "ties counted half (the same for each user, so there is no interval)." in result
        assert "interval 50" not in result and "interval is" not in result


def test_names_break_no_line_and_colour_nothing() -> None:
    (row,) = rows({("a\nb", '\x1b[1mit\'s "c"'): sums([0.5, 0.5, -0.5])})
    assert 'a\\nb and \\x1b[1mit\'s "c":' in row["sentence"] and row["ranker_a"] == "a\nb"
    assert row["sentence"].isprintable()
    (row,) = rows({("x" * 300, "y"): sums([0.5, 0.5, -0.5])})
    assert f"{'x' * 60}... and y:" in row["sentence"]
    (row,) = preference_rows({("a\nb", None): np.zeros(2, object)}, RULES)
    assert row["sentence"] == "There is one ranker, a\\nb, so nothing to compare it with."


def test_users_without_a_preference_have_a_sign_test_of_1() -> None:
    (row,) = rows({("a", "b"): sums([0.0, 0.0, 0.0])})
    assert (row["p_sign"], row["p_value"], row["preference"]) == (1.0, 1.0, 0.0)
    assert row["sentence"].startswith("No clear preference between a and b: on average, b won 50.0 % of a user's lists")


def test_a_clear_preference_is_told_with_the_share_of_the_winner() -> None:
    for sign, ahead, other, lists in ((1, "new", "old", (800, 200)), (-1, "old", "new", (200, 800))):
        values = [sign * 0.5] * 800 + [-sign * 0.5] * 200
        half = 100 * stats.t.ppf(0.975, 999) * stats.sem(values)
        assert sentence(values) == (
            f"{ahead} beats {other}: on average, {ahead} won 80.0 % of a user's lists with a click, ties counted half "
            f"(95 % interval {80 - half:.1f} to {80 + half:.1f} %). Chance alone would rarely give this (p < 0.001). "
            f"Lists that new won: {lists[0]}, that old won: {lists[1]}, ties: 0; users: 1,000."
        )


def test_no_evidence_is_not_told_as_no_difference() -> None:
    values = [0.5] * 11 + [-0.5] * 9
    p = stats.ttest_1samp(values, 0).pvalue
    result = sentence(values)
    assert result.startswith("No clear preference between old and new: on average, new won 55.0 % of a user's lists")
    assert f"Chance alone could explain this (p = {p:.3f})." in result
    assert "no difference" not in result.lower()
    assert "more than once" not in result


def test_users_are_planned_by_the_power_of_statsmodels_at_the_smallest_step_of_all_pairs() -> None:
    values = [0.5] * 55 + [0.0] * 40 + [-0.5] * 50
    pairs = {("a", "b"): sums(values), ("a", "c"): sums(values[::-1]), ("b", "c"): sums([0.0] * 9)}
    for level, rules in ((0.05 / 3, {}), (0.05, {"correction": "none"})):
        row, _, still = rows(pairs, Preferences(**{**vars(RULES), "effect": "4%", "power": 0.9, **rules}))
        power = TTestPower().power(row["smallest_effect"] / np.std(values, ddof=1), len(values), level)
        assert power == pytest.approx(0.9, abs=0.005)
        needed = TTestPower().solve_power(0.04 / np.std(values, ddof=1), alpha=level, power=0.9)
        assert row["users_needed"] == pytest.approx(needed, rel=0.01)
        assert np.isnan([still["smallest_effect"], still["users_needed"]]).all()
        found = f"{np.ceil(1000 * (0.5 + row['smallest_effect'])) / 10:.1f} % or more"
        takes = f"54.0 % takes about {row['users_needed']:,.0f} users to be found with a probability of 90 %"
        assert f"{takes}; 145 find {found}." in row["sentence"] and "find 54.0 %: it has 9 with" in still["sentence"]
    any_look = rows(pairs, Preferences(**{**vars(RULES), "effect": 0.04, "looks": "any"}))[0]
    assert any_look["smallest_effect"] > row["smallest_effect"] and any_look["users_needed"] > row["users_needed"]
    assert "145 users are enough to find " in sentence(values) and "users are enough" not in sentence([0.5] * 30)
    assert "4 users are too few to find even 100.0 % with a probability of 80 %." in sentence([0.5, -0.5] * 2)
    assert "users find 52.0 %: it has 4 with a click" in sentence([0.5, -0.5] * 2, effect=0.02)
    assert "52.0 % takes about" in sentence([0.5] * 80 + [-0.5] * 20, effect=0.02)
    clear = sentence([0.5, 0.5, 0.5, 0.03], effect=0.02)  # though its users are too few for any plan
    assert clear.startswith("new beats old") and "too few to find" not in clear and "it has 4 with a click" in clear


def test_a_preference_that_does_not_hold_at_every_look_says_so() -> None:
    values = [0.5] * 90 + [-0.5] * 50
    (row,) = rows({("old", "new"): sums(values)})
    assert row["p_adjusted"] < 0.05 < row["p_sequential"]
    low, high = (100 * min(1, max(0, 0.5 + row[f"sequential_ci_{end}"])) for end in ("low", "high"))
    assert low < 50 < high
    expected = "It does not hold for a test that people look at more than once: at every look, the interval is"
    assert f"{expected} {low:.1f} to {high:.1f} %." in row["sentence"]


def test_a_lopsided_draft_comes_first_and_names_the_rank() -> None:
    result = sentence([0.5, -0.5, 0.5], ([500, 300, 450], [500, 700, 550]))
    p = 3 * stats.chisquare([300, 700]).pvalue
    assert p < 1e-9
    assert result.startswith(
        "The draft is lopsided: at rank 2, new has 70.0 % of the slots that it shares with old instead of 50 % "
        "(p < 1e-9). Find the cause before you read the numbers. No clear preference"
    )
    p = stats.chisquare([430, 570]).pvalue
    assert f"(p = {p:.1g})" in sentence([0.5, -0.5, 0.5], ([430], [570]))
    assert sentence([0.5, -0.5, 0.5], ([460], [540])).startswith("No clear preference")


def test_many_rows_that_are_left_out_are_named() -> None:
    pair = {("a", "b"): sums([0.5, -0.5, 0.5])}
    (row,) = rows(pair, counts=(1000, 0, 11, 0, 0, 9))
    assert row["sentence"].startswith("1.1 % of the rows repeat a rank of their list and are left out: name the col")
    (row,) = rows(pair, counts=(1000, 11, 0, 0, 0, 9))
    first = "1.1 % of the rows have a fault and are left out: a missing or wrong user, list, rank or click. No clear"
    assert row["sentence"].startswith(first)
    (row,) = rows(pair, counts=(1000, 10, 10, 0, 0, 9))
    assert row["sentence"].startswith("No clear preference")
    (row,) = rows({}, counts=(10, 10, 0, 0, 0, 0))
    assert row["sentence"].startswith("100.0 % of the rows have a fault")


def test_an_unknown_baseline_is_refused_and_a_pair_has_the_baseline_first() -> None:
    pairs = {("b", "a"): sums([0.5]), ("b", "c"): sums([0.5]), ("a", "c"): sums([0.5])}
    result = rows(pairs, Preferences(**{**vars(RULES), "baseline": "b"}))
    assert [(row["ranker_a"], row["ranker_b"]) for row in result] == [("b", "a"), ("b", "c"), ("a", "c")]
    with pytest.raises(ConfigError, match="baseline: unknown ranker 'd'; known: a, b, c"):
        rows(pairs, Preferences(**{**vars(RULES), "baseline": "d"}))
