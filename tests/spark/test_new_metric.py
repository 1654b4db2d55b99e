"""A metric that is registered in one module appears everywhere: config, values, averages, table, list of metrics."""

import importlib.util
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from rankmetrics_spark import metrics as mx, run
from rankmetrics_spark.report import Figures, console
from rankmetrics_spark.sinks import read
from tests.helpers.logs import a_list, averages, config, parquet
from tests.metric_table import markdown

MODULE = '''
import numpy as np
from rankmetrics_spark.metrics import metric

@metric(aliases=("wasted",), higher_is_better=False, mean_name="mean waste")
def waste(lists, k: int):
    """Waste: share of the top k that is not relevant."""
    return 1 - lists.hits_at(k) / k
'''


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[None]:
    path = tmp_path / "own_metrics.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("own_metrics", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The executors cannot import this module by name, as with a notebook cell.
    module.__name__ = "__main__"
    source = compile(MODULE, str(path), "exec")
    exec(source, module.__dict__)
    yield
    del mx.REGISTRY["waste"]
    sys.modules.pop("own_metrics", None)


@pytest.mark.usefixtures("registered")
def test_a_metric_registered_in_one_module_is_in_config_output_and_tables(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", [*a_list([0, 1], "u", "worse"), *a_list([1, 1], "u", "better")])
    settings = config(log, tmp_path / "out", metrics="wasted@2, ap@2")
    done = run(spark, settings)
    assert averages(done.experiment_metrics)["worse", "all", "waste@2"] == 1 - 1 / 2
    users = {row["experiment_id"]: row["waste_at_2"] for row in read(spark, f"{done.path}/user_metrics").collect()}
    assert users == {"worse": 1 - 1 / 2, "better": 0}
    assert done.record["config"]["metrics"] == ["waste@2", "ap@2"]
    figures, shown = Figures([row.asDict() for row in done.experiment_metrics.collect()]), StringIO()
    table = console.grid(figures.averages, figures.metrics)
    Console(file=shown, width=120, force_terminal=True, color_system="standard").print(table)
    printed = shown.getvalue()
    assert "mean waste@2" in printed
    # The smallest value is the best, so only this one is bold.
    assert b"\\x1b[1m0.0000\\x1b[0m".decode("unicode_escape") in printed
    assert b"\\x1b[1m0.5000\\x1b[0m".decode("unicode_escape") not in printed
    assert "| `waste@10` | mean waste | 0 to 1 | lower is better |" in markdown()
