"""Stored days -> one row per user over a period: the same as one run over all raw rows of these days."""

import json
import random
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import compare, config as cfg, evaluate, read, report as rep, road, statistics as st
from rankmetrics_spark.comparison import UserTable, comparisons, period_days, period_rows, published_days
from rankmetrics_spark.engines import group_means, mean_of_one, weight_of
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.commands import Call, ok
from tests.helpers.logs import a_list, bits, by_user, exact, parquet
from tests.helpers.messages import messages

DAYS = [f"2026-11-{day:02}" for day in range(8, 12)]
METRICS = ["ap@3", "ndcg@3", "rr", "judged@3"]
SCHEMA = "experiment_id string, user_id string, country string, day string, session string, item_id string, "
SCHEMA += "position bigint, relevance bigint"
Rows = list[tuple[Any, ...]]


def log(sessions: int, seed: int = 5) -> Rows:
    """Users who return on some of the days; the arms differ, and one user is in both."""
    rng = random.Random(seed)
    rows: Rows = []
    for number in range(40):
        arm, country = "ab"[number % 2], rng.choice(["de", "fr", None])
        for day in rng.sample(DAYS, rng.randint(1, len(DAYS))):
            for experiment in "ab" if number == 7 else arm:
                for session in range(rng.randint(1, sessions)):
                    grades = rng.choice([(0, 0, 1, 2), (0, 0, 0), (1,), (0, 1, 0, 0, 3, 1)])
                    key = (experiment, f"u{number}", country, day, f"s{session}")
                    rows += [(*key, f"i{i}", i + 1, grade) for i, grade in enumerate(rng.sample(grades, len(grades)))]
    return rows


def days_of(spark: SparkSession, rows: Rows, days: Iterable[str] = DAYS, **options: Any) -> DataFrame:
    """``user_metrics`` of each day, evaluated on its own, as a sink holds them."""
    table = None
    for day in days:
        users = evaluate(spark.createDataFrame([row for row in rows if row[3] == day], SCHEMA), METRICS, **options)
        of_day = users.user_metrics.withColumn("evaluation_date", F.lit(day)).withColumn("convention_hash", F.lit("h"))
        table = of_day if table is None else table.unionByName(of_day)
    assert table is not None
    return table


def over(stored: DataFrame, first: str = DAYS[0], last: str = DAYS[-1]) -> DataFrame:
    return period_rows(stored, period_days(dict.fromkeys(DAYS, ("h",)), first, last))


def compared(users: DataFrame, segments: Sequence[str] = ("country",)) -> list[Any]:
    table = UserTable.of(users, METRICS, {name: name for name in segments})
    return exact(comparisons(table, cfg.Comparison(baseline="a", wilcoxon=True)).collect())


RULES = [pytest.param({}, id="standard"), pytest.param({"zero_relevant": "skip"}, id="skip", marks=pytest.mark.slow)]


