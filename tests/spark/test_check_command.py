"""``rankmetrics check``: what a config would do, from its values and the schemas of its inputs."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import Call, ok
from tests.helpers.logs import a_list, config_file, parquet
from tests.helpers.messages import cases


@pytest.fixture
def config(tmp_path: Path) -> Path:
    source = {"columns": {"relevance": "position"}, "where": "item_id <> 'x'"}
    more = {"metrics": ["ap@5", "ndcg@10", "ndcg@5"], "comparison": {"baseline": "a", "correction": "fdr_bh"}}
    return config_file(parquet(tmp_path / "log", a_list([0, 1])), tmp_path / "out", source=source, **more)


def test_it_says_what_each_part_means_and_writes_nothing(call: Call, config: Path) -> None:
    out, err = ok(call, "check", config, "--format", "json")
    result = json.loads(out)
    size = (config.parent / "log" / "part-0.parquet").stat().st_size
    assert result == {
        "impressions": f"parquet, {config.parent / 'log'}, 1 file of {size / 1e6:,.1f} MB, where item_id <> 'x'",
        "columns": "experiment = experiment_id, user = user_id, item = item_id, position = position, "
        "relevance = position",
        "lists": "one per user, ranked by position",
        "metrics": "ap@5, ndcg@10, ndcg@5",
        "convention": "standard",
        "compared": "every other experiment with a, p-values corrected by fdr_bh",
        "decides": "ap@5",
        "tables": f"parquet in {config.parent / 'out'}, the partitions of 2026-11-20",
    }
    assert f"nothing was computed; to run it: rankmetrics evaluate --config {config}" in err.replace("\n", " ")
    assert not (config.parent / "out").exists()


def test_it_names_the_columns_of_intents_only_where_a_metric_reads_them(call: Call, config: Path) -> None:
    log = str(config.parent / "log")
    mapped = ("--set", "source.columns.intents=item_id", "--set", f"judgements.path={log}")
    mapped += ("--set", "judgements.columns.intents=experiment_id")
    for metrics, expected in (("ap@5", (False, False)), ("distinct@5", (True, False)), ("err_ia@5", (True, True))):
        result = json.loads(call("check", config, "--format", "json", *mapped, "--set", f"metrics={metrics}")[1])
        own = ", intents = item_id" in result["columns"]
        assert (own, ", intents = experiment_id" in result["their columns"]) == expected, metrics


def test_it_reads_judgements_of_a_machine_in_a_table_of_their_own(call: Call, config: Path) -> None:
    log = config.parent / "log"
    both = ("--set", f"judgements.path={log}", "--set", f"machine_judgements.path={log}")
    both += ("--set", "judgements.human_sample=random", "--set", "source.columns.relevance=null")
    out, _ = ok(call, "check", config, "--format", "json", *both)
    assert json.loads(out)["judgements"].startswith(f"parquet, {log}")


def test_the_metric_of_a_gate_decides(call: Call, config: Path) -> None:
    more = ("--set", "gates=[{metric: ndcg@10, max_drop: 0.1}]", "--set", "source.segments=item_id")
    result = json.loads(call("check", config, "--format", "json", *more)[1])
    assert (result["decides"], result["segments"]) == ("ndcg@10", "item_id")
    assert result["gates"] == "ndcg@10 of every candidate"


def test_each_test_has_the_metric_that_decides_it(call: Call, config: Path) -> None:
    golden = Path(__file__).parent / "field" / "golden_inputs"
    more = ["source.format=csv", "source.columns={position: slot, relevance: slot}", "source.where=null"]
    more += [f"{each}.path={golden / file}.csv" for each, file in (("source", "impressions"), ("assignments",) * 2)]
    more += ["tests={layout: {gates: [{metric: ndcg@5, min: 0.1}]}, ranker: {baseline: old}}"]
    for baseline, expected in (("control", "ap@5; ndcg@5 in layout"), ("null", "ap@5 in ranker")):
        changes = [word for each in (*more, f"comparison.baseline={baseline}") for word in ("--set", each)]
        code, out, err = call("check", config, "--format", "json", *changes)
        assert code == 0 and json.loads(out)["decides"] == expected, err


@pytest.mark.parametrize(("change", "code", "message"), cases("mistakes of check"))
def test_what_a_run_would_refuse_is_refused(call: Call, config: Path, change: str, code: int, message: str) -> None:
    result, out, err = call("check", config, "--set", change)
    assert (result, out) == (code, "")
    assert message in err.replace("\n", " ")
    assert not (config.parent / "out").exists()
