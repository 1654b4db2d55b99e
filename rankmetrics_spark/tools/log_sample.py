"""The first rows of a log, read without an engine: from a file, from a few files of a folder, or from TREC runs."""

import csv
import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import numpy as np
import pandas as pd
import yaml

from rankmetrics_spark import config as cfg, doors, schemas as sch
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.tools.lists_of_rows import PLACE, Lists, columns_of, lists_of, with_fields

SAMPLE_ROWS = 200_000
FORMAT_OF = {".parquet": "parquet", ".pq": "parquet"} | {f".{end}": name for end, name in cfg.ENDINGS.items()}
#: What people call columns, kinds of events, and what is no experiment.
WORDS = yaml.safe_load(doors.text_of(__name__, "names.yaml"))
#: Role -> the names that people give its column, the most telling first.
OWN_NAMES = WORDS["roles"]
#: Of a folder, so many files are looked at.
_MOST_FILES = 24
#: Column of a sample with the dates that three columns of the log hold.
DAYS = "year, month, day"
#: Of the files beside rows of SVMlight, so many may hold their scores.
_MOST_BESIDE = 100
#: What only logs with a row per item have.
_RANKED = {*["position", "rank", "slot", "pos", "score", "modelscore", "rankposition"]}
LOG, EVENTS, ASSIGNMENTS = "log", "file of events", "file of assignments"
#: What ``sample`` calls a file of judgements, which alone may hold qrels of TREC.
JUDGEMENTS = "file of judgements"
_WILDCARDS = re.compile(r"[*?\[]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\b(19|20)\d{6}\b")


@dataclass(frozen=True)
class LogSample:
    """The first rows of a log.

    Attributes:
        path: As the user wrote it: a file, a folder, or a table of a catalog.
        format: As a config calls it.
        rows: At most ``SAMPLE_ROWS``; of text formats all columns are text. A field of a struct is a column, such as
            ``event.user.id``, which a config reads by the same name.
        options: Of the reader, such as ``{"sep": ";"}``.
        whole: Whether these are all rows.
        experiment_from: ``file`` or ``folder`` where its name tells the experiment of a row, as the config has it.
        lists: Columns that ``rows`` leaves out since their values are lists.
        roles: Role -> its column, where the lines of a file without names say it.
        days: The columns of year, month and day, which ``rows`` has as one column, ``DAYS``.
        folds: Names of files that may be folds of one experiment, or experiments.
        notes: What is read over in the files, a sentence each.
        nested: The lists that rows of the log are; ``rows`` has a row per item then.
        raw: The rows as they came, of a log of lists.
    """

    path: str
    format: str
    rows: pd.DataFrame
    options: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    experiment_from: str = "tag"
    lists: Sequence[str] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    days: Sequence[str] = ()
    folds: Sequence[str] = ()
    notes: Sequence[str] = ()
    nested: Lists | None = None
    raw: pd.DataFrame | None = None

    @property
    def in_words(self) -> str:
        """That the file has no line of names, if it has none."""
        if self.options.get("header") != "false":
            return ""
        return f" (its first line holds values ({', '.join(map(str, self.rows.iloc[0][:4]))}), no names)"

    @property
    def ranked_by_format(self) -> str:
        """What a file is whose format names the roles of its values; empty if its columns do."""
        of_letor = f"scores for the rows of {self.options.get('rows')}, of"
        words = {"trec_run": "a TREC run of", "json_document": "a JSON document of", "letor": of_letor}
        return words.get(self.format, "")


