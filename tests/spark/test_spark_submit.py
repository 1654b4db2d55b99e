"""The job as it runs on a cluster: a zip of the package, a thin script, a config."""

import csv
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.helpers.commands import QUICK, ROOT, ran, spark_environment, succeeded
from tests.helpers.logs import DATE, Shown, a_list, only_records, parquet

# spark-submit creates a classic session.
pytestmark = [pytest.mark.classic, pytest.mark.program]

GATES = {"short_rate": {"warn": 0.5}}


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


def submit(folder: Path, *arguments: str, err: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the job; with ``err``, as ``2> err`` in a shell does, which does not append."""
    environment = spark_environment(**QUICK)
    command = [
        str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
        *("--py-files", "rankmetrics_spark.zip", "evaluate.py", *arguments),
    ]
    if err is None:
        return ran(command, folder, environment)
    with err.open("wb") as file:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            timeout=300,
            check=False,
        )


def test_spark_submit_evaluates_with_only_the_zip(folder: Path) -> None:
    done = succeeded(submit(folder, "--config", "config.yaml", "--date", DATE, "--format", "json"))
    # spark-submit itself would write the steps to stdout too.
    result = json.loads(done.stdout)["means"]
    assert "rows: 4 read = 4 evaluated" in done.stderr
    assert {row["experiment_id"]: row["mean"] for row in result} == {"a": 1 / 2, "b": 1}
    assert (folder / "my out" / "user_metrics" / "experiment_id=a" / f"evaluation_date={DATE}").is_dir()
    assert len(os.listdir(folder / "my out" / "runs")) == 1


def test_spark_submit_prints_the_error_and_exits_with_its_code(folder: Path) -> None:
    done = submit(folder, "--config", "config.yaml", "--set", "source.path=nowhere")
    assert done.returncode == 3
    assert "rankmetrics: cannot read parquet from 'nowhere'" in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stdout + done.stderr and len(done.stderr.splitlines()) <= 30
    assert only_records(folder / "my out")


@pytest.mark.parametrize("style", ["json", "csv"])
def test_a_file_of_stderr_holds_all_that_is_said_and_no_stack_trace(folder: Path, style: str) -> None:
    grades = {"a": [0, 1, 0], "b": [1, 0, 0]}
    rows = [row for n in range(20) for e in "ab" for row in a_list(grades[e], f"u{n}", e)]
    parquet(folder / "my log", [*rows, Shown("a", "u0", None, 9, 1)])
    document = yaml.safe_load((folder / "config.yaml").read_text())
    document |= {"comparison": {"baseline": "a"}, "quality": {"max_invalid_fraction": 1, "gates": GATES}}
    # Spark's log is off, but for what it says before it reads the level; a config turns it on again.
    document |= {"spark": {"spark.log.level": "INFO"}} if style == "csv" else {}
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    file = folder / "err"
    done = submit(folder, "--config", "config.yaml", "--date", DATE, "--format", style, err=file)
    said = file.read_text().splitlines()
    assert done.returncode == 0, said
    means = json.loads(done.stdout)["means"] if style == "json" else list(csv.DictReader(done.stdout.splitlines()))
    assert {row["experiment_id"]: float(row["mean"]) for row in means} == {"a": 1 / 2, "b": 1}
    # Whole lines, though the JVM writes to the same file.
    starts = ("b beats a on ", "rows: 121 read = 120 evaluated + 1 left out", "left out: null_item 1", "warning: ")
    assert [sum(line.startswith(start) for line in said) > 0 for start in starts] == [True] * 4, said
    assert any(line.startswith("tables in ") and line.endswith(".json") for line in said)
    assert said[-1].startswith(f"{DATE}: b beats a on ") or style == "csv"
    assert (len(said) <= 30) == (style == "json") and (sum(" INFO " in line for line in said) > 100) == (style == "csv")
    assert [line for line in said if line.startswith(("\tat ", "java.", "Caused by"))] == []


def test_the_spark_submit_of_make_venv_finds_its_python_and_a_java(tmp_path: Path) -> None:
    # As `make venv` puts it beside the Python of .venv, in an environment that is not activated and has no Java.
    programs = tmp_path / "the bin"
    programs.mkdir()
    shutil.copy(ROOT / "jobs" / "spark-submit", programs)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    (tmp_path / "job.py").write_text("import os, pyspark, sys\nprint(pyspark.__file__, sys.executable, sys.argv[1:])\n")
    done = succeeded(ran([str(programs / "spark-submit"), "job.py", "a b", "--c"], tmp_path, environment))
    message = next(line for line in done.stdout.splitlines() if "pyspark" in line)
    assert message.startswith(f"{spark_environment()['SPARK_HOME']}/")
    assert message.endswith(f"/pyspark/__init__.py {sys.executable} ['a b', '--c']")
