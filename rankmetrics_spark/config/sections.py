"""The sections of a config; each one checks itself, and ``Options`` checks what depends on several of them."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

from rankmetrics_spark import doors, errors as err, schemas as sch
from rankmetrics_spark.config import contents, fields as fd, filters
from rankmetrics_spark.config.options import Packed, PackedJudgements, SectionWithOptions, option


class Rate(NamedTuple):
    """A rate of a log: what it is a share of, the same as people say it, and what it says of a share.

    ``parts`` are the counts that it divides; a rate of the whole log alone has none.
    """

    of: str
    name: str
    sentence: str
    parts: Sequence[str] = ()


RATES = {name: Rate(**words) for name, words in doors.data_of(__name__, "rates").items()}
#: ``warn`` and ``fail`` limit a rate; ``warn_change`` and ``fail_change`` limit how far it is from the previous run.
LEVELS = ("warn", "fail", "warn_change", "fail_change")

#: What is held against earlier days -> level -> how its limit is read; a change of 0.5 is half of the median.
PAST: dict[str, dict[str, fd.Read]] = {
    **dict.fromkeys(("rows", "users"), dict.fromkeys(LEVELS[2:], fd.number(0, 100, inclusive=True, share=True))),
    "experiments": {"missing": fd.choice("warn", "fail")},
}
USUAL_PAST: Mapping[str, Mapping[str, Any]] = doors.data_of(__name__, "past")

#: Rate -> level -> limit.
Limits = Mapping[str, Mapping[str, float]]


def limits(path: str, value: object) -> dict[str, dict[str, Any]]:
    """Limits of rates, each from 0 to 1, and of what is held against earlier days.

    >>> limits("quality.gates", {"tie_rate": {"warn": 0.1, "fail": 0.5}, "rows": {"fail_change": 2}})
    {'tie_rate': {'warn': 0.1, 'fail': 0.5}, 'rows': {'fail_change': 2.0}}
    """
    if not isinstance(value, Mapping):
        raise fd.refuse(path, value, f"a mapping with keys out of {', '.join([*RATES, *PAST])}")
    share, checked = fd.number(0, 1, inclusive=True), {}
    for rate, levels in value.items():
        err.check_known("rate", [str(rate)], [*RATES, *PAST], path)
        readers = PAST.get(rate) or dict.fromkeys(LEVELS, share)
        if not isinstance(levels, Mapping):
            raise fd.refuse(f"{path}.{rate}", levels, f"a mapping with keys out of {', '.join(readers)}")
        err.check_known("limit", map(str, levels), readers, f"{path}.{rate}")
        checked[rate] = {level: readers[level](f"{path}.{rate}.{level}", each) for level, each in levels.items()}
    return checked


class Format(NamedTuple):
    """What is known of a format of inputs before its reader in ``sources`` is called.

    Attributes:
        sections: The sections of a config that may have it.
        on_sail: Whether there is a reader for the engine ``sail``.
        is_text: Whether the format has no types: numbers arrive as text and are read row by row.
        is_utf8: Whether it is always UTF-8, so that readers ignore an encoding.
        has_header: Whether a file without rows still has bytes, so that an empty file has lost its content.
        endings: How the names of its files end, before ``.gz`` or ``.zst``.
    """

    sections: Sequence[str] = ("source", "judgements")
    on_sail: bool = False
    is_text: bool = False
    is_utf8: bool = False
    has_header: bool = False
    endings: Sequence[str] = ()


#: Name -> format; its reader is registered in ``sources``.
FORMATS = {name: Format(**known) for name, known in doors.data_of(__name__, "formats").items()}


def format_of(*sections: str) -> fd.Read:
    """The name of a format that each of these sections may have."""
    return fd.choice(listed=lambda: [name for name, each in FORMATS.items() if {*sections} <= {*each.sections}])


#: Roles of columns that hold numbers; all others are names.
_NUMBERS = ("position", "score", "relevance")
#: End of the name of a file -> its format.
ENDINGS = {ending: name for name, format in FORMATS.items() for ending in format.endings}
#: The end of the name of a file that says its format, and is no part of the experiment that it names.
ENDING = re.compile(rf"(?i)[.](?P<format>{'|'.join(ENDINGS)}|trec|predictions)([.](gz|zst))?$")


def experiment_of(path: str, named_by: str) -> str:
    """The experiment that the path of a file names: ``named_by`` the ``file`` or its ``folder``.

    A file is named without the ending of its format. Folders such as ``day=2026-11-20`` name no experiment.

    >>> experiment_of("logs/control/day=2026-11-20/a.csv.gz", "file"), experiment_of("logs/control/d=1/a.csv", "folder")
    ('a', 'control')
    """
    *folders, name = path.split("/")
    if named_by == "file":
        return ENDING.sub("", name)
    return next((folder for folder in reversed(folders) if folder and "=" not in folder), "")


#: Files and folders, or those of each experiment.
Paths: TypeAlias = tuple[str, ...] | Mapping[str, tuple[str, ...]]


def _format_by_name(path: str, paths: tuple[str, ...]) -> str | None:
    """The format that the names of all these files end with; None if they say none.

    >>> _format_by_name("source.path", ("logs/*.csv.gz", "b.csv")), _format_by_name("source.path", ("logs", "b.csv"))
    ('csv', None)
    """
    endings = [ENDING.search(name) for name in paths]
    formats = dict.fromkeys(ending and ENDINGS.get(ending["format"].lower()) for ending in endings)
    if len(formats.keys() - {None}) > 1:
        raise fd.refuse(path, list(paths), "files of one format, or a mapping of each experiment to its files")
    return next(iter(formats)) if len(formats) == 1 else None


def _of_experiments(path: str, value: object) -> Paths:
    """Files or folders, as a text or a list; or a mapping of each experiment to its own.

    >>> _of_experiments("source.path", {"control": "a.parquet", "new": ["b/*.csv", "c.csv"]})
    {'control': ('a.parquet',), 'new': ('b/*.csv', 'c.csv')}
    """
    if isinstance(value, (str, list, tuple, int, os.PathLike)):
        return fd.texts(path, value)
    allowed = "a text, a list of texts, or a mapping of each experiment to its files"
    return fd.mapping(allowed, fd.texts, bool)(path, value)  # type: ignore[return-value]


@dataclass(frozen=True)
class Input(fd.Section):
    """A table to read.

    Attributes:
        format: How to read it; by default as the names of its files end, table where there is a table, else parquet.
        path: Files or folders, relative to where the command runs; ``{date}`` is the evaluation date.
        table: A table of the catalog, instead of ``path``.
        where: SQL filter on the input's own column names.
        options: Options of the Spark reader.
    """

    roles: ClassVar[Mapping[str, str]] = {}

    format: str = fd.key(None, format_of("source", "judgements"))
    path: tuple[str, ...] | None = fd.key(None, fd.texts)
    table: str | None = fd.key(None, filters.table_name)
    where: str | None = fd.key(None, filters.condition)
    columns: Mapping[str, str | None] = fd.key({}, fd.mapped({}))
    options: Mapping[str, str] = fd.key({}, fd.settings)

    def __post_init__(self) -> None:
        """Checks the fields, then that the format fits the place, and settles it."""
        super().__post_init__()
        filters.column_names(self.at, self.required_columns())
        own_format, path_of = self.format, self.path_of
        if self.path and own_format == "table":
            allowed = f"{path_of('table')} instead, since {path_of('format')} is 'table'"
            raise fd.refuse(path_of("path"), next(iter(self.path)), allowed)
        self._settle(format="table" if self.table else own_format or self._format_of_files())
        if not own_format and contents.separated_by_tabs(self.path, self.options):
            self._settle(options={**self.options, "sep": "\t"})
        names = [name for name in self.options if name.lower() in ("encoding", "charset")]
        if names and self.format and FORMATS[self.format].is_utf8:  # the readers would ignore it
            allowed = f"csv or json with it, since {path_of('format')} '{self.format}' is always read as UTF-8"
            raise fd.refuse(f"{path_of('options')}.{names[0]}", self.options[names[0]], allowed)

    @property
    def paths(self) -> tuple[str, ...]:
        """All files and folders."""
        return self.path or ()

    @property
    def place(self) -> str:
        """Where the rows are from, with the filter that they passed, for messages."""
        filtered = f" that fulfil {self.path_of('where')} {self.where!r}" if self.where else ""
        return f"{self.table or ', '.join(self.paths)}{filtered}"

    def _format_of_files(self) -> str | None:
        """The format that the names of the files say; parquet where they say none."""
        return _format_by_name(self.path_of("path"), self.path or ()) or "parquet"

    def required_columns(self) -> tuple[str, ...]:
        """Columns of the input that may be read: the mapped ones, and each name that an unmapped role may have.

        Names that differ only in upper and lower case are one column; the spelling of the user wins.

        >>> Judgements(path="truth", columns={"user": "uid"}).required_columns()
        ('uid', 'item_id', 'item', 'relevance', 'intents')
        """
        roles: dict[str, str] = {}
        for role, canonical in self.roles.items():
            mapped_to = self.columns.get(role)
            if mapped_to is not None:
                roles[mapped_to.lower()] = mapped_to
            elif role not in self.columns:
                roles.setdefault(canonical, canonical)
                roles.setdefault(role, role)
        for name in filter(None, map(self.columns.get, (sch.ITEMS, sch.TIME, "machine"))):
            roles[name.lower()] = name
        return tuple(roles.values())

    def ids(self) -> tuple[str, ...]:
        """Those of the columns whose values are names: of experiments, users and items.

        >>> Judgements(path="truth", columns={"user": "uid"}).ids()
        ('uid', 'item_id', 'item', 'intents')
        """
        return tuple(name for name in self.required_columns() if name not in self.numbers())

    def numbers(self) -> set[str | None]:
        """Those of the columns whose values are numbers."""
        of_numbers = [role for role in _NUMBERS if role in self.roles]
        named = {self.columns.get(role, role) for role in of_numbers}
        return named | {self.roles[role] for role in of_numbers if role not in self.columns}


#: The column of the kind of a row, and the kind of impressions.
_kind_of_rows = fd.mapping(
    "a mapping such as {column: event, shown: impression}", fits=lambda given: {*given} in (set(), {"column", "shown"})
)


@dataclass(frozen=True)
class Source(Input, SectionWithOptions, at="source"):
    """The impressions: an ``Input`` with its lists and segments.

    Attributes:
        path: Files or folders from where the command runs, or experiment: files; ``{date}`` is the evaluation date.
        experiment_from: What names the experiment of a row: its column (of a TREC run, the tag), its file, or the
            folder of its file.
        rows: Of a table that holds events too: the column with the kind of a row, and that of impressions.
        ready: A path that is there once the log is complete, such as ``logs/{date}/_SUCCESS``; until then, exit code 3.
        team: Of interleaved lists: the column with the ranker that drafted the item; ``rankmetrics interleaving``.
        ranks: Of balanced interleaving: ranker -> the column with its own rank of the item; two of them.
    """

    roles: ClassVar[Mapping[str, str]] = sch.ROLES

    format: str = fd.key(None, format_of("source"))
    path: Paths | None = fd.key(None, _of_experiments)  # type: ignore[assignment]
    columns: Mapping[str, str | None] = option("columns")
    packed: Packed | None = option("packed")
    list: tuple[str, ...] = option("list")
    segments: tuple[str, ...] = option("segments")
    segment_combinations: tuple[tuple[str, ...], ...] = option("segment_combinations")
    first_rank: int = option("first_rank")
    experiment_from: str = fd.key("tag", fd.choice("tag", "file", "folder"))
    rows: Mapping[str, str] = fd.key({}, _kind_of_rows)
    ready: str | None = fd.key(None, fd.text)
    team: str | None = fd.key(None, fd.text)
    ranks: Mapping[str, str] = fd.key({}, fd.two_ranks)

    def __post_init__(self) -> None:
        """Checks the fields, then that one thing names the experiments."""
        super().__post_init__()
        if isinstance(self.path, Mapping) and self.experiment_from != "tag":
            raise self._refused("experiment_from", f"tag, since {self.path_of('path')} names the experiments")
        if self.names_experiments and "experiment" in self.columns:
            other = self.path_of("path" if isinstance(self.path, Mapping) else "experiment_from")
            raise err.ConfigError.of("two_names_of_experiments", columns=self.path_of("columns"), other=other)

    @property
    def names_experiments(self) -> bool:
        """Whether a place names the experiment of a row, not a column."""
        return isinstance(self.path, Mapping) or self.experiment_from != "tag"

    def by_experiment(self) -> "dict[str, Source]":
        """Experiment -> its part of the input, where ``path`` names the experiments; else nothing."""
        paths = self.path if isinstance(self.path, Mapping) else {}
        columns = {**self.columns, "experiment": None}
        return {name: replace(self, path=files, format=self.format, columns=columns) for name, files in paths.items()}

    @property
    def parts(self) -> "tuple[Source, ...]":
        """The inputs that this stands for: one for each experiment that ``path`` names, else itself."""
        return tuple(self.by_experiment().values()) or (self,)

    @property
    def paths(self) -> tuple[str, ...]:
        """All files and folders, those of one experiment after those of another."""
        return tuple(file for part in self.parts for file in part.path or ())

    def _format_of_files(self) -> str | None:
        """The format that the names of the files say; None if the experiments differ in it."""
        if not isinstance(self.path, Mapping):
            return super()._format_of_files()
        at = self.path_of("path")
        formats = {_format_by_name(f"{at}.{name}", files) or "parquet" for name, files in self.path.items()}
        return formats.pop() if len(formats) == 1 else None

    def required_columns(self) -> tuple[str, ...]:
        """The columns that any input may read, and those of the lists and segments."""
        names = super().required_columns()
        if self.names_experiments:
            names = tuple(name for name in names if name not in (sch.EXPERIMENT, "experiment"))
        rankers = (*filter(None, [self.team, self.rows.get("column")]), *self.ranks.values())
        return tuple({name.lower(): name for name in (*names, *self.list, *self.segments, *rankers)}.values())


@dataclass(frozen=True)
class Judgements(Input, SectionWithOptions, at="judgements"):
    """The judgements; they define m and the ideal list."""

    roles: ClassVar[Mapping[str, str]] = sch.JUDGEMENT_ROLES

    format: str = fd.key(None, format_of("judgements"))
    columns: Mapping[str, str] = option("judgement_columns")
    packed: PackedJudgements | None = option("judgement_packed")


@dataclass(frozen=True)
class MachineJudgements(Input, SectionWithOptions, at="machine_judgements"):
    """The judgements of a machine, in a table of their own."""

    roles: ClassVar[Mapping[str, str]] = sch.MACHINE_ROLES

    format: str = fd.key(None, format_of("judgements"))
    columns: Mapping[str, str] = option("machine_columns")


@dataclass(frozen=True)
class Events(Input, SectionWithOptions, at="events"):
    """Clicks and the like in rows of their own; without a place, they are in the table of the source."""

    columns: Mapping[str, Any] = option("event_columns")
    grades: Mapping[str, float] = option("grades")
    within: str | None = option("within")
    #: The column of the kind of a row, and the kind of impressions, which are no events: see ``Source.rows``.
    others: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def required_columns(self) -> tuple[str, ...]:
        """The columns of the events that may be read."""
        named = [name for role, name in self.columns.items() if role != "list"]
        defaults = (name for role, names in sch.EVENT_NAMES.items() if role not in self.columns for name in names)
        kind = [self.others["column"]] if self.others else []
        return tuple(dict.fromkeys([*self.columns.get("list", ()), *named, *defaults, *kind]))


def events_of(path: str, value: object) -> Events | Mapping[str, object]:
    """The events; a mapping without a place is read with that of the source: see ``events_beside``."""
    if isinstance(value, Mapping) and not {"path", "table"} & {*value}:
        return value
    return fd.section(Events)(path, value)  # type: ignore[return-value]


def events_beside(source: Source, given: Events | Mapping[str, object] | None) -> Events | None:
    """The events: without a place of their own, those in the table of the impressions."""
    if not isinstance(given, Mapping):
        # In a record, they have the place of the source.
        beside = given and source.rows and (given.path, given.table) == (source.path, source.table)
        return replace(given, others=source.rows) if given and beside else given
    if not source.rows or isinstance(source.path, Mapping):
        raise err.ConfigError.of("events_without_place")
    place = {name: getattr(source, name) for name in ("format", "path", "table", "where", "options")}
    read = Events.read({**{name: value for name, value in place.items() if value}, **given})
    return replace(read, others=source.rows)


@dataclass(frozen=True)
class Quality(SectionWithOptions, at="quality"):
    """What happens to faulty rows.

    Attributes:
        on_invalid: ``fail`` allows no faulty row or judgement.
        max_invalid_fraction: Largest fraction of faulty judgements or rows, also in each experiment.
        gates: Limits of rates, such as ``{tie_rate: {warn: 0.1, fail: 0.5}}``.
        on_broken_split: If users do not follow ``comparison.shares``.
    """

    on_invalid: str = fd.key("quarantine", fd.choice("quarantine", "fail"))
    max_invalid_fraction: float = fd.key(0.01, fd.number(0, 1, inclusive=True))
    repeated_items: str = option("repeated_items")
    gates: Mapping[str, Mapping[str, Any]] = fd.key({}, limits)
    on_broken_split: str = fd.key("fail", fd.choice("fail", "warn"))

    @property
    def rates(self) -> Limits:
        """Limits of rates."""
        return {name: levels for name, levels in self.gates.items() if name in RATES}

    @property
    def past(self) -> dict[str, Mapping[str, Any]]:
        """Limits of what differs from earlier days: those of the config, and a warning where it has none."""
        every = {**USUAL_PAST, **self.gates}
        return {name: every[name] for name in PAST if every[name]}

    @property
    def allowed_fraction(self) -> float:
        """Largest fraction of rows that may be left out."""
        return 0.0 if self.on_invalid == "fail" else self.max_invalid_fraction
