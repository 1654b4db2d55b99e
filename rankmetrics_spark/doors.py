"""The ``__init__`` of a folder lists what others may use; what is expensive to load is loaded on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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
        for other in modules[home[name]].split():
            setattr(sys.modules[package], other, getattr(module, other))
        return getattr(module, name)

    return load
