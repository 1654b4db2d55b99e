"""Values of other systems for small fixtures, nearly all printed by them, and the convention that reproduces each."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from rankmetrics_spark import doors, metrics as mx

TABLES = ("peer_values_at_3.csv", "printed_at_3.csv", "definition_at_3.csv")


@dataclass(frozen=True)
class Peer:
    """The conventions and metric names that reproduce one row label of the golden tables."""

    ap: str | Mapping[str, object] = "standard"
    ndcg: str | Mapping[str, object] | None = None
    metrics: Sequence[str] = ("ap@3", "ndcg@3")
    tolerance: float = 1e-12


PEERS = {label: Peer(**settings) for label, settings in yaml.safe_load(doors.text_of(__name__, "peers.yaml")).items()}
PRINTED = "printed by the system"
#: Mark in the label of a row -> where its values come from.
_ORIGINS = {"transcribed": "computed from the published formula", "by definition": "computed from the definition"}
COUNTED_TWICE = "a value above 1: a repeated item counts each time, in the list but not in m"
_DEFECTS = yaml.safe_load(doors.text_of(__name__, "defects.yaml"))


@dataclass(frozen=True)
class Value:
    """One value of a system for one fixture.

    Attributes:
        system: Row label of the golden table.
        case: Name of the fixture.
        column: ``ap_at_k`` or ``ndcg_at_k``.
        printed: The value as the system printed it, or as it was computed where ``origin`` says so.
    """

    system: str
    case: str
    column: str
    printed: str

    @property
    def origin(self) -> str:
        """Where the value comes from: printed by the system, or computed from its formula or from the definition."""
        return next((origin for mark, origin in _ORIGINS.items() if mark in self.system), PRINTED)

    @property
    def defect(self) -> str | None:
        """Why the value is a defect of its system; None for a correct value."""
        if self.printed[0].isdigit() and float(self.printed) > 1:
            return COUNTED_TWICE
        return _DEFECTS.get(self.system, {}).get(self.case, {}).get(self.column)  # type: ignore[no-any-return]

    @property
    def convention(self) -> mx.Convention:
        """The convention that reproduces this value."""
        peer = PEERS[self.system]
        return mx.resolve(peer.ap if self.column == "ap_at_k" or peer.ndcg is None else peer.ndcg)

    @property
    def metric(self) -> mx.Metric:
        """The metric of this value."""
        return mx.parse(PEERS[self.system].metrics[self.column == "ndcg_at_k"])

    @property
    def tolerance(self) -> float:
        """The largest difference that a reproduction may have."""
        return PEERS[self.system].tolerance

    @property
    def number(self) -> float:
        """The value; NaN where the system leaves the user out."""
        return math.nan if self.printed == "SKIP" else float(self.printed)


@cache
def values() -> tuple[Value, ...]:
    """Every value of the golden tables, defects included.

    >>> len(values()), sum(value.defect is None for value in values())
    (407, 388)
    """
    rows = [row for name in TABLES for row in csv.DictReader(doors.text_of(__name__, name).splitlines())]
    columns = ("ap_at_k", "ndcg_at_k")
    return tuple(Value(r["system"], r["case"], column, r[column]) for r in rows for column in columns if r[column])


def cases() -> dict[str, Any]:
    """The fixtures: ``list`` (item, score, position) and ``judgments`` (item, relevance) of one user each."""
    return dict(json.loads(doors.text_of(__name__, "cases.json")))


def populations(table: str = "population.csv") -> list[dict[str, str]]:
    """Means of each system over users who differ in coverage; in ``coverage.csv`` two users were never shown."""
    return list(csv.DictReader(doors.text_of(__name__, table).splitlines()))
