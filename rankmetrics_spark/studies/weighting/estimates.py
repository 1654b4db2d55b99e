"""Inverse-propensity weights, their effective sample size, and estimates with an interval: the user is the unit.

A row of a log has a propensity: the probability that its item was seen at its rank (position bias), or that the policy
which wrote the log chose it. Its weight is ``target / propensity``. With ``target`` 1 the weights correct position
bias; with the probability that another policy chooses the item, they give that policy's value.

Sources: Horvitz and Thompson, A Generalization of Sampling Without Replacement From a Finite Universe (JASA 1952);
Swaminathan and Joachims, The Self-Normalized Estimator for Counterfactual Learning (NIPS 2015); Joachims, Swaminathan
and Schnabel, Unbiased Learning-to-Rank with Biased Feedback (WSDM 2017); Kish, Survey Sampling (1965).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from rankmetrics_spark import config as cfg, metrics as mx, schemas as sch, statistics as st, words
from rankmetrics_spark.studies.frame import MOST_FAULTY, TABLES, left_out, said

#: Columns of the result -> their types.
COLUMNS = TABLES["off_policy"]
#: Users, their rows, rows with a clipped weight, users with a number that is not defined or too large to be summed; the
#: value (v), the mean weight of a list (b), its mean number of rows (c), the weight of all rows (w), and as ``ww`` that
#: of their squares, the mean weight of a row (a), the mean joint weight of a list (j).
SUMS = st.Measure("n rows clipped beyond | v b c w a j vv vb vc bb bc cc ww aa jj")
#: Rows of an experiment that no estimate reads: with a fault, with an unusable propensity, repeated in their list, with
#: a rank below the first one (faulty too); all its rows; its lists.
ROW_COUNTS = ("faulty", "unweighted", "repeated", "below", "all", "lists")
#: Both: what is summed of an experiment, a metric and an estimator.
ALL_SUMS = st.Measure(f"{' '.join(ROW_COUNTS)} {SUMS.words}")


def effective_sample_size(total: Any, squares: Any) -> st.Floats:
    """Return how many rows of equal weight hold as much information: sum(w)**2 / sum(w**2); 0 if all weights are 0.

    Args:
        total: (g,) sums of weights.
        squares: (g,) sums of squared weights.

    Source: Kish, Survey Sampling (1965), section 11.7.

    >>> effective_sample_size([4.0, 4.0], [4.0, 16.0]).tolist()  # four weights of 1; one of 4 and three of 0
    [4.0, 1.0]
    """
    total, squares = np.asarray(total, np.float64), np.asarray(squares, np.float64)
    return np.asarray(np.divide(total * total, squares, out=np.zeros(total.shape), where=squares > 0))


class UserValues(NamedTuple):
    """The contribution of u users to an estimate.

    Attributes:
        value: (u,) weighted value of the metric: the mean over the user's lists.
        lists: (u,) lists of the user, at least 1.
        rows: (u,) rows of these lists that the metric reads.
        weight: (u,) sum of the weights of these rows.
        squares: (u,) sum of their squares.
        clipped: (u,) how many of these rows have a clipped weight; None: none.
        joint: (u,) mean over the lists of the product of the weights that the value multiplies; None: it is a sum over
            rows, so no weights multiply.
    """

    value: st.Floats
    lists: st.Floats
    rows: st.Floats
    weight: st.Floats
    squares: st.Floats
    clipped: st.Floats | None = None
    joint: st.Floats | None = None


def limb_sums(users: UserValues, group: st.Ints | None = None, size: int = 1) -> st.Sums:
    """Return exact sums over the users of each group, by default of a single one; they can be added in any order.

    >>> two = UserValues(*map(np.array, ([1.0, 0.0], [1.0, 1.0], [2.0, 2.0], [4.0, 2.0], [8.0, 2.0])))
    >>> self_normalised(limb_sums(two), 0.95).value.round(6).tolist()  # (1 + 0) / 2 / (6 / 4)
    [0.333333]
    """
    group = np.zeros(len(users.value), np.int64) if group is None else group
    first = {"v": users.value, "b": users.weight / users.lists, "c": users.rows / users.lists, "w": users.weight}
    first["a"] = np.divide(users.weight, users.rows, out=np.zeros(len(group)), where=users.rows > 0)
    first["j"] = first["a"] if users.joint is None else users.joint
    beyond = np.any([~(np.abs(each) <= st.LARGEST_SUMMAND) for each in first.values()], axis=0)
    first = {name: np.where(beyond, 0.0, each) for name, each in first.items()}
    clipped = np.zeros(len(group)) if users.clipped is None else users.clipped
    counts = (np.ones(len(group)), users.rows, clipped, beyond)
    cells = SUMS.cells(counts, **first, ww=np.where(beyond, 0.0, users.squares))
    return st.Sums(SUMS, st.group_sums(cells, group, size))


def effective_users(sums: st.Sums) -> st.Floats:
    """Return the (g,) effective number of users: the smaller one of mean row weight and mean joint weight."""
    return np.asarray(np.minimum(_effective(sums, "a"), _effective(sums, "j")))


def _effective(sums: st.Sums, weight: str) -> st.Floats:
    return effective_sample_size(sums.real(weight), sums.real(2 * weight))


class Estimate(NamedTuple):
    """Estimates of g groups with their intervals, (g,) each; NaN if there is none."""

    value: st.Floats
    low: st.Floats
    high: st.Floats


def ips(sums: st.Sums, confidence: float) -> Estimate:
    """Return the mean of the users' weighted values with Student's t interval over users; for clipped weights too.

    Source: Horvitz and Thompson (1952).
    """
    values = sums.moments("v", "n")
    return Estimate(values.mean, *st.t_interval(values, confidence))


def self_normalised(sums: st.Sums, confidence: float) -> Estimate:
    """Divide the mean of ``ips`` by the mean weight of the rows: 1 in expectation if propensities drew the rows.

    It is the ratio V * C / B of three means over users: of the values, of the rows and of the weights per list. For
    precision and DCG, that is every weight divided by the mean weight. Slightly biased, by a term of order 1 / n.

    Not for position bias: there, the rows were shown with certainty and the mean of 1 / propensity is no estimate of 1.
    The interval is by the delta method over users; NaN where all weights are 0.

    Source: Swaminathan and Joachims (NIPS 2015); the interval: Cochran, Sampling Techniques (1977), chapter 6.
    """
    v, b, c = (sums.mean(name, "n") for name in "vbc")
    weight = np.where(b > 0, b, np.nan)
    slopes = {"v": c / weight, "b": -v * c / weight**2, "c": v / weight}
    value = v * slopes["v"]
    pairs = {"vv": 1, "bb": 1, "cc": 1, "vb": 2, "vc": 2, "bc": 2}
    parts = (times * slopes[of[0]] * slopes[of[1]] * sums.covariance(of[0], of[1], "n") for of, times in pairs.items())
    variance = np.asarray(sum(parts))
    rounding = (1 + 4 * np.abs(value)) * 2.0**-st.LIMB_UNIT + value**2 * 2.0**-50
    n = np.maximum(sums["n"].astype(float), 2.0)
    half = stdtrit(n - 1, 0.5 + confidence / 2) * np.sqrt(np.where(variance <= rounding, 0.0, variance) / n)
    return Estimate(value, value - half, value + half)


ESTIMATORS = ("ips", "clipped", "self_normalised")


class Key(NamedTuple):
    """The key of a sum."""

    experiment: str | None
    metric: str
    estimator: str


def _estimators(path: str, value: object) -> tuple[str, ...]:
    names = tuple(cfg.choice(*ESTIMATORS)(path, item) for item in cfg.listed(path, value))
    if not names:
        raise cfg.refuse(path, value, f"at least one of {', '.join(ESTIMATORS)}")
    return tuple(str(name) for name in dict.fromkeys(names))


@dataclass(frozen=True)
class Weighting(cfg.Section):
    """Columns and limits of the weights, and the estimators that use them: see ``off_policy``."""

    propensity: str = cfg.key("propensity", cfg.text)
    target: str | None = cfg.key(None, cfg.text)
    ranks: Mapping[int, float] | None = cfg.key(None, cfg.as_given)
    estimators: tuple[str, ...] = cfg.key(ESTIMATORS, _estimators)
    clip: float = cfg.key(10.0, cfg.number(0, np.inf, inclusive=False))
    least_effective: float = cfg.key(30.0, cfg.number(0, 1e15, inclusive=True))
    least_share: float = cfg.key(0.01, cfg.number(0, 1, inclusive=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of probabilities."""
        own = [self.propensity] if self.ranks is None else []
        return (*own, *([self.target] if self.target else []))

    def sql(self, rank: str, first_rank: int) -> str:
        """Return SQL of a row's weight; null if a probability is invalid. Spark orders NaN above every number."""
        chance, target = sch.quoted(self.propensity), sch.quoted(self.target) if self.target else "1"
        if self.ranks is not None:
            # A rank that is no whole number is a fault of its own.
            shift = first_rank - 1
            cases = [f"WHEN {rank} = {at + shift} THEN double('{value!r}')" for at, value in self.ranks.items()]
            chance = f"CASE {' '.join(cases)} END"
        sound = f"{chance} > 0 AND {chance} <= 1 AND {target} >= 0 AND {target} <= 1"
        return f"CASE WHEN {sound} THEN double({target}) / double({chance}) END"

    def fault(self) -> str:
        """Return the fault of a row without a weight, in words."""
        if self.ranks is not None:
            return "a rank without a propensity in the table"
        of_target = f" or a {self.target} that is null, NaN or outside [0, 1]" if self.target else ""
        return f"a {self.propensity} that is null, NaN or outside (0, 1]{of_target}"


