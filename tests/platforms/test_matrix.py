"""The suite passes with old and new versions of Python, Spark and the libraries, and all compute the same values.

``constraints/<name>.txt`` lists all packages of an environment, except the main one. Each environment runs all of
tests/spark, except four files that add rows and commands but use no more of Spark: the real data sets, the demo, the
runs of a period and the plans of a test; each of these runs on one older Spark. What does not start Spark runs once on
each Python: with the oldest libraries on 3.10 (``lowest``), on 3.12 and 3.13
(``spark41``, ``spark42``), and on 3.11 in the main environment. The environments that CORE names run a few of the
files. The tests against other libraries (test_peers.py) run only in the main environment, which has these libraries, as
do simulations.

The environments have their Spark with the libraries of a Databricks runtime where there is one: spark41 those of 18.2,
spark42 those of 19. ``lowest`` has the lower bounds of the package.
"""

import json
import math
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pyspark.sql import SparkSession

from tests.helpers.commands import ROOT, ran, succeeded
from tests.platforms import support, values

ELSEWHERE = ("peers", "promises_simulated", "compared", "regressions", "sizing")
MORE_LIBRARIES = ("laptop_port", "paper", "doors")
"""Tests that import the laptop engine, a parser of Markdown or Altair, which the oldest libraries do not bring."""
SIMULATIONS = ("hard_data_simulated",)
"""Errors and coverage in numbers, which no version of Spark changes: ``make test-slow`` runs them."""
MORE_ROWS = ("real_data", "demo_run", "period_runs", "plan_ahead")


def _without(folder: str, names: Iterable[str]) -> list[str]:
    """A folder of tests, without some of its files."""
    return [folder, *(f"--ignore={folder}/test_{name}.py" for name in names)]


def _suite(*more_rows: str, unit: list[str] | None = None) -> list[str]:
    """What an environment runs: tests of Spark, with some of MORE_ROWS, and perhaps those that start none."""
    return [*(unit or ()), *_without("tests/spark", [*SIMULATIONS, *(n for n in MORE_ROWS if n not in more_rows)])]


UNIT = ["rankmetrics_spark", *_without("tests/unit", ELSEWHERE)]
OLDEST = ["rankmetrics_spark", *_without("tests/unit", ELSEWHERE + MORE_LIBRARIES)]
SUITES = {
    "spark35": _suite(),
    "spark40": _suite("demo_run", "period_runs"),
    "spark41": _suite("real_data", unit=UNIT),
    "spark42": _suite(unit=UNIT),
    "lowest": _suite("plan_ahead", unit=OLDEST),
}
# What differs most between two versions of Spark: reading, checking, collecting and writing.
CORE = [f"tests/spark/test_{name}.py" for name in ("sources", "quality", "layouts", "output")]
SUITES |= dict.fromkeys(os.environ.get("CORE", "").split(), CORE)
# All environments, or those that MATRIX names.
CHOSEN = os.environ.get("MATRIX", " ".join(SUITES)).split()

RUNTIMES = ROOT / "docs" / "platforms.md"

# NumPy's exp, log and power may differ in the last bits between two versions of NumPy.
TOLERANCE = 1e-12
# SciPy computes the quantile of Student's t. SciPy 1.10 used another algorithm, which agrees to nine digits.
INTERVAL = ("ci_low", "ci_high")


def tolerance(environment: str, column: str, row: Mapping[str, Any]) -> dict[str, float]:
    """The tolerance of ``math.isclose`` for the double in a column of a row.

    A bound of an interval is the mean less or plus a quantile times the error, so it is the half width that agrees.
    SciPy before 1.17 takes quantiles of t from another library: for one degree of freedom and 95 %, SciPy 1.15.3 gives
    12.7062047364, where tan(0.475 pi) is 12.7062047362.
    """
    of_quantile = 1e-8 if environment == "lowest" else 1e-10 if _scipy(environment) < (1, 17) else TOLERANCE
    if of_quantile > TOLERANCE and column in INTERVAL and row[column] is not None:
        return {"rel_tol": TOLERANCE, "abs_tol": of_quantile * abs(row["mean"] - row[column])}
    return {"rel_tol": TOLERANCE, "abs_tol": TOLERANCE}


def _scipy(environment: str) -> tuple[int, ...]:
    return tuple(map(int, pins(environment)["scipy"].split(".")[:2]))


def same(mine: Any, theirs: Any, allowed: dict[str, float]) -> bool:
    """Whether two doubles agree within the tolerance; values of any other type must be equal."""
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, **allowed)
    return type(mine) is type(theirs) and bool(mine == theirs)


def python(name: str) -> Path:
    return ROOT / ".venvs" / name / "bin" / "python"


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    return {library.lower(): version for library, version in (line.split("==") for line in lines)}


def base_requirements() -> list[Requirement]:
    # Search only site-packages: metadata of an earlier build may lie beside the sources and would come first.
    installed = sysconfig.get_path("purelib")
    (package,) = Distribution.discover(name="rankmetrics-spark", path=[installed])
    return [need for need in map(Requirement, package.requires or ()) if need.marker is None]


