"""Differential tests: run the peers on random lists with ties, grades, short lists and unjudged items."""

import warnings
from collections.abc import Sequence
from random import Random

import ir_measures as measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings, strategies as st
from sklearn import metrics

from tests.helpers.frames import Case, values

pytestmark = pytest.mark.slow

ITEMS = [f"d{i:02}" for i in range(14)]
# In 32 bits, 0.1 and 0.1 + 1e-12 are the same number, and 16777217 does not exist.
SCORES = [0.0, 0.1, 0.1 + 1e-12, 0.3, -1.5, 16777216.0, 16777217.0, 2.0]
CUTS = (1, 3, 5, 20)
EXAMPLES = settings(max_examples=20, deadline=None)


def random_lists(rng: Random, n: int, least: int = 1, lowest: int = 0) -> list[Case]:
    """Make n lists. Hypothesis picks only the seed, because drawing every item would take minutes."""
    cases = []
    for _ in range(n):
        items = rng.sample(ITEMS, rng.randint(least, 12))
        judged = {item: rng.randint(lowest, 3) for item in rng.sample(ITEMS, rng.randint(1, 10))}
        if rng.random() < 0.15 or max(judged.values()) < 0:
            # If every grade is negative, trec_eval reads uninitialised memory and may never end.
            judged = dict.fromkeys(judged, 0)
        cases.append(Case(items, rng.choices(SCORES[: rng.randint(1, 8)], k=len(items)), judged))
    return cases


def lists(n: int, least: int = 1, lowest: int = 0) -> st.SearchStrategy[list[Case]]:
    return st.randoms(use_true_random=True).map(lambda rng: random_lists(rng, n, least, lowest))


def compare(cases: Sequence[Case], keys: dict[str, str], theirs: Sequence[dict[str, float]], rule: object) -> None:
    ours = values(cases, list(keys.values()), rule)
    for one, row, known in zip(cases, ours, theirs, strict=True):
        own = [known[name] for name in keys]
        assert row == pytest.approx(own, abs=1e-12, rel=0, nan_ok=True), (one, dict(zip(keys, row, strict=True)), known)


def trec_names() -> dict[str, str]:
    whole = {"map": "ap", "ndcg": "ndcg", "recip_rank": "rr", "Rprec": "rprec", "bpref": "bpref"}
    cut = {"map_cut": "ap", "ndcg_cut": "ndcg", "P": "p", "recall": "r", "success": "hit_rate"}
    return whole | {f"{theirs}_{k}": f"{ours}@{k}" for theirs, ours in cut.items() for k in CUTS}


@EXAMPLES
@given(lists(100, lowest=-1))
def test_the_values_are_those_of_trec_eval(cases: list[Case]) -> None:
    cut = ",".join(map(str, CUTS))
    measures = {"map", "ndcg", "recip_rank", "Rprec", "bpref"} | {
        f"{name}.{cut}" for name in ("map_cut", "ndcg_cut", "P", "recall", "success")
    }
    qrels = {f"q{i}": dict(one.judged) for i, one in enumerate(cases)}
    run = {f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(cases)}
    result = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    compare(cases, trec_names(), [result[f"q{i}"] for i in range(len(cases))], "trec_eval")


@EXAMPLES
@given(lists(100))
def test_the_values_are_those_of_ir_measures(cases: list[Case]) -> None:
    whole = {"AP": "ap", "nDCG": "ndcg", "RR": "rr", "Rprec": "rprec", "Bpref": "bpref"}
    compare_with_ir_measures(cases, whole, "ir_measures")


@EXAMPLES
@given(lists(100))
def test_condensed_lists_have_the_values_of_ir_measures_over_judged_items_only(cases: list[Case]) -> None:
    whole = {f"{name}(judged_only=True)": ours for name, ours in (("AP", "ap"), ("nDCG", "ndcg"), ("RR", "rr"))}
    whole["Rprec(judged_only=True)"] = "rprec"
    compare_with_ir_measures(cases, whole, "ir_measures_judged_only", "(judged_only=True)")


def compare_with_ir_measures(cases: list[Case], whole: dict[str, str], rule: str, named: str = "") -> None:
    cut = {"AP": "ap", "nDCG": "ndcg", "P": "p", "R": "r", "Success": "hit_rate"}
    names = whole | {f"{theirs}{named}@{k}": f"{ours}@{k}" for theirs, ours in cut.items() for k in CUTS}
    qrels = {f"q{i}": dict(one.judged) for i, one in enumerate(cases)}
    run = {f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(cases)}
    theirs: list[dict[str, float]] = [{} for _ in cases]
    for metric in measures.iter_calc([measures.parse_measure(name) for name in names], qrels, run):
        theirs[int(metric.query_id[1:])][str(metric.measure)] = metric.value
    compare(cases, names, theirs, rule)


def truth(one: Case) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([[max(one.judged.get(item, 0), 0) for item in one.items]], float)


@EXAMPLES
@given(lists(100, least=2))
def test_the_values_are_those_of_scikit_learn_with_averaged_ties(cases: list[Case]) -> None:
    names = {"ap": "ap", "ndcg": "ndcg"} | {f"ndcg{k}": f"ndcg@{k}" for k in CUTS}
    theirs = []
    for one in cases:
        grades, scores = truth(one), np.array([one.scores])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a positive item it warns and returns 0
            result = {"ap": metrics.average_precision_score(grades[0] > 0, scores[0])}
        result |= {"ndcg": metrics.ndcg_score(grades, scores)}
        theirs.append(result | {f"ndcg{k}": metrics.ndcg_score(grades, scores, k=k) for k in CUTS})
    compare(cases, names, theirs, "sklearn")


