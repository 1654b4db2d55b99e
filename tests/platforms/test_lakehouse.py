"""Delta and Iceberg with their real jars: replaced partitions, earlier versions, concurrent runs, errors."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, Row, SparkSession

from rankmetrics_spark import cli, compare, engines as eng, read, run, sources
from rankmetrics_spark.cli import stored
from rankmetrics_spark.config import Config, Sink, from_mapping
from rankmetrics_spark.engines.spark import local_session
from rankmetrics_spark.errors import DifferenceError, MetricGateError, OutputError
from rankmetrics_spark.job import Outcome, verify
from rankmetrics_spark.sinks import Partitions, sql_tables
from tests.helpers.commands import ROOT, ran, spark_environment
from tests.helpers.days import DAYS, METRICS, Log, a_log, all_at_once, by_key, numbers
from tests.helpers.logs import DATE, Shown, a_list, exact, impressions, parquet
from tests.helpers.readme import blocks, commands, rename, section
from tests.platforms.support import LAKEHOUSE, lakehouse_settings

DAY_BEFORE = "2026-11-19"
QUICK = f"{eng.QUICK_JAVA} -XX:+UseSerialGC"
MORE = ["ap@5", "ndcg@5"]
TABLES = ("user_metrics", "experiment_metrics", "quarantine")
# Spark filters more than ten values differently. Some of the names contain special characters of SQL or of paths.
NAMES = ["007", "7", "b", "a/b=c", "ä ö", "x%2F", "1e3", "true", "O'Neil \\' \"`", "a\nb", "..", " padded "]
WITHOUT_EXPERIMENT = [Shown(None, "u", "i", 1, 1), Shown("", "u", "i", 1, 1)]
LOG = [*(row for name in NAMES for row in a_list([0, 1], "u", name)), Shown("b", "u", None, 3, 1), *WITHOUT_EXPERIMENT]
# A later log: experiment 007 with another user, experiment b with no valid row, and no other experiments.
LATER = [*a_list([1, 0], "someone else", "007"), Shown("b", "u", None, 1, 1), *WITHOUT_EXPERIMENT]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with both formats."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = lakehouse_settings(warehouse) | {
        "spark.sql.warehouse.dir": str(warehouse / "own"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        # Few rows and many different plans: the optimizing compiler would cost more time than it saves.
        "spark.driver.extraJavaOptions": QUICK,
    }
    session = local_session("local[2]", "lakehouse tests", settings)
    yield session
    session.stop()


@dataclass(frozen=True)
class Place:
    """A sink, and the SQL names of its tables."""

    spark: SparkSession
    sink: Mapping[str, str]

    def name(self, table: str) -> str:
        return f"{self.sink['table']}.{table}" if "table" in self.sink else f"delta.`{self.sink['path']}/{table}`"

    def published(self, table: str = "user_metrics", format: str = "parquet", **options: Any) -> DataFrame:
        """What readers of the pointer see; the pointers of a folder name its format too."""
        if "table" in self.sink:
            return read(self.spark, self.name(table), self.sink["format"], **options)
        return read(self.spark, f"{self.sink['path']}/{table}", format, **options)

    def rows(self, table: str, version: int | None = None) -> list[Row]:
        at = "" if version is None else f"VERSION AS OF {version}"
        return self.spark.sql(f"SELECT * FROM {self.name(table)} {at}").collect()

    def versions(self, table: str) -> list[int]:
        """Version numbers, newest first."""
        if self.sink["format"] == "iceberg":
            sql = f"SELECT snapshot_id FROM {self.name(table)}.snapshots ORDER BY committed_at DESC"
        else:
            sql = f"DESCRIBE HISTORY {self.name(table)}"
        return [int(row[0]) for row in self.spark.sql(sql).collect()]


def in_folder(spark: SparkSession, folder: Path) -> Place:
    return Place(spark, {"format": "delta", "path": str(folder / "a lake")})


def in_own_catalog(spark: SparkSession, folder: Path) -> Place:
    """Delta tables. Two of them already exist, with another partitioning and fewer columns."""
    keys = "experiment_id STRING, evaluation_date STRING"
    spark.sql("CREATE SCHEMA IF NOT EXISTS ranking")
    spark.sql(f"CREATE TABLE ranking.user_metrics (user_id STRING, {keys}) USING delta CLUSTER BY (user_id)")
    spark.sql(f"CREATE TABLE ranking.experiment_metrics ({keys}, segment STRING) USING delta PARTITIONED BY (segment)")
    return Place(spark, {"format": "delta", "table": "ranking"})


def in_iceberg(spark: SparkSession, folder: Path) -> Place:
    return Place(spark, {"format": "iceberg", "table": f"ice.{folder.name.replace('-', '_')}"})


def change_partitioning(place: Place) -> None:
    """Change two Iceberg tables: add a partition field to one, drop the partitioning by experiment from the other."""
    if place.sink["format"] == "iceberg":
        place.spark.sql(f"ALTER TABLE {place.name('user_metrics')} ADD PARTITION FIELD bucket(2, user_id)")
        place.spark.sql(f"ALTER TABLE {place.name('experiment_metrics')} DROP PARTITION FIELD experiment_id")


def experiments_per_file(place: Place, table: str) -> int:
    """The largest number of experiments in one file of an Iceberg table."""
    sql = f"SELECT count(DISTINCT experiment_id) AS n FROM {place.name(table)} GROUP BY _file ORDER BY n DESC"
    return int(place.spark.sql(sql).first()["n"])


@pytest.fixture(params=[in_folder, in_iceberg])
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    """A new place of each format."""
    result: Place = request.param(spark, tmp_path)
    return result


def settings(log: Path, sink: Mapping[str, str], **changes: Any) -> Config:
    document = {"source": {"path": str(log)}, "metrics": ["ap@5"], "evaluation_date": DATE, "sink": sink}
    return from_mapping(document | {"quality": {"max_invalid_fraction": 1}} | changes)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The result of the later log as Parquet files."""
    folder = tmp_path_factory.mktemp("plain")
    return run(spark, settings(parquet(folder / "log", LATER), {"path": str(folder / "out")}, metrics=MORE))


