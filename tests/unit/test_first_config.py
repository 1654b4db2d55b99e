"""What ``rankmetrics init`` guesses of a log, and what it writes about that."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rankmetrics_spark.config import kind_of, parsed
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.tools import FirstConfig, Guess, LogSample, guesses, sample
from tests.helpers.configs import first, written
from tests.helpers.messages import cases, json_cases

LISTS = [(arm, user, rank) for arm in ("new", "control") for user in ("u1", "u2") for rank in (1, 2, 3)]


def log(**changes: Any) -> pd.DataFrame:
    """A log with names that nobody else uses, and further or other columns."""
    return pd.DataFrame(
        {
            "variant": [arm for arm, _, _ in LISTS],
            "visitor_id": [user for _, user, _ in LISTS],
            "sku": [f"i{rank}" for _, _, rank in LISTS],
            "slot": [rank for _, _, rank in LISTS],
            "clicked": [int(rank == 2) for _, _, rank in LISTS],
            **changes,
        }
    )


def a_log(lists: int, length: int, arms: int) -> pd.DataFrame:
    """A log with so many lists in each arm: of users of their own, or of the same users where there are two arms."""
    shown = [
        (arm, f"u{user}", f"i{rank}", rank, int(rank == user % length + 1))
        for user in range(lists)
        for arm in ([f"arm{user % 2}"] if arms == 1 else ["arm0", "arm1"])
        for rank in range(1, length + 1)
    ]
    return pd.DataFrame(shown, columns=["variant", "visitor_id", "sku", "slot", "clicked"])


def parquet(tmp_path: Path, rows: pd.DataFrame) -> str:
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), tmp_path / "log.parquet")
    return str(tmp_path / "log.parquet")


def test_columns_are_known_by_the_names_that_people_use(tmp_path: Path) -> None:
    config = first(parquet(tmp_path, log(model_score=0.5, country=["DE", "FR"] * 6)))
    assert written(config)["source"] == {
        "format": "parquet",
        "path": str(tmp_path / "log.parquet"),
        "columns": {
            "experiment": "variant",
            "user": "visitor_id",
            "item": "sku",
            "position": "slot",
            "score": "model_score",
            "relevance": "clicked",
        },
    }
    lines = config.text().splitlines()
    assert "    experiment: variant  # sure, by its name; control, new" in lines
    assert "    user: visitor_id  # sure, by its name; 2 values in the sample" in lines
    assert "    position: slot  # sure, by its name; 1 to 3" in lines
    assert "    relevance: clicked  # sure, by its name; values 0, 1" in lines
    assert "  # segments: [country]  # a mean for each value of each column" in lines
    assert "# comparison: {baseline: control}  # one of control, new" in lines
    assert config.missing() == []


@pytest.mark.parametrize(("changes", "role", "column", "reason"), json_cases("values beside names"))
def test_values_decide_beside_names(changes: dict[str, Any], role: str, column: str, reason: str) -> None:
    result = guesses(log(**changes), {})[role]
    assert (result.column, result.reason) == (column, reason)


def test_a_position_without_a_name_is_known_by_its_values() -> None:
    result = guesses(log().rename(columns={"slot": "x"}), {})["position"]
    assert (result.column, result.reason) == ("x", "a guess, by its values")


@pytest.mark.parametrize(("values", "role"), [([0, 1], "relevance"), ([0, 0], None), ([1, 1], None)])
def test_a_column_that_never_changes_is_no_relevance(values: list[int], role: str | None) -> None:
    result = guesses(log(x=values * 6).drop(columns="clicked"), {})
    assert {name for name, guess in result.items() if guess.column == "x"} == ({role} if role else set())


@pytest.mark.parametrize(
    "name", ["no", "No", "yes", "on", "off", "y", "N", "null", "true", "~", "1", "1e3", "a: b", "x"]
)
def test_a_column_whose_name_is_a_word_of_yaml_stays_a_text(tmp_path: Path, name: str) -> None:
    rows = sample(parquet(tmp_path, log().rename(columns={"visitor_id": name})))
    config = FirstConfig(rows, guesses(rows.rows, {"user": name}))
    assert written(config)["source"]["columns"]["user"] == name
    # As a reader of YAML 1.1 reads it, which takes more words for true and false.
    assert yaml.safe_load(config.text())["source"]["columns"]["user"] == name


def test_a_few_faulty_values_are_no_reason_to_doubt_a_name() -> None:
    rows = pd.concat([log()] * 20, ignore_index=True).astype({"slot": object})
    rows.loc[0, "slot"] = "?"
    assert guesses(rows, {})["position"].column == "slot"


@pytest.mark.parametrize(
    ("positions", "first_rank"), [([0, 1, 2] * 4, 0), ([1, 2, 3] * 4, 1), ([0, *[2, 3, 1] * 3, 1, 1], 1)]
)
def test_lists_start_at_0_where_0_is_as_frequent_as_1(tmp_path: Path, positions: list[int], first_rank: int) -> None:
    content = written(first(parquet(tmp_path, log(slot=positions))))
    assert content["source"].get("first_rank", 1) == first_rank


def test_a_log_of_several_days_is_filtered_by_its_date(tmp_path: Path) -> None:
    config = first(parquet(tmp_path, log(event_date=["2026-11-21"] * 6 + ["2026-11-20"] * 6)))
    assert written(config)["source"]["where"] == "event_date = '{date}'"
    assert "# the sample: 2026-11-20 to 2026-11-21" in config.text()
    assert "--date 2026-11-21" in config.text()


def test_a_user_with_several_lists_needs_the_column_of_the_lists(tmp_path: Path) -> None:
    twice = pd.concat([log(request_id="r1"), log(request_id="r2")], ignore_index=True)
    assert written(first(parquet(tmp_path, twice)))["source"]["list"] == ["request_id"]
    unknown = first(parquet(tmp_path, twice.drop(columns="request_id")))
    assert "  # list: [COLUMN]  # users have a rank more than once" in unknown.text()
    once = first(parquet(tmp_path, log(request_id="r1")))
    assert "list" not in written(once)["source"]
    # On different days, a user may have the same list again.
    days = pd.concat([log(date="2026-11-20"), log(date="2026-11-21")], ignore_index=True)
    assert not first(parquet(tmp_path, days)).has_several_lists


@pytest.mark.parametrize(("more", "column", "reason"), json_cases("lists told apart by values"))
def test_lists_are_told_apart_by_values_where_no_name_does(
    tmp_path: Path, more: dict[str, Any], column: str | None, reason: str | None
) -> None:
    config = first(parquet(tmp_path, pd.concat([log(), log()], ignore_index=True).assign(**more)))
    assert written(config)["source"].get("list") == (column and [column])
    if reason:
        assert f"  list: [{column}]  # {reason}; users have several lists in the sample\n" in config.text()


def test_a_rank_that_does_not_start_lists_is_no_position() -> None:
    # The ranks of the items by their sales, in lists of six.
    popular = [97, 12, 5, 33, 61, 88, 14, 2, 45, 50, 71, 29] * 4
    rows = a_log(lists=8, length=6, arms=1).rename(columns={"slot": "position_on_page"}).assign(rank=popular)
    result = guesses(rows, {})["position"]
    assert result.column == "position_on_page"
    assert result.reason == "likely, by its name and values; not rank: lists of the sample do not start at 0 or 1"
    # Nor one that reaches far beyond the rows of a list, though the most popular item is in most of them.
    far = guesses(rows.assign(rank=[1, 12, 5, 33, 61, 88] * 8), {})["position"]
    assert far.reason == "likely, by its name and values; not rank: lists of 6 rows reach 88"
    # A column without a name that is known, if it is the only one that behaves so.
    unnamed = rows.rename(columns={"position_on_page": "x"})
    assert guesses(unnamed, {})["position"] == Guess(
        "x", "a guess, by its values; not rank: lists of the sample do not start at 0 or 1"
    )
    alone = guesses(rows.drop(columns="position_on_page"), {})["position"]
    assert (alone.column, alone.sureness) == ("rank", "a guess")
    assert alone.reason == "a guess, by its name; but lists of the sample do not start at 0 or 1"
    # The user's word counts more than the values.
    assert guesses(rows, {"position": "rank"})["position"].reason == "given"


@pytest.mark.parametrize("kept", [slice(None, None, 2), slice(0, 30), slice(None)])
def test_a_position_is_known_in_a_log_that_is_cut(kept: slice) -> None:
    result = guesses(a_log(lists=8, length=6, arms=1)[kept], {})["position"]
    assert (result.column, result.reason) == ("slot", "sure, by its name")


@pytest.mark.parametrize(
    ("arms", "more"),
    [
        # An arm per user, both arms for each user, and a user with several lists.
        (1, {}),
        (2, {}),
        (1, {"visit": [f"v{row // 12}" for row in range(48)], "visitor_id": ["u1", "u2"] * 24}),
    ],
)
def test_an_experiment_does_not_vary_within_a_list(arms: int, more: dict[str, Any]) -> None:
    rows = a_log(lists=8 // arms, length=6, arms=arms).rename(columns={"variant": "test_cell"})
    if more:
        # Two users with lists of 12 that alternate.
        rows = rows.assign(slot=[row // 2 % 6 + 1 for row in range(48)], test_cell=["a"] * 24 + ["b"] * 24, **more)
    rows = rows.assign(group=["shoes", "shirts", "shirts", "hats", "shoes"] * 9 + ["hats"] * 3)
    result = guesses(rows, {})["experiment"]
    assert result.column == "test_cell"
    assert result.reason == "likely, by its name and values; not group: it varies within lists"
    if arms == 2:
        # Users of both arms with several lists: the column of the lists does not tell the arms apart.
        lists = pd.concat([rows.assign(query="hat"), rows.assign(query="shoe", group=rows["group"][::-1].tolist())])
        assert guesses(lists.reset_index(drop=True), {})["experiment"] == result
    alone = guesses(rows.drop(columns="test_cell"), {}).get("experiment")
    # Without the arms, the ranks of a user in both repeat, and what varies may be the arms.
    assert arms == 2 or alone == Guess("group", "a guess, by its name; but it varies within lists")


@pytest.mark.parametrize(("name", "values", "experiments"), json_cases("a treatment of yes and no is an experiment"))
def test_yes_and_no_are_experiments(tmp_path: Path, name: str, values: list[Any], experiments: list[str]) -> None:
    rows = log().drop(columns="variant").assign(**{name: [value for value in values for _ in range(6)]})
    config = first(parquet(tmp_path, rows))
    assert (config.columns["experiment"].column, config.experiments) == (name, experiments)
    assert config.likely_baseline == experiments[0]
    assert written(first(parquet(tmp_path, rows), baseline=experiments[0]))["comparison"]["baseline"] == experiments[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [("page", [1, 2]), ("page_no", ["1", "2"]), ("result_block", ["top", "rest"]), ("batch", [0, 1])],
)
def test_pages_of_a_list_are_no_lists(tmp_path: Path, name: str, values: list[Any]) -> None:
    pages = pd.concat([a_log(8, 6, 1).assign(**{name: value}) for value in values], ignore_index=True)
    config = first(parquet(tmp_path, pages))
    assert ("list" in config.columns, "list" in written(config)["source"]) == (False, False)
    seen = f"{name} repeats for every user: if slot starts anew on each page of a list, compute a position over all"
    assert f"  # list: [COLUMN]  # users have a rank more than once: which column tells their lists apart?; {seen}" in (
        config.text()
    )
    # With a column that names the sessions of a user, pages are no lists either.
    sessions = pd.concat([pages.assign(session_id="s1"), pages.assign(session_id="s2")], ignore_index=True)
    config = first(parquet(tmp_path, sessions))
    assert (config.columns["list"].columns, seen in config.text()) == (("session_id",), True)
    # What a page does not explain is no reason to speak of it.
    assert seen not in first(parquet(tmp_path, pd.concat([sessions, sessions], ignore_index=True))).text()
    assert seen not in first(parquet(tmp_path, a_log(8, 6, 1).assign(**{name: values[0]}))).text()


def test_lists_are_told_apart_by_two_columns_where_one_does_not(tmp_path: Path) -> None:
    asked = [("s1", "shoes"), ("s1", "hats"), ("s2", "shoes"), ("s2", "hats")]
    lists = [a_log(8, 6, 1).assign(session_id=session, query=query, country="DE") for session, query in asked]
    config = first(parquet(tmp_path, pd.concat(lists, ignore_index=True)))
    assert written(config)["source"]["list"] == ["session_id", "query"]
    assert "  list: [session_id, query]  # a guess, by its values; users have several lists" in config.text()
    assert "list = session_id and query (a guess)" in config.in_words()
    assert "query" not in config.segments


def test_grades_above_1_raise_the_question_which_are_relevant(tmp_path: Path) -> None:
    graded = parquet(tmp_path, log(clicked=[0, 1, 3] * 4))
    assert "# convention: {relevant_from: 2}  # grades are 0, 1, 3, ...: by default all above 0" in first(graded).text()
    assert written(first(graded, relevant_from=3.0))["convention"] == {"preset": "standard", "relevant_from": 3}


def test_the_baseline_is_the_experiment_whose_name_says_so(tmp_path: Path) -> None:
    config = first(parquet(tmp_path, log()))
    assert (config.experiments, config.likely_baseline) == (["control", "new"], "control")
    assert written(first(parquet(tmp_path, log()), baseline="new"))["comparison"] == {"baseline": "new"}
    plain = first(parquet(tmp_path, log(variant=["x", "y"] * 6)))
    assert (plain.experiments, plain.likely_baseline) == (["x", "y"], None)


def test_what_a_run_needs_and_nobody_can_guess_is_missing(tmp_path: Path) -> None:
    rows = log(x1=["p", "q"] * 6).drop(columns=["variant", "visitor_id", "sku", "clicked"])
    config = first(parquet(tmp_path, rows))
    assert config.missing() == ["user", "relevance"]
    truth = tmp_path / "truth.csv"
    truth.write_text("query,doc\nq1,d1\n")
    assert first(parquet(tmp_path, rows), judgements=str(truth)).missing() == ["user", "judgements.relevance"]
    named = first(parquet(tmp_path, rows), judgements=str(truth), judged={"relevance": "doc", "item": "query"})
    assert named.missing() == ["user", "judgements.user"]
    with pytest.raises(InputError, match="the file of judgements 'nowhere' does not exist"):
        first(parquet(tmp_path, rows), judgements="nowhere").missing()
    result = guesses(rows, {"user": "x1"})
    assert (result["user"].column, result["user"].reason, result["user"].sureness) == ("x1", "given", "given")
    text = FirstConfig(config.log, result).text()
    assert "    experiment: null  # no column looks like one" in text and "    item: null  # no column" in text


@pytest.mark.parametrize(("given", "message"), json_cases("columns that are given and not there"))
def test_a_given_column_has_to_be_there(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        guesses(log(), given)
    assert str(caught.value).startswith(message)


def test_a_csv_file_is_read_with_its_separator_and_its_leading_zeros(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    with gzip.open(file, "wt") as stream:
        log(variant=["007", "control"] * 6).to_csv(stream, sep=";", index=False)
    config = first(str(file))
    assert written(config)["source"]["options"] == {"sep": ";"}
    assert config.experiments == ["control", "007"]
    assert "# comparison: {baseline: control}  # one of control, 007" in config.text()


def test_a_folder_is_known_by_its_first_file_and_its_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "log" / "event_date=2026-11-20"
    folder.mkdir(parents=True)
    (tmp_path / "log" / "_SUCCESS").touch()
    rows = [*log(nested=[{"a": 1}] * 12).to_dict("records")]
    (folder / "part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = first(str(tmp_path / "log"))
    assert written(config)["source"]["format"] == "json"
    assert config.dates == ["2026-11-20"]
    assert "nested" not in config.log.rows.columns


def test_a_folder_shows_each_of_its_partitions_and_the_newest_day(tmp_path: Path) -> None:
    for arm in ("control", "new"):
        for day in range(1, 31):
            folder = tmp_path / "log" / f"variant={arm}" / f"dt=2026-11-{day:02}"
            folder.mkdir(parents=True)
            log().drop(columns="variant").assign(visitor_id=f"u{day}").to_parquet(folder / "part-0.parquet")
    config = first(str(tmp_path / "log"))
    assert config.experiments == ["control", "new"]
    assert (config.dates[-1], len(config.dates), config.log.whole) == ("2026-11-30", 12, False)
    assert written(config)["source"]["where"] == "dt = '{date}'"
    # A small share of each file is read: the sample has at most so many rows, whatever the number of files.
    assert len(config.log.rows) == 24 * 12


def test_a_time_is_no_segment_and_an_only_column_of_stars_is_asked_about(tmp_path: Path) -> None:
    rows = log(at=pd.to_datetime(["2026-11-20", "2026-11-21"] * 6), clicked=[1, 5, 3] * 4)
    config = first(parquet(tmp_path, rows), baseline="new")
    assert config.segments == []
    assert config.unsettled() == ["which grades are relevant (all above 0 of 1, 3, 5; --relevant-from)"]
    open_ones = first(parquet(tmp_path, log(variant=["x", "y"] * 6))).unsettled()
    assert open_ones == ["which experiment is the baseline (nothing is compared; --baseline x, or another of x, y)"]
    assert first(parquet(tmp_path, log()), baseline="new").unsettled() == []


def test_the_first_line_names_the_schema_and_the_third_one_the_command(tmp_path: Path) -> None:
    lines = first(parquet(tmp_path, log())).text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=rankmetrics.schema.json"
    assert lines[2] == "#   rankmetrics evaluate --config THIS_FILE"
    assert lines[3] == "# Paths are relative to the folder in which the command runs, not to that of this file."


def test_a_table_of_a_catalog_is_named_as_one() -> None:
    config = FirstConfig(LogSample("main.logs.shown", "table", log()), guesses(log(), {}))
    source = written(config)["source"]
    assert (source["format"], source["table"], "path" in source) == ("table", "main.logs.shown", False)


def test_a_trec_run_needs_its_judgements(tmp_path: Path) -> None:
    run, qrels = tmp_path / "results.test", tmp_path / "qrels.test"
    run.write_text("q1 Q0 d1 1 2.5 bm25\nq1 Q0 d2 2 1.5 bm25\n")
    qrels.write_text("q1 0 d1 1\nq1 0 d2 0\n")
    content = written(first(str(run), judgements=str(qrels)))
    assert (content["source"], content["rank_by"]) == ({"format": "trec_run", "path": str(run)}, "score")
    assert (content["convention"], content["metrics"]) == ("trec_eval", ["ndcg@10", "ap", "p@10", "rr"])
    by = [written(first(parquet(tmp_path, log().rename(columns=of)))).get("unit") for of in ({}, {"visitor_id": "qid"})]
    assert [content["unit"], *by] == ["query", None, "query"]
    assert first(str(run)).missing() == ["judgements"]
    # What is no row is read over, and said.
    qrels.write_text("\ufeff# by two assessors\ntopic iter docno rel\n" + qrels.read_text(), encoding="utf-8")
    assert first(str(run), judgements=str(qrels)).notes() == [
        f"{qrels.name}: a byte order mark and 2 lines of comments or names read over"
    ]
    assert content["judgements"] == {"format": "trec_qrels", "path": str(qrels)}
    with pytest.raises(InputError, match="looks like TREC judgements; allowed: a run, with the judgements as"):
        sample(str(qrels))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([(topic, subtopic, doc, 1 + subtopic % 2) for topic in (1, 2) for subtopic in range(9) for doc in (3, 4, 5)],
         "trec_qrels"),  # of a diversity track: documents of few numbers, fewer than subtopics
        ([(user, 50 + item, 1 + item % 5, 3 + item) for user in (1, 2) for item in range(20)], "ratings"),
        ([(user, 50 + item, 1 + item % 5, 881250949) for user in (1, 2) for item in range(20)], "ratings"),
    ],
)  # fmt: skip
def test_four_numbers_are_qrels_if_the_last_are_grades(tmp_path: Path, rows: list[tuple[int, ...]], kind: str) -> None:
    (tmp_path / "four").write_text("\n".join(" ".join(map(str, row)) for row in rows))
    assert kind_of(tmp_path / "four") == kind


def test_the_runs_of_a_folder_are_experiments_by_their_tags_or_by_their_files(tmp_path: Path) -> None:
    runs, qrels = tmp_path / "runs", tmp_path / "qrels.test"
    runs.mkdir()
    qrels.write_text("q1 0 d1 1\nq1 0 d2 3\n")
    for name in ("bm25", "dense"):
        (runs / f"{name}.run").write_text(f"q1 Q0 d1 1 2.5 {name}\n")
    config = first(str(runs), judgements=str(qrels), relevant_from=3.0)
    assert (config.experiments, config.grades) == (["bm25", "dense"], [1, 3])
    assert "experiment_from" not in written(config)["source"]
    assert written(config)["convention"] == {"preset": "trec_eval", "relevant_from": 3}
    (runs / "dense.run").write_text("q1 Q0 d1 1 2.5 bm25\n")
    config = first(str(runs), judgements=str(qrels), baseline="bm25.run")
    assert (config.experiments, config.in_words()) == (["bm25.run", "dense.run"], "a TREC run of bm25.run, dense.run")
    assert written(config)["source"]["experiment_from"] == "file"


def test_the_columns_of_judgements_are_guessed_as_well(tmp_path: Path) -> None:
    judged = pd.DataFrame({"topic": ["u1"], "doc": ["i1"], "grade": [2]})
    judged.to_csv(tmp_path / "truth.csv", sep=";", index=False)
    config = first(parquet(tmp_path, log()), judgements=str(tmp_path / "truth.csv"))
    assert written(config)["judgements"] == {
        "format": "csv",
        "path": str(tmp_path / "truth.csv"),
        "options": {"sep": ";"},
        "columns": {"user": "topic", "item": "doc", "relevance": "grade"},
    }


@pytest.mark.parametrize(
    ("lines", "roles"),
    [
        ([f"q{n // 3} d{n} {n % 3 + 1}" for n in range(18)], {"user": "_c0", "item": "_c1", "position": "_c2"}),
        ([f"q{n % 2}|d{n}|{9 - n / 8}" for n in range(20)], {"user": "_c0", "item": "_c1", "score": "_c2"}),
        ([f"q{n % 2};d{n};{2 + n % 5}" for n in range(20)], {"user": "_c0", "item": "_c1"}),
    ],
)
def test_lines_without_names_are_read_by_their_values(tmp_path: Path, lines: list[str], roles: dict[str, str]) -> None:
    (tmp_path / "log.txt").write_text("\n".join(lines))
    read = sample(str(tmp_path / "log.txt"))
    assert {role: guess.column for role, guess in guesses(read.rows, {}, placed=read.roles).items()} == roles
    assert read.options == {"sep": lines[0][2], "header": "false"}
    # Of judgements the third field is the grade.
    judged = first(str(tmp_path / "log.txt"), judgements=str(tmp_path / "log.txt")).judged_columns
    assert judged["relevance"].column == "_c2"


@pytest.mark.parametrize(("name", "content", "message"), cases("files that are no log"))
def test_a_file_that_is_no_log_is_one_sentence(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="latin1")
    with pytest.raises(InputError, match=message) as caught:
        sample(str(tmp_path / name))
    assert "\n" not in str(caught.value)


HITS = [{"hit": {"_id": "d2", "_score": None}, "rating": None}, {"hit": {"_id": "d1"}, "rating": 2}]


@pytest.mark.parametrize(("document", "grades"), json_cases("documents of search systems"))
@pytest.mark.parametrize("indent", [None, 1])
def test_documents_of_search_systems_are_judgements(
    tmp_path: Path, document: dict[str, Any], grades: str | None, indent: int | None
) -> None:
    (tmp_path / "truth.json").write_text("\ufeff" + json.dumps(document, indent=indent), encoding="utf-8")
    if grades is None or "incomplete" in grades:  # an unknown shape, or a line of JSON that needs columns
        with pytest.raises(
            InputError, match=re.escape(grades or "no document of queries and items; allowed: an object")
        ):
            parsed(tmp_path / "truth.json", "json_document", {}, False)
        return
    config = first(parquet(tmp_path, log()), judgements=str(tmp_path / "truth.json"))
    assert config.truth is not None
    assert [*map(tuple, config.truth.rows.to_numpy())] == [("q", f"d{n}", g) for n, g in enumerate(grades.split(), 1)]
    assert written(config)["judgements"] == {"format": "json_document", "path": str(tmp_path / "truth.json")}


def test_files_that_are_too_large_to_parse_say_what_makes_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankmetrics_spark.config.documents._MOST_BYTES", 1)
    for format, text, line in (("json_document", '{"q": {"d": 1}}', "jq -c"), ("letor", "1 qid:1 1:1 # d", "paste -d")):
        (tmp_path / format).write_text(text)
        with pytest.raises(InputError, match=f"has more than 0 .iB, and it is parsed .*; allowed: .* {line}"):
            parsed(tmp_path / format, format, {}, False)


def test_an_array_in_one_line_and_parts_without_names_are_rows(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(log().to_json(orient="records"))
    assert first(str(tmp_path / "log.json")).missing() == []
    for name in ("bm25", "dense"):  # the name of one has a digit, as all values of its first line do
        (tmp_path / "parts").mkdir(exist_ok=True)
        log(variant=name, visitor_id=7).to_csv(tmp_path / "parts" / f"part-{name}.csv", header=False, index=False)
    assert [*sample(str(tmp_path / "parts")).rows] == [f"_c{n}" for n in range(5)]
    log().to_csv(tmp_path / "parts" / "part-c.csv", index=False)
    with pytest.raises(InputError, match="has a line of names, other separators, or neither, unlike '"):
        sample(str(tmp_path / "parts"))


def test_the_hits_of_a_response_are_a_log(tmp_path: Path) -> None:
    """A hit without a rating counts as not relevant."""
    (tmp_path / "response.json").write_text(json.dumps({"metric_score": 0.5, "details": {"q": {"hits": HITS}}}))
    config = first(str(tmp_path / "response.json"))
    assert config.log.rows.to_dict("list") == {
        "user_id": ["q", "q"], "item_id": ["d2", "d1"], "position": ["1", "2"], "relevance": ["0", "2"]
    }  # fmt: skip
    assert (config.missing(), written(config)["rank_by"]) == ([], "position")
    assert config.notes() == ["response.json: read as a rank_eval response of Elasticsearch"]


@pytest.mark.parametrize(
    ("comment", "item"), [("#docid = GX-1 inc = 1", "GX-1"), ("# 50", "50"), ("# doc GX-1", "GX-1"), ("", "1")]
)
def test_scores_are_for_rows_of_svmlight(tmp_path: Path, comment: str, item: str) -> None:
    rows = ["# made", f"2 qid:q7 1:0.5 2:0 {comment}", f"0 qid:q7 1:0.1 {comment and '# other'}", ""]
    (tmp_path / "test.txt").write_text("\n".join(rows))
    for name, lines in {"a.predictions": "0.25\n-1e-3", "b.predictions": "1\n2\n", "grades": "2\n0", "of": "1"}.items():
        (tmp_path / name).write_text(lines)
    config = first(str(tmp_path / "test.txt"))
    # The grades alone and a file of another length are no scores.
    assert config.experiments == ["a", "b"]
    assert [*config.log.rows.iloc[0]] == ["q7", item, "0.25", "2", "a"]
    source = written(config)["source"]
    assert (source["path"], source["options"]) == (
        f"{tmp_path}/{{a.predictions,b.predictions}}",
        {"rows": f"{tmp_path}/test.txt"},
    )
    with pytest.raises(InputError, match=r"of' has 1 lines, and '.*test.txt' has more; allowed: a score for each row"):
        sample(str(tmp_path / "of"), judgements=str(tmp_path / "test.txt"))


def test_fields_of_structs_are_columns(tmp_path: Path) -> None:
    events = [
        {"event": {"user": {"id": user}, "arm": arm, "rank": rank}, "clicked": rank == 2, "lists": {"of": [1]}}
        for arm, user, rank in LISTS
    ]
    rows = [*events, {"event": None, "clicked": False, "items": {f"i{n}": n for n in range(200)}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = first(str(tmp_path / "log.jsonl"))
    got = {role: guess.column for role, guess in config.columns.items()}
    assert got == {"position": "event.rank", "relevance": "clicked", "experiment": "event.arm", "user": "event.user.id"}
    # A struct with a field per item is left out.
    assert [*config.log.rows.columns] == ["event.user.id", "event.arm", "event.rank", "clicked"]
    assert config.log.lists == ["lists.of"]
    assert guesses(config.log.rows, {"item": "event.user.id"})["item"].reason == "given"


def test_judgements_among_the_runs_of_a_folder_are_one_sentence(tmp_path: Path) -> None:
    for name in ("bm25", "dense"):
        (tmp_path / f"{name}.run").write_text(f"q1 Q0 d1 1 2.5 {name}\n")
    for name, more in (("qrels.txt", f", or the runs as '{tmp_path}/*.run'"), ("a.run", "")):
        (tmp_path / name).write_text("q1 0 d1 1\nq1 0 d2 0\n")
        with pytest.raises(InputError) as caught:
            sample(str(tmp_path))
        assert str(caught.value) == (
            f"the log '{tmp_path}' holds '{tmp_path / name}', which looks like TREC judgements; allowed: runs alone, "
            f"with the judgements elsewhere{more}, and --judgements"
        )
        if more:
            runs = sample(f"{tmp_path}/*.run")
            assert (runs.format, sorted(runs.rows["tag"])) == ("trec_run", ["bm25", "dense"])
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match="does not exist; allowed: a file or a folder"):
        sample(f"{tmp_path}/*.csv")


def test_a_score_alone_needs_an_item_and_two_scores_are_no_guess(tmp_path: Path) -> None:
    rows = log(score=0.5).drop(columns=["slot", "sku"])
    assert first(parquet(tmp_path, rows)).missing() == ["item"]
    rows = log(score_als=0.5, score_bpr=0.25).drop(columns="slot")
    assert first(parquet(tmp_path, rows)).missing() == ["position"]


def test_a_place_without_files_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; allowed: a file or a folder"):
        sample(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="is a folder without files"):
        sample(str(tmp_path))


@pytest.mark.parametrize(("files", "named", "experiments"), json_cases("files with names of their own are experiments"))
def test_files_or_folders_with_names_of_their_own_are_experiments(
    tmp_path: Path, files: tuple[str, ...], named: str, experiments: list[str]
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        log().drop(columns="variant").to_csv(tmp_path / file, index=False)
    config = first(str(tmp_path))
    source = written(config)["source"]
    assert (source.get("experiment_from", ""), config.experiments) == (named, experiments)
    assert (source["columns"].get("experiment", "left out") is None) == (not named)
    # A column that names the experiments is the better witness.
    for file in files:
        log().to_csv(tmp_path / file, index=False)
    source = written(first(str(tmp_path)))["source"]
    assert ("experiment_from" in source, source["columns"]["experiment"]) == (False, "variant")


def test_a_folder_with_files_of_two_formats_is_one_sentence(tmp_path: Path) -> None:
    log().to_csv(tmp_path / "a.csv", index=False)
    log().to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"holds files of csv and of parquet; allowed: files of one format$"):
        sample(str(tmp_path))


def test_the_number_of_a_query_is_no_rank() -> None:
    """Features and grades without a ranking: the only column that counts from 1 numbers the queries."""
    rows = pd.DataFrame(
        {"visitor_id": ["u"] * 6 + ["v"] * 6, "query_no": [1] * 4 + [2] * 4 + [3] * 4, "grade": [0, 1] * 6}
    )
    assert "position" not in guesses(rows.assign(query_no=[1] * 6 + [2] * 6), {})
    assert "position" not in guesses(rows.assign(visitor_id=list("aaaabbbbcccc")), {})
    # As a rank it varies within lists, and counts as one.
    assert guesses(rows.assign(query_no=[1, 2, 3, 4, 5, 6] * 2), {})["position"].column == "query_no"


def test_a_column_without_a_name_has_no_role(tmp_path: Path) -> None:
    """The index of pandas counts from 0, as a rank does; no config can name it."""
    rows = log().drop(columns="slot").sort_values(["variant", "visitor_id"])[:3].reset_index(drop=True)
    rows.to_csv(tmp_path / "log.csv")
    read = sample(str(tmp_path / "log.csv"))
    assert [*read.rows.columns] == [*rows.columns]
    assert "position" not in guesses(read.rows, {})


@pytest.mark.parametrize(("log", "output"), [("out/demo/log.csv", "out/first"), ("logs/log.csv", "out")])
def test_no_output_is_around_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, output: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(log).parent.mkdir(parents=True)
    Path(log).write_text("user_id,item_id,position,clicked\nu,i,1,1\n")
    assert written(first(log))["sink"] == {"path": output}
