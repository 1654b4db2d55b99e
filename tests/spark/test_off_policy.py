"""Weighted metrics on Spark: two policies' real logs, the plain metrics, bits, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import evaluate, off_policy
from tests.helpers.commands import ROOT

SCHEMA = (
    "experiment_id string, user_id string, request string, item_id string, position int, relevance double, "
    "propensity double, target double"
)


def by_key(table: DataFrame) -> dict[tuple[Any, str, str], dict[str, Any]]:
    rows = [row.asDict() for row in table.collect()]
    result = {(row["experiment_id"], row["metric"], row["estimator"]): row for row in rows}
    assert len(result) == len(rows)
    return result


# ---- the Open Bandit logs: one policy's log gives the value of the other


def policies(folder: Path) -> pd.DataFrame:
    """One row per impression, each its own user; ``target``: how often the other policy shows the item at the rank."""
    log = pd.read_parquet(folder / "impressions.parquet")
    of_item, of_rank = (log.groupby(["campaign", "policy", "position", *by]).size() for by in (["item_id"], []))
    share = (of_item / of_rank).rename("target").reset_index()
    share["policy"] = share["policy"].map({"random": "bts", "bts": "random"})
    # The random policy is known: every item with the same probability.
    items = share.groupby("campaign")["item_id"].transform("nunique")
    share["target"] = np.where(share["policy"] == "bts", 1 / items, share["target"])
    log = log.merge(share, how="left", on=["campaign", "policy", "position", "item_id"]).fillna({"target": 0.0})
    log["experiment_id"] = log["campaign"] + "/" + log["policy"]
    return log.assign(slot=1)


ROLES = {"user": "impression_id", "position": "slot", "relevance": "click"}


def test_one_policys_log_gives_the_value_of_the_other(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    log = policies(shared_data / "open_bandit")
    log[["experiment_id", *ROLES.values(), "item_id", "propensity_score", "target"]].to_parquet(
        tmp_path / "log.parquet"
    )
    rows = spark.read.parquet(str(tmp_path / "log.parquet"))
    result = by_key(off_policy(rows, "p@1", propensity="propensity_score", target="target", columns=ROLES))
    clicks = log.groupby("experiment_id")["click"].agg(["mean", "sem"])
    other = {"random": "bts", "bts": "random"}
    estimated = 0
    for (experiment, _, estimator), row in result.items():
        campaign, policy = experiment.split("/")
        truth = clicks.loc[f"{campaign}/{other[policy]}"]
        if row["value"] is not None:
            estimated += 1
            # The truth is itself a mean of 10,000 clicks: both errors count.
            half = (row["ci_high"] - row["ci_low"]) / 2
            assert abs(row["value"] - truth["mean"]) < np.hypot(half, 1.96 * truth["sem"]), (experiment, estimator)
        assert (row["n_users"], row["n_rows"], row["n_faulty_rows"], row["n_repeated"]) == (10_000, 10_000, 0, 0)
    assert estimated == 10
    # Thompson sampling (men) has 50 % more clicks than the random policy; the log of the random policy says so too.
    assert result["men/random", "p@1", "ips"]["value"] > clicks.loc["men/random", "mean"]
    # Some items were hardly ever shown to women by Thompson sampling: one row would weigh as much as thousands.
    for estimator in ("ips", "self_normalised"):
        row = result["women/bts", "p@1", estimator]
        assert (row["value"], row["ci_low"], row["ci_high"]) == (None, None, None)
        assert row["note"] == "the weights leave 2.1 effective rows of 10,000 rows; an estimate needs at least 30"
    # A visible one: weights and clicks of the random policy's log, by pandas.
    mine = log[log["experiment_id"] == "women/random"]
    weights = mine["target"] / mine["propensity_score"]
    row = result["women/random", "p@1", "ips"]
    assert row["value"] == pytest.approx((weights * mine["click"]).mean(), rel=1e-12)
    assert row["effective_sample_size"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-12)
    ratio = result["women/random", "p@1", "self_normalised"]["value"]
    assert ratio == pytest.approx((weights * mine["click"]).sum() / weights.sum(), rel=1e-12)
    assert row["mean_weight"] == pytest.approx(1, abs=0.02)
    page = (ROOT / "docs" / "position-bias.md").read_text(encoding="utf-8")
    assert [line for line in real_log_lines(result, clicks["mean"]) if line not in page] == []


def real_log_lines(result: dict[Any, dict[str, Any]], clicks: Any) -> list[str]:
    """The lines of the table in docs/position-bias.md."""
    lines = []
    for experiment, expected, name in [
        ("men/random", "men/bts", "Thompson, men"),
        ("men/bts", "men/random", "random, men"),
        ("women/random", "women/bts", "Thompson, women"),
        ("women/bts", "women/random", "random, women"),
    ]:
        rows = [result[experiment, "p@1", estimator] for estimator in ("ips", "clipped", "self_normalised")]
        cells = [
            "refused"
            if row["value"] is None
            else f"{100 * row['value']:.2f} [{100 * row['ci_low']:.2f}, {100 * row['ci_high']:.2f}]"
            for row in rows
        ]
        effective = f"{rows[0]['effective_sample_size']:,.0f}"
        lines.append(f"| {' | '.join([name, f'{100 * clicks[expected]:.2f}', *cells, effective])} |")
    return lines


# ---- the plain metrics, and bits


def click_log(seed: int) -> list[tuple[Any, ...]]:
    """80 users with one to three lists, in two experiments; some rows with a fault, some repeated."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for experiment in ("a", "b"):
        for user in range(80):
            for request in range(rng.integers(1, 4)):
                for rank in range(1, rng.integers(2, 13)):
                    relevance = float(rng.random() < 0.4 / rank**0.5)
                    chances = (rng.uniform(0.4, 1), rng.uniform(0, 1))
                    rows.append((experiment, f"u{user}", f"r{request}", f"i{rank}", rank, relevance, *chances))
    rows += [(*rows[0][:4], 50, *rows[0][5:]), ("b", "u1", "r0", None, 9, 1.0, 0.5, 0.5)]
    return [rows[i] for i in rng.permutation(len(rows))]


