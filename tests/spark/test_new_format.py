"""A format of inputs is one entry of the config and one reader; a run on each engine reads it like any other."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import errors as err, run, sources
from rankmetrics_spark.config import FORMATS, Format, Input, from_mapping
from tests.helpers.logs import averages

LINES = """\
a|u|i1|1|0
a|u|i2|2|1
b|u|i1|1|1
b|u|i2|x|1
"""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(FORMATS, "piped", Format(("source",), on_sail=True, is_text=True))

    @sources.source("piped")
    def piped(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
        names = ("experiment_id", "user_id", "item_id", "position", "relevance")
        types = ", ".join(f"{name} string" for name in names)
        return spark.read.schema(types).csv(list(section.path or ()), sep="|")

    yield
    del sources._READERS["piped"]


@pytest.mark.usefixtures("registered")
def test_a_registered_format_is_read_by_a_run(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "lines.txt").write_text(LINES)
    inputs = {"source": {"path": str(tmp_path / "log"), "format": "piped"}, "sink": {"path": str(tmp_path / "out")}}
    done = run(spark, from_mapping({**inputs, "metrics": "ap@2", "quality": {"max_invalid_fraction": 0.5}}))
    means = averages(done.experiment_metrics)
    assert (means["a", "all", "ap@2"], means["b", "all", "ap@2"]) == (1 / 2, 1)
    assert done.record["rows"] == {"in": 4, "evaluated": 3, "quarantined": 1}
    assert done.record["inputs"]["source"]["format"] == "piped"
    with pytest.raises(err.ConfigError, match=r"judgements\.format: unknown value 'piped'"):
        from_mapping({**inputs, "judgements": {"path": "truth", "format": "piped"}})


def test_each_format_has_one_entry_and_one_reader() -> None:
    assert sources._READERS.keys() == FORMATS.keys()
