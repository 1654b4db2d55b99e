"""Files that engines read in different ways, or merge people of: one outcome, or one sentence."""

import gzip
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, job, road, sources
from rankmetrics_spark.config import from_mapping
from rankmetrics_spark.engines import as_number, engine_of
from rankmetrics_spark.errors import InputError, QualityError
from tests.helpers.logs import DATE, Shown, by_user, impressions, parquet
from tests.helpers.packages import HALF_FLOATS
from tests.helpers.sources import HEADER, as_parquet, csv_folder, json_lines, run_record, shown, values

# ---- ids that folders hold


def in_folders(path: Path, rows: Sequence[tuple[str, str, int]], write: str) -> dict[str, Any]:
    """Rows (folders, item, relevance) at rank 1 in files of their folders, as one log."""
    for folder, item, relevance in rows:
        (path / folder).mkdir(parents=True)
        file, row = path / folder / f"part-0.{write}", {"item_id": item, "position": 1, "relevance": relevance}
        if write == "parquet":
            pq.write_table(pa.table({name: [value] for name, value in row.items()}), file)
        elif write == "csv":
            file.write_text("\n".join([",".join(row), ",".join(map(str, row.values()))]))
        else:
            file.write_text(json.dumps(row))
    return {"format": write, "path": str(path)}


NUMBERS = [
    ("experiment_id=1.1/user_id=007/device=1", "x", 1),
    ("experiment_id=1.10/user_id=007/device=1", "x", 0),
    ("experiment_id=1.10/user_id=7/device=01", "x", 1),
    ("experiment_id=1.10/user_id=2026-11-20/device=1", "x", 0),
]


@pytest.mark.outcome(
    "folders `experiment_id=1.1` and `=1.10`, `user_id=007` and `=7`, as {write}",
    "two experiments, two users: an id is the text of its folder",
)
@pytest.mark.parametrize("write", ["parquet", "csv", pytest.param("json", marks=pytest.mark.slow)])
def test_ids_of_folders_are_the_texts_of_the_folders(spark: SparkSession, tmp_path: Path, write: str) -> None:
    source = in_folders(tmp_path / "log", NUMBERS, write) | {"segments": ["device"]}
    config = from_mapping({"metrics": ["rr"], "evaluation_date": DATE, "source": source})
    result = by_user(road.Tables.of(*job.inputs(spark, config), config.options).user_metrics)
    assert {key: (row["rr"], row["device"]) for key, row in result.items()} == {
        ("1.1", "007"): (1, "1"),
        ("1.10", "007"): (0, "1"),
        ("1.10", "7"): (1, "01"),
        ("1.10", "2026-11-20"): (0, "1"),
    }


@pytest.mark.outcome("judgements in folders `user_id=007` and `=7`", "two users")
def test_ids_of_the_folders_of_judgements_are_texts_too(spark: SparkSession, tmp_path: Path) -> None:
    log = [("experiment_id=1/user_id=007", "x", 0), ("experiment_id=1/user_id=7", "x", 0)]
    source = in_folders(tmp_path / "log", log, "parquet") | {"columns": {"relevance": None}}
    for user, item in (("007", "x"), ("7", "y")):
        (tmp_path / "truth" / f"user_id={user}").mkdir(parents=True)
        pq.write_table(pa.table({"item_id": [item], "relevance": [1]}), tmp_path / "truth" / f"user_id={user}" / "p")
    assert values(spark, source, judgements={"path": str(tmp_path / "truth")}) == {("1", "007"): 1, ("1", "7"): 0}


