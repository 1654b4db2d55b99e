"""Rows for which t does not hold: which test decides, its p-value and its interval, against SciPy and slow loops."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from rankmetrics_spark import comparison as cmp, config as cfg, statistics as st
from rankmetrics_spark.comparison import measures, sums as sums_by_key
from tests.helpers.users import METRIC, apart, by_key, deciding_p, one, question, table, totals_of, user_rows


def sparse(n: int, hits: int, seed: int, top: float = 1.0) -> Any:
    """Values of n users, so many of them with a hit."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.r_[np.zeros(n - hits), top * (0.05 + rng.random(hits) ** 2)])


def studentised(a: Any, b: Any) -> float:
    error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return float((b.mean() - a.mean()) / error) if error else 1e9 * np.sign(round(b.mean() - a.mean(), 9))


def test_the_permutation_is_that_of_every_way_to_choose_the_users() -> None:
    mixed = [0, 0, 0.3, 0, 0, 0.2, 0], [0.5, 0, 0.9, 0.4, 0]
    for arms in (mixed, ([0, 0, 0, 0], [1, 0.5, 0.25, 0.5]), ([0, 0.5, 0.5], [0.5] * 6)):
        a, b = (np.array(arm, float) for arm in arms)
        pool, found = np.r_[a, b], studentised(a, b)
        chosen = combinations(range(len(pool)), len(b))
        ways = [studentised(np.delete(pool, places), pool[[*places]]) for places in chosen]
        tails = [np.mean(side * np.array(ways) >= side * found - 1e-9) for side in (1, -1)]
        p = st.permuted_p(a[a != 0], b[b != 0], (len(a), len(b)))
        assert p == pytest.approx(min(1, 2 * min(tails)), abs=8 * np.sqrt(min(tails) / 2**13) + 1e-3)
    # The order of the users changes no bit.
    assert st.permuted_p(a[::-1][a[::-1] != 0], b[b != 0], (3, 6)) == p
    # Where all but the heaviest ones are in the sums: for so many alike values, t holds.
    a, b = (np.random.default_rng(n).random(n) for n in (900, 1800))
    b += 0.025 + a.mean() - b.mean()
    p = st.permuted_p(np.sort(a)[-512:], np.sort(b)[-512:], (900, 1800), np.array([[v.sum(), v @ v] for v in (a, b)]))
    assert p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=0.1)


def test_sign_flips_are_all_of_them() -> None:
    d = np.random.default_rng(1).normal(0.3, 1, 11).round(1)
    d = d[d != 0]
    exact = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert st.flipped_p(d) == pytest.approx(exact.pvalue, rel=1e-12)


TABLES = [((0, 3), (5, 5)), ((0, 10), (30, 30)), ((3, 6), (12, 7)), ((20, 11), (20, 20)), ((9, 2), (60, 90))]


@pytest.mark.parametrize(("hits", "n"), TABLES)
def test_boschloos_p_is_that_of_scipy(hits: tuple[int, int], n: tuple[int, int]) -> None:
    others = [size - hit for hit, size in zip(hits, n, strict=True)]
    # SciPy looks at all common rates, also at those that the hits exclude.
    assert st.boschloo_p(hits, n) == pytest.approx(stats.boschloo_exact([[*hits], others]).pvalue, rel=0.04, abs=3e-6)
    assert st.boschloo_p(hits, n) == pytest.approx(st.boschloo_p(hits[::-1], n[::-1]), rel=1e-9)


def test_bounds_of_rates_and_moments_are_those_of_other_libraries() -> None:
    proportions = pytest.importorskip("statsmodels.stats.proportion")
    for hits, n in (((56, 48), (70, 80)), ((0, 3), (20, 40))):
        low, high = proportions.confint_proportions_2indep(hits[1], n[1], hits[0], n[0], method="newcomb")
        assert [float(bound) for bound in st.newcombe(hits, n, 0.05)] == pytest.approx([low, high], rel=1e-9)
    values = np.random.default_rng(2).random(30) ** 4
    cubes = np.array([sum(round(v**3 * 2**60) for v in values)], object)
    assert st.third_cumulant(st.Moments.of(values), cubes)[0] == pytest.approx(stats.kstat(values, 3), rel=1e-9)
    t, g = np.linspace(-6, 6, 25), np.linspace(-0.9, 0.9, 25)
    assert st.bent(st.straightened(t, g), g) == pytest.approx(t, abs=1e-12)


RATES = np.repeat([0.0, 1.0], [36, 4]), np.repeat([0.0, 1.0], [300, 60])


