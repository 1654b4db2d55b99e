"""Runs of the job on a standalone cluster for ``sizing``, with limits of the kernel, read from event logs.

Each worker is pinned to one core. The kernel limits what ``Case`` asks for: a slowed worker by a control group, a
slow network by a network namespace that vanishes with the run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.benchmarks import data
from tests.benchmarks.peers.common import COLUMNS
from tests.benchmarks.run import session
from tests.benchmarks.sizing_model import FEW_LISTS, Cluster, Job, Observation
from tests.helpers.commands import ROOT, spark_environment
from tests.platforms.support import Cluster as Workers, Running, built_wheel, standalone_cluster

MB = 1e6
MEMORY = "1536m"
LIMIT = 900.0
ROWS_MEMORY = 500.0
"""MB of heap of a million collected rows, which Spark does not count: 2 GB of heap for a task of four million."""
MANY_TASKS = {
    "spark.sql.files.maxPartitionBytes": "400k",
    "spark.sql.files.openCostInBytes": "200k",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64k",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1k",
}
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
"""Executors then reach their Python workers without the loopback, whose limit would hold for these bytes too."""


@dataclass(frozen=True)
class Case:
    """A run on one machine.

    Attributes:
        rows: Impressions, in lists of fifty.
        workers: Workers of one core.
        partitions: Shuffle partitions.
        by_score: Rank by score; every row is shuffled.
        hot: Rows of one list, the others are even; 0 = none.
        slow: Share of a core that the last worker gets.
        network: MB/s of the loopback that master, driver and workers share; 0 = no limit.
        many_tasks: Cut files into small pieces and merge few partitions, to measure what a task costs (no prediction).
    """

    rows: int
    workers: int = 1
    partitions: int = 8
    by_score: bool = False
    hot: int = 0
    slow: float = 1.0
    network: float = 0.0
    many_tasks: bool = False

    @property
    def log(self) -> data.Dataset:
        return data.Dataset(self.rows, variant="hot_user", big=self.hot) if self.hot else data.Dataset(self.rows)

    @property
    def mode(self) -> str:
        """``position`` or ``score``, as in ``Cost``."""
        return "score" if self.by_score else "position"

    def __str__(self) -> str:
        """The case in the words of the command line: ``30M,workers=2,partitions=200``."""
        parts = [f"{self.rows / 1e6:g}M", f"workers={self.workers}", f"partitions={self.partitions}"]
        parts += ["by_score"] if self.by_score else []
        parts += ["many_tasks"] if self.many_tasks else []
        parts += [f"hot={self.hot / 1e6:g}M"] if self.hot else []
        parts += [f"slow={self.slow:g}"] if self.slow != 1 else []
        parts += [f"network={self.network:g}"] if self.network else []
        return ",".join(parts)


def case_of(text: str) -> Case:
    """Read a case as ``str`` writes it.

    Raises:
        ValueError: A word is unknown, or has no such value.
    """
    first, *words = text.split(",")

    def number(value: str) -> float:
        return float(value.removesuffix("M")) * (1e6 if value.endswith("M") else 1.0)

    values: dict[str, Any] = {}
    wholes, reals = ("workers", "partitions", "hot"), ("slow", "network")
    kinds: dict[str, Any] = {**dict.fromkeys(wholes, int), **dict.fromkeys(reals, float)}
    try:
        for word in words:
            name, _, value = word.partition("=")
            values[name] = True if word == "by_score" else kinds[name](number(value))
        return Case(int(number(first)), **values)
    except (KeyError, ValueError):
        known = ", ".join(["by_score", *(f"{name}=" for name in kinds)])
        raise ValueError(f"unknown run {text!r}; write the rows, such as 30M, and then any of {known}") from None


CALIBRATION = (
    Case(3_000_000),
    Case(3_000_000, partitions=100, many_tasks=True),
    Case(10_000_000, partitions=1500),
    # Above half a million lists, other stages write the users' values.
    Case(26_000_000),
    Case(2_000_000, by_score=True),
    Case(6_000_000, by_score=True),
    Case(2_000_000, by_score=True, partitions=100, many_tasks=True),
)
OF_SEVERAL = (Case(10_000_000, workers=2), Case(6_000_000, workers=2, by_score=True))
"""Calibration runs on two workers, one of each mode."""
UNSEEN = (
    Case(30_000_000, partitions=2),
    Case(30_000_000, workers=2, partitions=200),
    Case(30_000_000, workers=2, slow=0.5),
    Case(100_000_000),
    Case(100_000_000, workers=2, partitions=2000),
    Case(10_000_000, workers=2, by_score=True, partitions=64, hot=1_000_000),
    Case(10_000_000, workers=2, by_score=True, partitions=64, network=10),
)
AMOUNTS = ("fetched", "shuffled", "to_python", "from_python", "written")


@dataclass(frozen=True)
class Task:
    """A task of a run, from the event log; times in seconds since the application started, sizes in MB."""

    stage: int
    start: float
    end: float
    rows: int
    fetched_rows: int
    fetched: float
    shuffled: float
    written: float
    to_python: float
    from_python: float
    memory: float = 0.0


@dataclass
class Measured:
    """What a run took: its start in seconds since the epoch, the seconds from there to its end, and all tasks."""

    began: float = 0.0
    seconds: float = 0.0
    tasks: list[Task] = field(default_factory=list)


def measured(case: Case, path: str) -> Measured:
    """Run a case in a process of its own, in a network namespace if its network is limited."""
    command = [sys.executable, "-m", "tests.benchmarks.sizing_runs", json.dumps(asdict(case)), path]
    if case.network:
        # tbf lets bursts of a bucket through at full speed; the bucket has to hold one packet of loopback.
        shape = f"tc qdisc add dev lo root tbf rate {case.network * 8:g}mbit burst 256kb latency 200ms"
        command = ["unshare", "--net", "sh", "-c", f'ip link set lo up && {shape} && exec "$@"', "sh", *command]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=LIMIT + 120)
    finally:
        if process.poll() is None:
            # An interrupt, rather than an end, lets it stop its cluster and remove its groups.
            process.send_signal(signal.SIGINT)
            process.wait(60)
    if process.returncode:
        raise RuntimeError(f"{case}: {errors[-3000:]}")
    result = json.loads(output)
    return Measured(**result | {"tasks": [Task(**task) for task in result["tasks"]]})


def _run(case: Case, path: str) -> Measured:
    """Run the job of a case on a new cluster."""
    with tempfile.TemporaryDirectory(prefix="sizing-") as name:
        folder = Path(name)
        _prepare(folder, case, path)
        with standalone_cluster(case.workers, cores=1, memory=MEMORY) as cluster, _limited(case, cluster):
            return _submitted(folder, cluster, UNIX_SOCKETS if case.network else {})


def _prepare(folder: Path, case: Case, path: str) -> None:
    shutil.copy(built_wheel(folder / "dist"), folder / "rankmetrics_spark.zip")
    (folder / "events").mkdir()
    document: dict[str, Any] = {
        "evaluation_date": "2026-11-20",
        "source": {"path": path, "columns": {"experiment": "experiment", "user": "user", "item": "item"}},
        "metrics": list(COLUMNS),
        "spark": {"spark.sql.shuffle.partitions": str(case.partitions), **(MANY_TASKS if case.many_tasks else {})},
    }
    if case.by_score:
        document["rank_by"] = "score"
    (folder / "config.yaml").write_text(yaml.safe_dump(document))


def _submitted(folder: Path, cluster: Workers, more: Mapping[str, str]) -> Measured:
    environment = spark_environment()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Wait until all executors are registered.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # Two workers of one host would otherwise read each other's files without the network.
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    command = [
        *(f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", cluster.url, "--executor-memory", MEMORY),
        *(word for name, value in (settings | more).items() for word in ("--conf", f"{name}={value}")),
        *("--py-files", "rankmetrics_spark.zip", str(ROOT / "jobs" / "evaluate.py")),
        *("--config", "config.yaml", "--output", str(folder / "out")),
    ]
    job = Running.start(command, folder / "job.log", environment, folder)
    try:
        if job.process.wait(LIMIT):
            raise RuntimeError(job.text()[-3000:])
    finally:
        job.stop()
    (log,) = (folder / "events").iterdir()
    with log.open() as lines:
        return read_events(json.loads(line) for line in lines)


def read_events(events: Iterable[dict[str, Any]]) -> Measured:
    """Read times and tasks from the events of an application."""
    result = Measured()
    for event in events:
        kind = event["Event"]
        if kind == "SparkListenerApplicationStart":
            result.began = event["Timestamp"] / 1e3
        elif kind == "SparkListenerApplicationEnd":
            result.seconds = event["Timestamp"] / 1e3 - result.began
        elif kind == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            result.tasks.append(_task(event, result.began))
    return result


def _task(event: dict[str, Any], began: float) -> Task:
    info, numbers = event["Task Info"], event["Task Metrics"]
    fetched = numbers["Shuffle Read Metrics"]
    return Task(
        stage=event["Stage ID"],
        start=info["Launch Time"] / 1e3 - began,
        end=info["Finish Time"] / 1e3 - began,
        rows=numbers["Input Metrics"]["Records Read"],
        fetched_rows=fetched["Total Records Read"],
        fetched=(fetched["Remote Bytes Read"] + fetched["Local Bytes Read"]) / MB,
        shuffled=numbers["Shuffle Write Metrics"]["Shuffle Bytes Written"] / MB,
        written=numbers["Output Metrics"]["Bytes Written"] / MB,
        to_python=_sent(info, "data sent to Python workers"),
        from_python=_sent(info, "data returned from Python workers"),
        memory=numbers["Peak Execution Memory"] / MB,
    )


def _sent(info: dict[str, Any], name: str) -> float:
    return sum(int(each["Update"]) for each in info["Accumulables"] if each.get("Name") == name) / MB


@contextmanager
def _limited(case: Case, cluster: Workers) -> Iterator[None]:
    """Pin each worker to a core of its own; slow down the last one by a control group."""
    groups: list[Path] = []

    def group(kind: str, name: str, value: str, workers: Iterable[Running]) -> None:
        folder = Path("/sys/fs/cgroup", kind) / f"sizing-{os.getpid()}-{name}"
        folder.mkdir()
        groups.append(folder)
        (folder / name).write_text(value)
        for worker in workers:
            for thread in Path(f"/proc/{worker.process.pid}/task").iterdir():
                (folder / "tasks").write_text(thread.name)

    try:
        for number, worker in enumerate(cluster.workers):
            for thread in Path(f"/proc/{worker.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {number % (os.cpu_count() or 1)})
        if case.slow != 1:
            group("cpu", "cpu.cfs_quota_us", str(int(case.slow * 100_000)), cluster.workers[-1:])
        yield
    finally:
        for folder in groups:
            for process in (folder / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (folder.parent / "cgroup.procs").write_text(process)
            with suppress(OSError):
                folder.rmdir()


def stage_kinds(run: Measured, rows: int) -> dict[int, str]:
    """Stage -> ``read``, ``again``, ``lists`` (which are shuffled), ``values`` (of users), ``users`` or ``rest``."""
    totals = {stage: [0, 0] for stage in sorted({task.stage for task in run.tasks})}
    for task in run.tasks:
        totals[task.stage][0] += task.rows
        totals[task.stage][1] += task.fetched_rows
    kinds: dict[int, str] = {}
    for stage, (read, fetched) in totals.items():
        if read >= 0.9 * rows:
            kinds[stage] = "again" if "read" in kinds.values() else "read"
        elif read >= 0.9 * rows / data.LIST:
            kinds[stage] = "values"
        elif fetched >= 0.9 * rows / data.LIST:
            kinds[stage] = "users" if "values" in kinds.values() else "lists"
        else:
            kinds[stage] = "rest"
    return kinds


def observations(case: Case, run: Measured) -> list[Observation]:
    """What the kinds of task took in a run on one worker; ``driver`` is what the run took beside them."""
    kinds = stage_kinds(run, case.rows)
    groups: dict[str, list[Task]] = {}
    for task in run.tasks:
        # Lists are scored in Python, or looked through.
        kind = {"lists": "score" if task.to_python else "look"}.get(kinds[task.stage], kinds[task.stage])
        groups.setdefault(kind, []).append(task)
    groups.pop("rest", None)
    left = run.seconds
    result = []
    for stage, tasks in groups.items():
        of_rows = stage in ("read", "again") or (case.by_score and stage in ("look", "score"))
        rounds = 1 if stage == "values" else len({task.stage for task in tasks})
        units = (case.rows if of_rows else case.rows / data.LIST) / 1e6 * rounds
        blocks = len(groups["read"]) * case.partitions * rounds if stage in ("read", "look", "score") else 0
        seconds = sum(task.end - task.start for task in tasks)
        left -= seconds
        amounts = {name: sum(getattr(task, name) for task in tasks) / units for name in AMOUNTS}
        # Small tasks hold whole pages of memory: the largest one tells.
        amounts["memory"] = max(task.memory for task in tasks) * len(tasks) / units
        amounts |= {"memory": ROWS_MEMORY} if case.by_score and stage == "score" else {}
        result.append(Observation(case.mode, stage, len(tasks), units, blocks, seconds, amounts))
    few = case.rows / data.LIST if case.rows / data.LIST <= FEW_LISTS else 0
    return [*result, Observation(case.mode, "driver", sum(each.tasks for each in result), few / 1e6, 0, left, {})]


def ensured(folder: Path, cases: Sequence[Case]) -> dict[Case, str]:
    """Case -> the path of its log, which is generated if it does not exist."""
    paths = {case: str(folder / "data" / case.log.name) for case in cases}
    missing = [case for case in cases if not Path(paths[case], "_SUCCESS").exists()]
    if missing:
        spark = session()
        for case in missing:
            data.ensure(spark, folder, case.log)
        spark.stop()
    return paths


def with_read(each: Observation, path: str) -> Observation:
    """Add the MB of the columns to the stage that reads them, from the footers of the files."""
    if each.stage != "read":
        return each
    columns = {"experiment", "user", "item", "relevance", "score" if each.mode == "score" else "position"}
    footers = [pq.read_metadata(file).to_dict() for file in Path(path).glob("*.parquet")]
    chunks = [chunk for footer in footers for group in footer["row_groups"] for chunk in group["columns"]]
    size = sum(chunk["total_compressed_size"] for chunk in chunks if chunk["path_in_schema"] in columns)
    return replace(each, amounts={**each.amounts, "read": size / MB / each.units})


def job_of(case: Case, path: str) -> Job:
    """A case as the model takes it."""
    files = tuple(file.stat().st_size / MB for file in sorted(Path(path).glob("*.parquet")))
    return Job(case.rows, case.partitions, data.LIST, files=files, hot=case.hot)


def cluster_of(case: Case) -> Cluster:
    """The workers of a case, which share its network."""
    return Cluster(case.workers, slow=case.slow, network=case.network / case.workers)


if __name__ == "__main__":
    print(json.dumps(asdict(_run(Case(**json.loads(sys.argv[1])), sys.argv[2]))))
