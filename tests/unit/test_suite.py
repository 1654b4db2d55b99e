"""The suite itself: what it needs, that each run tests the same, and that each test is run."""

import os
import re
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from packaging.requirements import Requirement

from rankmetrics_spark.errors import PACKAGES
from tests.conftest import LONG, is_long, shows
from tests.helpers.commands import ROOT, ran
from tests.mutants import is_test

READER = "def test_reads(shared_data):\n    assert shared_data.is_dir()\n"


def test_generated_examples_are_the_same_in_each_run() -> None:
    assert settings().derandomize


@pytest.mark.slow
def test_a_test_without_reference_data_is_skipped_by_hand_and_fails_if_every_change_is_tested(tmp_path: Path) -> None:
    # A checkout without a folder of reference data beside it.
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    for name in ("conftest.py", "long.txt"):
        (tests / name).write_text((ROOT / "tests" / name).read_text())
    (tests / "test_reader.py").write_text(READER)
    (tests.parent / "pytest.ini").write_text("[pytest]\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    for said in ("", "0", "false"):
        by_hand = ran(command, tests.parent, environment | {"CI": said})
        assert by_hand.returncode == 0 and "1 skipped" in by_hand.stdout, by_hand.stdout
    # Systems that run changes do not agree on how they say so.
    for said in ("true", "1", "True"):
        on_a_change = ran(command, tests.parent, environment | {"CI": said})
        assert on_a_change.returncode == 1 and "no reference data at" in on_a_change.stdout, on_a_change.stdout


def test_an_environment_without_its_python_is_made_by_hand_and_fails_if_every_change_is_tested(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "constraints").mkdir()
    (tmp_path / "constraints" / "spark41.txt").touch()
    # It says that it is new enough, and makes nothing.
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    command = ["make", f"PYTHON={python}", "PYTHON_spark41=python3.99", ".venvs/spark41/made"]
    for said, message in (("1", "python3.99 not found, and .venvs/spark41 tests it"),
                          ("0", "python3.99 not found: .venvs/spark41 gets"),
                          ("", "python3.99 not found: .venvs/spark41 gets")):  # fmt: skip
        done = ran(command, tmp_path, os.environ | {"CI": said})
        notes = [line for line in done.stderr.splitlines() if "not found" in line and "python3.99" in line]
        assert done.returncode == 2 and notes[0].strip() == message, done.stderr
        assert len(notes) == 1


def pins(name: str) -> dict[str, str]:
    """Package -> version of a list of pins, for this Python."""
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    expected = [one for one in map(Requirement, lines) if not one.marker or one.marker.evaluate()]
    return {requirement.name: str(requirement.specifier) for requirement in expected}


def test_both_engines_have_the_same_numpy_and_scipy() -> None:
    main = pins("py310" if sys.version_info < (3, 11) else "py311")
    assert {n: pins("laptop")[n] for n in ("numpy", "scipy")} == {n: main[n] for n in ("numpy", "scipy")}


def test_the_laptop_environment_has_the_libraries_of_pages() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in ("laptop", "local"):
        (lines,) = re.findall(rf"^{extra} = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
        assert '"rankmetrics-spark[report]"' in lines


def test_messages_name_packages_that_an_index_has_as_the_extras_do() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra, packages in PACKAGES.items():
        (lines,) = re.findall(rf"^{extra} = \[(.*?)\]$", project.replace("[connect,sql]", "(sql)"), re.M | re.S)
        present = [name.replace("(sql)", "[connect,sql]") for name in re.findall(r'"([^"]+)"', lines)]
        assert [name for name in present if not name.startswith("rankmetrics-spark")] == list(packages)
    # This package is on no index, so no message sends anybody there.
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
               for folder in ("rankmetrics_spark", "docs", "jobs", "conf") for path in (ROOT / folder).rglob("*")
               if path.suffix in (".py", ".md", ".yml", ".yaml")}  # fmt: skip
    sources["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name, text in sources.items() if re.search(r"install ['\"]?rankmetrics[-_]spark", text)] == []


MARKERS = ("both_engines", "classic", "needs_spark", "program")


def pytest_runs(target: str) -> list[str]:
    """The options of each run of pytest of a make target."""
    (recipe,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return re.findall(r"-m pytest (.*)", recipe)


def is_shown(markers: set[str], **options: object) -> bool:
    """Whether a test of tests/spark with these markers is one of a run with these options."""
    config: Any = SimpleNamespace(getoption=options.get)
    item: Any = SimpleNamespace(path=ROOT / "tests" / "spark" / "test_any.py", get_closest_marker=markers.__contains__)
    return shows(config, item)


def test_slow_tests_run_in_a_target_of_their_own_in_the_odd_turns_and_only_there() -> None:
    assert pytest_runs("test-slow") == [run.replace('-m "not long"', "--slow -m slow") for run in pytest_runs("test")]
    assert (ROOT / ".ci" / "run").read_text().count("\n        make test-slow\n") == 1
    assert is_shown({"slow"}, engine="spark", slow=True)
    assert not any(is_shown({"slow"}, **options) for options in ({"engine": "spark"}, {"engine": "sail"}))


def test_make_test_runs_each_test_on_an_engine_and_ci_each_on_spark() -> None:
    two = "-n 2 --dist loadgroup"
    runs = [f"{two} --only-spark{{}}", f"{two} --engine sail tests/spark"]
    assert pytest_runs("test") == [f'{run.format("")} -m "not long"' for run in runs]
    # No test without an engine is long. CI runs both on every change, in even turns those on Spark with the suite.
    assert pytest_runs("test-long") == [f"{run.format(' tests/spark')} -m long" for run in runs]
    ci = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make test\n(.*\n)*make test-long ENGINES=", ci, re.MULTILINE)
    for *of_spark, name in LONG:
        assert of_spark in ([], ["spark"]) and is_test(name), name
        assert is_long(f"{name}[a case]", True) and is_long(name, False) != bool(of_spark), name
    # Slow tests run on the Sparks of test-matrix, and in make test-slow.
    assert pytest_runs("test-spark") == [f'{two} -m "not program" tests/spark']
    assert pytest_runs("test-programs") == ["--slow tests/spark -m program"]
    for chosen in product([True, False], repeat=len(MARKERS)):
        markers = {marker for marker, is_chosen in zip(MARKERS, chosen, strict=True) if is_chosen}
        of_both = is_shown(markers, only_spark=True), is_shown(markers, engine="sail")
        assert any(of_both) or "program" in markers, markers
        assert is_shown(markers, engine="spark")
