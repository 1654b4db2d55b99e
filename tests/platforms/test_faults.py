"""Runs that are killed at many moments, mostly while they publish: readers see the old or the new result, and the next
run needs no repair.

Each run is a process of its own, a client of a Spark Connect server that stays. A hook ends it with ``os._exit`` before
or after one of the calls that change the output, or SIGKILL does at a random moment.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import read
from rankmetrics_spark.engines.spark import connect_session
from tests.helpers.commands import ROOT, spark_environment
from tests.helpers.logs import DATE, Shown, a_list, exact, parquet
from tests.platforms.faults import KILLED, NEVER, child, command
from tests.platforms.s3_server import Bucket, s3_server
from tests.platforms.support import connect_server, lakehouse_settings

TABLES = ("user_metrics", "experiment_metrics", "comparisons", "quarantine", "checks")
#: The new result is that of another log, or of the old one with a metric that a recompute has added.
BOTH = pytest.mark.parametrize("added", [[], ["err@5"]], ids=["run", "recompute"])
FEW = int(os.environ.get("FAULT_KILLS", "8"))
"""Kills per store while it publishes; there are half as many at random moments of the whole run."""
LOGS = {
    "old": [*(row for e in "abc" for n in range(3) for row in a_list([0, 1], f"u{n}", e)), Shown("a", "u", None, 9, 1)],
    "new": [row for e in "abc" for n in range(4) for row in a_list([1, 0, 1], f"u{n}", e)],
}
TOTAL = {"kills": 0, "lost": 0, "mixed": 0, "repairs": 0}
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["rankmetrics_spark.job", "pyspark.sql.connect.session", "pyarrow.dataset"])


@dataclass
class Place:
    """One store, with the two results that alternate there, the server, and a session of the test itself."""

    name: str
    spark: SparkSession
    url: str
    folder: Path
    sink: dict[str, str]
    more: dict[str, Any] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    moments: int = 0

    def document(self, log: str) -> dict[str, Any]:
        added = self.added if log == "new" else []
        document = {
            "source": {"path": str(self.folder / ("old" if added else log))},
            "metrics": ["ap@5", "rr"],
            "comparison": {"baseline": "a"},
            "evaluation_date": DATE,
            "quality": {"max_invalid_fraction": 1},
            "sink": {**self.sink, "lists": bool(self.added)},
        }
        return document | self.more | ({"recompute": added} if added else {})

    def complete(self, log: str) -> None:
        command(self.spark, self.document(log))

    def begin(self) -> None:
        """Make both results, and count the moments of publishing."""
        for log, rows in LOGS.items():
            parquet(self.folder / log, rows)
        for log in LOGS:
            self.complete(log)
            self.results[log] = self.seen()
        assert self.results["old"] != self.results["new"]
        assert self.start("old", NEVER) == 0
        self.moments = int(self.message())
        assert self.seen() == self.results["old"]

    def start(self, log: str, at: int, act: str = "kill", kill_after: float | None = None) -> int | None:
        """Run in a process; return its exit code."""
        (self.folder / "said").unlink(missing_ok=True)
        message = str(self.folder / "said")
        process = SPAWN.Process(target=child, args=(self.url, self.document(log), at, act, message))
        process.start()
        if kill_after is not None:
            process.join(kill_after)
            process.kill()
        process.join(300)
        return process.exitcode

    def message(self) -> str:
        return (self.folder / "said").read_text(encoding="utf-8")

    def seen(self) -> dict[str, Any]:
        """What a reader who follows the pointer sees, in every table."""
        if "table" in self.sink:
            tables = {name: read(self.spark, f"{self.sink['table']}.{name}", "iceberg") for name in TABLES}
        else:
            tables = {name: read(self.spark, f"{self.sink['path']}/{name}") for name in TABLES}
        return {name: exact(table.collect(), ["run_id"]) for name, table in tables.items()}

    def judge(self) -> str:
        """Compare what is seen with both results; return which one it is."""
        TOTAL["kills"] += 1
        result = self.seen()
        which = {name: [log for log in LOGS if self.results[log][name] == rows] for name, rows in result.items()}
        TOTAL["lost"] += any(not logs for logs in which.values())
        same = [log for log in LOGS if all(log in logs for logs in which.values())]
        TOTAL["mixed"] += all(which.values()) and not same
        print(f"{self.name}: kill {TOTAL['kills']}: {' or '.join(same) or which}", flush=True)
        assert same, f"{self.name}: {which}"
        return same[0]

    def recover(self, log: str) -> None:
        """The next run needs no help, and leaves nothing of the killed ones."""
        try:
            self.complete(log)
            assert self.seen() == self.results[log]
            assert self.leftovers() == []
        except BaseException:
            TOTAL["repairs"] += 1
            raise

    def leftovers(self) -> list[str]:
        if "table" in self.sink:
            names = [row["tableName"] for row in self.spark.sql(f"SHOW TABLES IN {self.sink['table']}").collect()]
            return [name for name in names if name.startswith("staging")]
        return leftovers(sorted(str(path) for path in Path(self.sink["path"]).rglob("*") if path.is_file()))


def leftovers(paths: list[str]) -> list[str]:
    """Claims, files of Spark's own staging, and files of more than one run in a partition.

    The server goes on with the statement of a client that was killed. What it writes to the staging then has no claim,
    and is removed a day later.
    """
    staged = [path for path in paths if path.endswith(".claim") or "/.spark-staging" in path]
    folders = [path.rpartition("/")[0] for path in paths if "/part-2" in path and "/_staging/" not in path]
    return staged + sorted({folder for folder in folders if folders.count(folder) > 1})


def killed_often(place: Place) -> None:
    """Kill runs at moments of publishing and at random ones; after each, look; after some, run to the end."""
    place.begin()
    dice = random.Random(1)
    step = max(1, place.moments // FEW)
    moments: list[float] = [*range(1, place.moments + 1, step)][:FEW]
    moments += [-dice.uniform(0.2, 5) for _ in range(FEW // 2)]
    state = "old"
    for number, at in enumerate(moments):
        other = "new" if state == "old" else "old"
        if at > 0:
            assert place.start(other, int(at)) == KILLED, place.message()
        else:
            place.start(other, NEVER, kill_after=-at)
        state = place.judge()
        if number % 4 == 3:
            state = "new" if state == "old" else "old"
            place.recover(state)
    place.recover("old")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, SparkSession]]:
    jars = ",".join(map(str, sorted((ROOT / ".jars" / "s3").glob("*.jar"))))
    with connect_server(tmp_path_factory.mktemp("server"), {"spark.jars": jars}, PYTHONPATH=str(ROOT)) as url:
        spark = connect_session(url)
        yield url, spark
        spark.stop()


HERE = "spark40" if Path(sys.prefix).name == "spark40" else "files"
only_files = pytest.mark.skipif(HERE != "files", reason="make test-faults runs this in the other environment")
only_lakehouse = pytest.mark.skipif(HERE == "files", reason="make test-faults runs this in the other environment")


@only_files
@BOTH
def test_local_files(files: tuple[str, SparkSession], tmp_path: Path, added: list[str]) -> None:
    place = Place("local", files[1], files[0], tmp_path, {"path": str(tmp_path / "out")}, added=added)
    killed_often(place)
    outcomes = [json.loads(path.read_text())["outcome"] for path in (tmp_path / "out" / "runs").glob("*.json")]
    assert outcomes.count("killed") >= 1 and set(outcomes) == {"done", "killed"}


@only_files
@pytest.mark.parametrize(("act", "cause"), [("full disk", "the disk is full"), ("read-only", "read-only")])
def test_a_disk_that_refuses_leaves_the_earlier_result(
    act: str, cause: str, files: tuple[str, SparkSession], tmp_path: Path
) -> None:
    place = Place("local", files[1], files[0], tmp_path, {"path": str(tmp_path / "out")})
    place.begin()
    for at in (1, 5):
        assert place.start("new", at, act) == 1
        assert place.message().startswith(f"cannot write to '{tmp_path}/out': ") and cause in place.message()
        assert place.seen() == place.results["old"]
        assert place.leftovers() == []
    place.recover("new")


@only_files
def test_of_two_runs_on_the_same_partitions_one_wins(files: tuple[str, SparkSession], tmp_path: Path) -> None:
    place = Place("local", files[1], files[0], tmp_path, {"path": str(tmp_path / "out")})
    place.begin()
    both = [
        SPAWN.Process(target=child, args=(place.url, place.document("new"), NEVER, "kill", str(tmp_path / f"said{i}")))
        for i in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(300)
    codes = sorted(process.exitcode or 0 for process in both)
    assert codes in ([0, 0], [0, 1])
    if codes == [0, 1]:
        message = [path.read_text() for path in tmp_path.glob("said?") if "another run" in path.read_text()]
        assert len(message) == 1 and message[0].endswith("run this again when it has ended")
    assert place.seen() == place.results["new"] and place.leftovers() == []


DRIVER = """
import sys
from rankmetrics_spark import job
from rankmetrics_spark.config import load
from rankmetrics_spark.engines.choice import QUICK_JAVA
from rankmetrics_spark.engines.spark import local_session
from tests.platforms.faults import hooked

