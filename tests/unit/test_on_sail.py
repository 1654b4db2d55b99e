"""Files that Sail would misread: what is found in them before it reads them, and after it has failed."""

import gzip
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from rankmetrics_spark.config import Input, Judgements, Source
from rankmetrics_spark.engines import sessions
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.sources import on_sail
from rankmetrics_spark.sources.files import files_of, folder_values
from tests.helpers.messages import json_cases


def log(folder: Path, **files: str) -> Path:
    """Files by their names, in which __ stands for a slash and _ for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return folder


def csv(path: object, **options: Any) -> Input:
    return Source(format="csv", path=str(path), options=options)


def test_braces_are_read_as_each_of_their_choices_that_exists(tmp_path: Path) -> None:
    log(tmp_path, a__x_csv="h\n1\n", b__x_csv="h\n1\n", c__y_csv="h\n1\n")
    for given, expected in {
        "{a,b,none}/{x,y}.csv": ["a/x.csv", "b/x.csv"],
        "{c,a}": ["c", "a"],
        "*/{x,z}.csv": ["a/x.csv", "b/x.csv"],
        "[ab]/?.csv": ["a/x.csv", "b/x.csv"],
        "a": ["a"],
    }.items():
        assert on_sail.expand_paths(csv(tmp_path / given)).path == tuple(f"{tmp_path}/{name}" for name in expected)
    assert on_sail.expand_paths(csv("s3://b/{a,c}/*")).path == ("s3://b/{a,c}/*",)
    assert [*files_of(f"{tmp_path}/{{c,a}}")] == [f"{tmp_path}/c/y.csv", f"{tmp_path}/a/x.csv"]


def test_headers_of_every_choice_are_compared(tmp_path: Path) -> None:
    log(tmp_path, a__x_csv_gz="h,i\n1,2\n", b__x_csv_gz="h,i\n1,3\n3,4\n", c__x_csv_gz="i,h\n1,2\n")
    on_sail.check(csv(f"{tmp_path}/{{a,b}}"))
    with pytest.raises(InputError, match=r"^cannot read '.*/c/x\.csv\.gz': its header differs from"):
        on_sail.check(csv(f"{tmp_path}/{{a,b,c}}"))
    with pytest.raises(InputError, match=r"there is no such file or folder$"):
        on_sail.check(csv(f"{tmp_path}/{{d,e}}"))


UNEVEN = ValueError("Csv error: incorrect number of fields for line 4, expected 2 got 3")


@pytest.mark.parametrize(("text", "options", "line", "fields"), json_cases("a row of another length is found"))
def test_an_uneven_row_is_found(tmp_path: Path, text: str, options: dict[str, str], line: int, fields: int) -> None:
    for name in ("b_csv", "b_csv_gz"):
        folder = log(tmp_path / name, a_csv="h,i\n", **{name: text})
        sentence = str(on_sail.failed_line(UNEVEN, [Judgements(path="x"), csv(folder, **options)]))
        place = f"cannot read '{folder}/{name.replace('_', '.')}'"
        assert sentence.startswith(f"{place}: line {line} has {fields} fields, and the first one has 2; "), sentence
    assert on_sail.failed_line(ValueError("no memory"), [csv(folder)]) is None


def test_the_values_of_folders_are_read_below_the_paths_only(tmp_path: Path) -> None:
    log(tmp_path / "year=2026", **{"day=1__hour=09__x_csv": "", "day=2__hour=a%2Fb__x_csv": ""})
    below = {"hour": {"09", "a/b"}}
    assert folder_values([f"{tmp_path}/year=2026"]) == below | {"day": {"1", "2"}}
    assert folder_values([f"{tmp_path}/*/day=?"]) == below
    assert folder_values(["s3://b/day=1"]) == {}


class Settings:
    """The settings of a session of Spark Connect."""

    __module__ = "pyspark.sql.connect.conf"


class Session:
    """A session of Spark Connect; its client is gone with it."""

    def __init__(self) -> None:
        self.conf, self.client = Settings(), Settings()


def test_an_error_of_sail_is_called_one_of_sail(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the sessions that other tests have left.
    monkeypatch.setattr(sessions, "_engines", WeakKeyDictionary())
    assert sessions.name_of_engine() == "Spark"
    sessions.note_laptop(session := Session())  # type: ignore[arg-type]
    assert sessions.name_of_engine() == "Sail"
    del session
    assert sessions.name_of_engine() == "Spark"


def test_a_csv_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(file: str) -> None:
        raise PermissionError(13, "Permission denied", file)

    folder = log(tmp_path / "log", a_csv="h,i\n1,2\n")
    monkeypatch.setattr(on_sail.fl, "open_file", refused)
    with pytest.raises(InputError, match=r"^cannot read '.*a.csv': Permission denied; allowed: a file that can be "):
        on_sail.check(csv(folder))
