"""The plan of a test from stored days, against a loop over users and days."""

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F
from statsmodels.stats.power import TTestIndPower, TTestPower

from rankmetrics_spark import compare, plan
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.commands import Call, ok
from tests.helpers.messages import cases, messages

DAYS = [f"2026-11-{day:02}" for day in range(8, 13)]
EARLIER = ["2026-11-01", "2026-11-02"]
SCHEMA = "experiment_id string, user_id string, evaluation_date string, n_lists bigint, n_lists_ap bigint, ap double, "
SCHEMA += "n_relevant bigint, convention_hash string"
Rows = list[tuple[Any, ...]]


def log(seed: int = 3, users: int = 150) -> Rows:
    """Users with levels and chances of their own; some are in a second experiment too, and some lists have no value."""
    rng = random.Random(seed)
    rows: Rows = []
    for number in range(users):
        level, chance = rng.random(), rng.choice([0.1, 0.4, 0.9, 1.0])
        for day in EARLIER + DAYS:
            for experiment in ["ab"[number % 2]] + (["c"] if number % 10 == 0 else []):
                if rng.random() < chance:
                    n_lists = rng.randint(1, 3)
                    with_value = n_lists - (rng.random() < 0.1)
                    value = level + (experiment == "b") * 0.5 + rng.gauss(0, 0.3)
                    valued = (with_value, value) if with_value else (0, None)
                    rows.append((experiment, f"u{number}", day, n_lists, *valued, 1, "h"))
    return rows


def table(spark: SparkSession, rows: Rows) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def states(rows: Rows, days: list[str]) -> dict[tuple[str, str], tuple[float, int]]:
    """(experiment, user) -> mean over the lists of these days, and the number of days with a value."""
    result: dict[tuple[str, str], list[tuple[int, float]]] = {}
    experiment: dict[str, str] = {}
    for name, user, _, _, n, value, *_ in sorted((r for r in rows if r[2] in days), key=lambda r: (r[2], r[0])):
        if value is not None and experiment.setdefault(user, name) == name:
            result.setdefault((name, user), []).append((n, value))
    return {key: (sum(n * value for n, value in own) / sum(n for n, _ in own), len(own)) for key, own in result.items()}


def spread(of: dict[tuple[str, str], float]) -> float:
    """Variance within experiments."""
    squares, freedom = 0.0, 0
    for experiment in {name for name, _ in of}:
        own = [value for (name, _), value in of.items() if name == experiment]
        mean = sum(own) / len(own)
        squares, freedom = squares + sum((value - mean) ** 2 for value in own), freedom + len(own) - 1
    return squares / freedom


@pytest.mark.both_engines
def test_the_stored_days_are_measured_as_a_loop_over_users_measures_them(spark: SparkSession) -> None:
    rows = log()
    one = plan(table(spark, rows), "ap", 5, dates=(DAYS[0], DAYS[-1]), power=0.9, tuning_users=50)
    assert [row["date"] for row in one.rows] == DAYS
    assert {row["basis"] for row in one.rows} == {"measured"}
    for day, row in enumerate(one.rows, 1):
        means = {key: value for key, (value, _) in states(rows, DAYS[:day]).items()}
        assert row["users"] == len(means)
        assert row["standard_deviation"] == pytest.approx(math.sqrt(spread(means)), rel=1e-12)
        arm = len(means) // 2
        power = TTestIndPower().power(row["smallest_effect"] / row["standard_deviation"], arm, 0.05)
        assert power == pytest.approx(0.9, abs=0.005)
        assert row["smallest_effect_any_look"] > row["smallest_effect"]
        for looks in ("", "_any_look"):
            assert row[f"smallest_relative_effect{looks}"] == pytest.approx(row[f"smallest_effect{looks}"] / one.mean)
    assert one.mean == pytest.approx(sum(means.values()) / len(means))