@pytest.mark.parametrize(
    ("arms", "design", "test"),
    [
        ((sparse(40, 3, 1), sparse(360, 40, 2)), "independent", "permutation"),
        (RATES, "independent", "boschloo"),
        ((1 - RATES[0], 1 - RATES[1]), "independent", "boschloo"),
        ((sparse(400, 40, 3), sparse(3600, 400, 4)), "independent", "permutation"),
        ((sparse(400, 40, 3), sparse(400, 60, 4)), "independent", "welch"),
        ((sparse(90, 9, 5), sparse(90, 8, 6)), "paired", "sign flips"),
        ((sparse(90, 30, 5), sparse(90, 20, 6)), "paired", "paired t"),
        # Most users have a hit, or differ, in experiments of equal size: the interval of t holds for few of them, too.
        ((0.2 + sparse(12, 12, 1), 0.1 + sparse(12, 12, 2)), "independent", "permutation"),
        ((0.2 + sparse(12, 12, 1), 0.1 + sparse(12, 12, 2)), "paired", "sign flips"),
        # More values than are kept: the heaviest ones are.
        ((sparse(300, 6, 1), sparse(12_000, 600, 2)), "independent", "permutation"),
    ],
)
def test_the_row_says_which_test_decides_and_has_its_numbers(arms: Any, design: str, test: str) -> None:
    a, b = arms
    row = one(table({"a": a, "b": b}) if design == "paired" else apart(a=a, b=b), design=design)
    assert row["test"] == test
    few = test in ("permutation", "sign flips") and len(b) not in (12, 3600)
    p, (low, high) = deciding_p(row), (row["adjusted_ci_low"], row["adjusted_ci_high"])
    assert np.isnan(low) == few and (row["better"] is not None) == (p < 0.05)
    assert ("sparse_p_value" in row) is (test not in ("welch", "paired t"))
    if few:
        who = "users whose values differ, and 16 are" if design == "paired" else "users with a hit expected"
        assert f"no interval before 20 {who}" in row["note"] and np.isnan(row["adjusted_relative_ci_low"])
    else:
        assert row["note"] is None and (low > 0 or high < 0) == (p < 0.05)
    if test == "permutation":
        p = st.permuted_p(a[a != 0], b[b != 0], (len(a), len(b)))
        assert row["sparse_p_value"] == (p if len(b) < 10_000 else pytest.approx(p, abs=0.02))
    elif test == "sign flips":
        assert row["sparse_p_value"] == st.flipped_p((b - a)[b != a])
    elif test == "boschloo":
        assert row["sparse_p_value"] == st.boschloo_p((int(a.sum()), int(b.sum())), (len(a), len(b)))
        wide = [float(bound) for bound in st.newcombe((a.sum(), b.sum()), (len(a), len(b)), 0.05)]
        assert [row["sparse_ci_low"], row["sparse_ci_high"]] == pytest.approx(wide)


def halls(a: Any, b: Any, share: float = 0.0, shift: float = 0.0, baseline: Any = None) -> float:
    """The one-sided p of b - (1 + share) a - shift > 0 by Hall's transformation, with SciPy's moments of both."""
    pool, n = np.r_[a, b], (len(a), len(b))
    g = stats.kstat(pool, 3) * (1 / n[1] ** 2 - 1 / n[0] ** 2) / (pool.std(ddof=1) * np.sqrt(1 / n[0] + 1 / n[1])) ** 3
    scaled = (1 + share) * a
    df = stats.ttest_ind(b, a if baseline is None else scaled, equal_var=False).df
    t = (b.mean() - scaled.mean() - shift) / np.sqrt(scaled.var(ddof=1) / n[0] + b.var(ddof=1) / n[1])
    return float(stats.t.sf(t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6, df))


def test_halls_interval_and_margins_are_what_his_test_does_not_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy", minversion="1.11")  # has degrees of freedom
    a, b = sparse(300, 60, 7), sparse(2400, 560, 8)
    row = one(apart(a=a, b=b), design="independent", margin={METRIC: 0.05})
    below, above = row["difference"] - row["sparse_ci_low"], row["sparse_ci_high"] - row["difference"]
    assert row["test"] == "permutation" and abs(below / above - 1) > 0.02
    p = st.permuted_p(a[a != 0], b[b != 0], (len(a), len(b)))
    assert row["sparse_p_value"] == pytest.approx(p, abs=0.02)
    for name, start, tail in (("ci_low", -1, 0.025), ("ci_high", -1, 0.975)):
        root = optimize.brentq(lambda shift, tail=tail: halls(a, b, shift=shift) - tail, start, 1)
        assert row[f"sparse_{name}"] == pytest.approx(root, rel=1e-9)
        root = optimize.brentq(lambda share, tail=tail: halls(a, b, share) - tail, start, 3)
        assert row[f"sparse_relative_{name}"] == pytest.approx(root, rel=1e-9)
    assert row["p_no_worse"] == pytest.approx(halls(a, b, shift=-0.05), rel=1e-9)
    assert row["worst_case"] == pytest.approx(-row["sparse_ci_low"], rel=1e-12)
    relative = one(apart(a=a, b=b), design="independent", margin={METRIC: "10%"})
    assert relative["p_no_worse"] == pytest.approx(halls(a, b, -0.1, baseline=a), rel=1e-6)
    monkeypatch.setattr(measures, "HEAVIEST", ())
    alone = one(apart(a=a, b=b), design="independent")
    assert (alone["test"], alone["sparse_ci_low"]) == ("hall", row["sparse_ci_low"])
    assert alone["sparse_p_value"] == pytest.approx(2 * min(halls(a, b), 1 - halls(a, b)), rel=1e-9)
    few = one(apart(a=sparse(40, 3, 1), b=sparse(360, 40, 2)), margin={METRIC: 0.5})
    assert few["within_margin"] is None and np.isnan([few["p_no_worse"], few["worst_case"]]).all()


