"""The outlook of an open comparison, from stored days: against the plan of the same users, and in what people read."""

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import compare, metrics as mx, plan, report as rep
from rankmetrics_spark.comparison import outlooks
from rankmetrics_spark.config import Comparison, Days, Gate
from tests.helpers.commands import Call, ok
from tests.helpers.logs import a_list, parquet

DAYS = [f"2026-11-{day:02}" for day in range(8, 14)]
PERIOD = Days(DAYS[0], DAYS[-1], tuple(DAYS))
SCHEMA = "experiment_id string, user_id string, evaluation_date string, n_lists bigint, ap double, n_relevant bigint, "
SCHEMA += "convention_hash string"
Rows = list[tuple[Any, ...]]
AP = mx.parse("ap")
SECTION = Comparison.read({"baseline": "a"})


def log(paired: bool, users: int = 300, seed: int = 3) -> Rows:
    """Users who come back with chances of their own, one or two lists a day; nothing differs between experiments."""
    rng, rows = random.Random(seed), []
    for number in range(users):
        level, chance = rng.random(), rng.choice([0.05, 0.2, 0.6])
        for day in DAYS:
            if rng.random() < chance:
                for experiment in "abc" if paired else "abc"[number % 3]:
                    value = level + rng.gauss(0, 0.2)
                    rows.append((experiment, f"u{number}", day, rng.randint(1, 2), value, 1, "h"))
    return rows


def rows_of(users: DataFrame, **options: Any) -> list[dict[str, Any]]:
    result = compare(users, "a", metrics="ap", dates=(DAYS[0], DAYS[-1]), **options)
    return sorted((row.asDict() for row in result.collect()), key=lambda row: str(row["experiment_id"]))


@pytest.mark.parametrize("paired", [False, True], ids=["independent", "paired"])
def test_the_rate_is_that_of_a_plan_from_the_same_users(spark: SparkSession, paired: bool) -> None:
    rows = log(paired)
    users = spark.createDataFrame(rows, SCHEMA)
    open_rows = rows_of(users)
    assert [row["design"] for row in open_rows] == ["paired" if paired else "independent"] * 2
    assert [row["better"] for row in open_rows] == [None, None]
    of_plan = [row for row in rows if row[0] in "ab"]
    if paired:
        # What says how sure a paired test is are the differences of a user.
        value = {row[:3]: row for row in rows}
        pairs = [(a, value[("b", *a[1:3])]) for key, a in value.items() if key[0] == "a"]
        of_plan = [("d", *a[1:3], min(a[3], b[3]), b[4] - a[4], 1, "h") for a, b in pairs]
    days = plan(spark.createDataFrame(of_plan, SCHEMA), "ap", 18).rows
    today = days[5]
    errors = [day["standard_deviation"] / math.sqrt(day["users"]) for day in days]
    ratio = [error / errors[5] for error in errors[6:]]
    for place in (3, 9):
        middle = (ratio[place] + ratio[place - 1]) / 2
        gates = (Gate.read({"metric": "ap", "max_drop": open_rows[0]["adjusted_minimum_detectable_effect"] * middle}),)
        result = outlooks(open_rows[:1], users, PERIOD, replace(SECTION, gates=gates), AP)[0]
        assert (result.candidate, result.baseline) == ("b", "a")
        assert (result.limit, result.furthest) == ("the limit of a gate", 12)
        assert result.days == place + 1
        growth = days[6 + place]["users"] / today["users"]
        assert result.users == pytest.approx(open_rows[0]["n_users"] * growth, rel=0.01)
    # Both pairs, in their order, each with a number of its own.
    assert [each.candidate for each in outlooks(open_rows, users, PERIOD, SECTION, AP)] == ["b", "c"]


def test_many_users_are_measured_by_a_part_of_them_in_any_order(spark: SparkSession) -> None:
    rows = log(False, users=900)
    (row,) = rows_of(spark.createDataFrame(rows, SCHEMA), candidates="b")
    once = [outlooks([row | {"n_users": n}], spark.createDataFrame(rows, SCHEMA), PERIOD, SECTION, AP)
            for n in (600, 40_000)]  # fmt: skip
    # The rate of a quarter of the users is another one, and close to it.
    growth = [each.users / n for (each,), n in zip(once, (600, 40_000), strict=True)]
    assert growth[0] != growth[1] == pytest.approx(growth[0], rel=0.2)
    again = spark.createDataFrame(rows[::-1], SCHEMA).repartition(5)
    assert outlooks([row | {"n_users": 40_000}], again, PERIOD, SECTION, AP) == once[1]


