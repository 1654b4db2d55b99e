"""Inputs that Sail would silently read in another way than Spark: refused here, or read through a workaround."""

import csv
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from rankmetrics_spark import config as cfg, doors, engines as eng, errors as err
from rankmetrics_spark.sources import files as fl

#: CSV options that have an effect on Sail, and ``enforceSchema``, which has no effect there and is allowed.
CSV_OPTIONS = ("header", "sep", "delimiter", "quote", "enforceschema")
_OTHER = "use --engine spark"
_UNEVEN = "incorrect number of fields for line"
_CUT = re.compile("deflate|inflate|gzip|zstd|compressed stream|unexpected end of|corrupt", re.IGNORECASE)
_UNSIGNED = re.compile(r"Can't cast value (\d+) to type Int64")


def check(section: cfg.Input) -> None:
    """Refuse an input that Sail would misread, and paths that do not exist."""
    if not cfg.FORMATS[section.format].on_sail:
        location = section.table or ", ".join(section.paths)
        raise err.InputError.of("no_reader_on_sail", format=section.format, location=location, other=_OTHER)
    if section.format == "json" and section.where:
        location = section.path_of("where")
        raise err.InputError.of("inferred_on_sail", location=location, other=_OTHER)
    known = {"csv": CSV_OPTIONS, "json": ("mode",), "letor": ("rows",)}.get(section.format, ())
    for name in section.options:
        if name.lower() not in known:
            allowed = ", ".join(known) or "none"
            raise err.InputError.of("option_ignored", name=name, format=section.format, allowed=allowed, other=_OTHER)
    options = {name.lower(): value for name, value in section.options.items()}
    separator = options.get("sep", options.get("delimiter", ","))
    if section.format == "csv" and len(separator) != 1 and options.get("header", "true").lower() == "true":
        raise err.InputError.of("long_separator", separator=separator, other=_OTHER)
    for path in section.paths:
        files = sorted(fl.files_of(path))
        if cfg.local_path(path) is not None and not files and not os.path.isdir(cfg.local_path(path) or ""):
            raise err.InputError(f"cannot read {section.format} from '{path}': there is no such file or folder")
        if section.format == "csv" and options.get("header", "true").lower() == "true":
            _check_headers(path, files, section)


def _check_headers(path: str, files: Iterable[str], section: cfg.Input) -> None:
    """Refuse CSV files with different headers, since Sail applies that of one file to all, and repeated names."""
    headers: dict[bytes, str] = {}
    for file in files:
        try:
            with fl.open_file(file) as stream:
                header = stream.readline().strip()
        except OSError as error:
            why = err.InputError(f"cannot read '{file}': {error.strerror or error}; allowed: a file that can be read")
            raise failed_file(error, [section]) or why from error
        if header and headers.setdefault(header.lower(), file) == file:
            names: Counter[str] = Counter()
            with suppress(TypeError, csv.Error):  # options that Sail refuses
                names.update(next(csv.reader([header.decode("utf-8", "replace")], **_style(section)), []))
            name, n = max(names.items(), key=lambda pair: pair[1], default=("", 0))
            if n > 1:
                raise err.InputError.of("column_twice", file=file, n=n, name=name)
    if len(headers) > 1:
        file = list(headers.values())[1]
        raise err.InputError.of("other_header", file=file, path=path)


def _style(section: cfg.Input) -> dict[str, Any]:
    """How the CSV files of an input separate and quote their fields, as Python's reader takes it."""
    options = {name.lower(): value for name, value in section.options.items()}
    return {"delimiter": options.get("sep", options.get("delimiter", ",")), "quotechar": options.get("quote") or '"'}


def expand_paths(section: cfg.Input) -> cfg.Input:
    """Replace patterns in paths by matching files and folders, and relative paths by absolute ones.

    Sail reads no braces and few wildcards, and may have been started in another folder.
    """
    places = [each for path in section.paths for each in (fl.expand_path(path) if fl.is_pattern(path) else [path])]
    here = {place: local for place in places if (local := cfg.local_path(place)) and not local.is_absolute()}
    absolute = [str(here[place].absolute()) if place in here else place for place in places]
    return replace(section, path=tuple(absolute)) if absolute else section


