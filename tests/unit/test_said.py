"""The sentences of ``sentences.json``: each is raised or said, with the values that it has places for."""

import ast
import json
import re
from pathlib import Path
from string import Formatter

import rankmetrics_spark
from rankmetrics_spark.errors import ConfigError, said

PACKAGE = Path(rankmetrics_spark.__file__).parent
SENTENCES = json.loads((PACKAGE / "sentences.json").read_text(encoding="utf-8"))


def raised() -> dict[str, list[set[str]]]:
    """Name of a sentence -> the values of each call that makes it."""
    calls: dict[str, list[set[str]]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        # The others say the sentences of their own folder.
        own = ("said",) if re.search(r"errors import .*\bsaid\b", text) else ()
        for node in ast.walk(ast.parse(text)) if ".of(" in text or "said(" in text else ():
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name.endswith(("Error.of", "err.said", *own)) and node.args and isinstance(node.args[0], ast.Constant):
                calls.setdefault(node.args[0].value, []).append({value.arg for value in node.keywords})
    return calls


def test_each_sentence_is_said_with_the_values_that_it_has_places_for():
    fields = {
        name: {field.partition(".")[0] for _, field, _, _ in Formatter().parse(sentence) if field}
        for name, sentence in SENTENCES.items()
    }
    called = raised()
    assert called.keys() == fields.keys()
    for name, calls in called.items():
        # A call may hand on a mapping of values.
        assert all(values - {None} <= fields[name] for values in calls), name
        assert all(values == fields[name] for values in calls if None not in values), name


def test_values_that_are_lists_have_commas_and_no_secret_is_shown():
    assert said("no_master", address="x", masters=("a", "b")).endswith("such as a, b, or sc://HOST:PORT")
    assert "hush" not in str(ConfigError.of("no_such_file", unread="s3a://me:hush@b", at="source.path", base=""))
