"""A standalone cluster of real processes: the built zip by spark-submit, and a worker that dies in the middle."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark.conventions import STANDARD
from tests.commands import ROOT, spark_environment
from tests.logs import DATE, assert_close, obvious, parquet, random_log
from tests.platforms.support import (
    QUICK_START,
    Cluster,
    Running,
    built_wheel,
    exact_rows,
    python_without_package,
    rows_of,
    standalone_cluster,
)
from tests.readme import commands, rename, section

METRICS = ["ap@5", "ndcg@5", "rr"]
LOG = random_log(1, users=400)
FILES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built zip, a Python that lacks the package, a log of several files and a config."""
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copy(built_wheel(folder / "dist"), folder / "dist" / "rankmetrics_spark.zip")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    python_without_package(folder / "python")
    for number in range(FILES):
        parquet(folder / f"part {number}", LOG[number::FILES])
        (folder / "log").mkdir(exist_ok=True)
        (folder / f"part {number}" / "part-0.parquet").rename(folder / "log" / f"{number}.parquet")
    document = {
        "evaluation_date": DATE,
        "source": {"path": str(folder / "log")},
        "metrics": METRICS,
        "quality": {"max_invalid_fraction": 1, "repeated_items": "all"},
        # As many tasks as files: each worker has a part of the map stage's output.
        "spark": {"spark.sql.files.minPartitionNum": str(FILES), "spark.sql.files.openCostInBytes": "0"},
    }
    (folder / "first.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture(scope="module")
def local(folder: Path) -> Path:
    """What the same job writes with a Spark in one process."""
    job = submit(folder, "local[2]", folder / "local")
    try:
        assert job.process.wait(300) == 0, job.text()[-3000:]
    finally:
        job.stop()
    return folder / "local"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with standalone_cluster(workers=2, cores=1, memory="1g") as cluster:
        yield cluster


def submit(folder: Path, master: str, out: Path, **conf: Any) -> Running:
    """The README's command with Spark's own log; neither the driver nor an executor has the package installed."""
    python = str(folder / "python" / "bin" / "python")
    environment = spark_environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Both executors from the first task on.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
        **conf,
    }
    (words,) = commands("spark-submit", section("A Spark cluster"))
    spark_submit, *arguments = rename(words, {"spark://HOST:7077": master})
    memory = ("--driver-memory", "1g", "--executor-memory", "1g")
    given = (part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    command = [f"{environment['SPARK_HOME']}/bin/{spark_submit}", *memory, *given, *arguments, "--output", str(out)]
    return Running.start(command, folder / f"{out.name}.log", environment, folder)


def assert_same_bits(found: Path, wanted: Path) -> None:
    for table in ("user_metrics", "experiment_metrics", "quarantine"):
        assert exact_rows(found / table) == exact_rows(wanted / table), table
    records = [json.loads(next((path / "runs").glob("*.json")).read_text()) for path in (found, wanted)]
    assert records[0]["rows"] == records[1]["rows"]
    assert records[0]["rows"]["in"] == len(LOG)
    assert records[0]["rows"]["quarantined"] > 0


def test_local_mode_is_right(local: Path) -> None:
    rows = rows_of(local / "user_metrics")
    found = {(row["experiment_id"], row["user_id"]): row for row in rows}
    assert len(found) == len(rows)
    assert_close(found, obvious(LOG, METRICS, STANDARD))


def test_two_workers_with_nothing_but_the_zip_give_the_bits_of_local_mode(
    folder: Path, cluster: Cluster, local: Path
) -> None:
    job = submit(folder, cluster.url, folder / "two workers")
    try:
        assert job.process.wait(300) == 0, job.text()[-3000:]
    finally:
        job.stop()
    used = {number for number in "01" if f"(executor {number})" in job.text()}
    assert used == {"0", "1"}
    assert_same_bits(folder / "two workers", local)


def test_a_worker_killed_in_the_result_stage_changes_no_bit(folder: Path, cluster: Cluster, local: Path) -> None:
    conf = {
        # Many small tasks: the stage that is hit is long.
        "spark.sql.shuffle.partitions": "12",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        # As if the workers were two machines; on one, an executor reads the files that a dead one has left.
        "spark.shuffle.readHostLocalDisk": "false",
        # A dead executor is not asked for its blocks for long.
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "1s",
    }
    job = submit(folder, cluster.url, folder / "one left", **conf)
    try:
        # The pass is the first to have that many tasks after a shuffle: its map stage is over, and now one of these.
        result = job.wait_for(r"Submitting \d{2,} missing tasks from ResultStage (\d+)", 200)
        job.wait_for(rf"Finished task \S+ in stage {result[1]}\.0 ", 100)
        before = job.text()
        mapper = re.findall(r"Finished task .*\(executor (\d+)\)", before[: result.start()])[-1]
        application = re.findall(r"Connected to Spark cluster with app ID (\S+)", before)[0]
        assert cluster.worker_of(application, mapper).kill() >= 2
        ended = rf"ResultStage {result[1]} .* finished in"
        assert re.search(r"ShuffleMapStage \d+ .* finished in", before[: result.start()])
        assert not re.search(ended, job.text())
        assert job.process.wait(300) == 0, job.text()[-3000:]
    finally:
        job.stop()
    after = job.text()[len(before) :]
    assert f"Lost executor {mapper} on" in after
    assert "FetchFailed" in after
    assert "Resubmitting ShuffleMapStage" in after
    assert re.search(ended, after)
    assert_same_bits(folder / "one left", local)
