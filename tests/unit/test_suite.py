"""The suite itself: what it needs, that each run tests the same, and that each test is run."""

from __future__ import annotations

import os
import re
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import settings

from tests.conftest import shows
from tests.helpers.commands import ROOT, ran

READER = "def test_reads(shared_data):\n    assert shared_data.is_dir()\n"


def test_generated_examples_are_the_same_in_each_run() -> None:
    assert settings().derandomize


def test_a_test_without_its_reference_data_is_skipped_by_hand_and_fails_where_every_change_is_tested(
    tmp_path: Path,
) -> None:
    # A checkout without a folder of reference data beside it.
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tests / "test_reader.py").write_text(READER)
    (tests.parent / "pytest.ini").write_text("[pytest]\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    by_hand = ran(command, tests.parent, environment | {"CI": ""})
    assert by_hand.returncode == 0 and "1 skipped" in by_hand.stdout, by_hand.stdout
    on_a_change = ran(command, tests.parent, environment | {"CI": "true"})
    assert on_a_change.returncode == 1 and "no reference data at" in on_a_change.stdout, on_a_change.stdout


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


def test_slow_tests_run_in_a_target_of_their_own_on_every_change_and_only_there() -> None:
    assert pytest_runs("test-slow") == ["-n 2 --slow -m slow tests/unit"]
    assert re.search(r"^make test\nmake test-slow\n", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert is_shown({"slow"}, engine="spark", slow=True)
    assert not any(is_shown({"slow"}, **options) for options in ({"engine": "spark"}, {"engine": "sail"}))


def test_make_test_runs_each_test_on_an_engine_and_ci_each_on_spark() -> None:
    two = "-n 2 --dist loadgroup"
    assert pytest_runs("test") == [f"{two} --only-spark", f"{two} --engine sail tests/spark"]
    assert pytest_runs("test-spark") == [f'{two} -m "not program" tests/spark']
    assert pytest_runs("test-programs") == ["tests/spark -m program"]
    for chosen in product([True, False], repeat=len(MARKERS)):
        markers = {marker for marker, is_chosen in zip(MARKERS, chosen, strict=True) if is_chosen}
        of_both = is_shown(markers, only_spark=True), is_shown(markers, engine="sail")
        assert any(of_both) or "program" in markers, markers
        assert is_shown(markers, engine="spark")
