"""docs/tables.md: each table has the columns that the page lists, and each tool reads the same numbers."""

from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, pointers, read, run, schemas as sch

# The reason: a date gets the layout of another output without a run.
from rankmetrics_spark.sinks import files_of, swapping
from tests.helpers.commands import ROOT, Call
from tests.helpers.logs import a_list, parquet
from tests.helpers.readme import blocks, commands, names_after, section
from tests.tables_page import tables, updated

PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
DAYS = ("2026-11-20", "2026-11-21")
# The relevant item is first in 007, and second in b/c: NDCG is 1, and 1 / log2(3).
NDCG = {"007": 1.0, "b/c": 0.6309297535714575}
ANSWER = [(name, date.fromisoformat(day), NDCG[name] if day == DAYS[1] else None) for name in NDCG for day in DAYS]


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two days have written; the second one has a metric more, and each column that is asked for."""
    folder = tmp_path_factory.mktemp("tables")
    rows = [row for n in range(3) for name, grades in (("007", [1, 0]), ("b/c", [0, 1]))
            for row in a_list(grades, f"u{n}", name)]  # fmt: skip
    log = parquet(folder / "log", [*rows, rows[0]._replace(item_id=None, position=9)])
    for day, metrics in zip(DAYS, ("ap@10", "ap@10, ndcg@10"), strict=True):
        document = {"source": {"path": str(log)}, "metrics": metrics, "evaluation_date": day,
                    "comparison": {"baseline": "007", "only_changed": day == DAYS[1], "bootstrap": day == DAYS[1]},
                    "percentiles": [50] if day == DAYS[1] else [], "quality": {"max_invalid_fraction": 1},
                    "sink": {"path": str(folder / "out" / "first")}}  # fmt: skip
        run(spark, cfg.from_mapping(document))
    return folder / "out"


@pytest.fixture
def out(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the examples, in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)
    copytree(stored, tmp_path / "out", symlinks=True)
    return tmp_path / "out" / "first"


def program(tool: str, language: str) -> str:
    """The first block of code about a tool."""
    return str(blocks(language, section(tool, PAGE))[0])


def answered(rows: Any) -> list[tuple[Any, ...]]:
    """(experiment, date, mean) with null where there is none, whatever the tool calls it."""
    return [(name, day, None if mean is None or mean != mean else pytest.approx(mean)) for name, day, mean in rows]


@pytest.mark.both_engines
def test_each_table_has_the_columns_and_types_of_the_page(spark: SparkSession, out: Path) -> None:
    assert updated(PAGE) == PAGE, "run make readme"
    listed = {table: columns for table, columns in tables().items() if table not in (*sch.OF_DATES, sch.USER_STATES)}
    assert len(listed) == 5
    result = {table: dict(read(spark, f"{out}/{table}").dtypes) for table in listed}
    metrics = {"ap_at_10": "double", "ndcg_at_10": "double"}
    listed["user_metrics"] |= metrics
    for table, request, stored in (("experiment_metrics", "_<p>", "_50"), ("user_metrics", "<k>", "10")):
        listed[table] = {name.replace(request, stored): kind for name, kind in listed[table].items()}
    # Not asked for here: columns of the log, several lists of a user, a rank by score, labels of a machine.
    absent = {"<segment>", "<covariate>", "<cluster>", "<trigger>", "<metric>", "n_lists_<metric>", "<list>"}
    absent |= {"judged", "n_to_judge", "judged_probability", "machine_<metric>", "lambda", "n_judged"}
    of_machine = [n for n in listed["experiment_metrics"] if n.endswith(("_human", "_machine")) or "_sample_" in n]
    listed = {table: {name: kind for name, kind in columns.items() if name not in {*absent, *of_machine}}
              if table != "comparisons" else columns for table, columns in listed.items()}  # fmt: skip
    del listed["quarantine"]["score"]
    assert result == listed


def test_spark_sql_gives_the_answer_of_the_page(spark: SparkSession, out: Path) -> None:
    names = names_after(program("Spark SQL", "python").replace("out/first", str(out)), spark=spark)
    assert answered(map(tuple, names["answer"].collect())) == ANSWER


def test_pandas_gives_the_answer_of_the_page(out: Path) -> None:
    names = names_after(program("pandas", "python"))
    assert answered(names["answer"].itertuples(index=False, name=None)) == ANSWER


# Only the environment of Spark has Polars and DuckDB.
@pytest.mark.both_engines
@pytest.mark.skipif(find_spec("polars") is None, reason="only the environment of Spark has Polars")
def test_polars_gives_the_answer_of_the_page(out: Path) -> None:
    names = names_after(program("Polars", "python"))
    assert answered(names["answer"].rows()) == ANSWER


@pytest.mark.both_engines
@pytest.mark.skipif(find_spec("duckdb") is None, reason="only the environment of Spark has DuckDB")
def test_duckdb_gives_the_answer_of_the_page_and_the_views_keep_their_columns(spark: SparkSession, out: Path) -> None:
    import duckdb

    session = duckdb.connect()
    view, query = program("DuckDB", "sql").split(";\n\n")
    session.execute(view)
    assert answered(session.execute(query).fetchall()) == ANSWER
    daily, long = blocks("sql", section("A view for a BI tool", PAGE))
    session.execute(daily).execute(long)
    rows = session.execute("SELECT * FROM user_metrics_long WHERE metric = 'ndcg_at_10'").fetchdf()
    # Three users in each of two experiments, on the one day that has the metric.
    assert len(rows) == 6 and {"user_id", "experiment_id", "evaluation_date", "metric", "value"} <= set(rows.columns)
    means = "SELECT experiment_id, evaluation_date, mean FROM ranking_daily WHERE metric = 'NDCG@10' ORDER BY ALL"
    stored = read(spark, f"{out}/experiment_metrics").where("metric = 'ndcg@10' AND segment = 'all'").collect()
    expected = sorted((row["experiment_id"], row["evaluation_date"], row["mean"]) for row in stored)
    assert session.execute(means.replace("NDCG", "ndcg")).fetchall() == expected
    assert [mean for *_, mean in expected] == pytest.approx([*NDCG.values()])
    # The comparisons of one of the two dates in one file.
    outputs, of_all = files_of(str(out)), "20261122T010203-0a1b2c3d"
    pointer = swapping.pointer_of(outputs, DAYS[1])
    old = swapping.gather(outputs, pointer, pointers.Entry(of_all, ()), {})
    swapping.write_pointer(outputs, replace(pointer, by_date=of_all))
    swapping.remove(outputs, old)
    (both,) = blocks("sql", section("Many experiments", PAGE))
    keys = "experiment_id, evaluation_date, metric, mean_candidate"
    rows = session.execute(both).execute(f"SELECT {keys} FROM every_comparison").fetchall()
    assert sorted(rows) == sorted(map(tuple, read(spark, f"{out}/comparisons").selectExpr(*keys.split(", ")).collect()))


def test_the_commands_of_the_page_prune_what_runs_have_written(spark: SparkSession, out: Path, call: Call) -> None:
    before = {table: read(spark, f"{out}/{table}").count() for table in ("user_metrics", "comparisons")}
    trial, real = ([str(out) if word == "out/first" else word for word in words[1:]]
                   for words in commands("rankmetrics", section("How long dates are kept", PAGE)))  # fmt: skip
    assert call(*trial)[0] == call(*real)[0] == 0
    assert {table: read(spark, f"{out}/{table}").count() for table in before} == before
    code, _, err = call(*("1d" if word == "90d" else word for word in real))
    assert (code, "dates removed: 2026-11-20" in err) == (0, True)
    # The day that is left is whole.
    users = read(spark, f"{out}/user_metrics")
    assert {row["evaluation_date"] for row in users.collect()} == {date.fromisoformat(DAYS[1])}
    assert users.count() == before["user_metrics"] // 2
    assert read(spark, f"{out}/comparisons").count() == 2