@pytest.mark.parametrize("rule", RULES)
def test_a_period_of_one_list_a_day_has_the_bits_of_one_run_over_all_rows(spark: SparkSession, rule: Any) -> None:
    rows, convention = log(1), {"preset": "standard", **rule}
    described: Any = {"segments": "country", "convention": convention}
    whole = evaluate(spark.createDataFrame(rows, SCHEMA), METRICS, list="day", **described)
    period = over(days_of(spark, rows, **described)).persist()
    result, expected = by_user(period), by_user(whole.user_metrics)
    assert result.keys() == expected.keys() and len(expected) == 41
    for key, row in expected.items():
        shared = [name for name in row if name in result[key]]
        assert {*shared} >= {"ap_at_3", "judged_at_3", "country", "n_lists", "n_shown", "n_relevant", "n_repeated"}
        assert {name: bits(result[key][name]) for name in shared} == {name: bits(row[name]) for name in shared}
        days = sorted({each[3] for each in rows if each[:2] == key})
        assert (result[key]["n_days"], result[key]["first_date"]) == (len(days), days[0])
    assert any(row["n_lists"] > 2 for row in expected.values())
    assert compared(period) == compared(whole.user_metrics)
    plan = whole._tables.plan
    sums = road.sums_of_users(period, road.Summands(plan.scoring.metrics, {"country": "country"}))
    means = road.averages_of_sums(sums, plan.scoring.conventions, 0.95)
    assert exact(means.collect()) == exact(whole.experiment_metrics.select(*means.columns).collect())


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_period_of_several_lists_a_day_is_one_run_within_a_days_rounding(spark: SparkSession, rule: Any) -> None:
    rows, convention = log(4), {"preset": "standard", **rule}
    lists = ["day", "session"]
    whole = evaluate(spark.createDataFrame(rows, SCHEMA), METRICS, list=lists, convention=convention)
    stored = days_of(spark, rows, list="session", convention=convention).persist()
    left_out = {"n_lists_ap_at_3", "n_lists_ndcg_at_3", "n_lists_rr"}
    assert {name for name in stored.columns if name.startswith("n_lists_")} - {"n_lists_judged_at_3"} == (
        left_out if rule else set()
    )
    found, expected = by_user(over(stored)), by_user(whole.user_metrics)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key]["n_lists"] == row["n_lists"]
        for name in ("ap_at_3", "ndcg_at_3", "rr", "judged_at_3"):
            assert found[key][name] == (None if row[name] is None else pytest.approx(row[name], rel=1e-12)), (key, name)


@pytest.mark.slow
@pytest.mark.both_engines
def test_the_order_of_days_and_partitions_and_a_second_run_of_a_day_change_no_bit(spark: SparkSession) -> None:
    rows = log(3)
    once = exact(over(days_of(spark, rows, list="session", segments="country")).collect())
    again = days_of(spark, rows[::-1], DAYS[2:] + DAYS[:2], list="session", segments="country")
    assert exact(over(again.repartition(7)).collect()) == once
    replaced = again.where(F.col("evaluation_date") != DAYS[1]).unionByName(
        days_of(spark, rows, DAYS[1:2], list="session", segments="country")
    )
    assert exact(over(replaced.orderBy("ap_at_3")).collect()) == once