@EXAMPLES
@given(lists(100, least=2))
def test_the_values_are_those_of_scikit_learn_without_ties(cases: list[Case]) -> None:
    # These scores have no ties: scikit-learn's sort is not stable, so the order of ties depends on the processor.
    plain = [Case(one.items, [float(-(i**2)) for i in range(len(one.items))], one.judged) for one in cases]
    theirs = [
        {f"ndcg{k}": metrics.ndcg_score(truth(one), np.array([one.scores]), k=k, ignore_ties=True) for k in CUTS}
        for one in plain
    ]
    rule = {"preset": "sklearn", "ndcg_ties": "same"}
    compare(plain, {f"ndcg{k}": f"ndcg@{k}" for k in CUTS}, theirs, rule)


@EXAMPLES
@given(lists(100, least=2, lowest=-1))
def test_the_auc_is_that_of_scikit_learn(cases: list[Case]) -> None:
    theirs = []
    for one in cases:
        relevant = truth(one)[0] > 0
        order = np.lexsort((one.items, one.scores))[::-1]
        rank = np.argsort(order) + 1
        with_pairs = 0 < relevant.sum() < len(relevant)

        def auc(scores: object, relevant: object = relevant, with_pairs: bool = with_pairs) -> float:
            """The value; NaN without a pair."""
            return metrics.roc_auc_score(relevant, scores) if with_pairs else float("nan")

        # Below rank k, every item has the same place: scikit-learn counts a tied pair half.
        cut = {f"auc{k}": auc(-np.minimum(rank, k + 1)) for k in CUTS}
        theirs.append({"tied": auc(one.scores), "given": auc(-rank)} | cut)
    same = {"preset": "sklearn", "ndcg_ties": "same"}
    compare(cases, {"tied": "auc"}, theirs, "sklearn")
    compare(cases, {"given": "auc"} | {f"auc{k}": f"auc@{k}" for k in CUTS}, theirs, same)


@EXAMPLES
@given(lists(100))
def test_the_graded_rbp_is_that_of_ranx_with_gains_up_to_one(cases: list[Case]) -> None:
    import ranx  # the import compiles for several seconds

    plain = [Case(one.items, [float(-i) for i in range(len(one.items))], one.judged) for one in cases]
    qrels = ranx.Qrels({f"q{i}": dict(one.judged) for i, one in enumerate(plain)})
    run = ranx.Run({f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(plain)})
    ranx.evaluate(qrels, run, ["rbp.80"], return_mean=False, make_comparable=True)
    # ranx does not scale gains.
    theirs = [{"rbp": run.scores["rbp.80"][f"q{i}"] / max(1, *one.judged.values(), 1)} for i, one in enumerate(plain)]
    compare(plain, {"rbp": "graded_rbp(p=0.8)"}, theirs, "ranx")


@EXAMPLES
@given(lists(100))
def test_the_values_are_those_of_ranx(cases: list[Case]) -> None:
    import ranx  # the import compiles for several seconds

    # These scores have no ties, because ranx's sort is not stable.
    plain = [Case(one.items, [float(-i) for i in range(len(one.items))], one.judged) for one in cases]
    qrels = ranx.Qrels({f"q{i}": dict(one.judged) for i, one in enumerate(plain)})
    run = ranx.Run({f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(plain)})
    for preset, theirs in (("ranx", "ndcg"), ("ranx_burges", "ndcg_burges")):
        names = {f"{theirs}@{k}": f"ndcg@{k}" for k in CUTS} | {f"map@{k}": f"ap@{k}" for k in CUTS}
        ranx.evaluate(qrels, run, list(names), return_mean=False, make_comparable=True)
        result = [{name: run.scores[name][f"q{i}"] for name in names} for i in range(len(plain))]
        compare(plain, names, result, preset)


@EXAMPLES
@given(st.randoms(use_true_random=True))
def test_stars_from_four_on_give_the_values_of_ranx_over_the_judgements_of_at_least_four(rng: Random) -> None:
    import ranx  # the import compiles for several seconds

    cases = []
    for _ in range(100):
        items = rng.sample(ITEMS, rng.randint(1, 12))
        judged = {item: rng.randint(1, 5) for item in rng.sample(ITEMS, rng.randint(1, 10))}
        # ranx, as RecTools and RePlay, is given the relevant judgements alone.
        cases.append(Case(items, [float(-i) for i in range(len(items))], judged | {rng.choice(ITEMS): 4}))
    liked = {f"q{i}": {item: 1 for item, stars in one.judged.items() if stars >= 4} for i, one in enumerate(cases)}
    run = ranx.Run({f"q{i}": dict(zip(one.items, one.scores, strict=True)) for i, one in enumerate(cases)})
    names = {f"ndcg@{k}": f"ndcg@{k}" for k in CUTS} | {f"map@{k}": f"ap@{k}" for k in CUTS}
    ranx.evaluate(ranx.Qrels(liked), run, list(names), return_mean=False, make_comparable=True)
    result = [{name: run.scores[name][f"q{i}"] for name in names} for i in range(len(cases))]
    compare(cases, names, result, {"preset": "ranx", "gain": "binary", "relevant_from": 4})
