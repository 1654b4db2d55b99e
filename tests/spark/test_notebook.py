"""The notebook of the first hour, and the examples that ``help()`` shows: each runs and gives what it says."""

import ast
import doctest
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rankmetrics_spark
from rankmetrics_spark import compare, evaluate, off_policy
from tests.helpers.commands import ROOT

NOTEBOOK = json.loads((ROOT / "docs" / "first_hour.ipynb").read_text(encoding="utf-8"))
EXAMPLES: list[Callable[..., Any]] = [evaluate, compare, off_policy]


def cells(kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == kind]


def test_the_notebook_of_the_first_hour_runs_from_top_to_bottom(spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    shown: list[Any] = []
    for program in cells("code"):
        tree = ast.parse(program)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "a cell", "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "the end of a cell", "eval"), names))
    head, result, means, compared, rates, conventions, again = shown
    assert len(head) == 5
    assert "new beats control" in re.sub("<[^>]+>", "", result._repr_html_())
    assert {*means.experiment_id} == {"control", "new"} and {*means.n_users} == {150}
    assert [*compared.better] == ["candidate", "candidate"]
    assert rates["new"]["no_relevant_rate"] < 0.2
    assert {"standard", "trec_eval"} <= {*conventions.convention}
    (row,) = again.to_dict("records")
    # The same users and the same test: the same difference.
    assert row["difference"] == compared.difference[[*compared.metric].index("ndcg@10")]
    assert 0 < row["ci_low"] < row["difference"] < row["ci_high"] and row["p_value"] < 0.01


def test_the_notebook_is_saved_without_what_a_run_has_shown() -> None:
    of_code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in of_code)
    assert NOTEBOOK["nbformat"] == 4 and len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])


@pytest.mark.parametrize("function", EXAMPLES, ids=lambda function: function.__name__)
def test_the_example_of_help_gives_what_it_shows(spark: SparkSession, function: Callable[..., Any]) -> None:
    examples = doctest.DocTestParser().get_examples(function.__doc__ or "")
    assert len(examples) >= 2
    for example in examples:
        # Without an engine, as in the tests of docstrings, it is skipped.
        example.options.pop(doctest.SKIP, None)
    names = {"math": math, **{name: getattr(rankmetrics_spark, name) for name in rankmetrics_spark.__all__}}
    test = doctest.DocTest(examples, names, function.__name__, None, None, function.__doc__)
    runner = doctest.DocTestRunner(verbose=False)
    message: list[str] = []
    runner.run(test, out=message.append)
    assert not runner.failures, "".join(message)
