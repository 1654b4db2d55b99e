"""Other systems on the same numbers: gbstats of GrowthBook and seqabpy over looks, tea-tasting for means over lists.

And pyndeval, which is ndeval of TREC, for metrics of intents, and ppi-python for labels of people and of a machine.
"""

import random

import numpy as np
import pytest

from rankmetrics_spark import statistics as st
from rankmetrics_spark.metrics import compute, parse, resolve
from tests.helpers.builders import batch_of
from tests.helpers.samples import ratio_sums
from tests.oracles import One

gbstats = pytest.importorskip("gbstats.frequentist.tests")
statistics = pytest.importorskip("gbstats.models.statistics")
gatsby = pytest.importorskip("seqabpy.gatsby")
pyarrow = pytest.importorskip("pyarrow")
tea_tasting = pytest.importorskip("tea_tasting")
pyndeval = pytest.importorskip("pyndeval")
ppi = pytest.importorskip("ppi_py")


def draws(seed: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 2_000, 2)
    return rng.gamma(2, 1, sizes[0]).tolist(), (rng.gamma(2, 1, sizes[1]) + 0.3).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tuning_users", [100, 5_000])
@pytest.mark.parametrize("relative", [False, True])
def test_interval_and_p_value_are_those_of_gbstats(seed: int, tuning_users: int, relative: bool) -> None:
    both = draws(seed)
    a, b = (
        statistics.SampleMeanStatistic(n=len(x), sum=float(np.sum(x)), sum_squares=float(np.square(x).sum()))
        for x in both
    )
    config = gbstats.SequentialConfig(
        difference_type="relative" if relative else "absolute", sequential_tuning_parameter=tuning_users
    )
    expected = gbstats.SequentialTwoSidedTTest(a, b, config).compute_result()
    # Its sequences count on normal errors: ours have the same bounds where t has many degrees of freedom.
    arms = [st.Moments.of(each) for each in both]
    b, c = (each.mean for each in arms)
    of_b, of_c = (each.variance / len(values) for each, values in zip(arms, both, strict=True))
    error = np.sqrt(c**2 / b**2 * of_b + of_c) / b if relative else np.sqrt(of_b + of_c)
    single = st.Estimate.of(c / b - 1 if relative else c - b, error, np.full(1, 1e12), 0.95)
    result = st.over_looks(single, len(both[0]) + len(both[1]), st.AnyLook(tuning_users, 0.05), 0.95)
    assert [result.ci_low[0], result.ci_high[0]] == pytest.approx(expected.ci, rel=1e-9)
    assert result.p_value[0] == pytest.approx(expected.p_value, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("fractions", [(0.3, 0.6, 1.0), (0.2, 0.4, 0.6, 0.8, 1.0)])
@pytest.mark.parametrize(("spending", "number"), [("obrien_fleming", 1), ("pocock", 2)])
def test_bounds_are_those_of_seqabpy(fractions: tuple[float, ...], spending: str, number: int) -> None:
    expected = gatsby.ldBounds(np.array(fractions), iuse=number, alpha=0.025)
    bounds = next(np.asarray(each) for n, each in expected.items() if "upper" in n.lower() or "bound" in n.lower())
    # It integrates on a grid: four digits.
    assert st.spending_bounds(fractions, 0.025, spending) == pytest.approx(bounds, abs=1e-4)


def test_the_bound_is_that_of_confseq() -> None:
    boundaries = pytest.importorskip("confseq.boundaries", reason="it has no wheel for this Python")
    v = np.array([50.0, 100.0, 1_000.0])
    expected = boundaries.normal_mixture_bound(v, alpha=0.05, v_opt=100, alpha_opt=0.05, is_one_sided=False)
    assert st.always_valid_bound(v, st.mixture_rho(100, 0.05), 0.05) * np.sqrt(v) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_means_over_lists_are_the_ratio_of_means_of_tea_tasting(seed: int, confidence: float) -> None:
    rng, columns = np.random.default_rng(seed), dict[str, list[float]](variant=[], y=[], n=[])
    sums = []
    for variant, users in enumerate(rng.integers(40, 900, 2).tolist()):
        # Heavy users, who are better served.
        lists = np.ceil(rng.pareto(2.5, users) * 3 + 0.01)
        values = np.clip(0.3 + 0.03 * variant + 0.1 * np.log(lists) + rng.normal(0, 0.1, users), 0, None)
        sums.append(ratio_sums(values, lists))
        for name, each in (("variant", np.full(users, variant)), ("y", values * lists), ("n", lists)):
            columns[name] += each.tolist()
    metric = tea_tasting.RatioOfMeans("y", "n", equal_var=False, use_t=True, confidence_level=confidence)
    expected = tea_tasting.Experiment(mean=metric).analyze(pyarrow.table(columns))["mean"]
    arms = [each.moments for each in sums]
    result = st.welch(*arms, confidence)
    assert (arms[0].mean[0], arms[1].mean[0]) == pytest.approx((expected.control, expected.treatment), rel=1e-12)
    assert result.p_value[0] == pytest.approx(expected.pvalue, rel=1e-8)
    bounds = (expected.effect_size_ci_lower, expected.effect_size_ci_upper)
    assert (result.ci_low[0], result.ci_high[0]) == pytest.approx(bounds, rel=1e-9)
    assert result.difference[0] / arms[0].mean[0] == pytest.approx(expected.rel_effect_size, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_means_of_both_labels_are_those_of_ppi_python(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, size = rng.integers(20, 200, 2).tolist()
    truth = rng.beta(2, 3, n + size)
    machine = truth + rng.normal(0.05, 0.15, n + size)
    h, f, rest = truth[:n], machine[:n], machine[n:]
    others = st.Others(size, float(rest.mean()), float(rest.var(ddof=1)))
    # Its covariance and its variances of means divide by n, and its intervals are those of a normal.
    own = st.slopes(h, f, others, leave_out=False) * (n - 1) / n
    for slope, lam in ((own, None), (own, own[0]), (np.full(n, 0.3), 0.3), (np.ones(n), 1)):
        ours = st.corrected(h, f, others, slope)
        assert ours.mean == pytest.approx(float(ppi.ppi_mean_pointestimate(h, f, rest, lam=lam)[0]), rel=1e-12)
        (of_others, _), (of_judged, _) = ours.parts
        error = np.sqrt(of_others * (size - 1) / size + of_judged * (n - 1) / n)
        low, high = (float(np.squeeze(bound)) for bound in ppi.ppi_mean_ci(h, f, rest, alpha=0.05, lam=lam))
        assert (high - low) / 2 == pytest.approx(1.959963984540054 * error, rel=1e-9)
        assert (high + low) / 2 == pytest.approx(ours.mean, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 0.25, 0.75])
@pytest.mark.parametrize("level", [1, 2])
def test_metrics_of_intents_are_those_of_ndeval(alpha: float, level: int) -> None:
    rng = random.Random(f"{alpha} {level}")
    ones, qrels, run = [], [], []
    for query in map(str, range(300)):
        grades = {
            f"d{n}": {s: rng.choice([0, 0, 1, 2]) for s in rng.sample("stuvwxyz", rng.randint(0, 5))} for n in range(30)
        }
        judged = {item: of for item, of in grades.items() if of and rng.random() < 0.8}
        shown = rng.sample(sorted(grades), rng.randint(1, 25))
        qrels += [(query, name, item, grade) for item, of in judged.items() for name, grade in of.items()]
        run += [(query, item, -float(rank)) for rank, item in enumerate(shown)]
        ones.append(
            One(
                tuple(float(max(judged[item].values())) if item in judged else np.nan for item in shown),
                tuple(float(max(of.values())) for of in judged.values()),
                items=tuple(shown),
                intents=tuple(tuple(judged.get(item, {}).items()) for item in shown),
                judged=tuple((item, tuple(of.items())) for item, of in judged.items()),
            )
        )
    cuts = (1, 2, 5, 10, 20)
    names = {f"alpha-nDCG@{k}": f"alpha_ndcg(alpha={alpha})@{k}" for k in cuts}
    if alpha == 0.5:
        # At 1, ndeval leaves ERR-IA undivided: it is the number of intents that the first item covers.
        names |= {f"ERR-IA@{k}": f"err_ia@{k}" for k in cuts[1:]}
    peer = pyndeval.RelevanceEvaluator(qrels, list(names), relevance_level=level, alpha=alpha)
    theirs = peer.evaluate(run)
    result = compute(batch_of(*ones), [parse(name) for name in names.values()], resolve({"relevant_from": level}))
    expected = [[theirs[str(query)][name] for name in names] for query in range(len(ones))]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)
    assert np.mean(result) > 0.2