def test_a_weighted_mean_has_the_bits_of_the_exact_sums_of_python(spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    groups, n = 40, 1_000
    sizes = 10.0 ** rng.integers(-20, 18, n)
    value = np.concatenate([rng.random(n), rng.standard_normal(n) * sizes, (rng.integers(-50, 50, n) + 0.5) * 2.0**-60])
    value[::97], value[5] = np.nan, np.inf
    rows = pd.DataFrame({"g": rng.integers(0, groups, 3 * n), "w": rng.integers(0, 5, 3 * n), "v": value})
    rows.loc[5, "w"] = 1
    # Weights of 0 do not count, not even for a value that cannot be summed.
    rows = pd.concat([rows, pd.DataFrame({"g": [groups], "w": [0], "v": [np.inf]})])
    # Small values alone: what is rounded here is lost in the sums above.
    small = np.array([0.75, 0.5, 1.5, -0.5]) * 2.0**-60
    rows = pd.concat([rows, pd.DataFrame({"g": groups + 1, "w": [1, 2, 1, 4], "v": small})])
    result = group_means(spark.createDataFrame(rows), ["g"], {"v": "w"}, ["count(1) AS n"]).toPandas().set_index("g")
    assert len(result) == groups + 2
    # 0.75 is rounded to 1, and halves to even numbers: 0.5 to 0, 1.5 to 2, -0.5 to 0.
    assert result["v"][groups + 1] == (1 + 2) / 8 * 2.0**-60
    for group, part in rows.groupby("g"):
        part = part[part["v"].notna()]
        finite = np.where(np.isfinite(part["v"]), part["v"], 0.0)
        sums = [np.array([int((limb * part["w"]).sum())]) for limb in st.limbs_of(finite)]
        mean = st.exact_mean(sums, np.array([part["w"].sum()]))[0]
        mean = np.inf if (np.isinf(part["v"]) & (part["w"] > 0)).any() else mean
        assert bits(float(result["v"][group])) == bits(float(mean))
        assert result[weight_of("v")][group] == part["w"].sum()
        if np.isfinite(mean) and (part["v"].abs() > 2.0**-8).all():
            assert mean == pytest.approx(float(np.average(part["v"], weights=part["w"])), rel=1e-9)


def test_the_mean_of_one_value_has_the_bits_of_the_mean_of_its_group(spark: SparkSession) -> None:
    rng, n = np.random.default_rng(2), 500
    sizes = 10.0 ** rng.integers(-20, 18, n)
    edges = [
        sign * end for sign in (1, -1) for end in (0.0, 2.0**-8, np.nextafter(2.0**-8, 0), 2.0**60, 2.0**61, np.inf)
    ]
    halves = (rng.integers(-50, 50, n) + 0.5) * 2.0**-60
    value = np.concatenate([rng.random(n) / 64, rng.standard_normal(n) * sizes, halves, edges, [np.nan, 1.0]])
    rows = spark.createDataFrame(pd.DataFrame({"g": range(len(value)), "v": value}))
    means = (
        group_means(rows, ["g"], {"v": "1"}).join(rows.selectExpr("g", f"{mean_of_one('v')} AS one"), "g").toPandas()
    )
    assert [*map(bits, means["one"])] == [*map(bits, means["v"])]
    assert len(means) == len(value)


def stored(spark: SparkSession, *rows: tuple[Any, ...], hashes: Any = "h") -> DataFrame:
    """``user_metrics`` of one user: (date, country, n_lists, lists with a value, value)."""
    of_user = [("a", "u", *row, 1, hashes) for row in rows]
    schema = "experiment_id string, user_id string, evaluation_date string, country string, n_lists bigint, "
    schema += "n_lists_ap bigint, ap double, n_relevant bigint, convention_hash string"
    return spark.createDataFrame(of_user, schema)


def test_a_day_counts_with_its_lists_that_have_a_value(spark: SparkSession) -> None:
    # 3 of 5 lists have a mean of 0.5, 1 list has 1, and the third day has lists without a value.
    days = [(DAYS[0], "de", 5, 3, 0.5), (DAYS[1], "fr", 1, 1, 1.0), (DAYS[2], "fr", 4, 0, None)]
    (row,) = over(stored(spark, *days)).collect()
    assert row["ap"] == (3 * 0.5 + 1 * 1.0) / 4
    assert (row["n_lists"], row["n_days"], row["n_relevant"]) == (10, 3, 3)
    (without,) = over(stored(spark, *days).drop("n_lists_ap")).collect()
    assert without["ap"] == (5 * 0.5 + 1 * 1.0) / 6
    (older,) = over(stored(spark, (DAYS[0], "de", 5, None, 0.5), days[1])).collect()
    assert older["ap"] == (5 * 0.5 + 1 * 1.0) / 6


def test_a_user_has_the_segment_of_the_first_date_with_a_list(spark: SparkSession) -> None:
    days = [(DAYS[2], "fr", 1, 1, 0.25), (DAYS[1], "de", 1, 1, 0.75), (DAYS[0], None, 0, 0, 0.0)]
    (row,) = over(stored(spark, *days)).collect()
    # On the first day the user was judged, and shown nothing: it is no day of the user.
    assert (row["country"], row["first_date"], row["n_days"], row["ap"]) == ("de", DAYS[1], 2, 0.5)
    (last,) = over(stored(spark, *days), DAYS[2], DAYS[3]).collect()
    assert (last["country"], last["first_date"], last["n_days"], last["ap"]) == ("fr", DAYS[2], 1, 0.25)


def test_a_judged_user_without_a_list_keeps_the_value_of_an_empty_list(spark: SparkSession) -> None:
    (row,) = over(stored(spark, (DAYS[0], None, 0, 0, 0.125), (DAYS[1], None, 0, None, 0.125))).collect()
    assert (row["ap"], row["n_lists"], row["n_days"], row["first_date"]) == (0.125, 0, 0, DAYS[0])


def test_what_no_period_can_be_made_of_is_refused_in_a_sentence(spark: SparkSession) -> None:
    users = stored(spark, (DAYS[0], "de", 1, 1, 0.5), (DAYS[2], "de", 1, 1, 0.5))
    period = published_days(users, DAYS[0], DAYS[3])
    assert (period.dates, period.missing) == ((DAYS[0], DAYS[2]), (DAYS[1], DAYS[3]))
    with pytest.raises(InputError, match=r"--from: nothing is published from 2026-12-01 to 2026-12-02; the dates that "
                                         r"are published: 2026-11-08, 2026-11-10"):  # fmt: skip
        published_days(users, "2026-12-01", "2026-12-02", "--from")
    other = users.unionByName(stored(spark, (DAYS[1], "de", 1, 1, 0.5), hashes="other"))
    with pytest.raises(InputError, match="dates: 2026-11-09 and 2026-11-10 follow different conventions"):
        published_days(other, DAYS[0], DAYS[2])
    both = users.unionByName(stored(spark, (DAYS[2], "de", 1, 1, 0.5), hashes="other"))
    with pytest.raises(InputError, match="the experiments of 2026-11-10 follow different conventions"):
        published_days(both, DAYS[0], DAYS[2])
    with pytest.raises(InputError, match="user_metrics has no column evaluation_date, which a period needs"):
        published_days(users.drop("evaluation_date"), DAYS[0], DAYS[2])
    with pytest.raises(InputError, match="user_metrics has a column n_days, which the rows of a period need"):
        over(users.withColumn("n_days", F.lit(1)))


def test_compare_takes_the_dates_of_stored_days(spark: SparkSession) -> None:
    rows = log(1)
    users = days_of(spark, rows, DAYS[:2], segments="country")
    result = compare(users, "a", metrics="ap@3", segments="country", dates=(DAYS[0], DAYS[2]), shared_users="drop")
    means: dict[str, dict[str, list[float]]] = {"a": {}, "b": {}}
    for row in users.collect():
        means[row["experiment_id"]].setdefault(row["user_id"], []).append(row["ap_at_3"])
    shared = means["a"].keys() & means["b"].keys()
    assert shared == {"u7"}
    a, b = ([np.mean(days) for user, days in means[name].items() if user not in shared] for name in "ab")
    row = next(row.asDict() for row in result.collect() if row["segment"] == "all")
    assert row["p_value"] == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue, rel=1e-9)
    assert (row["period_from"], row["period_to"], row["n_days"]) == (DAYS[0], DAYS[2], 2)
    assert row["design"] == "independent" and row["n_users"] == len(a) + len(b)
    note = f"without 1 of the {len(a) + 1} users of a and 1 of the {len(b) + 1} users of b"
    assert row["note"] == f"{note}, who are in more than one experiment; 1 of 3 days is not published: {DAYS[2]}"
    alone = compare(over(users, DAYS[0], DAYS[2]), "a", metrics="ap@3").first()
    assert alone is not None and (alone["period_from"], alone["n_days"]) == (None, None)


