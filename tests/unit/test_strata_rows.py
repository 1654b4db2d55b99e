"""Comparisons within strata, against least squares of statsmodels; where strata do not decide, and what people read."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rankmetrics_spark.comparison import UserRows, rows_of_clusters
from rankmetrics_spark.comparison.measures import Totals
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import verdict_of
from tests.helpers.users import METRIC, apart, one, table, user_rows

REQUEST = Comparison("a", strata=("country",))


def users(n: int = 60, m: int = 90, seed: int = 1, effect: float = 0.05) -> pd.DataFrame:
    """Users of two experiments, one of which has more of the users of the better strata; lists, and a last stratum."""
    rng = np.random.default_rng(seed)
    strata = {"a": rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05]), "b": rng.choice(4, m, p=[0.2, 0.3, 0.4, 0.1])}
    values = {name: 0.1 + 0.15 * of + rng.random(len(of)) * 0.3 for name, of in strata.items()}
    rows = apart(a=values["a"], b=values["b"] + effect).assign(list_count=rng.integers(1, 9, n + m))
    return rows.assign(stratum=[f"s{i}" for i in [*strata["a"], *strata["b"]]])


def fitted(rows: pd.DataFrame, lists: bool = False) -> tuple[float, float, float]:
    """The coefficient of the experiment beside dummies of the strata; its HC2 error, and the baseline's mean in these.

    The error is that of the same sum of the cells' means: those of a fit with a mean for each cell.
    """
    smf = pytest.importorskip("statsmodels.formula.api")
    data = rows.rename(columns={METRIC: "y"}).assign(b=(rows["experiment"] == "b").astype(float))
    weights = data["list_count"] if lists else np.ones(len(data))
    fit = smf.wls("y ~ b + C(stratum)", data, weights=weights).fit()
    cells = smf.wls("y ~ 0 + C(stratum):C(experiment)", data, weights=weights).fit(cov_type="HC2")
    sizes = data.assign(w=weights).pivot_table(index="stratum", columns="experiment", values="w", aggfunc="sum")
    q = sizes["a"] * sizes["b"] / (sizes["a"] + sizes["b"])
    signs = [(-1 if "[a]" in name else 1, name.split("[")[1].split("]")[0]) for name in cells.params.index]
    contrast = np.array([sign * q[stratum] / q.sum() for sign, stratum in signs])
    assert float(contrast @ cells.params) == pytest.approx(fit.params["b"], rel=1e-9)
    error = float(np.sqrt(contrast @ cells.cov_params() @ contrast))
    baseline = -float(np.minimum(contrast, 0) @ cells.params)
    return float(fit.params["b"]), error, baseline


@pytest.mark.parametrize("cluster", [False, True])
def test_a_row_is_least_squares_on_the_experiment_and_the_strata(cluster: bool) -> None:
    rows = users()
    if cluster:
        # Clusters of one user are users; those of several are tested below.
        row = one(rows.assign(list_count=1), REQUEST, cluster="home", mean_over="users")
    else:
        row = one(rows.drop(columns="list_count"), REQUEST)
    difference, error, baseline = fitted(rows)
    found = [row[f"strata_{name}"] for name in ("difference", "standard_error", "relative_difference")]
    assert found == pytest.approx([difference, error, difference / baseline], rel=1e-9)
    assert row["test"] == "strata" and row["p_adjusted"] == row["strata_p_value"]
    assert row["adjusted_ci_low"] == pytest.approx(row["strata_ci_low"]) and row["note"] is None
    # Satterthwaite's degrees of freedom, of each cell.
    groups, q = rows.groupby(["stratum", "experiment"])[METRIC], rows.groupby("stratum")["experiment"].value_counts()
    n = q.unstack()
    weight = (n["a"] * n["b"] / (n["a"] + n["b"])).pipe(lambda of: of / of.sum())
    parts = {key: weight[key[0]] ** 2 * of.var(ddof=1) / len(of) for key, of in groups}
    df = sum(parts.values()) ** 2 / sum(parts[key] ** 2 / (len(of) - 1) for key, of in groups)
    half = stats.t.ppf(0.975, df) * error
    bounds = [row["strata_ci_low"], row["strata_ci_high"]]
    assert bounds == pytest.approx([difference - half, difference + half], rel=1e-9)
    # The plain difference is another one, of other users.
    assert abs(row["difference"] - difference) > 0.05


def test_over_lists_each_stratum_has_the_ratio_of_its_users() -> None:
    rows = users()
    row = one(rows, REQUEST, mean_over="lists")
    difference, _, baseline = fitted(rows, lists=True)
    found = [row[f"strata_{name}"] for name in ("difference", "relative_difference")]
    assert found == pytest.approx([difference, difference / baseline], rel=1e-9)
    squared, sizes = 0.0, rows.pivot_table(index="stratum", columns="experiment", values="list_count", aggfunc="sum")
    q = (sizes["a"] * sizes["b"] / (sizes["a"] + sizes["b"])).pipe(lambda of: of / of.sum())
    for (stratum, _), of in rows.groupby(["stratum", "experiment"]):
        ratio = (of[METRIC] * of["list_count"]).sum() / of["list_count"].sum()
        z = (of[METRIC] - ratio) * of["list_count"] / of["list_count"].mean()
        squared += q[stratum] ** 2 * z.var(ddof=1) / len(of)
    assert row["strata_standard_error"] == pytest.approx(np.sqrt(squared), rel=1e-9)


def test_a_cluster_is_in_the_first_stratum_of_its_users() -> None:
    rows = user_rows(users(6, 6).assign(stratum=[*"zyxzyx", *"yzzyxx"]))
    home = np.array([1, 1, 0, 0, 2, 2, 3, 3, 4, 4, 5, 5])
    order = np.argsort(home, kind="stable")
    members = rows.take(order, user=home[order], member=rows.keys[rows.user][order], alone=np.zeros(12, bool))
    (clusters,) = rows_of_clusters(Totals(), UserRows(**{**vars(members), "keys": rows.keys[:6]}))
    names = np.array(rows.strata)[rows.stratum][order].reshape(6, 2)
    assert [rows.strata[i] for i in clusters.stratum] == [min(pair) for pair in names]


def test_strata_of_one_experiment_are_left_out_and_single_users_have_the_spread_of_the_others() -> None:
    rows = users().drop(columns="list_count")
    more = rows.assign(stratum=np.where(rows.index % 10 == 0, "only " + rows["experiment"], rows["stratum"]))
    row, kept = one(more, REQUEST), more[~more["stratum"].str.startswith("only")]
    assert row["note"] == f"without {len(rows) - len(kept)} users in strata of one experiment only"
    assert row["strata_difference"] == pytest.approx(fitted(kept)[0], rel=1e-9)
    # A stratum of one user of each: its share of the variance is that of all other users around their strata.
    single = pd.concat([rows, rows.iloc[[0, 100]].assign(user=["x", "y"], stratum="single")])
    row, cells = one(single, REQUEST), rows.groupby(["experiment", "stratum"])[METRIC]
    pooled = (cells.var(ddof=1) * (cells.size() - 1)).groupby("experiment").sum() / (cells.size() - 1).groupby(
        "experiment"
    ).sum()
    n = cells.size().unstack(0)
    weights = n["a"] * n["b"] / (n["a"] + n["b"])
    squared = fitted(rows)[1] ** 2 * weights.sum() ** 2 + 0.25 * pooled.sum()
    assert row["strata_standard_error"] == pytest.approx(np.sqrt(squared) / (weights.sum() + 0.5), rel=1e-9)
    nothing = one(rows.assign(stratum=rows["experiment"]), REQUEST)
    assert nothing["test"] == "welch" and nothing["note"] == (
        "strata are not used: no stratum has enough users of both experiments"
    )


def test_where_strata_do_not_decide_the_note_says_why() -> None:
    values = np.random.default_rng(3).random(40)
    paired = one(table({"a": values, "b": values[::-1]}).assign(stratum="s"), REQUEST)
    assert (paired["test"], paired["note"]) == ("paired t", "strata are not used: users are compared with themselves")
    assert np.isnan(paired["strata_difference"])
    few = np.r_[np.zeros(36), 0.3, 0.5, 0.7, 0.2]
    hard = one(apart(a=few, b=few * (few != 0.5)).assign(stratum="s"), REQUEST)
    assert hard["test"] == "permutation" and "strata are not used: permutation decides" in hard["note"]
    row = one(users().drop(columns="list_count"), REQUEST, primary=(parse(METRIC),))
    row |= {"experiment_id": "b", "baseline": "a", "metric": METRIC, "segment": "all"}
    said: Any = verdict_of([row], [parse(METRIC)])[0]
    assert "within strata" in said and f"{row['strata_difference']:+.4f}" in said
