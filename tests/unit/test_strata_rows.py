"""Comparisons within strata, against least squares of statsmodels and a loop over cells; where strata do not decide."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rankmetrics_spark import config as cfg, metrics as mx, report as rep
from rankmetrics_spark.comparison import UserRows, measures, rows_of_clusters
from tests.helpers.users import METRIC, apart, one, table, user_rows

REQUEST = cfg.Comparison("a", strata=("country",))


def users(n: int = 60, m: int = 90) -> pd.DataFrame:
    """Users of two experiments, one of which has more of the users of the better strata; and their lists."""
    rng = np.random.default_rng(1)
    strata = [rng.choice(4, size, p=p) for size, p in ((n, [0.5, 0.3, 0.15, 0.05]), (m, [0.2, 0.3, 0.4, 0.1]))]
    a, b = (0.1 + 0.15 * of + rng.random(len(of)) * 0.3 for of in strata)
    stratum = [f"s{i}" for i in np.concatenate(strata)]
    return apart(a=a, b=b + 0.05).assign(list_count=rng.integers(1, 9, n + m), stratum=stratum)


def expected(rows: pd.DataFrame, lists: bool = False) -> list[float]:
    """The coefficient of the experiment beside dummies of the strata, its error, its share and its bounds."""
    smf = pytest.importorskip("statsmodels.formula.api")
    data = rows.rename(columns={METRIC: "y"}).assign(b=(rows["experiment"] == "b").astype(float), w=1)
    data["w"] = data["list_count"] if lists else data["w"]
    difference = float(smf.wls("y ~ b + C(stratum)", data, weights=data["w"]).fit().params["b"])
    sizes = data.pivot_table(index="stratum", columns="experiment", values="w", aggfunc="sum")
    q = (sizes["a"] * sizes["b"] / (sizes["a"] + sizes["b"])).pipe(lambda of: of / of.sum())
    baseline, squared, freedom = 0.0, 0.0, 0.0
    for name, arm in data.groupby("experiment"):
        cells, spreads, single = [], [], 0.0
        for stratum, of in arm.groupby("stratum"):
            ratio = (of["y"] * of["w"]).sum() / of["w"].sum()
            baseline += q[stratum] * ratio * (name == "a")
            cells.append((q[stratum], len(of)))
            spreads.append((((of["y"] - ratio) * of["w"] / of["w"].mean()) ** 2).sum())
        left = sum(n - 1 for _, n in cells)
        for (weight, n), spread in zip(cells, spreads, strict=True):
            part = weight**2 / n * (spread / (n - 1) if n > 1 else sum(spreads) / left)
            squared += part
            freedom, single = freedom + (part**2 / (n - 1) if n > 1 else 0), single + part * (n == 1)
        freedom += single**2 / left
    half = stats.t.ppf(0.975, squared**2 / freedom) * np.sqrt(squared)
    return [difference, np.sqrt(squared), difference / baseline, difference - half, difference + half]


@pytest.mark.parametrize("lists", [False, True])
def test_a_row_is_least_squares_on_the_experiment_and_the_strata(lists: bool) -> None:
    log = users()
    if not lists:
        # A stratum of one user of each has the variance of the others around their strata.
        log = pd.concat([log, log.iloc[[0, 100]].assign(user=["x", "y"], stratum="single")]).drop(columns="list_count")
    row = one(log, REQUEST, mean_over="lists" if lists else "users")
    names = ("difference", "standard_error", "relative_difference", "ci_low", "ci_high")
    assert [row[f"strata_{name}"] for name in names] == pytest.approx(expected(log, lists), rel=1e-9)
    assert (row["test"], row["p_adjusted"], row["note"]) == ("strata", row["strata_p_value"], None)
    assert row["adjusted_ci_low"] == pytest.approx(row["strata_ci_low"])
    # The plain difference is another one, of other users; people read that within strata.
    assert abs(row["difference"] - row["strata_difference"]) > 0.05
    row |= {"experiment_id": "b", "baseline": "a", "metric": METRIC, "segment": "all"}
    said = rep.verdict_of([row], [mx.parse(METRIC)])[0]
    assert "within strata" in said and f"{row['strata_difference']:+.4f}" in said


def test_a_cluster_is_in_the_first_stratum_of_its_users() -> None:
    rows = user_rows(users(6, 6).assign(stratum=[*"zyxzyx", *"yzzyxx"]))
    home = np.array([1, 1, 0, 0, 2, 2, 3, 3, 4, 4, 5, 5])
    order = np.argsort(home, kind="stable")
    members = rows.take(order, user=home[order], member=rows.keys[rows.user][order], alone=np.zeros(12, bool))
    (clusters,) = rows_of_clusters(measures.Totals(), UserRows(**{**vars(members), "keys": rows.keys[:6]}))
    names = np.array(rows.strata)[rows.stratum][order].reshape(6, 2)
    assert [rows.strata[i] for i in clusters.stratum] == [min(pair) for pair in names]


def test_where_strata_leave_users_out_or_do_not_decide_the_note_says_so() -> None:
    rows, values = users().drop(columns="list_count"), np.random.default_rng(3).random(40)
    more = rows.assign(stratum=np.where(rows.index % 10 == 0, "only " + rows["experiment"], rows["stratum"]))
    row, kept = one(more, REQUEST), more[~more["stratum"].str.startswith("only")]
    assert row["note"] == f"without {len(rows) - len(kept)} users in strata of one experiment only"
    assert row["strata_difference"] == pytest.approx(expected(kept)[0], rel=1e-9)
    few = np.r_[np.zeros(36), 0.3, 0.5, 0.7, 0.2]
    # In each stratum b is lower, and over both it is higher.
    a, b = np.repeat([0.5, 0.1], [20, 80]), np.repeat([0.4, 0.05], [80, 20])
    # Of x 4 in 30 users have a hit in both, of y hardly any, and b has more of x.
    hits = np.repeat([1.0, 0.0, 1.0, 0.0] * 2, [4, 26, 2, 468, 16, 104, 2, 378])
    unlike = apart(a=hits[:500], b=hits[500:]).assign(stratum=np.repeat([*"xyxy"], [30, 470, 120, 380]))
    for of, test, note in (
        (unlike, "boschloo", "trustworthy: the experiments have unlike strata, which alone move the difference"),
        (rows.assign(stratum=rows["experiment"]), "welch", "not trustworthy: no stratum has several users of"),
        (apart(a=a, b=b).assign(stratum=np.where(np.r_[a, b] > 0.3, "x", "y")), "welch", "trustworthy: no stratum"),
        (apart(a=a[:20], b=b[:40]), "welch", "not used: all users of an experiment have one value; no interval"),
        (table({"a": values, "b": values[::-1]}), "paired t", "not used: users are compared with themselves"),
        (apart(a=few, b=few * (few != 0.5)), "permutation", "not used: permutation decides, since t does not hold"),
    ):
        row = one(of.assign(stratum=of.get("stratum", "s")), REQUEST)
        assert row["test"] == test and note in row["note"] and (row["better"] is None) == (len(of) != 60)