def sample(path: str, what: str = LOG, judgements: str | None = None, experiment_from: str | None = None) -> LogSample:
    """Read the first rows of a file; of a folder, those of a few files, the newest day of each partition first.

    Args:
        path: The file or folder.
        what: What it holds, for errors.
        judgements: Of a log, the file of its judgements: scores without rows may be for its rows.
        experiment_from: Of a log, what names the experiments, as the user says.

    Raises:
        InputError: There is no such file, or its format is unknown or not what its name says.
    """
    place = Path(path)
    if what != JUDGEMENTS and (scored := _scored(place, judgements)):
        return scored
    files, kind = _files_of(path, what)
    path = _place_of(path, files, judgements)
    format = cfg.KINDS[kind].format if kind in cfg.KINDS else kind
    chosen = list(islice(_newest_of_each(files, place), _MOST_FILES))
    tables: list[pd.DataFrame] = []
    options: dict[str, str] = {}
    cut = len(chosen) < len(files)
    most = SAMPLE_ROWS // len(chosen)
    for file in chosen:
        before, (rows, options) = options, _read(file, kind, most + 1, what)
        if tables and options != before:
            raise InputError.of("files_of_two_kinds", file=file, first=chosen[0])
        parts = file.relative_to(place).parent.parts if place.is_dir() else ()
        values = {name: unquote(value) for name, equals, value in (part.partition("=") for part in parts) if equals}
        tables.append(rows.head(most).assign(**values))
        cut |= len(rows) > most
    experiment = {"trec_run": "tag"}.get(format, sch.EXPERIMENT)
    named = "tag" if what != LOG else experiment_from or _named_by(tables, files, place, format)
    if named != "tag":
        names = [cfg.experiment_of(str(file), named) for file in chosen]
        tables = [rows.assign(**{experiment: name}) for rows, name in zip(tables, names, strict=True)]
    read = checked_sample(path, format, pd.concat(tables, ignore_index=True), options, (not cut, named))
    places = dict(cfg.KINDS[kind].columns) if kind in cfg.KINDS else {}
    if what != JUDGEMENTS:
        places.pop("relevance", None)
    if what in (EVENTS, ASSIGNMENTS) and read.nested:
        raise InputError(f"'{path}' has a row per list; allowed: a row per {'event' if what == EVENTS else 'user'}")
    over = {file: cfg.left_out_of_trec(file, format) for file in chosen if format in cfg.NUMBER_AT}
    notes = [f"{file.name}: {said} read over" for file, said in over.items() if said]
    if shape := cfg.shape_of(chosen[0]) if format == "json_document" else None:
        notes = [f"{chosen[0].name}: read as {shape.of}"]
    folds = () if experiment_from or what == JUDGEMENTS else _folds(files)
    return replace(read, folds=folds, roles={**read.roles, **places}, notes=notes)


def _scored(place: Path, judgements: str | None) -> LogSample | None:
    """Scores, one per line, with the rows of SVMlight that they are for; None if the log does not hold these.

    The rows are beside the scores, or the judgements; scores are beside the rows.
    """
    near = place if place.is_dir() else place.parent
    beside = [file for file in sorted(near.glob("*"))[:_MOST_BESIDE] if file.is_file() and not _named_format(file)]
    given = beside if place.is_dir() else [place] * (place.is_file() and not _named_format(place))
    kinds = {file: cfg.kind_of(file) for file in given}
    rows = [file for file, kind in kinds.items() if kind == "svmlight"]
    scores = [file for file, kind in kinds.items() if kind == "numbers"]
    if scores and not rows and judgements and cfg.kind_of(Path(judgements)) == "svmlight":
        rows = [Path(judgements)]
    found = [] if scores else [file for file in beside if rows and cfg.kind_of(file) == "numbers"]
    if len(rows) != 1 or not (scores or found):
        return None
    options, tables = {"rows": str(rows[0])}, {}
    for file in scores or found:
        with suppress(*([InputError] if found else [])):  # numbers of another file
            table = pd.DataFrame(cfg.parsed(file, "letor", options, True)).rename(columns=cfg.PARSED_NAMES)
            if scores or not table[sch.SCORE].equals(table[sch.RELEVANCE]):  # the grades alone
                named = {sch.EXPERIMENT: cfg.experiment_of(file.name, "file")}
                tables[file] = table.dropna(axis=1, how="all").assign(**named)
    names = [str(file) for file in tables]
    if not names:
        return None
    path = names[0] if len(names) == 1 else f"{near}/{{{','.join(file.name for file in tables)}}}"
    return checked_sample(path, "letor", pd.concat(tables.values(), ignore_index=True), options, (True, "file"))


