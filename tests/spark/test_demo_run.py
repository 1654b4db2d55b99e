"""The demo as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rankmetrics_spark.demo import BEST_FIRST, FAULTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_finds_the_ranker_that_is_known_to_be_best(tmp_path: Path) -> None:
    out = tmp_path / "with a space" / "demo"
    command = [sys.executable, "-m", "rankmetrics_spark.cli", "demo", "--output", str(out), "--users", "6000"]
    done = subprocess.run(
        [*command, "--format", "json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    means = {
        row["experiment_id"]: row["mean"]
        for row in json.loads(done.stdout)
        if (row["segment"], row["metric"]) == ("all", "ap@10")
    }
    assert sorted(means, key=means.__getitem__, reverse=True) == list(BEST_FIRST)
    assert "WARN" not in done.stderr and "ERROR" not in done.stderr and "Exception" not in done.stderr
    rows = 6000 * 10 + FAULTS
    assert f"rows: {rows:,} in = " in done.stderr
    assert str(out) in done.stderr.replace("\n", "")
    assert (out / "experiment_metrics").is_dir()
