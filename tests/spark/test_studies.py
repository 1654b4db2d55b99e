"""What all studies of a log promise alike: a sentence for a mistake, ranks from 0, the same bits in any order."""

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import changed, coec_judgements, exposure, interleaving, off_policy, propensities, unjudged
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.commands import Call
from tests.helpers.logs import exact
from tests.helpers.messages import messages, refusal

SCHEMA = (
    "experiment_id string, user_id string, item_id string, position int, relevance int, team string, "
    "propensity double, target double"
)
TRUTH = [{"user_id": f"u{user:02}", "item_id": "a", "relevance": 1} for user in range(60)]
BY_RANK = [{"rank": rank, "propensity": 1 / rank} for rank in (1, 2, 3)]


def study(of: Callable[..., DataFrame], **usual: Any) -> Callable[..., DataFrame]:
    """A study with its usual arguments, which others replace."""
    return lambda log, **more: of(log, **{**usual, **more})


STUDIES = {
    "changed": study(changed, baseline="control", k=3),
    "exposure": study(exposure, baseline="control", k=3),
    "unjudged": study(
        lambda log, **more: unjudged(log, more.pop("judgements"), **more).users, judgements=TRUTH,
        metrics="p@3",
    ),
    "coec_judgements": study(coec_judgements, min_impressions=2),
    "propensities": study(propensities, key=["user_id", "item_id"], replicates=99, k=3),
    "off_policy": study(off_policy, metrics=["p@3", "dcg", "ap@3", "ndcg@3"], target="target", clip=1.5),
    "off_policy by rank": study(off_policy, metrics="dcg@3", propensities=BY_RANK),
    "interleaving": study(interleaving, team="team", list="experiment_id"),
}  # fmt: skip


def rows() -> list[tuple[Any, ...]]:
    """60 users with a list in each of two experiments, which rank other items first; a repeated rank and no user."""
    rng, result = random.Random(3), []
    for user in range(60):
        for arm, items in (("control", "abc"), ("new", "bca")):
            for rank, item in enumerate(items, start=1):
                row = (arm, f"u{user:02}", item, rank, int(rng.random() < 0.5), rng.choice("xy"), 0.5, rng.random())
                result.append(row)
    return [*result, ("new", "u00", "z", 3, 1, "x", 0.5, 0.5), ("new", None, "z", 3, 1, "y", 0.5, 0.5)]


@pytest.mark.parametrize(("given", "message"), messages("studies"), ids=lambda value: str(value)[:70])
def test_a_wrong_argument_is_one_sentence_before_any_job(
    spark: SparkSession, given: dict[str, dict[str, Any]], message: str
) -> None:
    ((name, wrong),) = given.items()
    kind, _, words = message.partition(": ")
    # It is raised by the call: no row has to be computed.
    error = refusal(lambda: STUDIES[name](spark.createDataFrame([], SCHEMA), **wrong))
    assert type(error).__name__ == kind and str(error).startswith(words), error


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.both_engines] * (name == "coec_judgements")) for name in STUDIES]
)
def test_ranks_from_0_are_refused_and_first_rank_reads_them(spark: SparkSession, name: str) -> None:
    log = spark.createDataFrame(rows(), SCHEMA)
    from_0 = log.withColumn("position", F.col("position") - 1)
    error = refusal(lambda: STUDIES[name](from_0).collect())
    assert type(error) is InputError and str(error) == (
        "120 rows have a rank below 1, and there are 120 lists: the ranks seem to start at 0; set first_rank to 0"
    )
    read, plain = STUDIES[name](from_0, first_rank=0), STUDIES[name](log)
    assert exact(read.collect()) == exact(plain.collect()) != []


@pytest.mark.parametrize("name", STUDIES)
def test_the_order_of_the_rows_and_the_partitions_change_no_bit(spark: SparkSession, name: str) -> None:
    shuffled = rows()
    expected = STUDIES[name](spark.createDataFrame(shuffled, SCHEMA).coalesce(1))
    random.Random(1).shuffle(shuffled)
    other = STUDIES[name](spark.createDataFrame(shuffled, SCHEMA).repartition(5, "item_id", "relevance"))
    assert exact(other.collect()) == exact(expected.collect()) != []


@pytest.mark.both_engines
@pytest.mark.parametrize(
    "name", ["coec_judgements", "propensities", "off_policy", "off_policy by rank", "interleaving"]
)
def test_clicks_in_rows_of_their_own_are_those_of_a_column(spark: SparkSession, name: str) -> None:
    names = [each.split()[0] for each in SCHEMA.split(",")]
    log = [dict(zip(names, row, strict=True)) for row in rows()]
    keys = {"arm": "experiment_id", "who": "user_id", "doc": "item_id"}
    clicks = [{name: row[key] for name, key in keys.items()} | {"kind": "click"} for row in log if row["relevance"]]
    hover = [{**row, "kind": "hover"} for row in clicks[::2]] + [{**clicks[0], "doc": "never shown", "kind": "click"}]
    shown = [{name: value for name, value in row.items() if name != "relevance"} for row in log]
    given = {
        "events": clicks + hover + clicks[:3], "grades": {"click": 1},
        "event_columns": {"list": "arm", "user": "who", "item": "doc", "kind": "kind"},
    }  # fmt: skip
    found = STUDIES[name](shown, list="experiment_id", **given)
    expected = STUDIES[name](spark.createDataFrame(rows(), SCHEMA), list="experiment_id")
    assert exact(found.collect()) == exact(expected.collect()) != []
    error = refusal(lambda: STUDIES[name](log, list="experiment_id", **given))
    assert "the impressions have a column 'relevance', and events are given; allowed: one of the two" in str(error)
    with pytest.raises(ConfigError, match=r"columns\.time is missing, for within"):
        STUDIES[name](shown, list="experiment_id", within="1h", **given)


