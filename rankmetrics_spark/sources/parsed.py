"""Local files that no engine reads: documents of JSON, rows of SVMlight, and lines that an engine would misread."""

import os
import re
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark.config import PARSED_NAMES, ROWS_OF, Input, Source, parsed
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.schemas import EXPERIMENT, quoted
from rankmetrics_spark.sources.files import experiment_in, files_of, load_folders, open_file


def parsed_rows(section: Input) -> pa.Table:
    """Parse the local files of an input here; the values are texts, as in the files."""
    files = [*files_of(*section.paths)]
    if not files:
        raise InputError(f"cannot read {section.format} from '{section.place}': only files of this machine are "
                             f"parsed; allowed: one of them, or {ROWS_OF[section.format]}")  # fmt: skip
    log = section if isinstance(section, Source) else None
    rows: list[tuple[str | None, ...]] = []
    for file in files:
        named = experiment_in(os.path.abspath(file), log) if log and log.experiment_from != "tag" else None
        rows += [(*row, named) for row in parsed(Path(file), section.format, section.options, log is not None)]
    if not rows:
        raise InputError(f"cannot read {section.format} from '{section.place}': no rows; allowed: at least one")
    cells = dict(zip((*PARSED_NAMES.values(), EXPERIMENT), zip(*rows, strict=True), strict=True))
    texts = {name: values for name, values in cells.items() if any(value is not None for value in values)}
    return pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()})


def split_lines(spark: SparkSession, section: Input, separator: str) -> DataFrame:
    """Read fields without names with several characters between them, which Sail's reader of CSV does not take."""
    first = _first_line(section)
    lines = load_folders(spark, section, lambda reader: reader.text([*section.paths])).where(F.trim("value") != "")
    words = F.split(F.regexp_replace("value", "^\ufeff|\r$", ""), re.escape(separator))
    lines = lines.withColumn("value", words)
    cells = [F.expr(f"nullif(get(value, {n}), '')").alias(f"_c{n}") for n in range(first.count(separator) + 1)]
    return lines.select(*cells, *(F.col(quoted(name)) for name in lines.columns if name != "value"))


def without_nameless(rows: DataFrame, section: Input) -> DataFrame:
    """Leave out columns without a name, such as the index of pandas: Spark calls them by number, Sail by nothing."""
    first = _first_line(section)
    numbered = [name for at, name in enumerate(rows.columns) if first and name == f"_c{at}"]
    return rows.drop(*(name for name in numbered if name not in first))


def _first_line(section: Input) -> str:
    """The first line of the first local file, without its end; empty if there is none."""
    for file in files_of(*section.paths):
        with open_file(file) as lines:
            return lines.readline().decode("utf-8", "replace").rstrip("\r\n")
    return ""
