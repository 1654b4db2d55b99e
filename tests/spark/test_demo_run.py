"""The demo command, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankmetrics_spark.tools import BEST_FIRST, USERS_PER_FAULT
from tests.helpers.commands import command


# The demo always runs on this machine.
@pytest.mark.classic
@pytest.mark.program
def test_the_demo_finds_the_ranker_that_is_known_to_be_best(tmp_path: Path) -> None:
    out = tmp_path / "with a space" / "demo"
    done = command("demo", "--output", out, "--users", 6000, "--format", "json")
    assert done.returncode == 0, done.stderr
    means = {
        row["experiment_id"]: row["mean"]
        for row in json.loads(done.stdout)
        if (row["segment"], row["metric"]) == ("all", "ap@10")
    }
    assert sorted(means, key=means.__getitem__, reverse=True) == list(BEST_FIRST)
    assert "WARN" not in done.stderr and "ERROR" not in done.stderr and "Exception" not in done.stderr
    rows = 6000 * 10 + 6000 // USERS_PER_FAULT
    assert f"rows: {rows:,} in = " in done.stderr
    assert str(out) in done.stderr.replace("\n", "")
    assert (out / "experiment_metrics").is_dir()