def is_replaced(row: Row) -> bool:
    """Whether the run on the later log replaces the partition of this row."""
    return str(row["evaluation_date"]) == DATE and row["experiment_id"] in ("007", "b", None)


@pytest.mark.parametrize("place", [in_folder, in_own_catalog, in_iceberg], indirect=True)
def test_a_run_replaces_just_its_own_rows(spark: SparkSession, tmp_path: Path, plain: Outcome, place: Place) -> None:
    log, later = parquet(tmp_path / "log", LOG), parquet(tmp_path / "later", LATER)
    run(spark, settings(log, place.sink, evaluation_date=DAY_BEFORE))
    change_partitioning(place)
    run(spark, settings(log, place.sink))
    if place.sink["format"] == "iceberg":
        # Iceberg's own overwrite could not replace a single experiment here.
        assert experiments_per_file(place, "experiment_metrics") > 1
    before = {table: place.rows(table) for table in TABLES}
    # A new table has dates; one that its owner has made with texts keeps them.
    kinds = dict(spark.sql(f"SELECT * FROM {place.name('user_metrics')}").dtypes)
    assert kinds["evaluation_date"] == ("string" if place.sink.get("table") == "ranking" else "date")
    users = {(str(row["evaluation_date"]), row["experiment_id"]): row["ap_at_5"] for row in before["user_metrics"]}
    # The second of two items is the relevant one: (1/2) / 1.
    assert users == {(date, name): 1 / 2 for date in (DAY_BEFORE, DATE) for name in NAMES}
    versions = {table: place.versions(table) for table in TABLES}

    done = run(spark, settings(later, place.sink, metrics=MORE))

    after = {table: place.rows(table) for table in TABLES}
    for table, others in zip(TABLES, (22, 22, 3), strict=True):
        untouched = [[row for row in rows[table] if not is_replaced(row)] for rows in (before, after)]
        assert len(untouched[0]) == others
        # Only the later run computes ndcg@5, so it is null in the earlier rows.
        assert exact(untouched[1], ["ndcg_at_5"]) == exact(untouched[0])
        assert {row["ndcg_at_5"] for row in untouched[1] if table == "user_metrics"} <= {None}
    ours = {table: [row for row in after[table] if is_replaced(row)] for table in TABLES}
    names = ("experiment_id", "user_id", "ap_at_5", "ndcg_at_5")
    assert [tuple(row[name] for name in names) for row in ours["user_metrics"]] == [("007", "someone else", 1, 1)]
    averages = {(row["experiment_id"], row["metric"], row["mean"]) for row in ours["experiment_metrics"]}
    assert averages == {("007", "ap@5", 1), ("007", "ndcg@5", 1)}
    left_out = [(row["experiment_id"], row["reason"]) for row in ours["quarantine"]]
    assert sorted(left_out, key=str) == [("b", "null_item"), (None, "empty_experiment"), (None, "null_experiment")]
    # The values have the same bits as in Parquet.
    assert exact(done.user_metrics.collect()) == exact(plain.user_metrics.collect())
    assert exact(done.experiment_metrics.collect()) == exact(plain.experiment_metrics.collect())
    # One commit replaced the earlier result, which can still be read as an earlier version.
    assert place.versions("experiment_metrics")[1:] == versions["experiment_metrics"]
    for table in TABLES:
        assert exact(place.rows(table, versions[table][0])) == exact(before[table])
    check_records(place, done)


