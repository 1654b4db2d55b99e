"""How a list travels from the rows of a log to Python: packed in SQL, unpacked in NumPy, the same values either way.

* ``masks``: relevant ranks as bits of a few integers; the cheapest, for ranks up to 63 and small whole grades.
* ``relevant``: the relevant rows; for any grades and any depth.
* ``rows``: every row; for ranking by score and whatever needs items that are not relevant.

``masks`` and ``relevant`` see a list through cheap aggregates and flag lists that they cannot vouch for (a rank or a
grade that does not fit, a rank or an item that may repeat). Flagged lists are looked at again with
``Relevant(recheck=True)``. ``Whole`` needs no second look, for an engine where that costs another pass.
"""

from __future__ import annotations

from typing import Protocol

from rankmetrics_spark.layouts.lists import Arrays, Assembled, Reading
from rankmetrics_spark.layouts.masks import Masks
from rankmetrics_spark.layouts.relevant import Relevant
from rankmetrics_spark.layouts.repeats import Packing
from rankmetrics_spark.layouts.rows import Rows
from rankmetrics_spark.layouts.whole import Whole
from rankmetrics_spark.schemas import Columns

__all__ = [
    "LAYOUTS",
    "RECHECK",
    "Arrays",
    "Assembled",
    "Layout",
    "Masks",
    "Packing",
    "Reading",
    "Relevant",
    "Rows",
    "Whole",
]


class Layout(Protocol):
    """One way in which a list travels; see the modules ``masks``, ``relevant`` and ``rows``."""

    @property
    def name(self) -> str:
        """What options call it."""

    @property
    def arrays(self) -> bool:
        """Whether arrays travel, and not only numbers."""

    @property
    def payload(self) -> tuple[str, ...]:
        """What ``unpack`` reads besides ``_rows``, as SQL."""

    @property
    def all_rows_seen(self) -> str | None:
        """SQL: whether every row of a list was looked at one by one; None where ``unpack`` says it."""

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to one row; ``repeats`` says whether repeated items are looked for."""

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The ranked lists of a batch of packed rows."""


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (Masks(), Relevant(), Rows())}
RECHECK: Layout = Relevant(recheck=True)
