"""Comparisons of users whose lists differ, against SciPy and loops; and how people read them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rankmetrics_spark import errors as err, gates, layouts as lay
from rankmetrics_spark.config import Comparison, Config, Gate, Options
from rankmetrics_spark.metrics import list_hashes, parse, resolve
from rankmetrics_spark.report import sentence, verdict_of
from tests.helpers.messages import messages
from tests.helpers.users import METRIC, PAIR, compared, table, times

REQUEST = Comparison("a", only_changed=True)


def users(n: int = 60, seed: int = 1) -> pd.DataFrame:
    """Users in both experiments. A third of them have other lists in b; clicks differ for all."""
    rng = np.random.default_rng(seed)
    rows = table({"a": rng.random(n), "b": rng.random(n) + 0.2})
    number = rows["user"].str[1:].astype(int)
    rows["list_hash"] = number + 1000 * ((number % 3 == 0) & (rows["experiment"] == "b"))
    rows["country"] = np.where(number % 2 == 0, "de", "fr")
    return rows


def pairs_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per user: the values in a and in b, and whether the lists differ; by a loop."""
    result = []
    for user, own in rows.groupby("user", sort=False):
        of = {row["experiment"]: row for _, row in own.iterrows()}
        if {"a", "b"} <= of.keys() and not any(np.isnan(row[METRIC]) for row in of.values()):
            result.append((user, of["a"][METRIC], of["b"][METRIC], of["a"]["list_hash"] != of["b"]["list_hash"],
                          of["a"]["country"]))  # fmt: skip
    return pd.DataFrame(result, columns=["user", "a", "b", "changed", "country"])


def one(rows: pd.DataFrame, **rules: Any) -> dict[str, Any]:
    return compared(rows, replace(REQUEST, bootstrap=times(200)), only_changed=True, design="paired", **rules)[PAIR]


def test_only_users_whose_lists_differ_are_tested() -> None:
    rows = users()
    rows.loc[[0, 7, 60 + 9], METRIC] = np.nan
    every = pairs_of(rows)
    few = every[every["changed"]]
    row = one(rows, wilcoxon=True)
    expected = stats.ttest_rel(few["b"], few["a"])
    assert (row["n_users"], row["n_users_both"], row["n_users_baseline"]) == (len(few), len(every), 58)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-10)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-10)
    assert (row["mean_baseline"], row["mean_candidate"]) == pytest.approx((few["a"].mean(), few["b"].mean()))
    assert row["p_wilcoxon"] == pytest.approx(stats.wilcoxon(few["b"], few["a"]).pvalue, rel=1e-10)
    wins = [(few["b"] > few["a"]).sum(), 0, (few["b"] < few["a"]).sum()]
    assert [row[name] for name in ("wins", "ties", "losses")] == wins
    assert row["bootstrap_ci_low"] < row["difference"] < row["bootstrap_ci_high"]


def test_the_diluted_effect_counts_the_other_users_as_0() -> None:
    every = pairs_of(users())
    row = one(users(), confidence=0.9)
    diluted = np.where(every["changed"], every["b"] - every["a"], 0.0)
    interval = stats.ttest_1samp(diluted, 0).confidence_interval(0.9)
    assert row["share_changed"] == pytest.approx(every["changed"].mean())
    assert row["diluted_difference"] == pytest.approx(row["difference"] * row["share_changed"], rel=1e-12)
    assert row["diluted_difference"] == pytest.approx(diluted.mean(), rel=1e-12)
    assert (row["diluted_ci_low"], row["diluted_ci_high"]) == pytest.approx(tuple(interval), rel=1e-10)


def test_segments_are_filtered_too_and_families_stay() -> None:
    every = pairs_of(users())
    request = compared(users(), REQUEST, segments=("country",), only_changed=True, design="paired")
    plain = compared(users(), Comparison("a"), segments=("country",), design="paired")
    for label in ("de", "fr"):
        own = every[(every["country"] == label) & every["changed"]]
        rest = every[(every["country"] != label) & every["changed"]]
        row = request["a", "b", f"country={label}", METRIC]
        assert row["p_value"] == pytest.approx(stats.ttest_rel(own["b"], own["a"]).pvalue, rel=1e-10)
        assert row["rest_difference"] == pytest.approx((rest["b"] - rest["a"]).mean(), rel=1e-12)
        assert (row["n_users"], row["n_users_both"]) == (10, 30)
    for name in ("family", "n_comparisons"):
        assert [row[name] for row in request.values()] == [row[name] for row in plain.values()]


def test_without_the_option_nothing_is_filtered_and_no_column_is_new() -> None:
    plain = compared(users().drop(columns="list_hash"), Comparison("a"))[PAIR]
    assert (plain["n_users"], "share_changed" in plain) == (60, False)


