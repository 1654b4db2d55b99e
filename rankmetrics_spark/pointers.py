"""``published/<date>.json``: which runs may be read on a date. It is written last, so it switches all tables at once.

The files of a run carry its id in their names. While a run puts its files in place, those of earlier runs lie beside
them; the pointer of the date says which of them count.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date as day
from functools import cached_property
from typing import Any, TypeAlias

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.metrics import parse as parse_metric

FOLDER = "published"
#: Pattern of the id of a run, as the names of its files hold it; ids are in the order of the runs.
RUN_ID = r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}"
#: Stands for files that no run has named: those of Spark's own writer. On a date without a pointer they count.
WITHOUT_ID = ""


def record_path(run_id: str) -> str:
    """Where the record of a run lies in an output."""
    return f"runs/{run_id}.json"


#: The table of the checks of runs that published nothing.
REFUSED = "refused_checks"


def refused_folder(run_id: str) -> str:
    """Where the checks of a run lie that published nothing."""
    return f"{REFUSED}/run={run_id}"


@dataclass(frozen=True)
class Compared:
    """The experiments that one run has compared; their pairs would be many.

    Attributes:
        experiments: In the order in which an earlier one is the baseline of a later one.
        every_pair: Whether every one is compared with all after it, not only the first one.
        runs: Other date -> the runs whose users are compared with those of this run; empty without a period.
    """

    experiments: tuple[str | None, ...]
    every_pair: bool = False
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str | None, int]:
        return {name: place for place, name in enumerate(self.experiments)}

    def has(self, baseline: str | None, candidate: str | None) -> bool:
        """Whether the run has compared these two."""
        first, second = self._places.get(baseline), self._places.get(candidate)
        return first is not None and second is not None and first < second and (self.every_pair or first == 0)


@dataclass(frozen=True)
class Entry:
    """What one run has published on a date, as the file of a pointer has it.

    Attributes:
        run_id: The run.
        experiments: The experiments whose partitions are its, in all tables; None = rows without an experiment.
        tables: Table -> what is known of it: ``rows``. Where tables have versions, ``version`` is one that holds them,
            and ``counted`` their number for each of the experiments.
        convention: Name and hash of the convention.
        named: Whether its files carry its id. Where only Spark reaches the files, they do not.
        merged: The id that its files carry instead, since small ones were merged; empty if none were.
        log: Experiment -> the rows and the users of its log; without those of runs that have not counted them.
        compared: What it has compared; None = nothing.
        unit: What one user stands for: ``user`` or ``query``.
        sealed: SHA-256 of its record; empty until that is complete.
    """

    run_id: str
    experiments: tuple[str | None, ...]
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    convention: Mapping[str, str] = field(default_factory=dict)
    named: bool = True
    merged: str = WITHOUT_ID
    compared: Compared | None = None
    log: Mapping[str | None, tuple[int, int]] = field(default_factory=dict)
    unit: str = "user"
    sealed: str = field(default="", compare=False)

    @property
    def file_id(self) -> str:
        """The id in the names of its files; empty where they have none."""
        return self.merged or (self.run_id if self.named else WITHOUT_ID)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``user_metrics``; empty where they are not known."""
        return tuple(self.tables.get("user_metrics", {}).get("columns") or ())

    @property
    def with_users(self) -> frozenset[str | None]:
        """The experiments that have users, as far as these were counted."""
        return frozenset(name for name in self.experiments if not self.log or self.log.get(name, (0, 0))[1])

    def counted(self, table: str) -> list[int] | None:
        """The rows of each experiment in a version of a table; None if the pointer names no version."""
        return self.tables.get(table, {}).get("counted")

    def without(self, replaced: set[str | None]) -> "Entry":
        """What is left when other runs have replaced some experiments."""
        at = [place for place, name in enumerate(self.experiments) if name not in replaced]
        tables = {
            table: {**facts, "counted": [facts["counted"][place] for place in at]} if "counted" in facts else facts
            for table, facts in self.tables.items()
        }
        return replace(self, experiments=tuple(self.experiments[place] for place in at), tables=tables)