@pytest.mark.parametrize(("given", "sentence"), messages("periods of compare"))
def test_a_wrong_period_is_refused(spark: SparkSession, given: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        compare(stored(spark, (DAYS[0], "de", 1, 1, 0.5)), "a", **given)


def test_the_command_compares_the_users_of_a_period(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for i, day in ((0, DAYS[0]), (1, DAYS[2])):
        shown = [row for u in range(8) for row in a_list([0] * (u % 3) + [1], f"u{u}", "a")]
        shown += [row for u in range(4 * i, 12) for row in a_list([1] if i else [0, 1], f"v{u}", "b")]
        ok(call, "evaluate", "--config", document(parquet(tmp_path / day, shown), out), "--date", day)
    request = ("compare", "--input", out, "--baseline", "a", "--format", "json")
    text, err = ok(call, *request, "--from", DAYS[0], "--to", DAYS[2])
    gap = f"1 of 3 days is not published: {DAYS[1]}"
    assert f"users of {DAYS[0]} to {DAYS[2]} (2 of 3 days); {gap}\n" in err
    answer = json.loads(text)
    (row,) = answer["comparisons"]
    # A user of b has 1/2 on the first day and 1 on the other; the first four were there on the first day only.
    assert (row["mean_candidate"], row["n_users_candidate"]) == (pytest.approx((4 * 0.5 + 8 * 0.75) / 12), 12)
    assert row["mean_baseline"] == pytest.approx((3 * 1 + 3 / 2 + 2 / 3) / 8)
    assert (answer["evaluation_date"], row["period_from"], row["period_to"], row["n_days"]) == (
        DAYS[2], DAYS[0], DAYS[2], 2)  # fmt: skip
    assert row["note"] == gap
    assert answer["verdict"][-1] == f"The comparisons are over {DAYS[0]} to {DAYS[2]} (2 of 3 days); {gap}"
    assert not any(gap in line for line in answer["verdict"][:-1])
    # Without --to, the period ends on the last date there is.
    assert json.loads(call(*request, "--from", DAYS[0])[1]) == answer
    for (options, exit_code), sentence in messages("mistakes of compare over a period"):
        code, _, err = call(*request, *options)
        assert code == exit_code and sentence in err, (options, err)


@pytest.mark.skipif(not rep.has_page_libraries(), reason="needs the libraries of the page")
def test_the_page_of_a_period_is_about_all_of_its_days(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    for i, day in enumerate((DAYS[0], DAYS[1], DAYS[3])):
        shown = [row for u in range(120) for row in a_list([0] * (u % 3) + [1], f"u{u}", "a")]
        # b is worse on the last day alone, and better over all days.
        shown += [row for u in range(120) for row in a_list([0] * 4 + [1] if i == 2 else [1], f"v{u}", "b")]
        request = document(parquet(tmp_path / day, shown), out, comparison={"baseline": "a", "design": "independent"})
        ok(call, "evaluate", "--config", request, "--date", day)
    failing = document(tmp_path / "nowhere", out)
    assert call("evaluate", "--config", failing, "--date", "2026-11-12")[0] == 3
    ok(call, "report", "--input", out, "--html", page, "--from", DAYS[0], "--to", DAYS[3])
    html = page.read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", "", html[html.index("<header") : html.index("<script")]).split())
    assert f"Period {DAYS[0]} to {DAYS[3]}, 3 of 4 days (without {DAYS[2]})" in text
    assert "Evaluation date" not in text
    assert "b beats a" in text
    # Of 120 users of a, 40 have 1, 40 have 1/2 and 40 have 1/3, each day; all of b have 1, 1 and 1/5.
    before, after = (1 + 1 / 2 + 1 / 3) / 3, (1 + 1 + 1 / 5) / 3
    assert f"MAP@5 rose from {before:.3f} (a) to {after:.3f} (b): {after / before - 1:+.1%}".replace("%", " %") in text
    assert f"1 of 4 days is not published: {DAYS[2]}. The numbers are about the other days." in text
    # A day of a has 40 lists of 1, 2 and 3 rows; b has 120 lists of 1 row on two days, and of 5 rows on the last.
    assert f"None of {3 * 240 + 2 * 120 + 600:,}." in text
    assert "The runs" in text and "runs3" in text.replace(" ", "")
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    drawn = data["overTime"]
    result = {key: (d, n) for *key, d, n in zip(drawn["kind"], drawn["label"], drawn["d"], drawn["n"], strict=True)
             for key in [tuple(key)]}  # fmt: skip
    # Each day b has 1, 1 and 1/5, and a has 11/18.
    for kind, differences in (("day", (1, 1, 1 / 5)), ("cumulative", (1, 1, after))):
        for day, of_b in zip((DAYS[0], DAYS[1], DAYS[3]), differences, strict=True):
            assert result[kind, day] == (pytest.approx(of_b - before), 240), (kind, day)
    assert {label for kind, label in result if kind == "days_since_first"} == {"0", "1", "3"}
    assert data["trend"]["date"] == [] and data["validOverTime"] == "each valid at a single look"
    assert {each["date"]: each["state"] for each in data["alerts"]} == {DAYS[2]: "missing", "2026-11-12": "failed"}
    # The run of the next day failed: that stands above the headline, and only where nothing newer is published.
    newer = f"The run of 2026-11-12 failed, so nothing newer than {DAYS[3]} is shown: "
    assert -1 < text.index(newer) < text.index("b beats a")
    assert "The effect of b against a on MAP@5" in text
    assert data["means"]["n"] == [120, 120]
    # All of b have 1 on the first two days and 1/5 on the last: one mean, which is no value of any day.
    of_b = data["experiments"].index("b")
    (counts,) = (data["users"]["counts"][i] for i, e in enumerate(data["users"]["e"]) if e == of_b)
    assert sum(counts) == max(counts) == 120
    # The first count is that of the lowest value itself.
    step, n_steps = counts.index(120) - 1, data["steps"]
    assert step / n_steps < after <= (step + 1) / n_steps
    code, _, err = call("report", "--input", out, "--html", page, "--from", DAYS[1], "--to", DAYS[1])
    one_day = page.read_text(encoding="utf-8")
    assert code == 0 and "The run of 2026-11-12 failed" not in one_day, err
    assert json.loads(one_day.split('id="data">')[1].split("</script>")[0])["overTime"]["d"] == []
    code, _, err = call("report", "--input", out, "--html", page, "--from", DAYS[1])
    later = page.read_text(encoding="utf-8")
    assert code == 0, err
    # The users of the day before the period were those of the experiments already, and differed.
    assert f"Before {DAYS[1]}, the users of b and a differed already: +63.6 % on MAP@5" in later
    for options, exit_code, sentence in (
        (("--date", DAYS[0], "--from", DAYS[0]), 2, "--date 2026-11-08 is given with --from"),
        (("--from", "2026-12-01"), 3, "--from: nothing is published from 2026-12-01"),
    ):
        code, _, err = call("report", "--input", out, "--html", page, *options)
        assert code == exit_code and sentence in err


def test_read_gives_the_users_of_a_period(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for day, grades in ((DAYS[0], [0, 1]), (DAYS[1], [1])):
        ok(call, "evaluate", "--config", document(parquet(tmp_path / day, a_list(grades)), out), "--date", day)
    (row,) = read(spark, str(out / "user_metrics"), dates=(DAYS[0], DAYS[2])).collect()
    assert (row["ap_at_5"], row["n_days"], row["n_lists"], row["first_date"]) == (0.75, 2, 2, DAYS[0])
    assert read(spark, str(out / "user_metrics")).count() == 2
    with pytest.raises(InputError, match="user_metrics has no column user_id, which a period needs"):
        read(spark, str(out / "experiment_metrics"), dates=(DAYS[0], DAYS[2]))


def document(log_folder: Path, out: Path, **sections: Any) -> Path:
    """A config for the log of one day."""
    file = log_folder.with_suffix(".yaml")
    section = {"source": {"path": str(log_folder)}, "metrics": ["ap@5"], "sink": {"path": str(out)}} | sections
    file.write_text(yaml.safe_dump(section))
    return file


@pytest.mark.slow
def test_experiments_of_different_days_have_no_verdict(spark: SparkSession) -> None:
    # An A/A test whose second arm began on the third day, when users were better served: in both arms.
    rows = [
        (arm, f"{arm}{day}{u}", None, day, "s", "x", 1 + int(u % 3 == 0 and day < DAYS[2]), 1)
        for arm in "ab"
        for day in DAYS[2 * (arm == "b") :]
        for u in range(40)
    ]
    stored = days_of(spark, rows, repeated_items="ignore")
    for dates, better, note in (
        ((DAYS[0], DAYS[-1]), None, "not trustworthy: b has no users on 2 of the 4 days of a (2026-11-08, 2026-11-09): "
                                    "compare 2026-11-10 to 2026-11-11"),
        ((DAYS[2], DAYS[-1]), None, None),
    ):  # fmt: skip
        (row,) = compare(stored, "a", metrics="rr", dates=dates).collect()
        assert (row["better"], row["note"]) == (better, note)
    # All users of the last two days have 1; a third of those of the first two have 1/2.
    (whole,) = compare(stored, "a", metrics="rr", dates=(DAYS[0], DAYS[-1])).collect()
    assert whole["difference"] == pytest.approx(1 - (2 + 2 * (26 + 14 / 2) / 40) / 4) and whole["p_value"] < 0.001


def test_the_command_says_what_runs_of_the_days_were_asked_for(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = [row for u in range(8) for arm in "ab" for row in a_list([int(arm == "b"), 0, 1], f"{arm}{u}", arm)]
    log = parquet(tmp_path / "log", shown)
    asked = {"baseline": "a", "looks": "any", "primary": ["ap@5"], "shares": {"a": 0.5, "b": 0.5}, "correction": "holm"}
    config = document(log, out, comparison=asked)
    for day, more in ((DAYS[0], ()), (DAYS[1], ("--set", "source.where=position < 3"))):
        ok(call, "evaluate", "--config", config, "--date", day, *more)

    def verdict(*options: str, folder: Path = out) -> list[str]:
        text, _ = ok(call, "compare", "--input", folder, "--baseline", "a", "--format", "json", *options)
        return [line for line in json.loads(text)["verdict"] if "differs between" in line or "other options" in line]

    # The words of one line repeat the options of the run; keys that are the same, or as usual, are not said.
    (dropped,) = verdict()
    assert dropped == (
        f"the run of {DAYS[1]} compared with other options: --set looks=any --set 'primary=[\"ap@5\"]' "
        '--set \'shares={"a": 0.5, "b": 0.5}\''
    )
    options = shlex.split(dropped.partition(": ")[2])
    assert verdict(*options) == []
    # The folder of the table is as good as that of the output: runs, and looks at earlier days, are known too.
    assert verdict(folder=out / "user_metrics") == [dropped]
    planned = ("--baseline", "a", "--set", "looks={planned: 5}", "--format", "json")
    _, text, _ = call("compare", "--input", out / "user_metrics", *planned)
    assert {row["looks"] for row in json.loads(text)["comparisons"]} == {"2 of 5, obrien_fleming"}
    changed = f"source.where differs between days: null on {DAYS[0]}, position < 3 on {DAYS[1]}; the period has both"
    assert verdict("--from", DAYS[0], *options) == [changed]
    assert verdict("--from", DAYS[0], *options[:-2])[1].endswith('options: --set \'shares={"a": 0.5, "b": 0.5}\'')
    # The newest date does not vanish without a word.
    pointer = out / "published" / f"{DAYS[1]}.json"
    pointer.write_text(pointer.read_text()[:99])
    _, text, _ = call("compare", "--input", out, "--baseline", "a", "--format", "json")
    cut = f"published/{DAYS[1]}.json cannot be read, so {DAYS[1]} counts as not published; run that day again"
    assert cut in json.loads(text)["verdict"] and json.loads(text)["evaluation_date"] == DAYS[0]


def test_days_without_a_relevant_item_have_no_verdict(spark: SparkSession) -> None:
    # The clicks of b were lost on the third day.
    rows = [
        (arm, f"{arm}{day}{u}", None, day, "s", item, rank, int(item == "x" and (arm, day) != ("b", DAYS[2])))
        for arm in "ab"
        for day in DAYS
        for u in range(40)
        for rank, item in enumerate("xy" if u % 2 else "yx", start=1)
    ]
    (row,) = compare(days_of(spark, rows), "a", metrics="rr", dates=(DAYS[0], DAYS[-1])).collect()
    assert row["better"] is None and row["note"] == (
        "not trustworthy: no user of b has a relevant item on 2026-11-10, while users of a do; these values count as "
        "0: compare a period without this day"
    )
    assert row["mean_candidate"] == pytest.approx(0.75 * 3 / 4)
