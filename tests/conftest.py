"""Fixtures for every test. The first test that needs Spark starts one session for all tests of its process."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rankmetrics_spark.engines.choice import QUICK_JAVA
from rankmetrics_spark.engines.spark import cache_folder, connect_session, local_session
from tests.helpers.verifier import Verifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LONG = [line.split() for line in Path(__file__).with_name("long.txt").read_text().splitlines() if line[:1] != "#"]


with suppress(ImportError):  # the environments of some platforms have no hypothesis
    from hypothesis import settings as examples

    # The same examples in each run, however long they take: a change that fails has caused it.
    examples.register_profile("same examples", derandomize=True, deadline=None)
    examples.load_profile("same examples")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--remote", metavar="URL", help="run over Spark Connect, at sc://host:port")
    parser.addoption("--engine", choices=["spark", "sail"], default="spark", help="run on Spark or on Sail")
    parser.addoption("--only-spark", action="store_true", help="of tests/spark, what a run on Sail does not show")
    parser.addoption("--slow", action="store_true", help="also run what make test-slow runs")
    parser.addoption(
        "--verify-runs", choices=["spark", "sail"], help="verify each run on it, with rows in another order"
    )
    parser.addoption("--compiled", action="store_true", help="let Spark compile its queries, as users do; takes longer")


def pytest_configure(config: pytest.Config) -> None:
    """Commands in their own processes use the server of the tests, never the user's own SPARK_REMOTE."""
    # No test cuts the power, so none waits until the disk has a file.
    os.fsync = lambda handle: None
    os.environ.pop("SPARK_REMOTE", None)
    if remote := config.getoption("remote"):
        os.environ["SPARK_REMOTE"] = remote


# Run this hook first: pytest-xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run does not show; the tests of one file that use the session run in one xdist process."""
    config.hook.pytest_deselected(items=[item for item in items if not shows(config, item)])
    items[:] = [item for item in items if shows(config, item)]
    only_spark = config.getoption("only_spark")
    for item in items:
        if long := is_long(item.nodeid, only_spark):
            item.add_marker(pytest.mark.long)
        if "spark" in getattr(item, "fixturenames", ()):
            # Few tests share one Spark, beside those without an engine: a second start would take longer than they do.
            item.add_marker(pytest.mark.xdist_group("few" if only_spark and not long else item.path.name))


def is_long(test: str, only_spark: bool) -> bool:
    """Whether tests/long.txt names a test, or its file; a line that begins with spark is for ``--only-spark``."""
    names = test.partition("::")[0], test.partition("[")[0]
    return any(name in names and (only_spark or not of_spark) for *of_spark, name in LONG)


def shows(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a test is one of this run, as its markers say (see pyproject.toml)."""

    def has(*markers: str) -> bool:
        return any(item.get_closest_marker(marker) for marker in markers)

    if has("slow") and not config.getoption("slow"):
        return False
    if config.getoption("engine") == "sail":
        return not has("classic", "needs_spark")
    if config.getoption("remote"):
        return not has("classic")
    if config.getoption("only_spark") and item.path.parent.name == "spark":
        return has("classic", "needs_spark", "both_engines") and not has("program")
    return True


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session that all tests of a process share. A start takes seconds, and a restart would lose the warm JVM."""
    option = pytestconfig.getoption
    # One thread has found what two hide: nothing then stands between a step of the engine and the next one. With
    # --slow two, as most users have more than one.
    threads = 2 if option("slow") else 1
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    session = session_of(option("engine"), option("remote"), warehouse, option("compiled"), threads)
    yield session
    session.stop()


def session_of(
    engine: str, remote: str | None = None, warehouse: str | None = None, compiled: bool = False, threads: int = 1
) -> "SparkSession":
    """A session on an engine; tables of the catalog tests are written to the warehouse."""
    settings = {
        # The tables are small, so more partitions would only mean more tasks.
        "spark.sql.shuffle.partitions": "2",
        # Two JVMs on two cores: threads that collect garbage beside them would only take turns with them.
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {QUICK_JAVA}",
        # Memory for the compiled plans of hundreds of queries; with less, garbage collection never stops.
        "spark.driver.memory": "3g",
        # Keep the compiled plans of hundreds of queries; the default of 100 evicts plans that are still used.
        "spark.sql.codegen.cache.maxEntries": "500",
        # Only the tests that count jobs read finished jobs, and they read the newest ones.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.sql.ui.retainedExecutions": "50",
    }
    places = {"spark.sql.warehouse.dir": warehouse} if warehouse else {}
    if engine == "sail":
        # Imported here: environments with an older Spark have no gRPC.
        from rankmetrics_spark.engines.sail import laptop_session

        session = laptop_session(threads=threads, memory="6g")
        for name, place in places.items():
            session.conf.set(name, place)
        return session
    if remote:
        return connect_session(remote)
    # For a handful of rows, compiling a query takes longer than anything else. Tests with the marker "compiled",
    # the suites of other versions of Spark, Spark Connect and every command in a process of its own do compile.
    return local_session("local[2]", "rankmetrics tests", settings | places | ({} if compiled else INTERPRETED))


@pytest.fixture(autouse=True)
def compiled_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Spark compile the queries of a test with the marker "compiled", as it does for users."""
    on_spark = request.config.getoption("engine") == "spark" and not request.config.getoption("remote")
    if not on_spark or not request.node.get_closest_marker("compiled"):
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = {name: conf.get(name) for name in COMPILED}
    for name, value in COMPILED.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)


@pytest.fixture(scope="session")
def verifier(pytestconfig: pytest.Config) -> Iterator[Verifier | None]:
    """What verifies the runs of all tests, with --verify-runs; the last lines say how many were, and how."""
    if not (engine := pytestconfig.getoption("verify_runs")):
        yield None
        return
    verifier = pytestconfig.verifier = Verifier(engine)  # type: ignore[attr-defined]
    yield verifier
    if verifier.process is not None:
        verifier.process.communicate()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many runs were verified."""
    if verifier := getattr(config, "verifier", None):
        terminalreporter.section(f"runs verified on {verifier.engine}")
        for what, n in verifier.counts.most_common():
            terminalreporter.write_line(f"{n:5,} {what}")


@pytest.fixture(autouse=True)
def verified_runs(verifier: Verifier | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With --verify-runs: derive each run of a test again, as soon as it has published."""
    if verifier is None:
        yield
        return
    from rankmetrics_spark import job

    evaluate, found = job._evaluate, list[str]()

    def verified(context: Any) -> Any:
        outcome, config = evaluate(context), context.config
        # What the test itself derives again is compared by the test.
        if context.store_for is None:
            found.append(verifier(config.sink.path, config.evaluation_date, outcome.run_id))
        return outcome

    monkeypatch.setattr(job, "_evaluate", verified)
    yield
    # The test has gone on, and fails at its end.
    assert not any(found), [*filter(None, found)]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for the files that the package keeps, as a new environment has it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    cache_folder.cache_clear()
    yield cache_folder()
    cache_folder.cache_clear()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder beside the checkout with real rankings and reference values from other systems.

    Where every change is tested, a folder that is absent fails; tests/spark/test_made_rankings.py needs none.
    """
    if not SHARED_DATA.is_dir():
        absent = f"no reference data at {SHARED_DATA}"
        in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
        pytest.fail(absent) if in_ci else pytest.skip(absent)
    return SHARED_DATA