@pytest.mark.outcome(
    "a filter on `hour=9` and `hour=10` of folders",
    "compares numbers, and days as days: a column of folders that holds no ids has the type that its values suggest",
)
@pytest.mark.parametrize("write", [pytest.param("parquet", marks=pytest.mark.slow), "csv"])
def test_a_filter_compares_folders_by_what_they_hold(spark: SparkSession, tmp_path: Path, write: str) -> None:
    hours = ["9", "10", "11"]
    log = [(f"experiment_id=1.10/user_id={hour}/hour={hour}/day={DATE}", "x", 1) for hour in hours]
    source = in_folders(tmp_path / "log", log, write)
    for where, kept in {
        "hour >= '10'": {"10", "11"},
        "hour < 10": {"9"},
        "hour = '09'": {"9"},
        "day = '2026-11-20' AND experiment_id = '1.10'": {*hours},
        "date_sub(day, -1) = '2026-11-21'": {*hours},
        "experiment_id = '1.1' OR user_id = '010'": set(),
    }.items():
        if not kept:
            rows = sources.read(spark, from_mapping({"source": source | {"where": where}, "metrics": ["rr"]}).source)
            assert rows.count() == 0, where
        else:
            result = values(spark, source | {"where": where})
            assert result == {("1.10", user): 1 for user in kept}, where


@pytest.mark.slow
@pytest.mark.outcome(
    "a folder `user_id=__HIVE_DEFAULT_PARTITION__`, as {write}", "quarantine: `null_user`; its segment is null"
)
@pytest.mark.parametrize("write", ["parquet", "csv", "json"])
def test_the_folder_of_null_is_null(spark: SparkSession, tmp_path: Path, write: str) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    log = [("user_id=u/device=1", "x", 1), (f"user_id={null}/device=1", "x", 1), (f"user_id=v/device={null}", "x", 1)]
    source = in_folders(tmp_path / "log", log, write) | {"segments": ["device"], "columns": {"experiment": None}}
    record = run_record(spark, source, tmp_path / "out")
    assert record["quarantine_reasons"] == {"null_user": 1}
    config = from_mapping({"metrics": ["rr"], "source": source})
    result = road.Tables.of(*job.inputs(spark, config), config.options).user_metrics
    assert {row["user_id"]: row["device"] for row in result.toLocalIterator()} == {"u": "1", "v": None}


# ---- text in another encoding, and what is no number

LATIN = ["modèle,u,x,1,1", "modéle,u,x,1,0", "b,û,x,1,1", "b,ú,x,1,0", "b,v,x,1,1", "b,v,é,2,0", "b,w,x,1,0"]
UNDECODABLE = {"undecodable_experiment": 2, "undecodable_user": 2, "undecodable_item": 1}


@pytest.mark.outcome(
    "a CSV file in Latin-1: `modèle` and `modéle`",
    "quarantine: `undecodable_experiment`, `undecodable_user`, `undecodable_item`; never one experiment",
)
def test_ids_in_another_encoding_are_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join([HEADER, *LATIN]), encoding="latin-1")
    record = run_record(spark, {"format": "csv", "path": str(tmp_path / "log.csv")}, tmp_path / "out")
    assert record["quarantine_reasons"] == UNDECODABLE
    assert record["rows"] == {"in": 7, "evaluated": 2, "quarantined": 5}


@pytest.mark.outcome("a segment in another encoding", "quarantine: `undecodable_device`")
def test_a_segment_in_another_encoding_is_a_faulty_row(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f"{HEADER},device", "a,u,x,1,1,té", "a,v,x,1,1,tè", "a,w,x,1,1,"]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="latin-1")
    source = {"format": "csv", "path": str(tmp_path / "log.csv"), "segments": ["device"]}
    record = run_record(spark, source, tmp_path / "out")
    assert record["quarantine_reasons"] == {"undecodable_device": 2}
    assert record["rows"] == {"in": 3, "evaluated": 1, "quarantined": 2}


