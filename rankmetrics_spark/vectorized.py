"""One place where a function over batches becomes a pandas UDF."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

Series = dict[str, Any]
"""Name to an (n,) series; a struct column comes as a frame of n rows."""


def udf(body: Callable[[Series], pd.DataFrame], columns: Mapping[str, Column], schema: T.StructType) -> Column:
    """A struct column that a function over whole Arrow batches computes.

    Args:
        body: Gets each of ``columns`` as an (n,) series, gives a frame of n rows with the columns of ``schema``.
        columns: What the function reads, by the names it knows it by.
        schema: Fields of the struct.
    """
    names = tuple(columns)

    # A closure over plain values, so that it can be shipped to any worker. Spark evaluates these hints, and pandas'
    # Series takes no parameter at run time.
    def call(*series: pd.Series) -> pd.DataFrame:
        return body(dict(zip(names, series, strict=True)))

    made: Any = pandas_udf  # its overloads know no struct results
    return made(call, schema)(*columns.values())  # type: ignore[no-any-return]
