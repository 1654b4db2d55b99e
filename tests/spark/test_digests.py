"""What digests cover: a change of anything that a run reads, except what the list ``leaves_out`` names."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, gates
from rankmetrics_spark.gates.counts import row_counts

Row = dict[str, Any]
DATA: Row = yaml.safe_load(Path(__file__).with_name("digests.yaml").read_text(encoding="utf-8"))
LIST = [dict(zip(DATA["columns"], row, strict=True)) | DATA["of_user"] for row in DATA["rows"]]
OPTIONS: Row = {"list": "session", "segments": ["country", "device"], "covariate": "before"}


def of_log(log: list[Row], **options: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The digests of the experiments of a log, and of its inputs."""
    tables = evaluate(log, **options)._tables
    return {str(name): n["digest"] for name, n in row_counts(tables.outcome, tables.plan).items()}, tables.digests


@pytest.mark.parametrize("kind", DATA["kinds"])
def test_what_is_left_out_stays_and_all_else_differs(spark: SparkSession, kind: str) -> None:
    """Each variant of the list is the log of an experiment of its own."""
    of_kind = DATA["kinds"][kind]
    left_out, covered = of_kind["left_out"], of_kind["covered"]
    variants = dict(enumerate([of_kind.get("first", {}), *left_out.values(), *covered], 100))
    log = [row | {"experiment_id": f"{n}"} | changes.get(0, {}) | changes.get(place, {})
           for n, changes in variants.items() for place, row in enumerate(LIST, 1)]  # fmt: skip
    found = of_log(log, **OPTIONS | of_kind["options"])[0]
    first, *others = (found[f"{n}"] for n in variants)
    assert dict(zip(left_out, others, strict=False)) == dict.fromkeys(left_out, first)
    assert len({first, *others}) == 1 + len(covered), dict(zip(map(str, covered), others[len(left_out) :], strict=True))


def test_each_sentence_has_a_change_that_no_digest_shows() -> None:
    shown = [sentence for kind in DATA["kinds"].values() for sentence in kind["left_out"]]
    shown += ["when lists were shown", "what faulty judgements and labels hold"]
    assert not [text for text in gates.DIGEST_LEAVES_OUT if not text.startswith(tuple(shown))]


@pytest.mark.parametrize("name", DATA["inputs"])
def test_inputs_beside_the_log_are_covered_column_by_column(spark: SparkSession, name: str) -> None:
    log, of_input = DATA["log"], DATA["inputs"][name]
    rows, changes, options = of_input["rows"], of_input["changes"], of_input["options"]
    first = of_log(log, **options, **{name: rows[::-1]})
    others = [[rows[0] | {column: value}, *rows[1:]] for column, value in changes.items()]
    others += [[*rows, rows[0] | changes], [*rows, rows[0]], rows[1:], rows]
    found = [of_log(log, **options, **{name: each})[1][name] for each in others]
    assert found[-1] == first[1][name] and len({*found}) == len(found), found
    if name == "judgements":
        faulty = [*rows[:-1], rows[-1] | {"item_id": "i9"}]
        assert of_log(log, **options, judgements=faulty) == first
    else:
        later = [row | {"shown_at": "2026-11-20T10:00:01Z"} for row in log]
        assert of_log(later, **options, **{name: rows}) == first


def test_labels_of_a_machine_are_covered_and_who_was_drawn_is_left_out(spark: SparkSession) -> None:
    sample = {"human_sample": {"column": "drawn", "probability": "chance"}, "judgement_columns": {"machine": "llm"}}
    options: Row = {"columns": {"experiment": None, "relevance": None}, "metrics": ["ap"], **sample}
    of_both: Row = {"item_id": "i1", "llm": 1.0, "drawn": True, "chance": 0.5}
    rows = [of_both | {"user_id": user, "relevance": grade} for user, grade in (("u", 1.0), ("v", None))]
    last = [{}, {"drawn": False}, {"chance": 0.25}, {"llm": 0.0}, {"item_id": "i2"}, {"relevance": 1.0}]
    of = [evaluate(DATA["log"], judgements=[rows[0], rows[1] | each], **options)._tables.digests for each in last]
    people, machine = ([each[name] for each in of] for name in ("judgements", "machine_judgements"))
    assert len({*people[:5]}) == 1 and people[5] != people[0], "people judged nothing of v"
    assert len({*machine[:3], machine[5]}) == 1 and len({machine[0], *machine[3:5]}) == 3
