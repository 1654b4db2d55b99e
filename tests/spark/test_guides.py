"""The guide of each kind of user: every command and all code run, and few commands lead to the answer."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, engines as eng
from tests.helpers.commands import Call, Typed, ok
from tests.helpers.first_hour import ANSWERS, FILES, MOST_COMMANDS, WALK, page_of, walk_of
from tests.helpers.readme import blocks, commands, names_after, section
from tests.spark.test_own_shapes import MEANS, ga4

FIELD = Path(__file__).parent / "field"
GUIDES = [guide if guide == "guide-search" else pytest.param(guide, marks=pytest.mark.slow) for guide in FILES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def placed(words: list[str], folder: Path, spark: SparkSession) -> list[str]:
    """The words of a command; a Spark of the suite runs in another folder, so there its paths are absolute."""
    if eng.is_laptop(spark):
        return words
    return [
        f"{folder}/{word}" if not word.startswith(("-", "/")) and (folder / word.split("/")[0]).exists() else word
        for word in words
    ]


@pytest.mark.parametrize("guide", GUIDES)
def test_few_commands_lead_from_a_file_to_the_answer_and_no_file_is_edited(
    call: Call, spark: SparkSession, folder: Path, guide: str, typed: Typed
) -> None:
    FILES[guide](folder)
    (folder / "out").mkdir()
    walk, given, message = walk_of(guide), {file for file in folder.rglob("*") if file.is_file()}, ""
    assert 2 <= len(walk) <= MOST_COMMANDS
    for words in walk:
        out, _ = ok(call, *placed(words[1:], folder, spark))
        message += out
    answers = [result[0] for result in re.finditer(ANSWERS[guide] + r".*$", message, re.MULTILINE)]
    assert answers, message
    # The page shows the means that are printed.
    (shown,) = blocks("text", section(WALK, page_of(guide)))
    assert shown.partition(", ")[0] == answers[-1].partition(", ")[0]
    # A config that a command wrote, its schema, and the results: no file was written or edited by hand.
    written = {file for file in folder.rglob("*") if file.is_file()} - given
    at_top = {file.name for file in written if file.parent == folder}
    assert at_top == {"rankmetrics.schema.json", next(name for name in at_top if name.endswith(".yaml"))}
    assert all(file.is_relative_to(folder / "out") for file in written if file.parent != folder)

    for words in commands("rankmetrics", page_of(guide))[len(walk) :]:
        typed("".join(file.read_text() for file in folder.glob("*.yaml")))
        out, _ = ok(call, *placed(words[1:], folder, spark))
        assert out


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs_on_the_same_files(call: Call, spark: SparkSession, folder: Path, guide: str) -> None:
    FILES[guide](folder)
    (folder / "out").mkdir()
    programs = blocks("python", page_of(guide))
    assert programs
    if guide == "guide-platform":
        for words in walk_of(guide):
            ok(call, *placed(words[1:], folder, spark))
    for program in programs:
        if "polars" in program and not find_spec("polars"):
            continue
        names = names_after(program.replace('"out/', f'"{folder}/out/'), spark=spark)
        if "result" in names:
            means = names["result"].to_pandas()
            assert {"ndcg@10"} <= {*means["metric"]}
        if "alike" in names:
            (row,) = names["alike"].to_pandas().to_dict("records")
            assert (row["user_id"], row["jaccard"], row["kendall"], row["same_top"]) == ("q1", 1, -1, 0)
        elif "diverse" in names:
            means = names["diverse"].to_pandas().set_index(["experiment_id", "metric"])["mean"].round(2)
            assert {*means.xs("ap", level="metric")} == {1}
            assert dict(means.xs("alpha_ndcg(alpha=0.5)@2", level="metric")) == {"bm25": 0.88, "dense": 1}
        elif "varied" in names:
            means = names["varied"].to_pandas().set_index(["experiment_id", "metric"])["mean"]
            assert {*means.xs("ndcg@2", level="metric")} == {1}
            assert dict(means.xs("distinct@2", level="metric")) == {"control": 1, "varied": 3}
        elif "missing" in names:
            assert blocks("text", page_of(guide))[-1].splitlines() == [*names["sentences"][:2]]
            assert [*names["first"]["item_id"]] == ["y", "x"]
        elif "as_people" in names:
            (row,) = names["as_people"].comparisons.to_pandas().to_dict("records")
            assert row["ci_low"] > 0 and 0 < row["lambda"] < 1 and row["n_judged"] == 60
            (text,) = (text for text in blocks("yaml", page_of(guide)) if "human_sample" in text)
            (folder / "judged.yaml").write_text(text.replace("path: ", f"path: {folder}/"))
            words = ("-o", folder / "out" / "judged", "--date", "2026-11-20", "--format", "json")
            code, out, err = call("evaluate", "-c", folder / "judged.yaml", *words)
            assert code == 0 and json.loads(out)["comparisons"][0]["difference"] == row["difference"], err
        elif "judged" in names:
            rows = names["grades"].to_pandas().set_index("item_id")["relevance"].to_dict()
            assert rows == {"a": pytest.approx(16 / 11), "b": pytest.approx(6 / 11)}
            means = names["judged"].to_pandas("user_metrics").set_index("experiment_id")
            assert means["p_at_1"].to_dict() == {"new": 1, "old": 0} and means["ndcg_at_2"]["new"] == 1
        elif guide == "guide-search":
            (row,) = names["result"].to_pandas("user_metrics").to_dict("records")
            assert row["ap"] == 1 / 2
        if guide == "guide-platform":
            assert {*names["means"]["experiment_id"]} == {"control", "treatment"}
            assert "status" in names["alerts"].columns


def test_the_guide_of_logs_reads_each_of_them(call: Call, spark: SparkSession, folder: Path) -> None:
    shutil.copytree(FIELD / "ubi", folder, dirs_exist_ok=True)
    page = page_of("guide-logs")
    for words in commands("rankmetrics", page):
        out, _ = ok(call, *placed(words[1:], folder, spark))
    # Means by plain loops: see tests/spark/field.
    assert {line.split()[1] for line in out.splitlines() if "dense" in line} and "NDCG@10" in out
    names: dict[str, Any] = {}
    for program in blocks("python", page):
        exec(program, names)
    assert names["shown"].set_index("experiment_id")["mean"].to_dict() == {"control": 1 / 2, "new": 1.0}
    # hat is second of three, and one of two relevant items.
    assert names["frames"].set_index("metric")["mean"].to_dict() == {"ap@3": (1 / 2) / 2, "p@3": 1 / 3}
    assert [*names["searches"]["mean"]] == [1.0]
    (events,) = [text for text in blocks("yaml", page) if "rows: {column: event_name" in text]
    for text in blocks("yaml", page):
        assert cfg.from_mapping(yaml.safe_load(text)).source.columns
    (folder / "warehouse" / "events").mkdir(parents=True)
    shutil.move(*ga4(), folder / "warehouse" / "events" / "day.parquet")
    (folder / "ga4.yaml").write_text(events.replace("path: ", f"path: {folder}/"))
    given = ("--set", "metrics=ap@3", "--date", "2026-11-20", "-o", "out/ga4", "--format", "json")
    out, _ = ok(call, *placed(["evaluate", "-c", "ga4.yaml", *given], folder, spark))
    assert {row["experiment_id"]: row["mean"] for row in json.loads(out)["means"]} == pytest.approx(MEANS)


def test_each_task_is_done_by_its_commands(call: Call, spark: SparkSession, folder: Path) -> None:
    out = folder / "out" / "days"
    assert call("demo", "--days", 3, "--users", 300, "--output", out)[0] == 0
    for words in commands("rankmetrics", page_of("tasks")):
        named = [str(out / "input" / "config.yaml") if word == "CONFIG" else word for word in words[1:]]
        ok(call, *placed(named, folder, spark))
