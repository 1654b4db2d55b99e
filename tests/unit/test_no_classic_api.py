"""The library needs no JVM in its own process and never collects a growing table on the driver.

The tests search the source code for such calls. Each of them fails on Spark Connect, which serverless uses, or fails
there only on larger inputs.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankmetrics_spark
from tests.helpers.messages import json_cases, messages

ROOT = Path(rankmetrics_spark.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

ATTRIBUTES = re.compile(
    r"""_j[a-z]\w* | _sc | sc | rdd | sparkContext | sql_ctx | setJobGroup | statusTracker | accumulator   # the JVM
    | collect | toPandas | toArrow | toLocalIterator                                                 # all rows at once
    | cache | persist | checkpoint | localCheckpoint                                             # refused by serverless
    """,
    re.VERBOSE,
)
MODULE_NAMES = re.compile(
    r"py4j\b|pyspark\.(accumulators|broadcast|conf|context|core|java_gateway|mllib|rdd|streaming|sql\.(classic|context))\b"
)
NAMES = {"Accumulator", "Broadcast", "HiveContext", "RDD", "SQLContext", "SparkConf", "SparkContext", "sc"}
# In Spark 3.5, Connect has its own classes with these names, so a type check fails there.
CLASSES = {"Catalog", "Column", "DataFrame", "GroupedData", "SparkSession", "Window"}


def findings(source: str) -> list[tuple[int, str]]:
    """Return (line, name) of every use of something that only a classic session has."""
    return sorted({(node.lineno, what) for node in ast.walk(ast.parse(source)) for what in _found(node)})


def _found(node: ast.AST) -> Iterator[str]:  # every node that yields something has a lineno
    match node:
        case ast.Attribute(attr=name, value=owner):
            if ATTRIBUTES.fullmatch(name):
                yield name
            # functions.broadcast is a hint to the optimizer; broadcast of a context creates a variable.
            if name == "broadcast" and ast.unparse(owner) not in ("F", "functions"):
                yield name
        case ast.Name(id=name) if name in NAMES:
            yield name
        case ast.Import(names=names):
            yield from (alias.name for alias in names if MODULE_NAMES.match(alias.name))
        case ast.ImportFrom(module=str(module), names=names):
            whole = [f"{module}.{alias.name}" for alias in names]
            yield from (name for name in whole if MODULE_NAMES.match(name) or name.rpartition(".")[2] in NAMES)
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            yield from _classes(kinds)
        case ast.MatchClass(cls=kind):
            yield from _classes(kind)
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[kinds]):
            yield from _classes(kinds)


def _classes(kinds: ast.expr) -> Iterator[str]:
    for node in ast.walk(kinds):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in CLASSES:
            yield f"is it a {name}?"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_uses_nothing_that_spark_connect_lacks(module: Path) -> None:
    allowed = {
        # A table that does not grow with users goes through the one function that says so.
        "sessions.py": ["collect"],
        # `to_pandas` and `to_polars` collect the table that the user names; a lazy frame of polars becomes one.
        "python_tables.py": ["toArrow", "toPandas", "collect"],
        # A program of spark-submit has a JVM beside it with either engine, and only that JVM reaches every stderr.
        "choice.py": ["pyspark.java_gateway.launch_gateway"],
    }
    assert [name for _, name in findings(module.read_text(encoding="utf-8"))] == allowed.get(module.name, [])


@pytest.mark.parametrize(("forbidden", "what"), messages("classic API"))
def test_a_forbidden_use_is_found(forbidden: str, what: str) -> None:
    assert what in {result for _, result in findings(forbidden)}
    assert findings(f"x = 1\n{forbidden}")[0][0] > 1


@pytest.mark.parametrize("allowed", json_cases("an allowed use is not reported"))
def test_an_allowed_use_is_not_reported(allowed: str) -> None:
    assert findings(allowed) == []


def test_every_module_of_the_package_is_checked() -> None:
    assert {"pipeline.py", "ranking.py", "scoring.py", "swapping.py", "terminal.py"} <= {path.name for path in MODULES}
