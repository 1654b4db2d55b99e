"""The files of an input that lie on this machine: which there are, what their folders are called, and their lines."""

from __future__ import annotations

import glob
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import IO
from urllib.parse import unquote

import pyarrow as pa

from rankmetrics_spark.config import local_path

_WILDCARDS = re.compile(r"[*?\[]")
_BRACES = re.compile(r"[{]([^{}]*)[}]")


def is_pattern(path: str) -> bool:
    """Whether a local path may stand for several files and folders."""
    return local_path(path) is not None and bool(_WILDCARDS.search(path) or _BRACES.search(path))


def places_of(path: str) -> Iterator[str]:
    """The files and folders that a local path stands for: with each choice of its braces, and by its wildcards."""
    folder = local_path(path)
    for pattern in without_braces(str(folder)) if folder else ():
        yield from sorted(glob.glob(pattern)) if _WILDCARDS.search(pattern) else [pattern] * os.path.exists(pattern)


def files_of(path: str) -> Iterator[str]:
    """The files that a local path with wildcards stands for; those of a folder below it, hidden ones left out."""
    for base in places_of(path):
        yield from _below(base)


def folder_values(paths: Sequence[str]) -> dict[str, set[str]]:
    """Column -> its values, of the folders such as ``day=2026-11-20`` between these paths and their files."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        for base in places_of(path):
            for file in _below(base):
                for folder in os.path.relpath(file, base).split(os.sep)[:-1]:
                    name, equals, value = folder.partition("=")
                    if equals:
                        found[unquote(name)].add(unquote(value))
    return dict(found)


def opened(file: str) -> IO[bytes]:
    """A file as a stream of bytes, decompressed if its name says that it is compressed."""
    return io.BufferedReader(pa.input_stream(file))


def _below(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        if not name.startswith(("_", ".")):
            yield from _below(os.path.join(path, name))


def without_braces(path: str) -> Iterator[str]:
    """``a/{b,c}`` as ``a/b`` and ``a/c``.

    >>> list(without_braces("a/{b,c}/{d,e}"))
    ['a/b/d', 'a/b/e', 'a/c/d', 'a/c/e']
    """
    found = _BRACES.search(path)
    if not found:
        yield path
        return
    for choice in found[1].split(","):
        yield from without_braces(path[: found.start()] + choice + path[found.end() :])
