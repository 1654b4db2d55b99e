"""Households as units, from the log to stored tables, commands and the page, on both engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans

from rankmetrics_spark import compare, config as cfg, evaluate, job, read, report as rep
from rankmetrics_spark.errors import ConfigError, InputError

COLUMNS = {"experiment": "experiment", "user": "user", "item": "item", "position": "position", "relevance": "clicked"}


def log(seed: int = 1, homes: int = 20, lists: int = 1) -> pd.DataFrame:
    """Lists of three items; a household has one to five users, who are alike."""
    rng, rows = np.random.default_rng(seed), []
    for name in ("a", "b"):
        for home in range(homes):
            chance = rng.random() * (0.5 if name == "a" else 0.8)
            for member in range(1 + home % 5):
                for request in range(lists):
                    clicks = rng.random(3) < chance
                    keys = (name, f"{name}{home}.{member}", f"{name} {home}", f"r{request}")
                    rows += [(*keys, f"i{i}", i + 1, float(clicks[i])) for i in range(3)]
    return pd.DataFrame(rows, columns=["experiment", "user", "household", "request", "item", "position", "clicked"])


def influence(impressions: pd.DataFrame, name: str, over: str = "user") -> Any:
    """R + z of each household: the ratio of the sum of P@3 to the number of its users, or of its lists."""
    own = impressions[impressions["experiment"] == name]
    lists = own.groupby(["household", "user", "request"])["clicked"].mean().reset_index()
    units = lists if over == "list" else lists.groupby(["household", "user"])["clicked"].mean().reset_index()
    homes = units.groupby("household")["clicked"].agg(["sum", "count"])
    y, n = homes["sum"].to_numpy(), homes["count"].to_numpy()
    return y.sum() / n.sum() + (y - y.sum() / n.sum() * n) / n.mean()


@pytest.mark.parametrize("over", ["user", pytest.param("list", marks=pytest.mark.slow)])
def test_errors_are_those_of_households(spark: SparkSession, over: str) -> None:
    rows = log(lists=3)
    shape: dict[str, Any] = {"cluster": "household", "mean_over": f"{over}s"}
    result = evaluate(spark.createDataFrame(rows), ["p@3"], columns=COLUMNS, list="request", baseline="a", **shape)
    (row,) = result.comparisons.collect()
    parts = [influence(rows, name, over) for name in "ab"]
    expected = stats.ttest_ind(parts[1], parts[0], equal_var=False)
    interval = CompareMeans.from_data(parts[1], parts[0]).tconfint_diff(usevar="unequal")
    assert (row["n_users"], row["n_members_baseline"], row["n_members_candidate"]) == (40, 60, 60)
    assert (row["cluster"], row["n_lists_baseline"]) == ("household", 180 if over == "list" else None)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(interval, rel=1e-9)
    for mean in result.experiment_metrics.collect():
        values = parts["ab".index(mean["experiment_id"])]
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        assert mean["mean"] == pytest.approx(values.mean(), rel=1e-12)
        assert (mean["ci_low"], mean["ci_high"]) == pytest.approx((mean["mean"] - half, mean["mean"] + half), rel=1e-9)
    again = compare(result.user_metrics.orderBy(F.rand(3)), "a", **shape).collect()
    assert [each.asDict() for each in again] == [row.asDict()]


def test_a_user_whose_lists_are_in_several_households_is_one_alone(spark: SparkSession) -> None:
    impressions = log(lists=2)
    moved = impressions["user"].isin(["a1.0", "a3.0"]) & (impressions["request"] == "r1")
    impressions.loc[moved, "household"] = "a 2"
    result = evaluate(spark.createDataFrame(impressions), ["p@3"], columns=COLUMNS, list="request", baseline="a",
                     cluster="household")  # fmt: skip
    (row,) = result.comparisons.collect()
    assert row["note"] == "2 users of a without one value of household count as clusters of their own"
    assert row["n_users_baseline"] == 22


def test_a_segment_may_be_the_cluster_and_a_column_that_is_not_there_is_named(spark: SparkSession) -> None:
    impressions = spark.createDataFrame(log())
    result = evaluate(impressions, ["p@3"], columns=COLUMNS, segments=["household"], baseline="a", cluster="household")
    everyone = result.comparisons.where("segment = 'all'").collect()
    plain = evaluate(impressions, ["p@3"], columns=COLUMNS, baseline="a", cluster="household").comparisons.collect()
    assert everyone[0]["p_value"] == plain[0]["p_value"]
    with pytest.raises(InputError, match="home"):
        evaluate(impressions, ["p@3"], columns=COLUMNS, baseline="a", cluster="home").user_metrics.collect()
    with pytest.raises(InputError, match="user_metrics has no column home, which cluster needs"):
        compare(result.user_metrics, "a", cluster="home").collect()


@pytest.mark.parametrize(("units", "named"), [({"cluster": "household"}, "cluster is household"),
                                              ({"mean_over": "lists"}, "mean_over is lists")])  # fmt: skip
def test_earlier_values_are_those_of_users(spark: SparkSession, units: dict[str, Any], named: str) -> None:
    impressions = spark.createDataFrame(log().assign(past=1.0))
    sentence = rf"comparison.{named}, and comparison.cuped works with one value per user; allowed: one of the two"
    shape: dict[str, Any] = {"columns": COLUMNS, "covariate": "past", **units}
    with pytest.raises(ConfigError, match=sentence):
        evaluate(impressions, ["p@3"], baseline="a", **shape)
    # Nothing is compared yet: later comparisons may use one or the other.
    users = evaluate(impressions, ["p@3"], **shape).user_metrics
    for before in ("past", users):
        with pytest.raises(ConfigError, match=sentence):
            compare(users, "a", before=before, **units)


def test_a_run_a_period_and_its_page_know_the_household(spark: SparkSession, tmp_path: Path) -> None:
    days = {"2026-11-20": log(2), "2026-11-21": log(3)}
    for day, impressions in days.items():
        impressions.to_parquet(tmp_path / f"{day}.parquet")
        config = cfg.Config.read({
            "source": {"path": str(tmp_path / f"{day}.parquet"), "columns": COLUMNS},
            "metrics": ["p@3"],
            "comparison": {"baseline": "a", "cluster": "household", "period": {"from": "2026-11-20"}},
            "gates": [{"metric": "p@3", "max_drop": 0.9}, {"metric": "p@3", "min": 0.01}],
            "evaluation_date": day,
            "sink": {"path": str(tmp_path / "out")},
        })  # fmt: skip
        done = job.run(spark, config)
    both = pd.concat([part.assign(request=day) for day, part in days.items()])
    expected = stats.ttest_ind(influence(both, "b"), influence(both, "a"), equal_var=False)
    assert done.comparisons is not None
    (row,) = done.comparisons.collect()
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (
        "Errors are by household: 20 clusters of 60 users in a, 20 clusters of 60 users in b" in done.record["verdict"]
    )
    of_day = {each["experiment_id"]: each for each in done.experiment_metrics.collect()}
    values = influence(days["2026-11-21"], "a")
    half = stats.t.ppf(0.975, 19) * stats.sem(values)
    assert of_day["a"]["ci_high"] - of_day["a"]["mean"] == pytest.approx(half, rel=1e-9)
    stored = read(spark, str(tmp_path / "out" / "user_metrics"))
    (again,) = compare(stored, "a", cluster="household", dates=("2026-11-20", "2026-11-21")).collect()
    assert (again["p_value"], again["difference"]) == (row["p_value"], row["difference"])
    figures = rep.figures_of_output(spark, config.sink, "2026-11-21", ("2026-11-20", "2026-11-21"))
    mean = next(each for each in figures.means if each["experiment_id"] == "a")
    half = stats.t.ppf(0.975, 19) * stats.sem(influence(both, "a"))
    assert mean["ci_high"] - mean["mean"] == pytest.approx(half, rel=1e-9)
    # The run that compared the days looked at its gates: one of the drop, and one of the least mean of each experiment.
    assert ("ok", "all 3 gates are kept") in [(item.level, str(item)) for item in rep.status_line(figures)]
    kept = {row["name"]: row["sentence"].rpartition(", on ")[2] for row in figures.checks if row["name"] == "min"}
    assert kept == {"min": "2026-11-21 alone"}
    assert {row["name"] for row in figures.checks} >= {"max_drop", "min", "days", "n_users"}
    # Neither counts clusters.
    assert not figures.outlook and not figures.over_time
    said = "Differences are not drawn over time: they cannot take comparison.cluster into account."
    assert figures.no_course == said
