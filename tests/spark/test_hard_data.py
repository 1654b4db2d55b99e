"""Logs whose users are left out, are all alike, or come on other days: from the log to verdict, gates and checks."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import compare, config as cfg, errors as err, evaluate, metrics as mx, report as rep
from rankmetrics_spark.job import run
from rankmetrics_spark.sinks import read
from rankmetrics_spark.statistics import heaviest, permuted_p
from tests.helpers.logs import config


def log(first_hits: dict[str, list[int | None]], length: int = 10, **columns: Any) -> pd.DataFrame:
    """A list for each user of an experiment, with a click at a rank or none."""
    rows = [
        (name, f"{name}{user}", f"i{rank}", rank, int(rank == hit))
        for name, hits in first_hits.items()
        for user, hit in enumerate(hits)
        for rank in range(1, length + 1)
    ]
    return pd.DataFrame(rows, columns=["experiment", "user", "item", "position", "relevance"]).assign(**columns)


def reached(n: int, late: int, none: int) -> list[int | None]:
    return [1 + user % 5 for user in range(n)] + [8] * late + [None] * none


SKIPPED = log({"control": reached(300, 0, 200), "new": reached(300, 120, 80)})
SAID = (
    "not trustworthy: 60 % of the users of control and 84 % of those of new have a value (p < 0.001); the others are "
    "left out, so different users are compared; use a convention and a metric that count all of them, such as "
    "zero_relevant: zero"
)


@pytest.mark.outcome(
    "judgements for other shares of the users of each experiment, with `population: both`",
    "a warning of the checks and of the page: the share of each, and what compares all users",
)
def test_a_population_of_other_users_is_warned_of(spark: SparkSession) -> None:
    reached = SKIPPED[SKIPPED["relevance"] == 1][["user", "item", "relevance"]]
    checked = {"baseline": "control", "convention": {"population": "both"}}
    warnings = evaluate(SKIPPED, "rr", reached, **checked).check().warnings
    assert "convention.population holds 60 % of the lists of control and 84 % of those of new (p < 0.001)" in " ".join(
        warnings
    )
    # The same users in both: one experiment has 200 lists of users without judgements more.
    both = SKIPPED[SKIPPED["experiment"] == "new"]
    judged = both[both["user"].isin(reached["user"])].assign(experiment="control")
    warnings = evaluate(pd.concat([both, judged]), "rr", reached, **checked).check().warnings
    assert "population holds" not in " ".join(warnings)


def test_a_verdict_on_different_users_is_withheld_from_log_to_gate(spark: SparkSession, tmp_path: Path) -> None:
    SKIPPED.to_csv(tmp_path / "log.csv", index=False)

    def of_day(day: str, zero_relevant: str, **more: Any) -> cfg.Config:
        """The config of a day."""
        more |= {"convention": {"zero_relevant": zero_relevant}, "comparison": {"baseline": "control"}}
        return config(tmp_path / "log.csv", tmp_path / "out", metrics=["rr"], evaluation_date=day, **more)

    run(spark, of_day("2026-11-08", "skip"))
    (row,) = read(spark, str(tmp_path / "out" / "comparisons")).collect()
    # 137 / 300 of those with a hit at ranks 1 to 5; 120 of 420 have 1 / 8 instead.
    mean = np.mean([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert row["difference"] == pytest.approx((300 * mean + 120 / 8) / 420 - mean)
    assert (row["note"], row["better"]) == (SAID, None) and row["p_adjusted"] < 1e-4
    # The answer over everybody is that of ``zero_relevant: zero``, below.
    assert (row["share_with_value_candidate"], row["difference_per_assigned"]) == pytest.approx((0.84, 120 / 8 / 500))
    checks = read(spark, str(tmp_path / "out" / "checks")).where("name = 'users_left_out'").collect()
    assert [(check["status"], check["sentence"][:10]) for check in checks] == [("warn", "MRR: 60 % ")] * 2
    stored = compare(read(spark, str(tmp_path / "out" / "user_metrics")), "control").collect()
    assert [(each["note"], each["better"]) for each in stored] == [(SAID, None)]
    with pytest.raises(err.RankmetricsError, match="the test of MRR of new against control is not trustworthy: 60 %"):
        run(spark, of_day("2026-11-09", "skip", gates=[{"metric": "rr", "trusted": True}]))
    # Counted with 0, the same users are compared, and more of them have a hit in new.
    run(spark, of_day("2026-11-10", "zero"))
    (row,) = read(spark, str(tmp_path / "out" / "comparisons")).where("evaluation_date = '2026-11-10'").collect()
    assert row["note"] is None and row["difference"] == pytest.approx(120 / 8 / 500)


def test_lists_without_a_value_are_counted_within_a_user(spark: SparkSession) -> None:
    """Each user has a list with a hit, and another one with a hit in half of control and nearly all of new."""
    hits = {"control": [1] * 60, "new": [1] * 60}
    more = {"control": reached(30, 0, 30), "new": reached(30, 26, 4)}
    lists = pd.concat([log(hits, request="r1"), log(more, request="r2")])
    options: dict[str, Any] = {"list": "request", "convention": {"zero_relevant": "skip"}, "baseline": "control"}
    for frame in (lists, lists.sample(frac=1.0, random_state=1)):
        users = evaluate(spark.createDataFrame(frame), "rr", **options).user_metrics
        (row,) = compare(users, "control").collect()
        said = "on average, 75 % of a user's lists in control and 97 % in new have a value (p < 0.001); "
        assert said in row["note"] and "so different lists are compared" in row["note"]


def test_an_experiment_without_a_hit_fails_the_limit_of_a_drop(spark: SparkSession, tmp_path: Path) -> None:
    frame = log({"control": [1] * 15 + [None] * 15, "new": [None] * 12})
    frame.to_csv(tmp_path / "log.csv", index=False)
    request = {"comparison": {"baseline": "control", "margin": {"rr": 0.1}}, "metrics": ["rr"]}
    gates = [{"metric": "rr", "max_drop": 0.1}]
    with pytest.raises(err.RankmetricsError, match=r"MRR of new fell by 0\.5000 \(0\.500 → 0\.000\) against control"):
        run(spark, config(tmp_path / "log.csv", tmp_path / "out", gates=gates, **request))


def test_days_are_summed_for_each_metric(spark: SparkSession) -> None:
    """A ramp from 40 to 60 %, and days on which 20 to 80 % find something: the days alone are the difference."""
    rng, parts = np.random.default_rng(1), []
    for day, (mean, control, new) in enumerate(((0.2, 180, 120), (0.5, 150, 150), (0.8, 120, 180)), start=8):
        for name, n in (("control", control), ("new", new)):
            values = rng.permutation(np.arange(n) < mean * n).astype(float)
            columns = {"experiment_id": name, "evaluation_date": f"2026-11-{day:02}", "n_lists": 1}
            ids = [f"{name}{day}-{i}" for i in range(n)]
            parts.append(pd.DataFrame(columns | {"user_id": ids, "rr": values, "n_relevant": values.astype(int)}))
    users = spark.createDataFrame(pd.concat(parts))
    (row,) = compare(users, "control", dates=("2026-11-08", "2026-11-10")).collect()
    # (120 * 0.2 + 150 * 0.5 + 180 * 0.8) / 450 is 0.54, and 0.46 the other way round.
    assert row["difference"] == pytest.approx(0.08) and row["p_value"] < 0.05 and row["better"] is None
    assert row["note"] == (
        "not trustworthy: new has 40 % of the users of the two on 2026-11-08 and 60 % on 2026-11-10, and the means of "
        f"days go from 0.2 to 0.8, which alone moves the difference by +0.08 (its standard error is "
        f"{row['standard_error']:.2g}): compare days whose split is the same"
    )


@pytest.mark.both_engines
def test_the_permutation_of_a_few_hits_has_the_same_bits_on_any_engine_and_partitions(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    arms = {"a": np.r_[rng.random(3), np.zeros(37)], "b": np.r_[rng.random(40), np.zeros(320)]}
    frame = pd.concat(
        pd.DataFrame({"experiment_id": name, "user_id": [f"{name}{i}" for i in range(len(v))], "ap_at_10": v})
        for name, v in arms.items()
    ).assign(n_relevant=lambda rows: (rows["ap_at_10"] > 0).astype(int))
    p = permuted_p(arms["a"][:3], arms["b"][:40], (40, 360))
    for users in (spark.createDataFrame(frame), spark.createDataFrame(frame.sample(frac=1.0)).repartition(5)):
        (row,) = compare(users, "a").collect()
        assert (row["test"], row["sparse_p_value"], row["p_adjusted"]) == ("permutation", p, p)
        assert (row["adjusted_ci_low"], row["better"]) == (None, None) and row["ci_low"] is not None
        said = "b against a on MAP@10: no difference shown"
        assert "no interval before 20 users with a hit expected in the smaller experiment" in row["note"]
        assert rep.verdict_of([row.asDict()], [mx.parse("ap@10")])[0].startswith(said)


@pytest.mark.both_engines
def test_the_heaviest_of_many_users_have_the_same_bits_on_any_engine_and_partitions(spark: SparkSession) -> None:
    rng, n = np.random.default_rng(4), (600, 2_400)
    units = [np.stack([k * (rng.random(len(k)) < 0.5), k], 1) for k in (np.ceil(rng.pareto(1.5, size)) for size in n)]
    values = [pd.DataFrame({"ap_at_10": of[:, 0] / of[:, 1], "n_lists": of[:, 1].astype(int)}) for of in units]
    frame = pd.concat(values, keys="ab", names=["experiment_id", "user_id"]).reset_index().astype({"user_id": str})
    frame = frame.assign(user_id=frame["experiment_id"] + frame["user_id"], n_relevant=frame["ap_at_10"].astype(int))
    sums = np.array([[y.sum(), y @ y, k.sum(), y @ k, k @ k] for y, k in (of.T for of in units)])
    p = permuted_p(*(of[heaviest(of, 512)] for of in units), n, sums)
    for users in (spark.createDataFrame(frame), spark.createDataFrame(frame.sample(frac=1.0)).repartition(5)):
        (row,) = compare(users, "a", mean_over="lists").collect()
        assert (row["test"], row["sparse_p_value"]) == ("permutation", p)
