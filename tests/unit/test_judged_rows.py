"""Rows of ``comparisons`` with labels of people for some users and of a machine for all: golden values, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rankmetrics_spark import comparison as cmp, statistics as st
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError
from tests.helpers.users import METRIC, PAIR, apart, compared, question, table, totals_of, user_rows
from tests.unit.test_machine_labels import QUERIES

Floats = Any


def with_machine(users: pd.DataFrame, machine: Floats) -> pd.DataFrame:
    return users.assign(**{f"machine {METRIC}": machine, "relevant": True})


def judged(n: int, others: int, seed: int = 0, noise: float = 0.1, **arms: float) -> pd.DataFrame:
    """Users of both experiments whose machine labels are noisy; ``arms`` are what is added to each experiment."""
    rng = np.random.default_rng(seed)
    size = n + others
    base = rng.beta(2, 3, size)
    people = {name: base + rng.normal(0, 0.2, size) + shift for name, shift in (arms or {"a": 0, "b": 0.05}).items()}
    machine = np.concatenate([each + rng.normal(0.02, noise, size) for each in people.values()])
    hidden = {name: np.where(np.arange(size) < n, each, np.nan) for name, each in people.items()}
    return with_machine(table(hidden), machine)


def row_of(users: pd.DataFrame, **asked: Any) -> dict[str, Any]:
    return compared(users, Comparison("a"), machine=True, **asked)[PAIR]


def test_the_golden_values_without_a_verdict_of_so_few() -> None:
    users = with_machine(table({"a": QUERIES[:, 0], "b": QUERIES[:, 1]}), QUERIES[:, 2:].T.ravel())
    row = row_of(users)
    human = [row[f"{name}_human"] for name in ("mean_baseline", "mean_candidate", "difference", "standard_error")]
    assert human == pytest.approx([0.47992500000000005, 0.5328625, 0.0529375, 0.021677275276031742], rel=1e-12)
    machine = [row[f"{name}_machine"] for name in ("mean_baseline", "mean_candidate", "difference")]
    assert machine == pytest.approx([0.5135458333333333, 0.6666291666666666, 0.15308333333333335], rel=1e-12)
    assert (row["n_judged"], row["n_users"], row["note"]) == (8, 24, "people judged 8 users, and a verdict needs 20")
    assert np.isnan([row[name] for name in ("standard_error", "p_value", "ci_low", "p_adjusted")]).all()
    assert (row["lambda"], row["test"], row["better"]) == (0, None, None)


def test_the_golden_values_of_the_rule_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_JUDGED", "LEAST_DIFFERENT"):
        monkeypatch.setattr(f"rankmetrics_spark.statistics.machine_labels.{name}", 8)
    monkeypatch.setattr("rankmetrics_spark.statistics.LEAST_JUDGED", 8)
    users = with_machine(table({"a": QUERIES[:, 0], "b": QUERIES[:, 1]}), QUERIES[:, 2:].T.ravel())
    row = row_of(users)
    names = ("mean_baseline", "mean_candidate", "difference", "standard_error", "p_value")
    golden = (0.4948375674126067, 0.5133625795805324, 0.03449862613717909, 0.01728681885345687, 0.07098485065389823)
    assert [row[name] for name in names] == pytest.approx(golden, rel=1e-12)


def slow_mean(h: Floats, f: Floats, others: Floats) -> tuple[float, float, float]:
    """Mean, squared error and degrees of freedom, one query at a time."""
    n, size = len(h), len(others)
    slopes = [
        np.clip(np.cov(np.delete(h, i), np.delete(f, i))[0, 1]
                / ((1 + n / size) * np.var(np.r_[np.delete(f, i), others], ddof=1)), 0, 1)
        for i in range(n)
    ]  # fmt: skip
    errors = [hi - slope * (fi - others.mean()) for hi, fi, slope in zip(h, f, slopes, strict=True)]
    parts = (np.mean(slopes) ** 2 * np.var(others, ddof=1) / size, size - 1), (np.var(errors, ddof=1) / n, n - 1)
    squared = parts[0][0] + parts[1][0]
    return float(np.mean(errors)), squared, squared**2 / sum(part**2 / df for part, df in parts)


def assert_bias(row: dict[str, Any], off: list[Floats], alike: Any) -> None:
    """The machine's bias with the p-values of SciPy, of each side and that they are ``alike``."""
    own = {} if alike is stats.ttest_rel else {"equal_var": False}
    known = [stats.ttest_1samp(each, 0).pvalue for each in off] + [alike(*off, **own).pvalue]
    sides = ("_baseline_machine", "_candidate_machine", "_machine")
    assert [row[f"p_bias{side}"] for side in sides] == pytest.approx(known, rel=1e-9)
    assert [row[f"bias{side}"] for side in sides[:2]] == pytest.approx([each.mean() for each in off], rel=1e-12)