@pytest.mark.parametrize(("n_changed", "words"), [(0, "no users have"), (1, "fewer than two users have")])
def test_too_few_changed_lists_are_said(n_changed: int, words: str) -> None:
    rows = users()
    number = rows["user"].str[1:].astype(int)
    rows["list_hash"] = number + 1000 * ((number < n_changed) & (rows["experiment"] == "b"))
    row = one(rows)
    assert row["note"] == f"{words} different lists in the two experiments"
    assert (row["share_changed"], row["n_users_both"]) == (n_changed / 60, 60)
    if not n_changed:
        assert row["diluted_difference"] == 0 and np.isnan([row["diluted_ci_low"], row["diluted_ci_high"]]).all()


def test_users_of_one_experiment_are_left_out_and_counted() -> None:
    rows = users()
    row = one(rows[(rows["experiment"] == "a") | (rows["user"].str[1:].astype(int) < 30)])
    assert (row["n_users"], row["n_users_both"], row["share_changed"]) == (10, 30, 1 / 3)
    assert row["note"] == "without 30 of the 60 users of a, who are not in both experiments"
    apart = rows[(rows["experiment"] == "a") == (rows["user"].str[1:].astype(int) < 30)]
    assert one(apart)["note"] == "no users in both experiments, and only_changed compares no others"


def test_people_read_which_users_these_are() -> None:
    row = one(users())
    assert " on MAP@10 among the 33 % of users whose lists changed: " in sentence(row, parse(METRIC))
    size = f"{row['diluted_difference']:+.4f} ({row['diluted_ci_low']:+.4f} to {row['diluted_ci_high']:+.4f})"
    lines = verdict_of([row], [parse(METRIC)])
    assert f"Over all 60 users, b changes MAP@10 by {size} from a: same lists count as no change" in lines


def test_the_same_lists_everywhere_are_no_measured_zero() -> None:
    rows = users()
    rows["list_hash"] = 1
    # Two primary metrics with one reason: it is said once.
    pair = [one(rows), one(rows) | {"metric": "ndcg@10"}]
    lines = verdict_of(pair, [parse(METRIC), parse("ndcg@10")])
    said = "Every user of both a and b gets the same lists in each: there is no change to test"
    assert lines.count(said) == 1 and not any("changes MAP@10 by" in line for line in lines)


def test_margins_gates_and_losses_say_which_users_too() -> None:
    row, among = one(users(), margin={METRIC: "1%"}), "among the 33 % of users whose lists changed"
    lines = verdict_of([row], [parse(METRIC)])
    assert any(line.startswith(f"MAP@10 of b is no more than 1 % below that of a {among}: ") for line in lines)
    (check,) = gates.gate_checks([Gate(metric=METRIC, max_drop=0.01)], [], [row])
    assert f" against a {among}; the gate allows" in check.sentence
    won = {"role": "primary", "better": "candidate"}
    lost = row | {"metric": "p@1", "role": "guardrail", "better": "baseline"}
    assert f", {among}" in verdict_of([row | won, lost])[0].partition("; but the guardrail Precision@1 ")[2]


@pytest.mark.parametrize(
    ("rules", "limits"),
    [
        ({}, ""),
        ({"looks": "any"}, "; one look"),
        ({"primary_share": 0.5, "roles": {METRIC: "primary"}}, "; not corrected"),
        ({"earlier": True}, "; without CUPED"),
        ({"earlier": True, "looks": "any"}, "; one look, without CUPED"),
    ],
)
def test_the_effect_over_all_users_says_what_its_interval_is_not(rules: dict[str, Any], limits: str) -> None:
    rows = users()
    if rules.get("earlier"):
        earlier = np.random.default_rng(2).random(120)
        rows = rows.assign(**{f"{name} {METRIC}": earlier for name in ("before", "own")})
    row = one(rows, **rules)
    high = f"{row['diluted_ci_high']:+.4f}"
    (line,) = (line for line in verdict_of([row], [parse(METRIC)]) if line.startswith("Over all 60 users"))
    assert f" to {high}{limits}) from a: " in line


# ---- the option


@pytest.mark.parametrize(("other", "words"), messages("only_changed"))
def test_what_it_does_not_go_with_is_refused(other: dict[str, Any], words: str) -> None:
    with pytest.raises(err.ConfigError, match=f"comparison.only_changed is true, and comparison.{words}"):
        Comparison.read({"baseline": "a", "only_changed": True, **other})
    assert Comparison.read({"baseline": "a", **other}).only_changed is False


def test_lists_without_items_cannot_be_compared() -> None:
    with pytest.raises(err.ConfigError, match=r"columns\.item is null, but only_changed compares lists by item"):
        Options(columns={"item": None}, only_changed=True)
    with pytest.raises(err.ConfigError, match=r"source\.columns\.item is null, but comparison.only_changed"):
        Config.read({"source": {"path": "x", "columns": {"item": None}}, "comparison": {"only_changed": True}})


