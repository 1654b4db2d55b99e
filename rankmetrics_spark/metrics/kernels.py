"""Metric kernels: from the ranked lists of a batch to one number per list. A new metric is one function here.

A kernel takes ``Lists`` (a batch of n lists under a convention) and its parameters. It returns (n,) floats, NaN where
the metric has no value because nothing is relevant. Notation: r_i = 1 if the item at rank i is relevant, g_i its grade,
P_i the precision at i, m the number of relevant judged items, shown or not, L the length of the list, k the cut-off.
m and the ideal list come from the judgements alone. A list can show more relevant items than the judgements hold; its
values stop at 1.
"""

from collections.abc import Callable

import numpy as np

from rankmetrics_spark.metrics import conventions, intents, ties as tied
from rankmetrics_spark.metrics.batch import Bools, Floats, Ints
from rankmetrics_spark.metrics.discounts import SUMMABLE, discount, geometric, itself, last_rank, reciprocal, unit

# The examples in the docstrings use one_list.
from rankmetrics_spark.metrics.lists import Lists, one_list  # noqa: F401
from rankmetrics_spark.metrics.names import metric

EXPECTED = ("plain", "expected")
NO_MAXIMUM = (0.0, np.inf)


def _at_most_one(values: Floats) -> Floats:
    # Above 1 only if a list shows more relevant items than the judgements hold.
    return np.minimum(values, 1.0)


def _where_relevant(lists: Lists, values: Floats) -> Floats:
    return np.where(lists.m > 0, _at_most_one(values), np.nan)


def _sum_or_infinite(gains: Floats) -> Floats:
    """Sums of gains, infinite where they are too large to be known."""
    return np.where(gains < SUMMABLE, gains, np.inf)


def _share(part: Floats, total: Floats | Ints) -> Floats:
    return np.divide(part, total, out=np.zeros(len(part)), where=total > 0)


PRECISIONS: dict[str, Callable[[Lists, int | None], Floats]] = {
    "plain": lambda lists, k: lists.total(lists.precisions, unit, k),
    "expected": tied.expected_precisions,
    "threshold": tied.threshold_precisions,
}
DENOMINATORS: dict[str, Callable[[Lists, int | None], Floats | Ints]] = {
    "min(m,k)": lambda lists, k: np.minimum(lists.m, last_rank(k)),
    "m": lambda lists, k: lists.m,
    "hits": lambda lists, k: lists.hits_at(k),
    "k": lambda lists, k: lists.batch.shown if k is None else np.full(lists.batch.size, k),
    "min(L,k)": lambda lists, k: np.minimum(lists.batch.shown, last_rank(k)),
}


@metric(
    aliases=("map", "map_cut", "average_precision", "mean_average_precision"),
    mean_name="MAP",
    tie_knob="ap_ties",
    readings=("plain", "expected", "threshold"),
)
def ap(lists: Lists, k: int | None = None) -> Floats:
    """Average precision: sum of r_i P_i for i <= k, over the convention's denominator (standard: min(m, k); uncut: m).

    No value if m = 0; with the denominator ``hits``, if the list shows no relevant item.
    Source: Buckley and Voorhees, Evaluating Evaluation Measure Stability (SIGIR 2000); the denominators are those of
    trec_eval, Spark, scikit-learn and RecTools.

    >>> ap(one_list([1, 0, 1]), k=3).tolist() == [(1 / 1 + 2 / 3) / 2]
    True
    """
    denominator = lists.convention.ap_denominator
    n_relevant = lists.hits_at(None) if denominator == "hits" else lists.m
    if denominator == "hits" and lists.ties == "expected":
        values = tied.expected_precision_per_hit(lists, k)
    else:
        values = _share(PRECISIONS[lists.ties](lists, k), DENOMINATORS[denominator](lists, k))
    return np.where(n_relevant > 0, _at_most_one(values), np.nan)


@metric(aliases=("ndcg_cut",), readings=EXPECTED, tie_knob="ndcg_ties")
def ndcg(lists: Lists, k: int | None = None) -> Floats:
    """Normalised DCG: dcg@k over idcg@k (standard: linear gain, ideal list from all judged items).

    No value if the ideal DCG is 0; infinite where gains are too large to be summed.
    Source: Järvelin and Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques (TOIS 2002), with the discount
    1/log2(i + 1) of Burges et al. (ICML 2005).

    >>> ndcg(one_list([3, 0, 2]), k=3).round(6).tolist() == [round((3 + 2 / 2) / (3 + 2 / 1.5849625), 6)]
    True
    """
    ideal = lists.ideal_at(k)
    values = _share(lists.dcg_at(k), ideal)
    values = values if lists.convention.ideal_pool == "constant_k" else _at_most_one(values)
    return np.where(ideal > 0, np.where(ideal < SUMMABLE, values, np.inf), np.nan)


