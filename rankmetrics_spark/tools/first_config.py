"""A first config for a log: guess its columns from their names and values, and say how sure each guess is."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from rankmetrics_spark.errors import ConfigError, InputError, unknown

SAMPLE_ROWS = 200_000
_FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".orc": "orc",
}
NAMES = {
    "position": "position rank slot pos place placement",
    "relevance": "relevance relevant clicked click isclick isclicked clicks label grade rel judgment judgement "
    "converted conversion purchased bought target engaged rating",
    "score": "score modelscore prediction pred predictedscore rankingscore",
    "experiment": "experimentid experiment variant variation arm experimentgroup abgroup bucket treatment cohort run "
    "runid system ranker algorithm model policy tag group",
    "user": "userid user uid visitorid visitor customerid customer memberid member accountid profileid queryid query "
    "qid topicid topic",
    "item": "itemid item iid productid product documentid docid docno doc sku asin articleid contentid movieid videoid "
    "listingid hotelid",
    "list": "requestid searchid impressionid listid pageviewid sessionid request session",
    "date": "evaluationdate eventdate date day dt ds",
}
"""Role -> the names that people give its column, the most telling first; only letters and digits count."""
ROLES = ("experiment", "user", "item", "position", "score", "relevance")
_CONTROLS = ("control", "baseline", "base", "production", "prod", "default", "current", "old", "a")
_SHOWN_VALUES = 4


@dataclass(frozen=True)
class LogSample:
    """The first rows of a log.

    Attributes:
        path: As the user wrote it.
        format: As a config calls it.
        rows: At most ``SAMPLE_ROWS``; of text formats all columns are text.
        options: Of the reader, such as ``{"sep": ";"}``.
        whole: Whether these are all rows.
    """

    path: str
    format: str
    rows: pd.DataFrame
    options: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True


def sample(path: str) -> LogSample:
    """Read the first rows of a file, or of the first file of a folder.

    Raises:
        InputError: There is no such file, or its format is unknown or not what its name says.
    """
    place = Path(path)
    if (place / "_delta_log").is_dir():
        raise InputError(f"'{path}' is a Delta table; allowed: a file or a folder of files; conf/example.yaml is a "
                         "config to copy, with source.format: delta")  # fmt: skip
    files = [place] if place.is_file() else [file for file in sorted(place.rglob("*")) if _is_data(file, place)]
    if not files:
        there = "is a folder without files" if place.is_dir() else "does not exist"
        raise InputError(f"the log '{path}' {there}; allowed: a file or a folder of parquet, csv, json or orc files, "
                         "or of TREC runs")  # fmt: skip
    first = files[0]
    format = _format_of(first)
    try:
        rows, options = _READERS[format](first)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {format} from '{first}': {str(error).splitlines()[0]}") from error
    if not len(rows):
        raise InputError(f"'{first}' has no rows; allowed: a log with at least one row")
    nested = [name for name in rows if rows[name].map(lambda value: isinstance(value, (dict, list, np.ndarray))).any()]
    rows = rows.drop(columns=nested)
    parts = first.relative_to(place).parent.parts if place.is_dir() else ()
    for name, _, value in (part.partition("=") for part in parts if "=" in part):
        rows[name] = value
    return LogSample(path, format, rows.head(SAMPLE_ROWS), options, len(files) == 1 and len(rows) <= SAMPLE_ROWS)


def _is_data(file: Path, place: Path) -> bool:
    return file.is_file() and not any(part[0] in "._" for part in file.relative_to(place).parts)


def _format_of(file: Path) -> str:
    for suffix in reversed(file.suffixes):
        if suffix.lower() in _FORMATS:
            return _FORMATS[suffix.lower()]
    if _trec_fields(file) == 6:
        return "trec_run"
    if _trec_fields(file) == 4:
        raise InputError(f"'{file}' looks like TREC judgements; allowed: a run, with the judgements as --judgements")
    raise InputError(f"the format of '{file}' is unknown; allowed: a name that ends with {', '.join(_FORMATS)}, or a "
                     "TREC run")  # fmt: skip


def _trec_fields(file: Path) -> int:
    """6 for lines of a TREC run, 4 for TREC judgements, else 0."""
    try:
        with file.open(encoding="utf-8") as lines:
            head = [line.split() for line in itertools.islice(lines, 20) if line.strip()]
    except (OSError, UnicodeDecodeError):
        return 0
    kinds = {6: (3, 4), 4: (3,)}
    for count, numbers in kinds.items():
        if head and all(len(words) == count and all(map(_is_number, (words[n] for n in numbers))) for words in head):
            return count
    return 0


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None


def _read_parquet(file: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(file).iter_batches(SAMPLE_ROWS + 1)
    first = next(batches, None)
    return (pd.DataFrame() if first is None else first.to_pandas()), {}


def _read_csv(file: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    head = pd.read_csv(file, nrows=50, header=None, sep="\0", engine="python", dtype=str, quoting=csv.QUOTE_NONE)
    lines = [str(line) for line in head[0]]
    separator = max(",;\t|", key=lambda each: min(line.count(each) for line in lines))
    rows = pd.read_csv(file, sep=separator, dtype=str, nrows=SAMPLE_ROWS + 1, keep_default_na=False)
    if all(map(_is_number, map(str, rows.columns))):
        raise ValueError("its first line holds numbers; allowed: a first line with the names of the columns")
    return rows, {} if separator == "," else {"sep": separator}


def _read_json(file: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    return pd.read_json(file, lines=True, dtype=False, convert_dates=False, nrows=SAMPLE_ROWS + 1), {}


def _read_orc(file: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    from pyarrow import orc

    return orc.ORCFile(file).read_stripe(0).to_pandas(), {}


def _read_trec(file: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    names = ["query", "q0", "item_id", "rank", "score", "tag"]
    return pd.read_csv(file, sep=r"\s+", names=names, dtype=str, nrows=SAMPLE_ROWS + 1), {}


_READERS = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json, "orc": _read_orc, "trec_run": _read_trec}


@dataclass(frozen=True)
class Guess:
    """A column for a role, and why: ``given``, ``by its name``, ``by its values``."""

    column: str
    reason: str


def guesses(rows: pd.DataFrame, given: Mapping[str, str]) -> dict[str, Guess]:
    """Role -> its column; roles without a plausible column are left out.

    Args:
        rows: A sample of the log.
        given: Role -> column, as the user says.

    Raises:
        ConfigError: A given column is not in the log, or there is no such role.
    """
    found: dict[str, Guess] = {}
    for role, column in given.items():
        if role not in NAMES:
            raise ConfigError(f"--column: {unknown('role', role, [*NAMES])}")
        if column not in rows.columns:
            raise ConfigError(f"--column {role}={column}: {unknown('column', column, list(map(str, rows.columns)))}")
        found[role] = Guess(column, "given")
    for role in NAMES:
        taken = {guess.column for guess in found.values()}
        free = [str(name) for name in rows.columns if name not in taken]
        named = [name for word in NAMES[role].split() for name in free if _letters(name) == word]
        fitting = [name for name in named if _fits(rows[name], role)]
        if role not in found and fitting:
            found[role] = Guess(fitting[0], "by its name")
    for role in ("relevance", "position"):
        taken = {guess.column for guess in found.values()}
        fitting = [str(name) for name in rows.columns if name not in taken and _has_values_of(rows[name], role)]
        if role not in found and len(fitting) == 1:
            found[role] = Guess(fitting[0], "by its values")
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def numbers(column: pd.Series) -> pd.Series:
    """The values that are there, as numbers; NaN where one is none."""
    there = column[column.notna() & (column.astype(str) != "")]
    words = there.astype(str).str.lower().replace({"true": "1", "false": "0"})
    return pd.to_numeric(words, errors="coerce")


def _fits(column: pd.Series, role: str) -> bool:
    """Whether the values can serve: numbers where numbers are needed, dates where a date is."""
    if role == "date":
        return bool(column.astype(str).str.fullmatch(r"\d{4}-\d{2}-\d{2}").all())
    if role not in ("position", "score", "relevance"):
        return True
    values = numbers(column)
    if values.isna().mean() > 0.01:  # a few faulty rows are no reason to doubt a name
        return False
    whole = bool((values.dropna() % 1 == 0).all())
    return {"score": True, "relevance": bool((values.dropna() >= 0).all()), "position": whole}[role]


def _has_values_of(column: pd.Series, role: str) -> bool:
    values = numbers(column)
    if not len(values) or values.isna().any():
        return False
    if role == "relevance":
        return {*values.unique()} == {0, 1}
    return values.min() in (0, 1) and len(values.unique()) == values.max() - values.min() + 1 > 2


@dataclass(frozen=True)
class FirstConfig:
    """A config for a log, with what is known of its columns.

    Attributes:
        log: The sample.
        columns: Role -> its column; without ``list`` and ``date`` where there is none.
        baseline: The experiment that the others are compared with, or None.
        relevant_from: The smallest relevant grade, where it is not the smallest above 0.
        judgements: File of judgements, or None.
    """

    log: LogSample
    columns: Mapping[str, Guess]
    baseline: str | None = None
    relevant_from: float | None = None
    judgements: str | None = None

    @property
    def experiments(self) -> list[str]:
        """Their names in the sample, the likely baseline first."""
        if "experiment" not in self.columns:
            return []
        names = sorted(map(str, self.log.rows[self.columns["experiment"].column].dropna().unique()))
        controls = [name for word in _CONTROLS for name in names if name.lower() == word]
        return list(dict.fromkeys([*controls, *names]))

    @property
    def likely_baseline(self) -> str | None:
        """The experiment whose name says so."""
        first = self.experiments[:1]
        return first[0] if len(self.experiments) > 1 and first[0].lower() in _CONTROLS else None

    @property
    def grades(self) -> list[float]:
        """The different values of the relevance in the sample."""
        guess = self.columns.get("relevance")
        return [] if guess is None else sorted(numbers(self.log.rows[guess.column]).dropna().unique())

    @property
    def dates(self) -> list[str]:
        """The dates in the sample, in order."""
        guess = self.columns.get("date")
        return [] if guess is None else sorted(self.log.rows[guess.column].astype(str).unique())

    @property
    def rank_by(self) -> str:
        """By position where there is one."""
        return "position" if "position" in self.columns and self.log.format != "trec_run" else "score"

    @property
    def first_rank(self) -> int:
        """0 if about as many rows have the position 0 as 1; a few of them are faulty rows."""
        if "position" not in self.columns:
            return 1
        positions = numbers(self.log.rows[self.columns["position"].column])
        return 0 if 2 * (positions == 0).sum() > (positions == 1).sum() else 1

    @property
    def has_several_lists(self) -> bool:
        """Whether a user of an experiment has a rank, or an item, more than once on a date."""
        roles = ("experiment", "user", "date", "position" if "position" in self.columns else "item")
        keys = [self.columns[role].column for role in roles if role in self.columns]
        return bool(self.log.rows.duplicated(keys).mean() > 0.01)

    @property
    def segments(self) -> list[str]:
        """Columns of text with few values and no role."""
        taken = {guess.column for guess in self.columns.values()}
        return [
            str(name)
            for name in self.log.rows.columns
            if name not in taken and 2 <= self.log.rows[name].astype(str).nunique() <= 30
            and numbers(self.log.rows[name]).isna().all()
        ]  # fmt: skip

    def missing(self) -> list[str]:
        """What nobody can guess and a run needs, such as the column of the user."""
        if self.log.format == "trec_run":
            return []
        needed = ["user", *([] if self.judgements else ["relevance"])]
        needed += [] if {"position", "score"} & {*self.columns} else ["position"]
        return [role for role in needed if role not in self.columns]

    def text(self) -> str:
        """The YAML text, with a comment wherever something was guessed."""
        return "\n".join([*self._source(), *self._rest()]) + "\n"

    def _source(self) -> Iterator[str]:
        date = f" --date {self.dates[-1]}" if self.dates else ""
        yield "# Written by rankmetrics init from the first rows of the log: check what the comments say, then"
        yield f"#   rankmetrics evaluate --config THIS_FILE{date}"
        yield "# Paths are relative to the folder in which the command runs."
        yield "source:"
        yield f"  format: {self.log.format}"
        yield f"  path: {_scalar(self.log.path)}"
        if self.log.options:
            yield f"  options: {json.dumps(dict(self.log.options))}"
        if self.log.format == "trec_run":
            return
        yield "  columns:"
        for role in ROLES:
            guess = self.columns.get(role)
            if guess is not None:
                yield f"    {role}: {_scalar(guess.column)}  # {guess.reason}; {self._values(role)}"
            elif role == "experiment":
                yield "    experiment: null  # no column looks like one: the log is a single experiment, called all"
            elif role == "item":
                yield "    item: null  # no column looks like one: repeated items are not detected"
            elif role == "relevance":
                yield "    relevance: null  # the judgements have it"
        if self.first_rank == 0:
            yield "  first_rank: 0  # lists of the sample start at 0"
        if self.dates:
            yield f"  where: \"{self.columns['date'].column} = '{{date}}'\"  # the sample: {_range(self.dates)}"
        if "list" in self.columns and self.has_several_lists:
            yield f"  list: [{_scalar(self.columns['list'].column)}]  # users have several lists in the sample"
        elif self.has_several_lists:
            yield "  # list: [COLUMN]  # users have a rank more than once: which column tells their lists apart?"
        if self.segments:
            yield f"  # segments: [{', '.join(map(_scalar, self.segments))}]  # a mean for each value of each column"

    def _rest(self) -> Iterator[str]:
        if self.judgements:
            yield from self._of_judgements(self.judgements)
        yield f"rank_by: {self.rank_by}"
        yield "metrics: [ndcg@10, ap@10, p@10, rr]"
        if self.relevant_from is not None:
            yield f"convention: {{preset: standard, relevant_from: {self.relevant_from:g}}}"
        elif len(self.grades) > 2:
            grades = ", ".join(f"{grade:g}" for grade in self.grades[:_SHOWN_VALUES])
            yield f"# convention: {{relevant_from: 2}}  # grades are {grades}, ...: by default all above 0 are relevant"
        if self.baseline is not None:
            yield f"comparison: {{baseline: {_scalar(self.baseline)}}}  # of {_some(self.experiments)}"
        elif len(self.experiments) > 1:
            yield f"# comparison: {{baseline: {_scalar(self.experiments[0])}}}  # one of {_some(self.experiments)}"
        yield "sink: {path: out}"

    def _of_judgements(self, path: str) -> Iterator[str]:
        if Path(path).is_file() and _trec_fields(Path(path)) == 4:
            yield f"judgements: {{format: trec_qrels, path: {_scalar(path)}}}"
            return
        found = sample(path)
        yield "judgements:"
        yield f"  format: {found.format}"
        yield f"  path: {_scalar(path)}"
        if found.options:
            yield f"  options: {json.dumps(dict(found.options))}"
        yield "  columns:"
        columns = guesses(found.rows, {})
        for role in ("user", "item", "relevance"):
            named = columns.get(role)
            shown = "null  # no column looks like one: which is it?" if named is None else (
                f"{_scalar(named.column)}  # {named.reason}")  # fmt: skip
            yield f"    {role}: {shown}"

    def _values(self, role: str) -> str:
        column = self.log.rows[self.columns[role].column]
        if role in ("position", "score"):
            return f"{numbers(column).min():g} to {numbers(column).max():g}"
        if role == "relevance":
            return "values " + _some([f"{grade:g}" for grade in self.grades])
        if role == "experiment":
            return _some(self.experiments)
        return f"{column.nunique():,} values in the sample"


def _range(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _some(values: Sequence[str]) -> str:
    more = len(values) - _SHOWN_VALUES
    return ", ".join(values[:_SHOWN_VALUES]) + (f" and {more:,} more" if more > 0 else "")


def _scalar(text: str) -> str:
    """The text in YAML, with quotes where it needs them.

    >>> _scalar("logs/2026"), _scalar("no: 1"), _scalar("null")
    ('logs/2026', '"no: 1"', '"null"')
    """
    plain = re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and text.lower() not in ("null", "true", "false", "yes", "no")
    return text if plain else json.dumps(text, ensure_ascii=False)
