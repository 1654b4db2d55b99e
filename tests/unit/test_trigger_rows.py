"""Comparisons of users who are triggered, against SciPy and visible arithmetic; and how people read them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from rankmetrics_spark import config as cfg, errors as err, metrics as mx, statistics as st
from rankmetrics_spark.report import Figures, check_rows, checks, verdict_of
from tests.helpers.users import METRIC, apart, compared, one

REQUEST = cfg.Comparison("a", trigger="could_differ")


def users(n: int = 300, seed: int = 1, effect: float = 0.1) -> pd.DataFrame:
    """Users of two experiments, a third of them with the flag, and only these with an effect."""
    rng = np.random.default_rng(seed)
    flags = {name: np.arange(n) % 3 == 0 for name in "ab"}
    values = {name: rng.random(n) + effect * (name == "b") * flags[name] for name in "ab"}
    rows = apart(**values).assign(triggered=np.concatenate([flags["a"], flags["b"]]))
    return rows.assign(country=np.where(rows.index % 2 == 0, "de", "fr"))


def part(rows: pd.DataFrame, flag: bool) -> list[Any]:
    """Values of b and of a of users with the flag, or of the others."""
    own = rows[(rows["triggered"] == flag) & rows[METRIC].notna()]
    return [own.loc[own["experiment"] == name, METRIC].to_numpy() for name in "ba"]


def test_triggered_users_are_tested_and_the_others_are_a_check() -> None:
    pytest.importorskip("scipy", minversion="1.11")  # has intervals
    rows = users()
    rows.loc[[0, 1, 303], METRIC] = np.nan
    row, (b, a) = one(rows, REQUEST, shares={"a": 0.5, "b": 0.5}), part(rows, True)
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert (row["design"], row["n_users"], row["trigger"]) == ("independent", len(a) + len(b), "could_differ")
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    # The rates count all users; so does the sample ratio.
    assert (row["share_triggered_baseline"], row["share_triggered_candidate"]) == pytest.approx((1 / 3, 1 / 3))
    assert (row["p_share_triggered"], row["sample_ratio_p"]) == (1, 1)
    assert row["p_untriggered"] == pytest.approx(stats.ttest_ind(*part(rows, False), equal_var=False).pvalue, rel=1e-9)
    # Over all users with a value.
    n, r = 597, 198 / 597  # two of three users without a value have the flag
    d = b.mean() - a.mean()
    error = np.sqrt(r**2 * (b.var(ddof=1) / len(b) + a.var(ddof=1) / len(a)) + d**2 * r * (1 - r) / n)
    half = stats.t.ppf(0.975, expected.df) * error
    found = [row[f"diluted_{name}"] for name in ("difference", "ci_low", "ci_high")]
    assert found == pytest.approx([r * d, r * d - half, r * d + half], rel=1e-9)
    assert np.isnan(row["share_changed"])


def test_a_flag_that_arms_log_for_different_shares_of_their_users_has_no_verdict() -> None:
    rows = users(effect=0.5)
    rows.loc[301:420, "triggered"] = True
    row, counts = one(rows, REQUEST), rows.groupby("experiment")["triggered"].sum()
    p = stats.chi2_contingency([[n, 300 - n] for n in counts], False).pvalue
    assert row["p_share_triggered"] == pytest.approx(p, rel=1e-9) and p < 1e-9 and row["better"] is None
    assert row["note"] == (
        f"not trustworthy: 33 % of the users of a and 60 % of those of b have could_differ (p = {p:.2g}): log it in "
        "both by the same rule"
    )


def test_users_without_the_flag_who_differ_too_leave_no_verdict() -> None:
    rows = users()
    rows.loc[(rows["experiment"] == "b") & ~rows["triggered"], METRIC] += 0.2
    found = compared(rows, REQUEST, segments=("country",))
    p = stats.ttest_ind(*part(rows, False), equal_var=False).pvalue
    said = f"not trustworthy: users without could_differ differ too (p = {p:.2g}): set it wherever lists could differ"
    row = found["a", "b", "all", METRIC]
    assert (row["note"], row["better"]) == (said, None)
    assert all(each["note"] for each in found.values()) and len(found) == 3
    figures = Figures([], [{**row, "experiment_id": "b", "baseline": "a", "metric": METRIC, "segment": "all"}])
    warned = [check for check in check_rows(figures) if check.name in ("untriggered", "trigger_rate")]
    assert [(check.name, check.status) for check in warned[::2]] == [("trigger_rate", "ok"), ("untriggered", "warn")]
    assert "MAP@10: users without could_differ differ too (p < 0.001). There is no verdict." in [*checks(figures)]


def test_few_hits_of_the_others_are_checked_by_a_permutation_and_few_of_the_tested_have_no_interval() -> None:
    a, b = np.r_[np.full(3, 0.4), 0.5, np.zeros(96)], np.r_[np.full(12, 0.7), np.full(4, 0.3), np.zeros(84)]
    flags = np.arange(100) < 50
    for flag in (True, False):
        rows = apart(a=a, b=b).assign(triggered=np.tile(flags if flag else ~flags, 2))
        rows = pd.concat([rows, users(100).assign(triggered=not flag, user=lambda of: "more" + of["user"])])
        p, row = st.permuted_p(a[a > 0], b[b > 0], (50, 50)), one(rows, REQUEST)
        assert row["p_adjusted" if flag else "p_untriggered"] == p
        assert np.isnan(row["diluted_ci_low"]) == flag and row["diluted_difference"] != 0


def test_without_triggered_users_there_is_nothing_to_test() -> None:
    row = one(users().assign(triggered=lambda rows: rows["triggered"] & (rows["experiment"] == "a")), REQUEST)
    assert row["note"] == "no users with could_differ in b" and np.isnan(row["p_value"])
    rows = users()
    alone = one(rows[~rows["triggered"] | (rows["experiment"] == "a") | (rows["user"] == "b0")], REQUEST)
    assert alone["note"] == "fewer than two users in b" and np.isnan(alone["diluted_difference"])


def test_people_read_whom_the_row_is_about_and_what_it_is_over_everybody() -> None:
    row = one(users(effect=0.4), replace(REQUEST, primary=(mx.parse(METRIC),)))
    row |= {"experiment_id": "b", "baseline": "a", "metric": METRIC, "segment": "all"}
    lines = verdict_of([row], [mx.parse(METRIC)])
    assert "among the 33 % of users with could_differ" in lines[0]
    size = "{diluted_difference:+.4f} ({diluted_ci_low:+.4f} to {diluted_ci_high:+.4f})".format(**row)
    said = f"Over all users, with or without could_differ, b changes MAP@10 by {size} from a: those without it count as"
    assert any(line.startswith(said) for line in lines)


@pytest.mark.parametrize("other", ["only_changed: true", "design: paired", "mean_over: lists", "cluster: home"])
def test_what_a_trigger_does_not_go_with_is_refused(other: str) -> None:
    words = f"comparison.trigger is could_differ, and comparison.{other.replace(':', ' is')}; allowed with it: "
    with pytest.raises(err.ConfigError, match=words):
        cfg.Comparison.read({"baseline": "a", "trigger": "could_differ", **yaml.safe_load(other)})
