"""The commands and the code of the README and of the tutorial give the results that they describe."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, metrics as mx, report as rep
from rankmetrics_spark.tools import BEST_FIRST, make_log
from tests.helpers.commands import ROOT, Call, ok
from tests.helpers.readme import README, blocks, commands, section
from tests.metric_table import updated
from tests.spark.test_guides import placed

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OWN_LOG, ANSWER = section("2. A config of your own"), section("3. More questions to the same tables")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as ``make run`` leaves it, with the config of the tutorial."""
    make_log(tmp_path / "out" / "demo" / "input", users=2400)
    (config,) = blocks("yaml", OWN_LOG)
    (tmp_path / "first.yaml").write_text(config)
    return tmp_path


@pytest.mark.compiled
def test_each_block_of_the_readme_runs_after_the_one_before(
    call: Call, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        block = f"```{language}\n{text}```"
        if "make run" in text:
            # The log of make run, which the next block reads.
            make_log(tmp_path / "out" / "demo" / "input", users=24_000)
        elif language == "python":
            exec(text, names)
        elif language == "text":
            # NumPy before 2.0 draws another log from the same seed.
            assert printed.startswith(text) or np.__version__ < "2"
        else:
            assert commands("rankmetrics", block)
        for words in commands("rankmetrics", block):
            printed, _ = ok(call, *placed(words[1:], tmp_path, spark))
    assert {*names["result"].to_pandas("comparisons")["better"]} == {"candidate", "baseline"}


def overall_means(out: str) -> dict[tuple[str, str], float]:
    rows = [row for row in json.loads(out)["means"] if row["segment"] == "all"]
    return {(row["experiment_id"], row["metric"]): row["mean"] for row in rows}


def test_the_commands_and_the_python_code_give_the_same_numbers(spark: SparkSession, folder: Path, call: Call) -> None:
    # The suite's Spark was started in another folder, so the output needs an absolute path.
    config = (folder / "first.yaml").read_text()
    (folder / "first.yaml").write_text(config.replace("path: out", f"path: {folder}/out"))
    evaluations, others = (commands("rankmetrics", text) for text in (OWN_LOG, section("What the numbers mean")))
    check, table, numbers, conventions, selftest = (
        [f"{folder}/{word}" if word == "first.yaml" else word for word in words[1:]] for words in evaluations + others
    )
    code, out, _ = call(*check, "--format", "json")
    assert (code, json.loads(out)["compared"].split(",")[0]) == (0, "every other experiment with control")
    code, out, err = call(*table, "--format", "json")
    means = overall_means(out)
    best = {experiment: mean for (experiment, metric), mean in means.items() if metric == "ap@10"}
    # The config has no filter, and the log has a date.
    assert "note: no filter selects a day: every row of the log counts as" in err
    assert (code, max(best, key=best.__getitem__)) == (0, BEST_FIRST[0])
    code, out, _ = call(*numbers)
    assert (code, {row["metric"] for row in json.loads(out)["means"]}) == (0, {"ap@5", "rr"})
    code, out, _ = call(*conventions, "--format", "json")
    result = {(r["experiment_id"], "ap@10"): r["ap@10"] for r in json.loads(out) if r["convention"] == "standard"}
    assert (code, result) == (0, {key: mean for key, mean in means.items() if key[1] == "ap@10"})
    code, out, _ = call(*selftest)
    assert (code, [line.split()[0] for line in out.splitlines()][: len(mx.PRESETS)]) == (0, list(mx.PRESETS))

    (program,) = blocks("python", OWN_LOG)
    names: dict[str, Any] = {"impressions": spark.read.parquet(f"{folder}/out/demo/input/impressions")}
    exec(program, names)
    averages = names["result"].experiment_metrics.toLocalIterator()
    assert {(row["experiment_id"], row["metric"]): row["mean"] for row in averages} == means

    # The next section goes on from there.
    chosen, every_pair, report = (
        [f"{folder}/{word}" if word.startswith("out/first") else word for word in words[1:]]
        for words in commands("rankmetrics", ANSWER)
    )
    out, _ = ok(call, *chosen)
    assert out.startswith("candidate_a beats control on NDCG@10: 0.")
    # The metrics that a command has stored on another date are none of this one.
    assert "MAP@10" in out and not any(name in out for name in ("MAP@5", "MRR", "no users with a value"))
    code, out, _ = call(*every_pair)
    pairs = {(row["baseline"], row["experiment_id"]) for row in json.loads(out)["comparisons"]}
    assert (code, pairs) == (0, set(itertools.combinations(sorted(["candidate_a", "candidate_b", "control"]), 2)))
    code, _, err = call(*report)
    if rep.has_page_libraries():
        assert (code, f"open the report: {folder}/out/first/report.html" in err) == (0, True)
        assert "candidate_a beats control" in re.sub("<[^>]+>", "", (folder / "out/first/report.html").read_text())
    else:
        # One sentence says how to get the libraries of the report.
        assert code != 0 and "pip install 'altair>=" in err
    (program,) = blocks("python", ANSWER)
    exec(program, names)
    assert {row["experiment_id"]: row["better"] for row in names["compared"].toLocalIterator()} == {
        "candidate_a": "candidate",
        "candidate_b": "baseline",
    }


@pytest.mark.slow
def test_the_commands_for_a_test_of_many_days_find_the_true_difference(tmp_path: Path, call: Call) -> None:
    made, of_day, compared, at_any, planned = (
        [f"{tmp_path}/{word}" if word.startswith("out/") else word for word in words[1:]]
        for words in commands("rankmetrics", section("4. A test of many days"))
    )
    # Two days with as many users show what fourteen show.
    assert made[1:3] == ["--days", "14"]
    code, _, err = call(made[0], "--days", 2, *made[3:], "--format", "json")
    assert (code, "true difference of NDCG@10 to control: candidate_a +" in err) == (0, True), err
    assert call(*of_day)[0] == 0
    out, _ = ok(call, *compared, "--segment", "country", "--format", "json")
    rows = {row["experiment_id"]: row for row in json.loads(out)["comparisons"] if row["segment"] == "all"}
    true = make_log(tmp_path / "again", days=2).true_differences["candidate_a"]
    assert rows["candidate_a"]["relative_ci_low"] < true < rows["candidate_a"]["relative_ci_high"]
    assert rows["candidate_b"]["better"] is None
    code, out, _ = call(*at_any, "--format", "json")
    answer = json.loads(out)
    assert code == 0 and {row["looks"] for row in answer["comparisons"]} == {"any"}
    assert sum(", valid at every look" in line for line in answer["verdict"]) == 4
    code, out, _ = call(*planned, "--days", 6, "--format", "json")
    assert (code, len(json.loads(out)["days"])) == (0, 6)


@pytest.mark.slow
def test_the_udfs_give_the_values_of_an_evaluation(spark: SparkSession, folder: Path) -> None:
    log = spark.read.parquet(f"{folder}/out/demo/input/impressions")
    sound = log.where("item_id IS NOT NULL AND clicked IS NOT NULL AND slot > 0 AND NOT isnan(model_score)")
    # A query without the item column cannot find the demo's repeated rows.
    sound = sound.dropDuplicates(["variant", "user_id", "item_id"])
    names: dict[str, Any] = {"impressions": sound, "spark": spark}
    (program,) = blocks("python", (ROOT / "docs" / "guide-queries.md").read_text(encoding="utf-8"))
    exec(program, names)
    columns = {"experiment": "variant", "position": "slot", "score": "model_score", "relevance": "clicked"}
    ours = {(row["variant"], row["user_id"]): row for row in names["own"].collect()}
    assert len(ours) > 2000
    for metric, name, options in (
        ("ap@10", "ap", {}),
        ("ndcg@10", "ndcg", {"convention": "trec_eval"}),
        ("rr@10", "rr", {"rank_by": "score"}),
    ):
        users = evaluate(sound, [metric], columns=columns, **options).user_metrics  # type: ignore[arg-type]
        column = users.columns[-1]
        theirs = {(row["experiment_id"], row["user_id"]): row[column] for row in users.collect()}
        assert {key: row[name] for key, row in ours.items()} == theirs
    sound.createOrReplaceTempView("log_of_the_readme")
    query = "SELECT variant, user_id, ap_at_10(slot, clicked) AS ap FROM log_of_the_readme GROUP BY variant, user_id"
    from_sql = {(row["variant"], row["user_id"]): row["ap"] for row in spark.sql(query).collect()}
    assert from_sql == {key: row["ap"] for key, row in ours.items()}


def test_the_modules_of_how_it_works_stand_in_the_order_of_the_road() -> None:
    modules = re.findall(
        r"`([\w./]+)`", " ".join(re.findall(r"^\| \w+ \| (`[^|]+) \|", section("How it works", CONTRIBUTING), re.M))
    )
    assert [name for name in modules if not (ROOT / "rankmetrics_spark" / name).exists()] == []
    road = (ROOT / "rankmetrics_spark" / "job" / "__init__.py").read_text().split("def _tables_of(")[1]
    calls = ["inputs(", "Tables.of_config(", "tables.outcome", "check(tables", "publish(store"]
    assert [road.index(call) for call in calls] == sorted(road.index(call) for call in calls)
    tables = (ROOT / "rankmetrics_spark" / "road" / "tables.py").read_text().split("def of(")[1]
    calls = ["make_plan(", "checked_rows(", "pools(", "ranking.packed(", "scoring.scored(", "averages("]
    assert [tables.index(call) for call in calls] == sorted(tables.index(call) for call in calls)
    steps = [f"road/{name}.py" for name in ("plan", "checking", "ranking", "scoring", "aggregation")]
    assert [n for n in modules if n != "config/"] == [*("sources/", *steps, "comparison/", "job/results.py", "sinks/")]


def test_the_table_of_metrics_is_that_of_the_registry() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert updated(page) == page, "run make readme"
