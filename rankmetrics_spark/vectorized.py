"""One place where a function over batches becomes a pandas UDF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf


def udf(function: Callable[..., pd.DataFrame], schema: T.StructType) -> Callable[..., Column]:
    """A scalar pandas UDF from (n,) columns to a struct of (n,) columns.

    ``function`` must be annotated with plain ``pd.Series``: Spark evaluates the hints, and pandas' Series takes no
    parameter at run time.
    """
    made: Any = pandas_udf  # its overloads know no struct results
    return made(function, schema)  # type: ignore[no-any-return]