def _files_of(path: str, what: str) -> tuple[list[Path], str]:
    """The file itself, the files of a folder that are not hidden, or those that a pattern names; and their format.

    Raises:
        InputError: There are none, their format is unknown or not the same, or a folder of runs of TREC holds
            judgements as well.
    """
    place = Path(path)
    inside = [file for file in sorted(place.rglob("*")) if file.is_file()]
    shown = [file for file in inside if not any(part[0] in "._" for part in file.relative_to(place).parts)]
    files = [place] if place.is_file() else shown
    if not place.exists() and _WILDCARDS.search(path):
        files = [Path(file) for file in sorted(glob.glob(path)) if Path(file).is_file()]
    is_judgements = what == JUDGEMENTS
    if not files:
        what = f"the {what} '{path}' {'is a folder without files' if place.is_dir() else 'does not exist'}"
        more = "or qrels of TREC" if is_judgements else "TREC runs, or a table such as main.logs.impressions"
        raise InputError(f"{what}; allowed: a file or a folder of parquet, csv, json or orc files, {more}")
    unnamed = [file for file in files if not is_judgements and not _named_format(file)]
    judged = [file for file in unnamed if cfg.kind_of(file) == "trec_qrels"]
    if judged and len(judged) < len(files):
        runs = {file.suffix for file in files if file not in judged} - {file.suffix for file in judged}
        pattern = f", or the runs as '{place}/*{min(runs)}'" if place.is_dir() and len(runs) == 1 else ""
        raise InputError.of("judgements_among_runs", what=what, path=path, file=judged[0], pattern=pattern)
    format = kind_of_file(files[0], what)
    kinds = (kind for file in files if (kind := _named_format(file)) and kind != format)
    if (other := next(kinds, None)) and format not in (*cfg.KINDS, "json_document"):
        raise InputError(f"the {what} '{path}' holds files of {format} and of {other}; allowed: files of one format")
    qrels = files if format == "trec_qrels" else ()
    odd = (file for file in qrels if cfg.kind_of(file, _named_format(file) is None) != format)
    if unlike := next(odd, None):
        raise InputError.of("no_judgements", what=what, path=path, file=unlike)
    return files, format


def _place_of(path: str, files: Sequence[Path], judgements: str | None) -> str:
    """The log as a config names it: of a folder in which a run writes, the files alone; without its judgements."""
    place, endings = Path(path), {file.suffix for file in files}
    if judgements and len(files) > 1 and Path(judgements).resolve() in [file.resolve() for file in files]:
        raise InputError.of("judgements_in_log", path=path, judgements=judgements)
    holds_all = place.is_dir() and {file.parent for file in files} == {place}
    is_here = holds_all and Path.cwd().is_relative_to(place.resolve())
    return f"{path.rstrip('/')}/*{endings.pop()}" if is_here and len(endings) == 1 else path


_NUMBER = re.compile(r"[-_. ]?\d[-_.T\d]*$")


_FOLD = re.compile(r"(?i)(^|[-_. ])(cv|fold|seed|trial)s?[-_. ]?(?P<number>\d+)")


def _folds(files: Sequence[Path]) -> list[str]:
    """The names of files that look like folds of one experiment, if there are several."""
    names = sorted({cfg.experiment_of(file.name, "file") for file in files})
    numbers = {match["number"] for name in names if (match := _FOLD.search(name))}
    return names if len(numbers) > 1 else []


def _named_by(tables: Sequence[pd.DataFrame], files: Sequence[Path], place: Path, format: str) -> str:
    """``file`` or ``folder`` where these names differ and look like experiments, and no column does, else ``tag``.

    Names that differ in a number only, dates, and names of pieces such as ``part-0`` are no experiments.
    """
    if format == "trec_run":
        tags = [set(rows["tag"]) for rows in tables]
        # Several runs have the same tag, or some have none.
        names = set().union(*tags)
        return "file" if None in names or len(tags) > len(names) > 0 else "tag"
    if len(tables) == 1:
        return "tag"
    rows = pd.concat([with_fields(table) for table in tables], ignore_index=True)
    columns = [name for name in rows if {*OWN_NAMES["experiment"].split()} & words_of(str(name))]
    if any(rows[name].dropna().astype(str).nunique() > 1 for name in columns):
        return "tag"
    folders = {cfg.experiment_of(str(file.relative_to(place)), "folder") for file in files} if place.is_dir() else {""}
    for named, names in (("folder", folders), ("file", {cfg.experiment_of(file.name, "file") for file in files})):
        bases = {_NUMBER.sub("", name).lower() for name in names}
        is_piece = any(not base or re.split(r"[-_. ]", base)[0] in WORDS["pieces"].split() for base in bases)
        # model1 and model2 are experiments, most other names that differ in a number only are not.
        are_numbered = bases <= {*OWN_NAMES["experiment"].split()}
        if (len(bases) == len(names) or are_numbered) and len(names) > 1 and not is_piece:
            return named
    return "tag"


