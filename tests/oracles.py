"""The definition of each metric as a slow, obvious loop over one list; the tests compare the kernels with these."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from rankmetrics_spark.metrics import Convention

NAN = math.nan

Oracle = Callable[..., float]
ORACLES: dict[str, Oracle] = {}


def oracle(definition: Oracle) -> Oracle:
    """Register the loop that defines the metric of the same name."""
    ORACLES[definition.__name__] = definition
    return definition


Graded = tuple[tuple[str, float], ...]
"""The intents of an item, each with the grade that the item has for it."""


@dataclass(frozen=True)
class One:
    """One list: grades in rank order (NaN = unjudged), those of all judged items, scores if any, ranks without item.

    For metrics of intents: the ids of the shown items, their intents, and ids with intents of the judged items.
    """

    grades: tuple[float, ...]
    pool: tuple[float, ...]
    scores: tuple[float, ...] = ()
    gaps: frozenset[int] = frozenset()
    items: tuple[str, ...] = ()
    intents: tuple[Graded, ...] = ()
    judged: tuple[tuple[str, Graded], ...] = ()


def is_relevant(grade: float, c: Convention) -> bool:
    return not math.isnan(grade) and grade > 0 and grade >= c.relevant_from


def gain(grade: float, c: Convention) -> float:
    if math.isnan(grade) or grade <= 0:
        return 0.0
    if c.gain == "linear":
        return grade
    if c.gain == "exponential":
        return float(2.0**grade - 1)
    if c.gain == "binary":
        return float(is_relevant(grade, c))
    return max(((at, value) for at, value in c.gain_table if at <= grade), default=(0.0, 0.0))[1]


def hits(one: One, c: Convention, k: int | None) -> int:
    return sum(is_relevant(grade, c) for grade in one.grades[:k])


def m(one: One, c: Convention) -> int:
    return sum(is_relevant(grade, c) for grade in (one.grades if c.relevant_pool == "shown" else one.pool))


def has_relevant(one: One, c: Convention) -> bool:
    """Whether something is relevant, and something has a gain, where the convention looks for it."""
    only_shown = c.ideal_pool == "shown" or c.ap_denominator == "hits"
    if m(one, c) == 0 or (only_shown and hits(one, c, None) == 0):
        return False
    return any(gain(grade, c) > 0 for grade in (one.grades if c.ideal_pool == "shown" else one.pool))


def without_unjudged(one: One) -> One:
    """The condensed list: judged items alone, in their order."""
    kept = [i for i, grade in enumerate(one.grades) if not math.isnan(grade)]
    parts = {name: getattr(one, name) for name in ("grades", "scores", "items", "intents")}
    return replace(one, **{name: tuple(part[i] for i in kept) for name, part in parts.items() if part})


def by_definition(name: str, one: One, c: Convention, **parameters: float) -> float:
    """A metric of a list; NaN without a value, and in every metric if ``zero_relevant: skip`` leaves the list out."""
    one = without_unjudged(one) if c.unjudged == "removed" else one
    left_out = c.zero_relevant == "skip" and not has_relevant(one, c)
    return NAN if left_out else ORACLES[name](one, c, **parameters)


def sum_of_precisions(one: One, c: Convention, k: int | None) -> float:
    total, result = 0.0, 0
    for rank, grade in enumerate(one.grades[:k], start=1):
        if is_relevant(grade, c):
            result += 1
            total += result / rank
    return total


def ap_denominator(one: One, c: Convention, k: int | None) -> int:
    length = len(one.grades)
    denominators = {
        "min(m,k)": m(one, c) if k is None else min(m(one, c), k),
        "m": m(one, c),
        "hits": hits(one, c, k),
        "k": length if k is None else k,
        "min(L,k)": length if k is None else min(length, k),
    }
    return denominators[c.ap_denominator]


@oracle
def ap(one: One, c: Convention, k: int | None = None) -> float:
    known = hits(one, c, None) if c.ap_denominator == "hits" else m(one, c)
    if known == 0:
        return NAN
    denominator = ap_denominator(one, c, k)
    return sum_of_precisions(one, c, k) / denominator if denominator else 0.0


@oracle
def p(one: One, c: Convention, k: int) -> float:
    return hits(one, c, k) / k if m(one, c) else NAN


@oracle
def r(one: One, c: Convention, k: int) -> float:
    return hits(one, c, k) / m(one, c) if m(one, c) else NAN


@oracle
def f1(one: One, c: Convention, k: int) -> float:
    precision, recall = p(one, c, k), r(one, c, k)
    if not m(one, c):
        return NAN
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@oracle
def rprec(one: One, c: Convention) -> float:
    return p(one, c, m(one, c)) if m(one, c) else NAN


@oracle
def rr(one: One, c: Convention, k: int | None = None) -> float:
    if not m(one, c):
        return NAN
    for rank, grade in enumerate(one.grades[:k], start=1):
        if is_relevant(grade, c):
            return 1 / rank
    return 0.0


@oracle
def hit_rate(one: One, c: Convention, k: int) -> float:
    return float(hits(one, c, k) > 0) if m(one, c) else NAN


@oracle
def rbp(one: One, c: Convention, k: int | None = None, p: float = 0.8) -> float:
    if not m(one, c):
        return NAN
    return (1 - p) * sum(p**i for i, grade in enumerate(one.grades[:k]) if is_relevant(grade, c))


@oracle
def average_rank(one: One, c: Convention) -> float:
    ranks = [rank for rank, grade in enumerate(one.grades, start=1) if is_relevant(grade, c)]
    return sum(ranks) / len(ranks) if ranks else NAN


@oracle
def rbp_residual(one: One, c: Convention, p: float = 0.8) -> float:
    unjudged = sum((1 - p) * p**i for i, grade in enumerate(one.grades) if math.isnan(grade))
    return unjudged + p ** len(one.grades)


@oracle
def graded_rbp(one: One, c: Convention, k: int | None = None, p: float = 0.8) -> float:
    gains = [gain(grade, c) for grade in (one.grades if c.ideal_pool == "shown" else one.pool)]
    if not any(gains):
        return NAN
    scale = max(1.0, *gains)
    return (1 - p) * sum(gain(grade, c) / scale * p**i for i, grade in enumerate(one.grades[:k]))


@oracle
def auc(one: One, c: Convention, k: int | None = None) -> float:
    relevant = {rank: is_relevant(grade, c) for rank, grade in enumerate(one.grades, start=1) if rank not in one.gaps}
    end = math.inf if k is None else k
    wins = [
        0.5 if min(i, j) > end else float(i < j)
        for i, is_hit in relevant.items()
        for j, is_other_hit in relevant.items()
        if is_hit and not is_other_hit
    ]
    return sum(wins) / len(wins) if wins else NAN


@oracle
def cg(one: One, c: Convention, k: int | None = None) -> float:
    return sum(gain(grade, c) for grade in one.grades[:k])


@oracle
def dcg(one: One, c: Convention, k: int | None = None) -> float:
    return sum(gain(grade, c) / math.log2(rank + 1) for rank, grade in enumerate(one.grades[:k], start=1))


@oracle
def idcg(one: One, c: Convention, k: int | None = None) -> float:
    gains = sorted((gain(grade, c) for grade in one.pool), reverse=True)
    if c.ideal_pool == "shown":
        gains = sorted((gain(grade, c) for grade in one.grades), reverse=True)
    if c.ideal_pool == "constant_k":
        gains = [1.0] * (len(one.grades) if k is None else k) if any(gains) else []
    return sum(value / math.log2(rank + 1) for rank, value in enumerate(gains[:k], start=1))


@oracle
def ndcg(one: One, c: Convention, k: int | None = None) -> float:
    ideal = idcg(one, c, k)
    return dcg(one, c, k) / ideal if ideal else NAN


@oracle
def err(one: One, c: Convention, k: int | None = None) -> float:
    if not m(one, c):
        return NAN
    value, reads_on = 0.0, 1.0
    for rank, grade in enumerate(one.grades[:k], start=1):
        satisfied = (2 ** min(grade, c.max_grade) - 1) / 2**c.max_grade if grade > 0 else 0.0
        value += reads_on * satisfied / rank
        reads_on *= 1 - satisfied
    return value


def refuted(grade: float, c: Convention) -> bool:
    return grade >= 0 and not is_relevant(grade, c)


@oracle
def bpref(one: One, c: Convention) -> float:
    if not m(one, c):
        return NAN
    n, above, value = sum(refuted(grade, c) for grade in one.pool), 0, 0.0
    for grade in one.grades:
        if refuted(grade, c):
            above += 1
        elif is_relevant(grade, c):
            value += 1 - min(above, m(one, c)) / min(n, m(one, c)) if above else 1
    return value / m(one, c)


@oracle
def judged(one: One, c: Convention, k: int) -> float:
    known = [not math.isnan(grade) for grade in one.grades[:k]]
    shown = len(one.grades) - len(one.gaps)
    return sum(known) / min(shown, k) if shown else NAN


def covered(pairs: Graded, c: Convention) -> set[str]:
    return {intent for intent, grade in pairs if is_relevant(grade, c)}


def pool_of_intents(one: One, c: Convention, shown: bool) -> list[set[str]]:
    """What each item of the pool covers, the highest id first."""
    items = zip(one.items, one.intents, strict=True) if shown else one.judged
    return [covered(pairs, c) for _, pairs in sorted(items, reverse=True)]


def intent_gain(covers: set[str], above: list[set[str]], alpha: float) -> Fraction:
    """Exact: alpha is the decimal number that its digits say."""
    novelty = 1 - Fraction(str(alpha))
    return sum((novelty ** sum(intent in other for other in above) for intent in covers), Fraction(0))


def intent_gains(ranked: list[set[str]], alpha: float) -> list[Fraction]:
    return [intent_gain(covers, ranked[:i], alpha) for i, covers in enumerate(ranked)]


def greedy_ideal(pool: list[set[str]], k: int, alpha: float) -> list[set[str]]:
    ranked: list[set[str]] = []
    left = list(pool)
    while left and len(ranked) < k:
        best = max(left, key=lambda covers: intent_gain(covers, ranked, alpha))  # the first of several
        left.remove(best)
        ranked.append(best)
    return ranked


@oracle
def alpha_ndcg(one: One, c: Convention, k: int, alpha: float = 0.5) -> float:
    def alpha_dcg(ranked: list[set[str]]) -> float:
        gains = intent_gains(ranked[:k], alpha)
        return sum(float(gain) / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))

    ideal = alpha_dcg(greedy_ideal(pool_of_intents(one, c, c.ideal_pool == "shown"), k, alpha))
    return min(1.0, alpha_dcg([covered(pairs, c) for pairs in one.intents]) / ideal) if ideal else NAN


@oracle
def err_ia(one: One, c: Convention, k: int) -> float:
    intents = set[str]().union(*pool_of_intents(one, c, c.relevant_pool == "shown"))
    if not intents:
        return NAN
    gains = intent_gains([covered(pairs, c) for pairs in one.intents[:k]], 0.5)
    most = sum(0.5 ** (i - 1) / i for i in range(1, k + 1))
    return min(1.0, sum(float(gain) / i for i, gain in enumerate(gains, start=1)) / len(intents) / most)


@oracle
def distinct(one: One, c: Convention, k: int) -> float:
    return float(len({intent for pairs in one.intents[:k] for intent, _ in pairs}))


def softmax(one: One, t: float) -> list[float]:
    weights = [math.exp((score - max(one.scores)) / t) for score in one.scores]
    return [weight / sum(weights) for weight in weights]


@oracle
def softmax_loss(one: One, c: Convention, t: float = 1.0) -> float:
    chances = [chance for chance, grade in zip(softmax(one, t), one.grades, strict=True) if is_relevant(grade, c)]
    return -math.log(sum(chances)) if chances else NAN


@oracle
def softmax_entropy(one: One, c: Convention, t: float = 1.0) -> float:
    return -sum(chance * math.log(chance) for chance in softmax(one, t) if chance) if one.scores else NAN


def orders(one: One) -> Iterator[One]:
    """The list in each order of its items that keeps equal scores together."""
    runs = [list(run) for _, run in itertools.groupby(range(len(one.grades)), key=lambda i: one.scores[i])]
    for order in itertools.product(*(itertools.permutations(run) for run in runs)):
        grades = tuple(one.grades[i] for run in order for i in run)
        yield replace(one, grades=grades)


def expected(name: str, one: One, c: Convention, **parameters: float) -> float:
    """Mean of an oracle over all orders of tied items."""
    counted = Counter(orders(one))
    values = [by_definition(name, each, c, **parameters) * times for each, times in counted.items()]
    return math.fsum(values) / counted.total()


def ap_threshold(one: One, c: Convention) -> float:
    """AP without a cut-off; an item has the precision over all items with its score or a higher one (scikit-learn)."""
    relevant = [is_relevant(grade, c) for grade in one.grades]
    if not any(relevant):
        return NAN
    precisions = []
    for score, is_hit in zip(one.scores, relevant, strict=True):
        above = [r for s, r in zip(one.scores, relevant, strict=True) if s >= score]
        precisions += [sum(above) / len(above)] * is_hit
    return math.fsum(precisions) / (sum(relevant) if c.ap_denominator == "hits" else m(one, c))
