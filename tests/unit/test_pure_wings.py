"""The pure wings import on a machine without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_SPARK = """
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, NoSpark())
import rankmetrics_spark.WING
"""


@pytest.mark.parametrize(
    "wing",
    [
        "config",
        "errors",
        "layouts",
        "metrics",
        "report.console",
        "report.html",
        "schemas",
        "statistics",
    ],
)
def test_a_wing_imports_without_spark(wing: str) -> None:
    program = WITHOUT_SPARK.replace("WING", wing)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_imports_without_the_libraries_of_a_page() -> None:
    names = '"altair", "jinja2", "vl_convert"'
    program = WITHOUT_SPARK.replace('"pyspark", "py4j"', names).replace("WING", "cli")
    program += "from rankmetrics_spark.report import as_html, has_page_libraries, print_result, summary, write_page"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_worker_that_scores_lists_loads_no_scipy() -> None:
    pytest.importorskip("pyspark")
    program = (
        "import sys, rankmetrics_spark.road.scoring, rankmetrics_spark.road.aggregation; print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_metrics_import_numpy_and_nothing_else_of_what_is_installed() -> None:
    program = (
        "import sys, rankmetrics_spark.metrics; print(*{'pandas', 'pyarrow', 'scipy', 'pyspark'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_evaluation_loads_no_module_of_the_report() -> None:
    pytest.importorskip("pyspark")
    program = (
        "import sys, rankmetrics_spark; rankmetrics_spark.evaluate, rankmetrics_spark.Result; "
        "print([name for name in sys.modules if name.startswith('rankmetrics_spark.report')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
