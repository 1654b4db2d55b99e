"""What several platform suites need: the built package, processes that end, and a standalone cluster on loopback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow.dataset as ds

from tests.commands import ROOT, spark_environment
from tests.logs import bits

# For a JVM that is gone before thorough compilation would pay.
QUICK_START = "-XX:TieredStopAtLevel=1"

Found = TypeVar("Found")


def wait_for(look: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """The first true outcome of ``look``; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout as ``make wheel`` builds it, made in ``folder``: builds leave files beside sources."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "rankmetrics_spark", source / "rankmetrics_spark")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, timeout=120, capture_output=True, stdin=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def python_without_package(folder: Path) -> Path:
    """A Python with the packages of this one but without rankmetrics_spark, which is installed by an import hook."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    site = next(folder.glob("lib/python*/site-packages"))
    # The .pth files of a folder that a .pth file adds are not read, and such a file sets up the hook.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    program = "import pandas, importlib.util as u, sys; sys.exit(u.find_spec('rankmetrics_spark') is not None)"
    subprocess.run([python, "-c", program], cwd=folder, env=spark_environment(), check=True, timeout=60)
    return python


def rows_of(folder: Path, **partition: str) -> list[dict[str, Any]]:
    """The rows of a table of Parquet files, or of one partition, read without Spark; partitions are columns."""
    rows = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
    return [row for row in rows if partition.items() <= row.items()]


def exact_rows(folder: Path, leave_out: str = "", **partition: str) -> list[tuple[object, ...]]:
    """The same down to the last bit, in one order, without the column ``leave_out``."""
    rows = rows_of(folder, **partition)
    return sorted(
        (tuple((name, bits(row[name])) for name in sorted(row) if name != leave_out) for row in rows), key=repr
    )


@dataclass(frozen=True)
class Running:
    """A process in a group of its own, and what it has said so far."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, command: Sequence[str], log: Path, environment: dict[str, str], cwd: Path) -> Running:
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(process, log)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        """The first place of the log that matches.

        Raises:
            RuntimeError: The process has ended without it.
        """
        return wait_for(lambda: self._said(pattern), seconds, f"{pattern} in {self.log}")

    def _said(self, pattern: str) -> re.Match[str] | None:
        ended = self.process.poll() is not None
        found = re.search(pattern, self.text())
        if found is None and ended:
            raise RuntimeError(f"ended with {self.process.returncode}, never said {pattern}: {self.text()[-3000:]}")
        return found

    def below(self) -> list[psutil.Process]:
        """Everything that the process has started and that still has it as an ancestor."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def kill(self) -> int:
        """SIGKILL for the process and everything below it; how many that were."""
        below = self.below()
        self.process.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return 1 + len(below)

    def stop(self) -> None:
        """End it and everything that it left behind: politely, after five seconds by force."""
        below = self.below()
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # Spark's Python processes have a group of their own.
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(5)


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster.

    Attributes:
        url: For ``--master``.
        workers: One process each; its executors are below it.
    """

    url: str
    workers: tuple[Running, ...]

    def worker_of(self, application: str, executor: str) -> Running:
        """The worker that started an executor of an application (``app-...``)."""
        started = f"Asked to launch executor {application}/{executor} "
        return next(worker for worker in self.workers if started in worker.text())


@contextmanager
def standalone_cluster(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A master and workers as processes on loopback, ready for ``spark-submit --master``; all end with the block.

    Args:
        workers: How many.
        cores: Of each worker.
        memory: Of each worker, for its executors.
    """
    # The master's second way to take applications has a fixed port.
    no_rest = "-Dspark.master.rest.enabled=false"
    environment = spark_environment(SPARK_DAEMON_MEMORY="256m", SPARK_MASTER_OPTS=no_rest)
    # Port 0: the system chooses a free one, so nobody can take it in between.
    place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    running: list[Running] = []
    with tempfile.TemporaryDirectory(prefix="standalone-", ignore_cleanup_errors=True) as name:

        def start(kind: str, *arguments: str) -> Running:
            folder = Path(name, str(len(running)))
            folder.mkdir()
            command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *place]
            running.append(Running.start([*command, *arguments], folder / "log", environment, folder))
            return running[-1]

        try:
            url = start("master.Master").wait_for(r"Starting Spark master at (spark://\S+)", 60)[1]
            shape = ("--cores", str(cores), "--memory", memory, "--work-dir", "work")
            ready = tuple(start("worker.Worker", *shape, url) for _ in range(workers))
            for worker in ready:
                worker.wait_for("Successfully registered with master", 60)
            yield Cluster(url, ready)
        finally:
            # Newest first: a worker ends its executors and reports that to the master.
            for process in reversed(running):
                process.stop()
