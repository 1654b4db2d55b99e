"""The demo's log: reproducible, large enough, and with the answer that it promises."""

import math
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from rankmetrics_spark import config
from rankmetrics_spark.tools import BEST_FIRST, FAULTS, FILES, SLOTS, USERS_PER_FAULT, DemoLog, make_log

IMPRESSION = ["event_date", "variant", "user_id", "item_id", "slot", "model_score", "clicked", "country", "device"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> DemoLog:
    return make_log(tmp_path_factory.mktemp("a demo"))


@pytest.fixture(scope="module")
def impressions(log: DemoLog) -> pd.DataFrame:
    return pd.read_parquet(log.impressions)


@pytest.fixture(scope="module")
def judgements(log: DemoLog) -> pd.DataFrame:
    return pd.read_parquet(log.judgements)


def clean(impressions: pd.DataFrame) -> pd.DataFrame:
    return impressions.dropna().query("slot > 0").drop_duplicates(["user_id", "item_id"])


def test_the_log_is_large_and_is_written_to_several_files(log: DemoLog, impressions: pd.DataFrame) -> None:
    assert len(impressions) == log.rows >= 200_000
    assert list(impressions.columns) == IMPRESSION
    assert set(impressions["event_date"]) == {date(2026, 11, 20)}
    assert len(list(log.impressions.glob("*.parquet"))) == FILES


def test_the_same_seed_gives_the_same_log(tmp_path: Path) -> None:
    first, repeated, other = (
        pd.read_parquet(make_log(tmp_path / name, users=300, seed=seed).impressions)
        for name, seed in [("first", 1), ("repeated", 1), ("other", 2)]
    )
    pd.testing.assert_frame_equal(first, repeated)
    assert not first.equals(other)


def test_a_second_log_replaces_the_first(tmp_path: Path) -> None:
    make_log(tmp_path, users=900)
    log = make_log(tmp_path, users=300)
    assert len(pd.read_parquet(log.impressions)) == log.rows == 300 * SLOTS + 1


@pytest.mark.parametrize("users", [100, 200, 1_000, 24_000])
def test_a_log_of_any_size_has_few_enough_faults_for_a_run(tmp_path: Path, users: int) -> None:
    log = make_log(tmp_path, users=users)
    rows = pd.read_parquet(log.impressions).groupby("variant").size()
    # All faults may be in one experiment.
    assert log.faulty < config.Quality().max_invalid_fraction * rows.min()


def test_a_user_is_in_one_experiment_and_the_split_is_even(impressions: pd.DataFrame) -> None:
    variants = impressions.groupby("user_id")["variant"]
    assert (variants.nunique() == 1).all()
    assert variants.first().value_counts(normalize=True).between(0.31, 0.36).all()


def test_slots_follow_the_score_of_the_ranker(impressions: pd.DataFrame) -> None:
    rows = clean(impressions).sort_values(["user_id", "slot"])
    falls = rows.groupby("user_id")["model_score"].diff().dropna()
    assert (falls < 0).all()


def test_grades_are_0_to_3_and_cover_every_item_shown(impressions: pd.DataFrame, judgements: pd.DataFrame) -> None:
    assert set(judgements["grade"]) == {0, 1, 2, 3}
    assert not judgements.duplicated(["user_id", "item_id"]).any()
    joined = clean(impressions).merge(judgements, on=["user_id", "item_id"], how="left")
    assert joined["grade"].notna().all()


def test_the_known_order_shows_in_true_grades_and_clicks(impressions: pd.DataFrame, judgements: pd.DataFrame) -> None:
    rows = clean(impressions).merge(judgements, on=["user_id", "item_id"])
    for gain in ("grade", "clicked"):
        discounted = (rows[gain] / (rows["slot"] + 1)).groupby(rows["variant"]).sum()
        per_user = discounted / rows.groupby("variant")["user_id"].nunique()
        assert tuple(per_user.sort_values(ascending=False).index) == BEST_FIRST


def test_the_click_rate_of_a_slot_and_a_grade_is_the_same_in_every_experiment(
    impressions: pd.DataFrame, judgements: pd.DataFrame
) -> None:
    rows = clean(impressions).merge(judgements, on=["user_id", "item_id"]).query("slot == 1 and grade == 3")
    rates = rows.groupby("variant")["clicked"].mean()
    # 0.85 +- 5 standard errors of the smallest group.
    assert ((rates - 0.85).abs() < 5 * (0.85 * 0.15 / rows["variant"].value_counts().min()) ** 0.5).all()


def test_the_log_contains_a_few_faults(log: DemoLog, impressions: pd.DataFrame) -> None:
    assert impressions["item_id"].isna().sum() == FAULTS
    assert impressions["clicked"].isna().sum() == FAULTS
    assert impressions["model_score"].isna().sum() == FAULTS
    assert (impressions["slot"] == 0).sum() == FAULTS
    assert impressions.duplicated(["user_id", "slot"]).sum() >= FAULTS
    assert log.faulty < 0.002 * log.rows


def test_the_config_beside_the_log_is_valid(log: DemoLog) -> None:
    loaded = config.load(str(log.config))
    assert loaded.source.path == (str(log.impressions),)
    assert loaded.source.columns["relevance"] == "clicked"


# ---- several days


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> DemoLog:
    return make_log(tmp_path_factory.mktemp("two weeks"), users=3_000, days=14)


@pytest.fixture(scope="module")
def visits(days: DemoLog) -> pd.DataFrame:
    """One row per list: its user, day, experiment and NDCG@10 of its clicks."""
    log = pd.read_parquet(days.impressions).astype({"event_date": str}).dropna().query("slot > 0")
    clicked: dict[tuple[str, str, str], set[int]] = {}
    for row in log.itertuples():
        clicked.setdefault((row.user_id, row.event_date, row.variant), set()).update({row.slot} if row.clicked else ())
    result = []
    for names, slots in clicked.items():
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, len(slots) + 1))
        result.append((*names, sum(1 / math.log2(slot + 1) for slot in sorted(slots)) / ideal if slots else 0.0))
    return pd.DataFrame(result, columns=["user", "day", "variant", "ndcg"])