def words_of(name: str) -> set[str]:
    """What the name of a column says: of a field of a struct, the ends of its path as well; without RecBole's type.

    >>> sorted(words_of("event.user.id")), words_of("rank:float")
    (['eventuserid', 'id', 'userid'], {'rank'})
    """
    parts = re.sub(r":(token|float)(_seq)?$", "", name).split(".")
    return {cfg.letters(".".join(parts[n:])) for n in range(len(parts))}


def checked_sample(
    path: str, format: str, rows: pd.DataFrame, options: Mapping[str, str], known: tuple[bool, str]
) -> LogSample:
    """The sample of these rows, with a column for each field of a struct, and without lists.

    Args:
        path: As the user wrote it.
        format: As a config calls it.
        rows: The rows.
        options: Of the reader.
        known: Whether these are all rows, and what tells the experiment of a row.

    Raises:
        InputError: There are no rows.
    """
    if not len(rows):
        raise InputError(f"'{path}' has no rows; allowed: a log with at least one row")
    flat = with_fields(rows)
    days = [name for word in ("year", "month", "day") for name in map(str, flat) if cfg.letters(name) == word]
    parts = flat[days].apply(pd.to_numeric, errors="coerce") if len(days) == 3 else pd.DataFrame({"year": [np.nan]})
    if not parts.isna().any(axis=None):
        texts = [parts[name].astype(int).astype(str).str.zfill(2) for name in days]
        flat = flat.drop(columns=days).assign(**{DAYS: texts[0] + "-" + texts[1] + "-" + texts[2]})
    lists = columns_of(flat, list, np.ndarray)
    days = days if DAYS in flat else []
    plain = flat.drop(columns=lists)
    words = {word for name in map(str, plain) for word in words_of(name)}
    # Beside a rank or a score of its own, an array is a value of an item.
    found = None if _RANKED & words else lists_of(flat, lists, format == "csv")
    if found is None or not len(found.rows):
        return LogSample(path, format, plain, options, *known, lists=lists, days=days)
    others = [name for name in lists if name not in (*found.chosen, found.items)]
    places = {"position": PLACE, **({"item": found.item} if found.item else {})}
    exploded = LogSample(path, format, found.rows.drop(columns=others), options, *known, lists=others, days=days)
    return replace(exploded, nested=found, raw=rows, roles=places)


