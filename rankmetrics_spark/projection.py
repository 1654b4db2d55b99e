"""Many columns in one call: the driver pays for each call to Spark, not for the length of a text."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def projected(table: DataFrame, *columns: str) -> DataFrame:
    """Select SQL expressions, each a name or ``... AS name``; the optimizer takes the struct out again."""
    return table.select(F.expr(f"struct({', '.join(columns)}) AS _")).select("_.*")


def quoted(name: str) -> str:
    """A column name, with a dot or a space in it perhaps, as SQL wants it."""
    return "`" + name.replace("`", "``") + "`"
