"""The ``__init__.pyi`` of a folder lists what others may use; a module behind it is loaded when a name is used.

Also: what lies beside a module as data.
"""

import ast
import json
import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

#: Modules that an engine loads while it waits for the first query; the package names them, and no folder below does.
LOADED_AHEAD: list[str] = []


def door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, by the imports of its ``__init__.pyi``.

    The first use of a name loads its module, with all names that the stub has of it.

    Args:
        package: Its ``__name__``.

    >>> load, names, public = door("rankmetrics_spark.gates")
    >>> load("gate_checks").__name__, "gate_checks" in names(), "gate_checks" in public
    ('gate_checks', True, True)
    """
    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    home = {alias.name: f"{package}.{node.module}" for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(home[name])
        if "pyspark.sql" in sys.modules:
            load_client()
        for other in (each for each, place in home.items() if place == home[name]):
            setattr(sys.modules[package], other, getattr(module, other))
        return getattr(module, name)

    hidden = [name for name in vars(sys.modules[package]) if name.startswith("__")]
    return load, lambda: sorted({*home, *hidden}), [*home]


def text_of(module: str, name: str) -> str:
    """A file beside a module, which may be in a zip archive."""
    return (pkgutil.get_data(module, name) or b"").decode("utf-8")


def data_of(module: str, name: str) -> dict[str, Any]:
    """A table beside a module: JSON, which a Python worker reads without further packages."""
    return dict(json.loads(text_of(module, f"{name}.json")))


def settings_of(module: str, name: str) -> dict[str, str]:
    """Settings beside a module: ``name=value`` in each line that is no comment."""
    lines = (line for line in text_of(module, f"{name}.properties").splitlines() if line and line[0] != "#")
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def load_client() -> None:
    """Load the client of Spark Connect, if there is one, before any call does.

    If the main module has no file, as with ``python -c``, the client would run its own doctests, and end the process.
    """
    main: Any = sys.modules["__main__"]
    if "pyspark.sql.connect" in sys.modules or hasattr(main, "__file__"):
        return
    main.__file__ = "<main>"
    try:
        with suppress(ImportError):  # where it is needed, its import says so again
            import_module("pyspark.sql.connect")
    finally:
        with suppress(AttributeError):  # two threads may be here
            del main.__file__
