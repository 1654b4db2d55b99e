"""``rankmetrics forget``: no file knows the users any more, and each number is that of a log without them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import read, run
from rankmetrics_spark.config import Sink
from rankmetrics_spark.errors import ConfigError, DifferenceError
from rankmetrics_spark.job import forget, recompute, verify
from rankmetrics_spark.pointers import Entry, Pointer

# The reason: it is killed at each of its steps.
from rankmetrics_spark.sinks import altered, erasing, files_of, folders, prune, store_of
from tests.helpers.commands import Call
from tests.helpers.days import DAYS, Log, a_log
from tests.helpers.kills import Killed, count_down
from tests.helpers.logs import bits, config

GONE = ("u3", "u11", "u20")
TABLES = ("user_metrics", "experiment_metrics", "comparisons", "quarantine", "checks")
#: What a run says of itself.
OF_A_RUN = {"run_id"}


def ids_file(folder: Path, *ids: str) -> str:
    """A file of ids with blanks, duplicates and one that is in no table."""
    path = folder / "ids.txt"
    path.write_text("\ufeff" + "\r\n".join(["", *ids[1:], "  ", f" {ids[0]} ", *ids[1:], "nobody"]) + "\n", "utf-8")
    return str(path)


def values_in(value: Any) -> Iterator[Any]:
    """Every key and value of a document."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from values_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from values_in(each)
    else:
        yield value


def texts_of(file: Path) -> Iterator[Any]:
    """Every cell, dictionary entry and statistic of a Parquet file; every value of a JSON file; the text of another."""
    if file.suffix == ".parquet":
        parquet = pq.ParquetFile(file)
        flat = [field.name for field in parquet.schema_arrow if not pa.types.is_nested(field.type)]
        table = pq.ParquetFile(file, read_dictionary=flat).read()
        for column in table.columns:
            for chunk in column.chunks:
                yield from getattr(chunk, "dictionary", chunk).to_pylist()
        for group in range(parquet.metadata.num_row_groups):
            for place in range(parquet.metadata.num_columns):
                statistics = parquet.metadata.row_group(group).column(place).statistics
                if statistics is not None and statistics.has_min_max:
                    yield from (statistics.min, statistics.max)
        yield from (parquet.schema_arrow.metadata or {}).values()
    elif file.suffix == ".json":
        yield from values_in(json.loads(file.read_text()))
    else:
        yield from file.read_text().replace('"', " ").split()


