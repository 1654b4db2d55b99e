"""A standalone cluster of real processes: spark-submit with the built zip, and a worker that is killed during a run."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import ROOT, ran, spark_environment, succeeded
from tests.helpers.logs import DATE, parquet, random_log
from tests.helpers.readme import PLATFORMS, commands, rename, section
from tests.platforms.support import Cluster, Running, exact_rows, job_files, packed_python, standalone_cluster

METRICS = ["ap@5", "ndcg@5", "rr"]
LOG = random_log(1, users=400)
FILES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built zip, a Python without the package, a log in several files and a config."""
    folder = tmp_path_factory.mktemp("cluster")
    job_files(folder)
    for number in range(FILES):
        parquet(folder / f"part {number}", LOG[number::FILES])
        (folder / "log").mkdir(exist_ok=True)
        (folder / f"part {number}" / "part-0.parquet").rename(folder / "log" / f"{number}.parquet")
    document = {
        "evaluation_date": DATE,
        "source": {"path": str(folder / "log")},
        "metrics": METRICS,
        "quality": {"max_invalid_fraction": 1, "repeated_items": "all"},
        # One task per file, so that each worker holds a part of the map stage's output.
        "spark": {"spark.sql.files.minPartitionNum": str(FILES), "spark.sql.files.openCostInBytes": "0"},
    }
    (folder / "first.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture(scope="module")
def local(folder: Path) -> Path:
    """The output of the same job in local mode."""
    ended(submit(folder, "local[2]", folder / "local"))
    return folder / "local"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with standalone_cluster(workers=2, cores=1, memory="1g") as cluster:
        yield cluster


def ended(job: Running) -> str:
    """What a job that ends well has said."""
    try:
        assert job.process.wait(300) == 0, job.text()[-3000:]
    finally:
        job.stop()
    return job.text()


def submit(folder: Path, master: str, out: Path, text: str = "", **conf: Any) -> Running:
    """Run the README's command, or the one in ``text``. Driver and executors do not have the package installed."""
    python = str(folder / "python" / "bin" / "python")
    environment = spark_environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Wait until both executors are registered.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        **conf,
    }
    (words,) = commands("spark-submit", text or section("A Spark cluster"))
    spark_submit, *arguments = rename(words, {"spark://HOST:7077": master})
    memory = ("--driver-memory", "1g", "--executor-memory", "1g")
    given = (part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    command = [f"{environment['SPARK_HOME']}/bin/{spark_submit}", *memory, *given, *arguments, "--output", str(out)]
    return Running.start(command, folder / f"{out.name}.log", environment, folder)


def assert_same_bits(result: Path, expected: Path) -> None:
    for table in ("user_metrics", "experiment_metrics", "quarantine"):
        assert exact_rows(result / table) == exact_rows(expected / table), table
    records = [json.loads(next((path / "runs").glob("*.json")).read_text()) for path in (result, expected)]
    assert records[0]["rows"] == records[1]["rows"]
    assert records[0]["rows"]["in"] == len(LOG)
    assert records[0]["rows"]["quarantined"] > 0


def test_two_workers_with_only_the_zip_give_the_bits_of_local_mode(folder: Path, cluster: Cluster, local: Path) -> None:
    said = ended(submit(folder, cluster.url, folder / "two workers"))
    assert "(executor 0)" in said and "(executor 1)" in said
    assert_same_bits(folder / "two workers", local)


def test_executors_use_the_python_of_an_archive(folder: Path, cluster: Cluster, local: Path) -> None:
    used = packed_python(folder)
    recipe = section("A Spark cluster whose nodes have no Python packages", PLATFORMS)
    ended(submit(folder, cluster.url, folder / "packed", recipe))
    # The driver has run it in the folder of the command, each executor in a folder of its own on a worker.
    places = set(used.read_text().split("\n")) - {"", str(folder)}
    assert len(places) == 2 and all("/work/app-" in place for place in places)
    assert_same_bits(folder / "packed", local)


def test_a_worker_killed_in_the_result_stage_changes_no_bit(folder: Path, cluster: Cluster, local: Path) -> None:
    conf = {
        # Many small tasks make the stage long enough to kill a worker during it.
        "spark.sql.shuffle.partitions": "12",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        # Behave as on two machines. On one machine an executor could read the files of a dead one.
        "spark.shuffle.readHostLocalDisk": "false",
        # Give up quickly on fetching blocks from a dead executor.
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "1s",
    }
    job = submit(folder, cluster.url, folder / "one left", **conf)
    try:
        # The evaluation is the first query with that many tasks after a shuffle. Wait until its map stage is done, and
        # one task of its result stage.
        result = job.wait_for(r"Submitting \d{2,} missing tasks from ResultStage (\d+)", 200)
        job.wait_for(rf"Finished task \S+ in stage {result[1]}\.0 ", 100)
        before = job.text()
        mapper = re.findall(r"Finished task .*\(executor (\d+)\)", before[: result.start()])[-1]
        application = re.findall(r"Connected to Spark cluster with app ID (\S+)", before)[0]
        assert cluster.worker_of(application, mapper).kill() >= 2
        over = rf"ResultStage {result[1]} .* finished in"
        assert re.search(r"ShuffleMapStage \d+ .* finished in", before[: result.start()])
        assert not re.search(over, job.text())
        after = ended(job)[len(before) :]
    finally:
        job.stop()
    for said in (f"Lost executor {mapper} on", "FetchFailed", "Resubmitting ShuffleMapStage"):
        assert said in after
    assert re.search(over, after)
    assert_same_bits(folder / "one left", local)


VALUES = """
import json, sys
from pathlib import Path
from rankmetrics_spark.engines.spark import local_session
from tests.platforms.values import everything
spark = local_session(f"local[{sys.argv[1]}]", "values", {"spark.sql.shuffle.partitions": sys.argv[2]})
Path(sys.argv[3]).write_text(json.dumps(everything(spark)))
spark.stop()
"""


def test_cores_and_partitions_change_no_bit(tmp_path: Path) -> None:
    result = []
    for cores, partitions in ((1, 1), (5, 16)):
        file = tmp_path / f"{cores}.json"
        environment = spark_environment(PYTHONPATH=str(ROOT))
        succeeded(ran([sys.executable, "-c", VALUES, cores, partitions, file], tmp_path, environment))
        result.append(file.read_text())
    assert result[0] == result[1]
    assert len(json.loads(result[0])["values"]["clicks by position: users"]) > 50