def by_experiment(section: cfg.Input) -> cfg.Input:
    """The same files in partition folders of the experiments that they name: Sail does not say where a row is from."""
    if not isinstance(section, cfg.Source) or section.experiment_from == "tag":
        return section
    root = Path(tempfile.mkdtemp(dir=eng.temporary_folder("inputs")))
    numbers = count()
    for base in chain.from_iterable(map(fl.expand_path, section.paths)):
        for file in cfg.files_below(base):
            name = quote(cfg.experiment_of(os.path.abspath(file), section.experiment_from), safe=" ")
            partitions = [part for part in os.path.relpath(file, base).split(os.sep)[:-1] if "=" in part]
            link = root.joinpath(f"{fl.OF_FILE}={name}", *partitions, f"{next(numbers)}-{os.path.basename(file)}")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.abspath(file))
    return replace(section, path=(str(root),)) if os.listdir(root) else section


def broken_file(section: cfg.Input) -> err.InputError | None:
    """Return an error that names the broken Parquet file, which Sail does not; None if all are readable."""
    files = fl.files_of(*section.paths) if section.format == "parquet" else ()
    broken = next((file for file in files if fl.schema_of(file) is None), None)
    return None if broken is None else err.InputError(f"cannot read '{broken}': it is broken, or it is no Parquet file")


def failed_line(error: Exception, inputs: Iterable[cfg.Input]) -> err.InputError | None:
    """Return an error that names file and line of a failure on Sail, which names neither; None for other errors."""
    if _UNEVEN not in str(error) and "invalid utf-8" not in str(error).lower():
        return None
    find_fault = _uneven_line if _UNEVEN in str(error) else _line_of_other_encoding
    for section in inputs:
        for file in fl.files_of(*section.paths):
            if sentence := find_fault(file, section):
                return err.InputError(f"cannot read '{file}': {sentence}")
    return None


def failed_file(error: Exception, inputs: Iterable[cfg.Input]) -> err.InputError | None:
    """Return an error that names a compressed file that is cut short; Sail names none. None for other errors."""
    packed = (file for each in inputs for file in fl.files_of(*each.paths) if file.endswith((".gz", ".zst")))
    for file in packed if _CUT.search(str(error)) else ():
        try:
            with fl.open_file(file) as stream:
                while stream.read(1 << 20):
                    pass
        except (OSError, EOFError, pa.ArrowException):
            return err.InputError(f"cannot read '{file}': it is broken, or cut short; allowed: complete files")
    return None


def failed_number(error: Exception) -> err.InputError | None:
    """Return an error that says which unsigned number Sail could not read; None for other errors.

    >>> str(failed_number(ValueError("Cast error: Can't cast value 9223372036854775808 to type Int64")))[:80]
    'the input holds the number 9223372036854775808, which the engine sail cannot rea'
    """
    match = _UNSIGNED.search(str(error))
    return match and err.InputError.of("number_too_large", number=match[1])


def _uneven_line(file: str, section: cfg.Input) -> str | None:
    """Describe the first row of a CSV file whose number of fields differs from that of the first line."""
    if section.format != "csv":
        return None
    with io.TextIOWrapper(fl.open_file(file), encoding="utf-8", errors="replace", newline="") as text:
        rows = csv.reader(text, **_style(section))
        first = len(next(rows, []))
        uneven = next((row for row in rows if len(row) not in (0, first)), None)
        return None if uneven is None else err.said("uneven_line", line=rows.line_num, n=len(uneven), first=first)


