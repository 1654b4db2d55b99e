"""Retention: remove old dates from an output of Parquet tables, and what runs have left behind on the others.

A date is removed in an order in which a reader always sees it whole or not at all: first what its pointer does not
name, then the pointer, then what it named. Whatever ends a prune, the next one removes the rest: until then, who reads
the files without the pointers sees a part of the date. Each date is claimed as runs do it, so that a prune and a run
that writes the date exclude each other.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date as day, datetime, timedelta, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileInfo
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, schemas as sch
from rankmetrics_spark.errors import ConfigError, InputError, OutputError
from rankmetrics_spark.pointers import FOLDER, REFUSED, WITHOUT_ID, Pointers, newest, parse, refused_folder
from rankmetrics_spark.sinks import claims, files as fl, folders, partitions as pt, sql_tables, swapping

#: Date -> the files of its partitions, in all tables.
Stored = dict[str, list[FileInfo]]
#: The folder of a partition.
_PARTITION = re.compile(rf"\w+/(?P<experiment>{sch.EXPERIMENT}=[^/]*/)?{sch.DATE}=(?P<date>[^/]*)")


@dataclass(frozen=True)
class DatePruned:
    """What is done with one date.

    Attributes:
        date: Evaluation date, ISO.
        action: ``removed``; ``tidied`` where only files went that its pointer does not name; ``kept``.
        why: In words.
        files: Files that were removed.
        bytes: Their size.
        runs: Records of runs that were removed.
    """

    date: str
    action: str
    why: str
    files: int = 0
    bytes: int = 0
    runs: int = 0


@dataclass
class Output:
    """An output folder as a prune sees it.

    Attributes:
        files: Its files.
        path: What the user calls it.
        pointers: Date -> what is published there.
        stored: The files of all partitions.
        empty: Date -> the folders of partitions without a file, as a killed prune leaves them.
    """

    files: fl.Files
    path: str
    pointers: Pointers = field(init=False)
    stored: Stored = field(init=False)
    empty: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Reads the pointers, then lists the files: what is published meanwhile is only missing from the list.

        Raises:
            ConfigError: It holds Delta tables.
            InputError: Nothing is published there, or a pointer cannot be read.
        """
        names = [name for name in self.files.names(FOLDER) if name.endswith(".json")]
        texts = {name: self.files.read(f"{FOLDER}/{name}") for name in names}
        # What a pointer names cannot be told from what a killed run has left if the pointer cannot be read.
        if broken := [name for name, text in texts.items() if parse(text) is None]:
            raise InputError.of("no_pointer", path=self.path, folder=FOLDER, name=broken[0])
        self.pointers = newest(texts.values())
        if not self.pointers:
            raise InputError(f"nothing is published in '{self.path}'; allowed: the output folder of an earlier run")
        if any(pointer.format != "parquet" for pointer in self.pointers.values()):
            raise ConfigError.of("no_parquet_output", path=self.path, format=next(iter(self.pointers.values())).format)
        self.stored = {}
        for table in swapping.TABLES:
            entries = self.files.entries(table, recursive=True)
            filled = {self.relative(entry).rpartition("/")[0] for entry in entries}
            for entry in entries:
                path = self.relative(entry)
                folder = path.rpartition("/")[0] if entry.is_file else path
                found = _PARTITION.fullmatch(folder)
                if not found or not (found["experiment"] or table in (*sch.SMALL_TABLES, *sch.OF_DATES)):
                    continue
                # Behind a link are the files of others.
                if self.files.links(swapping.folders_above(f"{folder}/")[1:]):
                    continue
                if entry.is_file and path.endswith(".parquet"):
                    self.stored.setdefault(found["date"], []).append(entry)
                elif not entry.is_file and path not in filled:
                    self.empty.setdefault(found["date"], []).append(path)

    def relative(self, entry: FileInfo) -> str:
        """The path of a file below the output."""
        return str(entry.path)[len(self.files.root) + 1 :]

    def unnamed(self, date: str) -> list[FileInfo]:
        """The files of a date that do not count: where its pointer names others, or, without one, those of runs."""
        id_of = swapping.ids_of(self.pointers[date]) if date in self.pointers else lambda path: WITHOUT_ID
        named = [(entry, self.relative(entry)) for entry in self.stored.get(date, [])]
        return [entry for entry, path in named if swapping.run_in_name(path) != id_of(path)]


def old_dates(pointers: Pointers, keep: int) -> tuple[dict[str, str], str]:
    """Date -> why it is kept, empty if it goes: those before the last ``keep`` up to the newest; the first of these.

    What the comparisons of the last ones name stays; what those of old dates name does not, because with a period
    that moves with the days that would be every date.
    """
    first = (day.fromisoformat(max(pointers)) - timedelta(days=keep - 1)).isoformat()
    reasons = {date: "" for date in sorted(pointers) if date < first}
    for date in sorted(pointers.keys() - reasons.keys()):
        compared = [entry.compared for entry in pointers[date].entries if entry.compared]
        named = {other for each in compared for other in each.runs if other in reasons}
        reasons |= dict.fromkeys(named, f"the comparison of {date} names its runs")
    return reasons, first


