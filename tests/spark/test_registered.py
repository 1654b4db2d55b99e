"""``rankmetrics register``: what was to decide is written down before the first look, and each deviation is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, report as rep, run
from rankmetrics_spark.job import Outcome, verify
from rankmetrics_spark.sinks import files_of, swapping
from tests.helpers.commands import ROOT, Call
from tests.helpers.logs import DATE, a_list, config, csv_file, parquet
from tests.helpers.messages import messages
from tests.helpers.readme import blocks

PAGE, OF_TESTS = blocks("text", (ROOT / "docs" / "verifying.md").read_text(encoding="utf-8"))
PLAN = PAGE
OWN = {"control": "a", "ndcg@10": "ndcg@5", "14": "2", "10000": "1000", "2026-11-21": DATE, "[country]": "[]"}
for _word, _own in {**OWN, "is_bot = false": "user_id != '{date}'"}.items():
    PLAN = PLAN.replace(_word, _own)
AS_PLANNED: dict[str, Any] = {"baseline": "a", "primary": ["ndcg@5"], "margin": {"ndcg@5": 0.01}}
AS_PLANNED |= {"looks": {"planned": 2}, "tuning_users": 1000}


def day(spark: SparkSession, tmp_path: Path, date: str = DATE, where: str = "{date}", **changes: Any) -> Outcome:
    rows = [row for e in "ab" for u in range(9) for row in a_list([u % 2, 1], f"u{u}", e)]
    log = tmp_path / "log" if (tmp_path / "log").exists() else parquet(tmp_path / "log", rows)
    more = {"comparison": AS_PLANNED | changes, "source": {"where": f"user_id != '{where}'"}}
    return run(spark, config(log, tmp_path / "out", evaluation_date=date, **more))


def registered(call: Call, tmp_path: Path, text: str = PLAN) -> tuple[int, str, str]:
    (tmp_path / "plan.yaml").write_text(text)
    return call("register", tmp_path / "plan.yaml", "-o", tmp_path / "out")


def test_a_run_says_whether_it_decides_as_registered(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    code, out, _ = registered(call, tmp_path)
    on = json.loads(out)["registered"][:10]
    assert (code, json.loads(out)["looks_before"]) == (0, [])
    done = day(spark, tmp_path, "2026-11-19")
    assert done.record["verdict"][-1] == f"As registered on {on}."
    checks = [row for row in done.checks.collect() if row["name"] == "registered"]
    said = {(row["experiment_id"], row["status"], row["sentence"]) for row in checks}
    assert said == {(name, "ok", f"As registered on {on}") for name in "ab"}
    day(spark, tmp_path)
    # The page has it, and whoever verifies derives it too.
    shown = rep.figures_of(rep.local_tables(str(tmp_path / "out"))).checks
    assert f"As registered on {on}" in {row["sentence"] for row in shown}
    assert not verify(spark, cfg.Sink(path=str(tmp_path / "out"))).other
    late = day(spark, tmp_path, "2026-11-23", where="u1", primary=["ap@5"], margin={"ap@5": 0.02}, tuning_users=10)
    deviations = [
        'another metric decides: primary is ["ap@5"], registered is ["ndcg@5"]',
        'margin is {"ap@5": 0.02}, registered is {"ndcg@5": 0.01}',
        "tuning_users is 10, registered is 1000",
        "exclusions is \"user_id != 'u1'\", registered is \"user_id != '2026-11-23'\"",
        "1 look more than the 2 registered",
        "it ends on 2026-11-23, 3 days after the registered end, 2026-11-20",
    ]
    assert late.record["verdict"][-1] == f"Not as registered on {on}: {'; '.join(deviations)}."
    assert late.record["verdict"][-1][:-1] in late.record["quality"]["warnings"]
    # One plan for an output, which nobody can change without a trace.
    code, _, err = registered(call, tmp_path)
    assert code == 2 and f"has the plan of {on}; allowed: another output" in err
    plan = tmp_path / "out" / "registered" / "plan.json"
    plan.write_text(plan.read_text().replace("1000", "10"))
    altered = "Not as registered: registered/plan.json is not as it was written."
    assert day(spark, tmp_path).record["verdict"][-1] == altered
    found, _ = swapping.altered(files_of(str(tmp_path / "out")), DATE)
    assert found == ["registered/plan.json is not as it was written: its digest is not that of its text"]


def test_a_plan_that_comes_after_the_first_look_says_so(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    day(spark, tmp_path, "2026-11-18", looks="one")
    _, out, _ = registered(call, tmp_path, "{baseline: a, primary: ap@5, looks: one, end: 2026-11-20}")
    on = json.loads(out)["registered"][:10]
    assert not verify(spark, cfg.Sink(path=str(tmp_path / "out"))).other  # it was none of that run
    expected = (
        f"Not as registered on {on}: the plan came after the first published look, of 2026-11-18; 1 look more than "
        "the 1 registered; it ends on 2026-11-19, 1 day before the registered end, 2026-11-20."
    )
    assert day(spark, tmp_path, "2026-11-19", looks="one", primary=[]).record["verdict"][-1] == expected


def test_a_last_look_before_the_registered_end_is_told(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    # In other words what the config says.
    text = "{pairs: all, primary: [ndcg@5, ap@5], looks: {planned: 2}, end: 2026-11-21, time_zone: UTC, "
    text += "period: {from: 2026-11-18}, shares: {a: 2, b: 2}, exclusions: \"user_id != '{date-1}'\"}"
    on = json.loads(registered(call, tmp_path, text)[1])["registered"][:10]
    own = {"primary": ["ap@5", "ndcg@5"], "baseline": None, "pairs": "all", "period": {"from": "2026-11-18"}}
    own["shares"] = {"a": 0.5, "b": 0.5}
    runs = (day(spark, tmp_path, date, where="{date-1}", **own) for date in ("2026-11-18", "2026-11-19"))
    first, last = (each.record["verdict"][-1] for each in runs)
    assert first == f"As registered on {on}."
    assert last == f"Not as registered on {on}: it ends on 2026-11-19, 2 days before the registered end, 2026-11-21."


def test_each_test_is_held_to_its_own_part_of_the_plan(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    (tmp_path / "documented").mkdir()
    assert registered(call, tmp_path / "documented", OF_TESTS)[0] == 0
    own = {"baseline": "a", "primary": ["ndcg@5"], "from": "2026-11-18", "to": "2026-11-21"}
    tests: dict[str, Any] = {"ranker": own | {"looks": {"planned": 2}}, "price": own | {"looks": "one"}}
    plan = {"tuning_users": 100, "tests": tests | {"price": tests["price"] | {"margin": {"ap@5": 0.01}}}}
    on = json.loads(registered(call, tmp_path, json.dumps(plan))[1])["registered"][:10]
    arms = [{"test": t, "arm": "ab"[n % 2], "user": f"u{n}"} for t in ("ranker", "price", "new") for n in range(8)]
    rows = [{"user_id": f"u{n}", "item_id": "i", "position": 1, "relevance": n % 2} for n in range(8)]
    log, of_users = csv_file(tmp_path / "log.csv", rows), csv_file(tmp_path / "arms.csv", arms)
    sections: dict[str, Any] = {"source": {"format": "csv"}, "assignments": {"path": of_users}}

    def night(date: str, of_ranker: str = "ndcg@5") -> Outcome:
        now = tests | {"ranker": tests["ranker"] | {"primary": [of_ranker]}}
        every = sections | {"comparison": {"tuning_users": 100}, "tests": now}
        return run(spark, config(log, tmp_path / "out", evaluation_date=date, **every))

    done = night("2026-11-19")
    unknown = f"new: not as registered on {on}: the plan has no test of this name"
    price = (
        f'price: not as registered on {on}: margin is null, registered is {{"ap@5": 0.01}}; '
        "it ends on 2026-11-19, 2 days before the registered end, 2026-11-21"
    )
    expected = {"new": unknown, "price": price, "ranker": f"ranker: as registered on {on}"}
    assert done.record["verdict"][-3:] == [f"{sentence}." for sentence in expected.values()]
    checks = [row for row in done.checks.collect() if row["name"] == "registered"]
    said = {(row["experiment_id"], row["status"], row["sentence"]) for row in checks}
    assert said == {
        (f"{test}:{arm}", "ok" if test == "ranker" else "warn", sentence)
        for test, sentence in expected.items()
        for arm in "ab"
    }
    of_page = rep.figures_of(rep.local_tables(str(tmp_path / "out"))).tests
    assert {
        test: {row["sentence"] for row in each.checks if row["name"] == "registered"} for test, each in of_page.items()
    } == {test: {sentence} for test, sentence in expected.items()}
    assert not verify(spark, cfg.Sink(path=str(tmp_path / "out"))).other
    night("2026-11-20")
    late = night("2026-11-21", of_ranker="ap@5")
    (sentence,) = (line for line in late.record["verdict"] if line.startswith("ranker: not"))
    assert sentence == (
        f'ranker: not as registered on {on}: another metric decides: primary is ["ap@5"], registered is ["ndcg@5"]; '
        "1 look more than the 2 registered."
    )


@pytest.mark.parametrize(("text", "message"), messages("plans to register"))
def test_a_plan_that_says_too_little_is_refused(tmp_path: Path, call: Call, text: str, message: str) -> None:
    code, _, err = registered(call, tmp_path, text)
    assert code == 2 and message in err and not (tmp_path / "out").exists()