# ---- binary relevance


@metric(aliases=("precision", "prec"), mean_name="mean Precision", readings=EXPECTED)
def p(lists: Lists, k: int) -> Floats:
    """Precision: relevant items in the top k, over k, even if the list is shorter than k (as trec_eval and Spark).

    No value if m = 0.

    >>> p(one_list([1, 0, 1]), k=4).tolist()
    [0.5]
    """
    return _where_relevant(lists, lists.hits_at(k) / k)


@metric(aliases=("recall",), mean_name="mean Recall", readings=EXPECTED)
def r(lists: Lists, k: int) -> Floats:
    """Recall: relevant items in the top k, over all m relevant items, shown or not. No value if m = 0.

    >>> r(one_list([1, 0, 1], pool=[1, 1, 1, 1]), k=2).tolist()
    [0.25]
    """
    return _where_relevant(lists, _share(lists.hits_at(k), lists.m))


@metric(aliases=("f1_score",), readings=EXPECTED)
def f1(lists: Lists, k: int) -> Floats:
    """F1: harmonic mean of p@k and r@k, which is 2 hits / (k + m). No value if m = 0.

    >>> f1(one_list([1, 0, 0], pool=[1, 1]), k=2).tolist()
    [0.5]
    """
    return _where_relevant(lists, 2 * lists.hits_at(k) / (k + lists.m))


@metric(aliases=("r_prec", "r_precision", "rprecision"), mean_name="mean R-precision", readings=EXPECTED)
def rprec(lists: Lists) -> Floats:
    """R-precision: precision at rank m (as trec_eval). No value if m = 0.

    >>> rprec(one_list([1, 0, 1])).tolist()
    [0.5]
    """
    return _where_relevant(lists, _share(lists.total(lists.relevant, unit, lists.m[lists.found.list]), lists.m))


@metric(aliases=("mrr", "recip_rank", "reciprocal_rank"), mean_name="MRR", readings=EXPECTED)
def rr(lists: Lists, k: int | None = None) -> Floats:
    """Reciprocal rank: 1 / rank of the first relevant item of the top k, 0 if there is none. No value if m = 0.

    >>> rr(one_list([0, 1, 1])).tolist(), rr(one_list([0, 1, 1]), k=1).tolist()
    ([0.5], [0.0])
    """
    if lists.ties == "expected":
        return _where_relevant(lists, tied.expected_reciprocal_rank(lists, k))
    return _where_relevant(lists, lists.total(lists.relevant * (lists.count == 1), reciprocal, k))


@metric(aliases=("hr", "hit", "hitrate", "success"), readings=EXPECTED)
def hit_rate(lists: Lists, k: int) -> Floats:
    """Hit rate: 1 if the top k holds a relevant item, else 0. No value if m = 0.

    >>> hit_rate(one_list([0, 1]), k=1).tolist(), hit_rate(one_list([0, 1]), k=2).tolist()
    ([0.0], [1.0])
    """
    hit = tied.expected_hit(lists, k) if lists.ties == "expected" else (lists.hits_at(k) > 0).astype(np.float64)
    return _where_relevant(lists, hit)


@metric(readings=EXPECTED, bounds={"p": (0.0, 1.0)})
def rbp(lists: Lists, k: int | None = None, p: float = 0.8) -> Floats:
    """Rank-biased precision: (1 - p) times the sum of r_i p^(i-1); ranks after the list count 0. No value if m = 0.

    Source: Moffat and Zobel, Rank-Biased Precision for Measurement of Retrieval Effectiveness (TOIS 2008).

    >>> rbp(one_list([1, 0, 1]), p=0.5).tolist()  # 0.5 * (1 + 0.25)
    [0.625]
    """
    return _where_relevant(lists, (1 - p) * lists.total(lists.relevant, geometric(p), k))


