"""The laptop engine: Sail, a Spark Connect server without a JVM, in a child process of its own.

Sail (https://lakesail.com, Apache-2.0) computes with DataFusion. It starts in less than a second and needs no Java.
Only this account can connect to the child, which ends with this process, even if that is killed. docs/engines.md lists
what Sail refuses.
"""

import importlib
import importlib.metadata
import importlib.util
from contextlib import suppress
from typing import TYPE_CHECKING

from rankmetrics_spark import doors, errors as err

if TYPE_CHECKING:
    from rankmetrics_spark.engines.sail.process import Engine, Limits
    from rankmetrics_spark.engines.sail.session import interrupts_end_engine, laptop_session

#: The version of the Spark Connect client that this version of Sail is tested with; both are pinned together.
CLIENT = "4.2.0"
INSTALL = f"{err.installation('laptop')} in an environment of its own"
_HOMES = {"Engine": "process", "Limits": "process", "interrupts_end_engine": "session", "laptop_session": "session"}


def installed() -> bool:
    """Whether this environment holds Sail and the client that goes with it."""
    return _problem() is None


def check_installed() -> None:
    """Refuse an environment that cannot run the laptop engine."""
    problem = _problem()
    if problem:
        raise err.RankmetricsError(f"the engine 'sail' cannot start: {problem}; install both with {INSTALL}")


def _problem() -> str | None:
    if importlib.util.find_spec("pysail") is None:
        return "pysail is not installed"
    version = None
    for name in ("pyspark-client", "pyspark"):
        with suppress(importlib.metadata.PackageNotFoundError):
            version = version or importlib.metadata.version(name)
    if version != CLIENT:
        return f"it is tested with the Spark Connect client {CLIENT}, and this environment has {version or 'none'}"
    return "grpcio is not installed" if importlib.util.find_spec("grpc") is None else None


def __getattr__(name: str) -> object:
    """Import modules that need the client on first use: the child process needs this package without the client."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rankmetrics_spark.engines.sail' has no attribute '{name}'")
    try:
        if _HOMES[name] == "session":
            doors.load_client()
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ImportError as error:
        if name != "laptop_session":
            raise
        problem = f"the engine 'sail' cannot start: {error}; install what it needs with {INSTALL}"

        def refuse(*_: object, **__: object) -> None:
            """Naming it is no error, as for who lists the names of the package; calling it is one, in a sentence."""
            check_installed()
            raise err.RankmetricsError(problem)

        return refuse
