"""``percentiles`` of ``experiment_metrics`` against NumPy and SciPy, from the log to stored tables; on both engines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import config as cfg, evaluate, metrics as mx, read, report as rep, road
from tests.helpers.commands import Call, ok
from tests.helpers.logs import config_file

PERCENTILES = [50, 90, 99.9]
METRICS = {"ap@3": "ap_at_3", "average_rank": "average_rank", "cg@2": "cg_at_2"}

# The first SciPy with quantile_test.
pytest.importorskip("scipy", minversion="1.11")


def log(n: int = 80, seed: int = 1, lists: int = 1) -> pd.DataFrame:
    """Lists of five items with grades; some users have no relevant item, and so no average rank."""
    rng = np.random.default_rng(seed)
    rows = [
        (name, f"u{user}", f"r{request}", f"i{at}", at, float(rng.integers(0, 4) * (user % 5 > 0)), "xy"[request % 2])
        for name in ("a", "007") for user in range(n) for request in range(lists) for at in range(1, 6)
    ]  # fmt: skip
    columns = ["experiment", "user", "request", "item", "position", "relevance", "side"]
    return pd.DataFrame(rows, columns=columns).assign(country=lambda rows: rows["user"].str[-1].isin([*"13579"]))


def hold(row: Any, values: Any, confidence: float = 0.95) -> None:
    """Hold the percentiles of a row against NumPy, to the bit, and SciPy."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    for percentile in PERCENTILES:
        name = f"percentile_{percentile}".replace(".", "_")
        bounds = stats.quantile_test(values, p=percentile / 100).confidence_interval(confidence)
        result = [np.nan if row[name + part] is None else row[name + part] for part in ("", "_ci_low", "_ci_high")]
        np.testing.assert_array_equal(result, [np.percentile(values, percentile), *bounds])


def held(result: Any, users: pd.DataFrame, segment: str = "country") -> int:
    """Hold every row against the users; return how many there are."""
    rows = result.experiment_metrics.collect()
    for row in rows:
        own = users[users["experiment_id"] == row["experiment_id"]]
        if row["segment"] != "all":
            own = own[own[segment].astype(str).str.lower() == row["segment"].partition("=")[2]]
        hold(row, own[METRICS[row["metric"]]])
    return len(rows)


def test_percentiles_are_those_of_numpy_and_scipy(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log())
    result = evaluate(impressions, [*METRICS], segments="country", percentiles=PERCENTILES)
    users = result.to_pandas("user_metrics")
    assert users["average_rank"].isna().sum() > 20
    assert held(result, users) == 2 * 3 * 3


@pytest.mark.slow
def test_percentiles_depend_on_no_order_of_rows_and_leave_other_columns_as_they_are(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log())
    result = evaluate(impressions, [*METRICS], segments="country", percentiles=PERCENTILES)
    parts = evaluate(impressions.orderBy(F.rand(3)).repartition(4), [*METRICS], segments="country",
                     percentiles=PERCENTILES)  # fmt: skip
    assert {*parts.experiment_metrics.collect()} == {*result.experiment_metrics.collect()}
    plain = evaluate(impressions, [*METRICS], segments="country").experiment_metrics
    assert {*plain.collect()} == {*result.experiment_metrics.select(*plain.columns).collect()}


@pytest.mark.slow
def test_several_lists_and_their_segments(spark: SparkSession) -> None:
    impressions = log(30, lists=3)
    shape: dict[str, Any] = {"list": "request", "percentiles": PERCENTILES}
    result = evaluate(spark.createDataFrame(impressions), [*METRICS], segments="side", **shape)
    whole = evaluate(spark.createDataFrame(impressions), [*METRICS], list="request").to_pandas("user_metrics")
    sides = [
        evaluate(spark.createDataFrame(rows), [*METRICS], list="request").to_pandas("user_metrics").assign(side=side)
        for side, rows in impressions.groupby("side")
    ]
    rows = result.experiment_metrics.collect()
    assert len(rows) == 2 * 3 * 3
    for row in rows:
        users = whole if row["segment"] == "all" else pd.concat(sides)
        if row["segment"] != "all":
            users = users[users["side"] == row["segment"].partition("=")[2]]
        hold(row, users[users["experiment_id"] == row["experiment_id"]][METRICS[row["metric"]]])