def test_few_hits_over_lists_are_permuted_with_the_lists_of_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sparse(40, 3, 1), sparse(360, 40, 2)
    users = apart(a=a, b=b).assign(list_count=1.0 + np.arange(400) % 3)
    row, lists = one(users, mean_over="lists"), users["list_count"].to_numpy()
    units = np.stack([np.r_[a, b] * lists, lists], axis=1)
    assert row["test"] == "permutation" and row["sparse_p_value"] == st.permuted_p(units[:40], units[40:])
    assert "no interval before 20 users with a hit expected" in row["note"] and np.isnan(row["adjusted_ci_low"])
    # More users than are kept: with as many lists each, the test is that of means over users.
    a, b = sparse(300, 60, 7), sparse(2400, 560, 8)
    many = apart(a=a, b=b).assign(list_count=2.0)
    row, over_users = one(many, mean_over="lists"), one(many)
    assert row["test"] == over_users["test"] == "permutation"
    assert row["sparse_p_value"] == pytest.approx(over_users["sparse_p_value"], abs=0.01)
    assert row["sparse_ci_low"] == pytest.approx(over_users["sparse_ci_low"])
    assert one(many, mean_over="lists", looks="any")["test"] == "welch"
    # Nobody is kept, as in segments: Hall's test is that of means over users, too.
    monkeypatch.setattr(measures, "HEAVIEST", ())
    row, over_users = one(many, mean_over="lists"), one(many)
    assert (row["test"], row["sparse_p_value"]) == ("hall", pytest.approx(over_users["sparse_p_value"]))


def test_several_looks_clusters_and_cuped_have_their_rules() -> None:
    a, b = sparse(120, 15, 1), sparse(360, 60, 2)
    users = apart(a=a, b=b).assign(**{f"{kind} {METRIC}": np.r_[a, b] + 0.1 for kind in ("before", "own")})
    row = one(users, earlier=True)
    assert row["test"] == "permutation" and "CUPED is not used: permutation decides" in row["note"]
    rng = np.random.default_rng(3)
    skewed = apart(a=rng.exponential(size=30), b=rng.exponential(size=300))
    for of in (users, skewed):
        looked = one(of, looks="any", margin={METRIC: 0.1})
        assert looked["test"] == "permutation" and looked["sparse_p_value"] < looked["p_sequential"]
        # Only the p-value goes over looks: there are no bounds, and so nothing is said of a margin.
        none = ("sequential_ci_low", "adjusted_ci_high", "p_no_worse", "minimum_detectable_effect", "users_needed")
        assert np.isnan([looked[name] for name in none]).all()


def test_values_are_kept_where_they_are_few_whatever_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    users = table({"a": sparse(90, 25, 1), "b": sparse(90, 14, 2)})
    users["country"] = [f"c{i % 90 % 2}" for i in range(len(users))]
    request = cfg.Comparison("a", design="independent")

    def rows(parts: int) -> Any:
        some = users["user"].map(lambda name: int(name[1:]) % parts)
        sent = [
            batch
            for i in range(parts)
            for batch in sums_by_key.as_batches(totals_of(user_rows(users[some == i], segments=("country",)), request))
        ]
        return by_key(cmp.comparison_rows(sums_by_key.read(sent[::-1]), question(request)))

    found = [rows(parts) for parts in (1, 4)]
    tests = {key[2]: row["test"] for key, row in found[0].items()}
    assert tests == dict.fromkeys(("all", "country=c0", "country=c1"), "permutation")
    assert [row["sparse_p_value"] for row in found[0].values()] == [row["sparse_p_value"] for row in found[1].values()]
    # 25 values in the segments of a are too many now.
    monkeypatch.setattr(measures, "MOST_IN_SEGMENTS", 24)
    for parts in (1, 4):
        assert [row["test"] for row in rows(parts).values()] == ["permutation", "hall", "hall"]
