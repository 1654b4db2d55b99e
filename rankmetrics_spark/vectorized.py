"""One place where functions over whole Arrow batches become columns of a table.

Not pandas UDFs: those would make an object of each list before it could be laid flat again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.schemas import quoted

_CARRIED = "carried_"

Body: TypeAlias = Callable[[Arrays], Mapping[str, npt.NDArray[Any]]]
"""Columns of a batch to what it computes: (n,) per column, or (n, k) for a column of arrays; NaN becomes null."""
Batches: TypeAlias = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """What Python does with the batches of a table.

    Attributes:
        body: Batches to batches.
        schema: Their columns.
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


def carried(kept: Iterable[str]) -> list[str]:
    """The columns to keep as a ``step`` wants them, as SQL: ``mapInArrow`` fails at a name with a dot in it."""
    return [f"{quoted(name)} AS {_CARRIED}{i}" for i, name in enumerate(kept)]


def step(body: Body, kept: Mapping[str, T.DataType], computed: T.StructType) -> Step:
    """Some columns as they are, and those that ``body`` computes from whole batches.

    Args:
        body: Gets and gives arrays by name.
        kept: Columns that come back as they are; the table has them as ``carried``.
        computed: Columns of ``body``, in its order.
    """
    fields = [*(T.StructField(name, kind) for name, kind in kept.items()), *computed.fields]
    return Step(partial(_beside, body=body, kept=tuple(kept)), T.StructType(fields))


def nothing(columns: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The body of a step that only keeps columns."""
    return {}


def _beside(batches: Batches, body: Body, kept: Sequence[str]) -> Iterator[pa.RecordBatch]:
    renamed = {f"{_CARRIED}{i}": name for i, name in enumerate(kept)}
    for batch in batches:
        if batch.num_rows:
            names = (renamed.get(name, name) for name in batch.schema.names)
            columns = dict(zip(names, batch.columns, strict=True))
            found = body(columns)
            arrays = [*(columns[name] for name in kept), *map(_column, found.values())]
            yield pa.RecordBatch.from_arrays(arrays, [*kept, *found])


def _column(values: npt.NDArray[Any]) -> pa.Array:
    flat = pa.array(values.reshape(-1), from_pandas=True)
    if values.ndim == 1:
        return flat
    n, k = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * np.int32(k)), flat)
