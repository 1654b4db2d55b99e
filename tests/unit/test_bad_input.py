"""The page about bad input says what the tests say."""

import os
import sys
from pathlib import Path

import pytest

from tests.bad_input import HEAD, PAGE, Line, markdown
from tests.helpers.commands import ROOT, ran, succeeded


@pytest.mark.slow
def test_the_page_is_that_of_the_tests_and_has_at_least_120_cases(tmp_path: Path) -> None:
    pytest.importorskip("markdown_it")  # which a file of tests needs
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    # In a process of its own: pytest cannot collect tests while it runs some.
    succeeded(ran([sys.executable, "-m", "tests.bad_input", tmp_path / "page.md"], ROOT, os.environ))
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page, "run make readme"
    cases = [line for line in page.splitlines() if line.startswith("| ") and line != HEAD]
    assert len(cases) == len(set(cases)) >= 120


def test_a_parametrised_case_is_one_line_with_its_values() -> None:
    cases = [Line("unit/test_bad_input.py", "`a`", "exit 2"), Line("unit/test_bad_input.py", "`a`", "exit 2")]
    assert markdown(cases).count("| `a` | exit 2 | the same |") == 1
    assert "| `a` | exit 2 | works |" in markdown([cases[0]._replace(on_sail="works")])
    assert "## The page about bad input says what the tests say" in markdown(cases)
