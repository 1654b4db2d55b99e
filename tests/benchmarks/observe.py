"""What a run cost besides time: jobs, bytes, rows, memory, and the shuffles of its plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
class Cost:
    """Sums over the stages of the jobs that ran meanwhile.

    ``largest_shuffle`` is the number of records of the stage that wrote most of them.
    """

    jobs: int = 0
    input_rows: int = 0
    input_bytes: int = 0
    shuffle_bytes: int = 0
    shuffle_rows: int = 0
    largest_shuffle: int = 0
    cpu_seconds: float = 0.0


@contextmanager
def cost(spark: SparkSession) -> Iterator[Cost]:
    """What Spark's own status store counts; every job counts, also those of a broadcast, whatever their group."""
    before, result = set(_jobs(spark)), Cost()
    yield result
    ran = {number: stages for number, stages in _jobs(spark).items() if number not in before}
    result.jobs = len(ran)
    store = spark._jsc.sc().statusStore()
    for stage in sorted({stage for stages in ran.values() for stage in stages}):
        data = store.lastStageAttempt(stage)
        if data.status().toString() != "COMPLETE":
            continue
        result.input_rows += data.inputRecords()
        result.input_bytes += data.inputBytes()
        result.shuffle_bytes += data.shuffleWriteBytes()
        result.shuffle_rows += data.shuffleWriteRecords()
        result.largest_shuffle = max(result.largest_shuffle, data.shuffleWriteRecords())
        result.cpu_seconds += data.executorCpuTime() / 1e9


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
