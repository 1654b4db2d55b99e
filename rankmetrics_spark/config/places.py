"""Paths of inputs and outputs: refuse outputs that overlap inputs, and local paths that cannot work."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from rankmetrics_spark.config import fields as fd, filters, sections as sec
from rankmetrics_spark.errors import ConfigError, InputError, OutputError

#: The one folder of an output that may hold the input, as in the output of ``rankmetrics demo``.
INPUT_BELOW_OUTPUT = "input"
TABLES = ("user_metrics", "experiment_metrics", "comparisons", "quarantine", "checks", "refused_checks", "runs")
_WILDCARD = re.compile(r"[*?{}\[\]\\]")
#: Spark does not read files and folders whose names start like this.
_HIDDEN = ("_", ".")
_SCHEME = re.compile(r"(?P<scheme>[a-zA-Z][\w+.-]*):(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Lists(fd.Section, at="sink.lists"):
    """What is stored of each list beside its ranks and grades; the log is read as a metric of it reads it.

    Attributes:
        scores: Store scores, for metrics that need them and for ``ties: expected``.
        intents: Store the intents of items, for metrics that need them.
    """

    scores: bool = fd.key(False, fd.flag)
    intents: bool = fd.key(False, fd.flag)


@dataclass(frozen=True)
class Sink(fd.Section, at="sink"):
    """Where the tables go.

    Attributes:
        format: Format of the tables.
        path: A folder; ``out`` unless a table is given.
        mode: A run replaces the partitions that it computed.
        table: A schema of a catalog for the tables, such as ``main.ranking``.
        layout: ``by_date``: one file per date of each small table, with the experiment as a column.
        user_states: Every so many days of ``comparison.period``, store what users had so far; later days read that.
        lists: Store lists as scored, so that ``rankmetrics recompute`` adds metrics to past dates: true, or its keys.
    """

    format: str = fd.key("parquet", fd.choice("parquet", "delta", "iceberg"))
    path: str | None = fd.key(None, fd.text)
    mode: str = fd.key("overwrite_partitions", fd.choice("overwrite_partitions"))
    table: str | None = fd.key(None, filters.table_name)
    layout: str = fd.key("by_experiment", fd.choice("by_experiment", "by_date"))
    user_states: int | None = fd.key(None, fd.count(1, 366))
    lists: Lists | None = fd.key(False, fd.switched(Lists))

    def __post_init__(self) -> None:
        """Checks the fields, then the path of a Delta table; fills in the place."""
        super().__post_init__()
        if self.format == "delta":
            # Delta's SQL calls a table in a folder by its path.
            filters.refuse_substitution(self.path_of("path"), self.path or "")
        self._settle(path=self.path or (None if self.table else "out"))


def local_path(path: str) -> Path | None:
    """Return the path on this machine's file system; None for other file systems (s3a, hdfs, ...).

    >>> local_path("out"), local_path("file:///out"), local_path("s3a://bucket/out")
    (PosixPath('out'), PosixPath('/out'), None)
    """
    if path.startswith("file:"):
        return Path("/" + path[5:].lstrip("/"))
    return None if "://" in path or path.startswith("dbfs:") else Path(path)


def refuse_overlap(inputs: Iterable[sec.Input], sink: Sink) -> None:
    """Refuse an output that is equal to an input, inside of one, or around one.

    Args:
        inputs: The sections of the inputs.
        sink: The section of the output.

    Raises:
        ConfigError: Names both places.
    """
    for section in inputs:
        place = section.path_of("path" if section.path else "table")
        for location in section.path or (section.table or "",):
            if how := _overlap(location, section.table is not None, sink):
                output = f"{sink.path_of('table' if sink.table else 'path')} '{sink.table or sink.path or ''}'"
                raise ConfigError.of("overlap", output=output, how=how, place=place, location=location)


def _overlap(location: str, is_table: bool, sink: Sink) -> str:
    """Return how the output overlaps an input: its schema, equal to it, inside of it, around it; empty if not."""
    if is_table:
        schema, _, name = location.replace("`", "").lower().rpartition(".")
        same = sink.table is not None and schema == sink.table.replace("`", "").lower() and name in TABLES
        return "the schema of" if same else ""
    if sink.path is None:
        return ""
    source, output = _steps(location, wildcards=True), _steps(sink.path, wildcards=False)
    if not all(fnmatchcase(name, pattern) for pattern, name in zip(source, output, strict=False)):
        return ""
    if len(source) <= len(output):
        return "equal to" if len(source) == len(output) else "inside of"
    first = source[len(output)]
    through_wildcard = list(source[: len(output)]) != output
    apart = not any(fnmatchcase(name, first) for name in TABLES) if through_wildcard else first == INPUT_BELOW_OUTPUT
    return "" if apart else "around"


def _steps(path: str, wildcards: bool) -> list[str]:
    """The file system and the folders of a path; as patterns if it may hold wildcards (``{a,b}`` counts as ``*``)."""
    match = None if local_path(path) else _SCHEME.match(path)
    if match:
        scheme = {"s3": "s3a", "s3n": "s3a"}.get(match["scheme"].lower(), match["scheme"].lower())
        names = [name for name in match["rest"].split("/") if name not in ("", ".")]
        steps = [scheme, *names]
    else:
        local = str(local_path(path))
        has_wildcards = wildcards and _WILDCARD.search(local)
        steps = ["file", *Path(os.path.abspath(local) if has_wildcards else os.path.realpath(local)).parts]
    return [re.sub(r"\{[^}]*\}", "*", step) for step in steps] if wildcards else steps


def check_local_paths(inputs: Sequence[sec.Input], sink: Sink | None = None) -> None:
    """Refuse local paths that cannot work: an input that does not exist, an output that is a file or read-only.

    Call this only where Spark runs on this machine and its default file system is this machine's.

    Raises:
        InputError: An input does not exist, holds no rows or a file that lost its content, or is not what its name
            says.
        OutputError: The output cannot be a folder that this user may write to.
    """
    for source in (section for section in inputs if isinstance(section, sec.Source) and section.ready):
        if (ready := local_path(source.ready or "")) and not os.path.lexists(ready):
            raise unready(source)
    places = [(section, location) for section in inputs for location in section.path or ()]
    local = [(*place, path) for place in places if (path := local_path(place[1])) is not None]
    for section, location, path in local:
        unread, is_pattern = f"cannot read {section.format} from '{location}'", _WILDCARD.search(location)
        if not is_pattern and not os.path.lexists(path):
            base = "" if path.is_absolute() else f", which is relative to the folder of the command, {os.getcwd()}"
            raise InputError.of("no_such_file", unread=unread, at=section.path_of("path"), base=base)
        if sec.FORMATS[section.format].has_header:
            # A file of 0 bytes has lost its rows, and Spark would skip it without a word.
            files = (file for each in (glob(str(path)) if is_pattern else [str(path)]) for file in files_below(each))
            if empty := next((file for file in files if os.path.getsize(file) == 0), None):
                raise InputError.of("empty_file", unread=unread, empty=empty)
    if sink and sink.path:
        check_output(sink.path)
    for section, location, path in local:
        if section.format == "delta" or not path.exists():  # a pattern
            continue
        filled = (Path(file) for file in files_below(str(path)) if os.path.getsize(file))
        first = path if path.is_file() else next(filled, None)
        none = "it is a folder without files that hold rows; allowed: a folder of files, or a file"
        if problem := problem_with_file(first) if first else none:
            raise InputError(f"cannot read {section.format} from '{location}': {problem}")


def unready(section: sec.Source) -> InputError:
    """The error for a log that is not complete yet."""
    return InputError.of("log_not_ready", at=section.path_of("ready"), file=section.ready)


def problem_with_file(file: Path) -> str | None:
    """Why a file is not what its name says; None if it may be: only its first bytes are read."""
    try:
        with file.open("rb") as stream:
            head = stream.read(4)
    except OSError:  # the reader says why
        return None
    ending = file.suffix.lower()
    if not head:
        return "it is empty; allowed: a file with rows"
    if ending in _PACKED and not head.startswith(_PACKED[ending]):
        return f"its name ends with {ending}, and it is not compressed so; allowed: a name without {ending}"
    packed = next((name for name, magic in _PACKED.items() if head.startswith(magic)), None)
    if packed and ending not in _PACKED:
        return f"it is compressed; allowed: a name that ends with {packed}, such as {file.name}{packed}"
    return "its text is UTF-16; allowed: UTF-8" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else None


#: End of a name -> the first bytes of such a file.
_PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}


def files_below(path: str) -> Iterator[str]:
    """Yield this file, or the files in this folder and those below it; hidden ones are skipped."""
    if os.path.isfile(path):
        yield path
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        if not name.startswith(_HIDDEN):
            yield from files_below(os.path.join(path, name))


def check_output(path: str) -> None:
    """Refuse a local folder that cannot be written; a path on another file system is not looked at.

    Raises:
        OutputError: It, or a folder above it, is a file, or this user may not write there.
    """
    folder = local_path(path)
    if folder is None:
        return
    folder = folder.absolute()
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write to '{path}': {reason}; allowed: a folder, or a new path") from None
    nearest = next(step for step in (folder, *folder.parents) if os.path.lexists(step))
    if not nearest.is_dir():
        raise OutputError(f"cannot write to '{path}': '{nearest}' is not a folder; allowed: a folder, or a new path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError.of("read_only", path=path, nearest=nearest)
