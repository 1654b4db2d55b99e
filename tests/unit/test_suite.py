"""The suite itself: what it needs, and that each run tests the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

from tests.commands import ROOT, ran

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
