"""What shows that nobody has changed an output: a SHA-256 of each published file, of the record, of the pointer.

The record of a run has those of its files, the pointer of the date that of the record, and one of its own text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from rankmetrics_spark.pointers import FOLDER, PLAN, Pointer, is_sealed, parse, record_path, refused_folder, run_in_name
from rankmetrics_spark.sinks import files as fl, partitions, swapping as sw

#: Key of a record: path below the output -> SHA-256.
FILES = "files"
_HASH = re.compile("[0-9a-f]{64}")


def hashes(files: fl.Files, date: str, run: str, done: bool = True) -> dict[str, str]:
    """Path -> SHA-256 of the files that a run has published on a date; of one that has failed, of what it left."""
    # The pointer may be why it has failed.
    return digests(files, (done and sw.pointer_of(files, date)) or Pointer(date), run)


def digests(files: fl.Files, pointer: Pointer, run: str) -> dict[str, str]:
    """The same of the files with this id that the pointer names."""
    paths = [path for path, own in sw.live_files(files, pointer).items() if own == run]
    paths += [*files.files(refused_folder(partitions.NO_RUN)), *files.files(refused_folder(run))]
    paths += [path for path in files.files("runs") if path == f"runs/{run}.html"]
    return dict(zip(paths, files.for_each(files.sha256, paths), strict=True))


def seal(files: fl.Files, date: str, run: str) -> None:
    """Write the SHA-256 of the record of a run to the pointer of its date."""
    with sw.pointer_gate(files):
        if pointer := sw.pointer_of(files, date):
            digest = files.sha256(record_path(run))
            entries = (replace(each, sealed=digest) if each.run_id == run else each for each in pointer.entries)
            sw.write_pointer(files, replace(pointer, entries=tuple(entries)))


def _text(files: fl.Files, path: str) -> str | None:
    """The text of a file; an empty one for bytes that are none."""
    try:
        return files.read(path)
    except UnicodeDecodeError:
        return ""


def altered(files: fl.Files, date: str) -> tuple[list[str], list[str]]:
    """What of a date is not as it was published, a sentence each, and what no digest covers."""
    name = f"{FOLDER}/{date}.json"
    changed = f"{name} is not as it was written: its digest is not that of its text"
    if (text := _text(files, name)) is None:
        return [], []
    pointer, is_whole = parse(text), is_sealed(text.removesuffix("\n"))
    if is_whole is False or pointer is None or (is_whole is None and any(each.sealed for each in pointer.entries)):
        return [changed], []
    found, uncovered = [], []
    if is_whole is None:
        uncovered.append(f"{name} has no digest: it is of an earlier version")
    if (plan := _text(files, PLAN)) is not None and not is_sealed(plan):
        found.append(f"{PLAN} is not as it was written: its digest is not that of its text")
    known: dict[str, str] = {}
    for entry in pointer.entries:
        path = record_path(entry.run_id)
        if not entry.sealed:
            uncovered.append(f"{path} has no digest: it is of an earlier version, or its run was killed as it ended")
        elif files.sha256(path) != entry.sealed:
            found.append(f"{path} is not as it was written: its SHA-256 is not the one in {name}")
        else:
            known |= json.loads(files.read(path) or "{}").get(FILES, {})
    others, of_refused = _of_others(files, pointer)
    found, known = found + others, of_refused | known
    found += _of_files(files, pointer, known) if not found else []
    known_ids = {*map(run_in_name, known)}
    merged = [entry.run_id for entry in pointer.entries if entry.merged not in {"", *known_ids}]
    if merged:
        uncovered.append(f"the files of {', '.join(merged)} were merged since, so their digests are of other files")
    return found, uncovered


def _of_others(files: fl.Files, pointer: Pointer) -> tuple[list[str], dict[str, str]]:
    """Which records of runs that do not count on the date are not as they were written; the files of the others."""
    names = {f"runs/{name}" for name in files.names("runs") if name.endswith(".json")}
    paths = sorted(names - {record_path(entry.run_id) for entry in pointer.entries})
    found, known = [], dict[str, str]()
    for path, text in zip(paths, files.for_each(lambda path: _text(files, path), paths), strict=True):
        if is_sealed(text := (text or "").removesuffix("\n")):
            known |= json.loads(text).get(FILES, {})
        # Without the key it is of an earlier version, unless the key is what has changed.
        elif is_sealed(text) is False or _HASH.search(text[:90]) or not text.startswith("{") or text[-1:] != "}":
            found.append(f"{path} is not as it was written: its digest is not that of its text")
    return found, known


def _of_files(files: fl.Files, pointer: Pointer, known: dict[str, str]) -> Iterator[str]:
    """The files that are others than the records say, that are missing, or that are on no record."""
    id_of = sw.ids_of(pointer)
    of_runs = refused_folder(""), "runs/"
    expected = [path for path in known if path.startswith(of_runs) or id_of(path) == run_in_name(path)]
    for path, digest in zip(expected, files.for_each(files.sha256, expected), strict=True):
        if digest != known[path]:
            yield f"{path} {'is not as it was published' if digest else 'is missing'}: its SHA-256 is on record"
    # Of a run without a seal nothing is known, and files that were merged have names of their own.
    runs = {entry.run_id for entry in pointer.entries if entry.sealed} | {*map(run_in_name, known)} - {""}
    for path, own in sw.live_files(files, pointer).items():
        if path not in known and own in runs:
            yield f"{path} is on no record, and readers count its rows"


def newest_date(files: fl.Files) -> str:
    """The last date with a pointer, also one that cannot be read; empty without any."""
    dates = [name.removesuffix(".json") for name in files.names(FOLDER)]
    return max(filter(re.compile(r"\d{4}-\d{2}-\d{2}").fullmatch, dates), default="")
