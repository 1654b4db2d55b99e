"""The DAG in a real Airflow: command line, scheduler and real spark-submit processes, all on this machine."""

import json
import re
import shlex
import shutil
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import ROOT, spark_environment
from tests.helpers.logs import Shown, a_list, parquet
from tests.helpers.readme import blocks, commands, section
from tests.platforms.s3_server import s3_server
from tests.platforms.support import Running, built_wheel, python_without_package, wait_for

BIN = ROOT / ".venvs" / "airflow" / "bin"
LIMIT = 400
"""Time limit of a command in seconds. The longest one takes about 40 s on two idle cores."""

ONE_DAY = "airflow dags test rankmetrics 2026-11-20"
EVERY_DAY = "airflow dags unpause rankmetrics"
BACKFILL = "airflow backfill create --dag-id rankmetrics --from-date 2026-11-16 --to-date 2026-11-17"
SEVERAL = """airflow dags test rankmetrics_backfill --conf '{"from": "2026-11-16", "to": "2026-11-17"}'"""
METRICS = ["ap@5", "rr"]
FIRST, LATE, RANGE = "2026-11-20", "2026-11-21", ("2026-11-16", "2026-11-17")

# Each command starts a driver for a few rows. The quick compiler alone takes a third of the time of the full one.
SPARK = f"""\
spark.driver.bindAddress 127.0.0.1
spark.driver.extraJavaOptions {QUICK_JAVA} -XX:+UseSerialGC
spark.driver.host 127.0.0.1
spark.log.level WARN
spark.sql.codegen.wholeStage false
spark.ui.enabled false
"""


