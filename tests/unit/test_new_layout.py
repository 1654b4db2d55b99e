"""A layout that users can name is one class and one word of the options; all else finds it there."""

from pathlib import Path
from typing import get_args

from rankmetrics_spark import config as cfg, layouts as lay
from tests.helpers.packages import Changes, run_with

NEW: Changes = {
    "config/options.py": {'Literal["auto", "masks", ': 'Literal["auto", "every", "masks", '},
    "layouts/packings.py": {
        "#: The layouts that": 'class Every(Rows):\n    name: ClassVar[str] = "every"\n\n\n#: The layouts that',
        "(Masks(), Relevant(), Rows())}": "(Every(), Masks(), Relevant(), Rows())}",
    },
}
USED = """
import rankmetrics_spark, sys
from pyspark.sql import types as T
from rankmetrics_spark.config import Options
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.layouts import LAYOUTS
from rankmetrics_spark.road import make_plan
from tests.unit.test_options import hold

assert rankmetrics_spark.__file__.startswith(sys.argv[1])
hold("evaluate")
schema = T.StructType(
    [T.StructField(name, T.StringType()) for name in ("experiment_id", "user_id", "item_id")]
    + [T.StructField(name, T.IntegerType()) for name in ("position", "relevance")]
)
assert make_plan(Options(layout="every"), schema).layout is LAYOUTS["every"]
assert make_plan(Options(layout="every"), schema).on("sail", schema).layout is LAYOUTS["every"]
assert make_plan(Options(), schema).layout is LAYOUTS["masks"]
try:
    Options(layout="each")
except ConfigError as error:
    assert str(error) == "layout: unknown value 'each'; known: auto, every, masks, relevant, rows", error
else:
    raise AssertionError("each")
"""


def test_a_new_layout_touches_two_files(tmp_path: Path) -> None:
    assert len(NEW) == 2
    run_with(NEW, USED, tmp_path)


def test_the_options_name_every_layout() -> None:
    assert set(get_args(cfg.LayoutName)) == {"auto", *lay.LAYOUTS}
