"""``sink.lists`` and ``rankmetrics recompute``: what follows from stored lists is what the log gives, to the bit."""

import json
import random
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import metrics as mx, read, report as rep, run
from rankmetrics_spark.config import Sink
from rankmetrics_spark.errors import ConfigError, DifferenceError, InputError, OutputError
from rankmetrics_spark.job import forget, recompute, verify
from rankmetrics_spark.sinks import ParquetFolder, altered, files_of, prune, store_of
from tests.helpers.commands import Call
from tests.helpers.kills import FullDisk, Killed, count_down
from tests.helpers.logs import DATE, config, exact, parquet, random_log
from tests.spark.test_verify import contents

TABLES = ("user_metrics", "experiment_metrics", "comparisons", "checks", "quarantine", "lists")
OLD = ["ap@5", "ndcg@10", "rr"]
LAX: dict[str, Any] = {"quality": {"max_invalid_fraction": 1}, "comparison": {"baseline": "a"}, "metrics": OLD}
#: Start of the date, in seconds since 1970.
MIDNIGHT = 1_795_132_800
BY_LIST, ARMS = {"list": ["experiment_id"]}, {"columns": {"test": None, "time": None}}
KNOBS = {"ties": "expected"}, {"ideal_pool": "shown"}, {"population": "judged"}
EXPECTED, SHOWN_IDEAL, OF_JUDGED = ({"preset": "standard", **knob} for knob in KNOBS)


def kind(columns: dict[str, str | None] | None = None, lists: str = "", **more: Any) -> dict[str, Any]:
    """Sections of a config with columns of the log; ``lists`` names what is stored beside ranks and grades."""
    stored = {"sink": {"lists": {lists: True}}} if lists else {}
    return LAX | {"source": {"columns": columns or {}} | more.pop("source", {})} | stored | more


NO_GRADES: dict[str, str | None] = {"relevance": None}
IN_TIME = {"events": {"within": "1h", "columns": {"time": "at"}}}
KINDS: dict[str, dict[str, Any]] = {
    "clicks by position": kind(),
    "by score": kind({"score": "position"}, rank_by="score"),
    "several lists and segments": kind(source={"list": ["item_id"], "segments": ["relevance"]}),
    "items without relevance": kind(metrics=[*OLD, "bpref"]),
    "all repeats": kind(quality={"max_invalid_fraction": 1, "repeated_items": "all"}, percentiles=[50]),
    "changed lists": kind(comparison={"baseline": "a", "only_changed": True}),
    "one file": kind(sink={"layout": "by_date"}),
    "grades looked up": kind(NO_GRADES, judgements={}),
    "looked up, by score": kind(NO_GRADES | {"score": "position"}, judgements={}, rank_by="score"),
    "judged, with clicks": kind(judgements={}),
    "judged users": kind(NO_GRADES, judgements={}, convention=OF_JUDGED),
    "judged users, scores": kind(NO_GRADES | {"score": "model"}, "scores", judgements={}, convention=OF_JUDGED),
    "every shown copy": kind(judgements={}, convention={"preset": "standard", "duplicates": "count"}),
    "scores": kind({"score": "model"}, "scores"),
    "expected over ties": kind({"score": "wide"}, "scores", rank_by="score", convention=EXPECTED),
    "intents": kind({"intents": "kinds"}, "intents"),
    "intents looked up": kind(NO_GRADES, "intents", judgements={}, convention=SHOWN_IDEAL),
    "events in time": kind(NO_GRADES | {"time": "at"}, **IN_TIME),
    "arms": kind({"experiment": None}, source=BY_LIST, assignments=ARMS, comparison={"baseline": "x"}),
    "tests in time, with events": kind(
        NO_GRADES | {"time": "at", "experiment": None},
        source=BY_LIST,
        assignments={"columns": {"test": "test", "time": "at"}},
        comparison={"baseline": "x", "cuped": {"before": "exposure"}},
        **IN_TIME,
    ),
}
OF_SCORES, OF_INTENTS = ["softmax_loss", "softmax_entropy(t=2)", "auc", "err@5"], ["alpha_ndcg@5", "err_ia@10"]
#: Kind -> what is added to it, where that is not two metrics of ranks and grades.
ADDED = {"scores": OF_SCORES, "expected over ties": ["auc", "ndcg@3", "rbp"]}
ADDED |= {"intents": [*OF_INTENTS, "distinct@3", "bpref"], "intents looked up": OF_INTENTS}


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def intents_of(rng: random.Random) -> list[str] | None:
    return rng.choice([None, [], ["x", "", "x"], *[rng.sample("wxyz", 2)] * 9])