@pytest.mark.outcome(
    "JSON and TREC files in Latin-1", "quarantine: `undecodable_experiment`", on_sail="exit 3: the file and the line"
)
@pytest.mark.parametrize("write", ["json", "trec_run"])
def test_json_and_trec_files_in_another_encoding_lose_no_row(spark: SparkSession, tmp_path: Path, write: str) -> None:
    log, truth = tmp_path / "log", tmp_path / "truth"
    truth.write_text("u 0 x 1\n")
    judged = {"judgements": {"format": "trec_qrels", "path": str(truth)}}
    names = ["b", "modèle", "modéle"]
    rows = [shown("u", "x", 1, experiment_id=name, score=1.0, relevance=1) for name in names]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if write == "trec_run":
        lines = [f"u Q0 x 1 1.0 {name}" for name in names]
    log.write_text("\n".join(lines), encoding="latin-1")
    source = {"format": write, "path": str(log)}
    if engine_of(spark) == "sail":
        with pytest.raises(InputError, match=rf"^cannot read '{log}': line 2 is no UTF-8; allowed: files in UTF-8$"):
            run_record(spark, source, tmp_path / "out", **judged)
    else:
        record = run_record(spark, source, tmp_path / "out", **judged)
        assert record["quarantine_reasons"] == {"undecodable_experiment": 2}


@pytest.mark.outcome(
    "an unsigned relevance of 2**63 or more, in Parquet", "works", on_sail="exit 3: the number that Sail cannot read"
)
def test_a_number_that_needs_an_unsigned_type_is_read_or_named(spark: SparkSession, tmp_path: Path) -> None:
    log = pa.Table.from_pylist([shown("u", item, rank, relevance=0) for rank, item in enumerate("xy", start=1)])
    log = log.set_column(log.column_names.index("relevance"), "relevance", pa.array([0, 2**63], pa.uint64()))
    pq.write_table(log, tmp_path / "log.parquet")
    source = {"path": str(tmp_path / "log.parquet")}
    if engine_of(spark) == "sail":
        with pytest.raises(InputError, match=r"holds the number 9223372036854775808, which .* numbers below 2\*\*63"):
            run_record(spark, source, tmp_path / "out")
    else:
        assert run_record(spark, source, tmp_path / "out")["rows"] == {"in": 2, "evaluated": 2, "quarantined": 0}


