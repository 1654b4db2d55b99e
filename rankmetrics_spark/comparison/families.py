"""Families of comparisons: which rows are corrected together, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.comparison.totals import Ints, Key
from rankmetrics_spark.schemas import EVERYONE, GUARDRAIL, PRIMARY, SECONDARY, segment_columns
from rankmetrics_spark.statistics import (
    Estimate,
    Floats,
    adjusted_p_values,
    strictest_level,
    tukey_levels,
    tukey_p_values,
)

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Rules

Bools = npt.NDArray[np.bool_]
FAMILIES = {PRIMARY: "primary metrics", GUARDRAIL: "guardrails", SECONDARY: "secondary metrics"}
"""Role of a metric -> the family of its comparisons of all users."""
TUKEY = "tukey"
"""Correction for all pairs: that of Tukey over the experiments, and of Bonferroni over metrics and segments."""


@dataclass(frozen=True)
class Families:
    """The rows of comparisons, and how their p-values are corrected.

    Attributes:
        keys: One per row.
        roles: (g,) ``primary``, ``guardrail`` or ``secondary``, by the metric of the row.
        rules: How rows are made.
        deciding: The tests that are corrected.
    """

    keys: Sequence[Key]
    roles: Sequence[str]
    rules: Rules
    deciding: Estimate

    @cached_property
    def names(self) -> list[str]:
        """(g,) rows of one name are corrected together."""
        if self.rules.one_family:
            return ["all"] * len(self.keys)
        names = [
            FAMILIES[role] if key.segment == EVERYONE else f"segments of {segment_columns(key.segment)}"
            for key, role in zip(self.keys, self.roles, strict=True)
        ]
        if self.rules.primary_share is None:
            return names
        return [name if name == FAMILIES[PRIMARY] else "all but primary" for name in names]

    @cached_property
    def p_adjusted(self) -> Floats:
        """(g,) p-values that are corrected over their family."""
        adjusted = np.full(len(self.keys), np.nan)
        for rows, share in self._rows:
            if self.rules.correction == TUKEY:
                groups = [*self._groups(rows)]
                for group, k in groups:
                    p = tukey_p_values(self.deciding.p_value[group], self.deciding.df[group], k)
                    adjusted[group] = np.minimum(p * len(groups) / share, 1)
            else:
                p = adjusted_p_values(self.deciding.p_value[rows], self.rules.correction)
                adjusted[rows] = np.minimum(p / share, 1)
        return adjusted

    @cached_property
    def n_tested(self) -> Ints:
        """(g,) how many rows of the family have a p-value."""
        n = np.zeros(len(self.keys), np.int64)
        for rows, _ in self._rows:
            n[rows] = np.count_nonzero(self._tested & rows)
        return n

    @cached_property
    def strictest_levels(self) -> Floats:
        """(g,) the level that a row has to pass whatever the others of its family show."""
        levels, alpha = np.full(len(self.keys), np.nan), 1 - self.rules.confidence
        for rows, share in self._rows:
            if self.rules.correction == TUKEY:
                groups = [*self._groups(rows)]
                for group, k in groups:
                    levels[group] = tukey_levels(share * alpha / len(groups), self.deciding.df[group], k)
            else:
                levels[rows] = strictest_level(share * alpha, int(self.n_tested[rows][0]), self.rules.correction)
        return levels

    @cached_property
    def covers_jointly(self) -> bool:
        """Whether the intervals of a family are at levels that do not depend on its p-values."""
        return self.rules.simultaneous or self.rules.correction == TUKEY

    @cached_property
    def _tested(self) -> Bools:
        return np.asarray(~np.isnan(self.deciding.p_value))

    @cached_property
    def _rows(self) -> list[tuple[Bools, float]]:
        """Per family: (g,) whether a row belongs to it, and its share of the level of significance."""
        names, share = np.array(self.names), self.rules.primary_share
        of_primary = 1.0 if share is None else share
        of_others = 1.0 if share is None or self.rules.one_family else 1 - share
        return [
            (names == name, of_primary if name == FAMILIES[PRIMARY] else of_others)
            for name in dict.fromkeys(self.names)
        ]

    def _groups(self, family: Bools) -> Iterator[tuple[Ints, int]]:
        """The tested pairs of each metric and segment of a family, and how many experiments these are."""
        groups: dict[tuple[str, str], list[int]] = {}
        for i in np.flatnonzero(family & self._tested).tolist():
            groups.setdefault((self.keys[i].segment, self.keys[i].metric), []).append(i)
        for places in groups.values():
            names = {name for i in places for name in (self.keys[i].baseline, self.keys[i].candidate)}
            yield np.array(places, np.int64), len(names)