def holding(out: Path, *ids: str) -> list[str]:
    """The files of a folder that hold one of these ids."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file())
    return [str(path.relative_to(out)) for path in files if {*ids} & {*map(str, texts_of(path))}]


def rows_of(spark: SparkSession, out: Path, table: str, without: set[str] = OF_A_RUN) -> list[Any]:
    rows = read(spark, out / table).collect()
    return sorted(
        (sorted((name, bits(value)) for name, value in row.asDict().items() if name not in without) for row in rows),
        key=repr,
    )


def records(out: Path) -> dict[str, dict[str, Any]]:
    """Date -> the record of its run."""
    return {r["evaluation_date"]: r for p in (out / "runs").glob("*.json") for r in [json.loads(p.read_text())]}


def without_runs(value: Any) -> Any:
    """A part of a record without the ids of runs."""
    if isinstance(value, dict):
        return {key: without_runs(each) for key, each in value.items() if key != "run_id"}
    return value


def assert_same(spark: SparkSession, out: Path, reduced: Path) -> None:
    for table in TABLES:
        assert rows_of(spark, out, table) == rows_of(spark, reduced, table), table


def log_of(spark: SparkSession, folder: Path, rows: list[Any]) -> Log:
    folder.mkdir()
    return Log(spark, folder, rows)


LAX: dict[str, Any] = {"quality": {"max_invalid_fraction": 1}}
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "days": (4, {"comparison": {}}),
    "a period": (2, {"comparison": {"period": {"from": DAYS[0]}}, "source": {"segments": ["country"]}}),
    "one file": (2, {"sink": {"layout": "by_date"}, "comparison": {"pairs": "all", "baseline": None}}),
}


def both_logs(spark: SparkSession, folder: Path) -> tuple[Log, Log]:
    """A log with faulty rows and ranks that repeat, and the same without some users."""
    rows = a_log()
    of_user = {row[2]: row[6] for row in rows}
    rows += [(day, "b", user, "i1", None, 1, of_user[user]) for day in DAYS for user in ("u3", "u4")]
    rows += [(day, "a", user, "i9", 1, 0, of_user[user]) for day in DAYS for user in ("u11", "u5")]
    return log_of(spark, folder / "log", rows), log_of(spark, folder / "reduced", [r for r in rows if r[2] not in GONE])


@pytest.mark.parametrize("kind", RUNS)
def test_what_is_left_is_that_of_a_log_without_the_users(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    n, sections = RUNS[kind]
    log, reduced = both_logs(spark, tmp_path)
    for each in (log, reduced):
        for day in DAYS[:n]:
            more = {name: dict(section) for name, section in sections.items()}
            if "sink" in more:
                more["sink"]["path"] = str(each.out)
            each.run(day, **LAX, **more)
    assert len(holding(log.out, *GONE)) >= 2 * n
    result = forget(spark, str(log.out), ids_file(tmp_path, *GONE))
    assert result.sentences[-1].startswith(f"erased 3 users from {n} dates; 1 of 4 ids are in no table")
    assert holding(log.out, *GONE) == []
    assert_same(spark, log.out, reduced.out)
    assert [altered(store_of(spark, Sink(path=str(log.out)), ""), day) for day in DAYS[:n]] == [([], [])] * n
    now, then = records(log.out), records(reduced.out)
    for day, record in now.items():
        assert record["erased_users"] == 3
        for key in ("rows", "tables", "quarantine_reasons", "quality", "verdict", "outcome"):
            assert without_runs(record[key]) == without_runs(then[day][key]), key
        counts, expected = record["experiments"], then[day]["experiments"]
        assert {name: {key: count[key] for key in count} for name, count in counts.items()} == {
            name: {key: n for key, n in count.items() if key != "digest"} for name, count in expected.items()
        }


def test_stored_lists_lose_the_users_and_serve_for_new_metrics(spark: SparkSession, tmp_path: Path) -> None:
    log, reduced = both_logs(spark, tmp_path)
    added = ["err@3", "softmax_loss", "distinct@3"]
    more: dict[str, Any] = {"source": {"columns": {"score": "position", "intents": "item_id"}}}
    lists = {"scores": True, "intents": True}
    log.run(DAYS[0], {}, **LAX, **more, sink={"path": str(log.out), "lists": lists})
    of_others = {"metrics": ["ap@5", "ndcg@5", *added], "sink": {"path": str(reduced.out), "lists": lists}}
    reduced.run(DAYS[0], {}, **LAX, **more, **of_others)
    assert any(file.startswith("lists/") for file in holding(log.out, *GONE))
    forget(spark, str(log.out), ids_file(tmp_path, *GONE))
    assert holding(log.out, *GONE) == [] and rows_of(spark, log.out, "lists") == rows_of(spark, reduced.out, "lists")
    recompute(spark, Sink(path=str(log.out)), added)
    assert_same(spark, log.out, reduced.out)
    # Its log still holds them, as the record of the new run says too.
    with pytest.raises(ConfigError, match=r"users were erased from run .* --without FILE"):
        verify(spark, Sink(path=str(log.out)))
    assert not verify(spark, Sink(path=str(log.out)), without=ids_file(tmp_path, *GONE)).other


def published(spark: SparkSession, folder: Path, n: int = 1, **more: Any) -> tuple[Log, Log]:
    """Both logs, and what is published of their first days."""
    log, reduced = both_logs(spark, folder)
    for each in (log, reduced):
        for day in DAYS[:n]:
            each.run(day, {}, **(LAX | more))
    return log, reduced


def test_a_verification_without_them_derives_every_bit(spark: SparkSession, tmp_path: Path) -> None:
    log, _ = published(spark, tmp_path)
    ids = ids_file(tmp_path, *GONE)
    forget(spark, str(log.out), ids)
    (record,) = records(log.out).values()
    # Its log still holds them.
    result = verify(spark, Sink(path=str(log.out)), without=ids)
    assert {row["the same"] for row in result.rows} == {"to the bit"} and len(result.rows) == len(TABLES)
    # What is not compared is not counted as shown.
    assert [row["table"] for row in result.rows if row["rows"] != row["of"]] == ["checks"]
    assert result.in_words()[0].endswith("what was compared of each table is the same to the bit")
    assert result.uncovered == [
        "checks of rates: where users were erased, counts that no table tells stay",
        f"runs/{record['run_id']}.json has no digests of its inputs",
    ]
    with pytest.raises(DifferenceError, match=" rows of experiment 'a', and "):
        verify(spark, Sink(path=str(log.out)), without=ids_file(tmp_path, GONE[0]))
    with pytest.raises(ConfigError, match=r"^users were erased from run \S+; allowed: .* --without FILE"):
        verify(spark, Sink(path=str(log.out)))


def test_segments_that_cannot_follow_are_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(*row[:-1], None if row[2] == "u5" else row[-1]) for row in a_log(DAYS[:1])]
    log = log_of(spark, tmp_path / "log", rows)
    log.run(DAYS[0], {}, source={"list": ["day"], "segments": ["country"]}, **LAX)
    ids = ids_file(tmp_path, "u3")
    result = forget(spark, str(log.out), ids)
    assert result.sentences[-1].startswith("erased 1 user from 1 date; 1 of 2 ids")
    assert {row["segment"] for row in read(spark, log.out / "comparisons").collect()} == {"all"}
    (record,), of_segments = records(log.out).values(), "means and comparisons of segments: where a user has none"
    assert [note for note in record["notes"] if note.startswith(("1 user erased", of_segments))] == record["notes"][-2:]
    result = verify(spark, Sink(path=str(log.out)), without=ids)
    assert of_segments in result.uncovered[1] and {row["the same"] for row in result.rows} == {"to the bit"}


def test_a_killed_one_leaves_each_date_as_it_was_or_new_and_the_next_one_finishes_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, reduced = published(spark, tmp_path)
    ids, (day, *_), states = ids_file(tmp_path, *GONE), DAYS, set()
    wholes = [{table: rows_of(spark, each.out, table) for table in TABLES} for each in (log, reduced)]
    for after in range(0, 100, 5):
        out = tmp_path / f"out {after}"
        shutil.copytree(log.out, out)
        with monkeypatch.context() as killing:

            def switch(*arguments: Any, after: int = after, killing: Any = killing) -> bool:
                count_down(killing, after)
                return erasing.switch(*arguments)

            killing.setattr(folders, "erasing", SimpleNamespace(switch=switch))
            try:
                forget(spark, str(out), ids)
                break
            except Killed:
                pass
        # Any command that cleans up after killed ones finishes it, or takes it back.
        prune(files_of(str(out)), str(out), None)
        now = {table: rows_of(spark, out, table) for table in TABLES}
        state = wholes.index(now)
        states.add(state)
        assert altered(store_of(spark, Sink(path=str(out)), ""), day) == ([], [])
        assert ("erased_users" in records(out)[day], holding(out, *GONE) == []) == (state == 1, state == 1), after
        forget(spark, str(out), ids)
        assert holding(out, *GONE) == [] and not (out / "_staging").exists()
        assert_same(spark, out, reduced.out)
        assert records(out)[day]["erased_users"] == 3
    assert states == {0, 1} and after > 20


def test_runs_of_one_date_and_experiments_without_a_user_are_left(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for row in a_log() if row[0] in DAYS[:2] and (row[0] == DAYS[1] or row[2] in GONE)]
    log = log_of(spark, tmp_path / "log", rows)
    log.run(DAYS[0], {}, **LAX)
    for names in ("'a', 'b'", "'c'"):
        where = f"day = '{{date}}' AND experiment_id IN ({names})"
        log.run(DAYS[1], {"baseline": "a" if "a" in names else None}, source={"where": where}, **LAX)
    before = json.loads((log.out / "published" / f"{DAYS[1]}.json").read_text())
    users = {row[2] for row in rows if row[0] == DAYS[1] and row[1] == "c"} | {*GONE}
    result = forget(spark, str(log.out), ids_file(tmp_path, *sorted(users)))
    assert holding(log.out, *users) == []
    # Nobody is left on the first date, nor in c.
    assert not (log.out / "published" / f"{DAYS[0]}.json").exists()
    after = json.loads((log.out / "published" / f"{DAYS[1]}.json").read_text())
    assert [run["experiments"] for run in before["runs"]] == [["c"], ["a", "b"]]
    assert [run["experiments"] for run in after["runs"]] == [["a", "b"]]
    assert {row["evaluation_date"] for row in result.rows} == {*DAYS[:2]} and len(result.rows) == 3


def test_other_days_do_not_bring_them_back(spark: SparkSession, tmp_path: Path) -> None:
    log, reduced = both_logs(spark, tmp_path)
    for each in (log, reduced):
        # The first day is run again: it is the newest run, and the second one has read what was there before.
        for day in (DAYS[0], DAYS[1], DAYS[0]):
            each.run(day, {"period": {"from": DAYS[0], "to": DAYS[1]}}, **LAX)
    assert not verify(spark, Sink(path=str(reduced.out)), DAYS[0]).other
    forget(spark, str(log.out), ids_file(tmp_path, *GONE))
    assert holding(log.out, *GONE) == []
    for day in DAYS[:2]:
        now, then = ({key: row["difference"] for key, row in each.rows(day).items()} for each in (log, reduced))
        assert now == then and len(now) == 4


def test_with_assignments_what_is_left_is_that_of_inputs_without_the_users(spark: SparkSession, tmp_path: Path) -> None:
    golden = Path(__file__).parent / "field" / "golden_inputs"

    def publish(name: str, *gone: str) -> tuple[Path, dict[str, Any]]:
        """The output of a run over the inputs without some users, and its record."""
        folder = tmp_path / name
        folder.mkdir()
        for file in golden.glob("*.csv"):
            lines = [line for line in file.read_text().splitlines() if not {*gone} & {*line.split(",")}]
            (folder / file.name).write_text("\n".join(lines))
        source = {"format": "csv", "columns": {"position": "slot", "time": "shown_at"}, "list": ["request_id"]}
        grades = {"columns": {"list": "request_id", "time": "at"}, "grades": {"click": 1}, "within": "1h"}
        assigned = {"path": str(folder / "assignments.csv"), "columns": {"time": "first_exposure_at"}}
        more: dict[str, Any] = {"events": {"path": str(folder / "events.csv"), **grades}, "assignments": assigned}
        more |= {"tests": {"ranker": {"baseline": "old"}}, "sink": {"path": str(folder / "out"), "lists": True}}
        out = folder / "out"
        return out, run(spark, config(folder / "impressions.csv", out, source=source, **more)).record

    (out, _), (reduced, expected) = publish("all"), publish("reduced", "u1")
    assert all(table in " ".join(holding(out, "u1")) for table in ("user_days", "lists", "user_metrics"))
    ids, (day,) = ids_file(tmp_path, "u1"), records(out)
    assert (
        not any("still count" in line for line in forget(spark, str(out), ids).sentences) and holding(out, "u1") == []
    )
    for table in (*TABLES[:-1], "user_days", "lists"):
        assert rows_of(spark, out, table) == rows_of(spark, reduced, table), table
    assert records(out)[day]["assignments"] == expected["assignments"]
    assert not verify(spark, Sink(path=str(out)), without=ids).other
    # Of other assignments than the run has read, rows go all the same, and it is said which numbers do not follow.
    with (tmp_path / "all" / "assignments.csv").open("a") as file:
        file.write("\nlayout,new,u9,2026-11-20T10:00:00Z")
    means = rows_of(spark, out, "experiment_metrics")
    (sentence, _) = forget(spark, str(out), ids_file(tmp_path, "u2")).sentences
    assert sentence.startswith(f"experiment_metrics, comparisons and checks of {day}, and the counts of its record, st")
    assert holding(out, "u1", "u2") == [] and rows_of(spark, out, "experiment_metrics") == means
    assert altered(store_of(spark, Sink(path=str(out)), ""), day) == ([], []) and sentence in records(out)[day]["notes"]
    with pytest.raises(DifferenceError, match="still count the users who were erased: the assignments are not those"):
        verify(spark, Sink(path=str(out)), source="user_metrics")


def test_a_gate_that_fails_now_is_said_and_stops_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log, _ = published(spark, tmp_path, gates=[{"metric": "ap@5", "min": 0.0001}])
    record = next((log.out / "runs").glob("*.json"))
    means = {row["experiment_id"]: row["mean"] for row in read(spark, log.out / "experiment_metrics").collect()
             if row["metric"] == "ap@5"}  # fmt: skip
    assert min(means.values()) > 0.0001
    values = read(spark, log.out / "user_metrics").where("experiment_id = 'a' AND ap_at_5 > 0").collect()
    every = sorted({row["user_id"] for row in values})
    result = forget(spark, str(log.out), ids_file(tmp_path, *every))
    assert f"{DAYS[0]}: MAP@5 of a is 0.0000; the gate asks for at least 0.0001" in " ".join(result.sentences)
    assert holding(log.out, *every) == [] and json.loads(record.read_text())["outcome"] == "done"


def test_numbers_are_compared_as_text_and_the_command_says_what_it_did(
    spark: SparkSession, tmp_path: Path, call: Call
) -> None:
    pytest.importorskip("altair")
    log, out = tmp_path / "log", tmp_path / "out"
    schema = "experiment_id string, user_id bigint, item_id string, position int, relevance int"
    lists = [(e, 1000 + u, f"i{k}", k, int(k == u % 3)) for e in "ab" for u in range(40) for k in (1, 2)]
    spark.createDataFrame([*lists, ("a", 1007, "i9", None, 1)], schema).write.parquet(str(log))
    page = tmp_path / "page.html"
    report = {"file": str(page), "examples": 5}
    run(spark, config(log, out, comparison={"baseline": "a"}, report=report, **LAX))
    assert call("report", "--input", out, "--html", page, "--examples", 20)[0] == 0
    assert "1007" in page.read_text() and holding(out, "1007")
    code, shown, said = call("forget", "-o", out, "--users", ids_file(tmp_path, "1007", "1008"), "--format", "json")
    assert (code, [row["erased_users"] for row in json.loads(shown)]) == (0, [2]), said
    assert "erased 2 users from 1 date; 1 of 3 ids are in no table; a later run over a log" in said
    assert holding(out, "1007", "1008") == []
    assert "2 users" in page.read_text() and not {"1007", "1008"} & {*map(str, texts_of(page))}
    code, shown, said = call("forget", "-o", out, "--users", tmp_path / "ids.txt", "--format", "json")
    assert (code, shown.strip()) == (0, "[]") and "erased 0 users from 0 dates; 3 of 3 ids are in no table" in said
    (tmp_path / "none").write_text(" \n\n")
    (tmp_path / "delta" / "published").mkdir(parents=True)
    pointer = Pointer("2026-11-20", (Entry("r", ("a",)),), format="delta").as_json()
    (tmp_path / "delta" / "published" / "2026-11-20.json").write_text(pointer)
    for words, expected, sentence in (
        (("-o", tmp_path / "delta", "--users", tmp_path / "ids.txt"), 2, "holds Delta tables, whose earlier versions"),
        (("-o", out, "--users", tmp_path / "none"), 3, "has no id; allowed: a text file with an id per line"),
        (("-o", out, "--users", tmp_path / "absent"), 3, "cannot be read; allowed: a text file with an id per line"),
        (("-o", tmp_path / "absent", "--users", tmp_path / "ids.txt"), 3, "nothing is published in"),
    ):
        code, _, said = call("forget", *words)
        assert code == expected and sentence in said, said
