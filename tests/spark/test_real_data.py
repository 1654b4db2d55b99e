"""Real rankings against reference values: the output of trec_eval, and of pytrec_eval at full precision."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, job, run, sinks
from tests.helpers.logs import averages, by_user

CLEF_COLUMNS = {"experiment": "experiment", "user": "topic", "item": "item", "position": "position"}


def evaluated(spark: SparkSession, out: Path, **sections: Any) -> job.Outcome:
    done = run(spark, cfg.from_mapping({"sink": {"path": str(out)}, **sections}))
    rows = done.record["rows"]
    assert rows["in"] == rows["evaluated"] + rows["quarantined"]
    return done


def users_of(spark: SparkSession, done: job.Outcome) -> dict[tuple[str, str], dict[str, Any]]:
    return by_user(sinks.read(spark, f"{done.path}/user_metrics"))


def reference(file: Path, experiment: str, user: str) -> pd.DataFrame:
    return pd.read_csv(file, dtype={user: str}).set_index([experiment, user])


def assert_equal_to_reference(result: Mapping[Any, Any], expected: pd.DataFrame, columns: Mapping[str, str]) -> None:
    """Check that the values of each user differ from the reference by at most 1e-9."""
    assert len(expected)
    for key, row in expected.iterrows():
        for ours, theirs in columns.items():
            assert result[key][ours] == pytest.approx(row[theirs], rel=0, abs=1e-9), (key, ours)


@pytest.mark.slow
def test_clef_with_relevance_looked_up_counts_a_topic_without_a_list_as_zero(
    spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    clef = shared_data / "clef_tar2017"
    done = evaluated(
        spark,
        tmp_path,
        source={"path": str(clef / "runs_full.parquet"), "columns": CLEF_COLUMNS},
        judgements={"path": str(clef / "qrels.parquet"), "columns": {"user": "topic", "relevance": "grade"}},
        metrics=["ap", "ap@10", "ndcg@10", "ndcg@20"],
        convention={"preset": "standard", "population": "judged"},
    )
    expected = reference(clef / "ref.perquery.csv.gz", "run", "query")
    columns = {"ap": "ap", "ap_at_10": "ap10_min", "ndcg_at_10": "ndcg10_lin", "ndcg_at_20": "ndcg20_lin"}
    result = users_of(spark, done)
    assert_equal_to_reference(result, expected, columns)
    assert len(result) == 16 * 30
    missing = {key: row for key, row in result.items() if key not in expected.index}
    assert len(missing) == 3 and {experiment for experiment, _ in missing} == {"IIIT_run1"}
    assert all(row["n_lists"] == 0 and row["ap"] == row["ndcg_at_10"] == 0 for row in missing.values())
    means = averages(done.experiment_metrics)
    for experiment, rows in expected.groupby(level=0):
        for metric, name in {"ap": "ap", "ap@10": "ap10_min", "ndcg@10": "ndcg10_lin", "ndcg@20": "ndcg20_lin"}.items():
            assert means[experiment, "all", metric] == pytest.approx(rows[name].sum() / 30, abs=1e-9)
    without = averages(done.experiment_metrics, "n_users_without_list")
    assert (without["IIIT_run1", "all", "ap"], without["ECNU_run2", "all", "ap"]) == (3, 0)
    assert done.record["rows"]["in"] == 1_018_299


@pytest.mark.parametrize(("zero_relevant", "suffix"), [("zero", "all"), ("skip", "pos")])
def test_open_bandit_with_and_without_users_without_a_click(
    spark: SparkSession, shared_data: Path, tmp_path: Path, zero_relevant: str, suffix: str
) -> None:
    folder = shared_data / "open_bandit"
    done = evaluated(
        spark,
        tmp_path,
        # The reference takes the number of clicks as the grade.
        source={
            "format": "csv",
            "path": str(folder / "segment_rankings.csv.gz"),
            "columns": {"experiment": "experiment", "user": "segment", "relevance": "clicks"},
        },
        metrics=["ap", "ap@10", "ndcg@10"],
        convention={"preset": "standard", "zero_relevant": zero_relevant},
    )
    summary = pd.read_csv(folder / "ref.summary.csv").set_index("experiment")
    means, counts = averages(done.experiment_metrics), averages(done.experiment_metrics, "n_users")
    names = {"ap": f"MAP_{suffix}", "ap@10": f"AP10min_{suffix}", "ndcg@10": f"NDCG10lin_{suffix}"}
    for experiment, row in summary.iterrows():
        for metric, name in names.items():
            assert means[experiment, "all", metric] == pytest.approx(row[name], abs=1e-9)
        assert counts[experiment, "all", "ap"] == row["segments" if suffix == "all" else "seg_with_click"]
    expected = reference(folder / "ref.perquery.csv.gz", "experiment", "segment")
    if zero_relevant == "skip":
        expected = expected[expected["num_rel"] > 0]
    columns = {"ap": "ap", "ap_at_10": "ap10_min", "ndcg_at_10": "ndcg10_lin"}
    assert_equal_to_reference(users_of(spark, done), expected, columns)


def trec(spark: SparkSession, folder: Path, out: Path, run_file: str, qrels: str, **changes: Any) -> job.Outcome:
    return evaluated(
        spark,
        out,
        source={"format": "trec_run", "path": str(folder / run_file)},
        judgements={"format": "trec_qrels", "path": str(folder / qrels)},
        metrics=["ap", "ap@10", "ndcg", "ndcg@10", "p@5", "p@10", "r@20", "rr"],
        **{"convention": "trec_eval"} | changes,
    )


NAMES = {"map": "ap", "P_5": "p_at_5", "P_10": "p_at_10", "recip_rank": "rr"}


def printed(file: Path) -> dict[str, dict[str, str]]:
    """What trec_eval printed: topic -> name -> value as text."""
    result: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        name, topic, value = (part.strip() for part in line.split("\t"))
        result.setdefault(topic, {})[name] = value
    return result


def assert_printed(result: Mapping[tuple[str, str], Mapping[str, Any]], topics: Mapping[str, Any]) -> None:
    """Check the four decimals of each topic."""
    for (_, user), row in result.items():
        assert {n: f"{row[ours]:.4f}" for n, ours in NAMES.items()} == {n: topics[user][n] for n in NAMES}


def test_values_equal_the_four_decimals_of_trec_eval(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "trec_eval"
    done = trec(spark, folder, tmp_path, "results.test", "qrels.test")
    means = {metric: f"{mean:.4f}" for (_, _, metric), mean in averages(done.experiment_metrics).items()}
    assert (means["ap"], means["ndcg"], means["ndcg@10"], means["ap@10"]) == ("0.1785", "0.4021", "0.3016", "0.0259")
    topics = printed(folder / "out.test.aq")
    assert means["ap"] == topics["all"]["map"] and means["p@5"] == topics["all"]["P_5"]
    result = users_of(spark, done)
    assert {*result} == {("STANDARD", user) for user in ("301", "302", "303")}
    assert_printed(result, topics)
    expected = reference(folder / "ref" / "perquery.csv", "run", "query").rename({"results.test": "STANDARD"})
    columns = {"ap": "ap", "ap_at_10": "ap10_R", "ndcg": "ndcg", "ndcg_at_10": "ndcg10_lin", "rr": "rr"}
    assert_equal_to_reference(result, expected, columns)


def test_a_topic_without_a_list_is_zero_as_in_trec_eval(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "trec_eval"
    done = trec(spark, folder, tmp_path, "results.trunc", "qrels.test")
    topics = printed(folder / "out.test.aqc")
    means = {metric: f"{mean:.4f}" for (_, _, metric), mean in averages(done.experiment_metrics).items()}
    assert (means["ap"], means["p@10"]) == (topics["all"]["map"], topics["all"]["P_10"]) == ("0.1016", "0.2000")
    result = users_of(spark, done)
    assert (result["STANDARD", "302"]["n_lists"], result["STANDARD", "302"]["ap"]) == (0, 0)
    expected = reference(folder / "ref" / "trunc.perquery.csv", "run", "query").rename({"results.trunc": "STANDARD"})
    assert_equal_to_reference(result, expected, {"ap": "ap", "ap_at_10": "ap10_R", "ndcg": "ndcg", "rr": "rr"})


@pytest.mark.slow
def test_the_relevance_level_applies_to_ap_and_not_to_ndcg_as_in_trec_eval(
    spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "trec_eval"
    rule = {"preset": "trec_eval", "relevant_from": 2}
    done = trec(spark, folder, tmp_path, "results.test", "qrels.rel_level", convention=rule)
    result = users_of(spark, done)
    assert_printed(result, printed(folder / "out.test.aql"))
    known = reference(folder / "ref" / "rel_level_l2.perquery.csv", "run", "query").rename({"results.test": "STANDARD"})
    columns = {"ap": "ap", "ndcg": "ndcg", "ndcg_at_10": "ndcg10_lin", "rr": "rr"}
    assert_equal_to_reference(result, known, columns)


def test_six_rankers_by_score_equal_the_reference_with_exponential_gain(
    spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "lightgbm_rank"
    source = {
        "format": "csv",
        "path": str(folder / "scored_lists.csv.gz"),
        "columns": {"experiment": "experiment", "user": "query", "item": "item", "relevance": "label"},
    }
    done = evaluated(
        spark,
        tmp_path,
        source=source,
        rank_by="score",
        metrics=["ap", "ap@10", "ndcg@10", "ndcg@20"],
        convention={"preset": "standard", "gain": "exponential", "score_precision": 32},
    )
    expected = reference(folder / "ref.perquery.csv.gz", "run", "query")
    columns = {"ap": "ap", "ap_at_10": "ap10_min", "ndcg_at_10": "ndcg10_exp", "ndcg_at_20": "ndcg20_exp"}
    assert_equal_to_reference(users_of(spark, done), expected, columns)
    means = averages(done.experiment_metrics)
    # The values that LightGBM reports.
    assert round(means["lambdarank", "all", "ndcg@10"], 6) == 0.747771
    assert round(means["regression", "all", "ndcg@10"], 6) == 0.727455