def test_later_days_are_expected_by_the_users_who_came_once_and_twice(spark: SparkSession) -> None:
    rows = log()
    result = plan(table(spark, rows), "ap", 8, dates=(DAYS[0], DAYS[-1]))
    counts = [n for _, n in states(rows, DAYS).values()]
    once, twice = counts.count(1), counts.count(2)
    unseen = 4 / 5 * once**2 / (2 * twice)
    by_day = [len(counts) + unseen * (1 - (1 - once / (5 * unseen + once)) ** more) for more in (1, 2, 3)]
    assert [row["users"] for row in result.rows[5:]] == [round(n) for n in by_day]
    assert [(row["date"], row["basis"]) for row in result.rows[5:]] == [(None, "expected")] * 3
    half = [n for _, n in states(rows, DAYS[:2]).values()]
    unseen = 1 / 2 * half.count(1) ** 2 / (2 * half.count(2))
    by_half = len(half) + unseen * (1 - (1 - half.count(1) / (2 * unseen + half.count(1))) ** 3)
    error = 100 * (by_half / len(counts) - 1)
    assert result.basis == (
        "measured on 2026-11-08 to 2026-11-12 (5 days); days 6 to 8 are expected, with a lower bound of the new "
        f"users; from the first 2 days the same rule expects {abs(error):.1f} % {'fewer' if error < 0 else 'more'} "
        "users by day 5 than came"
    )


def test_earlier_days_take_away_what_they_explain(spark: SparkSession) -> None:
    rows = log(users=400)
    result = plan(table(spark, rows), "ap", 5, dates=(DAYS[0], DAYS[-1]), before=(EARLIER[0], EARLIER[-1]))
    period = {key: value for key, (value, _) in states(rows, DAYS).items()}
    before: dict[str, list[float]] = {}
    for name in "abc":
        for (_, user), (value, _) in states([row for row in rows if row[0] == name], EARLIER).items():
            before.setdefault(user, []).append(value)
    known = {user: sum(own) / len(own) for user, own in before.items()}
    fill = sum(known[user] for _, user in period if user in known) / sum(user in known for _, user in period)
    x = {key: known.get(key[1], fill) for key in period}
    centred = {}
    for experiment in "abc":
        own = [key for key in period if key[0] == experiment]
        my, mx = (sum(of[key] for key in own) / len(own) for of in (period, x))
        centred |= {key: (period[key] - my, x[key] - mx) for key in own}
    theta = sum(y * b for y, b in centred.values()) / sum(b * b for _, b in centred.values())
    residual = spread({key: period[key] - theta * x[key] for key in period})
    assert result.rows[-1]["standard_deviation"] == pytest.approx(math.sqrt(residual), rel=1e-9)
    assert residual < 0.9 * spread(period)


def test_order_and_partitions_change_no_bit(spark: SparkSession) -> None:
    rows, options = log(), {"days": 9, "effect": "20%", "dates": (DAYS[0], DAYS[-1]), "before": tuple(EARLIER)}
    once = plan(table(spark, rows), "ap", **options)  # type: ignore[arg-type]
    assert plan(table(spark, rows[::-1]).repartition(7), "ap", **options) == once  # type: ignore[arg-type]
    assert [row["users"] for row in once.rows] == sorted(row["users"] for row in once.rows)
    # With every user in both experiments on every day, the first one by name is planned with.
    alone = [row for row in rows if row[0] != "c"]
    both = [(name, *row[1:5], row[5] and row[5] + (name == "b"), *row[6:]) for row in alone for name in "ba"]
    of_first = plan(table(spark, both), "ap", 9, dates=(DAYS[0], DAYS[-1]), experiment="a")
    for several in (both, both[::-1]):
        assert plan(table(spark, several).repartition(3), "ap", 9, dates=(DAYS[0], DAYS[-1])) == of_first


def test_users_and_experiments_can_be_chosen(spark: SparkSession) -> None:
    rows = log()
    users = table(spark, rows)
    own = plan(users, "ap", 5, dates=(DAYS[0], DAYS[-1]), experiment="b")
    assert own.rows[-1]["users"] == len(states([row for row in rows if row[0] == "b"], DAYS))
    plain = plan(users, "ap", 5, dates=(DAYS[0], DAYS[-1]))
    scaled = plan(users, "ap", 5, dates=(DAYS[0], DAYS[-1]), users=6_000)
    share = plain.rows[1]["users"] / plain.rows[4]["users"]
    assert [scaled.rows[i]["users"] for i in (1, 4)] == [round(6_000 * share), 6_000]
    # Without dates, the days of `before` are not among the stored ones.
    assert plan(users, "ap", 5, before=(EARLIER[0], EARLIER[1])).days.dates == tuple(DAYS)
    assert plan(users, "ap", 5).days.dates == (*EARLIER, *DAYS)


