"""Which session a command runs on: one that is there already, or one that the command starts and stops itself."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankmetrics_spark.engines import sail
from rankmetrics_spark.engines.spark import connect_session, local_session
from rankmetrics_spark.errors import ConfigError, RankmetricsError, first_sentence, lost_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS = ("local", "spark://", "yarn", "k8s://")
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Environment variable of every Databricks cluster and of serverless compute."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable of a program that spark-submit has started."""
SOCKET = "unix:"
"""How SPARK_REMOTE starts where a platform connects its own Spark to the process."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For work of a minute: the optimizing compiler of the JVM would cost more than it saves. With the quick one alone, the
cache for code is small by default, and the JVM says on stdout when it is full."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """Which engine a command computes with, and where.

    Attributes:
        engine: ``spark`` or ``sail``.
        address: A master or the address of a Connect server; None = the session of spark-submit, or ``local[*]``.
        given: Whether the session is there already: that of the platform, or the active one of this process.
        brief: Whether the work is small, so that a JVM started for it should not take time to optimize its code.
    """

    engine: str
    address: str | None = None
    given: bool = False
    brief: bool = False

    @property
    def name(self) -> str:
        """What a person calls the engine."""
        return self.engine.capitalize()

    @property
    def here(self) -> bool:
        """Whether local paths are those of this machine, as far as the environment tells."""
        elsewhere = {DATABRICKS, SUBMITTED, "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys()
        return self.engine == "sail" or (not elsewhere and (self.address or "local").startswith("local"))


def choose(engine: str | None = None, master: str | None = None, local: bool = False) -> Choice:
    """The engine and the session of a command. The first of these that there is:

    1. Sail, if it is asked for by name
    2. the session of the platform, or the active one of this process; it is used as it is and never stopped
    3. the Connect server or the master of ``--master``
    4. that of the environment variable ``SPARK_REMOTE``
    5. the session that spark-submit has prepared
    6. Sail, where it is installed and Spark is not asked for by name
    7. Spark on this machine
    """
    if engine == "sail":
        if master is not None:
            raise ConfigError(f"--master is '{master}', but the engine is 'sail'; allowed: one of the two")
        return Choice("sail")
    remote = os.environ.get("SPARK_REMOTE") or None
    address = master or (None if local else remote)
    _check(address)
    if _is_given():
        if master is not None:
            raise ConfigError(f"--master is '{master}', but a session is running here; allowed: no --master")
        return Choice("spark", remote, given=True)
    submitted = SUBMITTED in os.environ and not local
    if engine is None and address is None and not submitted and sail.installed():
        return Choice("sail")
    return Choice("spark", address or ("local[*]" if local else None), brief=local)


@contextmanager
def session_of(choice: Choice, say: Say) -> Iterator[SparkSession]:
    """The chosen session; one that is started here is stopped at the end."""
    if choice.given:
        say("using the session that is running here")
        yield _given_session()
        return
    say(f"starting {choice.name}")
    with sail.interrupts_end_engine() if choice.engine == "sail" else nullcontext():
        spark = _started_session(choice)
        try:
            yield spark
        finally:
            say(f"stopping {choice.name}")
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Stop a session; the error of one whose engine has ended already would hide what ended it."""
    try:
        spark.stop()
    except Exception as error:
        if lost_engine(error) is None:
            raise


def _check(address: str | None) -> None:
    if address is not None and not address.startswith((*MASTERS, "sc://", SOCKET)):
        raise ConfigError(
            f"--master is '{address}'; allowed: an address such as {', '.join(MASTERS)}, or sc://HOST:PORT"
        )


def _of_platform() -> bool:
    return DATABRICKS in os.environ or os.environ.get("SPARK_REMOTE", "").startswith(SOCKET)


def _is_given() -> bool:
    return _of_platform() or _active_session() is not None


def _active_session() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _given_session() -> SparkSession:
    """The session that the platform has, or the active one of this process."""
    active = None if _of_platform() else _active_session()
    return active or _platform_session()


def _platform_session() -> SparkSession:
    """What ``spark`` is in a notebook of the platform."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        # No name and no setting: serverless compute refuses both.
        return SparkSession.builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise RankmetricsError(f"the platform gives no Spark session: {first_sentence(error)}") from error


def _started_session(choice: Choice) -> SparkSession:
    """A session of this command's own: Sail, on a Connect server, that of spark-submit, or with a master."""
    if choice.engine == "sail":
        return sail.laptop_session()
    if choice.address and choice.address.startswith("sc://"):
        return connect_session(choice.address)
    if choice.address is None and SUBMITTED in os.environ:
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName("rankmetrics").getOrCreate()
    conf = {"spark.driver.extraJavaOptions": QUICK_JAVA} if choice.brief else {}
    return local_session(choice.address or "local[*]", conf=conf)


def separate_output() -> bool:
    """Give stderr back to a program of spark-submit, which writes the program's stderr to its own stdout.

    The result on stdout would otherwise stand between the steps, and could not be read as JSON.
    """
    parent = Path("/proc", str(os.getppid()))
    if SUBMITTED not in os.environ:
        return True
    try:
        if b"org.apache.spark.deploy.SparkSubmit" not in (parent / "cmdline").read_bytes():
            return False
    except OSError:  # a system without /proc
        return False
    try:
        if not _can_be_shared(parent):
            return _through_java()
        stderr = os.open(parent / "fd" / "2", os.O_WRONLY | os.O_APPEND)
    except OSError:  # a socket
        return _through_java()
    os.dup2(stderr, 2)
    os.close(stderr)
    return True


class _StderrOfJava(io.TextIOBase):
    """The stderr of spark-submit, which its JVM writes to: where both wrote, each would overwrite the other."""

    encoding = "utf-8"

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        content = text.encode("utf-8", "backslashreplace")
        self._stream.write(content, 0, len(content))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def _through_java() -> bool:
    """Have the JVM of spark-submit write what this process writes to stderr; False if that does not work."""
    try:
        from pyspark.java_gateway import launch_gateway

        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call, unused-ignore]
        stream = _StderrOfJava(gateway.jvm.java.lang.System.err)
        stream.flush()
    except Exception:  # classes of py4j
        return False
    sys.stderr = stream
    return True


def _can_be_shared(process: Path) -> bool:
    """Whether two may write to the stderr of a process: to a pipe, a terminal, or a file to which both append."""
    if not stat.S_ISREG((process / "fd" / "2").stat().st_mode):
        return True
    flags = re.search(r"^flags:\s*([0-7]+)", (process / "fdinfo" / "2").read_text(), re.MULTILINE)
    return flags is not None and bool(int(flags[1], 8) & os.O_APPEND)
