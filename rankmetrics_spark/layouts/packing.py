"""What a layout asks of SQL: how the rows of one list become the values of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankmetrics_spark.schemas import ITEM, N_ROWS, POSITION, RELEVANCE

COUNT_ROWS = {N_ROWS: "count(1)"}
NO_HASH = "0L"
RELEVANT = f"{RELEVANCE} > 0"
"""Condition of a row that carries relevance or gain."""
MASK_RANKS = 63
"""Ranks that have a bit of their own in a 64-bit integer."""
RANK_BIT = f"CASE WHEN {POSITION} BETWEEN 1 AND {MASK_RANKS} THEN shiftleft(1L, int({POSITION}) - 1) END"
"""The bit of a row's rank; null for a rank that has none."""


@dataclass(frozen=True)
class Packing:
    """SQL text, because one text costs the driver one call and an expression tree dozens.

    Attributes:
        item_hash: Expression for the column ``_hash`` that the aggregates read, per row.
        kept: Column -> aggregate that Python reads.
        seen: Column -> aggregate that only ``doubts`` read.
        doubts: Column -> condition on the aggregates; ``_flagged`` marks a list that has to be looked at again.
    """

    item_hash: str
    kept: Mapping[str, str]
    seen: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)


def item_hash(needed: bool, only_where: str = "") -> str:
    """SQL for the hash of the item id; hashing strings is expensive, so only for the rows where it is read.

    >>> item_hash(True, "relevance > 0"), item_hash(False)
    ('CASE WHEN relevance > 0 THEN xxhash64(item_id) END', '0L')
    """
    if not needed:
        return NO_HASH
    return f"CASE WHEN {only_where} THEN xxhash64({ITEM}) END" if only_where else f"xxhash64({ITEM})"


def entry(*columns: str) -> str:
    """SQL for one row of a list as a struct."""
    return f"struct({', '.join(columns)})"