@metric(aliases=("mean_rank",), range=(1.0, np.inf), higher_is_better=False, zero_policy=False, readings=EXPECTED)
def average_rank(lists: Lists) -> Floats:
    """Average rank: mean rank of the relevant items that the list shows; NaN under every convention if it shows none.

    Relevant items that were not shown have no rank and change nothing: read it beside recall.

    >>> average_rank(one_list([1, 0, 0, 1], pool=[1, 1, 1])).tolist()  # (1 + 4) / 2
    [2.5]
    """
    hits = lists.hits_at(None)
    return np.where(hits > 0, _share(lists.total(lists.relevant, itself, None), hits), np.nan)


# ---- graded relevance


@metric(range=NO_MAXIMUM, zero_policy=False, readings=EXPECTED)
def cg(lists: Lists, k: int | None = None) -> Floats:
    """Cumulated gain: sum of the convention's gain of g_i for i <= k; 0 if nothing has a gain.

    >>> cg(one_list([3, 0, 2]), k=2).tolist()
    [3.0]
    """
    return _sum_or_infinite(lists.total(lists.gains, unit, k))


@metric(range=NO_MAXIMUM, zero_policy=False, readings=EXPECTED, tie_knob="ndcg_ties")
def dcg(lists: Lists, k: int | None = None) -> Floats:
    """Discounted cumulated gain: sum of gain(g_i) / log2(i + 1) for i <= k; 0 if nothing has a gain.

    >>> dcg(one_list([3, 0, 2])).tolist()  # 3 / 1 + 2 / 2
    [4.0]
    """
    return _sum_or_infinite(lists.dcg_at(k))


@metric(range=NO_MAXIMUM, higher_is_better=None, zero_policy=False, readings=EXPECTED)
def idcg(lists: Lists, k: int | None = None) -> Floats:
    """Ideal DCG: the DCG of the best possible top k of the convention's ideal pool; 0 if nothing has a gain.

    >>> idcg(one_list([0, 0, 3], pool=[3, 1, 0]), k=1).tolist()
    [3.0]
    """
    return _sum_or_infinite(lists.ideal_at(k))


@metric
def err(lists: Lists, k: int | None = None) -> Floats:
    """Expected reciprocal rank: sum over i <= k of 1/i times the probability that the user stops at i.

    An item satisfies the user with probability (2^g_i - 1) / 2^max_grade (max_grade 4, as in gdeval); a satisfied user
    stops. No value if m = 0.
    Source: Chapelle, Metzler, Zhang and Grinspan, Expected Reciprocal Rank for Graded Relevance (CIKM 2009).

    >>> err(one_list([0, 4])).tolist()  # 1 / 2 * 15 / 16
    [0.46875]
    """
    return _where_relevant(lists, lists.total(lists.stops, reciprocal, k))


@metric(aliases=("rbp_graded",), mean_name="mean graded RBP", readings=EXPECTED, bounds={"p": (0.0, 1.0)})
def graded_rbp(lists: Lists, k: int | None = None, p: float = 0.8) -> Floats:
    """Graded RBP: (1 - p) times the sum of G_i p^(i-1); G_i is the gain of g_i, over the highest one if above 1.

    The highest gain is that of the judged items (``ideal_pool: shown``: of its shown items), as in trec_eval 10,
    whose default p is 0.9. No value if nothing has a gain; infinite where gains are too large to be known.
    Source: Moffat and Zobel, Rank-Biased Precision for Measurement of Retrieval Effectiveness (TOIS 2008); trec_eval,
    m_rbp.c.

    >>> graded_rbp(one_list([1, 0, 2]), p=0.5).tolist()  # 0.5 * (1 / 2 * 1 + 2 / 2 * 0.25)
    [0.375]
    """
    top = lists.top_gain
    scaled = lists.gains / np.maximum(top, 1.0)[lists.found.list]
    values = _at_most_one((1 - p) * lists.total(scaled, geometric(p), k))
    return np.where(top > 0, np.where(top < SUMMABLE, values, np.inf), np.nan)


# ---- judged items


@metric(needs="judged")
def bpref(lists: Lists) -> Floats:
    """Binary preference: mean over all m relevant items of 1 - (judged non-relevant items above) / min(m, N).

    N is the number of judged non-relevant items; the number above is capped at min(m, N). As in trec_eval, a relevant
    item that was not shown adds 0, and unjudged items and negative grades are ignored. No value if m = 0.
    Source: Buckley and Voorhees, Retrieval Evaluation with Incomplete Information (SIGIR 2004).

    >>> bpref(one_list([1, 0, 1])).tolist()  # (1 + (1 - 1 / 1)) / 2
    [0.5]
    """
    batch, nonrelevant = lists.batch, _refuted(lists.batch.grade, lists.convention)
    relevant = lists.convention.relevant(batch.grade)
    n = np.bincount(batch.pool_list[_refuted(batch.pool_grade, lists.convention)], minlength=batch.size)
    bound = np.maximum(np.minimum(lists.m, n), 1)[batch.list]
    above = batch.down_to(nonrelevant)
    return _where_relevant(lists, _share(batch.total(relevant * (1 - np.minimum(above, bound) / bound)), lists.m))


