"""Every preset gives what the system it is named after returned; the values in tests/golden were executed there."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankmetrics_spark.conventions import PRESETS, Convention, resolve
from tests.builders import ranked, value_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ORIGINAL = Path(__file__).resolve().parents[2].parent / "shared" / "golden"
CASES = json.loads((GOLDEN / "cases.json").read_text())


@dataclass(frozen=True)
class Peer:
    """The conventions, and the metric names, that stand for one row label of the golden table."""

    ap: object = "standard"
    ndcg: object = None
    metrics: tuple[str, str] = ("ap@3", "ndcg@3")
    tolerance: float = 1e-12

    def convention(self, column: str) -> Convention:
        ndcg = self.ap if self.ndcg is None else self.ndcg
        return resolve(self.ap if column == "ap_at_k" else ndcg)  # type: ignore[arg-type]


# pytrec_eval is fed from dictionaries, so a repeated id is gone before trec_eval can refuse it.
TREC = {"preset": "trec_eval", "duplicates": "best_rank"}
UNCUT = ("ap", "ndcg@3")
PEERS: dict[str, Peer] = {
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
    "jongwook spark-ranking-metrics mapAt (transcribed)": Peer(
        {"preset": "spark_mllib", "ap_denominator": "min(L,k)", "duplicates": "count"}
    ),
    "Spark RankingEvaluator mapAtK/ndcgAtK": Peer("spark_mllib"),
    "Spark RankingEvaluator meanAveragePrecision (k ignored)": Peer("spark_mllib", metrics=UNCUT),
}

PADDED = "a list of one is padded with items that were never shown"
REFUSED = "the system raises ValueError on a list of one; a value exists"
KNOWN_DEFECTS: dict[tuple[str, str, str], str] = {
    ("sklearn judged padded w/ low score (ties-avg)", "u3_short_list", "ndcg_at_k"): PADDED,
    ("sklearn presented only: aps / ndcg ties-avg", "u3_short_list", "ndcg_at_k"): REFUSED,
    ("sklearn presented only: lrap / ndcg ignore_ties", "u3_short_list", "ndcg_at_k"): REFUSED,
}
COUNTED_TWICE = "a value above 1: a repeated item counts each time, in the list but not in m"

ROWS = list(csv.DictReader((GOLDEN / "peer_values_at_3.csv").open()))
VALUES = [
    (row["system"], row["case"], column, row[column])
    for row in ROWS
    for column in ("ap_at_k", "ndcg_at_k")
    if row[column]
]


def defect(system: str, case: str, column: str, value: str) -> str | None:
    if value[0].isdigit() and float(value) > 1:
        return COUNTED_TWICE
    return KNOWN_DEFECTS.get((system, case, column))


def ours(system: str, case: str, column: str) -> float:
    peer, convention = PEERS[system], PEERS[system].convention(column)
    shown, judged = CASES[case]["list"], CASES[case]["judgments"]
    judgements = {row["item"]: row["relevance"] for row in judged}
    one = ranked([row["item"] for row in shown], [row["score"] for row in shown], judgements, convention)
    return value_of(peer.metrics[column == "ndcg_at_k"], one, convention)


SOUND = [row for row in VALUES if defect(*row) is None]


@pytest.mark.parametrize(("system", "case", "column", "value"), SOUND)
def test_the_preset_gives_what_the_system_returned(system: str, case: str, column: str, value: str) -> None:
    expected = math.nan if value == "SKIP" else float(value)
    assert ours(system, case, column) == pytest.approx(expected, abs=PEERS[system].tolerance, rel=0, nan_ok=True)


@pytest.mark.parametrize(("system", "case", "column", "value"), [row for row in VALUES if defect(*row)])
def test_a_known_defect_is_not_copied(system: str, case: str, column: str, value: str) -> None:
    assert 0 <= ours(system, case, column) <= 1


def test_every_label_of_the_golden_table_has_a_convention() -> None:
    assert {row["system"] for row in ROWS} == set(PEERS)


def test_every_preset_but_kaggle_has_golden_values() -> None:
    covered = {peer.convention(column).preset for peer in PEERS.values() for column in ("ap_at_k", "ndcg_at_k")}
    assert covered == set(PRESETS) - {"standard", "kaggle"}


def test_only_values_above_one_repeat_an_item() -> None:
    assert {row[1] for row in VALUES if defect(*row) == COUNTED_TWICE} == {"u9_dup_recs"}


# ---- which users enter the mean: one is perfect, one judged but never shown, one shown but never judged, and one is
# judged with grade 0 only

SHOWN = {"perfect": ["a"], "unjudged": ["a"], "zero": ["a"]}
JUDGED = {"perfect": {"a": 1}, "unseen": {"a": 1}, "zero": {"a": 0}}
MEMBERS = {
    "shown": lambda shown, judged: shown,
    "judged": lambda shown, judged: judged,
    "both": lambda shown, judged: shown & judged,
    "either": lambda shown, judged: shown | judged,
}
POPULATIONS: dict[str, dict[str, object]] = {
    "recommenders.py": {"map": "recommenders", "ndcg": {"preset": "recommenders", "population": "judged"}},
    "RePlay pandas": {"map": "replay"},
    "RePlay polars": {"map": "replay"},
    "RecTools": {"map": "rectools"},
    "ir_measures": {"map": "ir_measures"},
    "ranx make_comparable": {"map": "ranx"},
    "pytrec_eval mean of returned": {"map": {"preset": "trec_eval", "population": "both"}},
}
GRADE_ZERO = "a row of the ground truth counts as relevant even with grade 0"
ZERO_DEFECTS = {
    "recommenders.py": GRADE_ZERO,
    "RePlay pandas": GRADE_ZERO,
    "RePlay polars": GRADE_ZERO,
    "RecTools": GRADE_ZERO,
}
MEANS = list(csv.DictReader((GOLDEN / "population.csv").open()))


def mean_over(convention: Convention, metric: str, users: set[str]) -> float:
    shown = {user: items for user, items in SHOWN.items() if user in users}
    judged: Mapping[str, dict[str, int]] = {user: rows for user, rows in JUDGED.items() if user in users}
    members = MEMBERS[convention.population](set(shown), set(judged))
    lists = [
        ranked(shown.get(user, []), [1.0] * len(shown.get(user, [])), judged.get(user, {}), convention)
        for user in sorted(members)
    ]
    return sum(value_of(metric, one, convention) for one in lists) / len(lists)


@pytest.mark.parametrize("row", MEANS, ids=lambda row: row["system"])
@pytest.mark.parametrize(("column", "metric"), [("map", "ap@1"), ("ndcg", "ndcg@1")])
def test_the_population_knob_gives_the_means_of_the_system(row: dict[str, str], column: str, metric: str) -> None:
    settings = POPULATIONS[row["system"]]
    convention = resolve(settings.get(column, settings["map"]))  # type: ignore[arg-type]
    users = {"perfect", "unseen", "unjudged"}
    assert mean_over(convention, metric, users) == pytest.approx(float(row[column]), abs=5e-4)
    if row["system"] not in ZERO_DEFECTS:
        with_zero = float(row[f"{column}_with_grade0_user"])
        assert mean_over(convention, metric, users | {"zero"}) == pytest.approx(with_zero, abs=5e-4)


@pytest.mark.parametrize("name", ["cases.json", "peer_values_at_3.csv", "population.csv"])
def test_the_fixture_is_a_copy_of_the_original(name: str) -> None:
    if not (ORIGINAL / name).exists():
        pytest.skip(f"{ORIGINAL} is not here")
    assert (GOLDEN / name).read_bytes() == (ORIGINAL / name).read_bytes()
