"""The page of every option, made from the fields of the config: ``python -m tests.options_page docs/options.md``."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import yaml

from rankmetrics_spark import compare, evaluate, pipeline
from rankmetrics_spark.config import Comparison, Config, Options, Quality, Section, Setting, described, description
from tests.helpers.readme import between, rewrite

CALLS: Mapping[str, tuple[Callable[..., Any], tuple[type[Section], ...]]] = {
    "evaluate": (evaluate, (Options, Comparison)),
    "compare": (compare, (Options, Comparison)),
    "result.check": (pipeline.Result.check, (Quality,)),
}
"""Call -> the sections whose settings are its keywords."""
known = cache(lambda cls: tuple(described(cls)))
HEAD = "| key | default | allowed | what it does | in Python |\n|---|---|---|---|---|"


def keywords(setting: Setting) -> list[str]:
    """The calls with this keyword; with its name where that is not the last part of the path."""
    last, result = setting.path.rpartition(".")[2], []
    for call, (function, sections) in CALLS.items():
        here = any(setting.path == other.path for cls in sections for other in known(cls))
        if here and setting.name in inspect.signature(function).parameters:
            result.append(f"`{call}`" if last == setting.name else f"`{call}({setting.name}=)`")
    return result


def shown(value: object) -> str:
    """A default as a config has it."""
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=10**6).removesuffix("\n").removesuffix("\n...")
    return f"`{text}`" if plain not in (None, [], {}) else ""


def markdown() -> str:
    """The table: a line per setting."""
    settings, keys, lines = description(), {setting.path for setting in known(Config)}, []
    for path, setting in settings.items():
        if path in keys or keywords(setting):
            is_section = any(other.startswith(f"{path}.") for other in settings)
            allowed = "a mapping" if is_section and "keys out of" in setting.allowed else setting.allowed
            help = setting.help.replace("``", "`")
            name = f"`{path}`" if path in keys else f"`{path}`, in Python only"
            cells = [name, shown(setting.default), allowed, help, ", ".join(keywords(setting))]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([HEAD, *lines])


def updated(page: str) -> str:
    """The page with a fresh table between its two markers."""
    return between("options", markdown(), page)


if __name__ == "__main__":
    rewrite(updated)
