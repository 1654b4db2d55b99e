"""What an input holds, where that is not what its name or a config says. No pyspark."""

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO, cast

from rankmetrics_spark import doors as doors, errors as err

#: Of a CSV file: engines and pandas take minutes to hours for more.
MOST_COLUMNS = 20_000
_MOST_LINES, _MOST_CHARACTERS = 1000, 1 << 26
#: The first lines tell the format; a faulty one may follow.
_TELLING = 20
#: Seconds since 1970 in 1973; no grade is that large.
_SMALLEST_TIME = 1e8
_MOST_STARS = 11
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
#: Format of TREC -> its field that holds the score or the grade.
NUMBER_AT = {"trec_run": 4, "trec_qrels": 3}
#: Format of TREC -> what a first line with names may call its fields; TREC's own files have no such line.
HEADS = {
    format: {int(place): tuple(names.split()) for place, names in fields.items()}
    for format, fields in doors.data_of(__name__, "heads").items()
}
#: Format -> what makes rows of a file that is too large, elsewhere, or of another shape.
ROWS_OF = doors.data_of(__name__, "rows_of")
#: Names that people give the column of a list, as far as letters and digits go.
LIST_NAMES = "requestid searchid srchid impressionid listid pageviewid"
#: End of the name of a CSV file with tabs; those of RecBole have types in their names, such as ``rank:float``.
_WITH_TABS = re.compile(r"(?i)[.](tsv|inter)([.](gz|zst))?$")


def separated_by_tabs(path: Sequence[str] | Mapping[str, Sequence[str]] | None, options: Mapping[str, str]) -> bool:
    """Whether the names of all files say that tabs separate their fields, and no option says more.

    >>> separated_by_tabs(["runs/a.tsv.gz"], {}), separated_by_tabs(["a.tsv"], {"Delimiter": ";"})
    (True, False)
    """
    of_experiments = path.values() if isinstance(path, Mapping) else [path or ()]
    paths = [name for names in of_experiments for name in names]
    is_said = any(name.lower() in ("sep", "delimiter") for name in options)
    return bool(paths) and not is_said and all(map(_WITH_TABS.search, paths))


def is_number(text: str) -> bool:
    """Whether a text is a number as people write it.

    >>> is_number("1.939400e+01"), is_number("rank")
    (True, False)
    """
    return _NUMBER.fullmatch(text) is not None