@dataclass(frozen=True)
class Pointer:
    """What may be read on a date.

    Attributes:
        date: Evaluation date, ISO.
        entries: The runs that count, the newest first; no experiment is in two of them.
        sequence: Grows with each run that publishes on this date.
        format: Format of the tables.
        by_date: The id in the names of the files of the small tables, where each has one file of all experiments.
    """

    date: str
    entries: tuple[Entry, ...] = ()
    sequence: int = 0
    format: str = "parquet"
    by_date: str = WITHOUT_ID

    def of_table(self, table: str) -> "Pointer":
        """The pointer as it holds for a table: one file of all experiments is as if one run had written them."""
        if not self.by_date or table not in sch.SMALL_TABLES:
            return self
        return replace(self, entries=(Entry(self.by_date, tuple(self.run_of())),))

    def with_run(self, entry: Entry) -> "Pointer":
        """The pointer after a run: its experiments belong to it, all others stay with the run that they had."""
        names = set(entry.experiments)
        rest = (run.without(names) for run in self.entries if run.run_id != entry.run_id)
        entries = (entry, *(run for run in rest if run.experiments))
        return replace(self, entries=entries, sequence=self.sequence + 1)

    def file_run_of(self) -> dict[str | None, str]:
        """Experiment -> the run that the files have in their names which count."""
        return {name: run.file_id for run in self.entries for name in run.experiments}

    def run_of(self) -> dict[str | None, str]:
        """Experiment -> the run whose rows count."""
        return {name: entry.run_id for entry in self.entries for name in entry.experiments}

    def as_json(self) -> str:
        """The text of the file."""
        newest = self.entries[0]
        document = {
            sch.DATE: self.date,
            sch.RUN: newest.run_id,
            "record": record_path(newest.run_id),
            "sequence": self.sequence,
            "format": self.format,
            "by_date": self.by_date,
            "tables": newest.tables,
            "runs": [
                asdict(entry) | {"log": [entry.log.get(name) for name in entry.experiments]} for entry in self.entries
            ],
            "partitions": [{sch.EXPERIMENT: name, sch.DATE: self.date} for name in newest.experiments],
        }
        return sealed(document)


#: Key of a pointer, a record and a plan: the SHA-256 of its text with an empty one.
SEAL = "sha256"
#: Folder of the plan of an output, and the name of its check.
REGISTERED = "registered"
PLAN = f"{REGISTERED}/plan.json"


def sealed(document: Mapping[str, Any], indent: int = 1) -> str:
    """A document as JSON with the digest of its text."""
    whole = {SEAL: "", **{name: value for name, value in document.items() if name != SEAL}}
    return _with_digest(err.printable_json(json.dumps(whole, indent=indent, ensure_ascii=False, default=str)))


def _with_digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return text.replace(f'"{SEAL}": ""', f'"{SEAL}": "{digest}"', 1)


def is_sealed(text: str) -> bool | None:
    """Whether the digest of a document is that of its text; None if it has none, as before there were digests.

    >>> text = Pointer("2026-11-21", (Entry("r", ("a",)),)).as_json()
    >>> is_sealed(text), is_sealed(text.replace("parquet", "parquex")), is_sealed('{"sequence": 1}')
    (True, False, None)
    """
    head, digest, rest = text.partition(f'"{SEAL}": "')
    return _with_digest(f"{head}{digest}{rest[64:]}") == text if digest else None


def parse(text: str | None) -> Pointer | None:
    """The pointer that a text holds; None if it holds none."""
    try:
        document = json.loads(text or "null")
        runs = []
        for run in document["runs"]:
            names, compared = tuple(run["experiments"]), None
            # Pointers of earlier versions do not say what was compared, or name no runs.
            if stored := run.get("compared"):
                ids_of = {date: tuple(ids) for date, ids in stored.get("runs", {}).items()}
                compared = Compared(tuple(stored["experiments"]), stored["every_pair"], ids_of)
            merged = run.get("merged", WITHOUT_ID)
            log = {name: (each[0], each[1]) for name, each in zip(names, run.get("log", ()), strict=False) if each}
            facts = run["tables"], run["convention"], run["named"], merged, compared, log, run.get("unit", "user")
            runs.append(Entry(run[sch.RUN], names, *facts, sealed=run.get("sealed", "")))
        by_date = document.get("by_date", WITHOUT_ID)
        return Pointer(document[sch.DATE], tuple(runs), document["sequence"], document["format"], by_date)
    except (ValueError, KeyError, TypeError):
        return None


def newest(texts: Iterable[str | None]) -> dict[str, Pointer]:
    """Date -> its pointer; the last one written, if a date has several."""
    pointers: dict[str, Pointer] = {}
    for pointer in filter(None, map(parse, texts)):
        if pointer.date not in pointers or pointers[pointer.date].sequence < pointer.sequence:
            pointers[pointer.date] = pointer
    return pointers


#: Date -> what is published there.
Pointers: TypeAlias = Mapping[str, Pointer]


def unit_in(pointers: Pointers) -> str:
    """What one user of the newest date stands for.

    >>> unit_in({day: Pointer(day, (Entry("r", (), unit=unit),)) for day, unit in (("1", "user"), ("2", "query"))})
    'query'
    """
    return pointers[max(pointers)].entries[0].unit if pointers else "user"


#: Baseline and candidate, and the metric that is compared.
Pair: TypeAlias = tuple[str | None, str | None, str]


#: What knows the number of a look at a metric of a pair, or gives None where earlier looks are not known.
LookNumbers: TypeAlias = "History | Mapping[Pair, int]"


def unknown_looks() -> LookNumbers:
    """No number for any pair."""
    return {}


