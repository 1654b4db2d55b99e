"""Functions over whole Arrow batches as columns of a table: one place where Python meets Spark.

``Step`` is for tables in which arrays travel: a pandas UDF would make an object of each array before it could be laid
flat again. Two steps can share one way to Python and back. ``struct_udf`` is for plain numbers; the other columns then
stay in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

from rankmetrics_spark.layouts import Arrays

Computed: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Column -> (n,) array for the n rows of a batch; NaN becomes null."""
Batches: TypeAlias = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """What Python does with the batches of a table.

    Attributes:
        body: Batches to batches. Names of columns must have no dot: ``mapInArrow`` fails at them.
        schema: The columns of the result.
    """

    body: Callable[[Batches], Iterator[pa.RecordBatch]]
    schema: T.StructType

    def of(self, table: DataFrame) -> DataFrame:
        """The step over a table; all of the table's columns go to Python."""
        return table.mapInArrow(self.body, self.schema)

    def then(self, following: Step) -> Step:
        """Both steps on one way to Python and back."""
        return Step(partial(_both, first=self.body, second=following.body), following.schema)


def _both(batches: Batches, first: Callable[..., Any], second: Callable[..., Any]) -> Iterator[pa.RecordBatch]:
    yield from second(first(batches))


def computing(body: Callable[[Arrays], Iterable[Computed]], kept: T.StructType, computed: T.StructType) -> Step:
    """A step that keeps some columns as they are, beside those that ``body`` computes from whole batches.

    Args:
        body: Gets the columns of n rows; each set of columns that it gives makes n rows of the result.
        kept: Columns that come back as they are.
        computed: Columns of ``body``, in its order.
    """
    return Step(partial(_beside, body=body, kept=kept.fieldNames()), T.StructType([*kept.fields, *computed.fields]))


def _beside(
    batches: Batches, body: Callable[[Arrays], Iterable[Computed]], kept: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for found in body(columns):
                arrays = [*(columns[name] for name in kept), *map(_column, found.values())]
                yield pa.RecordBatch.from_arrays(arrays, [*kept, *found])


def _column(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(np.ascontiguousarray(values), from_pandas=True)


def struct_udf(body: Callable[[Arrays], Computed], inputs: Sequence[str], computed: T.StructType) -> Any:
    """A pandas UDF that gives a struct; call it with one column per name in ``inputs``.

    Args:
        body: Gets the columns of a batch by name.
        inputs: Names of the arguments, as ``body`` reads them.
        computed: Fields of the struct: the columns of ``body``, in its order.
    """
    names = tuple(inputs)

    def compute(*columns: pd.Series) -> pd.DataFrame:
        arrays = {name: pa.array(column) for name, column in zip(names, columns, strict=True)}
        return pd.DataFrame(dict(body(arrays)))

    return pandas_udf(compute, computed)  # type: ignore[call-overload]