METRICS = ("p@3", "dcg", "ap@3", "ndcg@3")


def test_with_propensities_of_one_the_values_are_those_of_evaluate(spark: SparkSession) -> None:
    log = spark.createDataFrame(click_log(1), SCHEMA).withColumn("propensity", F.lit(1))
    result = by_key(off_policy(log, METRICS, list="request"))
    plain = {
        (row["experiment_id"], row["metric"]): row
        for row in evaluate(log, METRICS, list="request").experiment_metrics.collect()
    }
    for (experiment, metric, estimator), row in result.items():
        expected = plain[experiment, metric]
        if estimator == "self_normalised":
            assert row["value"] is None
            assert row["note"].startswith("there is no self-normalised estimate without a target")
        else:
            assert row["value"] == pytest.approx(expected["mean"], rel=1e-13)
            assert row["ci_low"] == pytest.approx(expected["ci_low"], rel=1e-11)
        assert row["effective_sample_size"] == row["n_rows"]
        assert row["effective_users"] == row["n_users"] == expected["n_users"]
        assert (row["n_repeated"], row["n_faulty_rows"]) == ((1, 0) if experiment == "a" else (0, 1))


# ---- what is refused


@pytest.mark.outcome(
    "propensities that do not fit the clicks: a value beyond the range of its metric, or a few lists that outweigh all",
    "no value; a note says so",
)
def test_propensities_that_do_not_fit_the_clicks_give_no_value(spark: SparkSession) -> None:
    # Each of 200 users clicks on the two first of eight rows; a tenth of them clicks on all.
    rows = spark.range(1600).selectExpr(
        "'a' AS experiment_id",
        "string(int(id / 8)) AS user_id",
        "string(id) AS item_id",
        "int(id % 8) + 1 AS position",
        "int(id % 8 < 2 OR int(id / 8) < 20) AS relevance",
        "if(id % 8 < 3, 1D, 0.03D) AS propensity",
    )
    result = by_key(off_policy(rows, ["ap@3", "ndcg@3", "p@3"], estimators="ips"))
    # Products of five weights of 33 below the cut-off, in 20 of 200 lists.
    for metric in ("ap@3", "ndcg@3"):
        row = result["a", metric, "ips"]
        assert row["value"] is None and row["n_rows"] == 1600
        assert row["note"] == "the weights leave 20.0 effective users of 200 users; an estimate needs at least 30"
    # Precision reads three rows of the weight 1.
    assert result["a", "p@3", "ips"]["value"] == pytest.approx((180 * 2 / 3 + 20) / 200)
    certain = rows.withColumn("propensity", F.lit(0.4))
    row = by_key(off_policy(certain, "p@2", estimators="ips"))["a", "p@2", "ips"]
    assert (row["value"], row["ci_low"], row["ci_high"]) == (None, None, None)
    assert row["note"] == (
        "the estimate of 2.5 is outside the range of p@2, 0 to 1, by more than its error (2.5 to 2.5): "
        "the propensities do not fit the clicks"
    )


