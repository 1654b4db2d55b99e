"""Intervals that hold over several looks, on both engines: the closed forms, the bits, and what a run publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import compare
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.sinks import read
from rankmetrics_spark.statistics import spending_bounds
from tests.helpers.commands import Call
from tests.helpers.logs import DATE, a_list, parquet
from tests.helpers.users import compared, table

SHOWN = (
    "p_sequential",
    "sequential_ci_low",
    "sequential_relative_ci_high",
    "minimum_detectable_effect",
    "users_needed",
)


def values(n: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    a = rng.random(n)
    return {"a": a, "b": a + 0.1 + rng.normal(0, 0.2, n), "c": rng.random(n)}


def rows_of(spark: SparkSession, **rules: Any) -> dict[str, Any]:
    """Candidate -> its row against a."""
    users = [(name, f"u{i}", 1, float(x)) for name, each in values().items() for i, x in enumerate(each)]
    frame = spark.createDataFrame(users, "experiment_id string, user_id string, n_relevant bigint, ap_at_10 double")
    return {row["experiment_id"]: row.asDict() for row in compare(frame.repartition(3), "a", **rules).collect()}


def test_compare_takes_any_looks(spark: SparkSession) -> None:
    result = rows_of(spark, looks="any", tuning_users=60)
    # rho = N / (log(1 - 2 log a) - 2 log a); as many users as they are tuned for.
    rho = 60 / (np.log(1 - 2 * np.log(0.05)) - 2 * np.log(0.05))
    z = np.sqrt((60 + rho) / 60 * np.log((60 + rho) / (rho * 0.05**2)))
    factor = stats.t.isf(stats.norm.sf(z), 59)
    here = compared(table(values()), Comparison("a"), looks="any", tuning_users=60)
    for name in "bc":
        row = result[name]
        assert row["sequential_ci_high"] - row["difference"] == pytest.approx(factor * row["standard_error"], rel=1e-9)
        assert (row["looks"], row["tuning_users"]) == ("any", 60)
        assert [row[each] for each in SHOWN] == [here["a", name, "all", "ap@10"][each] for each in SHOWN]
    assert rows_of(spark)["b"]["looks"] is None


def test_compare_takes_one_of_a_planned_number_of_looks(spark: SparkSession) -> None:
    row = rows_of(spark, looks={"planned": 1, "look": 1, "spending": "pocock"})["b"]
    assert row["sequential_ci_low"] == pytest.approx(row["ci_low"], rel=1e-9) and row["looks"] == "1 of 1, pocock"
    row = rows_of(spark, looks={"planned": 14, "look": 3})["b"]
    bound = spending_bounds(np.arange(1, 4) / 14, 0.025, "obrien_fleming")[-1]
    assert (row["sequential_ci_high"] - row["difference"]) / row["standard_error"] > bound
    assert rows_of(spark, looks={"planned": 14})["b"]["note"].endswith("the number of this look is not known")
    with pytest.raises(ConfigError, match=r"comparison\.looks is 'often'; allowed: one, any, or a plan"):
        rows_of(spark, looks="often")


def test_a_run_publishes_and_says_what_holds_at_every_look(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    rows = []
    for u in range(12):
        worse = [0] * (1 + u % 3) + [1]
        for name, grades in (("a", worse), ("b", worse[::-1]), ("c", worse[1:] if u % 2 else [0, *worse])):
            rows += a_list(grades, f"u{u}", name)
    parquet(tmp_path / "log", rows)
    whole = {
        "source": {"path": str(tmp_path / "log")},
        "metrics": ["ap@5"],
        "sink": {"path": str(tmp_path / "out")},
        "comparison": {"baseline": "a", "looks": "any", "tuning_users": 12},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(whole))
    code, out, err = call("evaluate", "--config", tmp_path / "config.yaml", "--date", DATE, "--format", "table")
    assert code == 0, err
    verdict = [line for line in out.splitlines() if " on MAP@5: " in line]
    assert len(verdict) == 2
    assert verdict[0].endswith("p < 0.001 after Holm (2 comparisons), valid at every look")
    assert "▲ better, ▼ worse than a, ≈ no difference shown (valid at every look)" in out
    row = read(spark, str(tmp_path / "out" / "comparisons")).where("experiment_id = 'b'").first()
    assert row is not None and (row["looks"], row["tuning_users"]) == ("any", 12)
    shown = f"({100 * row['adjusted_relative_ci_low']:+.1f} to {100 * row['adjusted_relative_ci_high']:+.1f})"
    assert shown in verdict[0] and row["adjusted_ci_low"] < row["sequential_ci_low"] < row["ci_low"]

    # The command on what was written says the same, in the table too.
    options = ("--baseline", "a", "--set", "looks=any", "--set", "tuning_users=12")
    code, out, err = call("compare", "--input", tmp_path / "out", *options)
    assert code == 0, err
    assert verdict[0] in out
    in_table = f"({row['adjusted_ci_low']:+.4f} to {row['adjusted_ci_high']:+.4f})"
    assert in_table in out
    code, _, err = call("compare", "--input", tmp_path / "out", "--baseline", "a", "--set", "looks=daily")
    assert code == 2 and "comparison.looks is 'daily'; allowed: one, any, or a plan" in err