def _newest_of_each(files: Sequence[Path], place: Path) -> Iterator[Path]:
    """The files in turns: one of each partition that is no day, the newest of them first."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for file in reversed(files):
        parts = file.relative_to(place).parent.parts if place.is_dir() else ()
        groups.setdefault(tuple(part for part in parts if not _DAY.search(part)), []).append(file)
    for turn in zip_longest(*(groups[key] for key in sorted(groups))):
        yield from filter(None, turn)


_OF_LOGS = ("triples", "scores", "colons")
_OF_JUDGEMENTS = ("trec_qrels", "ratings", "svmlight", *_OF_LOGS)


def kind_of_file(file: Path, what: str) -> str:
    """The kind that the lines of a file say, such as a TREC run or ratings, else the format that its name says."""
    named, kind = _named_format(file), ""
    if named in (None, "csv"):
        kind = cfg.kind_of(file, with_names=named is None)
    elif named == "json" and cfg.shape_of(file):
        kind = "json_document"
    if kind in ("trec_run", "json_document") or kind in (_OF_JUDGEMENTS if what == JUDGEMENTS else _OF_LOGS):
        return kind
    if named:
        return named
    if kind == "trec_qrels":
        raise InputError(f"'{file}' looks like TREC judgements; allowed: a run, with the judgements as --judgements")
    if problem := cfg.kind_in_words(kind, file):
        raise InputError(f"cannot read '{file}': {problem}")
    of_trec = "qrels of TREC" if what == JUDGEMENTS else "a TREC run"
    raise InputError.of("unknown_format", file=file, endings=[*FORMAT_OF], of_trec=of_trec)


def _named_format(file: Path) -> str | None:
    """The format that the name of a file says, if it does."""
    return next((FORMAT_OF[end.lower()] for end in reversed(file.suffixes) if end.lower() in FORMAT_OF), None)


def _read(file: Path, format: str, most: int, what: str) -> tuple[pd.DataFrame, dict[str, str]]:
    """The first rows of a file, and the options with which they are read."""
    if problem := cfg.problem_with_file(file) or cfg.problem_with_lines(file, format, {}):
        raise InputError(f"cannot read {format} from '{file}': {problem}")
    try:
        if parsed := {"svmlight": "letor", "json_document": format}.get(format):
            rows = pd.DataFrame(cfg.parsed(file, parsed, {}, what != JUDGEMENTS)).rename(columns=cfg.PARSED_NAMES)
            return rows.dropna(axis=1, how="all"), {}
        return _rows_of(file, format, most)
    except UnicodeDecodeError as error:
        raise InputError.of("no_utf_8", format=format, file=file) from error
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"cannot read {format} from '{file}': {str(error).splitlines()[0]}") from error


def _rows_of(file: Path, format: str, most: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """The first rows of a sound file, and the options with which they are read."""
    if format == "parquet":
        import pyarrow.parquet as pq

        first = next(pq.ParquetFile(file).iter_batches(most), None)
        return (pd.DataFrame() if first is None else first.to_pandas()), {}
    if format == "orc":
        from pyarrow import orc

        return orc.ORCFile(file).read_stripe(0).to_pandas().head(most), {}
    if format == "json":
        with cfg.opened(file) as text:
            is_array = text.read(1) == "["  # in one line, which an engine reads as rows
        n = None if is_array else most
        rows = pd.read_json(file, lines=not is_array, dtype=False, convert_dates=False, nrows=n)
        return rows.head(most), {}
    if format == "trec_run":
        return _read_words(file, format, ("query", "q0", "item_id", "rank", "score", "tag"), most), {}
    if format == "trec_qrels":
        return _read_words(file, format, ("user", "iteration", "item", "relevance"), most), {}
    # No text has this separator; Python 3.10 takes no NUL.
    head = pd.read_csv(file, nrows=50, header=None, sep="\x1f", engine="python", dtype=str, quoting=csv.QUOTE_NONE)
    lines = [str(line) for line in head[0]]
    separator = cfg.separator_of(lines) if format in cfg.KINDS else max(
        ",;\t|", key=lambda each: min(line.count(each) for line in lines)
    )  # fmt: skip
    # As an engine reads it, an empty text is null, and the word null is a text.
    read = partial(pd.read_csv, file, sep=separator, dtype=str, nrows=most, keep_default_na=False, na_values=[""],
                   encoding="utf-8-sig", engine="python" if len(separator) > 1 else None)  # fmt: skip
    rows = cast("pd.DataFrame", read(header=None) if format in cfg.KINDS else read())
    names = list(map(str, rows.columns))
    options = {} if separator == "," else {"sep": separator}
    numbers = [int(name) for name in names if name.isdecimal()]  # those of a matrix count up
    are_values = len(numbers) > 1 and numbers != [*range(numbers[0], numbers[0] + len(numbers))]
    if format in cfg.KINDS or are_values or cfg.values_as_names(names):
        rows = rows if format in cfg.KINDS else cast("pd.DataFrame", read(header=None))
        return rows.set_axis([f"_c{n}" for n in range(len(rows.columns))], axis=1), {**options, "header": "false"}
    # No config can name a column without a name, such as the index of pandas.
    rows = rows[[name for name in names if not re.fullmatch(r"Unnamed: \d+", name)]]
    return rows, options


def _read_words(file: Path, format: str, names: Sequence[str], most: int) -> pd.DataFrame:
    """The words of each line, as a run reads them: those beyond the last name are dropped, a short line is null."""
    with cfg.opened(file) as lines:
        words = list(islice(cfg.rows_of_trec(lines, format), most))
    # A run without tags is named after its file.
    width, least = len(names), len(names) - (format == "trec_run")
    cells = [[*line[:width], *[None] * (width - len(line))] if len(line) >= least else [None] * width for line in words]
    return pd.DataFrame(cells, columns=list(names), dtype=object)