def test_independent_errors_are_added_with_four_degrees_of_freedom_in_welchs_way() -> None:
    rng = np.random.default_rng(1)
    truth = [rng.beta(2, 3, 200), rng.beta(2, 3, 300) + 0.1]
    machine = [each + rng.normal(0.05, 0.1, len(each)) for each in truth]
    n = (30, 40)
    hidden = [np.where(np.arange(len(each)) < k, each, np.nan) for each, k in zip(truth, n, strict=True)]
    row = row_of(with_machine(apart(a=hidden[0], b=hidden[1]), np.concatenate(machine)))
    each = [slow_mean(h[:k], f[:k], f[k:]) for h, f, k in zip(truth, machine, n, strict=True)]
    error = np.sqrt(each[0][1] + each[1][1])
    assert row["difference"] == pytest.approx(each[1][0] - each[0][0], rel=1e-12)
    assert row["standard_error"] == pytest.approx(error, rel=1e-12)
    parts = [st.corrected(h[:k], f[:k], st.Others(len(f) - k, f[k:].mean(), f[k:].var(ddof=1))).parts
             for h, f, k in zip(truth, machine, n, strict=True)]  # fmt: skip
    df = error**4 / sum(part**2 / of for side in parts for part, of in side)
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(row["difference"]) / error, df), rel=1e-9)
    assert (row["n_judged_baseline"], row["n_judged_candidate"], row["n_judged"]) == (30, 40, 70)
    assert_bias(row, [f[:k] - h[:k] for h, f, k in zip(truth, machine, n, strict=True)], stats.ttest_ind)
    assert 0 < row["lambda_baseline"] < 1 and np.isnan(row["lambda"])


def test_paired_rows_test_the_differences_of_users() -> None:
    users = judged(40, 400)
    a, b = (users[users["experiment"] == name] for name in "ab")
    h, f = (b[name].to_numpy() - a[name].to_numpy() for name in (METRIC, f"machine {METRIC}"))
    mean, squared, df = slow_mean(h[:40], f[:40], f[40:])
    row = row_of(users)
    p = 2 * stats.t.sf(abs(mean) / np.sqrt(squared), df)
    assert_bias(row, [(arm[f"machine {METRIC}"] - arm[METRIC]).to_numpy()[:40] for arm in (a, b)], stats.ttest_rel)
    numbers = [row[name] for name in ("difference", "standard_error", "p_value")]
    assert numbers == pytest.approx([mean, np.sqrt(squared), p], rel=1e-9)
    assert row["standard_error"] < row["standard_error_human"]
    assert row["relative_difference"] == pytest.approx(mean / row["mean_baseline"], rel=1e-12)
    assert (row["relative_ci_low"] > 0) == (row["ci_low"] > 0)