def test_small_tables_are_partitioned_by_date_alone_where_a_config_says_so(
    spark: SparkSession, tmp_path: Path, plain: Outcome, place: Place
) -> None:
    sink = {**place.sink, "layout": "by_date"}
    for name, log, metrics in (("log", LOG, ["ap@5"]), ("later", LATER, MORE)):
        done = run(spark, settings(parquet(tmp_path / name, log), sink, metrics=metrics))
    keys = {}
    for table in TABLES:
        if place.sink["format"] == "delta":
            keys[table] = spark.sql(f"DESCRIBE DETAIL {place.name(table)}").first()["partitionColumns"]
        else:
            keys[table] = spark.sql(f"SELECT partition.* FROM {place.name(table)}.partitions").columns
    both = ["experiment_id", "evaluation_date"]
    assert keys == {"user_metrics": both, "experiment_metrics": both[1:], "quarantine": both}
    assert exact(done.experiment_metrics.collect()) == exact(plain.experiment_metrics.collect())
    others = {row["experiment_id"]: row["mean"] for row in place.rows("experiment_metrics") if not is_replaced(row)}
    assert others == dict.fromkeys((name for name in NAMES if name not in ("007", "b")), 1 / 2)


def test_days_of_users_are_those_of_parquet_files(spark: SparkSession, tmp_path: Path, place: Place) -> None:
    out = str(tmp_path / "out")
    who = [(f"u{i}", "ab"[i % 2], test, "2026-11-19T10:30:00Z") for i in range(8) for test in "ts"]
    spark.createDataFrame(who, "user string, arm string, test string, time string").write.parquet(f"{tmp_path}/who")
    more = {
        "assignments": {"path": f"{tmp_path}/who"},
        "comparison": {
            "baseline": "a",
            "cuped": {"before": "exposure", "days": 1},
            "period": {"from": DAY_BEFORE, "to": DATE},
        },
    }
    found: dict[str, list[Any]] = {}
    for day in (DAY_BEFORE, DATE, DATE):  # the last one again
        rows = [
            (f"u{i}", f"{day}T{hour}:00:00Z", rank, int(rank == 1 + (i * hour + int(day[-2:])) % 3))
            for i in range(8) for hour in (10, 11) for rank in (1, 2, 3)
        ]  # fmt: skip
        log = spark.createDataFrame(rows, "user string, seen string, position int, relevance int")
        log.selectExpr("*", "string(position) AS item").write.parquet(f"{tmp_path}/log", mode="overwrite")
        of_log = {"path": f"{tmp_path}/log", "columns": {"time": "seen"}, "list": ["seen"]}
        for sink in ({"path": out}, place.sink):
            done = run(spark, settings(tmp_path / "log", sink, source=of_log, evaluation_date=day, **more))
            found[sink.get("format", "")] = exact(done.comparisons.collect())
    assert found[""] == found[place.sink["format"]] and len(found[""]) == 2
    stored = place.published("user_days", place.sink["format"])
    parts = read(spark, f"{out}/user_days")
    assert "experiment_id" not in stored.columns and stored.count() == 2 * 8 + 8
    assert exact(stored.select(*parts.columns).collect()) == exact(parts.collect())


