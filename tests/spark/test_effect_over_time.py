"""How an effect develops, on an engine: the rows of the test without one, bit for bit."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from scipy import stats
from scipy.optimize import brentq

from rankmetrics_spark import compare, effect_over_time
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.commands import ROOT, Call
from tests.helpers.user_days import DATES, by_label, developed, log
from tests.helpers.users import METRIC

NAMES = {"experiment": "experiment_id", "user": "user_id", "date": "evaluation_date", METRIC: "ap_at_10",
         "lists": "n_lists"}  # fmt: skip


def stored(spark: SparkSession, rows: pd.DataFrame) -> DataFrame:
    """Rows as ``user_metrics``; a list without a value counts in n_lists and not in the metric's own number."""
    return spark.createDataFrame(rows.rename(columns=NAMES).drop(columns="relevant").assign(n_relevant=1))


def texts(rows: Any) -> list[str]:
    """Rows as text, in their order: equal texts are equal bits; an engine has null where NumPy has NaN."""
    plain = [{n: v.item() if isinstance(v, np.generic) else v for n, v in row.items()} for row in rows]
    return [str({name: None if pd.isna(value) else value for name, value in row.items()}) for row in plain]


def test_an_engine_has_the_bits_of_the_loop_without_one(spark: SparkSession) -> None:
    rows = log(users=25)
    # Some users of a are in c as well.
    rows.loc[(rows.experiment == "c") & (rows.date > DATES[5]), "user"] = "a" + rows.user.str[1:]
    table = stored(spark, rows)
    for start in (None, DATES[4]):
        dates = (start, DATES[-1]) if start else None
        for parts in (1, 3):
            result = effect_over_time(table.repartition(parts), "a", dates=dates).collect()
            assert texts(by_label([row.asDict() for row in result]).values()) == texts(
                by_label([{**row, "metric": "ap@10"} for row in developed(rows, start).values()]).values()
            )


def test_the_last_day_up_to_which_users_count_is_the_end_of_the_period(spark: SparkSession) -> None:
    rows = log(users=25)
    result = by_label(
        [row.asDict() for row in effect_over_time(stored(spark, rows), "a", dates=(DATES[2], DATES[9])).collect()]
    )
    assert {label for _, kind, label in result if kind in ("day", "cumulative")} == {*DATES[2:10]}
    chosen = rows[rows.date.between(DATES[2], DATES[9]) & rows[METRIC].notna()]
    means = chosen.assign(v=chosen[METRIC] * chosen.lists).groupby(["experiment", "user"])[["v", "lists"]].sum()
    table = (means.v / means.lists).rename("ap_at_10").reset_index().rename(columns=NAMES).assign(n_relevant=1)
    for row in compare(spark.createDataFrame(table), "a").collect():
        mine = result[row["experiment_id"], "cumulative", DATES[9]]
        for name in ("n_users", "difference", "ci_low", "relative_ci_high", "p_value", "mean_candidate"):
            assert mine[name] == pytest.approx(row[name], rel=1e-9)


def test_cuped_takes_away_what_earlier_values_explain_up_to_the_last_day_as_in_the_period(spark: SparkSession) -> None:
    rows = log(users=25)
    table = stored(spark, rows[rows.date >= DATES[4]])
    users, rng = sorted(rows.user.unique()), np.random.default_rng(3)
    # Near what a user has later, and nothing is known of some.
    later = rows.groupby("user")[METRIC].mean()
    earlier = [(user, float(later[user] + rng.normal(0, 0.05))) for user in users[::2] + users[1::4]]
    before = spark.createDataFrame(pd.DataFrame(earlier, columns=["user_id", "ap_at_10"]))
    result = by_label([row.asDict() for row in effect_over_time(table, "a", before=before).collect()])
    plain = by_label([row.asDict() for row in effect_over_time(table, "a").collect()])
    period = rows[(rows.date >= DATES[4]) & rows[METRIC].notna()]
    means = period.assign(v=period[METRIC] * period.lists).groupby(["experiment", "user"])[["v", "lists"]].sum()
    whole = (means.v / means.lists).rename("ap_at_10").reset_index().rename(columns=NAMES).assign(n_relevant=1)
    for row in compare(spark.createDataFrame(whole), "a", before=before).collect():
        mine = result[row["experiment_id"], "cumulative", DATES[-1]]
        assert (mine["test"], row["test"]) == ("cuped", "cuped")
        for name in ("difference", "ci_low", "ci_high", "p_value", "relative_difference", "relative_ci_low"):
            assert mine[name] == pytest.approx(row[f"cuped_{name}"], rel=1e-9), name
        without = plain[row["experiment_id"], "cumulative", DATES[-1]]
        assert mine["ci_high"] - mine["ci_low"] < 0.9 * (without["ci_high"] - without["ci_low"])


