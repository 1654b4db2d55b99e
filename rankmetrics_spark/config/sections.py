"""The sections of a config; each one checks itself, and ``Options`` checks what depends on several of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from rankmetrics_spark.config.fields import (
    Read,
    Section,
    choice,
    count,
    key,
    mapped,
    number,
    refuse,
    settings,
    text,
    texts,
)
from rankmetrics_spark.config.filters import column_names, condition, refuse_substitution, table_name
from rankmetrics_spark.config.options import OPTION, with_options
from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.schemas import JUDGEMENT_ROLES, ROLES

EXAMPLES = 20
"""Users who lost and gained most that a page has of queries; of people it has none unless asked for."""
RATES = {
    "duplicate_rate": "rows that repeat an item or a rank of their list",
    "tie_rate": "evaluated rows that share their score with another row of their list",
    "gap_rate": "lists whose last rank is greater than their number of rows",
    "short_rate": "lists with fewer items than the largest cut-off of the metrics",
    "no_relevant_rate": "lists without a relevant item",
    "unjudged_rate": "lists of users without judgements",
    "shared_user_rate": "users who are in more than one experiment",
}
"""Name -> what it is a share of."""
RATE_NAMES = {
    "duplicate_rate": "repeated rows",
    "tie_rate": "rows with tied scores",
    "gap_rate": "lists with gaps",
    "short_rate": "lists shorter than the largest cut-off",
    "no_relevant_rate": "lists without a relevant item",
    "unjudged_rate": "lists without judgements",
    "shared_user_rate": "users in several experiments",
}
"""Rate of a log -> what it is a share of, as people say it."""
LEVELS = ("warn", "fail", "warn_change", "fail_change")
"""``warn`` and ``fail`` limit a rate; ``warn_change`` and ``fail_change`` limit how far it is from the previous run."""

Limits = Mapping[str, Mapping[str, float]]
"""Rate -> level -> limit."""


def limits(path: str, value: object) -> dict[str, dict[str, float]]:
    """Limits of rates, each from 0 to 1.

    >>> limits("quality.gates", {"tie_rate": {"warn": 0.1, "fail": 0.5}})
    {'tie_rate': {'warn': 0.1, 'fail': 0.5}}
    """
    if not isinstance(value, Mapping):
        raise refuse(path, value, f"a mapping with keys out of {', '.join(RATES)}")
    for rate, levels in value.items():
        if rate not in RATES:
            raise ConfigError(f"{path}: {unknown('rate', rate, RATES)}")
        if not isinstance(levels, Mapping):
            raise refuse(f"{path}.{rate}", levels, f"a mapping with keys out of {', '.join(LEVELS)}")
    return {rate: _levels(f"{path}.{rate}", levels) for rate, levels in value.items()}


def _levels(path: str, value: Mapping[str, object]) -> dict[str, float]:
    for level in value:
        if level not in LEVELS:
            raise ConfigError(f"{path}: {unknown('limit', level, LEVELS)}")
    read = number(0, 1, inclusive=True)
    return {level: cast(float, read(f"{path}.{level}", limit)) for level, limit in value.items()}


@dataclass(frozen=True)
class Format:
    """What is known of a format of inputs before its reader in ``sources`` is called.

    Attributes:
        sections: The sections of a config that may have it.
        on_sail: Whether there is a reader for the engine ``sail``.
        is_text: Whether the format has no types: numbers arrive as text and are read row by row.
        is_utf8: Whether it is always UTF-8, so that readers ignore an encoding.
        has_header: Whether a file without rows still has bytes, so that an empty file has lost its content.
    """

    sections: tuple[str, ...] = ("source", "judgements")
    on_sail: bool = False
    is_text: bool = False
    is_utf8: bool = False
    has_header: bool = False


FORMATS: dict[str, Format] = {
    "parquet": Format(on_sail=True, is_utf8=True, has_header=True),
    "csv": Format(on_sail=True, is_text=True),
    "json": Format(on_sail=True, is_text=True),
    "orc": Format(is_utf8=True, has_header=True),
    "table": Format(on_sail=True),
    "delta": Format(),
    "iceberg": Format(),
    "trec_run": Format(("source",), on_sail=True, is_text=True, is_utf8=True),
    "trec_qrels": Format(("judgements",), on_sail=True, is_text=True, is_utf8=True),
}
"""Name -> format; its reader is registered in ``sources``."""


def _format_of(*sections: str) -> Read:
    """The name of a format that each of these sections may have."""

    def read(path: str, value: object) -> object:
        return choice(*(name for name, each in FORMATS.items() if {*sections} <= {*each.sections}))(path, value)

    return read


_NUMBERS = ("position", "score", "relevance")
"""Roles of columns that hold numbers; all others are names."""
_READ_AS = "How to read it; by default parquet, or table where there is a table."


@dataclass(frozen=True)
class Input(Section):
    """A table to read."""

    roles: ClassVar[Mapping[str, str]] = {}

    format: str = key(None, _format_of("source", "judgements"), _READ_AS)
    path: tuple[str, ...] | None = key(None, texts, "Files or folders; ``{date}`` is the evaluation date.")
    table: str | None = key(None, table_name, "A table of the catalog, instead of ``path``.")
    where: str | None = key(None, condition, "SQL filter on the input's own column names.")
    columns: Mapping[str, str | None] = key({}, mapped({}))
    options: Mapping[str, str] = key({}, settings, "Options of the Spark reader.")

    def __post_init__(self) -> None:
        """Checks the fields, then that there is exactly one place to read from and that the format fits it."""
        super().__post_init__()
        column_names(self.at, self.wanted())
        path, table, given = self.path_of("path"), self.path_of("table"), self.format
        if (self.path is None) == (self.table is None):
            found = "neither" if self.path is None else "both"
            raise ConfigError(f"{path} and {table}: {found} given; allowed: exactly one of the two")
        if self.table and given and given.startswith("trec_"):
            raise refuse(table, self.table, f"{path} instead, since {self.path_of('format')} is '{given}'")
        if self.path and given == "table":
            raise refuse(path, self.path[0], f"{table} instead, since {self.path_of('format')} is 'table'")
        self._settle("format", "table" if self.table else given or "parquet")
        names = [name for name in self.options if name.lower() in ("encoding", "charset")]
        if names and FORMATS[self.format].is_utf8:  # the readers would ignore it
            allowed = f"csv or json with it, since {self.path_of('format')} '{self.format}' is always read as UTF-8"
            raise refuse(f"{self.path_of('options')}.{names[0]}", self.options[names[0]], allowed)

    def wanted(self) -> tuple[str, ...]:
        """Columns of the input that may be read: the mapped ones, and each name that an unmapped role may have.

        Names that differ only in upper and lower case are one column; the spelling of the user wins.

        >>> Judgements(path="truth", columns={"user": "uid"}).wanted()
        ('uid', 'item_id', 'item', 'relevance')
        """
        found: dict[str, str] = {}
        for role, canonical in self.roles.items():
            mapped_to = self.columns.get(role)
            if mapped_to is not None:
                found[mapped_to.lower()] = mapped_to
            elif role not in self.columns:
                found.setdefault(canonical, canonical)
                found.setdefault(role, role)
        return tuple(found.values())

    def ids(self) -> tuple[str, ...]:
        """Those of the columns whose values are names: of experiments, users and items.

        >>> Judgements(path="truth", columns={"user": "uid"}).ids()
        ('uid', 'item_id', 'item')
        """
        numbers = {name for role in _NUMBERS if role in self.roles for name in self._names(role)}
        return tuple(name for name in self.wanted() if name not in numbers)

    def _names(self, role: str) -> tuple[str | None, ...]:
        """The columns that may have a role."""
        return (self.columns[role],) if role in self.columns else (self.roles[role], role)


@dataclass(frozen=True)
@with_options
class Source(Input):
    """The impressions: an ``Input`` with its lists and segments."""

    at: ClassVar[str] = "source"
    roles: ClassVar[Mapping[str, str]] = ROLES

    format: str = key(None, _format_of("source"), _READ_AS)
    columns: Mapping[str, str | None] = OPTION
    list: tuple[str, ...] = OPTION
    segments: tuple[str, ...] = OPTION
    segment_combinations: tuple[tuple[str, ...], ...] = OPTION
    first_rank: int = OPTION
    experiment_from: str = key("tag", choice("tag", "file"), "What names the experiment of a row of a TREC run.")

    def __post_init__(self) -> None:
        """Checks the fields, then that only the experiments of a TREC run are named after its files."""
        super().__post_init__()
        if self.experiment_from == "file" and self.format != "trec_run":
            raise refuse(self.path_of("experiment_from"), "file", f"{self.path_of('format')} 'trec_run' with it")

    def wanted(self) -> tuple[str, ...]:
        """The columns that any input may read, and those of the lists and segments."""
        return tuple({name.lower(): name for name in (*super().wanted(), *self.list, *self.segments)}.values())


@dataclass(frozen=True)
@with_options
class Judgements(Input):
    """The judgements; they define m and the ideal list."""

    at: ClassVar[str] = "judgements"
    roles: ClassVar[Mapping[str, str]] = JUDGEMENT_ROLES

    format: str = key(None, _format_of("judgements"), _READ_AS)
    columns: Mapping[str, str] = OPTION


@dataclass(frozen=True)
@with_options
class Quality(Section):
    """What happens to faulty rows."""

    at: ClassVar[str] = "quality"

    on_invalid: str = key("quarantine", choice("quarantine", "fail"), "``fail`` allows no faulty row.")
    max_invalid_fraction: float = key(
        0.01, number(0, 1, inclusive=True), "Largest fraction of faulty rows, in each experiment and over all."
    )
    repeated_items: str = OPTION
    gates: Mapping[str, Mapping[str, float]] = key(
        {}, limits, "Limits of rates, such as ``{tie_rate: {warn: 0.1, fail: 0.5}}``."
    )


@dataclass(frozen=True)
class Sink(Section):
    """Where the tables go."""

    at: ClassVar[str] = "sink"

    format: str = key("parquet", choice("parquet", "delta", "iceberg"), "Format of the tables.")
    path: str | None = key(None, text, "A folder; ``out`` unless a table is given.")
    mode: str = key(
        "overwrite_partitions", choice("overwrite_partitions"), "A run replaces the partitions that it computed."
    )
    table: str | None = key(None, table_name, "A schema of a catalog for the tables, such as ``main.ranking``.")

    def __post_init__(self) -> None:
        """Checks the fields, then that the format can be written to this place."""
        super().__post_init__()
        path, table, given = self.path_of("path"), self.path_of("table"), self.path_of("format")
        if self.path and self.table:
            raise ConfigError(f"{path} and {table}: both given; allowed: at most one of the two")
        if self.table and self.format == "parquet":
            raise refuse(given, self.format, f"delta or iceberg, since there is a {table}")
        if self.format == "iceberg" and not self.table:
            raise refuse(table, self.table, f"a schema of a catalog, such as lake.ranking, since {given} is 'iceberg'")
        if self.format == "delta":
            # Delta's SQL calls a table in a folder by its path.
            refuse_substitution(path, self.path or "")
        self._settle("path", self.path or (None if self.table else "out"))


@dataclass(frozen=True)
class Report(Section):
    """The page of a run."""

    at = "report"

    file: str | None = key(None, text, "HTML file on this machine for the report; by default there is none.")
    examples: int | None = key(
        None,
        count(0, 100),
        "Users with the largest losses and gains whose lists are on the page: 20 for a TREC run, else none.",
    )

    @classmethod
    def given(cls, path: str, value: object) -> Report:
        """A section, a mapping of its keys, or its file alone."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls.read(value)
        if isinstance(value, (str, os.PathLike)):
            return cls(file=text(path, value))
        raise refuse(path, value, "an HTML file, or a mapping with keys out of file, examples")
