"""What the README tells people to type gives what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark.metrics.conventions import PRESETS
from rankmetrics_spark.tools.demo import BEST_FIRST, make_log
from tests.commands import ROOT, Call, command
from tests.readme import README, blocks, commands, section

OWN_LOG = section("Your own log")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a person stands after ``make run``, with the README's config beside it."""
    make_log(tmp_path / "out" / "demo" / "input", users=2400)
    (config,) = blocks("yaml", OWN_LOG)
    (tmp_path / "first.yaml").write_text(config)
    return tmp_path


def means_of_everyone(out: str) -> dict[tuple[str, str], float]:
    rows = [row for row in json.loads(out) if row["segment"] == "all"]
    return {(row["experiment_id"], row["metric"]): row["mean"] for row in rows}


# Its paths are relative: over Connect they would be the server's.
@pytest.mark.classic
def test_its_first_command_finds_the_best_ranker_and_says_no_more_than_it_should(folder: Path) -> None:
    done = command(*commands("rankmetrics", OWN_LOG)[0][1:], "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr and "Setting default log level" not in done.stderr
    best = {
        experiment: mean for (experiment, metric), mean in means_of_everyone(done.stdout).items() if metric == "ap@10"
    }
    assert max(best, key=best.__getitem__) == BEST_FIRST[0]


def test_its_commands_and_its_python_find_the_same_numbers(spark: SparkSession, folder: Path, call: Call) -> None:
    # The suite's Spark was not started in this folder.
    config = (folder / "first.yaml").read_text()
    (folder / "first.yaml").write_text(config.replace("path: out", f"path: {folder}/out"))
    evaluations, others = (
        commands("rankmetrics", section(title)) for title in ("Your own log", "What the numbers mean")
    )
    table, numbers, conventions, selftest = (
        [f"{folder}/{word}" if word == "first.yaml" else word for word in words[1:]] for words in evaluations + others
    )
    code, out, _ = call(*table, "--format", "json")
    means = means_of_everyone(out)
    assert code == 0
    code, out, _ = call(*numbers)
    assert (code, {row["metric"] for row in json.loads(out)}) == (0, {"ap@5", "rr"})
    code, out, _ = call(*conventions, "--format", "json")
    found = {
        (row["experiment_id"], "ap@10"): row["ap@10"] for row in json.loads(out) if row["convention"] == "standard"
    }
    assert (code, found) == (0, {key: mean for key, mean in means.items() if key[1] == "ap@10"})
    code, out, _ = call(*selftest)
    assert (code, [line.split()[0] for line in out.splitlines()][: len(PRESETS)]) == (0, list(PRESETS))

    (program,) = blocks("python", OWN_LOG)
    names: dict[str, Any] = {"impressions": spark.read.parquet(f"{folder}/out/demo/input/impressions")}
    exec(program, names)
    averages = names["result"].experiment_metrics.toLocalIterator()
    assert {(row["experiment_id"], row["metric"]): row["mean"] for row in averages} == means


def test_the_make_targets_it_names_are_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", README, re.MULTILINE))
    assert {"run", "test"} < named <= targets


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_what_it_links_to_is_there(link: str) -> None:
    assert (ROOT / link).exists()
