"""What a run cost besides time: jobs, bytes, rows, memory, and the shuffles of its plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

MB = 1024.0**2


@dataclass
class Memory:
    """Peaks in MB over a process tree, sampled: the JVMs, the largest Python worker, and everything (``with_root``)."""

    jvm: float = 0.0
    worker: float = 0.0
    total: float = 0.0

    def look(self, root: psutil.Process, with_root: bool) -> None:
        """Only a JVM that the process itself started counts, not that of a peer beside it."""
        jvms = [child for child in root.children() if _name(child).startswith("java")]
        workers = [_size(child) for jvm in jvms for child in jvm.children(recursive=True)]
        everything = [root, *root.children(recursive=True)] if with_root else []
        self.jvm = max(self.jvm, sum(map(_size, jvms)))
        self.worker = max(self.worker, *workers, 0.0)
        self.total = max(self.total, sum(map(_size, everything)))


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""


def _size(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.memory_info().rss / MB
    return 0.0


@contextmanager
def memory(pid: int | None = None, every: float = 0.2, with_root: bool = False) -> Iterator[Memory]:
    """Watch the children of a process (this one by default) while the block runs.

    Pages that forked Python workers share count in each of them: an upper bound.
    """
    seen, root, done = Memory(), psutil.Process(pid), threading.Event()

    def watch() -> None:
        while not done.wait(every):
            with suppress(psutil.Error):
                seen.look(root, with_root)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
        with suppress(psutil.Error):
            seen.look(root, with_root)


@dataclass
class Stage:
    """One stage of a run; ``start`` and ``end`` in seconds since the run began."""

    kind: str
    start: float
    end: float
    cpu_seconds: float
    input_rows: int
    fetched_rows: int
    shuffle_rows: int
    shuffle_bytes: int


@dataclass
class Cost:
    """Of the jobs that ran meanwhile."""

    jobs: int = 0
    stages: list[Stage] = field(default_factory=list)

    @property
    def input_rows(self) -> int:
        return sum(stage.input_rows for stage in self.stages)

    @property
    def shuffle_rows(self) -> int:
        return sum(stage.shuffle_rows for stage in self.stages)

    @property
    def shuffle_bytes(self) -> int:
        return sum(stage.shuffle_bytes for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)


@contextmanager
def cost(spark: SparkSession) -> Iterator[Cost]:
    """What Spark's own status store counts; every job counts, also those of a broadcast, whatever their group."""
    before, result, began = set(_jobs(spark)), Cost(), time.time()
    yield result
    ran = {number: stages for number, stages in _jobs(spark).items() if number not in before}
    result.jobs = len(ran)
    store = spark._jsc.sc().statusStore()
    for number in sorted({stage for stages in ran.values() for stage in stages}):
        data = store.lastStageAttempt(number)
        if data.status().toString() == "COMPLETE":
            result.stages.append(_stage(data, began))


def _stage(data: Any, began: float) -> Stage:
    counts = (data.inputRecords(), data.shuffleReadRecords(), data.shuffleWriteRecords())
    times = (data.submissionTime().get().getTime() / 1e3 - began, data.completionTime().get().getTime() / 1e3 - began)
    kind = "reads the log" if counts[0] else "reads lists" if counts[1] else "reads the schema"
    return Stage(kind, *times, data.executorCpuTime() / 1e9, *counts, data.shuffleWriteBytes())


def _jobs(spark: SparkSession) -> dict[int, list[int]]:
    """Job number to stage numbers, of all jobs so far."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return {job.jobId(): _sequence(job.stageIds()) for job in _sequence(context.statusStore().jobsList(None))}


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


@dataclass
class Shape:
    """Of a plan that has run.

    Attributes:
        scans: Reads of files.
        raw_shuffles: Exchanges with a read of files below them and no other exchange between.
        shuffles: All exchanges.
    """

    scans: int = 0
    raw_shuffles: int = 0
    shuffles: int = 0


def shape(frame: DataFrame) -> Shape:
    """The shape of the final adaptive plan of a table that has been collected."""
    result = Shape()
    _walk(frame._jdf.queryExecution().executedPlan(), result)
    return result


_WRAPPERS = dict.fromkeys(
    ("ShuffleQueryStage", "BroadcastQueryStage", "TableCacheQueryStage", "ResultQueryStage"), "plan"
)
_WRAPPERS["AdaptiveSparkPlan"] = "executedPlan"


def _walk(node: Any, found: Shape) -> bool:
    """Whether there is a read of files below that no exchange hides."""
    name = node.getClass().getSimpleName().removesuffix("Exec")
    if name.startswith("ReusedExchange"):
        return False
    if name in _WRAPPERS:
        return _walk(getattr(node, _WRAPPERS[name])(), found)
    if name.startswith(("FileSourceScan", "BatchScan")):
        found.scans += 1
        return True
    below = [_walk(child, found) for child in _sequence(node.children())]
    if not name.startswith("ShuffleExchange"):
        return any(below)
    found.shuffles += 1
    found.raw_shuffles += any(below)
    return False
