"""Intervals that hold over several looks: what a run publishes and says; their numbers are in unit tests."""

from pathlib import Path

from pyspark.sql import SparkSession

from rankmetrics_spark.sinks import read
from tests.helpers.commands import Call, ok
from tests.helpers.logs import a_list, config_file, parquet


def test_a_run_publishes_and_says_what_holds_at_every_look(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    rows = []
    for u in range(24):
        worse = [0] * (1 + u % 3) + [1]
        for name, grades in (("a", worse), ("b", worse[::-1]), ("c", worse[1:] if u % 2 else [0, *worse])):
            rows += a_list(grades, f"u{u}", name)
    request = {"baseline": "a", "looks": "any", "tuning_users": 12}
    file = config_file(parquet(tmp_path / "log", rows), tmp_path / "out", metrics=["ap@5"], comparison=request)
    out, _ = ok(call, "evaluate", "--config", file, "--format", "table")
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
    out, _ = ok(call, "compare", "--input", tmp_path / "out", *options)
    assert verdict[0] in out
    in_table = f"({row['adjusted_ci_low']:+.4f} to {row['adjusted_ci_high']:+.4f})"
    assert in_table in out
    # A plan counts published looks, and what a gate stops is none of them.
    stopped = ("--set", "gates=[{metric: ap@5, min: 1}]", "--set", "comparison.looks={planned: 4}")
    code, _, err = call("evaluate", "--config", file, "--output", tmp_path / "no", *stopped)
    assert code == 5 and ", not published, so no look of the plan" in err and "valid at look" not in err
    assert "not published, so no look of the plan" in next((tmp_path / "no" / "runs").glob("*.html")).read_text()
    code, _, err = call("compare", "--input", tmp_path / "out", "--baseline", "a", "--set", "looks=daily")
    assert code == 2 and "comparison.looks is 'daily'; allowed: one, any, or a plan" in err
