"""Spark 3.5, 4.0 and the newest, the oldest libraries and the newest: each passes the suite, all with the same bits.

Every environment but the main one is all of ``constraints/<name>.txt``. What runs in them is what may differ there:

* spark35, spark40: every test of tests/spark, but for the real data sets and the demo: more rows, nothing of Spark's.
* spark35, lowest: the unit tests as well; in spark40 they would meet the libraries of the main environment again.
* lowest: of tests/spark the road of a row, in which NumPy, pandas and PyArrow take part.

The tests against live peers ask the peers about the main environment only, which is the one that has them all.
"""

from __future__ import annotations

import json
import math
import os
import re
import sysconfig
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from rankmetrics_spark.conventions import resolve
from tests.commands import ROOT, ran
from tests.logs import assert_close, obvious, random_log
from tests.platforms import values
from tests.platforms.support import Running, built_wheel

UNIT = ["tests/unit", "rankmetrics_spark", "--ignore=tests/unit/test_peers.py"]
SUITES = {
    "spark35": ["tests/spark", *UNIT],
    "spark40": ["tests/spark"],
    "lowest": [
        *UNIT,
        *(
            f"tests/spark/test_{name}.py"
            for name in ("forms", "judgements", "lists_and_segments", "seed_values", "sums")
        ),
    ],
}
# All of them, unless somebody with less time names some.
CHOSEN = os.environ.get("MATRIX", " ".join(SUITES)).split()
ELSEWHERE = ["--ignore=tests/spark/test_real_data.py", "--ignore=tests/spark/test_demo_run.py"]

# What a platform has installed: raising it there would change it for everyone on that cluster.
PLATFORMS = {
    "Databricks 14.3": {"numpy": "1.23.5", "pandas": "1.5.3", "pyarrow": "8.0.0", "scipy": "1.10.0"},
    "Databricks 15.4": {"numpy": "1.23.5", "pandas": "1.5.3", "pyarrow": "14.0.1", "scipy": "1.11.1"},
}

# The quantile of Student's t is SciPy's, and SciPy 1.10 computed it another way, to nine digits.
INTERVAL = ("ci_low", "ci_high")


def same(mine: Any, theirs: Any, exactly: bool) -> bool:
    if exactly or mine is None or theirs is None:
        return bool(mine == theirs)
    return math.isclose(float.fromhex(mine), float.fromhex(theirs), rel_tol=1e-8)


def python(name: str) -> Path:
    return ROOT / ".venvs" / name / "bin" / "python"


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    return {library.lower(): version for library, version in (line.split("==") for line in lines)}


def base_requirements() -> list[Requirement]:
    # Not what an earlier build left beside the sources, which would be found first.
    installed = sysconfig.get_path("purelib")
    (package,) = Distribution.discover(name="rankmetrics-spark", path=[installed])
    return [need for need in map(Requirement, package.requires or ()) if need.marker is None]


def run_suite(name: str, folder: Path) -> None:
    """The tests of one environment; they leave ``folder/name.json`` behind."""
    # The session of this process has set some for its own Spark.
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("SPARK", "PYSPARK", "PYTHONPATH"))}
    command = [str(python(name)), "-m", "pytest", "-p", "no:cacheprovider", "tests/platforms/values.py"]
    environment = kept | {"VALUES": str(folder / f"{name}.json")}
    running = Running.start([*command, *SUITES[name], *ELSEWHERE], folder / f"{name}.log", environment, ROOT)
    try:
        code = running.process.wait(1200)
    finally:
        running.stop()
    assert code == 0, running.text()[-8000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module")
def suites(folder: Path) -> Iterator[dict[str, Future[None]]]:
    """All suites, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(run_suite, name, folder) for name in CHOSEN}
        pool.shutdown(cancel_futures=True)


def test_the_base_dependencies_are_libraries_and_no_spark() -> None:
    assert {need.name for need in base_requirements()} == {
        *("click", "numpy", "pandas", "pyarrow", "pyyaml", "rich", "scipy")
    }


@pytest.mark.parametrize("platform", PLATFORMS)
def test_no_platform_has_its_own_libraries_replaced(platform: str) -> None:
    bounds = {need.name: need.specifier for need in base_requirements()}
    assert [name for name, version in PLATFORMS[platform].items() if version not in bounds[name]] == []


def test_the_lowest_versions_that_are_allowed_are_those_tested() -> None:
    allowed = {need.name: re.search(r">=([\d.]+)", str(need.specifier))[1] for need in base_requirements()}  # type: ignore[index]
    # PyArrow 8 has no wheel for Python 3.11, 10.0.1 is the first that has one; on Python 3.10 it passes the same tests.
    assert allowed.pop("pyarrow") == "8"
    tested = pins("lowest")
    assert {name: tested[name] for name, low in allowed.items() if not f"{tested[name]}.".startswith(f"{low}.")} == {}


@pytest.mark.parametrize("name", CHOSEN)
def test_an_installation_adds_the_package_and_nothing_else(name: str, source: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--dry-run", "--no-index", "--no-build-isolation", "--report", str(report)]
    command = [str(python(name)), "-m", "pip", "install", "--quiet", *options, str(source)]
    done = ran(command, tmp_path, os.environ, seconds=120)
    assert done.returncode == 0, done.stderr
    assert [each["metadata"]["name"] for each in json.loads(report.read_text())["install"]] == ["rankmetrics-spark"]


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    built_wheel(folder / "built")
    return folder / "built" / "source"


@pytest.mark.parametrize("name", CHOSEN)
def test_the_suite_passes(name: str, suites: dict[str, Future[None]]) -> None:
    suites[name].result()


@pytest.fixture(scope="module")
def main(spark: SparkSession) -> dict[str, Any]:
    """What the main environment finds, by the road that the others' values take."""
    return json.loads(json.dumps(values.everything(spark)))  # type: ignore[no-any-return]


def test_the_values_are_those_of_the_definitions(main: dict[str, Any]) -> None:
    log = random_log(values.CLICKS_SEED, values.CLICKS_USERS)
    # The oracle knows no gaps in the ranks: it would count each as an item that nobody judged.
    names = [name for name in values.OF_RANKS if name != "judged"]
    wanted = obvious(log, values.named(names, 10), resolve("standard"))
    rows = main["values"]["clicks by position: users"]
    found = {(row["experiment_id"], row["user_id"]): row for row in rows}
    columns = next(iter(wanted.values())).keys() - {"n_relevant"}
    numbers = {
        key: {name: row[name] and float.fromhex(row[name]) for name in columns} | {"n_relevant": row["n_relevant"]}
        for key, row in found.items()
    }
    assert_close(numbers, wanted)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_values_have_the_same_bits(
    name: str, main: dict[str, Any], suites: dict[str, Future[None]], folder: Path
) -> None:
    suites[name].result()
    found = json.loads((folder / f"{name}.json").read_text())
    wanted = pins(name)
    assert found["versions"] == {library: wanted[library] for library in values.LIBRARIES}
    assert found["values"].keys() == main["values"].keys()
    different = {
        (table, column): (mine[column], theirs[column])
        for table in main["values"]
        for mine, theirs in zip(main["values"][table], found["values"][table], strict=True)
        for column in mine
        if not same(mine[column], theirs[column], exactly=not (name == "lowest" and column in INTERVAL))
    }
    assert different == {}