@dataclass(frozen=True)
class Rules:
    """What is estimated, and under which conditions.

    Attributes:
        weighting: The weights; without a target, they remove position bias.
        confidence: Of the intervals, in (0, 1).
        metrics: The metrics.
        repeats: Whether repeated items are looked for.
        first_rank: What the log calls the first rank.
    """

    weighting: Weighting
    confidence: float
    metrics: tuple[mx.Metric, ...] = ()
    repeats: bool = False
    first_rank: int = 1


def off_policy_rows(sums: Mapping[Key, st.Whole], rules: Rules, order: Sequence[Key]) -> list[dict[str, Any]]:
    """Return the rows of the result, from the sums of each key, as ``ALL_SUMS`` names them."""
    rows: list[dict[str, Any]] = []
    for key in order:
        of_key = st.Sums(ALL_SUMS, sums[key][None])
        counts = {name: int(of_key[name][0]) for name in ALL_SUMS.counts}
        effective = {"rows": float(_effective(of_key, "w")[0]), "users": float(effective_users(of_key)[0])}
        numbers: Sequence[float | None] = (None, None, None)
        note = _refusal(key, effective, counts, rules)
        if note is None:
            estimator = self_normalised if key.estimator == "self_normalised" else ips
            found = [float(each[0]) for each in estimator(of_key, rules.confidence)]
            if (note := _out_of_range(key, rules, *found)) is None:
                numbers, note = found, "; ".join(_notes(counts, rules)) or None
        share = effective["rows"] / counts["rows"] if counts["rows"] else None
        size = (counts["n"], counts["rows"], effective["rows"], share, effective["users"])
        left = (counts["faulty"] + counts["unweighted"], counts["repeated"])
        mean_weight = float(of_key.mean("w", "rows")[0])
        cells = (*key, *numbers, *size, mean_weight, *left, rules.confidence, note)
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
    return rows


