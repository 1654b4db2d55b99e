"""The ``__init__`` of a folder lists what others may use; what is expensive to load is loaded on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

LOADED_AHEAD: list[str] = []
"""Modules that an engine loads while it waits for the first query; the package names them, and no folder below does."""


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package, which loads the module of a name on first use, with all names that it defines.

    Args:
        package: Its ``__name__``.
        modules: Module of the package -> the names that it defines, separated by spaces.

    >>> lazy("rankmetrics_spark", {"errors": "ConfigError HIDDEN"})("HIDDEN")
    '(hidden)'
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(f"{package}.{home[name]}")
        if "pyspark.sql" in sys.modules:
            load_client()
        for other in modules[home[name]].split():
            setattr(sys.modules[package], other, getattr(module, other))
        return getattr(module, name)

    return load


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
