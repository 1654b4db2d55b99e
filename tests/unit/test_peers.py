"""Live differential tests: the peers themselves, on made-up lists with ties, grades, short lists and unjudged items."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frames import Case, values

ITEMS = [f"d{i:02}" for i in range(14)]
# 0.1 and its neighbour are one number in 32 bits, 16777217 is not there at all.
SCORES = [0.0, 0.1, 0.1 + 1e-12, 0.3, -1.5, 16777216.0, 16777217.0, 2.0]
CUTS = (1, 3, 5, 20)
EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def case(draw: st.DrawFn, least: int = 1, lowest: int = 0) -> Case:
    items = draw(st.lists(st.sampled_from(ITEMS), min_size=least, max_size=12, unique=True))
    scores = draw(st.lists(st.sampled_from(SCORES), min_size=len(items), max_size=len(items)))
    judged = draw(st.dictionaries(st.sampled_from(ITEMS), st.integers(lowest, 3), min_size=1, max_size=10))
    return Case(items, scores, judged)


batches = st.lists(case(), min_size=40, max_size=60)


def compare(cases: Sequence[Case], names: dict[str, str], theirs: Sequence[dict[str, float]], rule: object) -> None:
    ours = values(cases, list(names.values()), rule)
    for one, row, expected in zip(cases, ours, theirs, strict=True):
        wanted = [expected[name] for name in names]
        assert row == pytest.approx(wanted, abs=1e-12, rel=0), (one, dict(zip(names, row, strict=True)), expected)


def trec_names() -> dict[str, str]:
    whole = {"map": "ap", "ndcg": "ndcg", "recip_rank": "rr", "Rprec": "rprec", "bpref": "bpref"}
    cut = {"map_cut": "ap", "ndcg_cut": "ndcg", "P": "p", "recall": "r", "success": "hit_rate"}
    return whole | {f"{theirs}_{k}": f"{ours}@{k}" for theirs, ours in cut.items() for k in CUTS}


@EXAMPLES
@given(st.lists(case(lowest=-1), min_size=40, max_size=60))
def test_trec_eval(cases: list[Case]) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    cut = ",".join(map(str, CUTS))
    measures = {"map", "ndcg", "recip_rank", "Rprec", "bpref"} | {
        f"{name}.{cut}" for name in ("map_cut", "ndcg_cut", "P", "recall", "success")
    }
    qrels = {f"q{i}": dict(one.judged) for i, one in enumerate(cases)}
    run = {f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(cases)}
    found = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    compare(cases, trec_names(), [found[f"q{i}"] for i in range(len(cases))], "trec_eval")


@EXAMPLES
@given(batches)
def test_ir_measures(cases: list[Case]) -> None:
    measures = pytest.importorskip("ir_measures")
    whole = {"AP": "ap", "nDCG": "ndcg", "RR": "rr", "Rprec": "rprec", "Bpref": "bpref"}
    cut = {"AP": "ap", "nDCG": "ndcg", "P": "p", "R": "r", "Success": "hit_rate"}
    names = whole | {f"{theirs}@{k}": f"{ours}@{k}" for theirs, ours in cut.items() for k in CUTS}
    qrels = {f"q{i}": dict(one.judged) for i, one in enumerate(cases)}
    run = {f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(cases)}
    theirs: list[dict[str, float]] = [{} for _ in cases]
    for metric in measures.iter_calc([measures.parse_measure(name) for name in names], qrels, run):
        theirs[int(metric.query_id[1:])][str(metric.measure)] = metric.value
    compare(cases, names, theirs, "ir_measures")


def truth(one: Case) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([[max(one.judged.get(item, 0), 0) for item in one.items]], float)


@EXAMPLES
@given(st.lists(case(least=2), min_size=20, max_size=30))
def test_scikit_learn_averages_ties(cases: list[Case]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    names = {"ap": "ap", "ndcg": "ndcg"} | {f"ndcg{k}": f"ndcg@{k}" for k in CUTS}
    theirs = []
    for one in cases:
        grades, scores = truth(one), np.array([one.scores])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no positive sample: it warns, and gives 0
            found = {"ap": metrics.average_precision_score(grades[0] > 0, scores[0])}
        found |= {"ndcg": metrics.ndcg_score(grades, scores)}
        theirs.append(found | {f"ndcg{k}": metrics.ndcg_score(grades, scores, k=k) for k in CUTS})
    compare(cases, names, theirs, "sklearn")


@EXAMPLES
@given(st.lists(case(least=2), min_size=20, max_size=30))
def test_scikit_learn_ignores_ties(cases: list[Case]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    # Its order of ties is the input's, backwards: with items in the order of their ids, descending ids.
    sorted_cases = [Case(sorted(one.items), one.scores, one.judged) for one in cases]
    theirs = [
        {f"ndcg{k}": metrics.ndcg_score(truth(one), np.array([one.scores]), k=k, ignore_ties=True) for k in CUTS}
        for one in sorted_cases
    ]
    rule = {"preset": "sklearn", "ndcg_ties": "same", "ties": "item_desc"}
    compare(sorted_cases, {f"ndcg{k}": f"ndcg@{k}" for k in CUTS}, theirs, rule)


@EXAMPLES
@given(batches)
def test_ranx(cases: list[Case]) -> None:
    ranx = pytest.importorskip("ranx")
    # It sorts with an unstable sort: scores without ties.
    plain = [Case(one.items, [float(-i) for i in range(len(one.items))], one.judged) for one in cases]
    qrels = ranx.Qrels({f"q{i}": dict(one.judged) for i, one in enumerate(plain)})
    run = ranx.Run({f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(plain)})
    for preset, theirs in (("ranx", "ndcg"), ("ranx_burges", "ndcg_burges")):
        names = {f"{theirs}@{k}": f"ndcg@{k}" for k in CUTS} | {f"map@{k}": f"ap@{k}" for k in CUTS}
        ranx.evaluate(qrels, run, list(names), return_mean=False, make_comparable=True)
        found = [{name: run.scores[name][f"q{i}"] for name in names} for i in range(len(plain))]
        compare(plain, names, found, preset)
