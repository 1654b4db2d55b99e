"""``strata``: of a period and of columns, from stored days and a run of a config; on both engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import compare, config as cfg, job, sinks
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.users import apart, one

DATES = ("2026-11-01", "2026-11-03")


def days(n: int = 240) -> pd.DataFrame:
    """Users with a first date and a country; the candidate comes late, and a few come again on the last day."""
    rng = np.random.default_rng(4)
    first = np.r_[rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(3, n, p=[0.1, 0.3, 0.6])] + 1
    users = pd.DataFrame({"experiment_id": ["a"] * n + ["b"] * n, "user_id": [f"u{i}" for i in range(2 * n)]})
    users = users.assign(n_relevant=1, n_lists=1, country=rng.choice(["de", "fr", None], 2 * n), first=first)
    users = users.assign(ap_at_10=rng.random(2 * n) * 0.3 + 0.1 * first, day=first)
    again = users.sample(frac=0.2, random_state=1).query("first < 3").assign(day=3)
    rows = pd.concat([users, again.assign(ap_at_10=rng.random(len(again)))], ignore_index=True)
    return rows.assign(evaluation_date=[f"2026-11-{day:02}" for day in rows["day"]])


def expected(rows: pd.DataFrame, *strata: str) -> dict[str, Any]:
    """The row of users with their mean, in the strata of their first day."""
    users = rows.sort_values("day").groupby(["experiment_id", "user_id"], as_index=False)
    users = users.agg(value=("ap_at_10", "mean"), first=("first", "first"), country=("country", lambda of: of.iloc[0]))
    values = {name: of["value"].to_numpy() for name, of in users.groupby("experiment_id")}
    stratum = users[[*strata]].astype(str).agg(" ".join, axis=1)
    return one(apart(**values).assign(stratum=stratum.to_numpy()), strata=strata)


@pytest.mark.both_engines
def test_users_are_compared_within_their_first_date_and_column(spark: SparkSession) -> None:
    rows = days()
    log, found = rows.drop(columns=["first", "day"]), []
    for seed in (1, 2):
        stored = spark.createDataFrame(log.sample(frac=1.0, random_state=seed)).repartition(seed + 1)
        (row,) = compare(stored, "a", dates=DATES, strata=["date", "country"]).collect()
        found.append(row.asDict())
    # The order of the rows, and their partitions, change no bit.
    assert found[0] == found[1]
    own = expected(rows, "first", "country")
    for name in ("strata_difference", "strata_standard_error", "strata_ci_low", "strata_relative_ci_high"):
        assert row[name] == pytest.approx(own[name], rel=1e-9)
    assert (row["test"], row["better"], row["note"]) == ("strata", None, None)
    (plain,) = compare(stored, "a", dates=DATES).collect()
    assert plain["note"].startswith("not trustworthy: b has ") and plain["p_value"] < 1e-6
    (row,) = compare(stored, "a", dates=DATES, strata="country").collect()
    assert row["strata_difference"] == pytest.approx(expected(rows, "country")["strata_difference"], rel=1e-9)
    assert row["note"].startswith("not trustworthy: b has ")
    # A day on which relevant items were lost is no matter of unlike days.
    lost = log.assign(n_relevant=np.where((log["experiment_id"] == "b") & (rows["day"] == 3), 0, 1))
    (row,) = compare(spark.createDataFrame(lost), "a", dates=DATES, strata="date").collect()
    assert row["note"].startswith("not trustworthy: no user of b has a relevant item on 2026-11-03")
    one_day = stored.where("evaluation_date = '2026-11-01'")
    with pytest.raises(ConfigError, match="strata is 'date'; allowed: date for a period, since these users are of one"):
        compare(one_day.drop("evaluation_date"), "a", strata="date")
    with pytest.raises(InputError, match="has no column town, which strata: town needs"):
        compare(one_day, "a", strata="town")
    with pytest.raises(ConfigError, match="strata is given beside earlier values; allowed: one of the two"):
        compare(one_day, "a", strata="country", before="n_lists")


def test_a_run_compares_within_strata_of_its_segments_and_dates(spark: SparkSession, tmp_path: Path) -> None:
    rng, comparison = np.random.default_rng(6), {"baseline": "a", "strata": ["date", "country"]}
    for day, sizes in ((1, (60, 20)), (2, (20, 60))):
        rows = [
            (arm, f"{arm}{day}-{user}", f"i{rank}", rank, int(rng.random() < 0.2 * day), "de" if user % 3 else "fr")
            for arm, n in zip("ab", sizes, strict=True)
            for user in range(n)
            for rank in (1, 2, 3)
        ]
        log = pd.DataFrame(rows, columns=["experiment", "user", "item", "position", "relevance", "country"])
        log.to_csv(tmp_path / f"{day}.csv", index=False)
        config = cfg.Config.read({
            "source": {"format": "csv", "path": str(tmp_path / f"{day}.csv"), "segments": ["country"]},
            "metrics": ["p@3"], "comparison": comparison | {"period": {"from": "2026-11-01", "to": "{date}"}},
            "sink": {"path": str(tmp_path / "out")}, "evaluation_date": f"2026-11-0{day}",
        })  # fmt: skip
        job.run(spark, config)
    rows = sinks.read(spark, str(tmp_path / "out/comparisons")).where("evaluation_date = '2026-11-02'").collect()
    (row,) = [row for row in rows if row["segment"] == "all"]
    users = sinks.read(spark, str(tmp_path / "out/user_metrics")).drop("convention_hash", "convention")
    again = compare(users, "a", dates=("2026-11-01", "2026-11-02"), strata=("date", "country"), segments="country")
    (same,) = again.where("segment = 'all'").collect()
    assert row["strata_difference"] == same["strata_difference"] != row["difference"] and row["test"] == "strata"
    assert "not trustworthy" not in (row["note"] or "")
