"""What every test may ask for: one Spark session for the whole suite, started by the first test that wants it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rankmetrics_spark.sessions import connect_session, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--remote", metavar="URL", help="run over Spark Connect, at sc://host:port")


def pytest_configure(config: pytest.Config) -> None:
    """Commands in processes of their own go where the tests go, never to a server that the user has in mind."""
    os.environ.pop("SPARK_REMOTE", None)
    if remote := config.getoption("remote"):
        os.environ["SPARK_REMOTE"] = remote


# First: the plugin that hands tests out reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever asks for the session, and everything beside such tests, starts Spark; one process gets all who ask."""
    if config.getoption("remote"):
        classic = [item for item in items if item.get_closest_marker("classic")]
        config.hook.pytest_deselected(items=classic)
        items[:] = [item for item in items if item not in classic]
    for item in items:
        asks = "spark" in getattr(item, "fixturenames", ())
        if asks:
            item.add_marker(pytest.mark.xdist_group("session"))
        if asks or item.path.parent.name == "spark":
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share: a start takes seconds, a stop in between would take the gain of a warm JVM."""
    settings = {
        # Small tables: each partition more is a task more, and nothing else.
        "spark.sql.shuffle.partitions": "2",
        # Room for the compiled plans of hundreds of queries; with less the collector never rests.
        "spark.driver.memory": "3g",
        # Tables of the catalog tests go with the other temporary files.
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # Compiled plans of hundreds of different queries; the default of 100 throws warm ones away.
        "spark.sql.codegen.cache.maxEntries": "500",
        # Nobody looks back at finished jobs but the tests that count the newest.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.sql.ui.retainedExecutions": "50",
    }
    remote = pytestconfig.getoption("remote")
    session = connect_session(remote) if remote else local_session("local[2]", "rankmetrics tests", settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real rankings with reference values that others computed; they lie beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no reference data at {SHARED_DATA}")
    return SHARED_DATA