def _notes(counts: Mapping[str, int], rules: Rules) -> Iterator[str]:
    """Yield what biases a value: clipped weights, and rows that are left out, where they are many."""
    clip = rules.weighting.clip
    if clipped := counts["clipped"]:
        yield said("clipped", n=clipped, n_rows=counts["rows"], clip=clip)
    if faulty := left_out(counts["faulty"], counts["all"]):
        yield faulty
    if counts["repeated"] > MOST_FAULTY * counts["all"]:
        yield said("weighted_repeats", n=counts["repeated"], n_rows=counts["all"])


def _refusal(key: Key, effective: Mapping[str, float], counts: Mapping[str, int], rules: Rules) -> str | None:
    """Return why there is no estimate, in one sentence; None if there is one."""
    if counts["unweighted"]:
        fault = rules.weighting.fault()
        return f"rows with {fault}: {counts['unweighted']:,}; allowed: none, so remove or repair them first"
    if not counts["n"]:
        return f"no usable row; rows with a fault in another column: {counts['faulty']:,}"
    if n := counts["beyond"]:
        clicks = " from relevance 0 or 1 (dcg takes grades)" if key.metric.startswith("ndcg") else ""
        allowed = f"none, so every value{clicks} up to {st.LARGEST_SUMMAND:.2g}"
        return f"{words.UNITS} without a usable value: {n:,}; allowed: {allowed}"
    if key.estimator == "self_normalised" and rules.weighting.target is None:
        return said("no_target")
    sizes = [(effective["rows"], counts["rows"], "rows"), (effective["users"], counts["n"], str(words.UNITS))]
    for size, n, what in sizes:
        if size < rules.weighting.least_effective:
            return said("few_effective", size=size, what=what, n=n, least=rules.weighting.least_effective)
    for size, n, what in sizes:
        if size < rules.weighting.least_share * n:
            return said("small_share", size=size, what=what, n=n, part=size / n, least=rules.weighting.least_share)
    return None


#: A value may leave its range by this much through rounding.
ROUNDING = 1e-9


def _out_of_range(key: Key, rules: Rules, value: float, low: float, high: float) -> str | None:
    """Return a sentence if the whole interval is outside the range of the metric: then the propensities are wrong."""
    # One user has no interval.
    low, high = (value if np.isnan(bound) else bound for bound in (low, high))
    ranges = {str(metric): metric.definition.range for metric in rules.metrics}
    least, most = ranges.get(key.metric, (-np.inf, np.inf))
    if low <= most + ROUNDING and high >= least - ROUNDING:
        return None
    return said("out_of_range", value=value, metric=key.metric, least=least, most=most, low=low, high=high)