def _line_of_other_encoding(file: str, section: cfg.Input) -> str | None:
    """Describe the first line that is not UTF-8."""
    with fl.open_file(file) as lines:
        for number, line in enumerate(lines if cfg.FORMATS[section.format].is_text else (), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f"line {number:,} is no UTF-8; allowed: files in UTF-8"
    return None


# ---- filters: what keeps the same rows as on Spark is allowed, and everything else is refused
#
# Comparisons, IN, BETWEEN, LIKE, CASE, AND, OR and NOT, and the few functions of ``ALLOWED``. Many others of Sail give
# other values than Spark's, and it does not say so. ``tests/spark/test_filters.py`` compares what is allowed.

_WORDS = doors.data_of(__name__, "sail")
#: Functions that a filter may call on Sail, beside ``cast`` of a column.
ALLOWED: dict[str, str] = _WORDS["allowed"]
_CALLS = frozenset(" ".join(ALLOWED.values()).split())
# isnan of a null is null on Sail, which lacks the function date. Without the sum, Sail passes over groups of rows by
# their statistics, which leave NaN out.
_REWRITTEN = {"isnan": "equal_null(double('NaN'), 0D + ", "date": "to_date("}
#: Words and symbols with other values on Sail: it rounds and overflows otherwise, and matches other texts.
_REFUSED = frozenset(_WORDS["refused"].split())
#: Function -> what it may be called of: a column, a text, or what gives one.
_TAKES = dict.fromkeys(("date", "to_date", "to_timestamp"), "text or time") | {"isnan": "number"}
_TEXTS_AND_TIMES = frozenset(_WORDS["texts and times"].split())
#: Types of a column -> what it may be converted to.
_CAST: dict[str, str] = _WORDS["cast"]
_OPERANDS_FOLLOW = frozenset(_WORDS["before operands"].split())


def filter_on_sail(path: str, where: str, types: Mapping[str, str]) -> str:
    """Rewrite a filter so that it keeps the same rows on Sail as ``where`` does on Spark.

    >>> filter_on_sail("source.where", "not isnan(score) and score > 0.5", {"score": "double"})
    "not equal_null(double('NaN'), 0D + score) and score > 0.5D"
    >>> filter_on_sail("source.where", "n + 1 < 3", {"n": "int"})
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: source.where holds '+', which Sail may compute otherwise than Spark; \
allowed: comparisons, IN, BETWEEN, LIKE, CASE, cast of a column, lower, to_date and a few more functions \
(docs/engines.md), or --engine spark
    """
    parts, end = list[str](), 0
    words = list(cfg.tokens(path, where))
    for at, word in enumerate(words):
        if word.start < end:
            continue
        parts.append(where[end : word.start])
        text, end = where[word.start : word.end], word.end
        before, after = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if word.kind in ("word", "quoted") and word.text in cfg.KNOWN and after and after.text == "(":
            if word.text == "cast":
                _check_cast(path, words[at + 2 : at + 5], types)
            elif word.text not in _CALLS:
                raise _refused(path, f"calls '{word.text}'")
            if word.text in _TAKES and not _takes(word.text, words[at + 2 : at + 3], types):
                raise _refused(path, f"calls '{word.text}' of what is no {_TAKES[word.text]}")
            if word.text in _REWRITTEN:
                text, end = _REWRITTEN[word.text], after.end
        elif word.kind in ("word", "symbol") and word.text in _REFUSED and not _is_sign(word, before):
            raise _refused(path, f"holds '{text}'")
        elif word.kind == "string" and before and before.kind == "string":
            raise _refused(path, "holds two texts side by side")
        # Sail compares a double with a decimal as decimals of 15 digits after the point, Spark as doubles.
        parts.append(f"{text}D" if word.kind == "number" and "." in text and text[-1].isdigit() else text)
    return "".join(parts)


def _check_cast(path: str, words: Sequence[cfg.Token], types: Mapping[str, str]) -> None:
    """Refuse conversions of more than a column or text, and those that Sail makes otherwise or where Spark fails."""
    column, _, target = (*(word.text for word in words), "", "", "")[:3]
    kind = "string" if words and words[0].kind == "string" else types.get(column, "")
    allowed = {to for kinds, targets in _CAST.items() if kind in kinds.split() for to in targets.split()}
    if len(words) < 3 or words[1].text != "as":
        raise _refused(path, "converts no column")
    if target not in allowed:
        raise _refused(path, f"converts {column!r} to {target!r}")


def _takes(function: str, words: Sequence[cfg.Token], types: Mapping[str, str]) -> bool:
    """Whether a function is called of what it computes as Spark does, by the first word of its argument."""
    kind = types.get(words[0].text, "") if words else ""
    if function == "isnan":
        return kind in ("double", "float", "int", "bigint", "smallint", "tinyint")
    given = bool(words) and (words[0].kind == "string" or words[0].text in _TEXTS_AND_TIMES)
    return given or kind in ("string", "date", "timestamp")


def _is_sign(word: cfg.Token, before: cfg.Token | None) -> bool:
    """Whether a plus or minus has no operand on its left."""
    if word.text not in "+-" or before is None:
        return word.text in "+-"
    if before.kind == "symbol":
        return before.text not in (")", "]")
    return before.kind == "word" and before.text in _OPERANDS_FOLLOW | cfg.QUERY_WORDS


def _refused(path: str, holds: str) -> err.InputError:
    return err.InputError.of("not_as_spark", path=path, holds=holds)
