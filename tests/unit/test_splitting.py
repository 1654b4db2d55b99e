"""Rows -> one file per experiment."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankmetrics_spark.sinks import Split, of_disk


def test_names_of_files_differ_if_random_numbers_begin_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 10,000 files, two have the first 32 bits in common once in a hundred runs.
    numbers: Iterator[uuid.UUID] = (uuid.UUID(int=(7 << 96) + i) for i in range(9))
    monkeypatch.setattr("rankmetrics_spark.sinks.partitions.uuid.uuid4", lambda: next(numbers))
    files = of_disk(str(tmp_path))
    assert files is not None
    split = Split(files, "staged", "20261122T010203-0a1b2c3d", "n")
    staged = split.write((name, pa.table({"experiment_id": [name], "n": [n]})) for n, name in enumerate("abc"))
    assert [(one.experiment, one.rows, one.total) for one in staged] == [("a", 1, 0), ("b", 1, 1), ("c", 1, 2)]
    assert [pq.read_table(tmp_path / "staged" / one.name)["n"].to_pylist() for one in staged] == [[0], [1], [2]]
