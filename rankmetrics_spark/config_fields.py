"""Fields that know how to read themselves: a section of the config is a frozen dataclass made of them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any, ClassVar, TypeAlias, TypeVar

from rankmetrics_spark import errors

Read: TypeAlias = Callable[[str, object], object]
"""(path of the field, raw value) -> checked value; reading a checked value again gives the same value."""

SectionT = TypeVar("SectionT", bound="Section")


def key(default: object, read: Read) -> Any:
    """A field of a section; ``None`` stands for "not given", which is the default, read like any other value."""
    return field(default=None, metadata={"default": default, "read": read})


@dataclass(frozen=True)
class Section:
    """Reads each of its fields once, by the rule declared beside it, however it is constructed.

    Attributes:
        at: Path of the section in the config, which starts every message; empty for the config itself.
    """

    at: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Replaces each raw value by the checked one.

        Raises:
            ConfigError: for a value that is not allowed; the message starts with the path of the field.
        """
        for spec in fields(self):
            value = getattr(self, spec.name)
            value = spec.metadata["default"] if value is None else value
            self._settle(spec.name, None if value is None else spec.metadata["read"](self.path_of(spec.name), value))

    @classmethod
    def path_of(cls, name: str) -> str:
        """Where a field stands in the config, such as ``source.columns``."""
        return f"{cls.at}.{name}" if cls.at else name

    @classmethod
    def read(cls: type[SectionT], value: Mapping[str, object]) -> SectionT:
        """The section that a mapping describes.

        Raises:
            ConfigError: for an unknown key, with the nearest known one, or for a value that is not allowed.
        """
        known = [spec.name for spec in fields(cls)]
        _refuse_unknown(cls.path_of, value, known)
        return cls(**value)

    def _settle(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def refuse(path: str, value: object, allowed: str) -> errors.ConfigError:
    """The one sentence for a value that is not allowed.

    >>> print(refuse("quality.max_invalid_fraction", 1.5, "a number from 0 to 1"))
    quality.max_invalid_fraction is 1.5; allowed: a number from 0 to 1
    """
    return errors.ConfigError(f"{path} is {'null' if value is None else repr(value)}; allowed: {allowed}")


def section(cls: type[Section]) -> Read:
    """A nested section, given as a mapping or ready made."""

    def read(path: str, value: object) -> Section:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise refuse(path, value, f"a mapping with keys out of {', '.join(spec.name for spec in fields(cls))}")
        return cls.read(value)

    return read


def choice(*known: str) -> Read:
    """One of a few words, in any case.

    >>> choice("quarantine", "fail")("quality.on_invalid", "FAIL")
    'fail'
    """

    def read(path: str, value: object) -> str:
        word = str(value).lower()
        if word not in known:
            raise errors.ConfigError(f"{path}: {errors.unknown('value', value, known)}")
        return word

    return read


def number(low: float, high: float, *, inclusive: bool) -> Read:
    """A number between two bounds, which belong to it or not."""
    allowed = f"a number from {low:g} to {high:g}" if inclusive else f"a number above {low:g} and below {high:g}"

    def read(path: str, value: object) -> float:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        figure = float(value) if plain else math.nan  # type: ignore[arg-type]
        if not low <= figure <= high or (not inclusive and figure in (low, high)):
            raise refuse(path, value, allowed)
        return figure

    return read


def text(path: str, value: object) -> str:
    """A text that is not empty; a whole number or a date stands for its digits, as ``baseline: 7`` does.

    >>> text("comparison.baseline", 7)
    '7'
    """
    if isinstance(value, (str, int, date, os.PathLike)) and not isinstance(value, bool):
        found = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        if isinstance(found, str) and found.strip():
            return found
    raise refuse(path, value, "a text (in quotes where YAML would read something else)")


def texts(path: str, value: object) -> tuple[str, ...]:
    """A text or a list of texts."""
    if not isinstance(value, (list, tuple)):
        return (text(path, value),)
    if not value:
        raise refuse(path, value, "a text or a list of texts")
    return tuple(text(f"{path}[{place}]", item) for place, item in enumerate(value))


def listed(path: str, value: object) -> list[object]:
    """The items of a list, or of a text with commas; a comma within parentheses does not separate.

    >>> listed("metrics", "ap@10, rbp(p=0.8,q=1)")
    ['ap@10', 'rbp(p=0.8,q=1)']
    """
    if isinstance(value, str):
        return [part.strip() for part in re.split(r",(?![^()]*\))", value)]
    if isinstance(value, (list, tuple)):
        return list(value)
    raise refuse(path, value, "a list, or a text with commas")


def names(reserved: Iterable[str]) -> Read:
    """Names of columns, each once, none reserved; Spark does not tell upper from lower case, nor do these checks."""
    taken = frozenset(reserved)

    def read(path: str, value: object) -> tuple[str, ...]:
        found = tuple(text(f"{path}[{place}]", item) for place, item in enumerate(listed(path, value)))
        lower = [name.lower() for name in found]
        for place, name in enumerate(lower):
            if name in lower[:place]:
                raise errors.ConfigError(f"{path} names the column '{found[place]}' twice; allowed: each column once")
            if name in taken:
                raise errors.ConfigError(
                    f"{path}[{place}] is '{found[place]}', which is a column of the output; "
                    "allowed: any other column, so rename this one in the input"
                )
        return found

    return read


def mapped(canonical: Iterable[str], nullable: Iterable[str] = ()) -> Read:
    """Canonical column names to the input's own; ``null`` says that the input has no such column."""
    known, optional = tuple(canonical), frozenset(nullable)

    def read(path: str, value: object) -> dict[str, str | None]:
        if not isinstance(value, Mapping):
            raise refuse(path, value, f"a mapping with keys out of {', '.join(known)}")
        _refuse_unknown(lambda name: f"{path}.{name}", value, known)
        return {
            name: None if column is None and name in optional else text(f"{path}.{name}", column)
            for name, column in value.items()
        }

    return read


def settings(path: str, value: object) -> dict[str, str]:
    """Names to scalars, as the texts that Spark takes.

    >>> settings("source.options", {"header": True, "sep": ";", "maxColumns": 10})
    {'header': 'true', 'sep': ';', 'maxColumns': '10'}
    """
    if not isinstance(value, Mapping):
        raise refuse(path, value, "a mapping of names to texts, numbers, true or false")
    for name, setting in value.items():
        if not isinstance(setting, (str, int, float)):
            raise refuse(f"{path}.{name}", setting, "a text, a number, true or false")
    return {
        str(name): str(setting).lower() if isinstance(setting, bool) else str(setting)
        for name, setting in value.items()
    }


def day(path: str, value: object) -> str:
    """A date as YYYY-MM-DD.

    >>> day("evaluation_date", "2026-11-21")
    '2026-11-21'
    """
    given = value.date() if isinstance(value, datetime) else value
    try:
        if date.fromisoformat(str(given)).isoformat() == str(given):
            return str(given)
    except ValueError:
        pass
    raise refuse(path, value, "a date as YYYY-MM-DD")


def _refuse_unknown(path: Callable[[str], str], value: Mapping[Any, object], known: Iterable[str]) -> None:
    names = list(known)
    for name in value:
        if name not in names:
            raise errors.ConfigError(f"{path(name)}: {errors.unknown('key', name, names)}")
