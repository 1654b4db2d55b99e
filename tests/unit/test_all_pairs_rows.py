"""All pairs of experiments: their order in words, and the letters that say which are above which."""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, document, print_result, verdict_of
from tests.helpers.users import apart, compared, deciding_p

ARMS = {"control": (0.2, 0.3, 40), "b": (0.5, 0.1, 25), "c": (0.32, 0.2, 33), "d": (0.2, 0.35, 60)}
"""Experiment -> mean and deviation of its users, and how many they are."""


def users(seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(mean, deviation, n) for name, (mean, deviation, n) in ARMS.items()}


def rows_of(arms: dict[str, Any], **rules: Any) -> list[dict[str, Any]]:
    return [*compared(apart(**arms), roles={"ap@10": "primary"}, **rules).values()]


def test_experiments_without_a_test_do_not_count() -> None:
    rows = rows_of({"a": [0.1, 0.2, 0.4], "b": [0.3, 0.5, 0.4], "lonely": [0.2]})
    tested = [row for row in rows if not np.isnan(row["p_adjusted"])]
    assert [(row["p_adjusted"], row["n_comparisons"]) for row in tested] == [(deciding_p(tested[0]), 1)]


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
    # b is better than the three others by the p-values of SciPy, corrected by Holm, and nothing else is.
    arms = users()
    pairs = [(one, other) for one in arms for other in arms if one < other]
    p = {pair: stats.ttest_ind(*map(arms.get, pair), equal_var=False).pvalue for pair in pairs}
    assert all(6 * value < 0.05 if "b" in pair else 3 * value > 0.05 for pair, value in p.items())
    assert lines[0] == "MAP@10: b is above all 3 others; no other pair of the 4 experiments differs clearly"
    assert any("after Holm (6 comparisons)" in line for line in lines)


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
    assert "experiments that it is better than (after Holm)" in " ".join(text.split())
    above = {"": " bcd", "markdown": "<sup>bcd</sup>", "latex": r"$^{\mathrm{bcd}}$"}[style]
    assert text.count(above) == 1
    line = next(line for line in text.splitlines() if above in line)
    assert cell.replace(" ", "").replace("│", "").strip("|") in line.replace(" ", "").replace("│", "")


def test_a_comparison_with_a_baseline_has_no_letters() -> None:
    result = shown()
    with_baseline = Figures(result.means, [row for row in result.comparisons if row["baseline"] == "b"])
    assert result.compared and not with_baseline.letters and "letter" not in printed("", with_baseline)