def files_of(path: str) -> fl.Files:
    """The files of an output folder, without an engine; an object store is reached with the keys of its own tools.

    Raises:
        ConfigError: Python does not reach the place.
    """
    if disk := fl.of_disk(path.rstrip("/") or "/"):
        return disk
    address = urlsplit(path)
    system = fl.file_system(address.scheme, address.netloc, lambda name: None)
    if system is None:
        raise ConfigError.of("output_out_of_reach", path=path)
    return fl.Files(system[0], system[1] + unquote(address.path).rstrip("/"))


def prune(files: fl.Files, path: str, keep: int | None, dry: bool = False) -> list[DatePruned]:
    """Remove old dates, their run records, and on every date the files that its pointer does not name.

    Args:
        files: The files of the output.
        path: What the user calls it.
        keep: How many days are kept, up to the newest published date, which always stays; None keeps all.
        dry: Only say what would be done.

    Returns:
        A row for each date of which something is removed, and for each old one that is kept; the oldest first.

    Raises:
        ConfigError: The output holds other tables than Parquet.
        InputError: Nothing is published there.
    """
    with folders.writing(path):
        if not dry and files.is_folder(fl.STAGING):
            # A prune that was killed has left its claim, perhaps with nothing to remove that needs another one.
            with _announced(files, new_id()):
                pass
        output = Output(files, path)
        reasons = {} if keep is None else old_dates(output.pointers, keep)[0]
        unsaid = (date for date in reasons if not all(entry.named for entry in output.pointers[date].entries))
        reasons |= dict.fromkeys(unsaid, "its files do not carry the id of their run")
        records = {} if keep is None else _records(output, reasons)
        dates = {*reasons, *output.stored}
        every = sorted(dates | output.empty.keys())
        done = (_of_date(output, date, reasons.get(date), records.get(date, []), dry) for date in every)
        rows = [row for row in done if row]
        expired = {row.date for row in rows if row.action != "kept"} | {date for date in records if date not in dates}
        if not dry:
            gone = [name for date in sorted(expired & records.keys()) for name in records[date]]
            files.for_each(files.remove, gone)
            if files.is_folder(REFUSED):
                files.for_each(files.remove_tree, [refused_folder(Path(name).stem) for name in gone])
        loose = sorted(expired - dates)
        rows += [DatePruned(date, "tidied", "runs that published nothing", runs=len(records[date])) for date in loose]
        return sorted(rows, key=lambda row: row.date)


def prune_tables(spark: SparkSession, sink: cfg.Sink, keep: int, dry: bool = False) -> list[DatePruned]:
    """The same dates of Delta or Iceberg tables in a catalog, which keep their files as earlier versions.

    Raises:
        InputError: Nothing is published there.
    """
    tables = sql_tables.CatalogSchema(spark, str(sink.table), "", sink.format)
    pointers = tables.pointers()
    if not pointers:
        raise InputError(f"nothing is published in '{tables.path}'; allowed: the schema of an earlier run")
    reasons, first = old_dates(pointers, keep)
    stay = ", ".join(f"'{day.fromisoformat(date)}'" for date, why in reasons.items() if why)
    gone = f"{sch.DATE} < '{first}'" + (f" AND {sch.DATE} NOT IN ({stay})" if stay else "")

    def delete(name: str) -> None:
        """One commit."""
        spark.sql(f"DELETE FROM {name} WHERE {gone}")

    # The pointers first: what they do not name is not read.
    for table in () if dry else (FOLDER, *swapping.TABLES, "runs", REFUSED):
        if tables.exists(table):
            sql_tables.commit(tables.format, name := tables.name_of(table), partial(delete, name))
    return [DatePruned(date, *(("kept", why) if why else ("removed", _OLD))) for date, why in sorted(reasons.items())]


_OLD = "older than what is kept"


def _of_date(output: Output, date: str, reason: str | None, records: Sequence[str], dry: bool) -> DatePruned | None:
    """Remove a date whose ``reason`` to stay is empty; of any other, the files that do not count."""
    goes = reason == ""
    doomed = output.stored.get(date, []) if goes else output.unnamed(date)
    kept = DatePruned(date, "kept", reason) if reason else None
    if not (goes or doomed or (date in output.empty and not dry)):
        return kept
    if not dry:
        try:
            with _claimed(output, date):
                if not _removed(output, date, doomed, goes):
                    return DatePruned(date, "kept", "a run has published it meanwhile")
        except OutputError as error:
            return DatePruned(date, "kept", str(error).split(";")[0]) if goes or doomed else kept
    if not (goes or doomed):
        return kept
    size = sum(entry.size or 0 for entry in doomed)
    why = _OLD if goes else reason or "files that its pointer does not name"
    n_runs = sum(name.endswith(".json") for name in records)
    return DatePruned(date, "removed" if goes else "tidied", why, len(doomed), size, n_runs)