def test_the_answer_names_days_and_users(spark: SparkSession) -> None:
    users = table(spark, log())
    result = plan(users, "ap", 5, dates=(DAYS[0], DAYS[-1]))
    third = result.rows[2]["smallest_effect"]
    request = plan(users, "ap", 5, third, dates=(DAYS[0], DAYS[-1]))
    assert (request.days_needed, request.users_needed) == (3, result.rows[2]["users"])
    found = "to be found with a probability of 80 %, looked at once; with intervals that"
    assert f"takes 3 days ({result.rows[2]['users']:,} users) {found}" in request.answer
    assert request.answer.endswith(f"valid at every look, {request.days_needed_any_look or 'more than 15'} days")
    relative = plan(users, "ap", 1, f"{100 * third / result.mean}%", dates=(DAYS[0], DAYS[-1]))
    assert relative.effect == pytest.approx(third)
    far = plan(users, "ap", 5, "0.1%", dates=(DAYS[0], DAYS[-1]))
    assert (far.days_needed, far.days_needed_any_look, far.furthest) == (None, None, 15)
    assert far.answer == (
        f"a change of {0.001 * result.mean:.3g} (0.1 %) in ap is not found within 15 days, 3 times the stored ones: it "
        f"needs about {float(f'{far.users_needed:.3g}'):,.0f} users to be found with a probability of 80 %"
    )
    sd = plan(users, "ap", 15, dates=(DAYS[0], DAYS[-1])).rows[-1]["standard_deviation"]
    per_arm = TTestIndPower().solve_power(0.001 * result.mean / sd, alpha=0.05, power=0.8)
    assert far.users_needed == pytest.approx(2 * per_arm, rel=1e-3)


def test_days_on_which_a_metric_was_not_stored_yet_are_no_days_of_the_plan(spark: SparkSession) -> None:
    users = table(spark, log())
    later = users.withColumn("ap", F.when(F.col("evaluation_date") >= DAYS[2], F.col("ap")))
    result = plan(later, "ap", 9, "20%", dates=(DAYS[0], DAYS[-1]))
    assert result.days.dates == tuple(DAYS[2:]) and result.furthest == 9
    assert result == plan(users, "ap", 9, "20%", dates=(DAYS[2], DAYS[-1]))


def test_days_without_the_metric_are_no_days_without_new_users(spark: SparkSession) -> None:
    users = table(spark, log())
    ran = users.withColumn("ap", F.when(F.col("evaluation_date").isin([DAYS[0], DAYS[2]]), F.col("ap")))
    result = plan(ran, "ap", 3, "20%")
    assert result.days.dates == (DAYS[0], DAYS[2]) and result.without == (DAYS[1],)
    other = plan(users.where(F.col("evaluation_date").isin([DAYS[0], DAYS[2]])), "ap", 3, "20%")
    assert (result.rows, result.answer, result.furthest) == (other.rows, other.answer, 6)
    measured = "measured on 2026-11-08 to 2026-11-10 (2 of 3 days); "
    assert result.basis.startswith(f"{measured}ap was not stored on 2026-11-09; day 3 is expected")
    assert other.basis.startswith(f"{measured}1 of 3 days is not published: 2026-11-09; day 3 is expected")


PERIOD: dict[str, Any] = {"dates": (DAYS[0], DAYS[-1])}
BY_LISTS, BY_HOUSEHOLD = {"mean_over": "lists"}, {"cluster": "household"}