def check_records(place: Place, done: Outcome) -> None:
    """Three runs have left their records and no staging tables."""
    if "table" in place.sink:
        assert done.record_path == place.name("runs")
        records = [json.loads(row["record"]) for row in place.rows("runs")]
        tables = {row["tableName"] for row in place.spark.sql(f"SHOW TABLES IN {place.sink['table']}").collect()}
        assert tables == {*TABLES, "checks", "refused_checks", "runs", "published"}
    else:
        folder = Path(place.sink["path"])
        records = [json.loads(file.read_text()) for file in folder.glob("runs/*.json")]
        assert {entry.name for entry in folder.iterdir()} == {*TABLES, "checks", "refused_checks", "runs", "published"}
    assert {record["rows"]["in"] for record in records} == {len(LOG), len(LATER)}
    assert len(records) == 3 and done.run_id in {record["run_id"] for record in records}
    assert {row["run_id"] for row in place.rows("user_metrics")} == {record["run_id"] for record in records}


def test_concurrent_runs_leave_the_complete_result_of_one(spark: SparkSession, tmp_path: Path, place: Place) -> None:
    logs = [
        [*a_list([0, 1], "first", "a"), *a_list([0, 1], "first", "b"), Shown("a", "first", None, 9, 1)],
        [*a_list([1, 0], "second", "a"), *a_list([1, 0], "second", "b"), Shown("b", "second", None, 9, 1)],
        a_list([0, 0, 1], "third", "a"),
    ]
    barrier = Barrier(len(logs))

    def work(number: int) -> Outcome | OutputError:
        waited: list[str] = []

        def progress(step: str) -> None:
            # All runs start to publish at the same time, before any of the tables exists.
            if step == "publishing" and not waited:
                waited.append(step)
                barrier.wait(timeout=200)

        log = parquet(tmp_path / f"log {number}", logs[number])
        config = settings(log, place.sink, evaluation_date=DAY_BEFORE if number == 2 else DATE)
        try:
            return run(spark.newSession(), config, progress)
        except OutputError as error:
            return error

    with ThreadPoolExecutor(len(logs)) as pool:
        ended = list(pool.map(work, range(len(logs))))
    assert isinstance(ended[2], Outcome)
    rows = {table: place.rows(table) for table in TABLES}
    third = [row for row in rows["user_metrics"] if str(row["evaluation_date"]) == DAY_BEFORE]
    assert [(row["user_id"], row["ap_at_5"], row["run_id"]) for row in third] == [("third", 1 / 3, ended[2].run_id)]

    same_day = {table: [row for row in rows[table] if str(row["evaluation_date"]) == DATE] for table in TABLES}
    run_id = same_day["user_metrics"][0]["run_id"]
    winner = [getattr(one, "run_id", None) for one in ended].index(run_id)
    name, value = (("first", 1 / 2), ("second", 1))[winner]
    users = sorted((r["experiment_id"], r["user_id"], r["ap_at_5"], r["run_id"]) for r in same_day["user_metrics"])
    assert users == [(experiment, name, value, run_id) for experiment in "ab"]
    averages = sorted((row["experiment_id"], row["mean"], row["run_id"]) for row in same_day["experiment_metrics"])
    assert averages == [(experiment, value, run_id) for experiment in "ab"]
    left_out = [(row["experiment_id"], row["user_id"], row["run_id"]) for row in same_day["quarantine"]]
    assert left_out == [("ab"[winner], name, run_id)]
    if isinstance(ended[1 - winner], OutputError):
        assert "run this again when " in str(ended[1 - winner])