def _removed(output: Output, date: str, doomed: Sequence[FileInfo], goes: bool) -> bool:
    """Remove files of a claimed date, and the date itself if it ``goes``; False if its pointer has changed."""
    files, pointer = output.files, output.pointers.get(date)
    unnamed = {output.relative(entry) for entry in output.unnamed(date)}
    # A run of other experiments may be publishing: it places a file of all and writes the pointer behind the same gate.
    with swapping.pointer_gate(files):
        if swapping.pointer_of(files, date) != pointer:
            return False
        # Without its pointer, files that no run has named would count.
        swapping.remove(files, sorted(unnamed))
        for name in (f"{FOLDER}/{date}.next.json", f"{FOLDER}/{date}.json") if goes else ():
            files.remove_tree(name) if files.is_folder(name) else files.remove(name)
    if goes:
        swapping.remove(files, sorted({output.relative(entry) for entry in doomed} - unnamed))
    for folder in output.empty.get(date, ()):
        files.remove_if_empty(folder, *swapping.folders_above(folder)[:0:-1])
    return True


@contextmanager
def _claimed(output: Output, date: str) -> Iterator[str]:
    """Claim a date as a run does; give the id of the claim.

    Raises:
        OutputError: Another run writes it.
    """
    paths = [*map(output.relative, output.stored.get(date, ())), *output.empty.get(date, ())]
    run, experiments = new_id(), {path.split("/")[1] for path in paths if swapping.is_of_run(path)}
    pointer = output.pointers.get(date)
    names = {*map(swapping.experiment_of, experiments), *(pointer.run_of() if pointer else ())}
    partitions = pt.Partitions(date, sorted(names, key=str))
    with _announced(output.files, run) as claim:
        claim.take(partitions, output.path)
        yield run


def new_id() -> str:
    """The id of a command that changes files of an output, as runs have one."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


@contextmanager
def _announced(files: fl.Files, run: str) -> Iterator[claims.Claim | claims.Lease]:
    """A claim on nothing yet, as a run has it; clean up after runs and prunes that were killed."""

    def recovered(dead: claims.ClaimContent) -> None:
        """Clean up after a killed run."""
        swapping.recover(files, dead.run, dead.date, dead.experiments)

    folder, claim = Path(files.at(fl.STAGING)) if files.local else None, None
    try:
        for claim in claims.ways(run, recovered, folder, lambda do, *values: do(files, *values)):
            if claim.open():
                yield claim
                break
    finally:
        if claim is not None:
            claim.release()
        swapping.discard(files, run)


def _records(output: Output, reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Date -> the records and pages of its runs that no pointer names, of dates before those that are kept."""
    files = output.files
    stay = {date for date in output.pointers if reasons.get(date) != ""}
    first = min(date for date in output.pointers if date not in reasons)
    named: set[str] = set()
    for date in stay:
        # On its date, and on those that it is compared with.
        named.update(output.pointers[date].run_of().values())
        for entry in output.pointers[date].entries:
            named.update(chain.from_iterable(entry.compared.runs.values() if entry.compared else ()))
    names = [name for name in files.names("runs") if name.endswith(".json") and name.removesuffix(".json") not in named]
    records: dict[str, list[str]] = {}
    for name, text in zip(names, files.for_each(lambda name: files.read(f"runs/{name}"), names), strict=True):
        record = fl.as_record(text)
        if not record.get(sch.RUN) or record.get("outcome") in _OPEN:
            continue
        date = str(record.get(sch.DATE, ""))
        if date and date < first and date not in stay:
            records.setdefault(date, []).append(f"runs/{name}")
            if f"{name.removesuffix('.json')}.html" in files.names("runs"):
                records[date].append(f"runs/{name.removesuffix('.json')}.html")
    return records


#: Outcomes of runs that have not ended.
_OPEN = ("running", "publishing")


def in_words(rows: Sequence[DatePruned], dry: bool) -> str:
    """What a prune has removed, as one sentence.

    >>> in_words([DatePruned("2026-08-01", "removed", "older than what is kept", 3, 2_000_000, 1)], dry=True)
    'would remove 3 files of 2.0 MB and 1 run record; dates removed: 2026-08-01'
    """
    files, size, runs = (sum(getattr(row, name) for row in rows) for name in ("files", "bytes", "runs"))
    removed, parts = [row.date for row in rows if row.action == "removed"], []
    if removed and not files:
        parts.append(f"{'would remove' if dry else 'removed'} {cfg.dates_in_words(removed)}")
    elif files or runs:
        counts = f"{files:,} file{'s'[: files != 1]} of {size / 1e6:,.1f} MB and {runs:,} run record{'s'[: runs != 1]}"
        parts.append(f"{'would remove' if dry else 'removed'} {counts}")
        parts.append(f"dates removed: {cfg.dates_in_words(removed) or 'none'}")
    return "; ".join(parts) or "nothing to remove"
