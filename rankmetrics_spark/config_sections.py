"""The sections of a config that stand on their own; what depends on several of them is in ``config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rankmetrics_spark.config_fields import Section, choice, key, mapped, names, number, refuse, settings, text, texts
from rankmetrics_spark.errors import ConfigError

FORMATS = ("parquet", "csv", "json", "orc", "table", "delta", "iceberg")

LONG = {"experiment": "experiment_id", "user": "user_id", "item": "item_id"}
"""Canonical names with a long form."""

RESERVED = (
    "experiment_id", "user_id", "item_id", "position", "score", "relevance", "rejected", "reason", "n_rows", "flagged",
    "entries", "n_lists", "n_shown", "n_relevant", "n_dropped", "n_tied", "segment", "metric", "convention",
    "evaluation_date", "pool", "hash", "run_id", "n_unknown", "doubtful", "whole", "told", "top", "shown", "ranks",
    "mixed", "squares", "steepest", "hits",
)  # fmt: skip
"""Columns that the tables of a run have for themselves: no list or segment column may be called so."""

_ROLES = ("experiment", "user", "item", "position", "score", "relevance")
_JUDGED_ROLES = ("user", "item", "relevance")


@dataclass(frozen=True)
class Input(Section):
    """A table to read.

    Attributes:
        format: How to read it; always ``table`` where a catalog table is named.
        path: Files or folders; ``None`` for a table.
        table: Name in the catalog; ``None`` for files.
        where: SQL filter on the input's own column names.
        columns: Canonical name -> the input's own name, as far as given; ``None`` = the input has no such column.
            Where nothing is given, the input is expected to use the canonical name, or its long form (``user_id``).
        options: Options of the Spark reader.
    """

    roles: ClassVar[tuple[str, ...]] = ()

    format: str = key(None, choice(*FORMATS))
    path: tuple[str, ...] | None = key(None, texts)
    table: str | None = key(None, text)
    where: str | None = key(None, text)
    columns: Mapping[str, str | None] = key({}, mapped(()))
    options: Mapping[str, str] = key({}, settings)

    def __post_init__(self) -> None:
        """Checks the fields, then that there is one place to read from, of a kind that fits the format."""
        super().__post_init__()
        path, table, given = self.path_of("path"), self.path_of("table"), self.format
        if (self.path is None) == (self.table is None):
            found = "neither" if self.path is None else "both"
            raise ConfigError(f"{path} and {table}: {found} given; allowed: exactly one of the two")
        if self.table and given and given.startswith("trec_"):
            raise refuse(table, self.table, f"{path} instead, since {self.path_of('format')} is '{given}'")
        if self.path and given == "table":
            raise refuse(path, self.path[0], f"{table} instead, since {self.path_of('format')} is 'table'")
        self._settle("format", "table" if self.table else given or "parquet")

    def lacks(self, role: str) -> bool:
        """Whether the config says that the input has no such column; one that it does not speak of may be there."""
        return self.columns.get(role, role) is None

    def wanted(self) -> tuple[str, ...]:
        """Every column of the input that may be read: those given, and each name that the others may have.

        >>> Judgements(path="truth", columns={"user": "uid"}).wanted()
        ('uid', 'item_id', 'item', 'relevance')
        """
        found = ([self.columns[role]] if role in self.columns else [LONG.get(role), role] for role in self.roles)
        return tuple(name for names in found for name in names if name is not None)


@dataclass(frozen=True)
class Source(Input):
    """The impressions: an ``Input`` with its lists and segments.

    Attributes:
        list: Further columns that tell apart the lists of one user.
        segments: Columns whose values split the averages.
    """

    at: ClassVar[str] = "source"
    roles: ClassVar[tuple[str, ...]] = _ROLES

    format: str = key(None, choice(*FORMATS, "trec_run"))
    columns: Mapping[str, str | None] = key({}, mapped(_ROLES, nullable=[role for role in _ROLES if role != "user"]))
    list: tuple[str, ...] = key((), names(RESERVED))
    segments: tuple[str, ...] = key((), names(RESERVED))

    def wanted(self) -> tuple[str, ...]:
        """As for any input, and the columns of lists and segments."""
        return (*super().wanted(), *self.list, *self.segments)


@dataclass(frozen=True)
class Judgements(Input):
    """The judgements; they define m and the ideal list."""

    at: ClassVar[str] = "judgements"
    roles: ClassVar[tuple[str, ...]] = _JUDGED_ROLES

    format: str = key(None, choice(*FORMATS, "trec_qrels"))
    columns: Mapping[str, str] = key({}, mapped(_JUDGED_ROLES))


@dataclass(frozen=True)
class Quality(Section):
    """What happens to faulty rows.

    Attributes:
        on_invalid: Put them into quarantine, or fail before anything is written.
        max_invalid_fraction: Faulty rows / rows of an experiment, above which a run fails even so.
        repeated_items: Which repeated items are looked for: those that could change a value, all, or none.
    """

    at: ClassVar[str] = "quality"

    on_invalid: str = key("quarantine", choice("quarantine", "fail"))
    max_invalid_fraction: float = key(0.01, number(0, 1, inclusive=True))
    repeated_items: str = key("relevant", choice("relevant", "all", "ignore"))


@dataclass(frozen=True)
class Comparison(Section):
    """How experiments are compared; ``baseline`` is an experiment id, or ``None`` for no comparison."""

    at: ClassVar[str] = "comparison"

    baseline: str | None = key(None, text)
    confidence: float = key(0.95, number(0, 1, inclusive=False))
    correction: str = key("holm", choice("holm", "bonferroni", "fdr_bh", "none"))


@dataclass(frozen=True)
class Sink(Section):
    """Where the tables go.

    Attributes:
        format: Of the tables.
        path: A folder; ``out`` unless there is a table.
        mode: What a run does to what is there: it replaces exactly what it computed.
        table: A schema of a catalog, such as ``main.ranking``: the tables are ``main.ranking.user_metrics``, ...
    """

    at: ClassVar[str] = "sink"

    format: str = key("parquet", choice("parquet", "delta", "iceberg"))
    path: str | None = key(None, text)
    mode: str = key("overwrite_partitions", choice("overwrite_partitions"))
    table: str | None = key(None, text)

    def __post_init__(self) -> None:
        """Checks the fields, then that the format can be written there."""
        super().__post_init__()
        path, table, given = self.path_of("path"), self.path_of("table"), self.path_of("format")
        if self.path and self.table:
            raise ConfigError(f"{path} and {table}: both given; allowed: at most one of the two")
        if self.table and self.format == "parquet":
            raise refuse(given, self.format, f"delta or iceberg, since there is a {table}")
        if self.format == "iceberg" and not self.table:
            raise refuse(table, self.table, f"a schema of a catalog, such as lake.ranking, since {given} is 'iceberg'")
        self._settle("path", self.path or (None if self.table else "out"))