config, at, conf = sys.argv[1], int(sys.argv[2]), {"spark.driver.extraJavaOptions": QUICK_JAVA}
hooked(at, "kill all")
job.run(local_session("local[2]", conf=conf), load(config))
"""


@only_files
def test_a_driver_is_killed_with_its_jvm(files: tuple[str, SparkSession], tmp_path: Path) -> None:
    place = Place("driver", files[1], files[0], tmp_path, {"path": str(tmp_path / "out")})
    place.begin()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(place.document("new")))
    for at in range(2, place.moments, place.moments // 4):
        words = [sys.executable, "-c", DRIVER, tmp_path / "config.yaml", at]
        done = subprocess.run(
            [*map(str, words)],
            cwd=tmp_path,
            env=spark_environment(PYTHONPATH=str(ROOT)),
            start_new_session=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        place.judge()
        place.recover("old")


THIRTY = """
import gc, json, sys, time
from pathlib import Path
import psutil
from rankmetrics_spark.config import load
from rankmetrics_spark.job import run
from rankmetrics_spark.engines.spark import local_session

config, temporary = sys.argv[1:]
few = ("ui.retainedJobs", "ui.retainedStages", "sql.ui.retainedExecutions", "sql.codegen.cache.maxEntries")
spark = local_session("local[2]", conf={f"spark.{name}": "20" for name in few} | {"spark.local.dir": temporary})
java = spark._jvm.java.lang


