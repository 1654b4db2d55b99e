"""Layout ``relevant``: the relevant rows of a list as an array of structs; other rows leave only their count.

With ``recheck`` it takes the second look at lists that a layout has flagged: the relevant rows again, and every row of
a list in which a rank may repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankmetrics_spark.layouts import repeats as search
from rankmetrics_spark.layouts.lists import Arrays, Assembled, Reading, entries_of, ints, no_pool
from rankmetrics_spark.layouts.order import by_position, without_repeats
from rankmetrics_spark.layouts.repeats import COUNT_ROWS, RELEVANT, Packing, entry, item_hash
from rankmetrics_spark.metrics import Batch
from rankmetrics_spark.schemas import (
    ENTRIES,
    FLAGGED,
    HASH,
    N_ROWS,
    POSITION,
    RANK_MAY_REPEAT,
    REJECTED,
    RELEVANCE,
    Columns,
)

NO_ENTRIES = f"cast(array() AS array<struct<{POSITION}: bigint, {HASH}: bigint, {RELEVANCE}: double>>)"
"""SQL: the entries of a list without rows."""


@dataclass(frozen=True)
class Relevant:
    """Relevant rows one by one; see the module.

    Attributes:
        recheck: Take the second look; the rows then have a column ``_rank_may_repeat``.
    """

    recheck: bool = False
    name: ClassVar[str] = "relevant"
    arrays: ClassVar[bool] = True
    payload: ClassVar[tuple[str, ...]] = (ENTRIES,)

    @property
    def all_rows_seen(self) -> str:
        """SQL: whether every row of a list is among the entries."""
        return RANK_MAY_REPEAT if self.recheck else "false"

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to its entries; flags lists in which a rank may repeat."""
        travels = f"{RANK_MAY_REPEAT} OR {RELEVANT}" if self.recheck else RELEVANT
        with_item = columns.item and repeats
        row = entry(POSITION, *([HASH] if with_item else []), f"double({RELEVANCE}) AS {RELEVANCE}")
        entries = {ENTRIES: f"collect_list({row}) FILTER (WHERE {REJECTED} IS NULL AND ({travels}))"}
        hashed = item_hash(with_item, travels)
        if self.recheck:
            return Packing(hashed, COUNT_ROWS | entries | {RANK_MAY_REPEAT: f"max({RANK_MAY_REPEAT})"})
        doubts = dict.fromkeys((FLAGGED, RANK_MAY_REPEAT), search.RANK_MAY_REPEAT_SQL)
        return Packing(hashed, COUNT_ROWS | entries, search.RANK_AGGREGATES, doubts)

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The lists of a batch: ``_rows``, and ``_entries`` of ``position``, ``relevance`` and perhaps ``_hash``."""
        rows = ints(columns[N_ROWS])
        kept, dropped = without_repeats(entries_of(columns), len(rows), reading)
        ranked = by_position(kept)
        ranks = np.asarray(ranked.position, np.int64)
        batch = Batch(len(rows), ranked.list, ranks, ranked.grade, rows - dropped, *no_pool())
        none = np.zeros(len(rows), np.int64)
        return Assembled(batch, dropped, none, ranked.hash if reading.repeats else None)