@pytest.mark.parametrize("options", [BY_LISTS, BY_HOUSEHOLD, BY_LISTS | BY_HOUSEHOLD], ids=["lists", "cluster", "both"])
def test_ratios_and_clusters_are_planned_with_their_own_errors(spark: SparkSession, options: dict[str, Any]) -> None:
    number = F.expr("int(substring(user_id, 2))")
    rows = table(spark, [row for row in log() if row[0] != "c"])
    # Households of up to three users of an experiment; a few users have none.
    home = F.when(number % 7 > 0, F.concat("experiment_id", (number / 6).cast("int")))
    users = rows.withColumn("household", home)
    squared = 0.0
    for day in (2, 5):
        arms = [plan(users, "ap", 5, experiment=name, **PERIOD, **options) for name in "ab"]
        squared = sum(arm.rows[day - 1]["standard_deviation"] ** 2 / arm.rows[day - 1]["users"] for arm in arms)
        (row,) = compare(users, "a", metrics="ap", dates=(DAYS[0], DAYS[day - 1]), **options).collect()
        assert squared == pytest.approx(row["standard_error"] ** 2, rel=1e-9)
        assert [arm.rows[day - 1]["users"] for arm in arms] == [row["n_users_baseline"], row["n_users_candidate"]]
    assert arms[0].mean == pytest.approx(row["mean_baseline"])
    said = "% of the clusters of household finds" if "cluster" in options else "over lists) that a test with 50 / 50 %"
    assert said in plan(users, "ap", 5, **PERIOD, **options).test
    once = plan(users, "ap", 12, "20%", **PERIOD, **options)
    assert plan(users.repartition(7, F.rand(1)), "ap", 12, "20%", **PERIOD, **options) == once


def test_a_replay_is_planned_with_differences_of_users_and_a_family_with_its_smallest_step(spark: SparkSession) -> None:
    rows = [row for row in log(users=60) if row[0] == "a"]
    rng = random.Random(4)
    both = rows + [("b", *row[1:5], row[5] and row[5] + rng.gauss(0.1, 0.2), *row[6:]) for row in rows]
    users, pair = table(spark, both), {"baseline": "a", "experiment": "b", **PERIOD}
    result = plan(users, "ap", 5, "10%", comparisons=4, tuning_users=50, **pair)
    (row,) = compare(users, "a", metrics="ap", **PERIOD).collect()
    last, mean = result.rows[-1], row["mean_baseline"]
    assert row["design"] == "paired" and last["users"] == row["n_users"]
    assert last["standard_deviation"] / math.sqrt(last["users"]) == pytest.approx(row["standard_error"], rel=1e-9)
    assert (result.mean, result.effect) == (pytest.approx(mean), pytest.approx(0.1 * mean))
    power = TTestPower().power(last["smallest_effect"] / last["standard_deviation"], last["users"], 0.0125)
    assert power == pytest.approx(0.8, abs=0.005) and result.as_dict()["level"] == 0.0125
    assert "a test with the same users in both finds with a probability of 80 %" in result.test
    assert result.test.endswith("corrected: at the smallest step of 4 comparisons, a level of 0.0125")
    far = plan(users, "ap", 5, "0.1%", comparisons=4, **pair)
    sd = plan(users, "ap", 15, **pair).rows[-1]["standard_deviation"]
    needed = TTestPower().solve_power(0.001 * mean / sd, alpha=0.0125, power=0.8)
    assert far.users_needed == pytest.approx(needed, rel=1e-3)
    by_lists = plan(users, "ap", 5, **pair, **BY_LISTS).rows[-1]  # type: ignore[arg-type]
    (row,) = compare(users, "a", metrics="ap", **PERIOD, **BY_LISTS).collect()  # type: ignore[arg-type]
    error = by_lists["standard_deviation"] / math.sqrt(by_lists["users"])
    assert error == pytest.approx(row["standard_error"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, BY_LISTS, BY_HOUSEHOLD, {"baseline": "a"}, {"comparisons": 4}], ids=str)