def _refuted(grade: Floats, convention: conventions.Convention) -> Bools:
    """(e,) judged, but not relevant; negative grades are neither."""
    return np.asarray((grade >= 0) & ~convention.relevant(grade))


@metric(aliases=("roc_auc", "auroc"), needs="judged", zero_policy=False, readings=EXPECTED, tie_knob="ndcg_ties")
def auc(lists: Lists, k: int | None = None) -> Floats:
    """AUC: share of the pairs of a relevant and another shown item in which the relevant one is above; below k, half.

    With a cut-off, a pair whose items are both below rank k counts half, as if k were the end of a list in random order
    (limited AUC). Unjudged items are not relevant; items that were not shown are in no pair. NaN under every convention
    if the list has no such pair. Expected over tied scores, a tied pair counts half, as in scikit-learn.
    Source: Hanley and McNeil, The Meaning and Use of the Area under a ROC Curve (Radiology 1982); with a cut-off,
    Schröder, Thiele and Lehner, Setting Goals and Choosing Metrics for Recommender System Evaluations (RecSys 2011).

    >>> auc(one_list([1, 0, 1])).tolist(), auc(one_list([1, 0, 1]), k=1).tolist()  # 1 of 2 pairs; (1 + 1/2) of 2
    ([0.5], [0.75])
    """
    batch, relevant = lists.batch, lists.convention.relevant(lists.batch.grade)
    inside, last = tied.inside_and_last(lists, last_rank(k))
    n_relevant, n_other = (batch.total(mask.astype(np.float64)) for mask in (relevant, ~relevant))
    # Of the pairs with an item further down, an item inside the cut-off wins all or loses all; others split evenly.
    lead = n_other[batch.list] - batch.down_to(~relevant)[last]
    lag = n_relevant[batch.list] - batch.down_to(relevant)[last]
    pairs = n_relevant * n_other
    wins_less_losses = batch.total(np.asarray(inside * np.where(relevant, lead, -lag), np.float64))
    return np.where(pairs > 0, _share(pairs + wins_less_losses, 2 * pairs), np.nan)


@metric(needs="judged", zero_policy=False)
def judged(lists: Lists, k: int) -> Floats:
    """Judged share: items with a judgement in the top k, over min(L, k) (as ir_measures); NaN if L = 0.

    >>> judged(one_list([1, float("nan"), 0, 0]), k=2).tolist()
    [0.5]
    """
    batch = lists.batch
    n_judged = batch.total((~np.isnan(batch.grade) & (batch.rank <= k)).astype(np.float64))
    return np.where(batch.shown > 0, _share(n_judged, np.minimum(batch.shown, k)), np.nan)


@metric(
    aliases=("rbp_resid",),
    mean_name="mean RBP residual",
    needs="judged",
    higher_is_better=None,
    zero_policy=False,
    bounds={"p": (0.0, 1.0)},
)
def rbp_residual(lists: Lists, p: float = 0.8) -> Floats:
    """RBP residual: how much rbp(p) could rise with more labels: 1 - (1 - p) times the sum of p^(i-1) over judged ones.

    Whatever the labels of unjudged items, and of items after the list, RBP is at least rbp(p) and at most rbp(p) plus
    this. As rbp_resid of trec_eval 10, which has 0 for a list whose items are all judged; here its end counts too.
    Source: Moffat and Zobel, Rank-Biased Precision for Measurement of Retrieval Effectiveness (TOIS 2008).

    >>> rbp_residual(one_list([1, float("nan"), 0]), p=0.5).tolist()  # rank 2, and the ranks from 4 on: 1/4 + 1/8
    [0.375]
    """
    batch = lists.batch
    return 1 - (1 - p) * batch.total(~np.isnan(batch.grade) * geometric(p)(batch.rank))


# ---- intents