def opened(file: Path) -> TextIO:
    """The lines of a file, which may be compressed or begin with a byte order mark."""
    return cast(TextIO, (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8-sig"))


def _head(file: Path) -> list[str]:
    """Its first lines that are not empty; none of a file that cannot be read, which its reader says."""
    try:
        with opened(file) as lines:
            limited = iter(lambda: lines.readline(_MOST_CHARACTERS), "")
            return [line.rstrip("\r\n") for line in islice(limited, _MOST_LINES) if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError):
        return []


def rows_of_trec(lines: Iterable[str], format: str) -> Iterator[list[str]]:
    """The words of each line of a file of TREC; without comments, and without a line of names."""
    last = NUMBER_AT[format]
    for words in map(str.split, lines):
        is_comment = words[:1] and words[0].startswith("#") and not (last < len(words) and is_number(words[last]))
        is_head = all(n < len(words) and letters(words[n]) in names for n, names in HEADS[format].items())
        if words and not is_comment and not is_head:
            yield words


def left_out_of_trec(file: Path, format: str) -> str:
    """What the first lines of a file of TREC hold beside its rows, which is read over; empty if nothing."""
    lines = _head(file)
    n = len(lines) - sum(1 for _ in rows_of_trec(lines, format))
    with suppress(OSError, EOFError), (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
        mark = ["a byte order mark"] * (stream.read(3) == b"\xef\xbb\xbf")
        return " and ".join([*mark, *[f"{n} line{'s'[: n > 1]} of comments or names"] * (n > 0)])
    return ""


def letters(name: str) -> str:
    """The letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


class Kind(NamedTuple):
    """What the lines of a file hold where its name does not say it: how it is known, and how a config reads it.

    Attributes:
        fits: Whether the first lines are of this kind; the second argument says whether a first line of names is read.
        format: As a config calls it; empty if it reads no such file.
        columns: Role -> column, where the place of a field says its role; a relevance only in judgements.
        in_words: What a refusal says of it, where a config reads it in another format.
    """

    fits: Callable[[Sequence[str], bool], bool]
    format: str
    columns: Mapping[str, str] = {}
    in_words: str = ""


def _fits_trec(format: str, lines: Sequence[str], with_names: bool) -> list[list[str]]:
    """The fields of a file of TREC; none of any other. A run may lack its last field, the tag."""

    def fits(words: Sequence[str]) -> bool:
        """Whether the number of the fields and their numbers are those of the format."""
        widths = (5, 6) if format == "trec_run" else (4,)
        return len(words) in widths and all(map(is_number, words[3 : NUMBER_AT[format] + 1]))

    if any("," in line for line in lines[:_TELLING]):
        return []
    rows = list(rows_of_trec(lines, format) if with_names else map(str.split, lines))
    return [*filter(fits, rows)] if all(map(fits, rows[:_TELLING])) else []


def separator_of(lines: Sequence[str]) -> str:
    """What stands between the fields of each of these lines, which have no names; empty if nothing does.

    >>> separator_of(["1::2::5", "1::3::4"]), separator_of(["1 2 5", "1 3 4"]), separator_of(["1", "2"])
    ('::', ' ', '')
    """
    for separator in ("::", "\t", ",", ";", "|", " "):
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts.pop() > 0:
            return separator
    return ""


def _rows_of_numbers(lines: Sequence[str], width: int) -> list[list[str]]:
    """The fields of lines with so many of them, those from the third one on numbers; none of any other lines."""
    separator = separator_of(lines)
    rows = [line.split(separator) for line in lines] if separator else []
    return rows if all(len(row) == width and all(map(is_number, row[2:])) for row in rows) else []


def _fits_ratings(lines: Sequence[str], with_names: bool) -> bool:
    """Whether each line has a user, an item, a rating and a time."""
    if rows := _fits_trec("trec_qrels", lines, with_names):
        return _are_ratings(rows)
    rows = _rows_of_numbers(lines, 4)
    return bool(rows) and _are_ratings(rows) and all(float(row[3]) >= _SMALLEST_TIME for row in rows)


def _fits_triples(lines: Sequence[str], scores: bool) -> bool:
    """Whether each line has two names and a number: a score, with decimals, or a rank or a grade."""
    rows = _rows_of_numbers(lines, 3)
    values = {row[2] for row in rows}
    return bool(rows) and scores == (len(values) > _MOST_STARS and any(float(value) % 1 for value in values))


#: Name of a kind of file -> whether the first lines are of it, in the order in which they are looked at.
_FITS: dict[str, Callable[[Sequence[str], bool], bool]] = {
    "trec_run": lambda lines, names: bool(_fits_trec("trec_run", lines, names)),
    "ratings": _fits_ratings,
    "trec_qrels": lambda lines, names: bool(_fits_trec("trec_qrels", lines, names)),
    "svmlight": lambda lines, _: all(re.match(r"\S+ qid:\S+ \d+:", line) for line in lines if line[:1] != "#"),
    "libsvm": lambda lines, _: all(re.match(r"\S+ \d+:\S+", line) for line in lines if line[:1] != "#"),
    "numbers": lambda lines, _: all(is_number(line.strip()) for line in lines),
    "scores": lambda lines, _: _fits_triples(lines, scores=True),
    "triples": lambda lines, _: _fits_triples(lines, scores=False),
    "colons": lambda lines, _: all(2 <= line.count("::") <= 9 for line in lines),
}
#: Name -> kind of file; the first one that fits counts.
KINDS = {name: Kind(fits=fits, **doors.data_of(__name__, "kinds")[name]) for name, fits in _FITS.items()}


def kind_of(file: Path, with_names: bool = True) -> str:
    """The name of its kind; empty if it has none. Unless ``with_names``, a line of names is no part of a TREC file."""
    lines = _head(file)
    return next((name for name, kind in KINDS.items() if lines and kind.fits(lines, with_names)), "")


def _are_ratings(rows: Sequence[Sequence[str]]) -> bool:
    """Whether four fields are user, item, rating and time, not topic, iteration or subtopic, document and grade.

    The last ones are times. Or they are more than grades are, and the third ones are a few numbers, of which there are
    fewer than second ones; documents of a subtopic may be such numbers too.
    """
    columns = [{row[n] for row in rows} for n in range(4)]
    are_times = all(float(value) >= _SMALLEST_TIME for value in columns[3])
    if not are_times and len(columns[3]) <= _MOST_STARS:
        return False
    few = len(columns[2]) < len(columns[1]) and len(columns[2]) <= _MOST_STARS and all(map(is_number, columns[2]))
    return are_times or (few and all(abs(float(value)) <= 100 for value in columns[2]))


def kind_in_words(kind: str, file: Path) -> str:
    """What a file of this kind holds, and what to do with it; empty if it may be what its format says."""
    if kind not in KINDS or not KINDS[kind].in_words:
        return ""
    return "it holds " + KINDS[kind].in_words.format(sep=json.dumps(separator_of(_head(file))), file=file)


def values_as_names(columns: Sequence[str], of_numbers: Iterable[str] = ()) -> bool:
    """Whether the names of columns look like a first row: all have digits and one is a number, or two of numbers are.

    >>> values_as_names(["1001", "50037", "3"]), values_as_names(["user_id", "item_id", "0"])
    (True, False)
    >>> values_as_names(["0", "1", "2"])
    False
    >>> values_as_names(["control", "ann", "hat", "1", "0"], of_numbers=["1", "0"])
    True
    """
    names = [name for name in columns if name]
    if names == [*map(str, range(len(names)))]:  # as pandas names the columns of a matrix
        return False
    all_hold_digits = all(re.search(r"\d", name) for name in names) and any(map(is_number, names))
    return all_hold_digits or sum(map(is_number, of_numbers)) > 1


def of_single_lists(shown: Iterable[str], judged: Iterable[str], lists: Iterable[str], mapped: Iterable[object]) -> str:
    """Why judgements look like the clicks of single lists; empty if they do not.

    Args:
        shown: The columns of the log.
        judged: The columns of the judgements.
        lists: The columns that tell lists of a user apart.
        mapped: The columns of the judgements with a role.

    >>> of_single_lists(["request_id", "user"], ["request_id", "user"], [], ["user"])[:52]
    "the judgements have the log's column 'request_id', w"
    """
    known, own = {*shown}, {*lists}
    free = [name for name in judged if name in known and name not in {*mapped}]
    told = (n for n in free if n in own or letters(n) in LIST_NAMES.split())
    return "" if (name := next(told, None)) is None else err.said("of_single_lists", name=name)


def problem_with_lines(file: Path, format: str, options: Mapping[str, str], columns: Iterable[str] = ()) -> str:
    """Why the first lines of a file cannot be what its format says; empty if they can.

    Args:
        file: A file of this machine.
        format: As a config calls it.
        options: Of the reader.
        columns: The columns that are read, where they are known.
    """
    lower = {name.lower(): value for name, value in options.items()}
    if format in NUMBER_AT:
        return kind_in_words(kind_of(file), file)
    if format == "csv":
        kind = kind_of(file, with_names=False) if lower.get("header", "true").lower() == "true" else ""
        if kind in NUMBER_AT:
            return f"its lines are those of TREC; allowed: format: {kind}"
        if kind == "svmlight":
            return kind_in_words(kind, file)
        first = next(iter(_head(file)), "") if file.stat().st_size > MOST_COLUMNS else ""
        separator = lower.get("sep", lower.get("delimiter", max(",;\t|", key=first.count)))
        if first.count(separator) >= MOST_COLUMNS:
            n = len(next(csv.reader([first], delimiter=separator[:1])))
            if n > MOST_COLUMNS:
                return f"it has {n:,} columns; allowed: at most {MOST_COLUMNS:,}"
    if format == "json" and lower.get("multiline", "").lower() != "true":
        return _problem_with_json(file, columns)
    return ""


def _problem_with_json(file: Path, columns: Iterable[str]) -> str:
    """Why the first line is no row: a part of a document, a mapping of mappings, or lists in columns that are read."""
    first, second = [*_head(file)[:2], "", ""][:2]
    try:
        row = json.loads(first)
    except ValueError:
        if is_object(second):  # a faulty row
            return ""
        spread = first.strip() in ("{", "[", "[{") or (first.lstrip()[:1] == "{" and first.rstrip()[-1:] in ("{", ","))
        allowed = f"format: json_document for one of queries and items, or {ROWS_OF['json_document']}"
        if first.lstrip()[:1] == "[":
            allowed = "an object per line, as jq -c '.[]' writes them"
        return f"it is one document over several lines; allowed: {allowed}" if spread else ""
    if not isinstance(row, dict) or not row:
        return ""
    if is_by_columns(row):
        return "it is a table by columns, as pandas writes it; allowed: df.to_json(FILE, orient='records', lines=True)"
    inner = [value for value in row.values() if isinstance(value, dict) and value]
    if len(inner) == len(row) and all(is_plain(each) for value in inner for each in value.values()):
        keys = {key for value in inner for key in value}
        if (len(row) > 1 and all(map(is_number, keys))) or len(keys) > 100:
            return "it is one document of scores or grades by query and item; allowed: format: json_document"
    return ""


def is_object(line: str) -> bool:
    """Whether a line is an object of JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def is_by_columns(document: Mapping[str, object]) -> bool:
    """Whether a document has the same row numbers in each column.

    >>> is_by_columns({"user": {"0": 7, "1": 8}, "rank": {"0": 1, "1": 2}}), is_by_columns({"q1": {"d1": 1}})
    (True, False)
    """
    rows = [[*column] if isinstance(column, dict) else [] for column in document.values()]
    return len(rows) > 1 and rows[0] == [*map(str, range(len(rows[0])))] != [] and rows.count(rows[0]) == len(rows)


def is_plain(value: object) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
