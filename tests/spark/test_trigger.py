"""``trigger``: users whose lists could differ, from the log to stored tables, commands and checks; on both engines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import compare, config as cfg, evaluate, job, sinks
from rankmetrics_spark.errors import InputError
from tests.helpers.commands import Call

COLUMNS = {"experiment": "arm", "relevance": "clicked"}


def log(n: int = 90, lists: int = 2, day: int = 0) -> pd.DataFrame:
    """Lists of three items; every third user has the flag in one row of one list, from day 1 on every fifth too."""
    rng, rows = np.random.default_rng(5 + day), []
    for arm in "ab":
        for user in range(n):
            for request in range(lists):
                flag = request == 0 and (user % 3 == 0 or (day > 0 and user % 5 == 0))
                for rank in (1, 2, 3):
                    clicked = int(rng.random() < 0.3 + 0.3 * (arm == "b" and user % 3 == 0))
                    rows.append((arm, f"{arm}{user}", f"r{request}", f"i{rank}", rank, clicked, flag and rank == 2))
    names = ["arm", "user", "request", "item", "position", "clicked", "could_differ"]
    return pd.DataFrame(rows, columns=names)


def hold(row: Any, impressions: pd.DataFrame) -> None:
    """Hold a row of p@3 against SciPy over the users who have the flag anywhere."""
    users = impressions.groupby(["arm", "user"]).agg(p=("clicked", "mean"), flag=("could_differ", "max"))
    b, a = (users.loc[arm].query("flag")["p"].to_numpy() for arm in "ba")
    expected, share = stats.ttest_ind(b, a, equal_var=False), users["flag"].mean()
    assert (row["n_users"], row["trigger"], row["design"]) == (len(a) + len(b), "could_differ", "independent")
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert row["diluted_difference"] == pytest.approx((b.mean() - a.mean()) * share, rel=1e-9)
    others = [users.loc[arm].query("not flag")["p"].to_numpy() for arm in "ba"]
    assert row["p_untriggered"] == pytest.approx(stats.ttest_ind(*others, equal_var=False).pvalue, rel=1e-9)


@pytest.mark.both_engines
def test_a_user_is_triggered_by_any_row_of_any_list(spark: SparkSession) -> None:
    impressions = log()
    as_is: dict[str, Any] = {"columns": COLUMNS, "list": "request", "baseline": "a", "trigger": "could_differ"}
    for values in (impressions["could_differ"], impressions["could_differ"].astype(int)):
        of = spark.createDataFrame(impressions.assign(could_differ=values))
        result = evaluate(of, "p@3", **as_is)
        (row,) = result.comparisons.collect()
        hold(row, impressions)
    # A null is no flag, and means of the experiments are over all users.
    flags = impressions["could_differ"].astype(object).where(impressions["could_differ"], None)
    of = spark.createDataFrame(impressions.assign(could_differ=flags).sample(frac=1.0, random_state=1)).repartition(3)
    assert evaluate(of, "p@3", **as_is).comparisons.collect() == [row]
    # Nor is a NaN, which engines count as above every number.
    nan = of.withColumn("could_differ", F.expr("CASE WHEN could_differ THEN 1D ELSE double('NaN') END"))
    assert evaluate(nan, "p@3", **as_is).comparisons.collect() == [row]
    assert {each["n_users"] for each in result.experiment_metrics.collect()} == {90}
    with pytest.raises(InputError, match=r"column 'arm' \(arm\) has type string; it must be a number"):
        evaluate(of, "p@3", **(as_is | {"trigger": "arm"})).user_metrics.collect()


def test_rows_that_are_lists_have_the_flag_of_their_list(spark: SparkSession) -> None:
    impressions = log(lists=1)
    gathered = {"could_differ": ("could_differ", "max"), "items": ("item", list), "clicked": ("clicked", list)}
    lists = impressions.groupby(["arm", "user"], sort=False).agg(**gathered)
    columns = {"experiment": "arm", "items": "items", "item": None, "relevance": "clicked"}
    result = evaluate(spark.createDataFrame(lists.reset_index().astype({"could_differ": bool})), "p@3", baseline="a",
                      columns=columns, trigger="could_differ")  # fmt: skip
    (row,) = result.comparisons.collect()
    hold(row, impressions)


def test_assigned_users_are_triggered_as_others_are(spark: SparkSession) -> None:
    impressions = log()
    arms = impressions[["arm", "user"]].drop_duplicates()
    more = pd.DataFrame({"arm": ["a"] * 5 + ["b"] * 6, "user": [f"none{i}" for i in range(11)]})
    assignments = pd.concat([arms, more]).assign(test="t")
    result = evaluate(spark.createDataFrame(impressions.drop(columns="arm")), "p@3", list="request", baseline="a",
                      columns={"relevance": "clicked"}, assignments=spark.createDataFrame(assignments),
                      trigger="could_differ")  # fmt: skip
    (row,) = result.comparisons.collect()
    hold(row, impressions)
    assert (row["n_assigned_baseline"], row["n_assigned_candidate"], row["note"]) == (95, 96, None)


def test_a_run_a_period_and_what_is_refused(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    days = [log(lists=1, day=day).drop(columns="request") for day in (0, 1)]
    for day, impressions in enumerate(days):
        impressions.to_csv(tmp_path / f"{day}.csv", index=False)  # True and False
        config = {
            "source": {"path": str(tmp_path / f"{day}.csv"), "format": "csv", "columns": COLUMNS},
            "metrics": ["p@3"],
            "comparison": {"baseline": "a", "trigger": "could_differ", "period": {"from": "2026-11-20"}},
            "evaluation_date": f"2026-11-2{day}",
            "sink": {"path": str(tmp_path / "out")},
        }
        outcome = job.run(spark, cfg.Config.read(config))
        assert outcome.comparisons is not None
        (row,) = outcome.comparisons.collect()
        hold(row, pd.concat(days[: day + 1]))
    assert any("among the 47 % of users with could_differ" in line for line in outcome.record["verdict"])
    stored = sinks.read(spark, str(tmp_path / "out" / "checks")).where("evaluation_date = '2026-11-21'").collect()
    told = {check["name"]: (check["status"], check["observed"]) for check in stored}
    assert [told[name] for name in ("trigger_rate", "untriggered")] == [("ok", 1.0), ("ok", row["p_untriggered"])]
    users = sinks.read(spark, str(tmp_path / "out" / "user_metrics"))
    (again,) = compare(users, "a", trigger="could_differ", dates=("2026-11-20", "2026-11-21")).collect()
    assert again["p_value"] == row["p_value"]
    given = ("--input", tmp_path / "out", "--baseline", "a", "--set", "trigger=could_differ")
    code, out, _ = call("compare", *given, "--from", "2026-11-20", "--format", "json")
    assert (code, json.loads(out)["comparisons"][0]["p_untriggered"]) == (0, row["p_untriggered"])
    for more, words in (
        (("--over-time",), "trigger is 'could_differ'; allowed: null, since an effect over time is one of all users"),
        (("--decompose", "side"), "--decompose is given with trigger"),
        (("--set", "only_changed=true"), "trigger is could_differ, and comparison.only_changed is true"),
    ):
        code, _, err = call("compare", *given, *more)
        assert (code, words in " ".join(err.split())) == (2, True), err
    with pytest.raises(InputError, match="user_metrics has no column flag, which trigger needs"):
        compare(users, "a", trigger="flag").collect()
    with pytest.raises(InputError, match="trigger is p_at_3, of type double in user_metrics; allowed: a boolean"):
        compare(users, "a", trigger="p_at_3").collect()


@pytest.mark.slow
def test_in_a_thousand_tests_the_errors_are_those_that_are_said(spark: SparkSession) -> None:
    """500 users a side, 20 % of them with the flag: each value of a segment is a test of its own."""
    rng, tests, n = np.random.default_rng(11), 1000, 1000
    frame = pd.DataFrame({"test": np.repeat(np.arange(tests), n), "user": np.tile(np.arange(n), tests)})
    frame["experiment_id"] = np.where(frame["user"] % 2, "b", "a")
    frame["user_id"] = frame["test"].astype(str) + "-" + frame["user"].astype(str)
    frame["could_differ"] = rng.random(len(frame)) < 0.2
    effect = 0.12 * ((frame["test"] % 2 == 0) & frame["could_differ"] & (frame["experiment_id"] == "b"))
    frame["p_at_3"], frame["n_relevant"] = rng.beta(1, 2, len(frame)) + effect, 1
    frame["test"] = frame["test"].astype(str)
    users = spark.createDataFrame(frame.drop(columns="user"))
    rows, plain = (
        compare(users, "a", correction="none", segments="test", trigger=flag)
        .toPandas()
        .set_index("segment")
        .drop("all")
        for flag in ("could_differ", None)
    )
    some = rows.index.str[5:].astype(int) % 2 == 0
    # Of 500 tests each: the standard error of 5 % is 1.0.
    error, power = (rows.loc[~some, "p_value"] < 0.05).mean(), (rows.loc[some, "p_value"] < 0.05).mean()
    truth = np.where(some, 0.12 * 0.2, 0.0)
    held = (rows["diluted_ci_low"] <= truth) & (truth <= rows["diluted_ci_high"])
    assert 0.03 <= error <= 0.07 and 0.93 <= held.mean() <= 0.97
    assert power >= (plain.loc[rows.index[some], "p_value"] < 0.05).mean() + 0.2
    assert (rows["p_untriggered"] < 0.001).mean() <= 0.006 and (rows["p_share_triggered"] < 0.001).mean() <= 0.006
