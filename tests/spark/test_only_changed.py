"""``only_changed``: users whose lists differ, from the log to stored tables, commands and the page; on both engines."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import compare, config as cfg, evaluate, job, report as rep
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.commands import Call, ok

COLUMNS = {"experiment": "experiment", "user": "user", "item": "item", "position": "position", "relevance": "clicked"}
_M64 = 2**64 - 1


def log(n: int = 60, seed: int = 1, lists: int = 1) -> pd.DataFrame:
    """Lists of six items: every third user has the first two of one list swapped in b, every fourth the last two."""
    rng, rows = random.Random(seed), []
    for user in range(n):
        for request in range(lists):
            items = rng.sample([f"i{i}" for i in range(20)], 6)
            for name in "ab":
                own = [*items]
                if name == "b" and user % 3 == 0 and request == 0:
                    own[:2] = own[1], own[0]
                if name == "b" and user % 4 == 0:
                    own[4:] = own[5], own[4]
                # The requests of b come in another order.
                label = f"r{request if name == 'a' else lists - request}"
                rows += [(name, f"u{user}", label, item, at, int(rng.random() < 0.3)) for at, item in enumerate(own, 1)]
    return pd.DataFrame(rows, columns=["experiment", "user", "request", "item", "position", "clicked"])


def changed_users(impressions: pd.DataFrame, k: int) -> set[str]:
    """Users whose top k, as a set of lists, differ between the experiments; by a loop."""
    tops: dict[str, dict[str, list[Any]]] = {}
    for (user, name, _), own in impressions.groupby(["user", "experiment", "request"]):
        top = tuple(own[own["position"] <= k].sort_values("position")["item"])
        tops.setdefault(user, {}).setdefault(name, []).append(top)
    return {user for user, of in tops.items() if len(of) == 2 and sorted(of["a"]) != sorted(of["b"])}


def p_at_3(impressions: pd.DataFrame) -> pd.DataFrame:
    top = impressions[impressions["position"] <= 3]
    lists = top.groupby(["user", "experiment", "request"])["clicked"].mean()
    return lists.groupby(["user", "experiment"]).mean().unstack()


def hold(row: Any, impressions: pd.DataFrame, k: int) -> None:
    """Hold a row against SciPy over the users of a loop."""
    values, few = p_at_3(impressions), changed_users(impressions, k)
    some = values.loc[sorted(few)]
    expected = stats.ttest_rel(some["b"], some["a"])
    assert (row["n_users"], row["n_users_both"]) == (len(few), len(values))
    assert row["share_changed"] == pytest.approx(len(few) / len(values))
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    z = (values["b"] - values["a"]).where(values.index.isin(few), 0.0)
    interval = stats.ttest_1samp(z, 0).confidence_interval()
    assert row["diluted_difference"] == pytest.approx(z.mean(), rel=1e-9)
    assert (row["diluted_ci_low"], row["diluted_ci_high"]) == pytest.approx(tuple(interval), rel=1e-9)


def mixed(number: int) -> int:
    """SplitMix64, as its authors print it."""
    number = (number + 0x9E3779B97F4A7C15) & _M64
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _M64
    return number ^ (number >> 31)


def test_only_users_whose_lists_differ_are_compared_and_the_hash_is_that_of_a_loop(spark: SparkSession) -> None:
    impressions = log()
    result = evaluate(spark.createDataFrame(impressions), ["p@3", "ap@2"], columns=COLUMNS, baseline="a",
                     only_changed=True)  # fmt: skip
    rows = {row["metric"]: row for row in result.comparisons.collect()}
    hold(rows["p@3"], impressions, k=3)
    hashes = {row["item"]: row["hash"] for row in spark.createDataFrame(impressions).select(
        "item", F.xxhash64("item").alias("hash")).distinct().collect()}  # fmt: skip
    users = {(row["experiment_id"], row["user_id"]): row.asDict() for row in result.user_metrics.collect()}
    for (name, user), own in impressions.groupby(["experiment", "user"]):
        top = own[own["position"] <= 3]
        at = dict(zip(top["item"], top["position"], strict=True))
        cells = (mixed(mixed(hashes[item] & _M64) + rank & _M64) for item, rank in at.items())
        assert users[name, user]["list_hash_at_3"] & _M64 == sum(cells) & _M64
    again = compare(result.user_metrics.orderBy(F.rand(3)), "a", only_changed=True).collect()
    assert {row["metric"]: row.asDict() for row in again} == {name: row.asDict() for name, row in rows.items()}
    # The metrics are those of a run without the option, which has no hash.
    plain = evaluate(spark.createDataFrame(impressions), ["p@3", "ap@2"], columns=COLUMNS).user_metrics
    assert {(row["experiment_id"], row["user_id"]): row.asDict() for row in plain.collect()} == {
        key: {name: value for name, value in row.items() if name != "list_hash_at_3"} for key, row in users.items()
    }


def test_several_lists_count_in_any_order_and_a_segment_compares_its_own_lists(spark: SparkSession) -> None:
    impressions = log(lists=3)
    table = spark.createDataFrame(impressions.assign(side=np.where(impressions["request"] == "r0", "x", "y")))
    result = evaluate(table, ["p@3"], columns=COLUMNS, list="request", segments="side", baseline="a", only_changed=True)
    rows = {row["segment"]: row for row in result.comparisons.collect()}
    hold(rows["all"], impressions, k=3)
    first = impressions["request"] == "r0"
    assert rows["side=x"]["n_users"] == len(changed_users(impressions[first], 3))
    assert rows["side=y"]["n_users"] == len(changed_users(impressions[~first], 3))


def test_two_equal_lists_do_not_cancel_out(spark: SparkSession) -> None:
    lists = {"a": ("xy", "xy"), "b": ("yx", "yx")}
    rows = [(name, "u", f"r{at}", item, rank, 1) for name, tops in lists.items() for at, top in enumerate(tops)
            for rank, item in enumerate(top, 1)]  # fmt: skip
    impressions = pd.DataFrame(rows, columns=["experiment", "user", "request", "item", "position", "clicked"])
    result = evaluate(spark.createDataFrame(impressions), ["p@2"], columns=COLUMNS, list="request", only_changed=True)
    hashes = {row["experiment_id"]: row["list_hash_at_2"] for row in result.user_metrics.collect()}
    assert hashes["a"] != hashes["b"]


def test_by_score_the_hash_is_that_of_the_ranks(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log().assign(score=lambda rows: -rows["position"] / 2))
    shape: dict[str, Any] = {"only_changed": True}
    by_rank = evaluate(impressions, ["p@3", "rbp(p=0.8)"], columns=COLUMNS, **shape).user_metrics
    by_score = evaluate(impressions, ["p@3", "rbp(p=0.8)"], columns=COLUMNS, rank_by="score", **shape).user_metrics
    keys = ("experiment_id", "user_id", "list_hash")
    assert {*by_rank.select(*keys).collect()} == {*by_score.select(*keys).collect()}
    assert by_rank.select("list_hash").distinct().count() > 60


def test_ids_that_look_like_numbers_stay_apart_and_the_rows_may_come_in_any_order(spark: SparkSession) -> None:
    items = {"a": ["007", "9007199254740993"], "b": ["7", "9007199254740992"]}
    rows = [(name, "u", item, at, 1) for name, own in items.items() for at, item in enumerate(own, 1)]
    impressions = spark.createDataFrame(rows, "experiment string, user string, item string, position int, clicked int")
    (row,) = evaluate(impressions, ["p@2"], columns=COLUMNS, baseline="a", only_changed=True).comparisons.collect()
    assert (row["share_changed"], row["note"]) == (
        1,
        "fewer than two users have different lists in the two experiments",
    )
    table = spark.createDataFrame(log(30))
    whole, parts = (
        evaluate(each, ["p@3"], columns=COLUMNS, only_changed=True).user_metrics.collect()
        for each in (table, table.orderBy(F.rand(5)).repartition(5))
    )
    assert {*whole} == {*parts}


def test_users_of_the_judgements_who_were_shown_nothing_have_the_same_empty_list(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log(6))
    truth = [(f"u{user}", "i1", 1) for user in range(9)]
    judgements = spark.createDataFrame(truth, "user_id string, item_id string, relevance int")
    convention = {"preset": "standard", "population": "either"}
    result = evaluate(impressions, ["p@3"], judgements, columns=COLUMNS, convention=convention, baseline="a",
                     only_changed=True)  # fmt: skip
    hashes = {row["user_id"]: row["list_hash_at_3"] for row in result.user_metrics.collect()}
    assert [hashes[f"u{user}"] for user in (6, 7, 8)] == [0, 0, 0]
    (row,) = result.comparisons.collect()
    assert (row["n_users_both"], row["n_users"]) == (9, 2)


@pytest.mark.parametrize("repeated", ["relevant", "all", "ignore"])
def test_rows_that_were_logged_twice_change_no_list(spark: SparkSession, repeated: str) -> None:
    impressions = log(12)
    twice = impressions[(impressions["experiment"] == "b") & (impressions["position"] == 2)]
    result = evaluate(spark.createDataFrame(pd.concat([impressions, twice])), ["p@3"], columns=COLUMNS, baseline="a",
                     repeated_items=repeated, only_changed=True)  # type: ignore[arg-type]  # fmt: skip
    (row,) = result.comparisons.collect()
    assert row["n_users"] == len(changed_users(impressions, 3)) == 4


def test_an_empty_log_has_no_comparison(spark: SparkSession) -> None:
    empty = spark.createDataFrame(log(1)).where("false")
    assert evaluate(empty, ["p@3"], columns=COLUMNS, baseline="a", only_changed=True).comparisons.collect() == []


def test_users_without_a_hash_are_refused(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log(6))
    plain = evaluate(impressions, ["p@3"], columns=COLUMNS).user_metrics
    with pytest.raises(InputError, match="user_metrics has no column list_hash_at_3, which only_changed needs"):
        compare(plain, "a", only_changed=True)
    shallow, deep = (
        evaluate(impressions, metrics, columns=COLUMNS, only_changed=True).user_metrics
        for metrics in (["p@3"], ["p@3", "rr"])
    )
    with pytest.raises(InputError, match="no column list_hash, which only_changed needs"):
        compare(shallow.withColumn("rr", F.lit(1.0)), "a", only_changed=True)
    both = shallow.where("experiment_id = 'a'").unionByName(deep.where("experiment_id = 'b'"), allowMissingColumns=True)
    with pytest.raises(Exception, match="user_metrics has users of b without a hash of their lists"):
        compare(both, "a", "b", "p@3", only_changed=True).collect()
    (row,) = compare(deep, "a", metrics="p@3", only_changed=True).collect()
    # Without a cut-off, users whose lists differ below rank 3 have changed lists too.
    assert row["n_users"] == len(changed_users(log(6), 6)) == 3 > len(changed_users(log(6), 3))


def test_a_run_its_tables_commands_and_page(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    impressions = log()
    impressions.to_parquet(tmp_path / "log.parquet")
    config = {
        "source": {"path": str(tmp_path / "log.parquet"), "columns": COLUMNS},
        "metrics": ["p@3"],
        "comparison": {"baseline": "a", "only_changed": True},
        "evaluation_date": "2026-11-21",
        "sink": {"path": str(tmp_path / "out")},
    }
    outcome = job.run(spark, cfg.Config.read(config))
    assert outcome.comparisons is not None
    (row,) = outcome.comparisons.collect()
    hold(row, impressions, k=3)
    assert any("among the 33 % of users whose lists changed" in line for line in outcome.record["verdict"])
    assert any(line.startswith("Over all 60 users, b changes Precision@3 by ") for line in outcome.record["verdict"])
    given = ("--input", tmp_path / "out", "--baseline", "a", "--set", "only_changed=true")
    code, out, _ = call("compare", *given, "--format", "json")
    (again,) = json.loads(out)["comparisons"]
    assert code == 0
    names = ("n_users", "n_users_both", "share_changed", "difference", "diluted_difference", "p_value")
    assert [again[name] for name in names] == [row[name] for name in names]
    code, out, _ = call("compare", *given)
    assert (code, "among the 33 % of users whose lists changed" in " ".join(out.split())) == (0, True)
    for more, words in (
        (("--from", "2026-11-21"), "comparison.only_changed is true, and the users are those of 2026-11-21"),
        (("--over-time",), "only_changed is True; allowed: false, since an effect over time is one of all users"),
        (("--decompose", "side"), "--decompose is given with only_changed"),
    ):
        code, _, err = call("compare", *given, *more)
        assert (code, words in " ".join(err.split())) == (2, True), err
    if not rep.has_page_libraries():
        return
    ok(call, "report", "--input", tmp_path / "out", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "among the 33 % of users whose lists changed" in page and "difference over all users" in page


def test_a_period_of_stored_days_is_refused(spark: SparkSession) -> None:
    result = evaluate(spark.createDataFrame(log(6)), ["p@3"], columns=COLUMNS, only_changed=True).user_metrics
    stored = result.withColumn("evaluation_date", F.lit("2026-11-21"))
    with pytest.raises(ConfigError, match="only_changed is true, and the users are those of 2026-11-20 to 2026-11-21"):
        compare(stored, "a", only_changed=True, dates=("2026-11-20", "2026-11-21"))
    (row,) = compare(stored, "a", dates=("2026-11-20", "2026-11-21")).collect()
    assert row["n_users"] == 6
