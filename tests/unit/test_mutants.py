"""The planted bugs fit the code, and only a test that fails catches one."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.helpers.messages import json_cases
from tests.mutants import ROOT, Copy, Mutant, mutants

ENTRY = """\
- name: the answer is wrong
  file: tests/mutants/__init__.py
  old: {old}
  new: {new}
  tests: [{test}]
"""
TEST = "tests/unit/test_mutants.py::test_every_planted_bug_fits_the_code"
OLD = "A test that takes longer has caught nothing."
"""Occurs once there."""


def test_every_planted_bug_fits_the_code() -> None:
    assert mutants()


def test_every_copy_of_a_digest_fits_the_code() -> None:
    copies = yaml.safe_load((ROOT / "tests" / "benchmarks" / "digests.yaml").read_text())
    texts = [(ROOT / "rankmetrics_spark" / each["file"]).read_text() for each in copies]
    assert [text.count(each["old"]) for text, each in zip(texts, copies, strict=True)] == [1] * len(copies)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("ruff"), reason="ruff is not installed here")
def test_no_planted_bug_names_what_does_not_exist(tmp_path: Path) -> None:
    """Any test fails on an unknown name, so such a bug would be caught whatever the test looks at."""
    planted = {f"m{i}.py": mutant for i, mutant in enumerate(mutants()) if mutant.file.endswith(".py")}
    for name, mutant in planted.items():
        (tmp_path / name).write_text(mutant.planted((ROOT / mutant.file).read_text()))
    command = (sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821,F823", "--output-format=json")
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    found = {str(planted[Path(entry["filename"]).name]): entry["message"] for entry in json.loads(done.stdout)}
    assert len(planted) > 500 and found == {}


@pytest.mark.parametrize(("entry", "sentence"), json_cases("entries that do not fit"))
def test_an_entry_that_does_not_fit_is_refused(tmp_path: Path, entry: dict[str, str], sentence: str) -> None:
    fitting = {"old": OLD, "new": "Nothing", "test": TEST}
    (tmp_path / "area.yaml").write_text(ENTRY.format_map(fitting))
    assert [str(mutant) for mutant in mutants(tmp_path)] == ["area: the answer is wrong"]
    (tmp_path / "area.yaml").write_text(ENTRY.format_map(fitting | entry))
    with pytest.raises(ValueError, match="area: the answer is wrong: ") as error:
        mutants(tmp_path)
    assert sentence in str(error.value)


@pytest.mark.slow
def test_only_a_test_that_fails_catches_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project = tmp_path / "a project"
    (project / "tests").mkdir(parents=True)
    option = "def pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')\n"
    (project / "tests" / "conftest.py").write_text(option)
    (project / "answers.py").write_text('def answer():\n    """\n    >>> answer()\n    42\n    """\n    return 42\n')
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--doctest-modules'\n")
    (project / "tests" / "test_answers.py").write_text(
        "import os\nimport pytest\nfrom answers import answer\n\n"
        "def test_value():\n    assert answer() == 42\n\n"
        "def test_kind():\n    assert answer() is not None\n\n"
        "@pytest.mark.skip\ndef test_later():\n    assert answer() == 42\n\n"
        "def test_data():\n    assert os.environ.get('CI') != 'true'\n"
    )
    copy = Copy(tmp_path / "a copy", project)

    def catches(old: str, new: str, test: str) -> bool:
        """Whether one test of the project catches a bug in its answer."""
        bug = Mutant("area", "name", "answers.py", old, new, (f"tests/test_answers.py{test}",))
        return copy.catches(bug)[0]

    changed = ("    return 42", "    return 43")
    assert catches(*changed, "")
    assert not catches(*changed, "::test_kind")
    assert not catches(*changed, "::test_later")
    # The data of other systems are not beside the copy: their tests are skipped there, not failed.
    assert copy.run(("tests/test_answers.py::test_data",), "none")[0] == pytest.ExitCode.OK
    # A doctest knows no option of tests/conftest.py.
    assert copy.catches(Mutant("area", "name", "answers.py", *changed, ("answers.py",)))[0]
    # The module cannot be imported, so no test runs.
    assert not catches("def answer", "def answers", "::test_value")
    # The copy is sound again, and the project was never touched.
    assert "42" in (copy.root / "answers.py").read_text() and "42" in (project / "answers.py").read_text()
