"""Names of every column that crosses a module border, in one place."""

from __future__ import annotations

from dataclasses import dataclass

EXPERIMENT = "experiment_id"
USER = "user_id"
ITEM = "item_id"
POSITION = "position"
SCORE = "score"
RELEVANCE = "relevance"

REJECTED = "rejected"
REASON = "reason"
N_ROWS = "n_rows"
FLAGGED = "flagged"
DOUBTFUL = "doubtful"
WHOLE = "whole"
ENTRIES = "entries"

N_LISTS = "n_lists"
N_SHOWN = "n_shown"
N_RELEVANT = "n_relevant"
N_DROPPED = "n_dropped"
N_TIED = "n_tied"
N_UNKNOWN = "n_unknown"

SEGMENT = "segment"
METRIC = "metric"
CONVENTION = "convention"
CONVENTION_HASH = "convention_hash"
DATE = "evaluation_date"
PARTITION = (EXPERIMENT, DATE)
RUN = "run_id"
EVERYONE = "all"

POOL = "pool"
HASH = "hash"


@dataclass(frozen=True)
class Columns:
    """What the impressions hold, under their canonical names.

    Attributes:
        list: Extra key columns that tell a user's lists apart.
        segments: Columns whose values split the averages.
        item: Whether item ids are there.
        position: Whether a rank column is there.
        score: Whether a score column is there.
        relevance: Whether the impressions carry their own relevance.
    """

    list: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    item: bool = True
    position: bool = True
    score: bool = False
    relevance: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of one ranked list."""
        return (EXPERIMENT, USER, *self.list)

    @property
    def values(self) -> tuple[str, ...]:
        """The canonical value columns that are there."""
        has = {ITEM: self.item, POSITION: self.position, SCORE: self.score, RELEVANCE: self.relevance}
        return tuple(name for name, there in has.items() if there)


def quoted(name: str) -> str:
    """A column name, with a dot or a space in it perhaps, as SQL wants it."""
    return "`" + name.replace("`", "``") + "`"