def test_the_design_is_paired_whatever_the_share_of_users_in_both() -> None:
    rows = users()
    rows.loc[rows.index >= 70, "user"] += " of b alone"  # 10 of 60 are in both
    assert compared(rows, Comparison("a"))[PAIR]["design"] == "independent"
    assert compared(rows, REQUEST)[PAIR]["design"] == "paired"


# ---- the hash


def test_the_hash_says_which_item_is_at_which_rank() -> None:
    lists = np.array([0, 0, 1, 1, 2, 2, 3, 5])
    rank, item = np.array([1, 2, 2, 1, 1, 2, 1, 1]), np.array([7, 8, 8, 7, 8, 7, 7, -(2**63)])
    result = list_hashes(lists, rank, item, 6)
    assert result[0] == result[1] and len({*result[[0, 2, 3, 4, 5]].tolist()}) == 5
    assert result[4] == 0
    order = np.random.default_rng(1).permutation(8)
    assert list_hashes(lists[order], rank[order], item[order], 6).tolist() == result.tolist()


def test_no_two_of_many_lists_have_the_same_hash() -> None:
    n = 50_000
    lists = np.repeat(np.arange(n), 2)
    rank, item = np.tile([1, 2], n), np.stack([np.arange(n) // 250, np.arange(n) % 250], axis=1).ravel()
    assert len({*list_hashes(lists, rank, item, n).tolist()}) == n


def hash_of(rows: list[tuple[int, int, float]], convention: str = "standard", to: int = 3, **reading: Any) -> int:
    """The hash of one list of (rank or score, item, grade)."""
    import pyarrow as pa

    by_position = reading.pop("by_position", True)
    name = "position" if by_position else "score"
    entries = [{name: at, "_hash": item, "relevance": grade, "item_id": str(item)} for at, item, grade in rows]
    kinds = [(name, pa.int64() if by_position else pa.float64()), ("_hash", pa.int64()), ("relevance", pa.float64())]
    kind = pa.list_(pa.struct([*kinds, *([] if by_position else [("item_id", pa.string())])]))
    columns = {"_entries": pa.array([entries], kind), "_rows": pa.array([len(rows)])}
    read = lay.Reading(resolve(convention), by_position=by_position, hashed_to=to, **reading)
    (result,) = lay.LAYOUTS["rows"].unpack(columns, read).list_hash  # type: ignore[misc]
    return int(result)


def test_grades_rows_below_the_cut_off_and_logged_twice_change_no_hash() -> None:
    plain = hash_of([(1, 7, 0), (2, 8, 0), (3, 9, 1)])
    assert plain == hash_of([(3, 9, 0), (1, 7, 1), (2, 8, 0), (4, 5, 1)])
    assert plain == hash_of([(1, 7, 0), (2, 8, 0), (3, 9, 1), (3, 9, 1)])
    assert plain != hash_of([(1, 7, 0), (2, 9, 0), (3, 8, 1)])
    assert plain != hash_of([(1, 7, 0), (2, 8, 0), (3, 9, 1), (4, 5, 1)], to=4)


def test_of_two_items_at_one_rank_the_clicks_choose_none() -> None:
    first, second = ([(1, 7, 0), (2, 8, x), (2, 9, y)] for x, y in ((1, 0), (0, 1)))
    assert hash_of(first) == hash_of(second) == hash_of([(1, 7, 0), (2, 8, 0)])


@pytest.mark.parametrize("convention", ["standard", "rectools", "recommenders"])
def test_of_a_repeated_item_the_best_rank_counts_whatever_was_clicked(convention: str) -> None:
    first, later = ([(1, 7, x), (2, 8, 0), (3, 7, y)] for x, y in ((1, 0), (0, 1)))
    assert hash_of(first, convention) == hash_of(later, convention) == hash_of([(1, 7, 0), (2, 8, 0)], convention)


def test_by_score_ties_follow_the_convention_but_never_the_grades() -> None:
    scores = [(2, 7, 0), (1, 8, 0), (1, 9, 1)]
    swapped = [(2, 7, 0), (1, 8, 1), (1, 9, 0)]
    for ties in ("best", "worst", "expected", "item_desc"):
        read = {"by_position": False}
        convention = {"preset": "standard", "ties": ties}
        assert hash_of(scores, convention, **read) == hash_of(swapped, convention, **read)  # type: ignore[arg-type]
        # 9 is above 8: ids descend.
        assert hash_of(scores, convention, **read) == hash_of([(1, 7, 0), (2, 9, 0), (3, 8, 0)])  # type: ignore[arg-type]
    ascending = {"preset": "standard", "ties": "item_asc"}
    assert hash_of(scores, ascending, by_position=False) == hash_of([(1, 7, 0), (2, 8, 0), (3, 9, 0)])  # type: ignore[arg-type]