# ---- as commands


@pytest.fixture
def of_files(tmp_path: Path) -> tuple[str, list[dict[str, Any]]]:
    """A config of lists, of events that make them relevant, and of judgements; and the same log as rows."""
    rng, lists, events, rows = random.Random(5), [], ["request,doc,kind"], []
    for arm, user in product(("control", "new"), range(40)):
        items, request = rng.sample("abcdefgh", 5), f"{arm} {user}"
        clicks = [int(rng.random() < 0.6 / rank) for rank in range(1, 6)]
        lists.append({"arm": arm, "who": f"u{user}", "request": request, "results": [{"id": item} for item in items]})
        events += [f"{request},{item},click" for item, click in zip(items, clicks, strict=True) if click]
        events += [f"{request},{items[0]},hover", f"{request},zz,click"]  # of no grade, and of no impression
        rows += [
            {"experiment": arm, "user": f"u{user}", "item": item, "position": rank, "relevance": click}
            for rank, (item, click) in enumerate(zip(items, clicks, strict=True), start=1)
        ]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8")
    (tmp_path / "events.csv").write_text("\n".join(events), encoding="utf-8")
    truth = [f"u{user},{'abcd'[user % 4]},{user % 3}" for user in range(40)]
    (tmp_path / "truth.csv").write_text("\n".join(["user,item,relevance", *truth]), encoding="utf-8")
    names = {"experiment": "arm", "user": "who", "items": "results", "item": "id"}
    config = {
        "source": {"path": str(tmp_path / "lists.jsonl"), "columns": names, "list": ["request"]},
        "events": {
            "path": str(tmp_path / "events.csv"),
            "columns": {"list": ["request"], "item": "doc", "kind": "kind"},
            "grades": {"click": 1},
        },
        "comparison": {"baseline": "control"},
        "metrics": ["p@3"],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(tmp_path / "config.yaml"), rows


def test_a_command_prints_what_the_function_gives_for_lists_and_events(
    call: Call, of_files: tuple[str, list[dict[str, Any]]], tmp_path: Path, spark: SparkSession
) -> None:
    config, rows = of_files
    log, truth = pd.DataFrame(rows), pd.read_csv(tmp_path / "truth.csv")
    judged = f"judgements.path={tmp_path / 'truth.csv'}"
    alike = changed(log, "control", k=3).to_pandas()
    likeness = ["same_top", "jaccard", "rbo", "kendall", "unexpectedness"]
    means = [{"baseline": "control", "experiment_id": "new", "n_users": len(alike), **dict(alike[likeness].mean())}]
    of_labels = unjudged(log, truth, "p@3", baseline="control", max_grade=2)
    for arguments, expected in (
        (["exposure", "--k", "3", "--replicates", "20"], exposure(log, k=3, baseline="control", replicates=20)),
        (
            ["propensities", "--key", "who,results.id", "--k", "4", "--replicates", "99", "--method", "pivot"],
            propensities(log, ["user", "item"], "pivot", k=4, replicates=99),
        ),
        (["unjudged", "--set", judged, "--max-grade", "2"], of_labels.pairs),
        (["unjudged", "--set", judged, "--max-grade", "2", "--show", "means"], of_labels.means),
        (["unjudged", "--set", judged, "--max-grade", "2", "--show", "to_judge"], of_labels.to_judge.limit(50)),
        (["changed", "--k", "3"], means),
    ):
        code, out, _ = call(*arguments, "--config", config, "--format", "json")
        wanted = expected if isinstance(expected, list) else [row.asDict() for row in expected.collect()]
        assert code == 0 and len(json.loads(out)) == len(wanted)
        for one, other in zip(json.loads(out), wanted, strict=True):
            # Keys of the bootstrap are named otherwise, so its bounds differ.
            same = [name for name in other if arguments[0] != "propensities" or not name.startswith("ci_")]
            assert {name: one[name] for name in same} == pytest.approx({name: other[name] for name in same})
    none = ("--set", "convention.relevant_from=9", "--show", "to_judge", "--config", config)
    assert "nothing left to judge: no missing label moves p@3" in call("unjudged", "--set", judged, *none)[2]
    log.to_csv(tmp_path / "log.csv", index=False)
    empty = {"source": {"path": str(tmp_path / "log.csv"), "where": "user = 'nobody'"}, "metrics": ["p@3"]}
    (tmp_path / "empty.yaml").write_text(yaml.safe_dump(empty | {"comparison": {"baseline": "control"}}))
    code, _, err = call("unjudged", "--set", judged, *none[:-1], tmp_path / "empty.yaml")
    assert code == 3 and "no row of the log can be compared" in err


@pytest.mark.parametrize(("given", "message"), messages("mistakes of studies"))
def test_a_mistake_of_a_command_is_one_sentence(
    call: Call, of_files: tuple[str, list[dict[str, Any]]], given: list[Any], message: str
) -> None:
    arguments, result = given
    code, out, err = call(*arguments, "--config", of_files[0])
    assert (code, out) == (result, "") and message in err