def test_a_run_writes_again_if_another_run_replaces_its_rows_and_finally_gives_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = in_iceberg(spark, tmp_path)
    config = settings(parquet(tmp_path / "log", a_list([0, 1])), place.sink)
    looked: list[bool] = []
    intact = sql_tables.CatalogSchema.intact

    def disturb(times: int) -> None:
        looked.clear()

        def disturbed(store: sql_tables.CatalogSchema, partitions: Partitions) -> bool:
            # The tables have been written, and the run is about to look whether they are still its own.
            if len(looked) < times:
                spark.sql(f"UPDATE {place.name('user_metrics')} SET run_id = 'another', ap_at_5 = 0")
            looked.append(intact(store, partitions))
            return looked[-1]

        monkeypatch.setattr(sql_tables.CatalogSchema, "intact", disturbed)

    disturb(times=1)
    done = run(spark, config)
    assert looked == [False, True]
    for table, value in (("user_metrics", "ap_at_5"), ("experiment_metrics", "mean")):
        assert [(row[value], row["run_id"]) for row in place.rows(table)] == [(1 / 2, done.run_id)]
    with pytest.raises(
        OutputError, match=f"other runs keep replacing the same experiments of {DATE} in {place.sink['table']}; run"
    ):
        disturb(times=99)
        run(spark, config)
    assert looked == [False] * 3
    # Readers of the pointer still see the run before: its version is there.
    users = place.published().collect()
    assert [(row["ap_at_5"], row["run_id"]) for row in users] == [(1 / 2, done.run_id)]


def test_what_another_run_has_begun_to_replace_is_read_from_its_earlier_version(
    spark: SparkSession, tmp_path: Path, place: Place
) -> None:
    a, b = (settings(parquet(tmp_path / name, a_list([0, 1], "u", name)), place.sink) for name in "ab")
    first, second = run(spark, a), run(spark, b)
    # A run of experiment b is killed after its first commit; then experiment a is evaluated twice more.
    spark.sql(f"UPDATE {place.name('user_metrics')} SET run_id = 'killed', ap_at_5 = 0 WHERE experiment_id = 'b'")

    def published() -> list[tuple[str, float, str]]:
        rows = place.published().collect()
        return sorted((row["experiment_id"], row["ap_at_5"], row["run_id"]) for row in rows)

    assert published() == [("a", 1 / 2, first.run_id), ("b", 1 / 2, second.run_id)]
    for _ in range(2):
        newest = run(spark, a)
        assert published() == [("a", 1 / 2, newest.run_id), ("b", 1 / 2, second.run_id)]
    third = run(spark, b)
    assert published() == [("a", 1 / 2, newest.run_id), ("b", 1 / 2, third.run_id)]


def test_rows_that_are_replaced_before_they_are_read_are_those_of_the_earlier_version(
    spark: SparkSession, tmp_path: Path, place: Place
) -> None:
    done = run(spark, settings(parquet(tmp_path / "log", a_list([0, 1])), place.sink))
    users = place.published()
    # A run commits its first table, and its pointer is not written yet.
    spark.sql(f"UPDATE {place.name('user_metrics')} SET run_id = 'second', ap_at_5 = 0")
    assert [(row["run_id"], row["ap_at_5"]) for row in users.collect()] == [(done.run_id, 1 / 2)]


