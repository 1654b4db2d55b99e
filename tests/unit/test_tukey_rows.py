"""Tukey's correction for all pairs, and the letters that say which are above which."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, document, print_result, verdict_of
from rankmetrics_spark.statistics import tukey_levels, tukey_p_values
from tests.helpers.users import apart, compared, deciding_p, table

ARMS = {"control": (0.2, 0.3, 40), "b": (0.5, 0.1, 25), "c": (0.32, 0.2, 33), "d": (0.2, 0.35, 60)}
"""Experiment -> mean and deviation of its users, and how many they are."""


def users(seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(mean, deviation, n) for name, (mean, deviation, n) in ARMS.items()}


def rows_of(arms: dict[str, Any], **rules: Any) -> list[dict[str, Any]]:
    return [*compared(apart(**arms), correction="tukey", roles={"ap@10": "primary"}, **rules).values()]


def test_different_users_have_the_p_values_and_intervals_of_scipy() -> None:
    arms = users()
    names = [*arms]
    expected = stats.tukey_hsd(*arms.values(), equal_var=False)
    bounds = expected.confidence_interval(0.95)
    rows = rows_of(arms)
    assert len(rows) == 6 and {row["n_comparisons"] for row in rows} == {6}
    for row in rows:
        place = names.index(row["experiment_id"]), names.index(row["baseline"])
        assert row["p_adjusted"] == pytest.approx(expected.pvalue[place], rel=1e-7, abs=1e-11)
        assert row["adjusted_ci_low"] == pytest.approx(bounds.low[place], rel=1e-6)
        assert row["adjusted_ci_high"] == pytest.approx(bounds.high[place], rel=1e-6)


@pytest.mark.parametrize("k", [2, 3, 10, 50])
@pytest.mark.parametrize("df", [2.0, 5.0, 37.5, 900.0])
def test_p_values_and_levels_are_those_of_the_studentized_range(k: int, df: float) -> None:
    p = np.array([1.0, 0.7, 0.05, 0.01, 1e-3, 1e-5])
    expected = stats.studentized_range.sf(-stats.t.ppf(p / 2, df) * np.sqrt(2), k, df)
    assert tukey_p_values(p, np.full(6, df), k) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    level = tukey_levels(0.05, np.array([df, np.nan]), k)
    critical = -stats.t.ppf(level[0] / 2, df) * np.sqrt(2)
    assert stats.studentized_range.sf(critical, k, df) == pytest.approx(0.05, rel=1e-6)
    assert np.isnan(level[1])


def test_two_means_are_not_corrected_and_a_p_value_without_a_number_is_bounded() -> None:
    df = np.full(3, 20.0)
    assert tukey_p_values(np.array([0.03, 0.9, 1e-12]), df, 2) == pytest.approx([0.03, 0.9, 1e-12])
    assert tukey_p_values(np.array([0.0, 1e-300, np.nan]), df, 4)[:2].tolist() == [0.0, 6 * 1e-300]
    many = tukey_levels(0.05, np.linspace(8, 900, 1_225), 50)
    assert tukey_p_values(many, np.linspace(8, 900, 1_225), 50) == pytest.approx(0.05, rel=1e-5)


def test_metrics_and_segments_of_a_family_are_counted_by_bonferroni() -> None:
    rng, names = np.random.default_rng(5), ("m1", "m2", "m3")
    log = table({name: np.zeros(60) for name in "abc"})
    for metric in names:
        log[metric] = rng.random(180) + np.repeat([0, 0.1, 0.2], 60)
    log["country"] = ["de", "fr", "it"] * 60
    roles = {"m1": "primary", "m2": "secondary", "m3": "secondary"}
    result = compared(log, metrics=names, segments=("country",), correction="tukey", roles=roles, primary_share=0.8)
    for (_, _, segment, _), row in result.items():
        n, share = (1, 0.8) if row["role"] == "primary" and segment == "all" else (2 + 3 * 3, 0.2)
        alone = stats.studentized_range.sf(-stats.t.ppf(row["p_value"] / 2, row["n_users"] - 1) * np.sqrt(2), 3,
                                           row["n_users"] - 1)  # fmt: skip
        assert row["p_adjusted"] == pytest.approx(min(1, alone * n / share), rel=1e-5, abs=1e-9)
        # Segments against the rest are no pairs of means.
        assert np.isnan(row["p_rest"]) or row["p_rest_adjusted"] >= row["p_rest"]


def test_experiments_without_a_test_do_not_count() -> None:
    rows = rows_of({"a": [0.1, 0.2, 0.4], "b": [0.3, 0.5, 0.4], "lonely": [0.2]})
    tested = [row for row in rows if not np.isnan(row["p_adjusted"])]
    assert [(row["p_adjusted"], row["n_comparisons"]) for row in tested] == [(deciding_p(tested[0]), 1)]


@pytest.mark.parametrize("section", [{"baseline": "a"}, {"pairs": "all", "looks": "any"}])
def test_the_correction_is_for_all_pairs_at_a_single_look(section: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"correction is 'tukey'; allowed: tukey with comparison.pairs: all"):
        Comparison.read({"correction": "tukey", **section})
    assert Comparison.read({"correction": "tukey", "pairs": "all", "simultaneous": True}).correction == "tukey"


# ---- in words


def shown(**rules: Any) -> Figures:
    arms = users()
    means = [
        {"experiment_id": name, "segment": "all", "metric": "ap@10", "mean": float(values.mean()), "n_users": 9}
        | {"ci_low": float(values.mean() - 0.1), "ci_high": float(values.mean() + 0.1), "confidence": 0.95}
        | {"n_users_with_relevant": 9, "convention": "standard"}
        for name, values in arms.items()
    ]
    return Figures(means, rows_of(arms, **rules), order=["ap@10"])


def printed(style: str, result: Figures) -> str:
    stream, token = StringIO(), document.set(style or None)
    try:
        with redirect_stdout(stream):
            print_result(result)
    finally:
        document.reset(token)
    return stream.getvalue()


def test_the_verdict_begins_with_the_order_of_the_experiments() -> None:
    lines = verdict_of(shown().comparisons, [parse("ap@10")])
    # b is better than the three others by the p-values of SciPy, and nothing else is.
    p = stats.tukey_hsd(*users().values(), equal_var=False).pvalue
    assert (p[1, [0, 2, 3]] < 0.05).all() and min(p[0, 2], p[0, 3], p[2, 3]) > 0.05
    assert lines[0] == "MAP@10: b is above all 3 others; no other pair of the 4 experiments differs clearly"
    assert any("after Tukey (6 comparisons)" in line for line in lines)


def test_a_candidate_is_above_the_baselines_that_it_beats() -> None:
    arms = users()
    rows = rows_of({"a": arms["control"], "y": arms["c"], "z": arms["b"]})
    assert {row["better"] for row in rows if row["experiment_id"] == "z"} == {"candidate"}
    lines = verdict_of(rows, [parse("ap@10")])
    assert lines[0] == "MAP@10: z is above all 2 others; no other pair of the 3 experiments differs clearly"


@pytest.mark.parametrize(
    ("style", "cell"), [("", "b          │ a"), ("markdown", "| b | a | 9 |"), ("latex", "b & a & 9 &")]
)
def test_a_table_has_the_letters_of_papers(style: str, cell: str) -> None:
    text = printed(style, shown())
    assert "experiments that it is better than (after Tukey)" in " ".join(text.split())
    above = {"": " bcd", "markdown": "<sup>bcd</sup>", "latex": r"$^{\mathrm{bcd}}$"}[style]
    assert text.count(above) == 1
    line = next(line for line in text.splitlines() if above in line)
    assert cell.replace(" ", "").replace("│", "").strip("|") in line.replace(" ", "").replace("│", "")


def test_a_comparison_with_a_baseline_has_no_letters() -> None:
    result = shown()
    with_baseline = Figures(result.means, [row for row in result.comparisons if row["baseline"] == "b"])
    assert result.compared and not with_baseline.letters and "letter" not in printed("", with_baseline)