def test_a_test_finds_the_planned_effect_in_80_of_100(spark: SparkSession, options: dict[str, Any]) -> None:
    """1,000 tests of the planned size; households of three users, and users with 1 to 20 lists whose values go with
    their number.
    """
    rng, n, draws, is_paired = np.random.default_rng(7), 300, 1_000, "baseline" in options

    def users(total: int, effect: float = 0.0, of_test: int = n) -> pd.DataFrame:
        """Users of both experiments; with clusters, three of a household after each other, who are alike."""
        lists = np.minimum(1 + rng.geometric(0.3, (2, total)), 20)
        alike = 3 if "cluster" in options else 1
        level = 0.4 + 0.01 * lists + rng.normal(0, 0.1, (2, total // alike)).repeat(alike, axis=1)
        level += rng.gamma(1, 0.1, lists.shape)
        if is_paired:
            level[1], lists[1] = level[0] + rng.normal(0, 0.05, total), lists[0]
        level[1] += effect
        names = [f"{side}{i}" for side in "ab" for i in range(total)]
        own: dict[str, Any] = {"user_id": [n[is_paired:] for n in names], "n_lists": lists.ravel(), "ap": level.ravel()}
        own |= {"household": [f"{name[0]}{int(name[1:]) // 3}" for name in names]}
        test = np.tile(np.arange(total) // of_test, 2)
        own |= {"experiment_id": np.repeat(["a", "b"], total), "n_relevant": 1, "evaluation_date": DAYS[0]}
        return pd.DataFrame(own | {"test": test})

    units = n // 3 if options == BY_HOUSEHOLD else n
    replay = {"experiment": "b"} if is_paired else {}
    planned = plan(users(30_000), "ap", 1, users=units if is_paired else 2 * units, **options, **replay)
    level = planned.design.level
    frame = users(n * draws, planned.rows[0]["smallest_effect"])
    own = {name: options[name] for name in ("mean_over", "cluster") if name in options}
    rows = compare(frame.drop(columns="evaluation_date"), "a", segments="test", correction="none", **own).to_pandas()
    rows = rows[rows["segment"] != "all"]
    assert len(rows) == draws and np.mean(rows["p_value"] < level) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("options", "message"), messages("plans"))
def test_what_cannot_be_planned_is_one_sentence(spark: SparkSession, options: dict[str, Any], message: str) -> None:
    arguments = {"metric": "ap", "days": 5, "dates": (DAYS[0], DAYS[-1]), **options}
    with pytest.raises((ConfigError, InputError), match=re.escape(message)):
        plan(table(spark, log(users=20)), **arguments)


def test_a_plan_that_names_no_days_is_of_14_or_of_as_many_as_can_be_expected(spark: SparkSession) -> None:
    stored = table(spark, log(users=20))
    for dates, n_days in (((DAYS[0], DAYS[-1]), 14), ((DAYS[0], DAYS[2]), 9), ((DAYS[0], DAYS[0]), 1)):
        assert len(plan(stored, "ap", dates=dates).rows) == n_days
    # Four users are too few: no change of a mean from 0 to 1 is as large as what they find.
    few = plan(stored, "ap", users=4)
    assert {row["smallest_effect"] for row in few.rows} == {None}
    assert few.test.endswith("; -: too few users to find even the largest possible change")


def test_one_user_has_no_spread(spark: SparkSession) -> None:
    one = table(spark, [("a", "u", day, 1, 1, 0.5, 1, "h") for day in DAYS])
    with pytest.raises(
        InputError, match="1 users have a value of ap; allowed: at least 2, since one user has no spread"
    ):
        plan(one, "ap", 5)


def test_users_with_the_same_value_have_no_spread(spark: SparkSession) -> None:
    same = table(spark, [("a", user, day, 1, 1, 0.1, 1, "h") for day in DAYS for user in ("u", "v", "w")])
    with pytest.raises(InputError, match=r"12 \(5 days\): all users have the same ap; allowed: values that differ"):
        plan(same, "ap", 5, 0.01)
    with pytest.raises(InputError, match="user_metrics has no column evaluation_date, which a period needs"):
        plan(same.drop("evaluation_date"), "ap", 5)


# ---- the command


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    users = table(spark, log()).where(F.col("evaluation_date") >= DAYS[0])
    users.write.partitionBy("experiment_id", "evaluation_date").parquet(str(tmp_path / "user_metrics"))
    return tmp_path


def test_the_command_prints_the_plan_in_every_format(spark: SparkSession, folder: Path, call: Call) -> None:
    expected = plan(table(spark, log()), "ap", 7, "20%", dates=(DAYS[0], DAYS[-1]))
    request = ("plan", "--input", folder, "--metric", "ap", "--days", 7, "--effect", "20%")
    code, out, err = call(*request, "--format", "json")
    assert (code, json.loads(out)) == (0, json.loads(json.dumps(expected.as_dict())))
    code, out, _ = call(*request, "--format", "csv")
    header, *lines = out.splitlines()
    assert (code, len(lines)) == (0, 7)
    assert lines[6].split(",")[:4] == ["7", "", "expected", str(expected.rows[6]["users"])]
    assert header.split(",") == [*expected.rows[0]]
    code, out, err = call(*request)
    last = expected.rows[6]
    assert code == 0
    assert f"{last['smallest_effect']:#.3g} ({100 * last['smallest_relative_effect']:#.3g} %)" in out
    assert expected.test in err and expected.basis in err and expected.answer in err
    shares = "that a test with 50 / 50 % of the users finds with a probability of 80 %"
    assert f"the smallest change of ap (mean {expected.mean:.4g}) {shares}" in expected.test


def test_the_options_of_the_command_reach_the_plan(spark: SparkSession, folder: Path, call: Call) -> None:
    request = ("plan", "--input", folder, "--metric", "ap", "--days", 3, "--format", "json")
    users = table(spark, log())
    for arguments, options in [
        (("--from", DAYS[2], "--to", DAYS[3]), {"dates": (DAYS[2], DAYS[3])}),
        (("--from", DAYS[2]), {"dates": (DAYS[2], DAYS[4])}),
        (("--to", DAYS[3]), {"dates": (DAYS[0], DAYS[3])}),
        (("--from", DAYS[2], "--to", DAYS[4], "--before", f"{DAYS[0]}..{DAYS[1]}"),
         {"dates": (DAYS[2], DAYS[4]), "before": (DAYS[0], DAYS[1])}),
        (("--from", DAYS[1], "--to", DAYS[4], "--before", DAYS[0]),
         {"dates": (DAYS[1], DAYS[4]), "before": (DAYS[0], DAYS[0])}),
        (("--users", 5_000, "--shares", "0.2,0.3"),
         {"users": 5_000, "shares": (0.2, 0.3), "dates": (DAYS[0], DAYS[4])}),
        (("--set", "confidence=0.9", "--set", "power=0.5", "--set", "tuning_users=77", "--experiment", "a"),
         {"confidence": 0.9, "power": 0.5, "tuning_users": 77, "experiment": "a", "dates": (DAYS[0], DAYS[4])}),
    ]:  # fmt: skip
        out, _ = ok(call, *request, *arguments)
        assert json.loads(out) == json.loads(json.dumps(plan(users, "ap", 3, **options).as_dict()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("arguments", "code", "message"), cases("mistakes of plan"))
def test_the_command_ends_with_the_code_of_the_mistake(
    folder: Path, call: Call, arguments: tuple[str, ...], code: int, message: str
) -> None:
    metric = () if "--metric" in arguments else ("--metric", "ap")
    result, out, err = call("plan", "--input", folder, *metric, *arguments)
    assert (result, out) == (code, "")
    assert message in err and err.count("\n") == 1


def test_a_folder_without_stored_days_ends_with_3(tmp_path: Path, call: Call) -> None:
    code, _, err = call("plan", "--input", tmp_path, "--metric", "ap")
    assert (code, "holds no user_metrics" in err) == (3, True)
    # One that is not there is found before an engine starts.
    for command in (("plan", "--metric", "ap"), ("compare", "--baseline", "a"), ("report", "--html", tmp_path / "a")):
        if "--html" in command:
            pytest.importorskip("altair")
        code, _, err = call(*command, "--input", tmp_path / "none")
        said = (
            f"rankmetrics: --input '{tmp_path / 'none'}' is no folder; allowed: the output folder of an earlier run, "
        )
        assert (code, err) == (3, f"{said}which holds user_metrics\n")
