"""Shared helpers of the platform tests: the built package, processes with cleanup, a standalone cluster on loopback."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow.dataset as ds

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import ROOT, spark_environment
from tests.helpers.logs import bits

Found = TypeVar("Found")
# Where a server says at which port it listens.
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.server.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.server.level = info
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
LAKEHOUSE = ROOT / ".jars" / "lakehouse"


def wait_for(look: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """Call ``look`` until it returns a true value, and return that value; raise TimeoutError after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = look()
        if result:
            return result
        time.sleep(0.02)
    raise TimeoutError(f"timeout after {seconds:.0f} s: no {what}")


def built_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources in ``folder``, because a build leaves files beside the sources."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "rankmetrics_spark", source / "rankmetrics_spark")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, timeout=120, capture_output=True, stdin=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def python_without_package(folder: Path) -> Path:
    """A Python that has the packages of this one, except rankmetrics_spark (which an import hook installs here)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    site = next(folder.glob("lib/python*/site-packages"))
    # Python ignores .pth files in a folder that another .pth file adds. So the file with the import hook has no effect.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    program = "import pandas, importlib.util as u, sys; sys.exit(u.find_spec('rankmetrics_spark') is not None)"
    subprocess.run([python, "-c", program], cwd=folder, env=spark_environment(), check=True, timeout=60)
    return python


def job_files(folder: Path) -> None:
    """Put what the README's spark-submit names into a folder, and ``python``, which does not have the package."""
    shutil.copy(built_wheel(folder / "dist"), folder / "dist" / "rankmetrics_spark.zip")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    python_without_package(folder / "python")


def packed_python(folder: Path) -> Path:
    """Make ``environment`` and its archive beside ``job_files``; return a file that lists where its Python was used."""
    # Its Python is a script that notes its use. A packed environment would be half a gigabyte.
    python, used = folder / "environment" / "bin" / "python", folder / "used"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\npwd >> "{used}"\nexec "{folder}/python/bin/python" "$@"\n')
    python.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.add(folder / "environment", arcname=".")
    return used


def hadoop_of_spark() -> str:
    """The version of the Hadoop in Spark's jars."""
    (jar,) = Path(spark_environment()["SPARK_HOME"], "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def rows_of(folder: Path, **partition: str) -> list[dict[str, Any]]:
    """The rows of a Parquet table, or of one partition, read without Spark. Partition keys are columns."""
    rows = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
    return [row for row in rows if partition.items() <= row.items()]


def exact_rows(folder: Path, leave_out: str = "", **partition: str) -> list[tuple[object, ...]]:
    """The same rows with bit-exact values, sorted, without the column ``leave_out``."""
    rows = rows_of(folder, **partition)
    return sorted((tuple((n, bits(row[n])) for n in sorted(row) if n != leave_out) for row in rows), key=repr)


@dataclass(frozen=True)
class Running:
    """A process in its own process group, and its output so far."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, command: Sequence[str], log: Path, environment: dict[str, str], cwd: Path) -> "Running":
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
        """Wait for the first match of ``pattern`` in the output.

        Raises:
            RuntimeError: The process ended before its output matched.
            TimeoutError: No match after ``seconds``.
        """
        return wait_for(lambda: self._find(pattern), seconds, f"match of {pattern} in {self.log}")

    def _find(self, pattern: str) -> re.Match[str] | None:
        ended = self.process.poll() is not None
        result = re.search(pattern, self.text())
        if result is None and ended:
            raise RuntimeError(f"exit code {self.process.returncode}, no match of {pattern}: {self.text()[-3000:]}")
        return result

    def below(self) -> list[psutil.Process]:
        """All running descendants of the process."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def kill(self) -> int:
        """Send SIGKILL to the process and its descendants; return how many processes that were."""
        below = self.below()
        self.process.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return 1 + len(below)

    def stop(self) -> None:
        """End the process and its descendants: first with SIGTERM, after five seconds with SIGKILL."""
        below = self.below()
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # Spark's Python processes are in another process group.
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(5)


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster: its URL, and one process per worker, whose executors are child processes."""

    url: str
    workers: tuple[Running, ...]

    def worker_of(self, application: str, executor: str) -> Running:
        """The worker that started the given executor of an application (``app-...``)."""
        started = f"Asked to launch executor {application}/{executor} "
        return next(worker for worker in self.workers if started in worker.text())


@contextmanager
def standalone_cluster(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """Run a master and workers as processes on loopback, ready for ``spark-submit --master``, until the block ends."""
    # The REST submission server of the master would use a fixed port.
    no_rest = "-Dspark.master.rest.enabled=false"
    environment = spark_environment(SPARK_DAEMON_MEMORY="256m", SPARK_MASTER_OPTS=no_rest)
    # Port 0: the system chooses a free port, so no other process can take it first.
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
            # Stop the newest first: a worker ends its executors and reports that to the master.
            for process in reversed(running):
                process.stop()


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str], **more: str) -> Iterator[str]:
    """Run a Connect server with the Spark of this Python in the folder until the block ends; ``more`` are variables."""
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # The system chooses a free port, so no other process can take it first.
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    environment = spark_environment(SPARK_LOG_DIR=str(folder), SPARK_PID_DIR=str(folder), **more)
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--class", main, "--master", "local[2]"]
    command += [word for name, value in (own | {**settings}).items() for word in ("--conf", f"{name}={value}")]
    process = Running.start([*command, "spark-internal"], folder / "log", environment, folder)
    try:
        port = process.wait_for(r"server started at: \S+:(\d+)", 180)[1]
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.stop()


def lakehouse_settings(folder: Path) -> dict[str, str]:
    """Delta tables in Spark's own catalog, Iceberg tables in the catalog ``ice``; with the warehouse of the latter."""
    jars = sorted(map(str, LAKEHOUSE.glob("*.jar")))
    assert len(jars) == 3, f"Delta and Iceberg are not in {LAKEHOUSE}; make test-lakehouse fetches them"
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(folder / "ice"),
        # Otherwise Delta reads its log in fifty tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