@dataclass(frozen=True)
class History:
    """Earlier dates, for the number of the next look at a metric of a pair.

    Attributes:
        days: What the runs of each date have compared, with the experiments that are theirs, and the columns of their
            users; no columns where these are not known.
        own: How many of the dates are that of the run itself: what it has replaced there, if anything, is not asked.
    """

    days: tuple[tuple[tuple[Compared, frozenset[str | None], frozenset[str]], ...], ...] = ()
    own: int = 0

    @classmethod
    def before(cls, date: str, pointers: Pointers, first: str = "", own: str = "") -> "History":
        """The dates before ``date``, and not before ``first``; ``own`` is that of the run."""
        runs = [pointer.entries for day, pointer in pointers.items() if first <= day < date and day != own]
        days = (
            ((each.compared, frozenset(each.experiments), frozenset(each.columns)) for each in of_day if each.compared)
            for of_day in runs
        )
        return cls(tuple(map(tuple, days)), int(first <= own < date) if own else 0)

    def get(self, pair: Pair, /) -> int:
        """The number of the next look at (baseline, candidate, metric): 1 + the dates on which it was compared.

        >>> entry = Entry("r", ("b", "c"), compared=Compared(("a", "b", "c")))
        >>> days = {day: Pointer(day, (entry,)) for day in ("2026-11-07", "2026-11-08")}
        >>> earlier = History.before("2026-11-09", days)
        >>> earlier.get(("a", "b", "rr")), earlier.get(("b", "c", "rr"))
        (3, 1)
        >>> History.before("2026-11-08", days, "2026-11-07", own="2026-11-07").get(("a", "b", "rr"))
        2
        """
        *names, metric = pair
        column = parse_metric(metric).column
        looks = (
            any(names[1] in own and (not known or column in known) and run.has(*names) for run, own, known in day)
            for day in self.days
        )
        return 1 + self.own + sum(looks)


def dates_without(column: str, table: str, pointers: Pointers) -> list[str]:
    """The dates on which a run has published a table that lacks a column, ascending; where it is known.

    >>> entry = Entry("r", ("a",), {"user_metrics": {"columns": ["ap"]}})
    >>> dates_without("rr", "user_metrics", {"2026-11-08": Pointer("2026-11-08", (entry,))})
    ['2026-11-08']
    """
    dates = []
    for date, pointer in pointers.items():
        known = (entry.tables.get(table, {}).get("columns") for entry in pointer.entries)
        if any(columns and column not in columns for columns in known):
            dates.append(date)
    return sorted(dates)


def newest_state(
    pointers: Pointers, dates: Iterable[str], columns: Mapping[str, str], names: Collection[str | None] | None = None
) -> tuple[str, frozenset[str]] | None:
    """The date whose states of users hold for most of these dates, and the dates that they are about; None if none is.

    A run has added up the users of its date and of the runs that it has compared them with: that holds as long as
    these are the runs that are published.

    Args:
        pointers: Date -> what is published.
        dates: The dates that are compared.
        columns: Columns that the states need -> their types.
        names: The experiments that are compared; by default all.
    """
    of_dates, found = {date: pointers[date] for date in dates if date in pointers}, []
    for date, entry in ((date, entry) for date, pointer in of_dates.items() for entry in pointer.entries):
        stored = entry.tables.get(sch.USER_STATES, {}).get("columns", {})
        if entry.compared is None or not columns.items() <= stored.items():
            continue
        own, covered = entry.with_users, {date, *entry.compared.runs}
        if not covered <= of_dates.keys():
            continue
        runs = {day: of_dates[day].entries for day in covered}
        others = {name for entries in runs.values() for each in entries for name in each.with_users - own}
        now = {day: tuple(each.run_id for each in runs[day] if own & {*each.experiments}) for day in runs}
        is_same = now == {date: (entry.run_id,), **entry.compared.runs}
        if is_same and others.isdisjoint(others if names is None else names):
            found.append((len(covered), date, frozenset(covered)))
    return max(found, key=lambda each: each[:2])[1:] if found else None


#: Dates that a message names if nothing is published on the date of the request.
NEAREST = 3


def unpublished(date: str, dates: Iterable[str]) -> str:
    """A message for a date on which nothing is published, with the nearest dates that are.

    >>> unpublished("2026-11-21", ["2026-01-01", "2026-11-18", "2026-11-20", "2026-11-30"])
    'nothing is published on 2026-11-21; the nearest dates that are published: 2026-11-18, 2026-11-20, 2026-11-30'
    """
    nearest = sorted(dates, key=lambda candidate: abs(_ordinal(candidate) - _ordinal(date)))[:NEAREST]
    return f"nothing is published on {date}; the nearest dates that are published: {', '.join(sorted(nearest))}"


def _ordinal(date: str) -> int:
    try:
        return day.fromisoformat(date).toordinal()
    except ValueError:  # a folder that another program has named
        return 0
