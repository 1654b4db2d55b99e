"""What Sail reads otherwise than Spark, without saying so: refused here in one sentence, or read in another way."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.config.sections import Input
from rankmetrics_spark.errors import InputError

FORMATS = ("parquet", "csv", "json", "trec_run", "trec_qrels", "table")
CSV_OPTIONS = ("header", "sep", "delimiter", "quote", "enforceschema")
"""Options of CSV that have an effect, or the one that this package wants."""
JSON_OPTIONS = ("mode",)
_OTHER = "use --engine spark"
_BRACES = re.compile(r"[{]([^{}]*)[}]")


def check(section: Input) -> None:
    """Refuse an input that Sail would misread or not find.

    Raises:
        InputError: Says what is refused, and that Spark can do it.
    """
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
        found = sorted(_files(given))
        if local_path(given) is not None and not found and not os.path.isdir(local_path(given) or ""):
            raise InputError(f"cannot read {section.format} from '{given}': there is no such file or folder")
        if section.format == "csv" and _has_header(section):
            _check_headers(found, given)


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
        for file in _files(path):
            try:
                pq.read_schema(file)
            except (OSError, pa.ArrowException):
                return InputError(f"cannot read '{file}': it is broken, or it is no Parquet file")
    return None


def _has_header(section: Input) -> bool:
    given = {name.lower(): value for name, value in section.options.items()}
    return given.get("header", "true").lower() == "true"


def _check_headers(files: Sequence[str], path: str) -> None:
    """Refuse CSV files whose columns differ: Sail names those of every file after the header of one."""
    headers: dict[bytes, str] = {}
    for file in files:
        with open(file, "rb") as stream:
            first = stream.readline().strip().lower()
        if first:
            headers.setdefault(first, file)
    if len(headers) > 1:
        other = list(headers.values())[1]
        raise InputError(
            f"cannot read '{other}': its header differs from that of the other files in '{path}'; all CSV files need "
            "the same columns in the same order"
        )


def _files(path: str) -> Iterator[str]:
    """The files that a local path with wildcards stands for; those of a folder below it, hidden ones left out."""
    folder = local_path(path)
    for pattern in _without_braces(str(folder)) if folder else ():
        for found in glob.glob(pattern) if re.search(r"[*?\[]", pattern) else [pattern] * os.path.exists(pattern):
            yield from _below(found)


def _below(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        if not name.startswith(("_", ".")):
            yield from _below(os.path.join(path, name))


def _without_braces(path: str) -> Iterator[str]:
    """``a/{b,c}`` as ``a/b`` and ``a/c``.

    >>> list(_without_braces("a/{b,c}/{d,e}"))
    ['a/b/d', 'a/b/e', 'a/c/d', 'a/c/e']
    """
    found = _BRACES.search(path)
    if not found:
        yield path
        return
    for choice in found[1].split(","):
        yield from _without_braces(path[: found.start()] + choice + path[found.end() :])
