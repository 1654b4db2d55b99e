"""The laptop engine without starting it: which engine is chosen, its limits, its layout, what it refuses to read."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from rankmetrics_spark.config import Judgements, Source
from rankmetrics_spark.engines import Choice, choose, sail, sessions
from rankmetrics_spark.engines.sail.process import Limits, _environment
from rankmetrics_spark.errors import ConfigError, InputError, RankmetricsError
from rankmetrics_spark.layouts import GRADES, HASHES, RANKS, Numbers, Reading, Relevant, rank_may_repeat
from rankmetrics_spark.metrics import PRESETS, Batch
from rankmetrics_spark.schemas import ENTRIES, HASH, N_ROWS, POSITION, RELEVANCE
from rankmetrics_spark.sources import on_sail
from tests.helpers.messages import cases, json_cases
from tests.helpers.packages import install_sail, stand_in

# ---- the choice


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have a session running."""
    none = SimpleNamespace(getActiveSession=lambda: None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", stand_in("pyspark.sql", SparkSession=none))


@pytest.mark.parametrize(
    ("engine", "master", "variable", "installed", "chosen"), json_cases("which engine a command chooses")
)
def test_a_named_engine_wins_then_a_master_then_what_is_installed(
    engine: str | None,
    master: str | None,
    variable: str | None,
    installed: bool,
    chosen: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_sail(monkeypatch, tmp_path, works=installed)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if variable:
        monkeypatch.setenv("SPARK_REMOTE", variable)
    assert choose(engine, master) == Choice(*chosen)


def test_the_session_of_spark_submit_is_one_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_sail(monkeypatch, tmp_path)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose(None, None) == Choice("spark")
    assert not choose(None, None).here and choose("sail", None).here


@pytest.mark.parametrize(("engine", "master"), [("sail", "local[2]"), (None, "mesos://a"), ("spark", "a:1")])
def test_a_wrong_master_is_refused_with_what_is_allowed(engine: str | None, master: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--master is '{master.replace('[', '.').replace(']', '.')}'.*; allowed: "):
        choose(engine, master)


def test_a_session_of_spark_that_was_stopped_is_one_sentence() -> None:
    said = r"^the Spark session was stopped; start another one and evaluate again$"
    with pytest.raises(RankmetricsError, match=said), sessions.own_errors():
        raise RuntimeError("[SESSION_OR_CONTEXT_NOT_EXISTS] SparkContext or SparkSession should be created first.")


LOADING = """
import sys, threading, time
from importlib import import_module
import rankmetrics_spark.doors

def query():
    import_module(sys.argv[1])

def hook(event, found):
    if event == "import" and found[0] == "rankmetrics_spark.road.checking" and not thread.is_alive():
        thread.start()
        time.sleep(0.5)

thread = threading.Thread(target=query)
sys.addaudithook(hook)
[*map(import_module, rankmetrics_spark.doors.LOADED_AHEAD)]
thread.join()
print(*sys.modules)
"""
"""The step of a query is loaded while the engine still loads the others."""


@pytest.mark.parametrize("step", ["road.assignments", "road.aggregation", "comparison.sums"])
def test_a_query_may_come_while_the_engine_loads_its_steps(step: str) -> None:
    # A folder whose __init__ loads its modules would fail here: each thread holds what the other one waits for.
    program = [sys.executable, "-c", LOADING, f"rankmetrics_spark.{step}"]
    loaded = subprocess.run(program, capture_output=True, text=True, check=True)
    steps = {f"rankmetrics_spark.road.{name}" for name in ("assignments", "scoring", "aggregation")}
    assert steps | {f"rankmetrics_spark.{step}"} <= {*loaded.stdout.split()} and not loaded.stderr


def test_environments_that_cannot_run_sail_say_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_sail(monkeypatch, tmp_path, works=False)
    assert not sail.installed()
    said = r"^the engine 'sail' cannot start: it is .*, and this environment has 4\.1\.0; install both with pip install"
    with pytest.raises(RankmetricsError, match=said):
        sail.check_installed()


WITHOUT_FILE = """
import sys
from rankmetrics_spark import evaluate
print("pyspark.sql.connect" in sys.modules, hasattr(sys.modules["__main__"], "__file__"))
"""


def test_the_client_is_loaded_for_a_main_module_without_a_file() -> None:
    # Later, a call of it would take such a program for its own doctests, and end it.
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


# ---- its limits


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [("64m", 64 * 2**20), ("4g", 4 * 2**30), ("2 GiB", 2 * 2**30), ("1t", 2**40), (100_000_000, 100_000_000)],
)
def test_a_size_is_read_as_people_write_it(size: str | int, n_bytes: int) -> None:
    assert Limits.of(2, size) == Limits(2, n_bytes)


@pytest.mark.parametrize(
    ("threads", "memory"), [(0, "1g"), (-1, "1g"), ("two", "1g"), (1, "63m"), (1, "much"), (1, "-1g"), (1, 0)]
)
def test_limits_that_make_no_sense_are_refused(threads: int, memory: str | int) -> None:
    with pytest.raises(ConfigError, match=r"^RANKMETRICS_(THREADS|MEMORY) is '.*'; allowed: "):
        Limits.of(threads, memory)


def test_the_engine_does_not_inherit_what_the_user_tells_python_spark_and_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS SPARK_HOME SAIL_RUNTIME__STACK_SIZE"
    users_own = names.split()
    for name in (*users_own, "TZ"):
        monkeypatch.setenv(name, "Asia/Tokyo")
    monkeypatch.setenv("HTTPS_PROXY", "kept")
    child = _environment(tmp_path, Limits.of(2, "1g"))
    assert {*users_own} & {*child} == set()
    assert (child["TZ"], child["HTTPS_PROXY"]) == ("UTC", "kept")
    # One thread in each of two Python steps, and twice as many, and some, for what waits.
    assert (child["SAIL_EXECUTION__DEFAULT_PARALLELISM"], child["OMP_NUM_THREADS"]) == ("2", "1")


# ---- its layout

LISTS = st.lists(st.lists(st.integers(1, 80), max_size=70), min_size=1, max_size=6)


@given(LISTS, st.booleans())
def test_a_rank_may_repeat_unless_each_fits_63_bits_once_or_they_are_1_to_n(lists: list[list[int]], tidy: bool) -> None:
    if tidy:
        lists = [[*range(len(ranks), 0, -1)] for ranks in lists]
    lengths = np.array([len(ranks) for ranks in lists])
    result = rank_may_repeat(np.array([rank for ranks in lists for rank in ranks], np.int64), lengths)
    for ranks, may in zip(lists, result, strict=True):
        each_once = max(Counter(ranks).values(), default=0) <= 1
        fits = each_once and max(ranks, default=0) <= 63
        assert may == (not fits and sorted(ranks) != [*range(1, len(ranks) + 1)] and bool(ranks))


ROWS = st.tuples(st.integers(1, 70), st.integers(0, 3), st.integers(-2, 3))


@given(st.lists(st.lists(ROWS, min_size=1, max_size=12), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_the_lists_are_those_of_the_layouts_that_look_twice(
    lists: list[list[tuple[int, int, int]]], small: bool, hashed: bool
) -> None:
    n_rows, reading = [len(rows) for rows in lists], Reading(PRESETS["standard"], repeats=hashed)
    may = rank_may_repeat(np.array([rank for rows in lists for rank, *_ in rows]), np.array(n_rows))
    packed = [[rank << 32 | (grade & 2**32 - 1) if small else rank for rank, _, grade in rows] for rows in lists]
    if not small:
        packed = [[-rank if grade else rank for rank, _, grade in rows] for rows in lists]
    columns = {
        N_ROWS: pa.array(n_rows),
        RANKS: pa.array(packed, pa.list_(pa.int64() if small else pa.int32())),
        GRADES: pa.array([[float(grade) for *_, grade in rows if grade] for rows in lists], pa.list_(pa.float64())),
        HASHES: pa.array([[item for _, item, _ in rows] for rows in lists]),
    }
    result = Numbers(small, hashed).unpack(columns, reading)
    relevant = {name: of_relevant(columns[name], lists) for name in (RANKS, HASHES)}
    above_0 = [[float(grade) for *_, grade in rows if grade > 0] for rows in lists]
    relevant[GRADES] = pa.array(above_0, columns[GRADES].type)
    only_relevant = Numbers(small, hashed, whole=False).unpack({N_ROWS: columns[N_ROWS], **relevant}, reading)
    # The second look sees every row of a list in which a rank may repeat, and the relevant rows of the others.
    seen = [
        [{POSITION: r, HASH: i if hashed else 0, RELEVANCE: float(g)} for r, i, g in rows if g > 0 or all_rows]
        for rows, all_rows in zip(lists, may, strict=True)
    ]
    kind = pa.list_(pa.struct([(POSITION, pa.int64()), (HASH, pa.int64()), (RELEVANCE, pa.float64())]))
    expected = Relevant(recheck=True).unpack({N_ROWS: pa.array(n_rows), ENTRIES: pa.array(seen, kind)}, reading)
    assert result.all_rows_seen is not None and result.all_rows_seen.tolist() == may.tolist()
    assert result.n_repeated.tolist() == expected.n_repeated.tolist()
    for name in ("size", "list", "rank", "grade", "shown"):
        assert np.array_equal(getattr(result.batch, name), getattr(expected.batch, name)), name
    # Flagged lists are computed from all of their rows; of the others, the relevant ones are enough.
    unflagged = np.flatnonzero(~may)
    assert only_relevant.all_rows_seen is None
    assert only_relevant.n_repeated[unflagged].tolist() == expected.n_repeated[unflagged].tolist()
    assert only_relevant.batch.shown[unflagged].tolist() == expected.batch.shown[unflagged].tolist()
    assert entries_of_lists(only_relevant.batch, unflagged) == entries_of_lists(expected.batch, unflagged)


def of_relevant(array: pa.Array, lists: list[list[tuple[int, int, int]]]) -> pa.Array:
    """The elements of relevant rows."""
    kept = [
        [x for x, (_, _, grade) in zip(values, rows, strict=True) if grade > 0]
        for values, rows in zip(array.to_pylist(), lists, strict=True)
    ]
    return pa.array(kept, array.type)


def entries_of_lists(batch: Batch, lists: np.ndarray) -> list[tuple[int, int, float]]:
    rows = zip(batch.list.tolist(), batch.rank.tolist(), batch.grade.tolist(), strict=True)
    return [row for row in rows if row[0] in set(lists.tolist())]


# ---- what it refuses to read


def csv(folder: Path, **files: str) -> Source:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return Source(format="csv", path=str(folder))


def test_csv_files_with_other_headers_are_refused_and_hidden_ones_are_not_looked_at(tmp_path: Path) -> None:
    on_sail.check(csv(tmp_path / "same", a="x,y\n1,2\n", b="X,Y\n3,4\n", _c="y,x\n", d=""))
    with pytest.raises(InputError, match=r"^cannot read '.*/b.csv': its header differs from that of the other"):
        on_sail.check(csv(tmp_path / "differ", a="x,y\n1,2\n", b="y,x\n3,4\n"))


@pytest.mark.parametrize(("header", "options", "message"), json_cases("a header with a repeated name is refused"))
def test_a_name_twice_in_a_header_is_refused(
    tmp_path: Path, header: str, options: dict[str, str], message: str
) -> None:
    section = replace(csv(tmp_path / "log", a=f"{header}\n1,2,3\n"), options=options)
    if not message:
        on_sail.check(section)
        return
    with pytest.raises(InputError, match=f"^cannot read '.*/a.csv': its header has {message}; allowed: each name once"):
        on_sail.check(section)


@pytest.mark.parametrize(("kind", "section", "message"), cases("what Sail would misread"))
def test_what_sail_would_misread_is_refused_in_one_sentence(kind: str, section: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        on_sail.check({"Source": Source, "Judgements": Judgements}[kind](**section))
    assert message in str(caught.value)


def test_the_session_can_be_named_without_its_client_and_refuses_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    session = sail.__getattr__("laptop_session")
    with pytest.raises(RankmetricsError, match=r"^the engine 'sail' cannot start: .*; install both with pip install"):
        session(threads=1)
