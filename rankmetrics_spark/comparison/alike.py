"""What all rows of a comparison have to share: the convention and, unless it is about a period, the date.

The values of these columns travel to Python with the users, and are noted among the sums: no job more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from rankmetrics_spark.comparison.totals import Key, Totals
from rankmetrics_spark.engines import Batches
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.schemas import CONVENTION_HASH, DATE, EVERYONE

ALIKE = "alike"
"""Kind of the sums of a value of such a column, whose name is the metric of the key, and itself the candidate."""
_PREFIX = "_alike_"
_SEVERAL = {
    CONVENTION_HASH: "the rows of user_metrics follow different conventions, and their values cannot be compared; "
    f"allowed: rows of one {CONVENTION_HASH}",
    DATE: f"user_metrics has rows of several dates; allowed: rows of one {DATE}, or a period, such as "
    "dates=('2026-11-08', '2026-11-21')",
}
"""Column -> what is said where its rows have several values."""


def alike_columns(names: Iterable[str]) -> list[str]:
    """Columns for ``by_user``, as SQL: each value as text. Sail may fail to hash what is the same in every row."""
    return [f"string({name}) AS {_PREFIX}{name}" for name in names]


def noted(batches: Batches, totals: Totals, names: Iterable[str]) -> Batches:
    """The batches, whose distinct values of these columns are added to the sums."""
    for batch in batches:
        for name in names:
            for value in pc.unique(batch.column(f"{_PREFIX}{name}")).to_pylist():
                totals.sums[Key(ALIKE, "", str(value), EVERYONE, name)] = np.ones(1, np.int64)
        yield batch


def refuse_several(totals: Totals) -> None:
    """Refuse rows that have several values of a column that all have to share.

    Raises:
        InputError: Says of which column.
    """
    for name, sentence in _SEVERAL.items():
        if sum(key.kind == ALIKE and key.metric == name for key in totals.sums) > 1:
            raise InputError(sentence)
