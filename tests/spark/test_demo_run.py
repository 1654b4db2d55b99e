"""The demo command, run as a user runs it."""

import json
from pathlib import Path

import pandas as pd
import pytest

from rankmetrics_spark.tools import BEST_FIRST, USERS_PER_FAULT
from tests.helpers.commands import Call, command, ok, succeeded


# The demo always runs on this machine.
@pytest.mark.classic
@pytest.mark.program
def test_the_demo_finds_the_ranker_that_is_known_to_be_best(tmp_path: Path) -> None:
    out = tmp_path / "with a space" / "demo"
    done = succeeded(command("demo", "--output", out, "--users", 6000, "--format", "json"))
    means = {
        row["experiment_id"]: row["mean"]
        for row in json.loads(done.stdout)["means"]
        if (row["segment"], row["metric"]) == ("all", "ap@10")
    }
    assert sorted(means, key=means.__getitem__, reverse=True) == list(BEST_FIRST)
    assert not any(word in done.stderr for word in ("WARN", "ERROR", "Exception", "Setting default log level"))
    rows = 6000 * 10 + 6000 // USERS_PER_FAULT
    assert f"rows: {rows:,} read = " in done.stderr
    assert str(out) in done.stderr.replace("\n", "")
    assert (out / "experiment_metrics").is_dir()


@pytest.mark.slow
def test_the_days_of_a_demo_are_evaluated_one_by_one(tmp_path: Path, call: Call) -> None:
    out, err = ok(call, "demo", "--output", tmp_path, "--users", "600", "--days", "2", "--format", "json")
    log = pd.read_parquet(tmp_path / "input" / "impressions", filters=[("event_date", "=", "2026-11-09")])
    users = log.groupby("variant")["user_id"].nunique().to_dict()
    assert {r["experiment_id"]: r["n_users"] for r in json.loads(out)["means"] if r["segment"] == "all"} == users
    published = sorted(path.stem for path in (tmp_path / "published").glob("*.json"))
    assert published == ["2026-11-08", "2026-11-09"]
    assert "2026-11-08 to 2026-11-09; true difference of NDCG@10 to control: candidate_a +" in err
