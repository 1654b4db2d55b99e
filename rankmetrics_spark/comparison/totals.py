"""Which pairs are formed of experiments, and which rows of them: what is asked for, and moments of the sums."""

from collections.abc import Iterable, Sequence

import numpy as np

from rankmetrics_spark import errors as err, schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures
from rankmetrics_spark.config import Comparison, Resampling


def resamplings(request: Comparison) -> dict[str, Resampling]:
    """Key of ``comparison`` -> how often it resamples the users."""
    each = {name: getattr(request, name) for name in ("bootstrap", "randomization", "aa_check")}
    return {name: drawn for name, drawn in each.items() if drawn is not None}


def most_replicates(request: Comparison) -> int:
    """The largest number of replicates of any kind."""
    return max((drawn.replicates for drawn in resamplings(request).values()), default=0)


def _n_pairs(request: Comparison, n_experiments: int) -> int:
    """How many pairs so many experiments form, if the baseline and the candidates are among them."""
    if request.pairs == "all":
        return n_experiments * (n_experiments - 1) // 2
    return (len(request.candidates) or n_experiments - 1) if request.baseline is not None else 0


def n_cells(request: Comparison, n_experiments: int) -> int:
    """How many whole numbers the replicates of one metric of one segment are.

    >>> n_cells(Comparison("a", bootstrap=True), 2)  # 3 limbs x 1,000 x (2 sums of 2 experiments + 3 sums of a pair)
    21000
    """
    pairs = _n_pairs(request, n_experiments)
    # Signs have one replicate more: all of them are + in it.
    n = {kind: drawn.replicates + (kind != "bootstrap") for kind, drawn in resamplings(request).items()}
    of_each = {
        "bootstrap_arm": n_experiments * n.get("bootstrap", 0),
        "bootstrap_pair": pairs * n.get("bootstrap", 0),
        "flips": pairs * n.get("randomization", 0),
        "aa_paired": pairs * n.get("aa_check", 0),
        "aa_independent": pairs * n.get("aa_check", 0),
    }
    return measures.LIMBS * sum(measures.SHAPES[kind] * n for kind, n in of_each.items())


def refuse_too_many_replicates(request: Comparison, n_experiments: int, n_metrics: int) -> None:
    """Refuse what could not be held, before anything is resampled; segments come on top of it.

    Raises:
        ConfigError: Says how many sums there would be, and how many replicates can be had.
    """
    n, most = n_cells(request, n_experiments) * n_metrics, most_replicates(request)
    if n > measures.MOST_CELLS:
        numbers = {"most": most, "pairs": _n_pairs(request, n_experiments), "metrics": n_metrics, "n": n}
        cells = measures.MOST_CELLS
        raise err.ConfigError(measures.said("too_many_replicates", **numbers, cells=cells, fitting=most * cells // n))


def pairs_of(request: Comparison, experiments: Sequence[measures.Name]) -> tuple[st.Ints, st.Ints]:
    """Indices of baseline and candidate of every pair that these experiments form.

    Every pair starts with the baseline, then follows the order of the names.

    >>> [places.tolist() for places in pairs_of(Comparison("b"), ["a", "b", "c"])]
    [[1, 1], [0, 2]]
    >>> [places.tolist() for places in pairs_of(Comparison(pairs="all"), ["b", "a", None])]
    [[1, 1, 0], [0, 2, 2]]
    """
    first = [i for i, name in enumerate(experiments) if name is not None and name == request.baseline]
    rest = sorted(set(range(len(experiments))) - set(first), key=lambda i: (experiments[i] is None, experiments[i]))
    chosen = [i for i in rest if not request.candidates or experiments[i] in request.candidates]
    pairs = [(i, j) for i in first for j in chosen]
    if request.pairs == "all":
        ordered = [*first, *rest]
        pairs = [(i, j) for k, i in enumerate(ordered) for j in ordered[k + 1 :]]
    return np.array([i for i, _ in pairs], np.int64), np.array([j for _, j in pairs], np.int64)


def experiments_of(totals: measures.Totals) -> list[measures.Name]:
    """The experiments that have users, in the order of their names; None last."""
    kinds = ("arm", "untriggered", "shared")
    return by_name({key.candidate for key in totals.sums if key.kind in kinds and key.segment == sch.EVERYONE})


def by_name(experiments: Iterable[measures.Name]) -> list[measures.Name]:
    """Experiments in the order of their names; None last.

    >>> by_name(["b", None, "a"])
    ['a', 'b', None]
    """
    return sorted(experiments, key=lambda name: (name is None, name))


def refuse_unknown(names: Sequence[str | None], known: Sequence[measures.Name]) -> None:
    """Refuse the name of an experiment that has no users."""
    allowed = [str(name) for name in known]
    for name in names:
        if name is not None and name not in allowed:
            raise err.ConfigError(err.unknown("experiment", name, allowed))


def replicate_means(sums: st.Ints) -> st.Floats:
    """(r,) weighted means from weighted sums of values and of ones; NaN where nobody has a weight."""
    values, weights = st.weighted_totals(sums)
    return np.asarray(np.divide(values, weights, out=np.full(len(values), np.nan), where=weights > 0))


def row_keys(totals: measures.Totals, request: Comparison, known: Sequence[measures.Name]) -> list[measures.Key]:
    """One key per pair, segment and metric that one of the two experiments has, in this order."""
    cells: dict[measures.Name, dict[tuple[str, str], None]] = {}
    for key in totals.sums:
        if key.kind in ("arm", "untriggered", "shared"):
            cells.setdefault(key.candidate, {})[key.segment, key.metric] = None
    rows = []
    for i, j in zip(*pairs_of(request, known), strict=True):
        cells_of_pair = dict.fromkeys([*cells[known[i]], *cells[known[j]]])
        rows += [measures.Key("pair", known[i], known[j], segment, metric) for segment, metric in sorted(cells_of_pair)]
    return rows


def arm_moments(sums: st.Sums) -> st.Moments:
    """Moments of experiments; where means are over lists, those of the users' influence on them.

    A user's lists belong together, so the user stays the unit of every error: see ``statistics.RatioSums``.
    """
    return sums.moments("v", "n") if "v" in sums.measure.values else sums.ratio("y", "n").moments


def pair_moments(sums: st.Sums) -> st.PairMoments:
    """The same of the users of both experiments of pairs."""
    if sums.measure == measures.KINDS["pair"]:
        return st.PairMoments(*(sums.moments(name, "both") for name in "xyd"))
    shared = (sums[name] for name in ("xy", "xn", "my", "mn"))
    return st.moments_of_ratios(sums.ratio("x", "m"), sums.ratio("y", "n"), shared)
