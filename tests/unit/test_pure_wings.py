"""The pure wings import on a machine without Spark."""

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
    "wing", ["config", "errors", "layouts", "metrics", "report.console", "report.html", "schemas", "statistics"]
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


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("import rankmetrics_spark.metrics", "pandas pyarrow scipy pyspark"),
        ("from rankmetrics_spark.statistics import limbs_of", "scipy"),
        ("import rankmetrics_spark.road.scoring, rankmetrics_spark.road.aggregation", "scipy"),
        (
            "import rankmetrics_spark; rankmetrics_spark.evaluate, rankmetrics_spark.Result",
            "rankmetrics_spark.report.figures rankmetrics_spark.report.html rankmetrics_spark.report.story",
        ),
    ],
    ids=["a metric", "a worker that adds up", "a worker that scores lists", "an evaluation"],
)
def test_what_is_not_needed_is_not_loaded(program: str, names: str) -> None:
    if "road" in program or "evaluate" in program:
        pytest.importorskip("pyspark")
    program += f"; import sys; print(*[name for name in sys.modules if name in {names.split()}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
