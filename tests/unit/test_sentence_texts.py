"""The sentences that lie beside the code as texts: each is said somewhere, with a value for each of its fields."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import rankmetrics_spark
from rankmetrics_spark import doors, errors as err
from tests.helpers.packages import run_with

PACKAGE = Path(rankmetrics_spark.__file__).parent
FILES = sorted(PACKAGE.rglob("sentences.properties"))
"""Those of the package, which any module says as a refusal or through ``errors``, and those of a folder."""


def calls(folder: Path) -> Iterator[tuple[str, set[str | None]]]:
    """Names of the sentences of a folder, with the names of the values that they are said with."""
    for path in folder.rglob("*.py"):
        text = path.read_text("utf-8")
        plain = "package" if re.search(r"errors import .*\bsaid\b", text) or path.parent == PACKAGE else "folder"
        for node in ast.walk(ast.parse(text)):
            # ``of`` hands the name on that it gets.
            is_said = isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) != "sentence"
            name = ast.unparse(node.func) if is_said else ""
            whose = "package" if name.endswith(("Error.of", "err.said")) else plain
            if name.endswith(("Error.of", "said")) and whose == ("package" if folder == PACKAGE else "folder"):
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno} says no text by its name"
                yield node.args[0].value, {each.arg for each in node.keywords}


@pytest.mark.parametrize("file", FILES, ids=[path.parent.name for path in FILES])
def test_each_text_is_said_with_a_value_for_each_of_its_fields_and_no_other(file: Path) -> None:
    texts = doors.settings_of(".".join(file.parent.relative_to(PACKAGE.parent).parts), "sentences")
    fields = {
        name: {str(field).split(".")[0].split("[")[0] for _, field, _, _ in Formatter().parse(text) if field}
        for name, text in texts.items()
    }
    found = [*calls(file.parent)]
    assert {name for name, _ in found} == {*texts}
    # A call may hand on a mapping of values.
    assert all(given - {None} <= fields[name] for name, given in found)
    of_all = [(name, given) for name, given in found if None not in given]
    assert not [(name, given) for name, given in of_all if fields[name] - {"UNIT", "UNITS", "WHO"} != given]
    assert sum("=" in line and line[0] != "#" for line in file.read_text("utf-8").splitlines() if line) == len(texts)


def test_values_that_are_lists_have_commas_and_no_secret_is_shown() -> None:
    assert err.said("no_master", address="x", masters=("a", "b")).endswith("such as a, b, or sc://HOST:PORT")
    assert "hush" not in str(err.ConfigError.of("no_such_file", unread="s3a://me:hush@b", at="source.path", base=""))


def test_a_new_sentence_is_one_line_of_one_file(tmp_path: Path) -> None:
    first = "# Refusals, notes and causes"
    new = {"sentences.properties": {first: f"too_new={{name}} has {{n:,}} rows\n{first}"}}
    used = "from rankmetrics_spark.errors import said\nassert said('too_new', name='b', n=1_000) == 'b has 1,000 rows'"
    run_with(new, used, tmp_path)