def judged(path: Path, seed: int) -> str:
    """A file with grades of some of the items of ``random_log``, and of items and users that it lacks."""
    rng, others = random.Random(seed), random.Random(seed)
    pairs = [(f"user {user}", f"item {item}") for user in range(9) for item in range(1, 95)]
    rows = [(user, item, float(rng.choice([0, 0, 1, 2]))) for user, item in rng.sample(pairs, 500)]
    names = ("user_id", "item_id", "relevance")
    return written(path, [{**dict(zip(names, row, strict=True)), "intents": intents_of(others)} for row in rows])


def dirty_log(folder: Path, seed: int = 11, users: int = 8) -> Path:
    """The rows of ``random_log`` with times, intents, and scores: some equal, some the same double."""
    file, rng = parquet(folder, random_log(seed, users=users)) / "part-0.parquet", random.Random(seed)
    for row in (rows := pq.read_table(file).to_pylist()):
        row |= {"model": rng.choice([None, -0.0, 0.5, *[rng.random()] * 20]), "wide": 2**53 + rng.randrange(20)}
        row |= {"at": MIDNIGHT + rng.randrange(86_400), "kinds": intents_of(rng)}
    written(file, rows)
    return folder


def events_of(log: Path, path: Path) -> str:
    """A file of clicks on some of the rows of a log: within an hour of them, later, and before."""
    rng, rows = random.Random(5), pq.read_table(log).select(["user_id", "item_id", "at"]).to_pylist()
    delays = [-10, 0, 60, 3600, 4000]
    return written(path, [row | {"at": row["at"] + rng.choice(delays)} for row in rng.sample(rows, 60)])


def assigned_to(path: Path, users: int) -> str:
    """A file of who is in which arm of two tests: some in both arms, some once more, some in none."""
    rng = random.Random(5)
    rows = [{"test": rng.choice("tu"), "arm": rng.choice([*"xxxyyy", None])} for _ in range(3 * users)]
    of_user = [(f"user {rng.randrange(users + 2)}", MIDNIGHT + rng.randrange(43_200)) for _ in rows]
    return written(path, [row | {"user_id": user, "at": at} for row, (user, at) in zip(rows, of_user, strict=True)])


def published(spark: SparkSession, log: Path, out: Path, kind: dict[str, Any], seed: int = 1, **more: Any) -> None:
    """A run that stores its lists."""
    sections = kind | more
    files = {
        "judgements": lambda: judged(out.parent / f"judged {seed}.parquet", seed),
        "events": lambda: events_of(log, out.parent / "events.parquet"),
        "assignments": lambda: assigned_to(out.parent / "assigned.parquet", 8),
    }
    sections |= {name: {"path": file()} | kind[name] for name, file in files.items() if name in kind}
    sink = {"path": str(out), "lists": True} | sections.get("sink", {})
    run(spark, config(log, out, **(sections | {"sink": sink})))


def same(spark: SparkSession, out: Path, other: Path) -> None:
    """Every table of both outputs holds the same rows, to the bit."""
    for table in (*TABLES, *["user_days"] * (other / "user_days").exists()):
        rows, others = (read(spark, place / table) for place in (out, other))
        names = [name for name in others.columns if name != "run_id"]
        assert sorted(rows.columns) == sorted(others.columns), table
        assert exact(rows.select(*names).collect()) == exact(others.select(*names).collect()), table


