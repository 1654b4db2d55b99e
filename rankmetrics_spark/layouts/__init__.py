"""How a list travels from the rows of a log to Python: packed in SQL, unpacked in NumPy, the same values either way.

* ``masks``: relevant ranks as bits of a few integers; the cheapest, for ranks up to 63 and small whole grades.
* ``relevant``: the relevant rows; for any grades and any depth.
* ``rows``: every row; for ranking by score and whatever needs items that are not relevant.

``masks`` and ``relevant`` read a list through cheap aggregates, and flag the lists for which these may be wrong: a rank
or a grade does not fit, a rank or an item may repeat. ``Relevant(recheck=True)`` computes flagged lists from rows.
``Numbers`` is for an engine on which a shared branch costs another pass: it holds every row and flags no list, or is
read once and kept, and only its flagged lists are read again.
"""

from __future__ import annotations

from rankmetrics_spark.layouts.lists import (
    Arrays,
    Entries,
    Layout,
    Packing,
    Reading,
    by_position,
    by_score,
    entries_of,
    flat,
    ints,
    without_repeats,
)
from rankmetrics_spark.layouts.packings import (
    GRADES,
    HASHES,
    LARGEST_MASKED_GRADE,
    LAYOUTS,
    MASK_RANKS,
    NO_ENTRIES,
    RANKS,
    SETS,
    Numbers,
    Relevant,
    Rows,
    entry,
    item_words,
    no_item_repeats,
    no_pool,
    rank_may_repeat,
    recheck_of,
)
from rankmetrics_spark.layouts.scores import COUNTS, Scoring, judged_grades, n_unknown, score_batch, top_items

__all__ = [
    "COUNTS",
    "GRADES",
    "HASHES",
    "LARGEST_MASKED_GRADE",
    "LAYOUTS",
    "MASK_RANKS",
    "NO_ENTRIES",
    "RANKS",
    "SETS",
    "Arrays",
    "Entries",
    "Layout",
    "Numbers",
    "Packing",
    "Reading",
    "Relevant",
    "Rows",
    "Scoring",
    "by_position",
    "by_score",
    "entries_of",
    "entry",
    "flat",
    "ints",
    "item_words",
    "judged_grades",
    "n_unknown",
    "no_item_repeats",
    "no_pool",
    "rank_may_repeat",
    "recheck_of",
    "score_batch",
    "top_items",
    "without_repeats",
]