def test_only_open_comparisons_of_several_days_have_an_outlook(spark: SparkSession) -> None:
    users = spark.createDataFrame(log(False), SCHEMA)
    (row,) = rows_of(users, candidates="b")
    today = row["adjusted_minimum_detectable_effect"]

    def outlooks_of(more: dict[str, Any], days: Days = PERIOD, metric: str = "ap", *gates: dict[str, Any]) -> list[Any]:
        asked = {name: {metric: more[name]} for name in ("margin", "effect") if name in more}
        section = replace(SECTION, **asked, gates=tuple(Gate.read({"metric": "ap"} | gate) for gate in gates))
        return outlooks([row | more], users, days, section, mx.parse(metric))

    assert len(outlooks_of({})) == 1
    for more in (
        {"better": "candidate"},
        {"better": "baseline"},
        {"p_adjusted": None},
        {"note": "not trustworthy: users are not split as planned"},
        {"segment": "country=de"},
        {"adjusted_minimum_detectable_effect": None},
    ):
        assert outlooks_of(more) == [], more
    assert outlooks_of({}, metric="rr") == [] and outlooks_of({}, Days(DAYS[0], DAYS[-1], (DAYS[0],))) == []
    # Without a gate: a round percentage of the baseline's mean, or a round number where that is not above 0.
    share = today / row["mean_baseline"]
    (of_share,), (of_unit,) = outlooks_of({}), outlooks_of({"mean_baseline": 0.0})
    assert share / 3 < of_share.relative_effect <= share * 2 / 3
    assert f"{100 * of_share.relative_effect:.10g}" in {"8", "10", "15", "20", "25", "30"}
    assert (of_unit.relative_effect, of_unit.limit) == (None, "") and today / 3 < of_unit.effect <= today * 2 / 3
    # The smallest drop that a gate on this metric, experiment and all users forbids; nothing where that is found today.
    mean = row["mean_baseline"]
    gates: list[dict[str, Any]] = [
        {"max_drop": 0.5 * today},
        {"max_relative_drop": 0.4 * today / mean},
        {"max_drop": 0.1 * today, "segment": "country=de"},
        {"max_drop": 0.1 * today, "experiment": "c"},
        {"max_drop": 0.1 * today, "metric": "rr"},
        {"max_drop": 0.0},
    ]
    (of_gate,) = outlooks_of({}, PERIOD, "ap", *gates)
    assert (of_gate.effect, of_gate.limit) == (pytest.approx(0.4 * today), "the limit of a gate")
    assert of_gate.relative_effect == 0.4 * today / mean
    assert outlooks_of({}, PERIOD, "ap", {"max_drop": 1.1 * today}) == []
    # The margin or effect of the metric, in its unit or as a share; nothing where it is shown to be within the margin.
    share = 0.3 * today / mean
    for name, limit, size in (("margin", "the margin", 0.3 * today), ("margin", "the margin", f"{100 * share}%"),
                              ("effect", "the stated effect", 0.3 * today)):  # fmt: skip
        (stated,) = outlooks_of({name: size}, PERIOD, "ap", *gates)
        assert (stated.effect, stated.limit) == (pytest.approx(0.3 * today, rel=1e-5), limit)
        assert stated.relative_effect == (pytest.approx(share, rel=1e-5) if isinstance(size, str) else None)
        assert outlooks_of({name: size, "within_margin": "no worse"}) == []


def config(folder: Path, out: Path, day: str, **more: Any) -> Path:
    """The config of one day, with a log of users who differ by nothing but chance."""
    rng = random.Random(day)
    shown = [row for name in "ab" for user in range(60) if rng.random() < 0.3
             for row in a_list([int(rng.random() < 0.4) for _ in range(4)], f"{name}{user}", name)]  # fmt: skip
    file = folder / f"{day}.yaml"
    section = {"source": {"path": str(parquet(folder / day, shown))}, "metrics": ["ap@5"], "sink": {"path": str(out)}}
    comparison = {"baseline": "a", "period": {"from": DAYS[0]}, "design": "independent"}
    file.write_text(yaml.safe_dump(section | {"comparison": comparison} | more))
    return file


OUTLOOK = re.compile(r"b against a on MAP@5: if users keep arriving as they do, .*\d+(?:\.5)? % takes about")


@pytest.mark.slow
def test_run_compare_and_page_say_when_an_open_test_finds_more(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    message = {}
    for day in DAYS[:3]:
        text, _ = ok(call, "evaluate", "--config", config(tmp_path, out, day), "--date", day)
        message[day] = [line for line in text.splitlines() if OUTLOOK.match(line)]
    # A single day does not say who comes back.
    assert [len(message[day]) for day in DAYS[:3]] == [0, 1, 1]
    request = ("compare", "--input", out, "--baseline", "a", "--set", "design=independent", "--format", "json")
    code, text, err = call(*request, "--from", DAYS[0])
    assert code == 0 and json.loads(text)["verdict"][-2] == message[DAYS[2]][0], err
    assert not any(map(OUTLOOK.match, json.loads(call(*request, "--date", DAYS[2])[1])["verdict"]))
    if rep.has_page_libraries():
        ok(call, "report", "--input", out, "--html", page)
        html = page.read_text(encoding="utf-8")
        answer = html[html.index('<section id="answer"') : html.index('id="candidates"')]
        assert f'<p class="sure">{message[DAYS[2]][0]}.</p>' in answer


@pytest.mark.slow
def test_a_run_speaks_of_the_limit_of_a_gate_as_the_effect(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out, gates = tmp_path / "out", [{"metric": "ap@5", "max_relative_drop": 0.2}]
    for day in DAYS[:2]:
        text, _ = ok(call, "evaluate", "--config", config(tmp_path, out, day, gates=gates), "--date", day)
    assert "; 20 %, the limit of a gate, takes about " in text
