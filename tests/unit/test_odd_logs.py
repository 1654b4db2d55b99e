"""What ``rankmetrics init`` makes of odd columns: empty ids, experiments of one value, grades below 0; and of qrels."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.tools import FirstConfig, Guess, guesses, sample
from tests.helpers.configs import first, written
from tests.helpers.messages import json_cases

ARMS = ("bm25", "dense")


def a_log(**changes: Any) -> pd.DataFrame:
    """Lists of five for 20 queries of each arm, with further or other columns."""
    shown = [(arm, query, rank) for arm in ARMS for query in range(20) for rank in range(1, 6)]
    columns = {
        "variant": [arm for arm, _, _ in shown],
        "query_id": [f"q{query}" for _, query, _ in shown],
        "doc_id": [f"d{rank}" for _, _, rank in shown],
        "rank": [rank for _, _, rank in shown],
        "grade": [int(rank == 2) for _, _, rank in shown],
    }
    return pd.DataFrame({**columns, **changes})


def csv(path: Path, rows: pd.DataFrame) -> Path:
    rows.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("names", [("experiment_id", "variant_id"), ("experiment", "group"), ("exp", "arm")])
@pytest.mark.parametrize("shared", [True, False])
def test_an_experiment_of_one_value_loses_to_the_arms(tmp_path: Path, names: tuple[str, str], shared: bool) -> None:
    one, arms = names
    rows = a_log().rename(columns={"variant": arms}).assign(**{one: "home_ranking_q4"})
    if not shared:  # each user in one arm
        rows["query_id"] += rows[arms]
    config = first(csv(tmp_path / "log.csv", rows))
    expected = f"likely, by its name and values; not {one}: it has the same value in every row"
    assert config.columns["experiment"] == Guess(arms, expected)
    assert config.experiments == [*ARMS]
    # Where the user names the other one, the arms are no segment.
    named = FirstConfig(config.log, guesses(config.log.rows, {"experiment": one}))
    assert (named.experiments, named.segments) == (["home_ranking_q4"], [])
    # Alone, an experiment of one value is one.
    alone = guesses(rows.drop(columns=arms)[: 20 * 5], {})
    assert alone["experiment"] == Guess(one, "sure, by its name")


def test_files_name_the_experiments_where_a_column_has_one_value(tmp_path: Path) -> None:
    for arm in ARMS:
        csv(tmp_path / f"{arm}.csv", a_log()[:100].drop(columns="variant").assign(experiment="home_ranking_q4"))
    config = first(tmp_path)
    assert (config.named_by, config.experiments) == ("file", [*ARMS])


def test_an_empty_text_of_a_csv_file_is_null(tmp_path: Path) -> None:
    rows = a_log()
    rows.loc[rows["query_id"].isin(["q0", "q1", "q2"]), "query_id"] = ""
    config = first(csv(tmp_path / "log.csv", rows))
    # 3 of the 20 queries have no name; nobody has a rank twice.
    assert (config.log.rows["query_id"].nunique(), config.log.rows["query_id"].isna().sum()) == (17, 3 * 5 * 2)
    assert (config.has_several_lists, config.notes()) == (False, [])
    assert "user: query_id  # sure, by its name; 17 values in the sample\n" in config.text()
    # The words for null of other tools are texts.
    words = first(csv(tmp_path / "words.csv", a_log(variant=["null", "NA"] * 100)))
    assert words.experiments == ["NA", "null"]


def test_an_empty_text_of_json_is_a_user_and_is_named(tmp_path: Path) -> None:
    rows = a_log()
    rows.loc[rows["query_id"].isin(["q0", "q1", "q2"]), "query_id"] = ""
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows.to_dict("records")))
    config = first(tmp_path / "log.jsonl")
    # 3 queries x 5 ranks x 2 arms.
    empty = "an empty text is the user of 30 of 200 rows"
    assert f"18 values in the sample; {empty}\n" in config.text()
    assert config.notes() == [f"{empty}: if nobody is known there, source.where leaves them out"]
    assert config.has_several_lists


@pytest.mark.parametrize(
    ("grades", "role"),
    [([-2, 0, 1, 2] * 50, "relevance"), ([-1, 1] * 100, "relevance"), ([-1, 0] * 100, None), ([-0.5] * 200, None)],
)
def test_a_relevance_may_have_grades_below_0(grades: list[float], role: str | None) -> None:
    result = guesses(a_log(grade=grades), {}).get("relevance")
    assert result == (role and Guess("grade", "sure, by its name"))


def test_one_grade_above_0_leaves_nothing_to_ask(tmp_path: Path) -> None:
    config = first(csv(tmp_path / "log.csv", a_log(grade=[-1, 0, 0, 1] * 50)))
    assert config.grades == [-1, 0, 1]
    assert "relevant_from" not in config.text()


@pytest.mark.parametrize(("faulty", "known"), [(1, True), (2, True), (3, False)])
def test_a_few_fractions_are_no_reason_to_doubt_a_rank(faulty: int, known: bool) -> None:
    ranks = [rank + 0.5 * (row < faulty) for row, rank in enumerate(a_log()["rank"])]
    # 1 % of 200 rows are two.
    assert ("position" in guesses(a_log(rank=ranks), {})) == known


@pytest.mark.parametrize("name", ["algo", "algorithm", "method", "version", "strategy", "engine"])
def test_rankers_are_known_by_the_names_that_people_use(name: str) -> None:
    rows = a_log().rename(columns={"variant": name})
    result = guesses(rows, {})
    assert (result["experiment"], "list" in result) == (Guess(name, "sure, by its name"), False)


def test_what_made_an_item_is_no_experiment() -> None:
    rows = a_log().drop(columns="variant")[:100].assign(strategy=["popular", "new", "similar", "new", "popular"] * 20)
    assert "experiment" not in guesses(rows, {})


def test_a_text_that_users_share_is_perhaps_the_experiment(tmp_path: Path) -> None:
    rows = a_log().rename(columns={"variant": "setting"})
    config = first(csv(tmp_path / "log.csv", rows))
    assert config.experiments == [*ARMS]
    assert "    experiment: setting  # a guess, by its values: users have a list for each; bm25" in config.text()
    assert "list" not in written(config)["source"]
    assert config.unsettled()[0] == (
        "whether setting is the experiment (--column experiment=setting if so, --column list=setting if it tells lists "
        "of one experiment apart)"
    )
    # Also where a column with the name of experiments has one value.
    assert guesses(rows.assign(experiment="q4"), {})["experiment"].column == "setting"
    # The user's word counts more.
    lists = guesses(rows, {"list": "setting"})
    assert (lists["list"].reason, "experiment" in lists) == ("given", False)
    refused = guesses(rows, {}, refused=["setting"])
    assert (refused["list"].column, "experiment" in refused) == ("setting", False)


@pytest.mark.parametrize(("name", "values", "times"), json_cases("columns that tell lists apart and no experiments"))
def test_what_tells_lists_apart_is_not_always_the_experiment(name: str, values: list[Any], times: list[int]) -> None:
    column = [value for value, n in zip(values, times, strict=True) for _ in range(n)]
    for changes in ({name: column}, {"text": [f"t{row}" for row in range(200)]}):
        assert "experiment" not in guesses(a_log(**changes).drop(columns="variant"), {})


QRELS = "".join(f"q{query} 0 d{rank} {grade}\n" for query in range(10) for rank, grade in ((1, -2), (2, 0), (3, 2)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "bm25.run").write_text("".join(f"q{query} Q0 d2 1 2.5 bm25\n" for query in range(10)))
    return tmp_path / "bm25.run"


def test_lines_of_qrels_are_read_as_a_run_reads_them(tmp_path: Path, run: Path) -> None:
    """A run drops the words after the fourth; a line with fewer has only nulls."""
    truth = tmp_path / "qrels.txt"
    truth.write_text(f"{QRELS}q1 0 d9 7 seen twice\n\nq2 0 d9\n")
    config = first(run, judgements=str(truth))
    assert (config.missing(), config.grades) == ([], [-2, 0, 2, 7])
    assert config.truth is not None
    assert config.truth.rows.iloc[-2:].fillna("").to_numpy().tolist() == [["q1", "0", "d9", "7"], [""] * 4]


def test_qrels_need_no_guess(tmp_path: Path, run: Path) -> None:
    truth = tmp_path / "qrels.txt"
    truth.write_text("q1 0 d1 -1\nq1 0 d2 0\n")  # nothing is relevant
    config = first(run, judgements=str(truth))
    assert (config.missing(), config.grades) == ([], [-1, 0])
    assert {role: guess.column for role, guess in config.judged_columns.items()} == {
        "user": "user", "item": "item", "relevance": "relevance",
    }  # fmt: skip


def test_qrels_are_a_folder_or_compressed_as_for_a_run(tmp_path: Path, run: Path) -> None:
    folder = tmp_path / "qrels"
    folder.mkdir()
    (folder / "a.txt").write_text(QRELS)
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("q1 0 d9 7\n")
    for place, grades in ((folder, [-2, 0, 2, 7]), (folder / "b.txt.gz", [7])):
        config = first(run, judgements=str(place))
        assert config.grades == grades
        assert written(config)["judgements"] == {"format": "trec_qrels", "path": str(place)}
    (folder / "notes.txt").write_text("judged by two people\n")
    with pytest.raises(InputError) as caught:
        first(run, judgements=str(folder)).missing()
    assert str(caught.value) == (
        f"the file of judgements '{folder}' holds '{folder / 'notes.txt'}', which does not look like TREC judgements; "
        "allowed: qrels alone"
    )
    with pytest.raises(InputError, match=r"looks like TREC judgements; allowed: a run, with the judgements as"):
        sample(str(folder / "a.txt"))
