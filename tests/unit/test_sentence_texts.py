"""The sentences that lie beside the code as texts: each is said somewhere, with a value for each of its fields."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import rankmetrics_spark
from rankmetrics_spark.doors import settings_of

WINGS = sorted(Path(rankmetrics_spark.__file__).parent.glob("*/sentences.properties"))


def calls(wing: Path) -> Iterator[tuple[str, set[str | None]]]:
    """Names of texts, with the names of the values that they are said with."""
    for path in wing.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "said" and node.args:
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno} says no text by its name"
                yield node.args[0].value, {each.arg for each in node.keywords}


@pytest.mark.parametrize("file", WINGS, ids=[path.parent.name for path in WINGS])
def test_each_text_is_said_with_a_value_for_each_of_its_fields_and_no_other(file: Path) -> None:
    texts = settings_of(f"rankmetrics_spark.{file.parent.name}", "sentences")
    fields = {
        name: {str(field).split(".")[0].split("[")[0] for _, field, _, _ in Formatter().parse(text) if field}
        for name, text in texts.items()
    }
    said = [*calls(file.parent)]
    assert {name for name, _ in said} == {*texts}
    assert not [(name, given) for name, given in said if fields[name] - {"UNIT", "UNITS", "WHO"} != given]
    assert sum("=" in line and line[0] != "#" for line in file.read_text("utf-8").splitlines() if line) == len(texts)
