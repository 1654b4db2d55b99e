"""Values of other systems for small fixtures, nearly all printed by them, and the convention that reproduces each."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rankmetrics_spark.metrics import Convention, Metric, parse, resolve

TABLES = ("peer_values_at_3.csv", "printed_at_3.csv", "definition_at_3.csv")


@dataclass(frozen=True)
class Peer:
    """The conventions and metric names that reproduce one row label of the golden tables."""

    ap: str | Mapping[str, object] = "standard"
    ndcg: str | Mapping[str, object] | None = None
    metrics: tuple[str, str] = ("ap@3", "ndcg@3")
    tolerance: float = 1e-12

    def convention(self, column: str) -> Convention:
        """The convention of a column of the tables."""
        return resolve(self.ap if column == "ap_at_k" or self.ndcg is None else self.ndcg)

    def metric(self, column: str) -> Metric:
        """The metric that a column of the tables holds."""
        return parse(self.metrics[column == "ndcg_at_k"])


# pytrec_eval takes dictionaries, so a repeated id is lost before trec_eval can refuse it.
TREC = {"preset": "trec_eval", "duplicates": "best_rank"}
UNCUT = ("ap", "ndcg@3")
# No preset: CatBoost's MAP of a list without a relevant item is 0, its NDCG and recall are 1.
CATBOOST = {"ideal_pool": "shown", "relevant_pool": "shown", "ties": "worst", "duplicates": "count"}
PEERS: dict[str, Peer] = {
    "standard (by definition)": Peer("standard"),
    "ml_metrics 0.1.4 apk": Peer("kaggle"),
    "recommenders.py map_at_k/ndcg binary loge": Peer("recommenders"),
    "recommenders.py map/ndcg raw log2": Peer({"preset": "recommenders", "ap_denominator": "m", "gain": "linear"}),
    "recommenders.py -/ndcg exp log2": Peer({"preset": "recommenders", "gain": "exponential"}),
    "recommenders SparkRankingEvaluation": Peer("recommenders"),
    "RePlay pandas": Peer("replay"),
    "RePlay polars": Peer("replay"),
    "RePlay spark": Peer("replay"),
    "RecTools default": Peer("rectools"),
    "RecTools divide_by_k / divide_by_achievable": Peer(
        {"preset": "rectools", "ap_denominator": "k", "ideal_pool": "judged"}
    ),
    "pytrec_eval(-terrier) map_cut/ndcg_cut": Peer(TREC),
    "ir_measures AP@k/nDCG@k": Peer("ir_measures"),
    "ir_measures 0.4.3 AP(judged_only=True)@k/nDCG(judged_only=True)@k": Peer("ir_measures_judged_only"),
    # gdeval prints five decimals.
    "ir_measures -/nDCG(dcg=exp-log2)@k": Peer({"preset": "ir_measures", "gain": "exponential"}, tolerance=5.01e-6),
    "ranx map/ndcg": Peer("ranx"),
    "ranx -/ndcg_burges": Peer("ranx_burges"),
    "sklearn presented only: aps / ndcg ties-avg": Peer("sklearn", metrics=UNCUT),
    "sklearn presented only: lrap / ndcg ignore_ties": Peer(
        {"preset": "sklearn", "zero_relevant": "one"},
        {"preset": "sklearn", "ndcg_ties": "same", "ties": "item_desc"},
        metrics=UNCUT,
    ),
    "sklearn judged padded w/ low score (ties-avg)": Peer({"preset": "sklearn", "ideal_pool": "judged"}),
    "TFMA NDCG (logic transcribed)": Peer("tfma"),
    "torchmetrics AP@k (logic transcribed, denominator=hits)": Peer("torchmetrics"),
    "TFMA 0.52.0 shown only: NDCG": Peer("tfma"),
    # torchmetrics computes in 32 bits.
    "torchmetrics 1.9.0 shown only: retrieval_average_precision/retrieval_normalized_dcg": Peer(
        "torchmetrics", tolerance=1e-7
    ),
    "torchmetrics 1.9.0 shown only: retrieval_recall/-": Peer(
        "torchmetrics", metrics=("r@3", "ndcg@3"), tolerance=1e-7
    ),
    "LightGBM 4.7.0 shown only: map/ndcg": Peer("lightgbm"),
    "CatBoost 1.2.10 shown only: MAP/NDCG": Peer(CATBOOST, CATBOOST | {"zero_relevant": "one"}),
    "CatBoost 1.2.10 shown only: RecallAt/NDCG type=Exp": Peer(
        CATBOOST | {"zero_relevant": "one"},
        CATBOOST | {"zero_relevant": "one", "gain": "exponential"},
        metrics=("r@3", "ndcg@3"),
    ),
    "jongwook spark-ranking-metrics mapAt (transcribed)": Peer(
        {"preset": "spark_mllib", "ap_denominator": "min(L,k)", "duplicates": "count"}
    ),
    "Spark RankingEvaluator mapAtK/ndcgAtK": Peer("spark_mllib"),
    "Spark RankingEvaluator meanAveragePrecision (k ignored)": Peer("spark_mllib", metrics=UNCUT),
}

PRINTED = "printed by the system"
_ORIGINS = {"transcribed": "computed from the published formula", "by definition": "computed from the definition"}
"""Mark in the label of a row -> where its values come from."""
COUNTED_TWICE = "a value above 1: a repeated item counts each time, in the list but not in m"
PADDED = "a list of one item is padded with items that were never shown"
REFUSED = "the system raises ValueError for a list of one item, although the metric is defined"
KNOWN_DEFECTS: dict[tuple[str, str, str], str] = {
    ("sklearn judged padded w/ low score (ties-avg)", "u3_short_list", "ndcg_at_k"): PADDED,
    ("sklearn presented only: aps / ndcg ties-avg", "u3_short_list", "ndcg_at_k"): REFUSED,
    ("sklearn presented only: lrap / ndcg ignore_ties", "u3_short_list", "ndcg_at_k"): REFUSED,
}


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
        return KNOWN_DEFECTS.get((self.system, self.case, self.column))

    @property
    def convention(self) -> Convention:
        """The convention that reproduces this value."""
        return PEERS[self.system].convention(self.column)

    @property
    def metric(self) -> Metric:
        """The metric of this value."""
        return PEERS[self.system].metric(self.column)

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
    rows = [row for name in TABLES for row in csv.DictReader(_text(name).splitlines())]
    columns = ("ap_at_k", "ndcg_at_k")
    return tuple(Value(r["system"], r["case"], column, r[column]) for r in rows for column in columns if r[column])


def cases() -> dict[str, Any]:
    """The fixtures: ``list`` (item, score, position) and ``judgments`` (item, relevance) of one user each."""
    return dict(json.loads(_text("cases.json")))


def populations(table: str = "population.csv") -> list[dict[str, str]]:
    """Means of each system over users who differ in coverage; in ``coverage.csv`` two users were never shown."""
    return list(csv.DictReader(_text(table).splitlines()))


def _text(name: str) -> str:
    return (files("rankmetrics_spark") / "tools" / "golden" / name).read_text(encoding="utf-8")