def test_a_log_of_days_has_a_folder_and_faults_for_each_day(days: DemoLog) -> None:
    assert days.days == tuple(f"2026-11-{day:02}" for day in range(8, 22))
    assert sorted(path.name for path in days.impressions.iterdir()) == [f"event_date={day}" for day in days.days]
    log = pd.read_parquet(days.impressions)
    assert len(log) == days.rows
    assert set(log.columns) == set(IMPRESSION)
    lists = log.groupby("event_date", observed=True)["user_id"].nunique()
    assert log["item_id"].isna().groupby(log["event_date"], observed=True).sum().eq(lists // USERS_PER_FAULT).all()


def test_some_users_come_every_day_and_others_once(visits: pd.DataFrame) -> None:
    n_days = visits.groupby("user")["day"].nunique()
    assert (n_days == 14).any()
    # A chance p has the density of Beta(0.6, 2.4): of 3,000 users, how many have exactly one visit in 14 days?
    one = 14 * math.gamma(1.6) * math.gamma(15.4) / math.gamma(17) / (math.gamma(0.6) * math.gamma(2.4) / math.gamma(3))
    assert abs((n_days == 1).sum() - 3_000 * one) < 4 * math.sqrt(3_000 * one * (1 - one))
    assert (visits.groupby("user")["variant"].nunique() == 1).all()


def test_the_days_show_the_true_differences_that_the_log_states(days: DemoLog, visits: pd.DataFrame) -> None:
    users = visits.groupby(["variant", "user"])["ndcg"].mean().groupby("variant").agg(["mean", "var", "count"])
    base = users.loc["control"]
    assert days.true_differences["candidate_b"] == 0.0
    assert 0.03 < days.true_differences["candidate_a"] < 0.10
    for name, true in days.true_differences.items():
        arm = users.loc[name]
        error = math.sqrt(arm["var"] / arm["count"] + base["var"] / base["count"]) / base["mean"]
        assert abs(arm["mean"] / base["mean"] - 1 - true) < 4 * error
    assert days.known == (
        "2026-11-08 to 2026-11-21; true difference of NDCG@10 to control: "
        f"candidate_a +{100 * days.true_differences['candidate_a']:.1f} %, candidate_b +0.0 %"
    )


def test_a_log_of_days_replaces_one_of_a_day_and_the_other_way_round(tmp_path: Path) -> None:
    for number in (1, 3, 2, 1):
        log = make_log(tmp_path, users=300, days=number)
        assert len(pd.read_parquet(log.impressions)) == log.rows
        assert len({*pd.read_parquet(log.impressions)["event_date"]}) == number


def test_the_config_of_a_log_of_days_evaluates_one_of_them(days: DemoLog) -> None:
    loaded = config.load(str(days.config), date="2026-11-09")
    assert loaded.source.where == "event_date = '2026-11-09'"
    assert str(loaded.metrics[0]) == "ndcg@10"
    # The comparisons are those of the test so far.
    assert (loaded.comparison.period.first, loaded.comparison.period.last) == ("2026-11-08", "2026-11-09")