@metric(aliases=("a_ndcg",), mean_name="mean alpha-NDCG", needs="intents", bounds={"alpha": (0.0, 1.0)})
def alpha_ndcg(lists: Lists, k: int, alpha: float = 0.5) -> Floats:
    """Alpha-NDCG: an NDCG in which an item gains (1 - alpha)^c for each intent it covers that c items above cover.

    A relevant item covers its intents. The ideal list is greedy: at each rank the judged item with the highest gain, of
    equal ones that with the highest id as text, as in ndeval. No value if no intent is covered.
    Source: Clarke et al., Novelty and Diversity in Information Retrieval Evaluation (SIGIR 2008).

    >>> one = one_list([1, 1, 1], intents=[["cats"], ["cats"], ["cars"]])
    >>> alpha_ndcg(one, k=2).round(6).tolist() == [round((1 + 0.5 / 1.5849625) / (1 + 1 / 1.5849625), 6)]
    True
    """
    ideal = intents.ideal(lists, alpha, discount, k)
    values = _share(intents.discounted(lists, alpha, discount, k), ideal)
    return np.where(ideal > 0, _at_most_one(values), np.nan)


@metric(mean_name="mean ERR-IA", needs="intents")
def err_ia(lists: Lists, k: int) -> Floats:
    """Intent-aware ERR: mean over intents of the sum of 2^-c / i at items that cover one; its maximum over k is 1.

    c is the number of items above that cover the intent: each of them satisfies a user who has it with probability 1/2.
    The intents are those that a judged relevant item covers, each as likely as the others. The sum is over that of k
    items that cover the intent, as in ERR-IA of ndeval, which does not divide it at k = 1. No value if no intent is
    covered.
    Source: Chapelle, Ji, Liao, Velipasaoglu, Lai and Wu, Intent-based Diversification of Web Search Results: Metrics
    and Algorithms (Information Retrieval 2011).

    >>> one = one_list([1, 1], intents=[["cats"], ["cats", "cars"]])
    >>> err_ia(one, k=2).tolist() == [(1 + (1 / 2 + 1) / 2) / (2 * (1 + 1 / 2 / 2))]
    True
    """
    n = intents.n_covered(lists)
    # From rank 60 on, no term changes the sum.
    most = sum(0.5 ** (rank - 1) / rank for rank in range(1, min(k, 60) + 1))
    return np.where(n > 0, _at_most_one(_share(intents.discounted(lists, 0.5, reciprocal, k) / most, n)), np.nan)


@metric(mean_name="mean distinct intents", range=NO_MAXIMUM, needs="shown_intents", zero_policy=False)
def distinct(lists: Lists, k: int) -> Floats:
    """Distinct intents: number of different intents, such as categories, among the top k, relevant or not.

    Items without an intent add none; 0 for a list without items.

    >>> distinct(one_list([1, 0, 0], intents=[["cats"], ["cars", "cats"], []]), k=3).tolist()
    [2.0]
    """
    return intents.n_distinct(lists, k)


# ---- scores


@metric(needs="scores", range=NO_MAXIMUM, higher_is_better=False, zero_policy=False, bounds={"t": (0.0, np.inf)})
def softmax_loss(lists: Lists, t: float = 1.0) -> Floats:
    """Listwise softmax loss: -log of the summed softmax probability (temperature t) of the relevant shown items.

    NaN under every convention if no relevant item was shown. Source: Cao et al., Learning to Rank (ICML 2007).

    >>> softmax_loss(one_list([1, 0], scores=[2, 2])).round(6).tolist() == [round(np.log(2), 6)]
    True
    """
    relevant = lists.convention.relevant(lists.batch.grade)
    log_all, log_relevant = lists.log_sum_exp(t), lists.log_sum_exp(t, relevant)
    loss = np.subtract(log_all, log_relevant, out=np.full(lists.batch.size, np.nan), where=np.isfinite(log_relevant))
    return np.asarray(np.maximum(loss, 0.0))


@metric(needs="scores", range=NO_MAXIMUM, higher_is_better=None, zero_policy=False, bounds={"t": (0.0, np.inf)})
def softmax_entropy(lists: Lists, t: float = 1.0) -> Floats:
    """Softmax entropy: entropy, in nats, of the softmax (temperature t) of the shown scores; it grows with t.

    NaN if nothing was shown.

    >>> softmax_entropy(one_list([1, 0], scores=[2, 2])).round(6).tolist() == [round(np.log(2), 6)]
    True
    """
    batch = lists.batch
    logs = lists.scores / t - lists.log_sum_exp(t)[batch.list]
    return np.where(batch.shown > 0, batch.total(-np.exp(logs) * logs), np.nan)