@pytest.mark.slow
def test_under_two_conventions_each_row_has_its_own(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log(20))
    rules = [mx.resolve(name) for name in ("standard", "tfma")]
    options = cfg.Options(metrics=["cg@2", "ap@3"], percentiles=[50])
    both = road.Tables.of(impressions, None, options, rules).experiment_metrics.collect()
    assert len(both) == 2 * 2 * 2
    for rule in rules:
        alone = evaluate(impressions, ["cg@2", "ap@3"], convention=rule, percentiles=[50]).experiment_metrics.collect()
        key = ("experiment_id", "metric", "percentile_50", "percentile_50_ci_low")
        assert {tuple(row[name] for name in key) for row in alone} == {
            tuple(row[name] for name in key) for row in both if row["convention_hash"] == rule.digest()
        }


@pytest.mark.slow
def test_of_one_user_every_percentile_is_their_value_without_an_interval(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log(2)).where("user = 'u1'")
    result = evaluate(impressions, ["cg@2"], percentiles=[25, 50])
    users = {row["experiment_id"]: row["cg_at_2"] for row in result.user_metrics.collect()}
    for row in result.experiment_metrics.collect():
        assert row["percentile_25"] == row["percentile_50"] == users[row["experiment_id"]]
        assert row["percentile_50_ci_low"] is None and row["percentile_50_ci_high"] is None
    nobody = evaluate(spark.createDataFrame(log(1)), ["average_rank"], percentiles=[50]).experiment_metrics.collect()
    assert [(row["n_users"], row["percentile_50"]) for row in nobody] == [(0, None)] * 2
    assert evaluate(impressions.where("false"), ["cg@2"], percentiles=[50]).experiment_metrics.collect() == []


def test_rows_without_an_experiment_and_values_that_cannot_be_summed_have_percentiles(spark: SparkSession) -> None:
    rows = [(f"u{user}", "i", 1, value) for user, value in enumerate([1.0, 2.0, 1e200])]
    impressions = spark.createDataFrame(rows, "user string, item string, position int, relevance double")
    # A name with a minus sign is no difference.
    result = evaluate(impressions, ["cg@1"], columns={"experiment": None}, percentiles=[0.00001, 50, 90])
    (row,) = result.experiment_metrics.collect()
    # Between the first two values, 1 and 2: at (3 - 1) * 1e-7.
    assert row["percentile_1e-05"] == pytest.approx(1 + 2e-7, abs=1e-12)
    assert (row["mean"], row["percentile_50"]) == (None, 2.0)
    # At (3 - 1) * 0.9, between 2 and the value that cannot be summed.
    assert row["percentile_90"] == pytest.approx(2 + 0.8 * (1e200 - 2))


def test_a_run_stores_and_prints_them(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    log().to_parquet(tmp_path / "log.parquet")
    out = tmp_path / "out"
    more = {"percentiles": PERCENTILES, "comparison": {"bootstrap": True, "baseline": "a"}}
    config_file(tmp_path / "log.parquet", out, metrics=[*METRICS], evaluation_date="2026-11-21", **more)
    shown, _ = ok(call, "evaluate", "-c", tmp_path / "config.yaml")
    users = read(spark, out / "user_metrics").toPandas()
    stored = read(spark, str(out / "experiment_metrics")).collect()
    assert len(stored) == 6
    for row in stored:
        hold(row, users[users["experiment_id"] == row["experiment_id"]][METRICS[row["metric"]]])
    assert "percentiles over the users, with 95 % intervals" in shown
    median = next(row["percentile_50"] for row in stored if (row["experiment_id"], row["metric"]) == ("007", "cg@2"))
    assert f"{median:.4f} (" in shown
    code, shown, _ = call("evaluate", "-c", tmp_path / "config.yaml", "--format", "json")
    (mean,) = [row for row in json.loads(shown)["means"] if (row["experiment_id"], row["metric"]) == ("007", "cg@2")]
    assert mean["percentile_50"] == median
    if rep.has_page_libraries():
        ok(call, "report", "--input", out, "--html", tmp_path / "page.html")
        assert "Percentiles over the users" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # A later run without them leaves the stored ones readable, and says nothing of them.
    code, shown, err = call(
        "evaluate", "-c", tmp_path / "config.yaml", "--set", "percentiles=[]", "--date", "2026-11-22"
    )
    assert (code, "percentiles" in shown) == (0, False), err
    dates = {str(row["evaluation_date"]): row["percentile_50"] is None
             for row in read(spark, str(out / "experiment_metrics")).where("metric = 'cg@2'").collect()}  # fmt: skip
    assert dates == {"2026-11-21": False, "2026-11-22": True}
    if rep.has_page_libraries():
        ok(call, "report", "--input", out, "--html", tmp_path / "page.html", "--date", "2026-11-22")
        assert "Percentiles over the users" not in (tmp_path / "page.html").read_text(encoding="utf-8")
