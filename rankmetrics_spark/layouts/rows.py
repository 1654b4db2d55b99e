"""Layout ``rows``: every row of a list as an array of structs.

For ranking by score, relevance that is looked up in the judgements, metrics and conventions that read every row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rankmetrics_spark.layouts.judged import looked_up
from rankmetrics_spark.layouts.lists import Arrays, Assembled, Reading, entries_of, field_names, no_pool
from rankmetrics_spark.layouts.order import by_position, by_score, with_tie_groups, without_repeats
from rankmetrics_spark.layouts.repeats import COUNT_ROWS, Packing, entry, item_hash
from rankmetrics_spark.metrics import Batch
from rankmetrics_spark.schemas import ENTRIES, HASH, ITEM, POSITION, REJECTED, RELEVANCE, SCORE, Columns


@dataclass(frozen=True)
class Rows:
    """Every row of a list; see the module for who needs them."""

    name: ClassVar[str] = "rows"
    all_rows_seen: ClassVar[str] = "true"
    arrays: ClassVar[bool] = True
    payload: ClassVar[tuple[str, ...]] = (ENTRIES,)

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to its entries; it vouches for every list."""
        ranked_by = [name for name in (POSITION, SCORE) if getattr(columns, name)]
        # Tied scores are ordered by the item id itself.
        text = [ITEM] if columns.score and columns.item else []
        relevance = [f"double({RELEVANCE}) AS {RELEVANCE}"] if columns.relevance else []
        row = entry(*ranked_by, HASH, *text, *relevance)
        entries = {ENTRIES: f"collect_list({row}) FILTER (WHERE {REJECTED} IS NULL)"}
        return Packing(item_hash(columns.item and (repeats or not columns.relevance)), COUNT_ROWS | entries)

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The lists of a batch: ``_entries``, and the judged items where the entries have no ``relevance``."""
        size = len(columns[ENTRIES])
        entries = entries_of(columns)
        if entries.score is not None and reading.convention.score_precision == 32:
            entries = replace(entries, score=entries.score.astype(np.float32).astype(float), exact=None)
        if RELEVANCE not in field_names(columns):
            entries = replace(entries, grade=looked_up(entries, columns))
        kept, dropped = without_repeats(entries, size, reading)
        shown = np.bincount(kept.list, minlength=size)
        if reading.by_position:
            ranked, n_tied = by_position(kept), np.zeros(size, np.int64)
            rank = np.asarray(ranked.position, np.int64)
        else:
            order, tied = by_score(kept, reading.convention)
            n_tied = np.bincount(kept.list[tied], minlength=size)
            at = np.flatnonzero(kept.grade[order] > 0) if reading.only_relevant else np.arange(len(order))
            ranked = kept.take(order[at])
            rank = at - (np.cumsum(shown) - shown)[ranked.list] + 1
        batch = Batch(size, ranked.list, rank, ranked.grade, shown, *no_pool(), score=ranked.score)
        batch = with_tie_groups(batch, ranked, reading.convention)
        return Assembled(batch, dropped, n_tied, ranked.hash if reading.repeats else None)
