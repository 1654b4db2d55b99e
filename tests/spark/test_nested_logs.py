"""Logs with a row per list: each shape gives the values of its items, and what is faulty is counted."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import changed, errors as err, evaluate, exposure, run
from rankmetrics_spark.sinks import ParquetFolder
from tests.helpers.logs import config
from tests.helpers.messages import messages

pytestmark = pytest.mark.both_engines

STRUCTS = {"items": "results", "item": "id", "relevance": "grade"}
ARRAYS = {"item": "item_ids", "relevance": "grades"}
CELLS = {"items": "cell"}
PACKED = {"parts": ["item", "relevance"], "between": "-"}
FIELD = Path(__file__).parent / "field"
# Two users with lists of 3, 2 and 2 items; the second list of u1 is at rank 2 alone relevant.
LISTS = [("u1", [("a", 0), ("b-1", 3), ("c", 0)]), ("u1", [("b-1", 0), ("d", 1)]), ("u2", [("a", 1), ("c", 0)])]
AP = {"u1": 1 / 2 * (1 / 2 + 1 / 2), "u2": 1.0}


def rows_of(lists: Any = LISTS) -> list[dict[str, Any]]:
    """The lists, each one in every shape."""
    return [
        {
            "user_id": user,
            "results": [None if item is None else {"id": item, "grade": grade} for item, grade in items],
            "item_ids": [item for item, _ in items],
            "grades": [grade for _, grade in items],
            "page": 1,
            "cell": " ".join(f"{item}-{grade}" for item, grade in items),
        }
        for user, items in lists
    ]


def values(result: Any, column: str = "ap_at_3") -> dict[str, float]:
    return {row["user_id"]: row[column] for row in result.user_metrics.collect()}


def evaluated(log: Any, columns: Any = STRUCTS, **options: Any) -> Any:
    return evaluate(log, ["ap@3"], columns={"experiment": None, **columns}, **options)


@pytest.mark.parametrize(("columns", "packed"), [(STRUCTS, None), (ARRAYS, None), (CELLS, PACKED)])
def test_each_shape_gives_the_values_of_its_items(spark: SparkSession, columns: Any, packed: Any) -> None:
    result = evaluated(pd.DataFrame(rows_of()), columns, packed=packed, text_numbers=True)
    assert values(result) == AP
    assert values(result, "n_lists") == {"u1": 2, "u2": 1}
    assert result.quarantine.count() == 0


def test_rows_of_one_list_meet_where_a_column_tells_lists_apart(spark: SparkSession) -> None:
    rows = [row | {"request": request} for row, request in zip(rows_of(), ("r", "r", "s"), strict=True)]
    result = evaluated(rows, list="request")
    # Rank 1 holds a and b-1, rank 2 holds b-1 (3) and d: of two rows at a rank, the higher grade stays.
    assert values(result, "n_lists") == {"u1": 1, "u2": 1}
    assert values(result, "n_shown") == {"u1": 3, "u2": 2}
    assert {row["reason"] for row in result.quarantine.collect()} == {"duplicate_item", "repeated_position"}


@pytest.mark.outcome(
    "a row per list, one of them null", "quarantine: `null_list`; a null element: `null_item`, and the ranks below stay"
)
def test_a_place_is_kept_by_null_elements_and_an_empty_list_is_a_list(spark: SparkSession) -> None:
    rows = rows_of([("u1", [("a", 0), (None, None), ("b", 1)]), ("u1", []), ("u2", [("c", 1)])])
    rows += [{"user_id": "u3", "results": None}, {"user_id": None, "results": [{"id": "a", "grade": 1}]}]
    result = evaluated(rows)
    # b is third: AP 1/3, and 0 for the list without items.
    assert values(result) == {"u1": (1 / 3 + 0) / 2, "u2": 1.0}
    assert values(result, "n_lists") == {"u1": 2, "u2": 1}
    left = {(row["reason"], row["user_id"], row["item_id"], row["position"]) for row in result.quarantine.collect()}
    assert left == {("null_item", "u1", None, "2"), ("null_list", "u3", None, None), ("null_user", None, "a", "1")}
    counts = result.check(max_invalid_fraction=1).counts["all"]
    # Six items, and a list that is faulty as a whole.
    assert {name: counts[name] for name in ("rows", "quarantined", "lists", "no_relevant")} == {
        "rows": 3 + 1 + 1 + 1,
        "quarantined": 3,
        "lists": 3,
        "no_relevant": 1,
    }


@pytest.mark.outcome("a row per list, whose arrays have 3 items and 2 grades", "quarantine: the list, `uneven_list`")
def test_arrays_of_one_row_have_one_length(spark: SparkSession) -> None:
    rows = rows_of()
    rows[0]["grades"] = [0, 1]
    result = evaluated(rows, ARRAYS)
    assert values(result) == {"u1": 1 / 2, "u2": 1.0}
    assert [(row["reason"], row["user_id"]) for row in result.quarantine.collect()] == [("uneven_list", "u1")]


def test_ranks_scores_and_judgements_of_lists(spark: SparkSession) -> None:
    log = [
        {"user_id": None, "items": [{"item_id": "c", "score": 0.5}]},
        {"user_id": "u", "items": [{"item_id": "a", "score": 0.1}, {"item_id": "b", "score": 0.9}]},
        {"user_id": "v", "items": [{"item_id": "a", "score": 0.2}]},
    ]
    judgements = [{"user": "u", "liked": "a c"}, {"user": "v", "liked": ""}]
    judged: Any = {"judgement_columns": {"items": "liked"}, "judgement_packed": {"separator": " "}}
    result = evaluated(log, {"items": "items", "relevance": None}, judgements=judgements, rank_by="score", **judged)
    # b is first by score, a second; two items are relevant: (1/2) / 2.
    assert values(result) == {"u": 1 / 4, "v": 0.0}
    positions = [{"user_id": "u", "items": ["a", "b"], "position": [2, 1], "relevance": [1, 0]}]
    assert values(evaluated(positions, {"item": "items"})) == {"u": 1 / 2}
    started = [{"user_id": "u", "items": ["a", "b"], "relevance": [0, 1]}]
    assert values(evaluated(started, {"item": "items"}, first_rank=0)) == {"u": 1 / 2}


def test_golden_requests_have_the_values_of_plain_loops(spark: SparkSession) -> None:
    golden = FIELD / "golden_inputs"
    log = [json.loads(line) for line in (golden / "nested.jsonl").read_text().splitlines()]
    expected = json.loads((golden / "expected.json").read_text())["by_request"]["users"]
    for columns in (STRUCTS, ARRAYS):
        result = evaluate(log, ["ap@3", "ndcg@3"], columns={"experiment": None, **columns})
        for metric in ("ap", "ndcg"):
            actual = values(result, f"{metric}_at_3")
            assert actual.keys() == expected.keys()
            assert all(math.isclose(actual[user], expected[user][metric], abs_tol=1e-12) for user in expected)
        assert values(result, "n_lists") == {user: row["n_lists"] for user, row in expected.items()}


def test_studies_read_lists_as_their_items(spark: SparkSession) -> None:
    shown = {"a": ["x", "y"], "b": ["y", "x"]}
    log = [{"experiment": arm, "user": "u", "items": items} for arm, items in shown.items()]
    flat = [
        {"experiment": arm, "user": "u", "item": item, "position": rank}
        for arm, items in shown.items()
        for rank, item in enumerate(items, 1)
    ]
    for study, options in ((changed, {"baseline": "a"}), (exposure, {"k": 1, "replicates": 0})):
        tables: Any = (study(log, columns={"item": "items"}, **options), study(flat, **options))  # type: ignore[operator]
        nested, same = (sorted(map(str, table.collect())) for table in tables)
        assert nested == same


@pytest.mark.outcome("a row per list, read with the columns {columns}", "exit 3: {sentence}")
@pytest.mark.parametrize(("columns", "sentence"), messages("rows per list"))
def test_what_is_no_list_of_items_is_said(spark: SparkSession, columns: Any, sentence: str) -> None:
    with pytest.raises(err.InputError) as error:
        evaluated(pd.DataFrame(rows_of()), columns)
    assert sentence in str(error.value)


@pytest.mark.outcome("cells of text with `packed` {packed}", "exit 2: {sentence}")
@pytest.mark.parametrize(("packed", "sentence"), messages("packed cells"))
def test_what_no_cell_can_be_is_refused(packed: Any, sentence: str) -> None:
    with pytest.raises(err.ConfigError) as error:
        evaluated(rows_of(), CELLS, packed=packed)
    assert sentence in str(error.value)


def test_a_field_of_no_struct_is_null(spark: SparkSession) -> None:
    log = [{"who": {"id": user} if user else None, "item": "a", "position": 1, "relevance": 1} for user in ("u", None)]
    result = evaluate(log, ["ap@3"], columns={"experiment": None, "user": "who.id"})
    assert values(result) == {"u": 1.0}
    assert [row["reason"] for row in result.quarantine.collect()] == ["null_user"]


@pytest.mark.parametrize("lists", [LISTS, LISTS[1:]])
def test_lists_are_scored_once_and_added_up_where_a_user_has_several(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: Any
) -> None:
    pd.DataFrame(rows_of(lists)).drop(columns="item_ids").to_parquet(tmp_path / "log.parquet")
    staged, stage = list[str](), ParquetFolder.stage
    monkeypatch.setattr(
        ParquetFolder, "stage", lambda store, rows, name="outcome": staged.append(name) or stage(store, rows, name)
    )
    source = {"columns": {"experiment": None, **STRUCTS}}
    result = run(spark, config(tmp_path / "log.parquet", tmp_path / "out", metrics=["ap@3"], source=source))
    assert (staged.count("outcome"), staged.count("users")) == (1, len(lists) - 2)
    # The lists of u1 have the same value.
    assert values(result) == AP


def test_shown_items_of_faulty_rows_are_not_counted(spark: SparkSession) -> None:
    rows = [{"user_id": user, "item_id": "a", "position": 1} for user in ("u", None)]
    judgements = [{"user_id": "u", "item_id": "a", "relevance": 1}]
    columns = {"experiment": None, "relevance": None}
    counts = evaluate(rows, ["ap@3"], judgements, columns=columns).check(max_invalid_fraction=1).counts["all"]
    assert (counts["top_items"], counts["judged_top_items"]) == (1, 1)
