"""Faults of single files name the file; what a file may hold has limits; odd ids are noted."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate
from rankmetrics_spark.errors import InputError
from tests.helpers.commands import Call
from tests.helpers.messages import json_cases, slow

HEADER = "experiment_id,user_id,item_id,position,relevance\n"
ROWS = "".join(f"a,u{n // 3},i{n % 3},{n % 3 + 1},{int(n % 3 == 1)}\n" for n in range(30_000))


def run(call: Call, folder: Path, source: dict[str, Any], **more: Any) -> tuple[int, str, str]:
    """Exit code, output and the last line of stderr of a run over an input."""
    (folder / "c.yaml").write_text(yaml.safe_dump({"source": source, "metrics": ["ap@3"], **more}))
    where = ("--date", "2026-11-20", "--output", folder / "out", "--format", "json")
    return call("evaluate", "--config", folder / "c.yaml", *where)


@pytest.mark.outcome("a compressed file that is cut short", "exit 3: the file")
@pytest.mark.parametrize(
    ("format", "kept"), [("csv", 0.5), ("json", 0.5), *(slow(*each) for each in (("csv", 30), ("trec_run", 0.5)))]
)
def test_a_compressed_file_that_is_cut_short_is_named(call: Call, tmp_path: Path, format: str, kept: float) -> None:
    log = tmp_path / "log"
    log.mkdir()
    text = {
        "csv": HEADER + ROWS,
        "trec_run": "".join(f"{n} Q0 d{n % 7} 1 2.0 a\n" for n in range(30_000)),
        "json": "".join(json.dumps({"user_id": f"u{n}", "item_id": "i"}) + "\n" for n in range(30_000)),
    }[format]
    packed = gzip.compress(text.encode())
    (log / "a.gz").write_bytes(packed)
    (log / "b.gz").write_bytes(packed[: int(kept if kept > 1 else kept * len(packed))])
    (tmp_path / "qrels").write_text("1 0 d1 1\n")
    judged = {"judgements": {"format": "trec_qrels", "path": str(tmp_path / "qrels")}} if format == "trec_run" else {}
    code, _, err = run(call, tmp_path, {"path": str(log), "format": format}, **judged)
    assert code == 3, err
    assert f"{log}/b.gz" in err.splitlines()[-1]


@pytest.mark.outcome("a Parquet file in which a column has another type", "exit 3: the file, the column and both types")
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_a_parquet_file_with_another_type_is_named_with_its_column(
    call: Call, spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    for day, of_position in ((1, pa.int32()), (2, pa.int32()), (3, kind)):
        rows = {"experiment_id": ["a"], "user_id": ["u"], "item_id": [f"i{day}"], "relevance": [1]}
        table = pa.table(rows).append_column("position", pa.array([day]).cast(of_position))
        (tmp_path / f"log/day={day}").mkdir(parents=True)
        pq.write_table(table, tmp_path / f"log/day={day}/rows.parquet")
    code, _, err = run(call, tmp_path, {"path": str(tmp_path / "log")})
    assert code == 3, err
    assert f"day=3/rows.parquet': its column 'position' has type {kind}, and that of '" in err
    assert err.rstrip().endswith(
        "/rows.parquet' has int32; allowed: one type in all files, or a path without it, such as logs/day={date}"
    )


@pytest.mark.outcome("a CSV file with more than 20,000 columns", "exit 3: how many it has, and how many are allowed")
def test_a_million_columns_are_refused_before_an_engine_reads_them(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "wide.csv"
    log.write_text(",".join(f"c{n}" for n in range(1_000_000)) + "\n")
    for code, _, err in (run(call, tmp_path, {"path": str(log)}), call("init", log, "-o", tmp_path / "first.yaml")):
        assert code == 3
        assert "it has 1,000,000 columns; allowed: at most 20,000" in err.splitlines()[-1]


@pytest.mark.outcome(
    "a user called `NA`, `nan`, `None` or `null` in a file of text", "works, with a note that counts them"
)
def test_ids_that_are_called_like_missing_values_are_noted(call: Call, tmp_path: Path) -> None:
    users = ["NA", "NA", "null", "", "None", "nan", "Nancy"]
    rows = "".join(f"nan,{user},i{n},{1 + (n == 1)},1\n" for n, user in enumerate(users))
    (tmp_path / "log.csv").write_text(HEADER + rows)
    (tmp_path / "truth.csv").write_text("user_id,item_id,relevance\nNA,i0,1\nNancy,nan,1\nNancy,i6,1\n")
    truth = {"judgements": {"path": str(tmp_path / "truth.csv")}, "quality": {"max_invalid_fraction": 0.2}}
    code, _, err = run(call, tmp_path, {"path": str(tmp_path / "log.csv")}, **truth)
    assert code == 0, err
    (record,) = (tmp_path / "out/runs").glob("*.json")
    notes = json.loads(record.read_text())["notes"]
    for note in (
        "4 lists are of users called NA, nan, NaN, None, null, NULL or <NA>, as missing ids are written, and each",
        "1 experiments are called NA, nan,",
        "2 judgements are of users or items called NA, nan,",
    ):
        assert any(each.startswith(note) for each in notes), notes
        assert note in " ".join(err.split())


@pytest.mark.outcome("JSON without a column of a role, of {text}", "exit 3: {known}")
@pytest.mark.parametrize(("text", "known"), json_cases("JSON without a column"))
def test_json_without_a_column_is_refused_with_its_names(call: Call, tmp_path: Path, text: str, known: str) -> None:
    (tmp_path / "log.json").write_text(text + "\n")
    code, _, err = run(call, tmp_path, {"path": str(tmp_path / "log.json")})
    assert code == 3 and err.rstrip().endswith(known)


@pytest.mark.outcome("a DataFrame with scores and without ranks", "`rank_by='score'` is named")
def test_a_frame_with_scores_is_told_how_to_rank_by_them(spark: SparkSession) -> None:
    frame = pd.DataFrame({"experiment_id": ["a"], "user_id": ["u"], "item_id": ["i"], "relevance": [1], "score": [0.5]})
    with pytest.raises(InputError, match=r"; rank_by='score' ranks by the column 'score'$"):
        evaluate(spark.createDataFrame(frame), metrics=["ap@3"])
    with pytest.raises(InputError, match="without a rank or a score there is no ranking"):
        evaluate(spark.createDataFrame(frame.drop(columns="score")), metrics=["ap@3"])


def test_a_byte_order_mark_is_no_part_of_a_csv_file(call: Call, tmp_path: Path) -> None:
    rows = "a,u,i,1,0\na,u,j,2,1\na,v,i,1,1\n"
    truth = tmp_path / "truth.csv"
    truth.write_text("\ufeffu,j,1\nv,i,1\n", encoding="utf-8")
    (tmp_path / "log.csv").write_text("\ufeff" + HEADER + rows, encoding="utf-8")
    columns = {"user": "_c0", "item": "_c1", "relevance": "_c2"}
    judged = {"judgements": {"path": str(truth), "options": {"header": False}, "columns": columns}}
    code, out, err = run(call, tmp_path, {"path": str(tmp_path / "log.csv")}, **judged)
    assert code == 0, err
    assert [row["mean"] for row in json.loads(out)["means"]] == [(1 / 2 + 1) / 2]