@pytest.mark.parametrize("design", ["paired", "independent"])
def test_the_mean_of_these_queries_has_the_errors_of_the_judged_ones_alone(design: str) -> None:
    users = judged(40, 160)
    if design == "independent":
        users["user"] += users["experiment"]
    values = [users[users["experiment"] == name][[METRIC, f"machine {METRIC}"]].to_numpy().T for name in "ab"]
    parts = values if design == "independent" else [values[1] - values[0]]
    squared = 0.0
    for h, f in parts:
        slopes = st.slopes(h[:40], f[:40], st.Others(160, f[40:].mean(), f[40:].var(ddof=1)))
        # N / (n + N) * var(h - lambda * (1 + n / N) * f) / n, of f around the mean of the others.
        squared += 160 / 200 * np.var(h[:40] - slopes * (1 + 40 / 160) * (f[:40] - f[40:].mean()), ddof=1) / 40
    row, usual = row_of(users, design=design, target="these_queries"), row_of(users, design=design)
    assert row["standard_error"] == pytest.approx(np.sqrt(squared), rel=1e-9)
    assert row["difference"] == usual["difference"] and row["standard_error"] < usual["standard_error"]


@pytest.mark.parametrize(
    ("users", "says"),
    [
        (judged(40, 400, noise=9.0), "agree too little"),
        (judged(40, 0), "every user is judged"),
        (judged(19, 400), "people judged 19 users, and a verdict needs 20"),
    ],
)
def test_people_alone_decide_where_the_machine_does_not_help(users: pd.DataFrame, says: str) -> None:
    row = row_of(users)
    assert says in row["note"] and row["lambda"] == 0
    assert row["difference"] == pytest.approx(row["difference_human"], rel=1e-12)
    if "verdict" not in says:
        assert row["p_value"] == pytest.approx(row["p_value_human"], rel=1e-9)


def test_a_judge_that_differs_in_few_users_is_not_used() -> None:
    users = judged(100, 900, noise=0.0)
    same = users[METRIC].where(users[METRIC].notna(), users[f"machine {METRIC}"])
    wrong = np.where(np.arange(len(users)) % 1000 < 9, 0.5, 0.0) * (users["experiment"] == "b")
    row = row_of(with_machine(users, same + wrong))
    assert row["lambda"] == 0 and "fewer than 10 judged users" in row["note"]


def test_the_machine_alone_would_have_called_a_winner() -> None:
    users = judged(50, 2000, a=0.0, b=0.0)
    rated = users[f"machine {METRIC}"] + np.where(users["experiment"] == "b", 0.05, 0.0)
    row = row_of(with_machine(users, rated))
    assert row["better"] is None and row["p_value_machine"] < 1e-4
    assert row["note"] == "labels of the machine alone would have shown that b is higher"


def test_people_who_judged_users_of_both_sides_give_no_verdict_of_independent_rows() -> None:
    row = row_of(judged(50, 300), design="independent")
    assert row["note"] == "people judged 50 users of both experiments, whose errors belong together (design: paired)"
    assert np.isnan(row["p_adjusted"])


def test_more_judged_users_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankmetrics_spark.comparison.measures.MOST_JUDGED", 30)
    with pytest.raises(ConfigError, match="people judged more than 30 users of b; allowed"):
        row_of(judged(40, 400))


def test_order_and_parts_of_the_users_change_no_bit() -> None:
    users = judged(60, 300, seed=4)
    request = question(Comparison("a"), machine=True)
    whole = cmp.comparison_rows(totals_of(user_rows(users), request.request), {}, request)
    names = users["user"].unique()
    for seed in range(3):
        totals = cmp.Totals()
        for part in np.array_split(np.random.default_rng(seed).permutation(names), 4):
            rows = users[users["user"].isin(part)].sample(frac=1, random_state=seed)
            for key, sums in totals_of(user_rows(rows), request.request).sums.items():
                totals.add(key, sums)
        again = cmp.comparison_rows(totals, {}, request)
        for name, values in whole.items():
            assert np.array_equal(again[name], values) or again[name] == values or np.isnan(values[0]), name