@pytest.mark.outcome(
    "`source.options.encoding` of a {write} file in Latin-1",
    "works: each name is read as it was written",
    on_sail="exit 3: Sail ignores the option",
)
@pytest.mark.parametrize("write", ["csv", "json"])
def test_another_encoding_is_read_where_it_is_named(spark: SparkSession, tmp_path: Path, write: str) -> None:
    log, names = tmp_path / "log", ["modèle", "modéle"]
    rows = [shown("u", "x", 1, experiment_id=name, relevance=n) for n, name in enumerate(names)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if write == "csv":
        lines = [HEADER, *(f"{name},u,x,1,{n}" for n, name in enumerate(names))]
    log.write_text("\n".join(lines), encoding="latin-1")
    source = {"format": write, "path": str(log), "options": {"encoding": "ISO-8859-1"}}
    if engine_of(spark) == "sail":
        with pytest.raises(InputError, match=f"the engine sail ignores the option 'encoding' of {write}"):
            values(spark, source)
    else:
        assert values(spark, source) == {("modèle", "u"): 0, ("modéle", "u"): 1}


@pytest.mark.outcome("judgements in another encoding", "left out and counted, up to `max_invalid_fraction`")
def test_judgements_in_another_encoding_are_invalid(spark: SparkSession, tmp_path: Path) -> None:
    source = as_parquet(impressions(spark, [("a", "ü", "x", 1, None), ("a", "u", "x", 1, None)]), tmp_path / "log")
    lines = ["user_id,item_id,relevance", "ü,x,1", "u,é,1", "u,è,1", "u,x,1"]
    (tmp_path / "truth.csv").write_text("\n".join(lines), encoding="latin-1")
    truth = {"format": "csv", "path": str(tmp_path / "truth.csv")}
    source |= {"columns": {"relevance": None}}
    record = run_record(spark, source, tmp_path / "out", judgements=truth)
    assert record["judgements"] == {"rows": 4, "invalid": 3, "repeated": 0}


# Text -> the number that it is; None where it is none.
TEXTS = {
    **{"5": 5.0, " 5 ": 5.0, "\t5": 5.0, "+.5": 0.5, "5.": 5.0, "-1e2": -100.0, "1E+2": 100.0, "1e400": float("inf")},
    **{"inf": float("inf"), "-Infinity": -float("inf"), "+INF": float("inf")},
    **dict.fromkeys(["0x1p3", "0x10", "1d", "1F", "1_000", "", "x", "--5", "1e", ".", "1 2", "+nan", "5\u2028", "٣"]),
}


@pytest.mark.outcome("a score written as `0x1p3`, `1d`, `1_000` or in other digits", "quarantine: `unreadable_score`")
def test_texts_are_the_same_numbers_on_every_engine(spark: SparkSession) -> None:
    rows = [("a", text, "x", text, 1) for text in TEXTS]
    log = impressions(spark, rows, "experiment_id string, user_id string, item_id string, score string, relevance int")
    result = evaluate(log, "rr", rank_by="score", text_numbers=True)
    assert {row["user_id"] for row in result.user_metrics.collect()} == {t for t, x in TEXTS.items() if x is not None}
    quarantine = {row["user_id"]: row["reason"] for row in result.quarantine.collect()}
    assert quarantine == dict.fromkeys((text for text, x in TEXTS.items() if x is None), "unreadable_score")
    with pytest.raises(QualityError, match=r"unreadable_score 14; allowed: numbers such as 0\.5, with decimal points$"):
        result.check()
    ranked = evaluate(log.withColumnRenamed("score", "position"), "rr", text_numbers=True)
    with pytest.raises(QualityError, match=r"unreadable_position 14, .*; allowed: whole numbers such as 1$"):
        ranked.check()
    read = log.selectExpr("score", f"{as_number('score')} AS number").collect()
    assert {row["score"]: row["number"] for row in read} == TEXTS


@pytest.mark.outcome("a JSON line `[1,2]`, or an array of an object and something else", "quarantine: one faulty row")
def test_a_json_array_of_anything_but_objects_is_one_faulty_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = [json.dumps(shown(user, "x", 1, relevance=1)) for user in "uv"]
    lines = [f"[{rows[0]}, {rows[1]}]", "[1,2]", f"[{rows[0]}, 2]", f"[{rows[0]}, null]", "[]", "[[]]"]
    record = run_record(spark, json_lines(tmp_path / "log.json", lines), tmp_path / "out")
    assert record["rows"] == {"in": 7, "evaluated": 2, "quarantined": 5}
    assert record["quarantine_reasons"] == {"null_experiment": 5}
    # A first line that is cut off is a faulty row as any other; it is not a document over several lines.
    cut_off = json_lines(tmp_path / "cut_off.json", [rows[0].partition(" ")[0].replace(":", ": {"), *rows])
    assert run_record(spark, cut_off, tmp_path / "again")["rows"] == {"in": 3, "evaluated": 2, "quarantined": 1}


# ---- what pandas writes


def pandas_log(**more: Any) -> pd.DataFrame:
    return pd.DataFrame([Shown("a", "u", "x", 1, 1), Shown("a", "v", "x", 1, 0)]).assign(**more)


ODD = {
    "category": pd.Categorical(["p", "q"]),
    "timedelta": pd.to_timedelta([1, 2], unit="s"),
    "float16": np.array([1, 2], "float16"),
    "datetime64[ns]": pd.to_datetime(["2026-11-20 01:02:03.000000001", "2026-11-20 00:00:00.000000000"]),
    "datetime64[ns, UTC]": pd.to_datetime(["2026-11-20 01:02:03.000000001"] * 2).tz_localize("UTC"),
    "uint32": np.array([1, 2], "uint32"),
}
has_half_floats = pytest.mark.skipif(not HALF_FLOATS, reason="this PyArrow writes no numbers of 16 bits")


@pytest.mark.outcome("a Parquet file of pandas with an unused column of type {kind}", "works")
@pytest.mark.parametrize("kind", [pytest.param(k, marks=has_half_floats if k == "float16" else ()) for k in ODD])
def test_an_unused_column_of_any_type_of_pandas_changes_nothing(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "log" / "experiment_id=1.10"
    folder.mkdir(parents=True)
    log = pandas_log(odd=ODD[kind], more=ODD["category"]).drop(columns="experiment_id")
    pq.write_table(pa.Table.from_pandas(log), folder / "part-0.parquet", version="2.6")
    source = {"path": str(tmp_path / "log"), "where": "user_id IN ('u', 'v') AND more IN ('p', 'q')"}
    assert values(spark, source) == {("1.10", "u"): 1, ("1.10", "v"): 0}


@pytest.mark.outcome("ids in a column that pandas wrote as a `category`", "works")
def test_a_category_is_a_text(spark: SparkSession, tmp_path: Path) -> None:
    log = pandas_log(odd=ODD["uint32"]).astype({"experiment_id": "category", "user_id": "category"})
    log.to_parquet(tmp_path / "log.parquet")
    assert values(spark, {"path": str(tmp_path / "log.parquet")}) == {("a", "u"): 1, ("a", "v"): 0}


@pytest.mark.outcome(
    "a segment, covariate, list or relevance without a value, which pandas writes as a column of nulls",
    "works like any column of nulls",
)
def test_a_column_of_nulls_needs_no_type(spark: SparkSession, tmp_path: Path) -> None:
    pandas_log(none=None).to_parquet(tmp_path / "log.parquet")
    assert pq.read_schema(tmp_path / "log.parquet").field("none").type == "null"
    log = spark.read.parquet(str(tmp_path / "log.parquet"))
    result = evaluate(log, ["rr"], segments="none", covariate="none")
    of_segments = {row["segment"]: (row["n_users"], row["mean"]) for row in result.experiment_metrics.collect()}
    assert of_segments == {"all": (2, 1 / 2), "none=null": (2, 1 / 2)}
    for roles in ({"columns": {"relevance": "none"}}, {"list": "none"}):
        left_out = evaluate(log, ["rr"], **roles).quarantine.collect()
        assert {row["reason"] for row in left_out} == {"null_relevance" if "columns" in roles else "null_none"}
        assert len(left_out) == 2
    out = tmp_path / "out"
    record = run_record(spark, {"path": str(tmp_path / "log.parquet"), "segments": ["none"]}, out)
    assert record["rows"] == {"in": 2, "evaluated": 2, "quarantined": 0}
    assert record["inputs"]["source"]["schema"]["none"] == "int"


@pytest.mark.outcome(
    "users, lists or segments in a column of times without a time zone, as pandas, Polars and DuckDB write them",
    "works: a time is its text, such as `2026-11-20 01:02:03.5`",
)
def test_a_time_without_a_zone_is_a_text(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([datetime(2026, 11, 20, 1, 2, 3, 500_000), datetime(2026, 11, 20)], pa.timestamp("us"))
    pq.write_table(pa.Table.from_pandas(pandas_log()).append_column("odd", times), tmp_path / "log.parquet")
    source = {"path": str(tmp_path / "log.parquet")}
    texts = ("2026-11-20 01:02:03.5", "2026-11-20 00:00:00")
    assert values(spark, source | {"columns": {"user": "odd"}}) == {("a", texts[0]): 1, ("a", texts[1]): 0}
    assert values(spark, source | {"list": ["odd"]}) == {("a", "u"): 1, ("a", "v"): 0}
    segments = evaluate(spark.read.parquet(source["path"]), ["rr"], segments="odd").experiment_metrics.collect()
    assert {r["segment"]: r["mean"] for r in segments} == {"all": 1 / 2, f"odd={texts[0]}": 1, f"odd={texts[1]}": 0}


@pytest.mark.outcome("an empty table that pandas has written", "exit 3: the input is empty")
def test_an_empty_table_of_pandas_is_an_empty_input(spark: SparkSession, tmp_path: Path) -> None:
    pandas_log().head(0).astype(object).to_parquet(tmp_path / "log.parquet")
    assert {*pq.read_schema(tmp_path / "log.parquet").types} == {pa.null()}
    with pytest.raises(InputError, match=r"^the input is empty: no rows in .*log\.parquet"):
        run_record(spark, {"path": str(tmp_path / "log.parquet")}, tmp_path / "out")


@pytest.mark.outcome(
    "timestamps in nanoseconds, or numbers of 16 bits, that a run needs",
    "exit 3: the column and its type",
    on_sail="works; a time is cut to microseconds, and ids that would be equal then are exit 3",
)
@has_half_floats
def test_a_needed_column_of_a_type_that_spark_cannot_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    log = pandas_log(at=ODD["datetime64[ns]"], half=ODD["float16"])
    pq.write_table(pa.Table.from_pandas(log), tmp_path / "log.parquet", version="2.6")
    by_time = {"path": str(tmp_path / "log.parquet"), "where": "at >= '2026-11-20 01:00:00'"}
    by_half = {"path": str(tmp_path / "log.parquet"), "columns": {"relevance": "half"}}
    if engine_of(spark) == "sail":
        assert values(spark, by_time) == {("a", "u"): 1}
        assert values(spark, by_half) == {("a", "u"): 1, ("a", "v"): 1}
        return
    with pytest.raises(InputError, match=r"'at' has type timestamp\[ns\], which the engine spark cannot read from"):
        values(spark, by_time)
    with pytest.raises(InputError, match=r"^column 'half' has type halffloat, which the engine spark cannot read"):
        values(spark, by_half)


# ---- files that one engine reads otherwise


@pytest.mark.outcome(
    "a CSV row with more or fewer fields than the first",
    "a long row is cut, a short one has nulls: `null_relevance`",
    on_sail="exit 3: the file and the line",
)
def test_a_csv_row_of_another_length_is_named(spark: SparkSession, tmp_path: Path) -> None:
    more = f'{HEADER}\na,t,x,1,1\na,v,"x\ny",1,1\na,w,x,1\na,z,x,1,1,9\n'
    source = csv_folder(tmp_path / "log", f"{HEADER}\na,u,x,1,1\n", more)
    if engine_of(spark) == "sail":
        with pytest.raises(InputError, match=r"^cannot read '.*part-1\.csv': line 5 has 4 fields, and the first"):
            run_record(spark, source, tmp_path / "out")
    else:
        record = run_record(spark, source | {"options": {"multiLine": True}}, tmp_path / "out")
        assert record["quarantine_reasons"] == {"null_relevance": 1} and record["rows"]["evaluated"] == 4


@pytest.mark.outcome("compressed CSV files with one header, or with two", "works; exit 3: the file and its header")
def test_headers_of_compressed_csv_files_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()

    def write(name: str, text: str) -> None:
        # The time in a gzip file differs from file to file.
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=len(name)))

    write("a.csv.gz", f"{HEADER}\na,u,x,1,1\n")
    write("bb.csv.gz", f"{HEADER}\na,v,x,1,0\na,v,y,2,1\n")
    source = {"format": "csv", "path": str(folder)}
    assert values(spark, source) == {("a", "u"): 1, ("a", "v"): 1 / 2}
    write("ccc.csv.gz", "experiment_id,item_id,user_id,position,relevance\na,z,u,3,1\n")
    with pytest.raises(InputError, match=r"^cannot read '.*\.csv\.gz': "):
        run_record(spark, source, tmp_path / "out")


@pytest.mark.outcome(
    "a path such as `log/{a,b}`", "the files of every choice; several braces and wildcards work together"
)
def test_braces_stand_for_each_of_their_choices(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("one/a", "one/b", "two/a", "two/c"):
        parquet(tmp_path / folder, [Shown(folder, "u", "x", 1, 1)])
    for path, expected in {
        "one/{a,b}": {"one/a", "one/b"},
        "{one,two}/a": {"one/a", "two/a"},
        "{one,two}/{a,c}": {"one/a", "two/a", "two/c"},
        "*/{b,c}": {"one/b", "two/c"},
    }.items():
        assert {name for name, _ in values(spark, {"path": f"{tmp_path}/{path}"})} == expected, path
