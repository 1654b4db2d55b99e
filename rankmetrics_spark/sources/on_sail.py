"""What Sail reads otherwise than Spark, without saying so: refused here in one sentence, or read in another way."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from rankmetrics_spark.config import TEXT_FORMATS, Input, local_path
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.sources.files import files_of, is_pattern, opened, places_of

FORMATS = ("parquet", "csv", "json", "trec_run", "trec_qrels", "table")
CSV_OPTIONS = ("header", "sep", "delimiter", "quote", "enforceschema")
"""Options of CSV that have an effect, or the one that this package wants."""
JSON_OPTIONS = ("mode",)
_OTHER = "use --engine spark"
_UNEVEN = "incorrect number of fields for line"
_NO_UTF8 = re.compile("invalid utf-8", re.IGNORECASE)


def check(section: Input) -> None:
    """Refuse an input that Sail would misread or not find."""
    if section.format not in FORMATS:
        place = section.table or ", ".join(section.path or ())
        raise InputError(f"cannot read {section.format} from '{place}': the engine sail has no reader for it; {_OTHER}")
    if section.format == "json" and section.where:
        place = section.path_of("where")
        raise InputError(f"{place} is given, but of JSON the engine sail infers columns from the first rows; {_OTHER}")
    if getattr(section, "experiment_from", "tag") == "file":
        place = section.path_of("experiment_from")
        raise InputError(f"{place} is 'file', but the engine sail does not say which file a row is from; {_OTHER}")
    _check_options(section)
    for given in section.path or ():
        found = sorted(files_of(given))
        if local_path(given) is not None and not found and not os.path.isdir(local_path(given) or ""):
            raise InputError(f"cannot read {section.format} from '{given}': there is no such file or folder")
        if section.format == "csv" and _has_header(section):
            _check_headers(found, given)


def with_plain_paths(section: Input) -> Input:
    """The same input with the files and folders that its paths stand for: Sail reads no braces, and few wildcards."""
    paths = section.path or ()
    places = [place for path in paths for place in (places_of(path) if is_pattern(path) else [path])]
    return replace(section, path=tuple(places)) if places and any(map(is_pattern, paths)) else section


def _check_options(section: Input) -> None:
    known = {"csv": CSV_OPTIONS, "json": JSON_OPTIONS}.get(section.format, ())
    for name in section.options:
        if name.lower() not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(
                f"the engine sail ignores the option '{name}' of {section.format}; allowed: {allowed}, or {_OTHER}"
            )


def broken_file(section: Input) -> InputError | None:
    """The sentence for a Parquet file that has no schema; Sail does not name it."""
    for path in section.path or () if section.format == "parquet" else ():
        for file in files_of(path):
            try:
                pq.read_schema(file)
            except (OSError, pa.ArrowException):
                return InputError(f"cannot read '{file}': it is broken, or it is no Parquet file")
    return None


def failed_line(error: Exception, inputs: Iterable[Input]) -> InputError | None:
    """The sentence for a line that ends a run on Sail, which names no file; None for any other error."""
    if _UNEVEN not in str(error) and not _NO_UTF8.search(str(error)):
        return None
    found = _uneven_line if _UNEVEN in str(error) else _line_of_other_encoding
    for section in inputs:
        for file in chain.from_iterable(map(files_of, section.path or ())):
            if sentence := found(file, section):
                return InputError(f"cannot read '{file}': {sentence}")
    return None


def _uneven_line(file: str, section: Input) -> str | None:
    """What is wrong with the first row of a CSV file that has another number of fields than the first row."""
    if section.format != "csv":
        return None
    given = {name.lower(): value for name, value in section.options.items()}
    style = {"delimiter": given.get("sep", given.get("delimiter", ",")), "quotechar": given.get("quote", '"')}
    with io.TextIOWrapper(opened(file), encoding="utf-8", errors="replace", newline="") as text:
        rows = csv.reader(text, **style)  # type: ignore[arg-type]
        first = len(next(rows, []))
        uneven = next((row for row in rows if len(row) not in (0, first)), None)
        if uneven is None:
            return None
        return (
            f"line {rows.line_num:,} has {len(uneven)} fields, and the first one has {first}; allowed: as many in each "
            "line, or --engine spark, which cuts long lines and fills short ones with nulls"
        )


def _line_of_other_encoding(file: str, section: Input) -> str | None:
    """What is wrong with the first line that is no UTF-8."""
    with opened(file) as lines:
        for number, line in enumerate(lines if section.format in TEXT_FORMATS else (), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f"line {number:,} is no UTF-8; allowed: files in UTF-8"
    return None


def _has_header(section: Input) -> bool:
    given = {name.lower(): value for name, value in section.options.items()}
    return given.get("header", "true").lower() == "true"


def _check_headers(files: Sequence[str], path: str) -> None:
    """Refuse CSV files whose columns differ: Sail names those of every file after the header of one."""
    headers: dict[bytes, str] = {}
    for file in files:
        with opened(file) as stream:
            first = stream.readline().strip().lower()
        if first:
            headers.setdefault(first, file)
    if len(headers) > 1:
        other = list(headers.values())[1]
        raise InputError(
            f"cannot read '{other}': its header differs from that of the other files in '{path}'; all CSV files need "
            "the same columns in the same order"
        )
