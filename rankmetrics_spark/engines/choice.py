"""Which session a command runs on: an existing one, or one that the command starts and stops."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rankmetrics_spark.engines import machine, sail, sessions
from rankmetrics_spark.engines.spark import connect_session, local_session, local_settings
from rankmetrics_spark.errors import ConfigError, RankmetricsError, first_sentence, lost_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS = ("local", "spark://", "yarn", "k8s://")
#: Environment variable of every Databricks cluster and of serverless compute.
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
#: Environment variable of a program that spark-submit has started.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Prefix of SPARK_REMOTE if a platform connects its own Spark to the process.
SOCKET = "unix:"
#: For short runs: the optimizing compiler of the JVM costs more than it saves. With the quick compiler alone, the
#: default code cache is small, and the JVM prints a message on stdout when it is full.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: Settings of SQL that a session has to start with; a run sets the others, and names those that are wrong.
_STATIC = ("spark.sql.catalog", "spark.sql.extensions", "spark.sql.warehouse.dir")
#: Environment variables of a Spark that may see other disks.
_REMOTE = {DATABRICKS, SUBMITTED, "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"}


@dataclass(frozen=True)
class Choice:
    """The engine of a command, and where it runs.

    Attributes:
        engine: ``spark`` or ``sail``.
        address: A master or the address of a Connect server; None = the session of spark-submit, or ``local[*]``.
        given: Whether a session exists: that of the platform, or the active one of this process.
        brief: Whether the work is short, so that a JVM should not spend time on optimizing code.
        settings: What a Spark that is started here starts with.
        joins: Whether the log or its users may be joined with other tables.
    """

    engine: str
    address: str | None = None
    given: bool = False
    brief: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    joins: bool = True

    @property
    def name(self) -> str:
        """Name of the engine in messages."""
        return self.engine.capitalize()

    @property
    def here(self) -> bool:
        """Whether local paths mean this machine, judged by the environment variables."""
        is_local = not _REMOTE & os.environ.keys() and (self.address or "local").startswith("local")
        return self.engine == "sail" or is_local


def choose(
    engine: str | None = None,
    master: str | None = None,
    local: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Choice:
    """Choose engine and session of a command. The first that applies:

    1. Sail, if ``engine`` names it
    2. the session of the platform, or the active one of this process; it is used as it is and never stopped
    3. the Connect server or the master of ``--master``
    4. the Connect server of the environment variable ``SPARK_REMOTE``
    5. the session that spark-submit has prepared
    6. Sail, if it is installed and ``engine`` does not name Spark
    7. Spark on this machine
    """
    if engine == "sail":
        if master is not None:
            raise ConfigError(f"--master is '{master}', but the engine is 'sail'; allowed: one of the two")
        return Choice("sail")
    remote = os.environ.get("SPARK_REMOTE") or None
    address = master or (None if local else remote)
    if address is not None and not address.startswith((*MASTERS, "sc://", SOCKET)):
        raise ConfigError.of("no_master", address=address, masters=MASTERS)
    if _has_session():
        if master is not None:
            raise ConfigError(f"--master is '{master}', but a session is running here; allowed: no --master")
        return Choice("spark", remote, given=True)
    is_submitted = SUBMITTED in os.environ and not local
    if engine is None and address is None and not is_submitted and sail.installed():
        return Choice("sail")
    # Where Spark runs is said by --master alone.
    own = {name for name in settings if name.startswith(_STATIC) or not name.startswith("spark.sql.")}
    settings = {name: settings[name] for name in settings if name in own - {"spark.master", "spark.remote"}}
    return Choice("spark", address or ("local[*]" if local else None), brief=local, settings=settings)


@contextmanager
def session_of(choice: Choice, say: Callable[[str], None]) -> Iterator[SparkSession]:
    """Yield the chosen session; stop it at the end if it was started here."""
    if choice.given:
        say("using the session that is running here")
        yield _existing_session()
        return
    say(_starting(choice))
    with sail.interrupts_end_engine() if choice.engine == "sail" else nullcontext():
        if choice.engine == "sail":
            spark = sail.laptop_session(joins=choice.joins)
        elif choice.address and choice.address.startswith("sc://"):
            spark = connect_session(choice.address)
        elif choice.address is None and SUBMITTED in os.environ:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.appName("rankmetrics")
            if level := _log_level(choice.settings):
                builder = builder.config(sessions.LOG_LEVEL, level)
            spark = builder.getOrCreate()
        else:
            conf = {"spark.driver.extraJavaOptions": QUICK_JAVA} if choice.brief else {}
            try:
                spark = local_session(choice.address or "local[*]", conf={**conf, **choice.settings})
            except Exception as error:
                if isinstance(error, RankmetricsError) or not choice.settings:
                    raise
                cause = first_sentence(error)
                raise ConfigError.of("bad_settings", settings=[*choice.settings], cause=cause) from error
        try:
            yield spark
        finally:
            say(f"stopping {choice.name}")
            try:
                spark.stop()
            except Exception as error:  # if the engine has ended, the error would hide the cause
                if lost_engine(error) is None:
                    raise


def _starting(choice: Choice) -> str:
    """What is started; on this machine also what it may use of it."""
    said = f"starting {choice.name}"
    if choice.engine == "sail":
        limits = sail.Limits.of(joins=choice.joins)
        return f"{said}: {machine.in_words(limits.threads, f'{limits.memory / 2**30:.1f} GiB', machine.roomy_folder())}"
    where = choice.address or ("" if SUBMITTED in os.environ else "local[*]")
    if not where.startswith("local"):
        return said
    settings = local_settings(choice.settings)
    folder = Path(settings["spark.local.dir"])
    return f"{said}: {machine.in_words(where, settings['spark.driver.memory'], folder)}"


def _is_on_platform() -> bool:
    return DATABRICKS in os.environ or os.environ.get("SPARK_REMOTE", "").startswith(SOCKET)


def _has_session() -> bool:
    return _is_on_platform() or _active_session() is not None


def _active_session() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _existing_session() -> SparkSession:
    """Return the active session of this process, or the one that notebooks of the platform call ``spark``."""
    active = None if _is_on_platform() else _active_session()
    if active is not None:
        return active
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        # No name and no setting: serverless compute refuses both.
        return SparkSession.builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise RankmetricsError(f"the platform gives no Spark session: {first_sentence(error)}") from error


def session_in_use() -> SparkSession:
    """The session for tables of Python: that of the platform, the active one, else the laptop engine."""
    if _has_session():
        return _existing_session()
    if not sail.installed():
        raise RankmetricsError.of("no_session", install=sail.INSTALL)
    return sail.laptop_session()


def separate_output() -> bool:
    """Reconnect stderr to that of spark-submit, which writes the program's stderr to its own stdout.

    Otherwise the result on stdout would be mixed with progress messages, and could not be read as JSON.
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
        # Two processes can write to a pipe, to a terminal, or to a file that is opened for appending.
        if stat.S_ISREG((parent / "fd" / "2").stat().st_mode):
            flags = re.search(r"^flags:\s*([0-7]+)", (parent / "fdinfo" / "2").read_text(), re.MULTILINE)
            if flags is None or not int(flags[1], 8) & os.O_APPEND:
                return _write_through_java()
        stderr = os.open(parent / "fd" / "2", os.O_WRONLY | os.O_APPEND)
    except OSError:  # a socket
        return _write_through_java()
    os.dup2(stderr, 2)
    os.close(stderr)
    return True


def _java_system() -> Any:
    """``System`` of the Java that spark-submit has started."""
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call, unused-ignore]
    return gateway.jvm.java.lang.System


def _log_level(settings: Mapping[str, str]) -> str | None:
    """The level of Spark's log in a job of spark-submit: off, like that of local sessions, unless somebody says one."""
    with suppress(Exception):  # classes of py4j
        return settings.get(sessions.LOG_LEVEL) or (None if _java_system().getProperty(sessions.LOG_LEVEL) else "OFF")
    return None


class _StderrOfJava(io.TextIOBase):
    """The stderr of spark-submit, written by its JVM: two processes would overwrite each other's text."""

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


def _write_through_java() -> bool:
    """Let the JVM of spark-submit write this process's stderr; return False if that does not work."""
    try:
        stream = _StderrOfJava(_java_system().err)
        stream.flush()
    except Exception:  # classes of py4j
        return False
    sys.stderr = stream
    return True