@pytest.mark.parametrize("users", [8, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_from_stored_lists_is_that_of_the_log(
    spark: SparkSession, tmp_path: Path, kind: str, users: int
) -> None:
    log, out, other = dirty_log(tmp_path / "log", users=users), tmp_path / "out", tmp_path / "other"
    sections, added = KINDS[kind], ADDED.get(kind, ["err@5", "p@3"])
    published(spark, log, out, sections)
    published(spark, log, other, sections, metrics=[*sections["metrics"], *added])
    recompute(spark, Sink(path=str(out)), added, dates=(DATE, None))
    same(spark, out, other)
    # And the record is that of a run which the log gives again, and the lists without it.
    assert verify(spark, Sink(path=str(out))).other == []
    shutil.rmtree(log)
    before = contents(out)
    result = verify(spark, Sink(path=str(out)), source="lists")
    assigned = {each.name for each in out.glob("user_days")}
    assert {row["table"] for row in result.rows} == {*TABLES} - {"quarantine", "lists"} | assigned and not result.other
    also = ", events" * ("events" in sections)
    if again := [name for name in ("judgements", "assignments") if name in dict(sections)]:
        also += f"; {' and '.join(again)} were read as before"
    left = "lists, quarantine, which rows were left out, and that the log has the digests on record"
    assert result.uncovered == [f"not shown, since they need the inputs: {left}{also}"]
    assert contents(out) == before


@pytest.mark.parametrize(
    "kind", ["grades looked up", "looked up, by score", "judged, with clicks", "judged users", "clicks by position"]
)
def test_other_judgements_give_what_a_run_over_the_log_with_them_gives(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    rows = {(row.experiment_id, row.user_id, row.position): row for row in random_log(11, users=8)}
    log = parquet(tmp_path / "log", [row for row in rows.values() if row.relevance is not None])
    out, other = tmp_path / "out", tmp_path / "other"
    published(spark, log, out, KINDS[kind])
    before = exact(read(spark, out / "user_metrics").collect())
    published(spark, log, other, KINDS[kind] | {"judgements": {}}, seed=2)
    recompute(spark, Sink(path=str(out)), judgements=str(tmp_path / "judged 2.parquet"))
    same(spark, out, other)
    assert exact(read(spark, out / "user_metrics").collect()) != before
    assert verify(spark, Sink(path=str(out))).other == []


def test_a_page_has_what_was_recomputed(spark: SparkSession, tmp_path: Path) -> None:
    log, out, page = parquet(tmp_path / "log", random_log(3, users=8)), tmp_path / "out", tmp_path / "page.html"
    published(spark, log, out, LAX, report={"file": str(page)})
    rep.write_page(rep.figures_of_output(spark, Sink(path=str(out)), DATE), page)
    assert "ERR@5" not in page.read_text()
    recompute(spark, Sink(path=str(out)), ["err@5"])
    assert "ERR@5" in page.read_text()
    page.unlink()
    recompute(spark, Sink(path=str(out)), ["err@10"])
    assert not page.exists(), "nobody has written one since"


def test_judgements_that_read_rows_left_out_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", random_log(3, users=8))
    for kind, sentence in (("clicks by position", "reads items whose relevance is null"),
                           ("grades looked up", "may change the order of repeated ranks or tied items")):  # fmt: skip
        published(spark, log, tmp_path / kind, KINDS[kind])
        with pytest.raises(ConfigError, match=f"--judgements {sentence}, which the lists stored on {DATE} do not"):
            recompute(spark, Sink(path=str(tmp_path / kind)), judgements=judged(tmp_path / "new.parquet", 2))
    published(spark, log, tmp_path / "scores", KINDS["by score"])
    with pytest.raises(ConfigError, match="has ties 'expected', and so reads scores, which the lists"):
        recompute(spark, Sink(path=str(tmp_path / "scores")), convention="{preset: standard, ndcg_ties: expected}")


def test_new_percentiles_and_combined_segments_follow(spark: SparkSession, tmp_path: Path) -> None:
    log, out, other = parquet(tmp_path / "log", random_log(11, users=8)), tmp_path / "out", tmp_path / "other"
    source = {"segments": ["relevance", "position"]}
    published(spark, log, out, LAX, source=source)
    combined = [["relevance", "position"]]
    published(spark, log, other, LAX, source=source | {"segment_combinations": combined}, percentiles=[50, 90])
    settings = ["percentiles=[50, 90]", "source.segment_combinations=[[relevance, position]]"]
    recompute(spark, Sink(path=str(out)), settings=settings)
    same(spark, out, other)
    with pytest.raises(ConfigError, match=re.escape("--set is rank_by=score; allowed: percentiles or source.seg")):
        recompute(spark, Sink(path=str(out)), settings=["rank_by=score"])


def config_on_record(out: Path) -> Path:
    """A file with the config of the only run of an output."""
    (record,) = (out / "runs").glob("*.json")
    file = out.parent / f"{out.name}.yaml"
    file.write_text(json.dumps(json.loads(record.read_text())["config"]))
    return file


def log_without_repeats(folder: Path) -> Path:
    """A log in which a list has each item and each rank once."""
    rows = random_log(11, users=8)
    for at in (2, 3):
        rows = [*{(row[0], row[1], row[at]): row for row in rows}.values()]
    return parquet(folder, rows)


#: Where nothing looks for repeats of items without relevance, conventions that read all items are not told.
TOLD = {
    "clicks by position": {"standard", "sklearn", "torchmetrics", "tfma", "lightgbm"},
    "several lists and segments": {"standard", "sklearn", "torchmetrics", "tfma", "lightgbm"},
    "all repeats": {*mx.PRESETS},
    "grades looked up": {*mx.PRESETS},
}


@pytest.mark.parametrize("kind", TOLD)
def test_stored_lists_tell_what_other_conventions_give(
    spark: SparkSession, tmp_path: Path, call: Call, kind: str
) -> None:
    log, out = log_without_repeats(tmp_path / "log"), tmp_path / "out"
    published(spark, log, out, KINDS[kind])
    words = "conventions", "--config", config_on_record(out), "--format", "json"
    of_log = json.loads(call(*words)[1])
    log.rename(tmp_path / "gone")
    rows = json.loads(call(*words, "--from", "lists")[1])
    told = [row for row in rows if row["n_users"] is not None]
    assert told == [row for row in of_log if row["convention"] in TOLD[kind]]
    assert all("quality.repeated_items: all stores them" in row["differs"] for row in rows if row not in told)
    assert len(rows) == len(of_log) > len(TOLD[kind])


#: Scores of 32 bits.
ROUNDED = KINDS["looked up, by score"] | {"convention": {"preset": "standard", "score_precision": 32}}


@pytest.mark.parametrize("kind", [KINDS["grades looked up"], KINDS["looked up, by score"], ROUNDED])
def test_a_study_of_stored_lists_says_what_that_of_the_log_says(
    spark: SparkSession, tmp_path: Path, call: Call, kind: dict[str, Any]
) -> None:
    log, out = log_without_repeats(tmp_path / "log"), tmp_path / "out"
    published(spark, log, out, kind)
    options = "--config", config_on_record(out), "--format", "json"
    # The bounds of unjudged items are those of the standard order.
    studies = [("changed",), *[("unjudged",), ("unjudged", "--show", "means")] * (kind is not ROUNDED)]
    of_log = [call(*words, *options)[:2] for words in studies]
    log.rename(tmp_path / "gone")
    assert of_log == [call(*words, *options, "--from", "lists")[:2] for words in studies]
    assert all(code == 0 and json.loads(shown) for code, shown in of_log)


def test_a_study_that_stored_lists_do_not_serve_is_refused(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    log = parquet(tmp_path / "log", random_log(3, users=8))
    for kind in ("clicks by position", "grades looked up"):
        published(spark, log, tmp_path / kind, KINDS[kind])
    tied = ROUNDED | {"source": {"columns": {"relevance": None, "score": "relevance"}}}
    published(spark, log_without_repeats(tmp_path / "other"), tmp_path / "tied", tied)
    run(spark, config(log, tmp_path / "none", **LAX))
    lists, filtered = "lists stored on 2026-11-20", ["unjudged", "--set", "source.where=user_id = 'u'"]
    of_another, to_judge = "source.where is None on record, and user_id = 'u' now, so the ", ["unjudged", "--show"]
    for out, words, code, sentence in (
        ("clicks by position", ["changed"], 2, f"every shown item would be read, which the {lists} do"),
        ("grades looked up", ["changed"], 2, f"repeated items and ranks would be read, which the {lists}"),
        ("grades looked up", [*to_judge, "to_judge"], 2, "--show to_judge names items, of which stored lists"),
        ("grades looked up", filtered, 2, f"{of_another}{lists} are of another"),
        ("tied", ["changed"], 2, f"{lists} have scores that are equal in 32 bits, and the convention"),
        (
            "none",
            ["changed"],
            3,
            "no single run, with sink.lists: true, has stored the lists of all experiments; allow",
        ),
    ):
        result = call(*words, "--config", config_on_record(tmp_path / out), "--from", "lists")
        assert result[0] == code and sentence in " ".join(result[2].split()), result


SHOWN = kind({"score": "model", "intents": "kinds"})
REFUSED: dict[str, tuple[list[str], str | None, str, str]] = {
    "known": (["ap@5"], None, DATE, f"--metrics is ap@5, which {DATE} has already"),
    "every item": (["bpref"], None, DATE, "metric 'bpref' reads items without relevance, which the lists stored on"),
    "repeats": ([], "tfma", DATE, "has another duplicates, and so reads repeated or tied items"),
    "scores": (["softmax_loss"], None, DATE, "do not hold; allowed: rankmetrics evaluate --config C --from D1 --to D2, "
               "over the log, with sink.lists: {scores: true}"),
    "intents": (["distinct@5"], None, DATE, "metric 'distinct@5' reads intents, which the lists stored on"),
    "no date": (["err@5"], None, "2026-11-19", "nothing is published on 2026-11-19"),
    "nothing": ([], None, DATE, "nothing to recompute; allowed: --metrics, --convention, --judgements, --set, or "),
}  # fmt: skip
NOT_STORED = {
    "softmax_loss": (True, "true, which stores ranks and grades only, and metric 'softmax_loss(t=1)' reads scores; "
                     "allowed: {scores: true}"),
    "err_ia@5": ({"scores": True}, "{scores: true}, which stores ranks and grades and scores only, and metric "
                 "'err_ia@5' reads intents; allowed: {scores: true, intents: true}"),
}  # fmt: skip


def test_what_stored_lists_do_not_hold_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    log, out, other = dirty_log(tmp_path / "log", 3), tmp_path / "out", tmp_path / "other"
    published(spark, log, out, SHOWN)
    run(spark, config(log, other, **LAX))
    for names, convention, date, sentence in REFUSED.values():
        with pytest.raises((ConfigError, InputError), match=re.escape(sentence)):
            recompute(spark, Sink(path=str(out)), names, convention, (date, None))
    with pytest.raises(InputError, match=f"{DATE} cannot be recomputed: no single run, with sink.lists"):
        recompute(spark, Sink(path=str(other)), ["err@5"])
    for metric, (lists, sentence) in NOT_STORED.items():
        with pytest.raises(ConfigError, match=re.escape(f"sink.lists is {sentence}")):
            published(spark, log, other, SHOWN | {"metrics": [metric], "sink": {"lists": lists}})


def test_other_assignments_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    log, out = dirty_log(tmp_path / "log"), tmp_path / "out"
    published(spark, log, out, KINDS["arms"])
    assigned_to(tmp_path / "assigned.parquet", 7)
    with pytest.raises(DifferenceError, match=f"the assignments of {DATE} are not those that .* was in which test"):
        recompute(spark, Sink(path=str(out)), ["err@5"])
    (tmp_path / "ids.txt").write_text("user 3")
    forget(spark, str(out), str(tmp_path / "ids.txt"))
    with pytest.raises(ConfigError, match="assignments say who is in which test, and may hold users who were erased"):
        recompute(spark, Sink(path=str(out)), ["err@5"])


def test_values_that_are_expected_over_ties_follow_from_stored_scores(spark: SparkSession, tmp_path: Path) -> None:
    log, other, ties = dirty_log(tmp_path / "log"), tmp_path / "other", {"convention": EXPECTED}
    by_score = kind({"score": "wide"}, rank_by="score")
    published(spark, log, other, by_score, **ties, sink={"lists": {"scores": True}})
    for lists in (True, {"scores": True}):
        published(spark, log, out := tmp_path / type(lists).__name__, by_score, sink={"lists": lists})
        if lists is True:
            with pytest.raises(
                ConfigError, match="has ties 'expected', and so reads scores, which the lists stored on"
            ):
                recompute(spark, Sink(path=str(out)), convention="{preset: standard, ties: expected}")
    recompute(spark, Sink(path=str(out)), convention="{preset: standard, ties: expected}")
    same(spark, out, other)


def seen(spark: SparkSession, out: Path) -> list[Any]:
    """What a reader sees, in every table; Spark's also has columns of files that no pointer names, without values."""
    result = []
    for rows in (read(spark, out / table) for table in TABLES):
        known = rows.select(*sorted(rows.columns)).collect()
        empty = [name for name in rows.columns if all(row[name] is None for row in known)]
        result.append(exact(known, ["run_id", *empty]))
    return result


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("error", [Killed, FullDisk])
def test_a_fault_at_any_step_leaves_a_date_as_it_was_or_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], step: int
) -> None:
    log, added, after, which = parquet(tmp_path / "log", random_log(3, users=4)), ["err@5"], 1, set()
    published(spark, log, tmp_path / "old", LAX)
    published(spark, log, tmp_path / "new", LAX, metrics=[*OLD, *added])
    wholes = [seen(spark, tmp_path / "old"), seen(spark, tmp_path / "new")]
    while which != {0, 1, "ended"}:
        out, after = tmp_path / f"out {after}", after + step
        shutil.copytree(tmp_path / "old", out)
        with monkeypatch.context() as killing, suppress(Killed, OutputError):
            count_down(killing, after - step, error)
            recompute(spark, Sink(path=str(out)), added)
            which.add("ended")
        state = wholes.index(seen(spark, out))
        which.add(state)
        # The next command removes what is left, and nothing that counts.
        if state == 0:
            recompute(spark, Sink(path=str(out)), added)
        else:
            prune(files_of(str(out)), str(out), None)
        assert seen(spark, out) == wholes[1] and not [*out.glob("_staging/*.claim")]
        assert altered(store_of(spark, Sink(path=str(out)), ""), DATE)[0] == []
        outcomes = [json.loads(path.read_text())["outcome"] for path in (out / "runs").glob("[0-9]*.json")]
        assert {*outcomes} <= {"done", "killed", "failed"} and outcomes.count("done") == 2


@pytest.mark.parametrize(
    ("other", "moment"),
    [("recompute", "claim"), ("recompute", "publish"), ("run", "stage"), ("forget", "claim"), ("forget", "publish")],
)
def test_of_two_commands_on_a_date_at_the_same_time_one_ends_in_a_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, moment: str
) -> None:
    log, out, ids = parquet(tmp_path / "log", random_log(3, users=4)), tmp_path / "out", tmp_path / "ids"
    published(spark, log, out, LAX)
    ids.write_text("user 1")
    others: dict[str, Callable[[], Any]] = {
        "recompute": lambda: recompute(spark, Sink(path=str(out)), ["p@3"]),
        "run": lambda: published(spark, parquet(tmp_path / "another", random_log(4, users=4)), out, LAX),
        "forget": lambda: forget(spark, str(out), str(ids)),
    }
    function, states = getattr(ParquetFolder, moment), [seen(spark, out)]

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        """The other command comes once, before this step."""
        monkeypatch.setattr(ParquetFolder, moment, function)
        with pytest.raises(OutputError, match="another run") if moment == "publish" else nullcontext():
            others[other]()
        states.append(seen(spark, out))
        return function(*arguments, **named)

    monkeypatch.setattr(ParquetFolder, moment, meanwhile)
    with nullcontext() if moment == "publish" else pytest.raises(OutputError, match="again meanwhile"):
        recompute(spark, Sink(path=str(out)), ["err@5"])
    assert (states[0] == states[1]) == (moment == "publish")
    assert (seen(spark, out) == states[1]) == (moment != "publish")
    assert not (out / "_staging").exists()
    records = [json.loads(path.read_text()) for path in (out / "runs").glob("[0-9]*")]
    error = f"{DATE} was published again meanwhile; run this again"
    assert moment != "claim" or [each["error"]["message"] for each in records if "error" in each] == [error]
    if (other, moment) == ("forget", "claim"):
        assert "user 1" not in str(seen(spark, out)) and "user 1" in str(states[0])
