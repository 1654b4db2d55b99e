"""How a list travels from the rows of a log to Python: packed in SQL, unpacked in NumPy, the same values either way.

* ``masks``: relevant ranks as bits of a few integers; the cheapest, for ranks up to 63 and small whole grades.
* ``relevant``: the relevant rows; for any grades and any depth.
* ``rows``: every row; for ranking by score and whatever needs items that are not relevant.

``masks`` and ``relevant`` read a list through cheap aggregates, and flag the lists for which these may be wrong: a rank
or a grade does not fit, a rank or an item may repeat. ``Relevant(recheck=True)`` computes flagged lists from rows.
``Numbers`` is for an engine on which a shared branch costs another pass: it holds every row and flags no list, or is
read once and kept, and only its flagged lists are read again.
"""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
