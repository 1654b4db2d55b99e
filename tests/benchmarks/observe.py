"""Measures the cost of a run besides time: jobs, bytes, rows, memory, and the shuffles of the plan."""

import os
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
    """Sampled peak memory of a process tree in MB: all JVMs, the largest Python worker, the total (``with_root``)."""

    jvm: float = 0.0
    worker: float = 0.0
    total: float = 0.0

    def look(self, root: psutil.Process, with_root: bool) -> None:
        """Take one sample. Only JVMs started by the process itself count, not those of a peer process."""
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
    """Sample the memory of the children of a process (by default this one) while the block runs.

    The result is an upper bound, because pages shared by forked Python workers count in each of them.
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


def cpu_seconds(pid: int | None = None) -> float:
    """CPU seconds so far of what a process has started; without ``pid``, what this one has, and the calling thread."""
    root = psutil.Process(pid)
    total = (0.0 if pid else time.thread_time()) + sum(root.cpu_times()[2:4])
    for process in root.children(recursive=True):
        with suppress(psutil.Error, OSError):
            # The clock of all of its threads (finer than the system's ticks), and its children that have ended.
            total += time.clock_gettime(~process.pid << 3 | 2) + sum(process.cpu_times()[2:4])
    return total


def cpu_seconds_of_all() -> float:
    """CPU seconds so far of this process, all of its threads, and all below it, also those that have ended."""
    return time.process_time() + cpu_seconds(os.getpid())


@dataclass
class Stage:
    """One stage of a run. ``start`` and ``end`` are seconds since the start of the run."""

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
    """Cost of the Spark jobs that ran in the observed block."""

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
    """Observe the Spark jobs of a block through Spark's status store: all jobs of all groups, including broadcasts."""
    from py4j.protocol import Py4JJavaError  # the client of Spark Connect comes without it

    before, result, began = set(_jobs(spark)), Cost(), time.time()
    yield result
    ran = {number: stages for number, stages in _jobs(spark).items() if number not in before}
    result.jobs = len(ran)
    store = spark._jsc.sc().statusStore()
    for number in sorted({stage for stages in ran.values() for stage in stages}):
        # A session keeps so many stages only, and forgets those first that were skipped.
        with suppress(Py4JJavaError):
            data = store.lastStageAttempt(number)
            if data.status().toString() == "COMPLETE":
                result.stages.append(_stage(data, began))


def _stage(data: Any, began: float) -> Stage:
    counts = (data.inputRecords(), data.shuffleReadRecords(), data.shuffleWriteRecords())
    times = (data.submissionTime().get().getTime() / 1e3 - began, data.completionTime().get().getTime() / 1e3 - began)
    kind = "reads the log" if counts[0] else "reads lists" if counts[1] else "reads the schema"
    return Stage(kind, *times, data.executorCpuTime() / 1e9, *counts, data.shuffleWriteBytes())


def _jobs(spark: SparkSession) -> dict[int, list[int]]:
    """Job id -> stage ids, for all jobs so far."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return {job.jobId(): _sequence(job.stageIds()) for job in _sequence(context.statusStore().jobsList(None))}


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


@dataclass
class Shape:
    """Counts of operators in an executed plan.

    Attributes:
        scans: Number of file scans.
        raw_shuffles: Number of exchanges that have a file scan below them with no other exchange in between.
        shuffles: Number of all exchanges.
    """

    scans: int = 0
    raw_shuffles: int = 0
    shuffles: int = 0


def shape(frame: DataFrame) -> Shape:
    """The shape of the final adaptive plan of a table. The table must have been collected."""
    result = Shape()
    _walk(frame._jdf.queryExecution().executedPlan(), result)
    return result


_WRAPPERS = dict.fromkeys(
    ("ShuffleQueryStage", "BroadcastQueryStage", "TableCacheQueryStage", "ResultQueryStage"), "plan"
)
_WRAPPERS["AdaptiveSparkPlan"] = "executedPlan"


def _walk(node: Any, result: Shape) -> bool:
    """Count operators below ``node``; return whether it has a file scan below it with no exchange in between."""
    name = node.getClass().getSimpleName().removesuffix("Exec")
    if name.startswith("ReusedExchange"):
        return False
    if name in _WRAPPERS:
        return _walk(getattr(node, _WRAPPERS[name])(), result)
    if name.startswith(("FileSourceScan", "BatchScan")):
        result.scans += 1
        return True
    below = [_walk(child, result) for child in _sequence(node.children())]
    if not name.startswith("ShuffleExchange"):
        return any(below)
    result.shuffles += 1
    result.raw_shuffles += any(below)
    return False