def run_suite(name: str, folder: Path) -> None:
    """Run the tests of one environment; they write ``folder/name.json``."""
    # Drop the variables that this process has set for its own Spark.
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("SPARK", "PYSPARK", "PYTHONPATH"))}
    command = [str(python(name)), "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup"]
    command += ["--compiled", "--slow", "tests/platforms/values.py"]
    environment = kept | {"VALUES": str(folder / f"{name}.json")}
    running = support.Running.start([*command, *SUITES[name]], folder / f"{name}.log", environment, ROOT)
    try:
        code = running.process.wait(3000)
    finally:
        running.stop()
    assert code == 0, running.text()[-8000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module")
def suites(folder: Path) -> Iterator[dict[str, Future[None]]]:
    """Start all suites, one after the other: each has two processes."""
    with ThreadPoolExecutor(1) as pool:
        yield {name: pool.submit(run_suite, name, folder) for name in CHOSEN}
        pool.shutdown(cancel_futures=True)


def test_the_base_dependencies_do_not_include_spark() -> None:
    assert {need.name for need in base_requirements()} == {
        *("click", "numpy", "pandas", "pyarrow", "pyyaml", "rich", "scipy")
    }


def runtimes() -> dict[str, dict[str, str]]:
    """Runtime -> library, or Python, -> its version, of those that docs/platforms.md lists."""
    table = re.search(r"<!-- runtimes:.*?-->\n(.*?)<!-- /runtimes -->", RUNTIMES.read_text(encoding="utf-8"), re.DOTALL)
    assert table
    names, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines())
    rows = [dict(zip([name.lower() for name in names], line, strict=True)) for line in lines]
    return {row.pop("runtime"): {name: version for name, version in row.items() if version != "-"} for row in rows}


def test_the_table_names_every_runtime_and_library() -> None:
    result = runtimes()
    lts = {f"{version} LTS" for version in ("14.3", "15.4", "16.4", "17.3")}
    assert {*lts, "18.0", "19", "serverless 1", "serverless 5"} <= result.keys()
    named = set().union(*result.values())
    assert {need.name for need in base_requirements()} | {"python", "spark"} == named
    assert all({"python", "numpy", "pandas", "pyarrow", "scipy", "click"} <= found.keys() for found in result.values())


def test_an_installation_replaces_nothing_on_a_runtime() -> None:
    # An upgrade would affect what else runs there.
    bounds = {need.name: need.specifier for need in base_requirements()}
    result = {
        (runtime, name)
        for runtime, libraries in runtimes().items()
        for name, version in libraries.items()
        if name in bounds and version not in bounds[name]
    }
    assert result == set()


def test_every_runtime_has_an_allowed_python_and_spark() -> None:
    (package,) = Distribution.discover(name="rankmetrics-spark", path=[sysconfig.get_path("purelib")])
    allowed = SpecifierSet(package.metadata["Requires-Python"])
    assert [name for name, libraries in runtimes().items() if libraries["python"] not in allowed] == []
    tested = {".".join(pins(name)["pyspark"].split(".")[:2]) for name in (*SUITES, "py311")}
    assert {libraries["spark"] for libraries in runtimes().values() if "spark" in libraries} <= tested


def test_the_lowest_allowed_versions_are_tested() -> None:
    allowed = {need.name: re.search(r">=([\d.]+)", str(need.specifier))[1] for need in base_requirements()}  # type: ignore[index]
    tested = pins("lowest")
    assert {name: tested[name] for name, low in allowed.items() if not f"{tested[name]}.".startswith(f"{low}.")} == {}


@pytest.mark.parametrize("name", CHOSEN)
def test_an_installation_adds_only_the_package(name: str, source: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--dry-run", "--no-index", "--no-build-isolation", "--report", str(report)]
    command = [str(python(name)), "-m", "pip", "install", "--quiet", *options, str(source)]
    succeeded(ran(command, tmp_path, os.environ, seconds=120))
    assert [each["metadata"]["name"] for each in json.loads(report.read_text())["install"]] == ["rankmetrics-spark"]


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    support.built_wheel(folder / "built")
    return folder / "built" / "source"


@pytest.mark.parametrize("name", CHOSEN)
def test_the_suite_passes(name: str, suites: dict[str, Future[None]]) -> None:
    suites[name].result()


@pytest.fixture(scope="module")
def main(spark: SparkSession) -> dict[str, Any]:
    """The values of the main environment, after the same JSON conversion as those of the other environments."""
    return json.loads(json.dumps(values.everything(spark)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CHOSEN)
def test_the_values_agree_with_those_of_the_main_environment(
    name: str, main: dict[str, Any], suites: dict[str, Future[None]], folder: Path
) -> None:
    suites[name].result()
    result = json.loads((folder / f"{name}.json").read_text())
    expected = pins(name)
    assert result["versions"] == {library: expected[library] for library in values.LIBRARIES}
    assert result["values"].keys() == main["values"].keys()
    different = {
        (table, column): (mine[column], theirs[column])
        for table in main["values"]
        for mine, theirs in zip(main["values"][table], result["values"][table], strict=True)
        for column in mine
        if not same(mine[column], theirs[column], tolerance(name, column, mine))
    }
    assert different == {}
