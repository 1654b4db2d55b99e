"""Layout ``masks``: the relevant rows of a list as bits of a few 64-bit integers.

Bit r - 1 of plane b is bit b of the grade at rank r. Ranks up to 63 and whole grades up to 7 fit; nothing is collected,
so the aggregation keeps a buffer of fixed width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankmetrics_spark.layouts import repeats as search
from rankmetrics_spark.layouts.lists import Arrays, Assembled, Reading, ints, no_pool
from rankmetrics_spark.layouts.repeats import COUNT_ROWS, RANK_BIT, RELEVANT, Packing, item_hash
from rankmetrics_spark.metrics import Batch
from rankmetrics_spark.schemas import FLAGGED, N_ROWS, RANK_MAY_REPEAT, RELEVANCE, Columns

PLANES = 3
LARGEST_MASKED_GRADE = 2**PLANES - 1
PLANE_COLUMNS = tuple(f"_plane_{b}" for b in range(PLANES))


@dataclass(frozen=True)
class Masks:
    """Relevant rows as bits of integers; see the module for what fits."""

    name: ClassVar[str] = "masks"
    all_rows_seen: ClassVar[str] = "false"
    arrays: ClassVar[bool] = False
    payload: ClassVar[tuple[str, ...]] = tuple(f"coalesce({plane}, 0L) AS {plane}" for plane in PLANE_COLUMNS)
    """Without nulls: pandas would turn a column with a null into doubles and lose bits above 2**53."""

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to its planes; flags lists that do not fit, or in which an item may repeat."""
        seen = search.RANK_AGGREGATES | {"_steepest": f"max({RELEVANCE})"}
        sound = f"{search.EACH_RANK_HAS_ITS_BIT} AND coalesce(_steepest, 0) <= {LARGEST_MASKED_GRADE}"
        if columns.item and repeats:
            seen |= search.item_words(RELEVANT)
            sound += f" AND {search.no_item_repeats()}"
        doubts = {FLAGGED: f"NOT ({sound})", RANK_MAY_REPEAT: search.RANK_MAY_REPEAT_SQL}
        return Packing(item_hash(columns.item and repeats, RELEVANT), COUNT_ROWS | _planes(), seen, doubts)

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The lists of a batch: columns ``_rows`` and one (n,) array of integers per plane."""
        shown = ints(columns[N_ROWS])
        planes = np.stack([ints(columns[plane]) for plane in PLANE_COLUMNS])
        bits = np.unpackbits(np.bitwise_or.reduce(planes, axis=0).astype("<i8").view(np.uint8), bitorder="little")
        row, column = np.divmod(np.flatnonzero(bits.view(np.bool_)), 64)
        grade = sum((planes[b][row] >> column & 1) << b for b in range(PLANES))
        batch = Batch(len(shown), row, column + 1, np.asarray(grade, float), shown, *no_pool())
        none = np.zeros(len(shown), np.int64)
        return Assembled(batch, none, none)


def _planes() -> dict[str, str]:
    """Aggregates: the ranks whose grade has bit b. The FILTER keeps Spark from touching the buffers for other rows."""
    return {
        plane: f"bit_or(CASE WHEN {RELEVANCE} & {1 << b} != 0 THEN {RANK_BIT} END) FILTER (WHERE {RELEVANT})"
        for b, plane in enumerate(PLANE_COLUMNS)
    }