def test_a_period_over_tables_is_that_over_parquet_files(
    spark: SparkSession,
    tmp_path: Path,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = a_log(DAYS[:3])
    log = Log(spark, tmp_path, rows)
    sinks = {"files": {"path": str(log.out)}, "tables": place.sink}
    runs = {}
    for day, metrics in zip(DAYS, (["ap@5"], METRICS, METRICS), strict=False):
        # The tables get their second metric on the second day.
        runs[day] = {name: log.run(day, sink=sink, metrics=metrics) for name, sink in sinks.items()}
        answers = {name: numbers(by_key(dicts(each.comparisons))) for name, each in runs[day].items()}
        assert answers["tables"] == answers["files"] and len(answers["files"]) == 2 * len(metrics)
    assert answers["files"]["b", "all", "ap@5"] == all_at_once(spark, rows)["b", "all", "ap@5"]
    compared = {day: [runs[day]["tables"].run_id] for day in DAYS[:2]}
    assert runs[DAYS[2]]["tables"].record["period"]["runs"] == pointer(place, DAYS[2])["compared"]["runs"] == compared

    # What is read of the tables themselves.
    files = Place(spark, {"format": "parquet", "path": str(log.out)})
    for dates in ((DAYS[0], DAYS[2]), (DAYS[1], DAYS[3])):
        period, result = {}, {}
        for key, each in {"tables": place, "files": files}.items():
            names = ["experiment_id", "user_id", "ap_at_5", "ndcg_at_5", "n_lists", "n_days", "first_date"]
            period[key] = exact(each.published(dates=dates).select(*names).collect())
            result[key] = numbers(by_key(dicts(compare(each.published(), "a", dates=dates))))
        assert period["tables"] == period["files"] and len(period["files"]) > 60
        assert result["tables"] == result["files"] and len(result["files"]) == 4
    assert numbers(by_key(dicts(runs[DAYS[2]]["tables"].comparisons))).keys() == result["files"].keys()

    if "path" in place.sink:
        monkeypatch.setattr(cli, "choose", lambda *_, **__: eng.Choice("spark"))
        monkeypatch.setattr("rankmetrics_spark.cli.options.session_of", lambda *_: nullcontext(spark))
        monkeypatch.setattr(cli, "session_of", lambda *_: nullcontext(spark))
        printed = []
        for folder in (place.sink["path"], str(log.out)):
            capsys.readouterr()
            words = ["compare", "--input", folder, "--baseline", "a", "--from", DAYS[0], "--to", DAYS[2]]
            cli.main([*words, "--format", "json"], "rankmetrics")
            printed.append(json.loads(capsys.readouterr().out))
        assert printed[0] == printed[1] and printed[0]["comparisons"][0]["n_days"] == 3


def test_a_period_over_tables_reads_the_runs_of_its_pointers(spark: SparkSession, tmp_path: Path, place: Place) -> None:
    rows = a_log(DAYS[:3])
    log = Log(spark, tmp_path, rows)
    mended = Log(spark, tmp_path / "mended", [row for row in rows if row[0] != DAYS[0] or int(row[2][1:]) % 2])
    first, second = (log.run(day, sink=place.sink) for day in DAYS[:2])
    # A run of the second day is killed after its first commit.
    sql = f"UPDATE {place.name('user_metrics')} SET run_id = 'killed', ap_at_5 = 0 WHERE evaluation_date = '{DAYS[1]}'"
    spark.sql(sql)

    def replace_first_day(text: str) -> None:
        if text.startswith("comparing over"):
            mended.run(DAYS[0], {}, sink=place.sink)

    done = log.run(DAYS[2], progress=replace_first_day, sink=place.sink)
    # The first day is replaced while the third one compares: the earlier version of the table still holds it.
    assert numbers(by_key(dicts(done.comparisons))) == all_at_once(spark, rows)
    named = {DAYS[0]: [first.run_id], DAYS[1]: [second.run_id]}
    assert pointer(place, DAYS[2])["compared"]["runs"] == done.record["period"]["runs"] == named
    again = log.run(DAYS[2], sink=place.sink)
    users = [row for row in rows if row[0] != DAYS[0] or int(row[2][1:]) % 2]
    assert numbers(by_key(dicts(again.comparisons))) == all_at_once(spark, users) != all_at_once(spark, rows)


def dicts(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def pointer(place: Place, day: str) -> Any:
    """What the pointer of a day says of its newest run."""
    if "path" in place.sink:
        text = Path(place.sink["path"], "published", f"{day}.json").read_text()
    else:
        (text,) = (row["pointer"] for row in place.rows("published") if row["evaluation_date"] == day)
    return json.loads(text)["runs"][0]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_refused_day_rings_and_old_dates_go(
    spark: SparkSession,
    tmp_path: Path,
    format: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = f"{'ice.' if format == 'iceberg' else ''}kept"
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    place, log = Place(spark, {"format": format, "table": schema}), Log(spark, tmp_path, a_log(DAYS))
    gates = [{"metric": "ap@5", "experiment": "a", "min": 1.0}]
    with pytest.raises(MetricGateError):
        log.run(DAYS[0], {}, sink=place.sink, gates=gates)
    log.run(DAYS[1], {}, sink=place.sink)
    log.run(DAYS[2], {}, sink=place.sink)
    done = log.run(DAYS[3], {"period": {"from": DAYS[2]}}, sink=place.sink)
    monkeypatch.setattr(stored, "on_session", lambda _, work: work(spark))

    def called(*words: str) -> str:
        cli.prune.main(["--table", schema, "--sink-format", format, *words], standalone_mode=False)
        return " ".join(capsys.readouterr().err.split())

    def dates(table: str) -> list[str]:
        return sorted({str(row["evaluation_date"]) for row in place.rows(table)})

    # The documented query, over the tables of the catalog.
    query, _ = blocks("sql", section("An alert that rings"))
    for table in ("refused_checks", "checks"):
        query = re.sub(rf"(FROM|JOIN) {table}\b", rf"\1 {place.name(table)}", query)
    (refused,) = (row for row in spark.sql(query).collect() if row["what"] == "refused")
    assert (str(refused["day"]), "the gate asks for at least 1" in refused["sentence"]) == (DAYS[0], True)
    assert (dates("refused_checks"), dates("published")) == ([DAYS[0]], [*DAYS[1:]])
    before, kept = exact(done.comparisons.collect()), exact(place.published().collect())
    assert called("--keep", "all") == "nothing to remove"
    # The comparison of the last day names the third one, so that the second alone would go.
    assert called("--keep", "1d", "--dry-run") == f"would remove {DAYS[1]}" and dates("published") == [*DAYS[1:]]
    assert called("--keep", "1d") == f"removed {DAYS[1]}"
    for table in ("published", "user_metrics", "experiment_metrics", "checks", "comparisons", "runs"):
        assert dates(table) == [*DAYS[2:]], table
    assert dates("refused_checks") == []
    rows = exact(place.published().collect())
    assert rows and rows == [row for row in kept if row in rows] and exact(done.comparisons.collect()) == before


def test_an_error_of_the_catalog_becomes_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", a_list([0, 1]))
    message = r"cannot write the delta table no_such_schema\.staging_\w+: \[SCHEMA_NOT_FOUND\] The schema [^\n]*"
    with pytest.raises(OutputError, match=rf"^{message}$"):
        run(spark, settings(log, {"format": "delta", "table": "no_such_schema"}))
    place = in_iceberg(spark, tmp_path)
    spark.sql(f"CREATE TABLE {place.name('user_metrics')} (user_id STRING, n_lists ARRAY<INT>) USING iceberg")
    with pytest.raises(OutputError, match=r"^cannot write the iceberg table ice\.\w+\.user_metrics: .*n_lists[^\n]*$"):
        run(spark, settings(log, place.sink))
    names = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {place.sink['table']}").collect()}
    # The failed run has left its record, and a row for an alert.
    assert names == {"user_metrics", "runs", "refused_checks"}


def test_a_source_may_be_an_earlier_version(spark: SparkSession, tmp_path: Path) -> None:
    old, new = (impressions(spark, a_list(grades)) for grades in ([0, 1], [1, 1, 1]))
    path, table = str(tmp_path / "delta"), in_iceberg(spark, tmp_path).name("log")
    old.write.format("delta").save(path)
    new.write.format("delta").mode("overwrite").save(path)
    spark.sql(f"CREATE TABLE log_of_a_test USING delta LOCATION '{path}'")
    old.writeTo(table).using("iceberg").create()
    first = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").first()[0]
    new.writeTo(table).overwritePartitions()
    folder = str(Path(spark.conf.get("spark.sql.catalog.ice.warehouse"), *table.split(".")[1:]))
    for place, option in (
        ({"format": "delta", "path": path}, {"versionAsOf": 0}),
        ({"format": "delta", "table": "log_of_a_test"}, {"versionAsOf": 0}),
        ({"format": "iceberg", "path": folder}, {"snapshot-id": first}),
        ({"format": "iceberg", "table": table}, {"snapshot-id": first}),
    ):
        source = from_mapping({"source": place | {"options": option}}).source
        assert exact(sources.read(spark, source).collect()) == exact(old.collect())


@pytest.mark.parametrize("number", [0, 1], ids=["delta", "iceberg"])
def test_the_commands_of_the_readme(number: int, spark: SparkSession, tmp_path: Path) -> None:
    name = f"logs{number}.impressions"
    impressions(spark, a_list([0, 1])).writeTo(f"ice.{name}").using("iceberg").create()
    warehouse = spark.conf.get("spark.sql.catalog.ice.warehouse")
    shutil.make_archive(str(tmp_path / "dist" / "rankmetrics_spark"), "zip", ROOT, "rankmetrics_spark")
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    # The Delta command reads files; the Iceberg command reads a table of its catalog.
    source = [{"path": str(parquet(tmp_path / "log", a_list([0, 1])))}, {"table": f"lake.{name}"}][number]
    document = {"source": source, "metrics": ["ap@10"], "sink": {"path": "out/first"}}
    (tmp_path / "first.yaml").write_text(yaml.safe_dump(document))
    environment = spark_environment()
    words = commands("spark-submit", section("Delta and Iceberg"))[number]
    coordinates = words[words.index("--packages") + 1]
    jars = [path for path in LAKEHOUSE.glob("*.jar") if path.name.startswith("delta-") == (number == 0)]
    # The command names one of these jars; Spark would also fetch the jar that it depends on.
    assert coordinates.split(":")[1:] in [path.stem.rsplit("-", 1) for path in jars]
    names = {"--packages": "--jars", coordinates: ",".join(map(str, jars))}
    spark_submit, *arguments = rename(words, names | ({"out/lake": str(warehouse)} if number else {}))
    command = [
        str(Path(environment["SPARK_HOME"]) / "bin" / spark_submit),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.driver.extraJavaOptions={QUICK}"),
        *(*arguments, "--date", DATE, "--format", "json"),
    ]
    done = ran(command, tmp_path, environment, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    where = "lake.ranking" if number else "out/first"
    assert f"tables in {where}: user_metrics, experiment_metrics" in done.stdout + done.stderr
    table = "ice.ranking.experiment_metrics" if number else f"delta.`{tmp_path}/out/first/experiment_metrics`"
    assert [row["mean"] for row in spark.table(table).collect()] == [1 / 2]


@pytest.mark.parametrize("place", [in_folder, in_own_catalog, in_iceberg], indirect=True)
def test_what_is_published_is_derived_again_and_a_changed_row_or_log_is_named(
    spark: SparkSession, tmp_path: Path, place: Place
) -> None:
    rows = [*a_list([0, 1], "u"), *a_list([0, 1], "u", "b")]
    log = parquet(tmp_path / "log", rows)
    done = run(spark, settings(log, place.sink))
    sink = Sink(**place.sink)
    result = verify(spark, sink)
    assert {r["table"]: r["rows"] for r in result.rows} == {n: t["rows"] for n, t in done.record["tables"].items()}
    assert {row["the same"] for row in result.rows} == {"to the bit"} and "no digests" in " ".join(result.uncovered)
    spark.sql(f"UPDATE {place.name('experiment_metrics')} SET mean = mean + 0.25 WHERE experiment_id = 'b'")
    with pytest.raises(DifferenceError, match=r"experiment_metrics: mean is .* as published and .* 'b', segment 'all'"):
        verify(spark, sink)
    shutil.rmtree(log)
    parquet(log, rows[:-1])
    with pytest.raises(DifferenceError, match="the log has 1 rows of experiment 'b', and 2 are on record"):
        verify(spark, sink)