def test_wrong_dates_and_tables_without_dates_are_one_sentence(spark: SparkSession) -> None:
    table = stored(spark, log(users=3))
    with pytest.raises(ConfigError, match="2026-11-09 to 2026-11-08; allowed: a first date up to the last one"):
        effect_over_time(table, "a", dates=("2026-11-09", "2026-11-08"))
    with pytest.raises(ConfigError, match="dates is '8 Nov'"):
        effect_over_time(table, "a", dates=("8 Nov", "2026-11-09"))
    with pytest.raises(InputError, match="nothing is published from 2027-01-01 to 2027-01-02"):
        effect_over_time(table, "a", dates=("2027-01-01", "2027-01-02"))
    with pytest.raises(InputError, match="no column evaluation_date"):
        effect_over_time(table.drop("evaluation_date"), "a")
    with pytest.raises(ConfigError, match=r"comparison\.baseline is null"):
        effect_over_time(table)


def test_the_code_of_the_guide_runs_as_it_stands_there(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8").partition("## How the effect develops")[2]
    (code,) = re.findall(r"```python\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    rows = log(users=8)
    rows["experiment"] = rows.experiment.replace({"a": "control"})
    folder = str(tmp_path / "user_metrics")
    stored(spark, rows).write.partitionBy("experiment_id", "evaluation_date").parquet(folder)
    names: dict[str, Any] = {"spark": spark}
    exec(code.replace("out/first/user_metrics", folder), names)
    kinds = {"day", "cumulative", "days_since_first", "slope", "slope_between"}
    assert {row["kind"] for row in names["found"].collect()} == kinds


def test_intervals_up_to_each_day_hold_at_every_look_where_that_is_asked_for(spark: SparkSession) -> None:
    table = stored(spark, log(users=25))
    single, every = (
        by_label([row.asDict() for row in effect_over_time(table, "a", looks=looks, tuning_users=60).collect()])
        for looks in ("one", "any")
    )
    for key, row in every.items():
        is_growing = key[1] == "cumulative"
        assert row["valid_at"] == ("every look" if is_growing else "a single look")
        if not is_growing:
            assert str(row) == str(single[key])
            continue
        # The half width of the normal mixture, with the error that the interval of one look has.
        n, plain = row["n_users"], single[key]
        rho = 60 / (np.log(1 - 2 * np.log(0.05)) - 2 * np.log(0.05))
        half = np.sqrt((n + rho) / n * np.log((n + rho) / (rho * 0.05**2)))
        assert row["difference"] == plain["difference"]
        if row["p_value"] is None:
            assert row["note"].startswith("no test yet: several looks need 10 users with a hit") and n < 30
            continue
        for name in ("", "relative_"):
            widths = [each[f"{name}ci_high"] - each[f"{name}ci_low"] for each in (row, plain)]
            assert widths[0] > widths[1]
            # Of t, with the degrees of freedom that interval and p-value of the single look have.
            d, wide = abs(plain["difference"]), (plain["ci_high"] - plain["ci_low"]) / 2
            df = brentq(lambda x, d=d, w=wide, p=plain: 2 * stats.t.sf(d / w * stats.t.isf(0.025, x), x) - p["p_value"],
                        2, 1e4)  # fmt: skip
            t = stats.t.isf(stats.norm.sf(half), df) / stats.t.isf(0.025, df)
            assert name or widths[0] / widths[1] == pytest.approx(t, rel=1e-5)
        assert row["p_value"] > plain["p_value"]


def test_the_command_says_whether_the_effect_fades(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    rows = log(users=60, share=0.6)
    first = rows.groupby(["experiment", "user"]).date.transform("min")
    since = (pd.to_datetime(rows.date) - pd.to_datetime(first)).dt.days
    rows.loc[rows.experiment == "b", METRIC] += 0.4 - 0.05 * since[rows.experiment == "b"]
    folder = tmp_path / "out" / "user_metrics"
    table = stored(spark, rows).selectExpr("*", "'f679' AS convention_hash")
    table.write.partitionBy("experiment_id", "evaluation_date").parquet(str(folder))
    request = ("compare", "--input", tmp_path / "out", "--baseline", "a", "--over-time")
    code, out, err = call(*request, "--format", "json")
    result = json.loads(out)
    assert code == 0 and f"users of {DATES[0]} to {DATES[-1]} (14 days)" in err
    assert [line.partition(":")[0] for line in result["sentences"]] == [
        "The effect of b against a on MAP@10 fades with a user's days",
        "No sign that the difference between c and a on MAP@10 changes with a user's days",
    ]
    whole = by_label([row.asDict() for row in effect_over_time(table, "a").collect()])
    assert texts(by_label(result["over_time"]).values()) == texts(whole.values())
    code, out, _ = call(*request, "--candidate", "b")
    assert code == 0 and out.startswith("The effect of b against a on MAP@10 fades")
    assert "change per day within users" in out
    assert f"\nUsers of {DATES[0]} to {DATES[-1]} (14 days).\n" in out
    for option, value in (("--date", DATES[0]), ("--segment", "country"), ("--losses", "3")):
        code, _, err = call(*request, option, value)
        assert code == 2 and f"--over-time is given with {option}; allowed: all users of several dates" in err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slope", "slope_between"])
def test_an_effect_that_wears_off_is_a_slope_within_users_and_one_of_later_users_is_not(
    spark: SparkSession, kind: str
) -> None:
    """300 metrics are as many samples of the same visits; fewer users of b return, and those who do are the better."""
    rng, rows = np.random.default_rng(4), []
    metrics = [f"ap_at_{k}" for k in range(1, 301)]
    for user in range(300):
        name, arrives, stays = "ab"[user % 2], int(rng.integers(10)), rng.random()
        level = rng.normal(0.5, 0.1, 300) + (0.1 * stays if name == "b" else 0.0)
        for day in range(arrives, 14):
            if day == arrives or rng.random() < (stays if name == "b" else 0.5):
                effect = 0.1 * np.exp((arrives - day) / 3) if kind == "slope" else 0.03 * arrives
                values = level + (effect if name == "b" else 0.0) + rng.normal(0, 0.1, 300)
                rows.append((name, f"u{user}", DATES[day], 1, 1, *values))
    columns = ["experiment_id", "user_id", "evaluation_date", "n_lists", "n_relevant", *metrics]
    table = spark.createDataFrame(pd.DataFrame(rows, columns=columns))
    found = effect_over_time(table, "a", correction="none").to_pandas()
    p = {each: found[found.kind == each].p_value.to_numpy(float) for each in ("slope", "slope_between")}
    assert np.mean(p.pop(kind) < 0.05) > 0.9
    (other,) = p.values()
    # 5 % of 300, and three standard errors of that share.
    assert len(other) == 300 and 0.012 < np.mean(other < 0.05) < 0.088
    assert (found[found.kind == kind].difference.mean() < 0) == (kind == "slope")
