"""Which session a command runs on: one that is there already, or one that the command starts and stops itself."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rankmetrics_spark.errors import ConfigError, RankmetricsError, first_sentence
from rankmetrics_spark.sessions import connect_session, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS = ("local", "spark://", "yarn", "k8s://")
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Environment variable of every Databricks cluster and of serverless compute."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable of a program that spark-submit has started."""
SOCKET = "unix:"
"""How SPARK_REMOTE starts where a platform connects its own Spark to the process."""
Say = Callable[[str], None]


@contextmanager
def chosen_session(master: str | None, say: Say, default: str | None = None) -> Iterator[SparkSession]:
    """The session of a command. The first of these that there is:

    1. the session of the platform, or the active one of this process; it is used as it is and never stopped
    2. the Connect server or the master of ``--master``
    3. that of ``default``, else of the environment variable ``SPARK_REMOTE``
    4. the one that spark-submit has prepared
    5. a local one

    The sessions from 2 on are stopped at the end.

    Args:
        master: What ``--master`` names; None = not given.
        say: Called with a few words before each step.
        default: Goes before ``SPARK_REMOTE`` and spark-submit; for a command that needs this machine.

    Raises:
        ConfigError: ``--master`` is no address, or there is a session already.
        RankmetricsError: No session can be had.
    """
    address = master or default or os.environ.get("SPARK_REMOTE")
    _check(address)
    given = _given_session()
    if given is not None:
        if master is not None:
            raise ConfigError(f"--master is '{master}', but a session is running here; allowed: no --master")
        say("using the session that is running here")
        yield given
        return
    say("starting Spark")
    spark = _started_session(address)
    try:
        yield spark
    finally:
        say("stopping Spark")
        spark.stop()


def on_this_machine(master: str | None) -> bool:
    """Whether local paths are those of this machine, as far as the environment tells."""
    address = master or os.environ.get("SPARK_REMOTE") or "local"
    elsewhere = {DATABRICKS, SUBMITTED, "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys()
    return address.startswith("local") and not elsewhere


def _check(address: str | None) -> None:
    if address is not None and not address.startswith((*MASTERS, "sc://", SOCKET)):
        raise ConfigError(
            f"--master is '{address}'; allowed: an address such as {', '.join(MASTERS)}, or sc://HOST:PORT"
        )


def _given_session() -> SparkSession | None:
    """The session that the platform has, or the active one of this process; None if there is none."""
    if DATABRICKS in os.environ or os.environ.get("SPARK_REMOTE", "").startswith(SOCKET):
        return _platform_session()
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _platform_session() -> SparkSession:
    """What ``spark`` is in a notebook of the platform.

    Raises:
        RankmetricsError: The platform has none.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        # No name and no setting: serverless compute refuses both.
        return SparkSession.builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise RankmetricsError(f"the platform gives no Spark session: {first_sentence(error)}") from error


def _started_session(address: str | None) -> SparkSession:
    """A session of this command's own: on a Connect server, that of spark-submit, or with a master."""
    if address and address.startswith("sc://"):
        return connect_session(address)
    if address is None and SUBMITTED in os.environ:
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName("rankmetrics").getOrCreate()
    return local_session(address or "local[*]")


def separate_output() -> bool:
    """Give stderr back to a program of spark-submit, which writes the program's stderr to its own stdout.

    The result on stdout would otherwise stand between the steps, and could not be read as JSON.

    Returns:
        Whether stderr and stdout are apart.
    """
    parent = Path("/proc", str(os.getppid()))
    if SUBMITTED not in os.environ:
        return True
    try:
        if b"org.apache.spark.deploy.SparkSubmit" not in (parent / "cmdline").read_bytes():
            return False
        if not _can_be_shared(parent):
            return False
        stderr = os.open(parent / "fd" / "2", os.O_WRONLY | os.O_APPEND)
    except OSError:  # a socket, or a system without /proc
        return False
    os.dup2(stderr, 2)
    os.close(stderr)
    return True


def _can_be_shared(process: Path) -> bool:
    """Whether two may write to the stderr of a process: to a pipe, a terminal, or a file to which both append."""
    if not stat.S_ISREG((process / "fd" / "2").stat().st_mode):
        return True
    flags = re.search(r"^flags:\s*([0-7]+)", (process / "fdinfo" / "2").read_text(), re.MULTILINE)
    return flags is not None and bool(int(flags[1], 8) & os.O_APPEND)