def state():
    for _ in range(3):
        gc.collect()
        java.System.gc()
        time.sleep(1)
    heap = java.Runtime.getRuntime()
    return {
        "tables": spark.sparkContext._jsc.getPersistentRDDs().size(),
        "files": sum(path.is_file() for path in Path(temporary).rglob("*")),
        "threads": psutil.Process().num_threads(),
        "python": psutil.Process().memory_info().rss / 2**20,
        "heap": (heap.totalMemory() - heap.freeMemory()) / 2**20,
    }


states = []
for number in range(30):
    run(spark, load(config))
    if number in (9, 29):
        states.append(state())
print(json.dumps(states))
"""


@only_files
def test_thirty_runs_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    parquet(tmp_path / "log", LOGS["old"])
    document = {
        "source": {"path": str(tmp_path / "log")},
        "metrics": ["ap@5", "rr", "judged@5"],
        "comparison": {"baseline": "a", "bootstrap": {"replicates": 100}},
        "quality": {"max_invalid_fraction": 1},
        "sink": {"path": str(tmp_path / "out")},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = [sys.executable, "-c", THIRTY, str(tmp_path / "config.yaml"), str(temporary)]
    environment = spark_environment(PYTHONPATH=str(ROOT), TMPDIR=str(temporary))
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, check=True)
    after_ten, after_thirty = json.loads(done.stdout.splitlines()[-1])
    print(after_ten, after_thirty)
    assert after_ten["tables"] == after_thirty["tables"] == 0
    assert after_thirty["files"] <= after_ten["files"]
    assert after_thirty["threads"] <= after_ten["threads"]
    # Megabytes. Twenty runs that kept a table each would keep more.
    assert after_thirty["python"] - after_ten["python"] < 20 and after_thirty["heap"] - after_ten["heap"] < 20


@only_files
@BOTH
def test_s3(files: tuple[str, SparkSession], tmp_path: Path, added: list[str]) -> None:
    with s3_server(tmp_path) as bucket:
        for name, value in bucket.settings.items():
            files[1].conf.set(name, value)
        sink = {"path": "s3a://lake/out"}
        more = {"spark": bucket.settings}
        killed_often(OnS3("s3", files[1], files[0], tmp_path, sink, more, added, bucket=bucket))


@dataclass
class OnS3(Place):
    bucket: Bucket = field(kw_only=True)

    def leftovers(self) -> list[str]:
        return leftovers(["/" + key for key, (_, size) in self.bucket.objects("out/").items() if size])


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, SparkSession]]:
    folder = tmp_path_factory.mktemp("lakehouse")
    with connect_server(folder, lakehouse_settings(folder), PYTHONPATH=str(ROOT)) as url:
        spark = connect_session(url)
        yield url, spark
        spark.stop()


@only_lakehouse
@BOTH
def test_delta(lakehouse: tuple[str, SparkSession], tmp_path: Path, added: list[str]) -> None:
    sink = {"format": "delta", "path": str(tmp_path / "out")}
    killed_often(InDelta("delta", lakehouse[1], lakehouse[0], tmp_path, sink, added=added))


class InDelta(Place):
    def leftovers(self) -> list[str]:
        return [str(path) for path in Path(self.sink["path"]).glob("_staging/*.claim")]


@only_lakehouse
@BOTH
def test_iceberg(lakehouse: tuple[str, SparkSession], tmp_path: Path, added: list[str]) -> None:
    sink = {"format": "iceberg", "table": f"ice.ranking{len(added)}"}
    killed_often(Place("iceberg", lakehouse[1], lakehouse[0], tmp_path, sink, added=added))


@pytest.fixture(scope="module", autouse=True)
def summary(request: pytest.FixtureRequest) -> Iterator[None]:
    """One line at the end; with FAULT_TOTAL, it goes on with what an earlier process has written to that file."""
    file = Path(os.environ["FAULT_TOTAL"]) if "FAULT_TOTAL" in os.environ else None
    if file and file.exists():
        TOTAL.update(json.loads(file.read_text()))
    yield
    if file:
        file.write_text(json.dumps(TOTAL))
    line = "{kills} kills, {lost} lost, {mixed} mixed, {repairs} repairs".format(**TOTAL)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{line}")