def test_rows_that_no_weight_can_be_given_are_never_lost_silently(spark: SparkSession) -> None:
    good: list[tuple[Any, ...]] = [("a", f"u{i}", "r", "i", 1, float(i % 2), 0.5, 0.25) for i in range(40)]
    rows = [row for name in "abcdef" for row in [(name, *row[1:]) for row in good]]
    bad = {"b": (0.0, 0.1), "c": (None, 0.1), "d": (float("nan"), 0.1), "e": (1.5, 0.1), "f": (0.5, -0.1)}
    rows += [(name, "bad", "r", "i", 1, 1.0, *chances) for name, chances in bad.items()]
    rows += [("g", *row[1:3], None, *row[4:]) for row in good] + [("h", *row[1:5], 2.0, *row[6:]) for row in good]
    rows += [("i", *row[1:]) for row in good[:5]]
    result = by_key(off_policy(spark.createDataFrame(rows, SCHEMA), ["p@1", "ndcg@1"], target="target"))
    # Weights of 1 / 2, and 20 of 40 clicks.
    assert [result["a", "p@1", name]["value"] for name in ("ips", "clipped", "self_normalised")] == [0.25, 0.25, 0.5]
    notes = {name: result[name, "ndcg@1", "ips"]["note"] for name in "abcdefghi"}
    unusable = (
        "rows with a propensity that is null, NaN or outside (0, 1] or a target that is null, NaN or outside [0, 1]: 1"
        "; allowed: none, so remove or repair them first"
    )
    assert notes == {
        "a": None,
        **dict.fromkeys("bcdef", unusable),
        "g": "no usable row; rows with a fault in another column: 40",
        "h": "users without a usable value: 40; allowed: none, so every value from relevance 0 or 1 (dcg takes grades) "
        "up to 1.2e+18",
        "i": "the weights leave 5.0 effective rows of 5 rows; an estimate needs at least 30",
    }
    assert {name for (name, *_), row in result.items() if row["value"] is not None} == {"a", "h"}
    assert [result["b", "p@1", "ips"][name] for name in ("n_users", "n_faulty_rows")] == [40, 1]


def test_many_rows_that_are_left_out_are_noted_beside_the_value(spark: SparkSession) -> None:
    rows = [("a", f"u{i}", "r", "i", 1, 1.0, 0.5, 0.5) for i in range(98)]
    rows += [("b", *row[1:]) for row in rows] + [("a", "u1", "r", None, 1, 1.0, 0.5, 0.5)]
    rows += [("a", "u1", "r", None, 1, 1.0, 0.5, 0.5), ("a", "u2", "s", "j", 1, 1.0, 0.5, 0.5)]
    rows += [("a", "u3", "s", "j", 1, 1.0, 0.5, 0.5)]
    table = spark.createDataFrame(rows, SCHEMA)
    many = by_key(off_policy(table, "dcg@1", estimators="ips"))
    assert many["b", "dcg@1", "ips"]["note"] is None
    assert many["a", "dcg@1", "ips"]["value"] == 2.0
    assert many["a", "dcg@1", "ips"]["note"] == (
        "2 of 102 rows (1.96%) have a fault and are left out; 2 of 102 rows repeat an item or a rank of their list and "
        "are left out: if users have several requests each, give list"
    )
    told_apart = by_key(off_policy(table, "dcg@1", estimators="ips", list="request"))
    assert told_apart["a", "dcg@1", "ips"]["note"] == "2 of 102 rows (1.96%) have a fault and are left out"


def test_the_examples_of_the_docs_run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "position-bias.md").read_text(encoding="utf-8")
    estimate, harvest = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    rows = spark.range(120).selectExpr(
        "'a' AS experiment_id",
        "string(int(id / 3)) AS user_id",
        "string(id) AS item_id",
        "int(id % 3) + 1 AS position",
        "int(id % 3 = 1) AS relevance",
    )
    names: dict[str, Any] = {"impressions": rows}
    exec(estimate, names)
    # A click at rank 2 of each of 40 lists, examined half of the time: p@3 = 2 / 3.
    assert re.search(r"p@3\|\s*ips\|0\.6666", capsys.readouterr().out)
    # The first ranker shows b at rank 2, the second one at rank 1, where it has twice the clicks.
    names["impressions"] = spark.range(320).selectExpr(
        "if(id % 4 < 2, 'one', 'two') AS experiment_id",
        "string(int(id / 2)) AS user_id",
        "'q' AS query",
        "if(id % 4 IN (0, 3), 'a', 'b') AS item",
        "int(id % 2) + 1 AS position",
        "int(id % 4 != 1 AND id % 4 != 3 AND id % 8 < 4 OR id % 16 IN (1, 3)) AS relevance",
    )
    exec(harvest, names)
    assert re.search(r"2\s*\|0\.5\s*\|", capsys.readouterr().out)
    # Clicks at rank 2 in a quarter of the lists, at rank 1 in half of them, so 1 / 2 + 2 * 1 / 4 in each list.
    assert [row["value"] for row in names["corrected"].where("metric = 'p@3' AND estimator = 'ips'").collect()] == [
        pytest.approx((1 / 2 + 2 / 4) / 3)
    ] * 2
