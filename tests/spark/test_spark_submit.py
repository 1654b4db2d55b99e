"""The job as it runs on a cluster: a zip of the package, a thin script, a config."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.commands import QUICK, ROOT, ran, spark_environment
from tests.logs import DATE, a_list, only_records, parquet

# spark-submit creates a classic session.
pytestmark = [pytest.mark.classic, pytest.mark.program]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a space in its name that holds the zip, the script, a log and a config."""
    folder = tmp_path / "a job"
    folder.mkdir()
    with zipfile.ZipFile(folder / "rankmetrics_spark.zip", "w") as package:
        for file in (ROOT / "rankmetrics_spark").rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                package.write(file, file.relative_to(ROOT))
    (folder / "evaluate.py").write_text((ROOT / "jobs" / "evaluate.py").read_text())
    parquet(folder / "my log", [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
    document = {"source": {"path": "my log"}, "metrics": ["ap@5"], "sink": {"path": "my out"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    return folder


def submit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = spark_environment(**QUICK)
    command = [
        str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
        *("--py-files", "rankmetrics_spark.zip", "evaluate.py", *arguments),
    ]
    return ran(command, folder, environment)


def test_spark_submit_evaluates_with_only_the_zip(folder: Path) -> None:
    done = submit(folder, "--config", "config.yaml", "--date", DATE, "--format", "json")
    assert done.returncode == 0, done.stderr
    # spark-submit itself would write the steps to stdout too.
    found = json.loads(done.stdout)
    assert "rows: 4 in = 4 evaluated" in done.stderr
    assert {row["experiment_id"]: row["mean"] for row in found} == {"a": 1 / 2, "b": 1}
    assert (folder / "my out" / "user_metrics" / "experiment_id=a" / f"evaluation_date={DATE}").is_dir()
    assert len(os.listdir(folder / "my out" / "runs")) == 1


def test_spark_submit_prints_the_error_and_exits_with_its_code(folder: Path) -> None:
    done = submit(folder, "--config", "config.yaml", "--set", "source.path=nowhere")
    assert done.returncode == 3
    assert "rankmetrics: cannot read parquet from 'nowhere'" in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stdout + done.stderr
    assert only_records(folder / "my out")
