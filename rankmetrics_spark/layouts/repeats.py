"""Two searches over the rows of a list that need no list of rows: does a relevant item repeat, does a rank repeat?

Both read a few fixed-width aggregates, so that the aggregation stays in generated code. Both may be wrong in one
direction only: a list without a repeat may be flagged, and is then checked again row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankmetrics_spark.schemas import HASH, ITEM, N_ROWS, POSITION, RELEVANCE, TOP

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
    """How the rows of a list become one row, as SQL text: it costs the driver one call, an expression tree dozens.

    Attributes:
        item_hash: Expression for the column ``_hash`` that the aggregates read, per row.
        aggregates: Column -> aggregate that Python reads.
        evidence: Column -> aggregate that only ``flags`` read.
        flags: Column -> condition on the aggregates; ``_flagged`` marks a list that must be computed from its rows.
    """

    item_hash: str
    aggregates: Mapping[str, str]
    evidence: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)


def item_hash(needed: bool, condition: str = "") -> str:
    """SQL for the hash of the item id; hashing strings is expensive, so only for the rows where it is read.

    >>> item_hash(True, "relevance > 0"), item_hash(False)
    ('CASE WHEN relevance > 0 THEN xxhash64(item_id) END', '0L')
    """
    if not needed:
        return NO_HASH
    return f"CASE WHEN {condition} THEN xxhash64({ITEM}) END" if condition else f"xxhash64({ITEM})"


def entry(*columns: str) -> str:
    """SQL for one row of a list as a struct."""
    return f"struct({', '.join(columns)})"


# ---- items

WORDS = 20
"""64-bit words of the search for repeated relevant items."""
_WORDS_OF_A_HASH = 10
_N_RELEVANT_ROWS = "_relevant_rows"


def item_words(relevant: str) -> dict[str, str]:
    """Aggregates of the search: each relevant row sets one bit in each of ``WORDS`` words, chosen by its item's hash.

    ``relevant`` is the condition of a relevant row; the FILTER keeps Spark from touching the buffers for others.
    """
    words = {f"_word_{j}": f"bit_or({_bit(j)}) FILTER (WHERE {relevant})" for j in range(WORDS)}
    return {_N_RELEVANT_ROWS: f"count({HASH})"} | words


def no_item_repeats() -> str:
    """Condition: some word has as many bits as there are relevant rows, so all their items differ.

    A repeat takes a bit from every word, so it is never missed. Without a repeat, a list of n relevant items is
    flagged if no word tells them all apart: one does with probability 64/64 * 63/64 * ... (the birthday problem), and
    words are independent. Averaged over lists of 50 items of which 8 % are relevant, that is one list in 1.5 million.
    """
    bits = f"greatest({', '.join(f'bit_count(_word_{j})' for j in range(WORDS))})"
    return f"({_N_RELEVANT_ROWS} = 0 OR {bits} = {_N_RELEVANT_ROWS})"


def _bit(word: int) -> str:
    """The bit that an item sets in a word: six bits of its hash, or of the hash of that hash."""
    hash_sql = HASH if word < _WORDS_OF_A_HASH else f"xxhash64({HASH})"
    return f"shiftleft(1L, int(shiftright({hash_sql}, {6 * (word % _WORDS_OF_A_HASH)}) & 63))"


# ---- ranks

RANK_AGGREGATES = {
    TOP: f"max({POSITION})",
    "_ranks": f"bit_or({RANK_BIT})",
    "_fingerprint": f"bit_xor(xxhash64({POSITION}))",
}
LONGEST = 100_000
"""Longer lists are always flagged, because their fingerprint takes a loop over 1..n."""
DISTINCT_MASK_RANKS = f"{TOP} <= {MASK_RANKS} AND bit_count(_ranks) = {N_ROWS}"
# If the hashes of n ranks up to n have the same exclusive or as those of 1..n, the ranks are 1..n: every rank must
# occur an odd number of times. Another list passes only if 64-bit hashes collide, which is one list in 2**64.
_IS_1_TO_N = (
    f"{TOP} = {N_ROWS} AND {N_ROWS} <= {LONGEST} AND "
    f"_fingerprint = aggregate(sequence(1L, {N_ROWS}), 0L, (hash, rank) -> hash ^ xxhash64(rank))"
)
RANK_MAY_REPEAT_SQL = f"NOT (({DISTINCT_MASK_RANKS}) OR ({_IS_1_TO_N}))"
"""Condition on ``RANK_AGGREGATES``: the ranks are neither distinct ranks up to ``MASK_RANKS`` nor 1..n."""