@dataclass(frozen=True)
class Airflow:
    """A separate Airflow installation with SQLite, the DAG of this checkout, logs and an output folder."""

    folder: Path
    environment: dict[str, str]
    output: str = "my out"

    @property
    def out(self) -> Path:
        return self.folder / self.output

    def start(self, *command: str, **more: str) -> Running:
        """Start a program of Airflow's environment, such as ``airflow`` or ``python``."""
        log = self.folder / f"{len(list(self.folder.glob('*.log')))}.log"
        return Running.start([str(BIN / command[0]), *command[1:]], log, self.environment | more, self.folder)

    def ends(self, running: Running, code: int = 0) -> str:
        """Wait for the end of a command, check its exit code and return its output."""
        try:
            assert running.process.wait(LIMIT) == code, running.text()[-5000:]
        finally:
            running.stop()
        return running.text()

    def __call__(self, command: str, code: int = 0) -> str:
        """Run a command line as written in the README."""
        return self.ends(self.start(*shlex.split(command)), code)

    def python(self, program: str, *arguments: str, **more: str) -> None:
        self.ends(self.start("python", "-c", program, *arguments, **more))

    def add_log(self, day: str, rows: Sequence[Shown]) -> None:
        parquet(self.folder / "logs" / f"event_date={day}", rows)

    def ask(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Query Airflow's metadata database."""
        with closing(sqlite3.connect(f"file:{self.folder}/home/airflow.db?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def tasks(self, day: str) -> dict[str, tuple[str, int]]:
        """State and number of tries of each task."""
        query = """select task_id, t.state, try_number from task_instance t join dag_run using (run_id)
                   where logical_date like ?"""
        return {task: (state, tries) for task, state, tries in self.ask(query, f"{day}%")}

    def backfilled(self) -> list[tuple[str, int, str]]:
        """Name, number of the day and state of each task of ``rankmetrics_backfill``."""
        return self.ask(
            """select task_id, map_index, t.state from task_instance t join dag_run using (run_id)
               where dag_run.dag_id = 'rankmetrics_backfill' order by task_id, map_index"""
        )

    def xcom(self, day: str) -> Any:
        """What the task ``evaluate`` of a day hands on."""
        query = "select value from xcom join dag_run using (run_id) where key = 'return_value' and logical_date like ?"
        ((value,),) = self.ask(f"{query} and task_id = 'evaluate'", f"{day}%")
        return json.loads(value)

    def files(self) -> dict[str, tuple[int, bytes]]:
        """Modification time and content of every file in the output."""
        files = [file for file in self.out.rglob("*") if file.is_file()]
        return {str(file.relative_to(self.out)): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

    def means(self, day: str) -> dict[tuple[str, str], float]:
        """(experiment, metric) -> mean of one day."""
        result = {}
        for folder in (self.out / "experiment_metrics").glob(f"experiment_id=*/evaluation_date={day}"):
            for row in pq.read_table(folder, partitioning=None).to_pylist():
                result[folder.parent.name.removeprefix("experiment_id="), row["metric"]] = row["mean"]
        return result

    def published(self, day: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.out / "published" / f"{day}.json").read_text(encoding="utf-8"))
        return result

    def assert_new(self, before: dict[str, Any], *days: str) -> None:
        """Earlier files are unchanged, and new files are only partitions, pointers and records of these days."""
        after = self.files()
        assert before.items() <= after.items()
        names = "|".join(days)
        tables = "user_metrics|experiment_metrics|checks"
        partition = rf"({tables})/experiment_id=[ab]/evaluation_date=({names})/\.?part-\S+|refused_checks/run=\S+"
        expected = rf"{partition}|published/({names})\.json|runs/\S+\.json"
        new = after.keys() - before.keys()
        assert [name for name in new if not re.fullmatch(expected, name)] == []
        assert {name for name in new if name.startswith("published")} == {f"published/{day}.json" for day in days}
        records = [json.loads(after[name][1]) for name in new if name.startswith("runs")]
        # A try that failed has a record too.
        assert {record["evaluation_date"] for record in records} == {*days}
        assert sorted(one["evaluation_date"] for one in records if one["outcome"] == "done") == sorted(days)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    return set_up(tmp_path_factory.mktemp("airflow"))


def set_up(folder: Path, **more: str) -> Airflow:
    """The setup of the README: the zip, a config, a connection and spark-submit on the PATH."""
    place = folder / "place"
    wheel = built_wheel(place / "dist")
    shutil.copy(wheel, wheel.with_name("rankmetrics_spark.zip"))
    shutil.copytree(ROOT / "jobs", place / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    python = str(python_without_package(folder / "python"))
    (folder / "spark").mkdir()
    (folder / "spark" / "spark-defaults.conf").write_text(SPARK)
    config = {
        "source": {"path": str(folder / "logs"), "where": "event_date = '{date}'"},
        "metrics": METRICS,
        "spark": {"spark.sql.shuffle.partitions": "2"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    spark = spark_environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python, SPARK_CONF_DIR=str(folder / "spark"))
    environment = {name: value for name, value in spark.items() if not name.startswith(("AIRFLOW", "RANKMETRICS"))}
    environment |= {
        "PATH": f"{spark['SPARK_HOME']}/bin:{spark['PATH']}",
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(place / "jobs"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__PARALLELISM": "1",
        # On a busy machine, scheduler, triggerer and a command wait for one another longer than the usual five seconds.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/home/airflow.db?timeout=120",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "false",
        # Otherwise the unpaused DAG would start with a run of yesterday's real date.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "false",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "RANKMETRICS_CONFIG": str(folder / "config.yaml"),
        "RANKMETRICS_OUTPUT": str(folder / "my out"),
        "RANKMETRICS_RETRIES": "1",
        "RANKMETRICS_RETRY_DELAY": "1",
    } | more
    made = Airflow(folder, environment)
    made("airflow db migrate")
    return made


@pytest.fixture(scope="module")
def first_day(airflow: Airflow) -> Airflow:
    """Airflow after one successful day."""
    airflow.add_log(FIRST, [*a_list([0, 1], "u", "a"), *a_list([1, 0, 1], "v", "a"), *a_list([1, 0], "u", "b")])
    # Rows of another day: they must not be evaluated.
    airflow.add_log("2026-11-19", a_list([0, 0, 0, 0, 1], "u", "a"))
    airflow(ONE_DAY)
    return airflow


def test_a_day_is_evaluated_and_published(first_day: Airflow) -> None:
    assert first_day.tasks(FIRST) == {"evaluate": ("success", 1)}
    assert first_day.means(FIRST) == {
        ("a", "ap@5"): pytest.approx((1 / 2 + (1 / 1 + 2 / 3) / 2) / 2, rel=1e-12),
        ("a", "rr"): (1 / 2 + 1) / 2,
        ("b", "ap@5"): 1,
        ("b", "rr"): 1,
    }
    first_day.assert_new({}, FIRST)
    pointer = first_day.published(FIRST)
    record = json.loads((first_day.out / pointer["record"]).read_text(encoding="utf-8"))
    expected = {
        "evaluation_date": FIRST,
        "run_id": record["run_id"],
        "record": f"runs/{record['run_id']}.json",
        "partitions": partitions(FIRST),
    }
    assert expected.items() <= pointer.items()
    assert record["rows"] == {"in": 7, "evaluated": 7, "quarantined": 0}
    # The asset carries the same information for other DAGs.
    events = first_day.ask(
        """select name, e.extra, e.partition_key from asset_event e join asset a on a.id = e.asset_id
           where source_task_id = 'evaluate' order by name"""
    )
    assert [(name, key) for name, _, key in events] == [("rankmetrics", None), ("rankmetrics_days", FIRST)]
    told = expected | {"rows": record["rows"], "warnings": 0, "verdict": record["verdict"]}
    assert [json.loads(extra) for _, extra, _ in events] == [told, told]
    # So do the tasks after this one.
    assert first_day.xcom(FIRST) == told


def test_a_late_log_is_evaluated_on_the_second_try_and_the_first_day_stays(first_day: Airflow) -> None:
    before = first_day.files()
    # Here the path in the config selects the day. The folder of that day does not exist yet.
    by_path = first_day.folder / "by_path.yaml"
    config = yaml.safe_load((first_day.folder / "config.yaml").read_text())
    config["source"] = {"path": f"{config['source']['path']}/event_date={{date}}"}
    by_path.write_text(yaml.safe_dump(config))
    settings = {"RANKMETRICS_CONFIG": str(by_path), "RANKMETRICS_KEEP": "90d"}
    running = first_day.start("airflow", "dags", "test", "rankmetrics", LATE, **settings)
    try:
        # There is enough time: this Spark must stop and the next one must start before the retry reads.
        running.wait_for("rankmetrics: cannot read parquet from", LIMIT)
        first_day.add_log(LATE, [*a_list([0, 0, 1], "u", "a"), *a_list([0, 1], "u", "b")])
        message = first_day.ends(running)
    finally:
        running.stop()
    assert "Error code is: 3." in message
    assert first_day.tasks(LATE) == {"evaluate": ("success", 2), "prune": ("success", 1)}
    assert "nothing to remove" in message
    assert first_day.means(LATE) == means_of(1 / 3, 1 / 2)
    first_day.assert_new(before, LATE)


def means_of(a: float, b: float) -> dict[tuple[str, str], float]:
    """The means of a day whose lists have one relevant item each."""
    return {(name, metric): value for name, value in (("a", a), ("b", b)) for metric in METRICS}


def partitions(day: str, names: str = "ab") -> list[dict[str, str]]:
    return [{"experiment_id": name, "evaluation_date": day} for name in names]


@contextmanager
def scheduler(airflow: Airflow, *more: str) -> Iterator[Running]:
    """Airflow as in production: the scheduler starts each task as a process that talks to the API server."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = {"AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/"}
    place = ("--host", "127.0.0.1", "--port", str(port))
    running = [airflow.start("airflow", "api-server", *place, "--workers", "1", "--apps", "execution", **url)]
    try:
        wait_for(lambda: listens(port), 120, f"API server at port {port}")
        for program in (*more, "scheduler"):
            running.append(airflow.start("airflow", program, "--skip-serve-logs", **url))
        yield running[-1]
    finally:
        for process in reversed(running):
            process.stop()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_a_backfill_writes_only_the_days_of_its_range(first_day: Airflow) -> None:
    before = first_day.files()
    for day, at in zip(RANGE, (2, 4), strict=True):
        first_day.add_log(day, [*a_list([int(rank == at) for rank in range(1, 6)], "u", "a"), *a_list([1], "u", "b")])
    first_day(EVERY_DAY)
    first_day(BACKFILL)
    runs = "select state, data_interval_start, data_interval_end from dag_run where run_type = 'backfill'"

    def finished() -> list[tuple[Any, ...]]:
        result = first_day.ask(runs)
        return result if len(result) == 2 and all(run[0] in ("success", "failed") for run in result) else []

    with scheduler(first_day) as process:
        result = wait_for(finished, LIMIT, f"finished backfill; see {process.log}")
    # The data interval of a run is the evaluated day.
    assert [(state, start[:10], end[:10]) for state, start, end in sorted(result, key=lambda run: str(run[1]))] == [
        ("success", RANGE[0], RANGE[1]),
        ("success", RANGE[1], "2026-11-18"),
    ]
    for day, at in zip(RANGE, (2, 4), strict=True):
        assert first_day.tasks(day) == {"evaluate": ("success", 1)}
        assert first_day.means(day) == means_of(1 / at, 1)
        assert first_day.published(day)["partitions"] == partitions(day)
    first_day.assert_new(before, *RANGE)


def test_several_days_in_one_application_are_published_one_by_one(first_day: Airflow) -> None:
    before = {name: kept for name, kept in first_day.files().items() if name.startswith("runs/")}
    events = "select count(*) from asset_event"
    ((earlier,),) = first_day.ask(events)
    first_day(SEVERAL)
    ended = [(name, -1, "success") for name in ("days", "done", "evaluate")]
    assert first_day.backfilled() == [*ended, *(("publish", n, "success") for n in (0, 1))]
    for day, at in zip(RANGE, (2, 4), strict=True):
        assert first_day.means(day) == means_of(1 / at, 1)
    records = [json.loads(text) for name, (_, text) in first_day.files().items()
               if name.startswith("runs/") and name not in before]  # fmt: skip
    assert sorted((record["evaluation_date"], record["outcome"]) for record in records) == [(d, "done") for d in RANGE]
    # Each day has its own event of each asset, which names its own run.
    published = first_day.ask(
        f"""select name, partition_key, e.extra from asset_event e join asset a on a.id = e.asset_id
            order by e.id limit -1 offset {earlier}"""
    )
    runs = {day: first_day.published(day)["run_id"] for day in RANGE}
    assert sorted((name, key or "", json.loads(extra)["run_id"]) for name, key, extra in published) == sorted(
        [*(("rankmetrics", "", run) for run in runs.values()), *(("rankmetrics_days", day, runs[day]) for day in RANGE)]
    )


STORED = "2026-11-23"


def test_the_pointer_in_an_object_store_is_read_through_a_connection(airflow: Airflow, tmp_path: Path) -> None:
    with s3_server(tmp_path) as bucket:
        jars = ",".join(map(str, sorted((ROOT / ".jars" / "s3").glob("*.jar"))))
        lines = [f"spark.jars {jars}", *(f"spark.hadoop.{name} {value}" for name, value in bucket.settings.items())]
        (tmp_path / "spark-defaults.conf").write_text(SPARK + "\n".join(lines) + "\n")
        lake = {"conn_type": "aws", "login": "somebody", "password": "secret", "extra": {"endpoint_url": bucket.server}}
        settings = {
            "SPARK_CONF_DIR": str(tmp_path),
            "RANKMETRICS_OUTPUT": "s3a://lake/out",
            "RANKMETRICS_OUTPUT_CONN_ID": "lake",
            "AIRFLOW_CONN_LAKE": json.dumps(lake),
        }
        airflow.add_log(STORED, [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
        airflow.ends(airflow.start("airflow", "dags", "test", "rankmetrics", STORED, **settings))
        pointer = json.loads(bucket.ask(f"/out/published/{STORED}.json"))
    assert airflow.tasks(STORED) == {"evaluate": ("success", 1)}
    expected = {name: pointer[name] for name in ("evaluation_date", "run_id", "record", "partitions")}
    assert expected["partitions"] == partitions(STORED)
    assert expected.items() <= airflow.xcom(STORED).items()


SCHEDULED, NEXT = "2027-03-10", "2027-03-11"
CLOCK = """
import datetime, os
if "MOVED_BY" in os.environ:
    try:
        import time_machine
    except ImportError:  # the Python of Spark
        pass
    else:
        from sqlalchemy.ext.compiler import compiles
        from sqlalchemy.sql import functions

        by = datetime.timedelta(seconds=float(os.environ["MOVED_BY"]))
        time_machine.travel(datetime.datetime.now(datetime.timezone.utc) + by, tick=True).start()

        # The scheduler asks the database for the time.
        @compiles(functions.now, "sqlite")
        def now(*_, **__):
            return f"datetime('now', '{by.total_seconds():+.0f} seconds')"
"""


WAITING = """
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

with DAG(
    "refresh", schedule=PartitionedAssetTimetable(assets=Asset("rankmetrics_days")), is_paused_upon_creation=False
):
    @task
    def refresh(dag_run=None):
        print("the day is", dag_run.partition_key)
    refresh()
"""


def moved(folder: Path, seconds: float) -> dict[str, str]:
    """Variables that move the clock of every process of Airflow, and of its database."""
    (folder / "clock").mkdir()
    (folder / "clock" / "sitecustomize.py").write_text(CLOCK)
    clock = {"PYTHONPATH": str(folder / "clock"), "MOVED_BY": str(seconds)}
    return clock | {"AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "true"}


def test_a_day_is_scheduled_when_it_is_over(tmp_path: Path) -> None:
    """The clock is moved to the minutes before a midnight."""
    started, midnight = datetime.now(timezone.utc), datetime.fromisoformat(f"{NEXT}T00:00:00+00:00")
    until = 90
    clock = moved(tmp_path, (midnight - started).total_seconds() - until)
    airflow = set_up(tmp_path, RANKMETRICS_START_DATE=SCHEDULED, **clock)
    airflow.add_log(SCHEDULED, [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
    # A DAG that waits for a day, as the first lines of the DAG file say.
    (Path(airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"]) / "refresh.py").write_text(WAITING)
    airflow("airflow dags reserialize")
    airflow(EVERY_DAY)
    runs = "select run_type, state, data_interval_start, queued_at from dag_run where dag_id = 'rankmetrics'"
    waited = "select partition_key from dag_run where dag_id = 'refresh' and state = 'success'"

    def finished() -> list[tuple[Any, ...]]:
        return [run for run in airflow.ask(runs) if run[1] in ("success", "failed")]

    with scheduler(airflow) as process:
        process.wait_for("Starting the scheduler", 120)
        assert (datetime.now(timezone.utc) - started).total_seconds() < until, "too slow to see what precedes midnight"
        assert airflow.ask(runs) == []
        wait_for(finished, LIMIT, f"finished run; see {process.log}")
        refreshed = wait_for(lambda: airflow.ask(waited), LIMIT, f"run of the waiting DAG; see {process.log}")
    assert refreshed == [(SCHEDULED,)]
    ((kind, state, day, queued),) = airflow.ask(runs)
    assert (kind, state, day[:10]) == ("scheduled", "success", SCHEDULED)
    # Not before midnight, and soon after it.
    assert queued[:10] >= NEXT and queued[11:15] == "00:0"
    assert airflow.means(SCHEDULED) == means_of(1 / 2, 1)
    assert airflow.published(SCHEDULED)["evaluation_date"] == SCHEDULED


@dataclass(frozen=True)
class Night:
    """How the log of a night is made, and what becomes of the day."""

    users: int = 12
    arms: str = "abc"
    better: bool = True
    drop: tuple[str, ...] = ()
    kinds: tuple[pa.DataType, pa.DataType] = (pa.int64(), pa.int64())
    state: str = "success"
    says: str = "rows: 72 read = 72 evaluated + 0 left out"
    """What a person reads in the log of the task."""
    alert: str = ""
    """What the query of docs/publishing.md calls it."""

    def write(self, folder: Path) -> None:
        """Two files: with the better list first, a finds what it looks for at rank 2, b and c at rank 1."""
        rows = [
            {"experiment_id": arm, "user_id": f"u{user}", "item_id": f"i{rank}", "position": rank,
             "relevance": int(rank == 1 + (arm == "a" or not self.better)), "country": ("de", "fr")[user % 2]}
            for user in range(self.users) for arm in self.arms for rank in (1, 2)
        ]  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        for part, kind in enumerate(self.kinds):
            kinds = dict.fromkeys(("experiment_id", "user_id", "item_id"), pa.string())
            schema = pa.schema(kinds | {"position": pa.int64(), "relevance": pa.int64(), "country": pa.string()})
            table = pa.Table.from_pylist(rows[part::2], schema).drop_columns(list(self.drop))
            at = table.schema.get_field_index("position")
            pq.write_table(table.set_column(at, "position", table["position"].cast(kind)), folder / f"{part}.parquet")


GOOD, LAST_NIGHT = Night(), "2027-03-10"
HALF = "36 rows of the log, 50 % fewer than the median of the last 3 published days (72)"
GATE = "MAP@5 of c is 0.5000; the gate asks for at least 0.8"
MISSING_ARM = "b of the last 3 published days is missing in the log"
NIGHTS = {
    "2027-03-01": GOOD,
    "2027-03-02": GOOD,
    "2027-03-03": GOOD,
    "2027-03-04": Night(users=6, says=HALF, alert="doubt"),
    "2027-03-05": Night(users=0, state="failed", says="the input is empty: no rows in ", alert="late"),
    "2027-03-06": Night(arms="ac", state="failed", says=MISSING_ARM, alert="refused"),
    "2027-03-07": Night(better=False, state="failed", says=GATE, alert="refused"),
    "2027-03-08": Night(drop=("country",), state="failed", says="unknown column 'country'", alert="late"),
    "2027-03-09": Night(
        kinds=(pa.int64(), pa.string()), state="failed", says="its column 'position' has type string", alert="late"
    ),
    # Its log is there only when somebody has looked for it.
    LAST_NIGHT: Night(says="cannot read parquet from "),
}
MORNING = datetime.fromisoformat("2027-03-11T06:00:00+00:00")


def alerts(airflow: Airflow) -> list[tuple[str, str, str]]:
    """What the documented query answers in DuckDB about these nights; few users are a doubt on each of them."""
    query, views = blocks("sql", section("An alert that rings"))
    session = duckdb.connect()
    session.execute(views.replace("out/first", str(airflow.out)))
    rows = [(f"{day}", what, text) for day, what, text in session.execute(query).fetchall()]
    return [row for row in rows if row[0] <= LAST_NIGHT and "users" not in row[2]]


def test_ten_nights(tmp_path: Path) -> None:
    """With a triggerer, one slot, and a clock that stands at the morning after the last night."""
    airflow = set_up(
        tmp_path,
        **moved(tmp_path, (MORNING - datetime.now(timezone.utc)).total_seconds()),
        RANKMETRICS_START_DATE="2027-03-01",
        RANKMETRICS_CATCHUP="true",
        RANKMETRICS_DEFERRABLE="true",
        RANKMETRICS_LATE_UNTIL="23:00",
        RANKMETRICS_RETRY_DELAY="3",
    )
    config = yaml.safe_load((tmp_path / "config.yaml").read_text()) | {
        "source": {"path": f"{tmp_path}/logs/event_date={{date}}", "segments": ["country"]},
        "comparison": {"baseline": "a"},
        "quality": {"gates": {"experiments": {"missing": "fail"}}},
        "gates": [{"metric": "ap@5", "experiment": "c", "min": 0.8}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "spark" / "spark-defaults.conf").write_text(SPARK.replace("spark.log.level WARN\n", ""))
    folders = {day: tmp_path / "logs" / f"event_date={day}" for day in NIGHTS}
    for day in list(NIGHTS)[:-1]:
        NIGHTS[day].write(folders[day])
    airflow("airflow dags reserialize")
    for dag in ("rankmetrics", "rankmetrics_backfill"):
        airflow(f"airflow dags unpause {dag}")

    def task_log(day: str) -> str:
        # A scheduled run is named after the moment at which its day was over.
        runs = airflow.ask("select run_id from dag_run where dag_id = 'rankmetrics' and logical_date like ?", f"{day}%")
        logs = tmp_path / "home" / "logs" / "dag_id=rankmetrics"
        files = (file for (run,) in runs for file in (logs / f"run_id={run}" / "task_id=evaluate").glob("*.log"))
        return "".join(file.read_text() for file in files)

    def ended(n: int, dag: str = "rankmetrics") -> bool:
        query = "select count(*) from dag_run where dag_id = ? and state in ('success', 'failed')"
        return airflow.ask(query, dag) == [(n,)]

    with scheduler(airflow, "triggerer") as process:
        # No task runs while the job of one does.
        held = "select group_concat(state) from task_instance where state in ('deferred', 'running', 'queued')"
        wait_for(lambda: airflow.ask(held) == [("deferred",)], LIMIT, f"deferred task; see {process.log}")
        wait_for(lambda: "looking again at" in task_log(LAST_NIGHT), 3 * LIMIT, f"last night; see {process.log}")
        GOOD.write(folders[LAST_NIGHT])
        wait_for(lambda: ended(10), LIMIT, f"ten nights; see {process.log}")
        for day, night in NIGHTS.items():
            assert airflow.tasks(day) == {"evaluate": (night.state, 1)}, day
            assert night.says in task_log(day), day
            assert (airflow.out / "published" / f"{day}.json").exists() == (night.state == "success"), day
        # As in production, Spark says nothing: a person reads few lines, and most of them are of Airflow.
        assert max(len(task_log(day).splitlines()) for day in NIGHTS) < 150
        # The days that wait for nobody any more say so.
        assert "; after 2027-03-06 23:00:00+00:00, nobody looks again" in task_log("2027-03-05")
        told = airflow.xcom("2027-03-04")
        assert (told["rows"]["in"], told["warnings"]) == (36, 2)
        assert told["verdict"][0].startswith("b against a on MAP@5: no difference shown, 0.500 → 1.000")
        assert [(day, what) for day, what, _ in alerts(airflow)] == sorted(
            [*((day, night.alert) for day, night in NIGHTS.items() if night.alert), ("2027-03-05", "missing")]
        )
        by_hand(airflow)

        # A re-run, once the rest of the half day has come.
        before = airflow.published("2027-03-04")["run_id"]
        GOOD.write(folders["2027-03-04"])
        again = "--from-date 2027-03-04 --to-date 2027-03-04 --reprocess-behavior completed"
        airflow(f"airflow backfill create --dag-id rankmetrics {again}")
        wait_for(lambda: ended(10) and airflow.published("2027-03-04")["run_id"] != before, LIMIT, "re-run")
        assert airflow.xcom("2027-03-04")["warnings"] == 0 and "doubt" not in {what for _, what, _ in alerts(airflow)}

        # A backfill of three days, of which one is still bad.
        for day in ("2027-03-05", "2027-03-06"):
            GOOD.write(folders[day])
        three = json.dumps({"from": "2027-03-05", "to": "2027-03-07"})
        airflow(f"airflow dags trigger rankmetrics_backfill --conf {shlex.quote(three)}")
        wait_for(lambda: ended(1, "rankmetrics_backfill"), LIMIT, f"backfill; see {process.log}")
    assert airflow.backfilled() == [
        ("days", -1, "success"), ("done", -1, "upstream_failed"), ("evaluate", -1, "failed"),
        ("publish", 0, "success"), ("publish", 1, "success"), ("publish", 2, "skipped"),
    ]  # fmt: skip
    events = "select distinct partition_key from asset_event where partition_key is not null order by 1"
    assert [day for (day,) in airflow.ask(events)] == [*list(NIGHTS)[:6], LAST_NIGHT]
    assert [(day, what) for day, what, _ in alerts(airflow)] == [
        ("2027-03-07", "missing"), ("2027-03-07", "refused"), ("2027-03-08", "late"), ("2027-03-09", "late"),
    ]  # fmt: skip


def by_hand(airflow: Airflow) -> None:
    """The same days through spark-submit: the same days are published, with the same bits, and the same words."""
    out, place = airflow.folder / "by hand", airflow.folder / "place"
    submit = [
        "spark-submit", "--master", "local[2]", "--py-files", f"{place}/dist/rankmetrics_spark.zip",
        f"{place}/jobs/evaluate.py", "--config", airflow.environment["RANKMETRICS_CONFIG"], "--output", str(out),
        "--from", "2027-03-01", "--to", LAST_NIGHT, "--keep-going", "-q",
    ]  # fmt: skip
    path = [airflow.folder / "by_hand.log", airflow.environment, airflow.folder]
    text = airflow.ends(Running.start(submit, *path), code=5)
    codes = {"late": "exit code 3", "2027-03-06": "exit code 4", "2027-03-07": "exit code 5"}
    lines = [f"{day}: {codes.get(day) or codes.get(night.alert) or 'published'}" for day, night in NIGHTS.items()]
    assert text.splitlines()[-11:-1] == lines
    assert text.splitlines()[-1] == "rankmetrics: 5 of 10 days are not published: 2027-03-05 to 2027-03-09"
    assert [night.says for night in list(NIGHTS.values())[4:9] if night.says not in text] == []
    other = Airflow(airflow.folder, airflow.environment, "by hand")
    for day in NIGHTS:
        assert other.means(day) == airflow.means(day)


class Jobs(ThreadingHTTPServer):
    """A stand-in for the Databricks Jobs API: the parts that the operator calls."""

    daemon_threads = True

    def __init__(self, names: Sequence[str], errors: dict[str, str]) -> None:
        """Serve jobs with these names; a run for a date in ``errors`` fails with that error message."""
        super().__init__(("127.0.0.1", 0), Answer)
        self.names, self.errors = list(names), errors
        self.started: list[dict[str, Any]] = []


class Answer(BaseHTTPRequestHandler):
    server: Jobs

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: value for name, (value,) in parse_qs(url.query).items()}
        answers = {"list": self.jobs, "get": self.state, "get-output": self.output}
        self.say(answers[url.path.removeprefix("/api/2.2/jobs/").removeprefix("runs/")](query))

    def do_POST(self) -> None:
        assert self.path == "/api/2.2/jobs/run-now"
        self.server.started.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.say({"run_id": len(self.server.started)})

    def jobs(self, query: dict[str, str]) -> dict[str, Any]:
        named = [(number, name) for number, name in enumerate(self.server.names) if name == query["name"]]
        return {"jobs": [{"job_id": number, "settings": {"name": name}} for number, name in named]}

    def state(self, query: dict[str, str]) -> dict[str, Any]:
        result = "FAILED" if "error" in self.output(query) else "SUCCESS"
        state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": ""}
        number = int(query["run_id"])
        run = {"run_id": number, "job_id": self.server.started[number - 1]["job_id"], "state": state}
        return {**run, "run_page_url": "http://127.0.0.1/", "tasks": [{**run, "task_key": "evaluate"}]}

    def output(self, query: dict[str, str]) -> dict[str, Any]:
        error = self.server.errors.get(self.server.started[int(query["run_id"]) - 1]["job_parameters"]["date"])
        return {"error": error} if error else {}

    def say(self, what: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(what).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """A server with the jobs of the asset bundle in both of its targets, under the names that Databricks' tool gives.

    In ``mode: development`` the tool puts ``[dev USER] `` before each name (ApplyPresets in its source code).
    """
    bundle = yaml.safe_load((ROOT / "conf" / "databricks.yml").read_text(encoding="utf-8"))
    modes = [target["mode"] for target in bundle["targets"].values()]
    assert modes == ["development", "production"]
    dated = [job["name"] for job in bundle["resources"]["jobs"].values() if job["parameters"][0]["name"] == "date"]
    names = [*(f"[dev jane_doe] {name}" for name in dated), *dated]
    with Jobs(names, {"2026-10-02": "QualityError: 1 of 3 rows are faulty"}) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


# Does the same as `airflow dags test`, for several days in one process, each with its own settings.
DAYS = """
import json, os, sys
from datetime import datetime, timezone
from airflow.dag_processing.dagbag import DagBag

folder, work = sys.argv[1:]
for day, settings in enumerate(json.loads(work), start=1):
    os.environ.update(settings)
    DagBag(folder).dags["rankmetrics"].test(logical_date=datetime(2026, 10, day, tzinfo=timezone.utc))
"""


def test_on_databricks_the_dag_starts_the_job_of_each_target_with_the_day(airflow: Airflow, jobs: Jobs) -> None:
    place = {"conn_type": "databricks", "schema": "http", "host": "127.0.0.1", "port": jobs.server_port}
    present = {
        "RANKMETRICS_PLATFORM": "databricks",
        "AIRFLOW_CONN_DATABRICKS_DEFAULT": json.dumps(place | {"password": "token"}),
    }
    deployed, prefixed = "rankmetrics on a cluster", "[dev jane_doe] rankmetrics on a cluster"
    prod, dev = jobs.names.index(deployed), jobs.names.index(prefixed)
    named = [{}, {"RANKMETRICS_JOB": prefixed}, {"RANKMETRICS_JOB": str(dev)}, {"RANKMETRICS_JOB": str(prod)}]
    # The provider's own trigger waits on two of the days.
    named = [{**day, "RANKMETRICS_DEFERRABLE": f"{n % 2 > 0}".lower()} for n, day in enumerate(named)]
    airflow.python(DAYS, airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"], json.dumps(named), **present)
    # The second day fails at its gate, so it runs once although a retry is left.
    # The operator sends an id of the settings as text, which the API accepts.
    started = [run | {"job_id": int(run["job_id"])} for run in jobs.started]
    assert started == [
        {"job_id": job, "job_parameters": {"date": f"2026-10-0{day}"}}
        for day, job in enumerate([prod, dev, dev, prod], start=1)
    ]
    for day in (1, 3, 4):
        assert airflow.tasks(f"2026-10-0{day}") == {"evaluate": ("success", 1), "publish": ("success", 1)}
    assert airflow.tasks("2026-10-02")["evaluate"] == ("failed", 1)
    assert airflow.tasks("2026-10-02")["publish"][0] == "upstream_failed"
    events = [json.loads(extra) for (extra,) in airflow.ask("select extra from asset_event")]
    assert {"evaluation_date": "2026-10-01"} in events and {"evaluation_date": "2026-10-02"} not in events


# Runs in Airflow's Python: loads the DAG file under given settings and writes down the result.
PROBE = """
import importlib.util, json, os, sys, types
from unittest.mock import MagicMock
import airflow.sdk as sdk
import pendulum
from airflow.dag_processing.dagbag import DagBag

file, answer, work = sys.argv[1:]
found = {}
for settings in json.loads(work)["settings"]:
    os.environ.update(settings)
    # None in sys.modules: what is not installed here. A module without names: what an older Airflow lacks.
    hidden = {name: sys.modules.get(name) for name in os.environ.pop("HIDE", "").split()}
    sys.modules.update(dict.fromkeys(hidden))
    if "airflow.sdk" in hidden:
        sys.modules["airflow.sdk"] = old = types.ModuleType("airflow.sdk")
        old.__getattr__ = lambda name: getattr(sdk, name) if name != "RetryPolicy" else getattr(types, name)
    sys.modules.pop("rankmetrics_spark.airflow", None)
    bag = DagBag(os.path.dirname(file))
    dag = bag.dags.get("rankmetrics")
    key = " ".join(f"{name}={value}" for name, value in settings.items())
    found[key] = {"errors": [text.strip().splitlines()[-1] for text in bag.import_errors.values()]}
    if dag:
        task = dag.get_task("evaluate")
        task.render_template_fields({"logical_date": pendulum.datetime(2026, 11, 20)})
        fields = {name: getattr(task, name) for name in task.template_fields}
        found[key] |= {
            "dags": sorted(bag.dags), "catchup": dag.catchup, "at a time": dag.max_active_runs,
            "retries": task.retries, "delay": task.retry_delay.total_seconds(), "start": str(dag.start_date.date()),
            "fields": json.loads(json.dumps(fields, default=str)), "tasks": sorted(dag.task_ids),
            "submit": [task._get_hook()._build_spark_common_args(), task.deferrable, task.late_until],
            "decisions": {said: task.retry_policy.evaluate(Exception(said), 1, 3).action.value
                          for said in json.loads(work)["said"]},
        }
    for name in settings:
        os.environ.pop(name, None)
    for name, module in hidden.items():
        sys.modules.pop(name) if module is None else sys.modules.update({name: module})
os.environ["RANKMETRICS_OUTPUT"] = json.loads(work)["output"]
spec = importlib.util.spec_from_file_location("dag_file", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found["pointer"] = module.publish("2026-11-20", MagicMock(), module.OUTPUT, None)
with open(answer, "w") as stream:
    json.dump(found, stream)
"""

# The unit tests have every sentence that tells an exit code.
DECISIONS = {f"Error code is: {code}.": "fail" if code in (2, 4, 5) else "default" for code in (1, 2, 3, 4, 5, 137)}


OLD = "ImportError: the DAG rankmetrics needs Airflow 3.3 or newer, and rankmetrics_spark with its extra airflow; "
OLD += "found Airflow {}: "
MISSING: dict[str, str] = {
    "airflow.providers.apache.spark.operators.spark_submit": OLD,
    "airflow.providers.standard.operators.python": OLD,
    "airflow.sdk": f"{OLD}cannot import name 'RetryPolicy' from 'airflow.sdk'",
    "airflow.providers.databricks.operators.databricks": (
        "ImportError: the DAG rankmetrics needs apache-airflow-providers-databricks where RANKMETRICS_PLATFORM is "
        "'databricks': pip install apache-airflow-providers-databricks"
    ),
}
"""A module that is missing -> how the only line about it starts, with the version of Airflow."""


def platform_of(module: str) -> str:
    return "databricks" if "databricks" in module else "spark"


WHERE = "event_date = '{{ ds }}'"
SUBMIT = {
    "RANKMETRICS_CONF": '{"spark.executor.instances": 4}',
    "RANKMETRICS_PACKAGES": "org.apache.hadoop:hadoop-aws:3.5.0",
    "RANKMETRICS_ARCHIVES": "environment.tar.gz#environment",
    "RANKMETRICS_DRIVER_MEMORY": "8g",
    "RANKMETRICS_EXECUTOR_MEMORY": "16g",
    "RANKMETRICS_LOG_LEVEL": "INFO",
    "RANKMETRICS_DEFERRABLE": "true",
    "RANKMETRICS_LATE_UNTIL": "09:00",
    "RANKMETRICS_KEEP": "90d",
}


@pytest.fixture(scope="module")
def probed(airflow: Airflow) -> dict[str, Any]:
    """The DAG with its defaults and with settings that a user may choose."""
    output = airflow.folder / "elsewhere"
    pointer = {"evaluation_date": FIRST, "run_id": "b", "record": "runs/b.json", "partitions": partitions(FIRST, "ax")}
    # Where only Spark reaches the output, it writes the pointer as a folder.
    folder = output / "published" / f"{FIRST}.json"
    folder.mkdir(parents=True)
    (folder / "part-00000-x.txt").write_text(json.dumps(pointer | {"sequence": 2}))
    settings: list[dict[str, str]] = [
        {},
        {"RANKMETRICS_WHERE": WHERE, "RANKMETRICS_CATCHUP": "true", "RANKMETRICS_START_DATE": "2026-11-01"},
        SUBMIT,
        {"RANKMETRICS_CONF": "spark.cores.max=4"},
        {"RANKMETRICS_LATE_UNTIL": "nine"},
        {"RANKMETRICS_KEEP": "90d", "RANKMETRICS_PLATFORM": "databricks"},
        {"RANKMETRICS_PLATFORM": "emr"},
        {"RANKMETRICS_RETRIES": "many"},
        {"RANKMETRICS_START_DATE": "today"},
        {"RANKMETRICS_PERIOD_FROM": FIRST},
        {"RANKMETRICS_PERIOD_FROM": "2099-01-01"},
        {"RANKMETRICS_PERIOD_FROM": FIRST, "RANKMETRICS_PLATFORM": "databricks"},
        *({"HIDE": name, "RANKMETRICS_PLATFORM": platform_of(name)} for name in MISSING),
    ]
    work = json.dumps({"settings": settings, "said": list(DECISIONS), "output": str(output)})
    answer = airflow.folder / "answer.json"
    bare = {name: value for name, value in airflow.environment.items() if not name.startswith("RANKMETRICS")}
    dag_file = str(ROOT / "jobs" / "airflow_dag.py")
    Airflow(airflow.folder, bare).python(PROBE, dag_file, str(answer), work)
    result: dict[str, Any] = json.loads(answer.read_text())
    assert result["pointer"] == pointer | {"rows": None, "warnings": 0, "verdict": []}
    return result


def test_without_settings_the_dag_is_complete(probed: dict[str, Any]) -> None:
    result = probed[""]
    fields = result.pop("fields")
    # `make wheel` writes the zip there.
    submit = ["--master", "local[2]", "--py-files", str(ROOT / "dist/rankmetrics_spark.zip"), "--name", "rankmetrics"]
    assert result.pop("decisions") == DECISIONS
    assert result == {
        "errors": [],
        "dags": ["rankmetrics", "rankmetrics_backfill"],
        "catchup": False,
        "at a time": 1,
        "retries": 3,
        "delay": 900,
        "start": "2020-01-01",
        "tasks": ["evaluate"],
        "submit": [submit, False, None],
    }
    config, output = str(ROOT / "conf" / "example.yaml"), str(ROOT / "out")
    assert fields["application_args"] == ["--config", config, "--output", output, "--date", FIRST]
    assert Path(config).is_file() and Path(fields["application"]).is_file()


def test_settings_are_used_or_refused_with_one_sentence(probed: dict[str, Any]) -> None:
    (accepted,) = (result for key, result in probed.items() if key.startswith("RANKMETRICS_WHERE="))
    assert (accepted["catchup"], accepted["start"]) == (True, "2026-11-01")
    assert accepted["fields"]["application_args"][-4:] == ["--date", FIRST, "--where", "event_date = '{date}'"]
    chosen = probed[" ".join(f"{name}={value}" for name, value in SUBMIT.items())]
    submitted, deferrable, late_until = chosen["submit"]
    assert (deferrable, late_until) == (True, "09:00")
    assert {"spark.log.level=INFO", "spark.executor.instances=4", *list(SUBMIT.values())[1:5]} <= {*submitted}
    assert chosen["tasks"] == ["evaluate", "prune"]
    (error,) = probed["RANKMETRICS_KEEP=90d RANKMETRICS_PLATFORM=databricks"]["errors"]
    assert error.endswith("allowed: the variable keep of the bundle")
    for given, allowed in (
        ("RANKMETRICS_PLATFORM=emr", "spark, databricks"),
        ("RANKMETRICS_RETRIES=many", "a whole number"),
        ("RANKMETRICS_START_DATE=today", "a date as YYYY-MM-DD"),
        ("RANKMETRICS_LATE_UNTIL=nine", "an hour such as 09:00"),
        ("RANKMETRICS_CONF=spark.cores.max=4", 'JSON such as {"spark.executor.instances": "4"}'),
    ):
        name, _, value = given.partition("=")
        assert probed[given] == {"errors": [f"ValueError: {name} is '{value}'; allowed: {allowed}"]}


def test_comparisons_are_over_the_days_from_the_first_one_of_the_test(probed: dict[str, Any]) -> None:
    for first, period in ((FIRST, f"{{from: {FIRST}}}"), ("2099-01-01", "null")):
        fields = probed[f"RANKMETRICS_PERIOD_FROM={first}"]["fields"]
        assert fields["application_args"][-2:] == ["--set", f"comparison.period={period}"]
    (error,) = probed[f"RANKMETRICS_PERIOD_FROM={FIRST} RANKMETRICS_PLATFORM=databricks"]["errors"]
    assert error.endswith("allowed: the variable period of the bundle")


@pytest.mark.parametrize("module", MISSING)
def test_a_missing_provider_or_an_old_airflow_is_one_sentence(probed: dict[str, Any], module: str) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints" / "airflow.txt").read_text().split())
    (message,) = probed[f"HIDE={module} RANKMETRICS_PLATFORM={platform_of(module)}"]["errors"]
    assert message.startswith(MISSING[module].format(pins["apache-airflow"]))


def test_every_airflow_command_of_the_readme_is_run_here() -> None:
    named = commands("airflow", section("Airflow 3.3 or newer"))
    assert named == [shlex.split(ran) for ran in (ONE_DAY, EVERY_DAY, BACKFILL, SEVERAL)]
