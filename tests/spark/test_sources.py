"""Input formats and column mappings: the same log gives the same values."""

import gzip
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import config as cfg, run, sources
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.errors import InputError, QualityError
from tests.helpers import sources as made
from tests.helpers.logs import DATE, impressions


def as_orc(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.orc(str(path))
    return {"format": "orc", "path": str(path)}


def as_csv(log: DataFrame, path: Path) -> dict[str, Any]:
    lines = [",".join(made.NAMES), *(",".join(map(str, row)) for row in made.LOG)]
    with gzip.open(path.with_suffix(".csv.gz"), "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return {"format": "csv", "path": str(path.with_suffix(".csv.gz"))}


def as_csv_without_header(log: DataFrame, path: Path) -> dict[str, Any]:
    path.write_text("\n".join(";".join(map(str, row)) for row in made.LOG), encoding="utf-8")
    columns = {role: f"_c{at}" for at, role in enumerate(("experiment", "user", "item", "position", "relevance"))}
    return {"format": "csv", "path": str(path), "columns": columns, "options": {"header": False, "sep": ";"}}


def as_json(log: DataFrame, path: Path) -> dict[str, Any]:
    path.write_text("\n".join(json.dumps(dict(zip(made.NAMES, r, strict=True))) for r in made.LOG), encoding="utf-8")
    return {"format": "json", "path": str(path)}


def as_table(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.mode("overwrite").saveAsTable("impressions_of_a_test")
    return {"table": "default.impressions_of_a_test"}


def as_several_paths(log: DataFrame, path: Path) -> dict[str, Any]:
    log.where("experiment_id = '7'").write.parquet(f"{path}/seven")
    log.where("experiment_id <> '7'").write.parquet(f"{path}/double o seven")
    return {"path": [f"{path}/seven", f"{path}/double o seven"]}


def as_unusual_columns(log: DataFrame, path: Path) -> dict[str, Any]:
    log.toDF("ab.variant", "the user", "item`s", "Rang", "größe").write.parquet(str(path))
    roles = {"experiment": "ab.variant", "user": "the user", "item": "item`s", "position": "Rang", "relevance": "größe"}
    return {"path": str(path), "columns": roles}


def as_short_names(log: DataFrame, path: Path) -> dict[str, Any]:
    log.toDF("experiment", "user", "item", "position", "relevance").write.parquet(str(path))
    return {"path": str(path)}


def as_filtered(log: DataFrame, path: Path) -> dict[str, Any]:
    more = log.selectExpr("*", "'new' as `day of`").union(log.selectExpr("*", "'old'"))
    more.write.parquet(str(path))
    return {"path": str(path), "where": "`day of` = 'new'"}


def as_dated(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.parquet(f"{path}/day={DATE}")
    return {"path": f"{path}/day={{date}}"}


WRITERS = [
    made.as_parquet,
    pytest.param(as_orc, marks=pytest.mark.needs_spark("Sail reads no ORC")),
    as_csv,
    as_csv_without_header,
    as_json,
    as_table,
    as_several_paths,
    as_unusual_columns,
    as_short_names,
    as_filtered,
    as_dated,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_format_and_every_column_mapping_gives_the_same_values(
    spark: SparkSession, tmp_path: Path, write: Callable[[DataFrame, Path], dict[str, Any]]
) -> None:
    source = write(impressions(spark, made.LOG).coalesce(1), tmp_path / "log")
    assert made.values(spark, source) == made.VALUES


def test_a_log_without_an_experiment_column_is_one_experiment(spark: SparkSession, tmp_path: Path) -> None:
    source = made.as_parquet(impressions(spark, made.LOG[:2]).drop("experiment_id", "item_id"), tmp_path / "log")
    source["columns"] = {"experiment": None, "item": None}
    assert made.values(spark, source) == {("all", "u 1"): 1 / 2}


def test_clicks_may_be_booleans_and_ranks_may_be_floats(spark: SparkSession, tmp_path: Path) -> None:
    log = impressions(spark, made.LOG).selectExpr(
        "experiment_id", "user_id", "item_id", "cast(position as float) position", "relevance = 1 as relevance"
    )
    assert made.values(spark, made.as_parquet(log, tmp_path / "log")) == made.VALUES


def test_a_trec_run_is_ranked_by_its_score_and_judged_by_its_qrels(spark: SparkSession, tmp_path: Path) -> None:
    file, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    # The ranks are wrong on purpose; equal scores are in descending order of the document.
    file.write_text("1 Q0 d1 1 0.5 tag\n1\tQ0\td2  2   0.9   tag   more\n\n  1 Q0 d3 3 0.5 tag\n002 Q0 d1 1 1e-3 tag\n")
    qrels.write_text("1 0 d1 1\n1 0 d2 0\n1 0 d9 2\n002 0 d1 -1\n003 0 d1 1\n")
    source = {"format": "trec_run", "path": str(file)}
    judged = {"format": "trec_qrels", "path": str(qrels)}
    result = made.values(spark, source, judgements=judged, convention="trec_eval")
    assert result == {("tag", "1"): 1 / 3, ("tag", "002"): 0, ("tag", "003"): 0}


@pytest.mark.outcome(
    "lines of a TREC run with too few words or an unreadable score", "quarantine: `null_experiment`, `unreadable_score`"
)
def test_a_line_of_a_trec_run_with_too_few_words_is_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("1 Q0 d1 1 0.5 tag\n1 Q0 d2 2\n1 Q0 d3 3 high tag\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n")
    source = {"format": "trec_run", "path": str(tmp_path / "run.txt")}
    judged = {"format": "trec_qrels", "path": str(tmp_path / "qrels.txt")}
    record = made.run_record(spark, source, tmp_path / "out", judgements=judged)
    assert record["quarantine_reasons"] == {"null_experiment": 1, "unreadable_score": 1}
    assert record["rows"] == {"in": 3, "evaluated": 1, "quarantined": 2}


@pytest.mark.outcome(
    "a CSV folder whose files have their columns in different orders",
    "exit 3: the file and its header; nothing but a run record is written",
)
@pytest.mark.parametrize("first", [0, 1])
def test_csv_files_with_columns_in_another_order_are_refused(spark: SparkSession, tmp_path: Path, first: int) -> None:
    files = [f"{made.HEADER}\na,u,x,1,1\na,u,y,2,0\n", "experiment_id,item_id,user_id,position,relevance\na,z,u,3,1\n"]
    source = made.csv_folder(tmp_path / "log", files[first], files[1 - first])
    with pytest.raises(InputError, match=r"^cannot read '.*part-\d\.csv': .*columns? ") as caught:
        made.run_record(spark, source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "user_metrics").exists()


def test_csv_files_with_one_header_in_any_case_are_one_log(spark: SparkSession, tmp_path: Path) -> None:
    source = made.csv_folder(tmp_path / "log", f"{made.HEADER}\na,u,x,1,1\n", f"{made.HEADER.upper()}\na,v,x,1,0\n", "")
    rows = sources.read(spark, cfg.from_mapping({"source": source, "metrics": ["rr"]}).source)
    assert {tuple(row) for row in rows.toLocalIterator()} == {("a", "u", "x", "1", "1"), ("a", "v", "x", "1", "0")}


WITHOUT_A_FILTER = "the same without a filter; with one, exit 3: `use --engine spark`"


def refusal(where: str | None, spark: SparkSession) -> str | None:
    """What Sail says of JSON with a filter; None if the engine reads it."""
    if where is None or engine_of(spark) == "spark":
        return None
    infers = "of JSON the engine sail infers columns from the first rows; use --engine spark"
    return f"^source.where is given, but {infers}$"


def read_with(where: str | None, spark: SparkSession) -> AbstractContextManager[object]:
    """What reading JSON with this filter is expected to do."""
    sentence = refusal(where, spark)
    return pytest.raises(InputError, match=sentence) if sentence else nullcontext()


# 1100 rows are more than those that answer for most columns.
LATE = [made.shown(f"u{n}", "x", 1) for n in range(1100)]
CLICKED = [made.shown("last", "x", 1, relevance=0), made.shown("last", "y", 2, relevance=1)]


@pytest.mark.outcome(
    "a JSON log whose first 1,100 rows have no click column, filter {where}",
    "every row counts: 2 evaluated, 1,100 in quarantine with `null_relevance`",
    on_sail=WITHOUT_A_FILTER,
)
@pytest.mark.parametrize("where", [None, "position >= 1"])
def test_json_whose_first_rows_lack_clicks_is_read(spark: SparkSession, tmp_path: Path, where: str | None) -> None:
    source = made.json_lines(tmp_path / "log.json", [*LATE, *CLICKED]) | ({"where": where} if where else {})
    with read_with(where, spark):
        record = made.run_record(spark, source, tmp_path / "out")
        assert record["rows"] == {"in": 1102, "evaluated": 2, "quarantined": 1100}
        assert record["quarantine_reasons"] == {"null_relevance": 1100}


@pytest.mark.outcome("the same JSON rows in another order", "the same values")
@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_json_rows_changes_no_value(spark: SparkSession, tmp_path: Path, turned: bool) -> None:
    rows = [*LATE, *CLICKED]
    source = made.json_lines(tmp_path / "log.json", rows[::-1] if turned else rows)
    truth = made.json_lines(tmp_path / "truth.json", [{"user_id": "last", "item_id": "x", "relevance": 1}])
    result = made.values(spark, source, judgements=truth)
    # The clicks of the log count: they are in it, although not in its first rows.
    assert result[("a", "last")] == 1 / 2


@pytest.mark.outcome(
    "lines that are not JSON, or two values on a line, filter {where}",
    "quarantine: each line is a faulty row",
    on_sail=WITHOUT_A_FILTER,
)
@pytest.mark.parametrize("where", [None, "country = 'de'", "context.page = 'home' AND country = 'de'"])
def test_lines_that_are_not_json_are_counted_as_faulty(spark: SparkSession, tmp_path: Path, where: str | None) -> None:
    more = {"relevance": 1, "country": "de", "context": {"page": "home"}}
    rows: list[dict[str, Any] | str] = [made.shown("u", "x", 1, **more)]
    rows += ['{"experiment_id": "a", "user_id": "u", "item_id": "y"', "no json", "7"]
    # Of two values on a line, Spark's reader would take the first and drop the second.
    two = json.dumps(made.shown("u", "y", 2, **more)), json.dumps(made.shown("u", "z", 3, **more))
    rows += ["".join(two), ", ".join(two), f"{two[0]} ]", f"[{two[0]}]{two[1]}"]
    # An array is one value; a line without text is no row.
    rows += [f" [{two[0]}, {two[1]}]", "  "]
    source = made.json_lines(tmp_path / "log.json", ["\ufeff" + json.dumps(rows[0]), *rows[1:]])
    with read_with(where, spark):
        record = made.run_record(spark, source | ({"where": where} if where else {}), tmp_path / "out")
        assert record["rows"] == {"in": 10, "evaluated": 3, "quarantined": 7}
        assert record["quarantine_reasons"] == {"null_experiment": 7}


@pytest.mark.slow
@pytest.mark.needs_spark("Sail reads one JSON object a line only")
def test_columns_of_folders_of_a_json_log_are_read_as_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    row = {"user_id": "u", "item_id": "x", "position": 1, "relevance": 1}
    folder = tmp_path / "log" / "experiment_id=007" / "day=2026-11-20"
    folder.mkdir(parents=True)
    (folder / "rows.json").write_text(json.dumps(row, indent=1))
    source = {"format": "json", "path": str(tmp_path / "log"), "options": {"multiLine": True}}
    assert made.values(spark, source) == made.values(spark, source | {"where": "position = 1"}) == {("007", "u"): 1}


@pytest.mark.needs_spark("Sail reads JSON without a filter only")
def test_a_filter_leaves_the_ids_of_json_as_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    # Spark 3.5 reads a number with a point as a double before it becomes a text.
    ids = '"user_id": 12345678901234567890, "item_id": {"sku": 1}'
    line = f'{{"experiment_id": true, {ids}, "position": 1, "relevance": 1, "day": "new"}}'
    source = made.json_lines(tmp_path / "log.json", [line, line.replace("new", "old")]) | {"where": "day = 'new'"}
    assert made.values(spark, source) == {("true", "12345678901234567890"): 1}


@pytest.mark.outcome(
    "a mapped column that no JSON row has, filter {where}", "exit 3: the column", on_sail=WITHOUT_A_FILTER
)
@pytest.mark.parametrize("where", [None, "position = 1"])
def test_a_column_that_no_json_row_has_is_named(spark: SparkSession, tmp_path: Path, where: str | None) -> None:
    source = made.json_lines(tmp_path / "log.json", list(LATE)) | {"columns": {"relevance": "clicked"}}
    missing = "the impressions have no column for relevance: unknown column 'clicked'"
    with pytest.raises(InputError, match=refusal(where, spark) or missing):
        made.values(spark, source | ({"where": where} if where else {}))


def test_runs_with_one_tag_are_told_apart_by_their_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    names = ["a.run", "b 1%+ä.run"]
    for name, documents in zip(names, (["d1", "d2"], ["d2", "d1"]), strict=True):
        lines = [f"1 Q0 {document} {rank} {1 / rank} tag" for rank, document in enumerate(documents, start=1)]
        (folder / name).write_text("\n".join(lines))
    (folder / "notes.txt").write_text("these are words that look like a run\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n")
    source = {"format": "trec_run", "path": f"{folder}/*.run"}
    if engine_of(spark) == "spark":
        source = {"format": "trec_run", "path": str(folder), "options": {"pathGlobFilter": "*.run"}}
    judged = {"format": "trec_qrels", "path": str(tmp_path / "qrels.txt")}
    by_file = source | {"experiment_from": "file"}
    assert made.values(spark, by_file, judgements=judged) == {(names[0], "1"): 1, (names[1], "1"): 1 / 2}
    # By their tags, both files are one run that shows each document twice.
    document = {"source": source, "judgements": judged, "metrics": ["rr"], "sink": {"path": str(tmp_path / "out")}}
    with pytest.raises(
        QualityError, match=r"; if several files have the same tag, set source.experiment_from to file$"
    ):
        run(spark, cfg.from_mapping(document))


def test_clicks_in_text_may_be_true_or_false(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["a,u,x,1,false", "a,u,y,2, True ", "a,v,x,1,FALSE"]
    source = made.csv_folder(tmp_path / "log", "\n".join([made.HEADER, *lines]))
    assert made.values(spark, source) == {("a", "u"): 1 / 2, ("a", "v"): 0}


@pytest.mark.parametrize(
    "where",
    [
        None,
        pytest.param(
            "u.day = 'new'", marks=[pytest.mark.needs_spark("Sail reads JSON without a filter only"), pytest.mark.slow]
        ),
    ],
)
def test_a_field_of_a_json_object_is_a_column(spark: SparkSession, tmp_path: Path, where: str | None) -> None:
    rest = {"experiment_id": "a", "item_id": "x", "position": 1, "relevance": 1}
    rows = [{"u": {"id": 7, "day": "new"}, **rest}, {"u.id": "own", "u": {"id": "other", "day": "new"}, **rest}]
    source = (
        made.json_lines(tmp_path / "log.json", rows)
        | {"columns": {"user": "u.id"}}
        | ({"where": where} if where else {})
    )
    assert made.values(spark, source) == {("a", "7"): 1, ("a", "own"): 1}
    with pytest.raises(InputError, match=r"no column for user_id: unknown column 'u\.uid'"):
        made.values(spark, source | {"columns": {"user": "u.uid"}})


def rows_as(format: str, rows: list[tuple[Any, ...]], path: Path) -> None:
    """Write rows of (user, item, position, relevance) as a file of a format; its name may ask for compression."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [dict(zip(made.NAMES[1:], row, strict=True)) for row in rows]
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    if format in ("csv", "json"):
        lines = [json.dumps(row) for row in records]
        if format == "csv":
            lines = [",".join(made.NAMES[1:]), *(",".join(map(str, row)) for row in rows)]
        with pa.output_stream(path, compression=codec) as stream:
            stream.write("\n".join(lines).encode())
    else:
        {"parquet": pq.write_table, "orc": orc.write_table}[format](pa.Table.from_pylist(records), str(path))


ARMS = {"control": [("u", "x", 1, 0), ("u", "y", 2, 1)], "b 1%+ä": [("u", "x", 1, 1), ("007", "y", 4, 1)]}
RR = {("control", "u"): 1 / 2, ("b 1%+ä", "u"): 1, ("b 1%+ä", "007"): 1 / 4}
ONLY_SPARK_READS_ORC = pytest.mark.needs_spark("Sail reads no ORC")
FORMATS = [
    "csv",
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("json", "parquet")),
    pytest.param("orc", marks=[ONLY_SPARK_READS_ORC, pytest.mark.slow]),
]


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_any_format_name_the_experiments(spark: SparkSession, tmp_path: Path, format: str) -> None:
    for name, rows in ARMS.items():
        rows_as(format, rows, tmp_path / "logs" / "more" / f"{name}.{format}")
    for path in (f"{tmp_path}/logs", f"{tmp_path}/logs/more/*"):
        assert made.values(spark, {"format": format, "path": path, "experiment_from": "file"}) == RR
    # Whatever a column says.
    rows = [{"experiment_id": "other", **dict(zip(made.NAMES[1:], ARMS["control"][1], strict=True))}]
    path = tmp_path / f"own.{format}"
    if format in ("csv", "json"):
        as_text = "\n".join([",".join(rows[0]), ",".join(map(str, rows[0].values()))])
        path.write_text(as_text if format == "csv" else json.dumps(rows[0]))
    else:
        {"parquet": pq.write_table, "orc": orc.write_table}[format](pa.Table.from_pylist(rows), str(path))
    assert made.values(spark, {"path": str(path), "experiment_from": "file"}) == {("own", "u"): 1 / 2}
    # One file among others.
    source = {"path": f"{tmp_path}/logs/more/control.{format}", "experiment_from": "file"}
    assert made.values(spark, source) == {("control", "u"): 1 / 2}


@pytest.mark.parametrize("format", FORMATS)
def test_folders_name_the_experiments_and_may_hold_partitions(spark: SparkSession, tmp_path: Path, format: str) -> None:
    for name, rows in ARMS.items():
        for number, row in enumerate(rows):
            rows_as(format, [row], tmp_path / "plain" / name / f"{number}.{format}")
            rows_as(format, [row], tmp_path / "days" / name / "day=20" / f"{number}.{format}")
            late = [("late", f"x{number}", number + 1, 1)]
            rows_as(format, late, tmp_path / "days" / name / "day=21" / f"{number}.{format}")
    source = {"format": format, "experiment_from": "folder"}
    for path in (f"{tmp_path}/plain", f"{tmp_path}/plain/*"):
        assert made.values(spark, source | {"path": path}) == RR
    if format != "json" or engine_of(spark) == "spark":  # Sail filters no JSON
        assert made.values(spark, source | {"path": f"{tmp_path}/days", "where": "day = 20"}) == RR
    # A path chooses partition folders too: one, or several of an experiment.
    for path in (f"{tmp_path}/days/*/day=20", [f"{tmp_path}/days/{name}/day=20/" for name in ARMS]):
        assert made.values(spark, source | {"path": path}) == RR
    of_two_days = RR | {(name, "late"): 1.0 for name in ARMS}
    assert made.values(spark, source | {"path": f"{tmp_path}/days/*/day=2[01]"}) == of_two_days


@pytest.mark.parametrize("ending", ["", *(pytest.param(each, marks=pytest.mark.slow) for each in (".gz", ".zst"))])
@pytest.mark.parametrize(
    "formats",
    [*(pytest.param((each, each), marks=pytest.mark.slow) for each in ("csv", "json")),
     ("parquet", "csv"), ("json", "parquet")],
)  # fmt: skip
def test_a_mapping_names_the_files_of_each_experiment_whatever_their_format(
    spark: SparkSession, tmp_path: Path, formats: tuple[str, str], ending: str
) -> None:
    if ending == ".zst" and spark.version < "4.1" and engine_of(spark) == "spark":
        pytest.skip("Spark reads text in zstd from 4.1 on; before, where Hadoop has its native libraries")
    paths = {}
    for (name, rows), format in zip(ARMS.items(), formats, strict=True):
        file = tmp_path / name / f"log.{format}{'' if format == 'parquet' else ending}"
        rows_as(format, rows, file)
        paths[name] = f"{tmp_path}/{name}/*{''.join(file.suffixes)}" if name == "control" else str(file)
    assert made.values(spark, {"path": paths}) == RR


def test_a_text_that_is_no_number_is_a_faulty_row_beside_a_typed_file_too(spark: SparkSession, tmp_path: Path) -> None:
    rows_as("parquet", ARMS["control"], tmp_path / "a.parquet")
    rows_as("csv", [("u", "x", "first", 1), ("u", "y", 2, 1)], tmp_path / "b.csv")
    source = {"path": {"a": f"{tmp_path}/a.parquet", "b": f"{tmp_path}/b.csv"}}
    record = made.run_record(spark, source, tmp_path / "out")
    assert (record["rows"]["in"], record["quarantine_reasons"]) == (4, {"unreadable_position": 1})


def test_a_log_without_users_can_have_its_requests_as_units(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"experiment_id": "a", "request": "r1", "item_id": "x", "position": 2, "relevance": 1}]
    source = made.json_lines(tmp_path / "log.json", rows)
    with pytest.raises(InputError) as caught:
        made.values(spark, source)
    assert str(caught.value).endswith(
        "; a log without users can have its requests as units: columns.user names the column of the request, and each "
        "one counts as a user of its own"
    )
    assert made.values(spark, source | {"columns": {"user": "request"}}) == {("a", "r1"): 1 / 2}


@pytest.mark.outcome(
    "a filter on a column that the input does not have", "exit 3: the column, the nearest one, and all others"
)
@pytest.mark.parametrize("format", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_an_unknown_column_of_a_filter_names_the_known_ones(spark: SparkSession, tmp_path: Path, format: str) -> None:
    for name, rows in ARMS.items():
        rows_as(format, rows, tmp_path / f"{name}.{format}")
    paths = {name: f"{tmp_path}/{name}.{format}" for name in ARMS}
    for source in ({"path": paths["control"]}, {"path": paths}, {"path": str(tmp_path), "experiment_from": "file"}):
        for name, nearest in {"positon": "; did you mean 'position'?", "`v w`.x": ";"}.items():
            with pytest.raises(InputError) as caught:
                made.values(spark, {"format": format, "where": f"{name} < 3", **source})
            unknown = f"source.where '{name} < 3': unknown column '{name.replace('`', '')}'{nearest}"
            assert str(caught.value).startswith(f"{unknown} known: user_id, item_id, position, relevance")


def test_a_day_without_rows_names_the_filter_that_left_none(spark: SparkSession, tmp_path: Path) -> None:
    rows_as("parquet", ARMS["control"], tmp_path / "a.parquet")
    source = {"path": {"a": f"{tmp_path}/a.parquet"}, "where": "user_id = '{date}'"}
    with pytest.raises(InputError) as caught:
        made.run_record(spark, source, tmp_path / "out", evaluation_date=DATE)
    assert str(caught.value) == (
        f"the input is empty: no rows in {tmp_path}/a.parquet that fulfil source.where \"user_id = '{DATE}'\""
    )


def test_a_file_with_another_separator_is_one_sentence_with_the_option(spark: SparkSession, tmp_path: Path) -> None:
    lines = [";".join(made.NAMES), *(";".join(map(str, row)) for row in made.LOG)]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    source = {"format": "csv", "path": str(tmp_path / "log.csv")}
    with pytest.raises(InputError, match=r"several: source.options: \{sep: ';'\} separates them$"):
        made.values(spark, source)
    assert made.values(spark, source | {"options": {"sep": ";"}}) == made.VALUES
