"""A config is read once; every mistake in it is one sentence that names the field."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from datetime import date, datetime, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark.config import (
    Comparison,
    Config,
    Judgements,
    Options,
    Quality,
    Sink,
    Source,
    as_dict,
    days,
    from_mapping,
    load,
)
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import Convention, parse, resolve

CONF = Path(__file__).parents[2] / "conf"
LOGS: dict[str, Any] = {"path": "logs"}
TRUTH: dict[str, Any] = {"path": "truth"}


def config(**changes: object) -> Config:
    return from_mapping({"source": LOGS, **changes})


def written(folder: Path, content: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def message(error: pytest.ExceptionInfo[ConfigError], folder: Path = CONF) -> str:
    return str(error.value).replace(f"{folder}/", "")


def test_only_the_source_needs_a_value() -> None:
    result = from_mapping({"source": {"path": "logs"}, "evaluation_date": "2026-11-21"})
    assert result.source == Source(format="parquet", path=("logs",), columns={}, list=(), segments=(), options={})
    assert result.judgements is None
    assert result.rank_by == "position"
    assert [str(metric) for metric in result.metrics] == ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]
    assert result.convention == resolve("standard")
    assert result.quality == Quality("quarantine", 0.01, "relevant")
    assert result.comparison == Comparison(baseline=None, confidence=0.95, correction="holm")
    assert result.gates == ()
    assert result.sink == Sink("parquet", "out", "overwrite_partitions")
    assert result.spark == {}


def test_the_date_is_today_in_utc_unless_given() -> None:
    before = datetime.now(timezone.utc).date().isoformat()
    assert before <= config().evaluation_date <= datetime.now(timezone.utc).date().isoformat()


@pytest.mark.parametrize("given", ["2026-11-21", date(2026, 11, 21), datetime(2026, 11, 21, 5)])
def test_a_date_may_be_a_text_or_a_date(given: object) -> None:
    assert config(evaluation_date=given).evaluation_date == "2026-11-21"


# 23:30 in UTC is the next day in Berlin and the same day in New York.
NIGHT = datetime(2026, 11, 20, 23, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("given", "zone", "day"),
    [
        (None, "UTC", "2026-11-20"),
        ("today", "Europe/Berlin", "2026-11-21"),
        ("yesterday", "UTC", "2026-11-19"),
        ("Yesterday", "Europe/Berlin", "2026-11-20"),
        ("yesterday", "America/New_York", "2026-11-19"),
        ("-2", "UTC", "2026-11-18"),
        (-2, "Europe/Berlin", "2026-11-19"),
        (0, "Pacific/Auckland", "2026-11-21"),
        ("-21", "UTC", "2026-10-30"),
        ("2026-11-01", "Europe/Berlin", "2026-11-01"),
    ],
)
def test_a_date_may_count_back_from_today_in_a_time_zone(
    given: object, zone: str, day: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return NIGHT.astimezone(tz)

    monkeypatch.setattr(days, "datetime", Clock)
    changes = {"time_zone": zone, "source": {"path": "logs/{date}", "where": "day = '{date}'"}}
    result = config(evaluation_date=given, **changes)
    assert (result.evaluation_date, result.source.where) == (day, f"day = '{day}'")
    # The same from the command line, whose values are texts.
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(changes))
    assert load(tmp_path / "c.yaml", date=None if given is None else str(given)) == result
    # A config that is read again, such as the one of a record, keeps its date.
    monkeypatch.undo()
    assert replace(result, rank_by="score").evaluation_date == day


def test_date_stands_for_the_evaluation_date_in_paths_and_filters() -> None:
    result = config(
        evaluation_date="2026-11-20",
        source={"path": ["a/{date}", "b/{date}/{x}"], "where": "d = '{date}'"},
        judgements={"path": "t/{date}", "where": "d <= '{date}'"},
        sink={"path": "out/{date}"},
    )
    assert (result.source.path, result.source.where) == (("a/2026-11-20", "b/2026-11-20/{x}"), "d = '2026-11-20'")
    assert result.judgements is not None
    assert (result.judgements.path, result.judgements.where) == (("t/2026-11-20",), "d <= '2026-11-20'")
    assert result.sink.path == "out/2026-11-20"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("ap@10", ["ap@10"]),
        ("ap@10, nDCG@5", ["ap@10", "ndcg@5"]),
        (["MAP@10", "ap@10", "p@5"], ["ap@10", "p@5"]),
        ("rbp(p=0.8),ap", ["rbp(p=0.8)", "ap"]),
        ([parse("ap")], ["ap"]),
        (parse("ap"), ["ap"]),
    ],
)
def test_metrics_are_a_list_or_a_text_and_each_is_kept_once(given: object, names: list[str]) -> None:
    assert [str(metric) for metric in config(metrics=given).metrics] == names


def test_a_trec_run_is_ranked_by_score_by_default() -> None:
    run = {"source": {"path": "run", "format": "trec_run"}, "judgements": {"path": "qrels", "format": "trec_qrels"}}
    assert from_mapping(run).rank_by == "score"
    assert from_mapping({**run, "rank_by": "position"}).rank_by == "position"


@pytest.mark.parametrize("given", [{"table": "c.s.t"}, {"table": "c.s.t", "format": "parquet"}])
def test_a_catalog_table_has_the_format_table(given: dict[str, object]) -> None:
    assert config(source=given).source.format == "table"


def test_options_become_the_texts_that_spark_takes() -> None:
    result = config(source={**LOGS, "options": {"header": True, "sep": ";"}}, spark={"spark.sql.shuffle.partitions": 8})
    assert result.source.options == {"header": "true", "sep": ";"}
    assert result.spark == {"spark.sql.shuffle.partitions": "8"}


def test_a_column_that_the_input_lacks_is_null() -> None:
    result = config(source={**LOGS, "columns": {"experiment": None, "user": "uid", "item": None}})
    assert result.source.columns == {"experiment": None, "user": "uid", "item": None}
    lacks = result.options.lacks
    assert [lacks(name) for name in ("experiment", "user", "item", "position")] == [True, False, True, False]


def test_a_canonical_column_name_stands_for_its_role() -> None:
    source = {**LOGS, "columns": {"user_id": "uid", "experiment_id": None, "score": "s"}}
    result = config(source=source, judgements={**TRUTH, "columns": {"item_id": "doc"}})
    assert result.source.columns == {"user": "uid", "experiment": None, "score": "s"}
    assert result.judgements is not None
    assert result.judgements.columns == {"item": "doc"}


# Some are columns of the output, some are canonical names, some are not identifiers.
NAMES = ("reason", "segment", "ap_at_5", "hits", "Experiment_ID", "position", "page.id", "a`b", "_list_0", "N_Shown")


@pytest.mark.parametrize("part", ["list", "segments"])
def test_every_column_name_is_allowed(part: str) -> None:
    assert getattr(config(source={**LOGS, part: NAMES}).source, part) == NAMES
    assert getattr(Options.read({part: list(NAMES)}), part) == NAMES


def test_a_source_says_which_columns_may_be_read() -> None:
    columns = {"experiment": None, "user": "uid", "relevance": "clicked"}
    source = config(source={**LOGS, "columns": columns, "list": "request", "segments": "country"}).source
    expected = ("uid", "item_id", "item", "position", "score", "clicked", "intents", "request", "country")
    assert source.required_columns() == expected


def test_a_column_with_two_uses_is_read_once() -> None:
    source = config(source={**LOGS, "columns": {"user": "uid", "experiment": "arm"}, "segments": ["arm", "uid"]}).source
    assert source.required_columns() == ("arm", "uid", "item_id", "item", "position", "score", "relevance", "intents")
    source = config(source={**LOGS, "columns": {"user": "Item"}, "list": "POSITION", "segments": "Score"}).source
    assert source.required_columns() == (
        "experiment_id",
        "experiment",
        "Item",
        "item_id",
        "POSITION",
        "Score",
        "relevance",
        "intents",
    )


def test_null_and_an_empty_section_mean_not_given() -> None:
    today = config().evaluation_date
    assert config(quality=None, metrics=None, judgements=None, evaluation_date=today) == config(evaluation_date=today)


def test_sections_can_be_made_by_hand_and_replaced() -> None:
    made = Config(source=Source(path=Path("logs"), columns={"user": "uid"}), evaluation_date="2026-11-21")  # type: ignore[arg-type]
    assert made.source.path == ("logs",)
    assert dataclasses.replace(made) == made
    assert dataclasses.replace(made, rank_by="score").rank_by == "score"
    with pytest.raises(ConfigError, match=r"^quality\.on_invalid: unknown value 'x'"):
        Quality(on_invalid="x")


def test_a_config_holds_the_options_of_its_evaluation() -> None:
    result = config(
        source={**LOGS, "columns": {"item": "doc"}, "list": "request", "segments": "country"},
        judgements={**TRUTH, "columns": {"relevance": "grade"}},
        metrics="ap@10",
        convention={"preset": "trec_eval", "ties": "expected"},
        rank_by="score",
        quality={"repeated_items": "all"},
        comparison={"confidence": 0.9},
    )
    expected = {
        "metrics": "ap@10",
        "convention": {"preset": "trec_eval", "ties": "expected"},
        "rank_by": "score",
        "columns": {"item_id": "doc"},
        "judgement_columns": {"relevance": "grade"},
        "list": ["request"],
        "segments": ["country"],
        "confidence": 0.9,
        "repeated_items": "all",
        "judged": True,
    }
    assert result.options == Options.read(expected)
    assert (result.options.layout, result.options.text_numbers) == ("auto", False)
    assert dataclasses.replace(result, metrics="rr").options == Options.read({**expected, "metrics": "rr"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "judgements", "expected"),
    [
        ("parquet", None, False),
        ("csv", None, True),
        ("json", None, True),
        ("parquet", "csv", True),
        ("parquet", "trec_qrels", True),
        ("trec_run", "parquet", True),
        ("orc", "parquet", False),
    ],
)
def test_numbers_may_be_text_where_a_format_has_no_types(source: str, judgements: str | None, expected: bool) -> None:
    truth = {"judgements": {**TRUTH, "format": judgements}} if judgements else {}
    assert config(source={**LOGS, "format": source}, **truth).options.text_numbers is expected


def test_options_have_a_default_for_every_field() -> None:
    assert Options() == config().options
    assert Options() == Options.read({"metrics": None, "list": None, "columns": None, "judged": None})
    assert [str(metric) for metric in Options().metrics] == ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]


INPUT = "format, path, table, where, columns, options"
SOURCE = f"{INPUT}, list, segments, segment_combinations, first_rank, experiment_from, team, ranks"
FORMATS = "parquet, csv, json, orc, table, delta, iceberg"
ROLES = "experiment, user, item, position, score, relevance, intents"
TEXT = "a text (in quotes where YAML would read something else)"
PLACE = "source.path and source.table: {} given; allowed: exactly one of the two"

DAY = "a date as YYYY-MM-DD, today, yesterday, or a number of days back such as -2"
ZONE = "the name of a time zone, such as UTC or Europe/Berlin"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"source": None}, PLACE.format("neither")),
    ({"source": {}}, PLACE.format("neither")),
    ({"source": {"path": "a", "table": "b"}}, PLACE.format("both")),
    ({"source": "logs"}, f"source is 'logs'; allowed: a mapping with keys out of {SOURCE}"),
    ({"judgements": []}, f"judgements is []; allowed: a mapping with keys out of {INPUT}"),
    ({"source": {**LOGS, "team": " "}}, f"source.team is ' '; allowed: {TEXT}"),
    (
        {"source": {**LOGS, "ranks": {"a": "rank_a"}}},
        "source.ranks is {'a': 'rank_a'}; allowed: a mapping of two rankers to their columns of ranks; more than two "
        "are compared by a column of the team",
    ),
    (
        {"quality": 1},
        "quality is 1; allowed: a mapping with keys out of on_invalid, max_invalid_fraction, repeated_items, gates",
    ),
    (
        {"sorce": LOGS},
        "sorce: unknown key 'sorce'; did you mean 'source'? known: source, judgements, rank_by, metrics, "
        "convention, percentiles, quality, comparison, gates, sink, lineage, report, evaluation_date, time_zone, "
        "engine, spark",
    ),
    (
        {"source": {**LOGS, "colums": {}}},
        f"source.colums: unknown key 'colums'; did you mean 'columns'? known: {SOURCE}",
    ),
    (
        {"source": {**LOGS, "format": "parkett"}},
        f"source.format: unknown value 'parkett'; did you mean 'parquet'? known: {FORMATS}, trec_run",
    ),
    (
        {"judgements": {**TRUTH, "format": "trec_run"}},
        f"judgements.format: unknown value 'trec_run'; did you mean 'trec_qrels'? known: {FORMATS}, trec_qrels",
    ),
    (
        {"source": {"table": "t", "format": "trec_run"}},
        "source.table is 't'; allowed: source.path instead, since source.format is 'trec_run'",
    ),
    (
        {"source": {**LOGS, "format": "table"}},
        "source.path is 'logs'; allowed: source.table instead, since source.format is 'table'",
    ),
    ({"source": {"path": []}}, "source.path is []; allowed: a text or a list of texts"),
    ({"source": {"path": ["a", None]}}, f"source.path[1] is null; allowed: {TEXT}"),
    ({"source": {**LOGS, "where": 0.5}}, f"source.where is 0.5; allowed: {TEXT}"),
    (
        {"source": {**LOGS, "columns": ["user"]}},
        f"source.columns is ['user']; allowed: a mapping with keys out of {ROLES}",
    ),
    (
        {"source": {**LOGS, "columns": {"usr": "u"}}},
        f"source.columns.usr: unknown key 'usr'; did you mean 'user'? known: {ROLES}",
    ),
    ({"source": {**LOGS, "columns": {"user": None}}}, f"source.columns.user is null; allowed: {TEXT}"),
    ({"source": {**LOGS, "columns": {"item": True}}}, f"source.columns.item is True; allowed: {TEXT}"),
    (
        {"judgements": {**TRUTH, "columns": {"grade": "g"}}},
        "judgements.columns.grade: unknown key 'grade'; known: user, item, relevance, intents",
    ),
    ({"judgements": {**TRUTH, "columns": {"item": None}}}, f"judgements.columns.item is null; allowed: {TEXT}"),
    ({"source": {**LOGS, "list": {"a": 1}}}, "source.list is {'a': 1}; allowed: a list, or a text with commas"),
    ({"source": {**LOGS, "list": ["a", ""]}}, f"source.list[1] is ''; allowed: {TEXT}"),
    (
        {"source": {**LOGS, "segments": "country", "segment_combinations": [["country", "devise"]]}},
        "source.segment_combinations: unknown segment 'devise'; known: country",
    ),
    (
        {"source": {**LOGS, "segments": "a,b", "segment_combinations": ["a"]}},
        "source.segment_combinations is ['a']; allowed: combinations of at least two segments",
    ),
    (
        {"source": {**LOGS, "segments": "a,b", "list": "r", "segment_combinations": ["a,b"]}},
        "source.segment_combinations and source.list: both given; allowed: one of the two, since the lists of a user "
        "may be in different segments",
    ),
    (
        {"source": {**LOGS, "segments": "country,Country"}},
        "source.segments names the column 'Country' twice; allowed: each column once",
    ),
    (
        {"source": {**LOGS, "list": ["day"], "segments": ["day"]}},
        "source.segments: 'day' is in source.list too; "
        "allowed: a column in one of them, since a segment holds whole users",
    ),
    (
        {"source": {**LOGS, "list": ["Day", "hour"], "segments": ["day"]}},
        "source.segments: 'day' is in source.list too; "
        "allowed: a column in one of them, since a segment holds whole users",
    ),
    (
        {"source": {**LOGS, "columns": {"item": "a", "item_id": "b"}}},
        "source.columns: 'item' and 'item_id' mean the same; allowed: one of the two",
    ),
    (
        {"source": {**LOGS, "columns": {"user_id": None}}},
        f"source.columns.user_id is null; allowed: {TEXT}",
    ),
    (
        {"source": {**LOGS, "options": "header"}},
        "source.options is 'header'; allowed: a mapping of names to texts, numbers, true or false",
    ),
    ({"spark": {"spark.x": [1]}}, "spark.spark.x is [1]; allowed: a text, a number, true or false"),
    ({"convention": 5}, "convention is 5; allowed: a preset, or a mapping of knobs"),
    ({"rank_by": "scores"}, "rank_by: unknown value 'scores'; did you mean 'score'? known: position, score"),
    ({"metrics": []}, "metrics is []; allowed: at least one metric, such as ap@10"),
    ({"metrics": [5]}, "metrics is 5; allowed: metric names such as ap@10"),
    ({"metrics": 5}, "metrics is 5; allowed: a list, or a text with commas"),
    (
        {"quality": {"on_invalid": "quarantin"}},
        "quality.on_invalid: unknown value 'quarantin'; did you mean 'quarantine'? known: quarantine, fail",
    ),
    ({"quality": {"max_invalid_fraction": 1.5}}, "quality.max_invalid_fraction is 1.5; allowed: a number from 0 to 1"),
    (
        {"quality": {"max_invalid_fraction": "1%"}},
        "quality.max_invalid_fraction is '1%'; allowed: a number from 0 to 1",
    ),
    (
        {"quality": {"max_invalid_fraction": True}},
        "quality.max_invalid_fraction is True; allowed: a number from 0 to 1",
    ),
    (
        {"quality": {"max_invalid_fraction": float("nan")}},
        "quality.max_invalid_fraction is nan; allowed: a number from 0 to 1",
    ),
    (
        {"quality": {"repeated_items": "any"}},
        "quality.repeated_items: unknown value 'any'; known: relevant, all, ignore",
    ),
    ({"comparison": {"confidence": 1}}, "comparison.confidence is 1; allowed: a number above 0 and below 1"),
    ({"comparison": {"confidence": 95}}, "comparison.confidence is 95; allowed: a number above 0 and below 1"),
    ({"comparison": {"baseline": False}}, f"comparison.baseline is False; allowed: {TEXT}"),
    ({"comparison": {"baseline": 1.1}}, f"comparison.baseline is 1.1; allowed: {TEXT}"),
    (
        {"comparison": {"correction": "bonferoni"}},
        "comparison.correction: unknown value 'bonferoni'; did you mean "
        "'bonferroni'? known: holm, hochberg, hommel, bonferroni, fdr_bh, fdr_by, tukey, none",
    ),
    ({"sink": {"format": "csv"}}, "sink.format: unknown value 'csv'; known: parquet, delta, iceberg"),
    (
        {"sink": {"mode": "overwrite"}},
        "sink.mode: unknown value 'overwrite'; did you mean 'overwrite_partitions'? known: overwrite_partitions",
    ),
    ({"sink": {"path": " "}}, f"sink.path is ' '; allowed: {TEXT}"),
    (
        {"sink": {"path": "out", "table": "main.ranking", "format": "delta"}},
        "sink.path and sink.table: both given; allowed: at most one of the two",
    ),
    (
        {"sink": {"table": "main.ranking"}},
        "sink.format is 'parquet'; allowed: delta or iceberg, since there is a sink.table",
    ),
    (
        {"sink": {"format": "iceberg", "path": "out"}},
        "sink.table is null; allowed: a schema of a catalog, such as lake.ranking, since sink.format is 'iceberg'",
    ),
    ({"time_zone": "Mars/Olympus"}, f"time_zone is 'Mars/Olympus'; allowed: {ZONE}"),
    ({"time_zone": "../etc"}, f"time_zone is '../etc'; allowed: {ZONE}"),
    ({"evaluation_date": "tomorrow"}, f"evaluation_date is 'tomorrow'; allowed: {DAY}"),
    ({"evaluation_date": -99999}, f"evaluation_date is -99999; allowed: {DAY}"),
    ({"evaluation_date": True}, f"evaluation_date is True; allowed: {DAY}"),
    ({"evaluation_date": "21.11.2026"}, f"evaluation_date is '21.11.2026'; allowed: {DAY}"),
    ({"evaluation_date": "20261121"}, f"evaluation_date is '20261121'; allowed: {DAY}"),
    ({"evaluation_date": "2026-02-30"}, f"evaluation_date is '2026-02-30'; allowed: {DAY}"),
    (
        {"source": {**LOGS, "columns": {"position": None}}},
        "rank_by is 'position', but source.columns.position is null; allowed: a rank_by whose column is there",
    ),
    (
        {"source": {**LOGS, "columns": {"score": None}}, "rank_by": "score"},
        "rank_by is 'score', but source.columns.score is null; allowed: a rank_by whose column is there",
    ),
    (
        {"source": {**LOGS, "columns": {"relevance": None}}},
        "source.columns.relevance is null, and judgements is missing; allowed: one of the two",
    ),
    (
        {"source": {**LOGS, "format": "trec_run"}},
        "judgements is missing, and source.format 'trec_run' has no relevance; "
        "allowed: a judgements section, such as format: trec_qrels with a path",
    ),
    (
        {"source": {**LOGS, "columns": {"item": None}}, "rank_by": "score"},
        "source.columns.item is null, but rank_by is 'score'; allowed: null with rank_by 'position'",
    ),
    (
        {"source": {**LOGS, "columns": {"item": None, "relevance": None}}, "judgements": TRUTH},
        "source.columns.item is null, but relevance is looked up in the judgements by item; "
        "allowed: null with a source.columns.relevance",
    ),
    (
        {"metrics": "ap,softmax_loss", "source": {**LOGS, "columns": {"score": None}}},
        "metrics: 'softmax_loss(t=1)' needs scores, but source.columns.score is null; allowed: a column with scores",
    ),
    (
        {"convention": {"ties": "expected"}},
        "convention.ties is 'expected', but rank_by is 'position' and ranks have no "
        "ties; allowed: rank_by 'score', or another order",
    ),
    (
        {"convention": {"preset": "trec_eval", "population": "both"}},
        "convention.population is 'both', but judgements is missing; allowed without judgements: shown",
    ),
    (
        {"convention": {"unjudged": "removed"}},
        "convention.unjudged is 'removed', but judgements is missing; allowed without judgements: not_relevant",
    ),
    (
        {"convention": {"ideal_pool": "judged"}},
        "convention.ideal_pool is 'judged', but judgements is missing; allowed without judgements: shown, constant_k",
    ),
    (
        {"source": {**LOGS, "options": {"Encoding": "latin-1"}}},
        "source.options.Encoding is 'latin-1'; allowed: csv or json with it, since source.format 'parquet' is always "
        "read as UTF-8",
    ),
    (
        {"judgements": {"format": "trec_qrels", "path": "q", "options": {"charset": "latin-1"}}},
        "judgements.options.charset is 'latin-1'; allowed: csv or json with it, since judgements.format 'trec_qrels' "
        "is always read as UTF-8",
    ),
]


@pytest.mark.outcome("a config with {changes}", "exit 2: {expected}")
@pytest.mark.parametrize(("changes", "expected"), WRONG, ids=[expected[:60] for _, expected in WRONG])
def test_a_wrong_config_is_refused_in_one_sentence(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert str(error.value) == expected
    assert error.value.exit_code == 2


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"metrics": []}, "metrics is []; allowed: at least one metric, such as ap@10"),
    ({"columns": ["user"]}, f"columns is ['user']; allowed: a mapping with keys out of {ROLES}"),
    ({"list": b"sid"}, "list is b'sid'; allowed: a list, or a text with commas"),
    ({"metrics": {"ap": 10}}, "metrics is {'ap': 10}; allowed: a list, or a text with commas"),
    ({"rank_by": "scores"}, "rank_by: unknown value 'scores'; did you mean 'score'? known: position, score"),
    ({"confidence": 95}, "confidence is 95; allowed: a number above 0 and below 1"),
    ({"repeated_items": "some"}, "repeated_items: unknown value 'some'; known: relevant, all, ignore"),
    (
        {"layout": "mask"},
        "layout: unknown value 'mask'; did you mean 'masks'? known: auto, masks, relevant, rows",
    ),
    ({"text_numbers": "yes"}, "text_numbers is 'yes'; allowed: true or false"),
    ({"judged": 1}, "judged is 1; allowed: true or false"),
    ({"columns": {"grade": "g"}}, f"columns.grade: unknown key 'grade'; known: {ROLES}"),
    ({"judgement_columns": {"item_id": None}}, f"judgement_columns.item_id is null; allowed: {TEXT}"),
    (
        {"judgement_columns": {"score": "s"}},
        "judgement_columns.score: unknown key 'score'; known: user, item, relevance, intents",
    ),
    ({"list": ["a", "A"]}, "list names the column 'A' twice; allowed: each column once"),
    ({"segments": ["a", None]}, f"segments[1] is null; allowed: {TEXT}"),
    (
        {"list": "day", "segments": "day"},
        "segments: 'day' is in list too; allowed: a column in one of them, since a segment holds whole users",
    ),
    (
        {"columns": {"position": None}},
        "rank_by is 'position', but columns.position is null; allowed: a rank_by whose column is there",
    ),
    (
        {"columns": {"relevance": None}},
        "columns.relevance is null, and judgements is missing; allowed: one of the two",
    ),
    (
        {"columns": {"item_id": None}, "rank_by": "score"},
        "columns.item is null, but rank_by is 'score'; allowed: null with rank_by 'position'",
    ),
    (
        {"columns": {"item": None, "relevance": None}, "judged": True},
        "columns.item is null, but relevance is looked up in the judgements by item; "
        "allowed: null with a columns.relevance",
    ),
    (
        {"columns": {"score": None}, "metrics": "softmax_loss"},
        "metrics: 'softmax_loss(t=1)' needs scores, but columns.score is null; allowed: a column with scores",
    ),
    (
        {"convention": {"preset": "sklearn", "ap_ties": "threshold"}},
        "convention.ap_ties is 'threshold', but rank_by is 'position' and ranks have no ties; "
        "allowed: rank_by 'score', or another order",
    ),
    (
        {"convention": Convention(ties="best")},
        "convention.ties is 'best', but rank_by is 'position' and ranks have no ties; "
        "allowed: rank_by 'score', or another order",
    ),
    (
        {"convention": Convention(population="judged", preset="mine")},
        "convention.population is 'judged', but judgements is missing; allowed without judgements: shown",
    ),
]


@pytest.mark.outcome("`evaluate` or `Options` with {given}", "`ConfigError`: {expected}")
@pytest.mark.parametrize(("given", "expected"), WRONG_OPTIONS, ids=[expected[:60] for _, expected in WRONG_OPTIONS])
def test_wrong_options_are_refused_in_one_sentence(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Options.read(given)
    assert str(error.value) == expected


@pytest.mark.outcome("`err@10` with `ties: expected`", "exit 2: the metric has no expected value over tied scores")
def test_a_metric_that_cannot_average_over_ties_is_refused_when_a_config_is_loaded() -> None:
    with pytest.raises(ConfigError, match=r"^metric 'err@10' has no expected value over tied scores"):
        config(metrics="err@10", convention={"ties": "expected"}, rank_by="score")


@pytest.mark.outcome("a config with {changes}", "exit 2: the unknown name, the nearest known one, and all known ones")
@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"metrics": "ndgc@10"}, r"metrics: unknown metric 'ndgc@10'; did you mean 'ndcg@10'\? known: .*\bap\b.*"),
        ({"convention": "trec"}, r"convention: unknown convention 'trec'; did you mean 'trec_eval'\? known: .*"),
        (
            {"convention": {"tie": "best"}},
            r"convention: unknown convention knob 'tie'; did you mean 'ties'\? known: .*",
        ),
    ],
)
def test_a_wrong_metric_or_convention_is_named_after_its_key(changes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert re.fullmatch(pattern, str(error.value))


@pytest.mark.parametrize("preset", ["sklearn", "trec_eval", "recommenders"])
def test_a_preset_made_for_scores_and_judgements_works_without_them(preset: str) -> None:
    assert config(convention=preset).convention.preset == preset


@pytest.mark.parametrize(
    "changes",
    [
        {"convention": {"ties": "expected"}, "rank_by": "score"},
        {"convention": {"population": "both", "ideal_pool": "judged"}, "judgements": TRUTH},
        {"metrics": "softmax_loss", "rank_by": "score"},
        {"metrics": "softmax_loss", "source": {**LOGS, "columns": {"score": "s"}}},
        {"metrics": "softmax_loss"},
        {"convention": resolve("sklearn")},
        {"convention": {"ties": "item_asc", "ideal_pool": "shown"}},
        {"source": {**LOGS, "columns": {"item": None}}},
        {"source": {**LOGS, "columns": {"item": None, "relevance": "clicked"}}, "judgements": TRUTH},
        {"source": {**LOGS, "columns": {"relevance": None}}, "judgements": TRUTH},
        {"source": {**LOGS, "columns": {"position": None}}, "rank_by": "score"},
    ],
)
def test_a_combination_that_works_is_allowed(changes: dict[str, Any]) -> None:
    config(**changes)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_loads(path: Path) -> None:
    assert isinstance(load(path), Config)


def test_the_example_states_the_defaults() -> None:
    example = load(CONF / "example.yaml", evaluation_date="2026-11-21")
    bare = from_mapping({"source": {"path": "logs/impressions"}, "evaluation_date": "2026-11-21"})
    assert dataclasses.replace(example, source=bare.source) == bare


def test_the_other_examples_have_the_settings_that_they_show() -> None:
    trial, trec = load(CONF / "ab_test.yaml", evaluation_date="2026-11-20"), load(CONF / "trec.yaml")
    assert trial.source.path == ("logs/impressions/event_date=2026-11-20",)
    assert trial.judgements == Judgements(
        format="parquet", path=("logs/truth",), columns={"user": "user_id", "item": "item_id", "relevance": "grade"}
    )
    assert (trec.source.format, trec.rank_by, trec.convention.preset) == ("trec_run", "score", "trec_eval")


@pytest.mark.parametrize(
    ("assignment", "part", "expected"),
    [
        ("metrics=ap@10,ndcg@10", "metrics", ["ap@10", "ndcg@10"]),
        ("metrics=[ap@10, 'rbp(p=0.8)']", "metrics", ["ap@10", "rbp(p=0.8)"]),
        ("source.path=logs/new", "source.path", ["logs/new"]),
        ("source.path=[a, b]", "source.path", ["a", "b"]),
        ("source.path=.", "source.path", ["."]),
        ("source.path=*.csv", "source.path", ["*.csv"]),
        ("source.columns.user=uid", "source.columns", {"user": "uid", "experiment": "variant"}),
        ("source.columns.experiment=null", "source.columns", {"experiment": None}),
        ("source.segments=country,device", "source.segments", ["country", "device"]),
        ("source.where=x = 'a: b # c'", "source.where", "x = 'a: b # c'"),
        ("source.where=", "source.where", None),
        ("source.options.header=false", "source.options", {"header": "false"}),
        ("comparison.baseline=007", "comparison.baseline", "007"),
        ("comparison.baseline='1.10'", "comparison.baseline", "1.10"),
        ("comparison.baseline=no", "comparison.baseline", "no"),
        ("quality.max_invalid_fraction=5e-2", "quality.max_invalid_fraction", 0.05),
        ("spark.sql.shuffle.partitions=8", "spark", {"spark.sql.shuffle.partitions": "8"}),
        ("spark.spark.sql.shuffle.partitions=8", "spark", {"spark.sql.shuffle.partitions": "8"}),
        ("evaluation_date=2026-11-21", "evaluation_date", "2026-11-21"),
    ],
)
def test_a_key_can_be_set_from_outside(tmp_path: Path, assignment: str, part: str, expected: object) -> None:
    path = written(tmp_path, "source: {path: logs, columns: {experiment: variant}, where: a}\nsink: {path: /out}")
    result: Any = as_dict(load(path, [assignment]))
    for step in part.split("."):
        result = result[step]
    assert result == expected


def test_a_knob_can_be_set_beside_a_preset_written_as_one_word(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: logs}\nrank_by: score\nconvention: trec_eval")
    assert load(path, ["convention.ties=expected"]).convention == resolve({"preset": "trec_eval", "ties": "expected"})


def test_later_overrides_win_and_arguments_win_over_them(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: logs}\nsink: {path: a}")
    result = load(path, ["sink.path=b", "sink.path=c", "sink.format=delta"], sink={"path": "d"}, comparison=None)
    assert result.sink == Sink(format="delta", path="d")


def test_a_sink_with_a_table_has_no_folder() -> None:
    result = from_mapping({"source": {"path": "logs"}, "sink": {"format": "Iceberg", "table": "lake.ranking"}}).sink
    assert (result.format, result.path, result.table) == ("iceberg", None, "lake.ranking")


def test_a_date_from_outside_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: logs}\nevaluation_date: 2026-11-20")
    assert load(path).evaluation_date == "2026-11-20"
    assert load(path, date="2026-11-21").evaluation_date == "2026-11-21"


def test_an_id_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: 2026-11-20, where: on}\ncomparison: {baseline: 007}")
    result = load(path)
    assert (result.source.path, result.source.where, result.comparison.baseline) == (("2026-11-20",), "on", "007")


@pytest.mark.outcome("a config file that holds {content}", "exit 2: {expected}")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the config 'config.yaml' holds nothing; allowed: a mapping that starts with source"),
        ("- a", "the config 'config.yaml' holds a list; allowed: a mapping that starts with source"),
        (
            "source:\n  path: a\n path: b",
            "the config 'config.yaml' is not valid YAML: line 3, column 2: "
            "expected <block end>, but found '<block mapping start>'",
        ),
        (
            "source: {path: a}\nmetrics: ap\nmetrics: p@5",
            "the config 'config.yaml' is not valid YAML: line 3, column 1: the key 'metrics' is there twice",
        ),
        (
            "source: {path: a, path: b}",
            "the config 'config.yaml' is not valid YAML: line 1, column 19: the key 'path' is there twice",
        ),
        (
            "source: !!python/object:os.system {}",
            "the config 'config.yaml' is not valid YAML: line 1, column 9: could not determine a constructor "
            "for the tag "
            "'tag:yaml.org,2002:python/object:os.system'",
        ),
        (
            "a: \x00",
            "the config 'config.yaml' is not valid YAML: unacceptable character #x0000: special characters are "
            "not allowed",
        ),
        (
            "7: x",
            "7: unknown key '7'; "
            "known: source, judgements, rank_by, metrics, convention, percentiles, quality, comparison, gates, sink, "
            "lineage, report, evaluation_date, time_zone, engine, spark",
        ),
    ],
)
def test_the_error_of_a_malformed_file_names_the_line(tmp_path: Path, content: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, content))
    assert message(error, tmp_path) == expected


@pytest.mark.outcome("a config file that is missing or not UTF-8", "exit 2: what is wrong with the file")
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    for name, expected in [
        ("none.yaml", "the config 'none.yaml' cannot be read: No such file or directory"),
        ("latin.yaml", "the config 'latin.yaml' is not UTF-8 text (byte 3)"),
    ]:
        with pytest.raises(ConfigError) as error:
            load(tmp_path / name)
        assert message(error, tmp_path) == expected


@pytest.mark.outcome("`--set` with {assignment}", "exit 2: {expected}")
@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("metrics", "the override 'metrics' is not an assignment; allowed: such as source.path=logs"),
        ("=1", "the override '=1' is not an assignment; allowed: such as source.path=logs"),
        ("source..path=1", "the override 'source..path=1' is not an assignment; allowed: such as source.path=logs"),
        ("rank_by.x=1", "the override 'rank_by.x=1' does not fit: rank_by is 'score', not a mapping"),
        ("source.pth=a", f"source.pth: unknown key 'pth'; did you mean 'path'? known: {SOURCE}"),
    ],
)
def test_an_override_that_does_not_fit_is_an_error(tmp_path: Path, assignment: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, "source: {path: logs}\nrank_by: score"), [assignment])
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            {"table": "a.b", "experiment_from": "file"},
            "source.experiment_from is 'file'; allowed: tag, since",
        ),
        (
            {"path": {"a": "x"}, "experiment_from": "folder"},
            "source.experiment_from is 'folder'; allowed: tag, since source.path names the experiments",
        ),
        (
            {"path": {"a": "x"}, "columns": {"experiment": "arm"}},
            "source.columns.experiment and source.path: both name the experiments; allowed: one of the two",
        ),
        (
            {"path": "x", "experiment_from": "file", "columns": {"experiment": "arm"}},
            "source.columns.experiment and source.experiment_from: both name",
        ),
        ({"path": {}}, "source.path is {}; allowed: a text, a list of texts, or a mapping of each experiment"),
        ({"path": {"a": []}}, "source.path.a is []; allowed: a text or a list of texts"),
        ({"path": {"a": {"b": "c"}}}, "source.path.a is {'b': 'c'}; allowed: a text"),
        ({"path": ["a.csv", "b.parquet"]}, "source.path is ['a.csv', 'b.parquet']; allowed: files of one format, or a"),
        ({"path": {"a": "x.csv"}, "format": "table"}, "source.path is 'a'; allowed: source.table instead"),
    ],
)
def test_one_thing_names_the_experiments(source: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(source=source)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("log.csv", "csv"),
        ("day/*.jsonl.gz", "json"),
        ("log.NDJSON", "json"),
        (["a.orc", "b.orc"], "orc"),
        ("log.parquet.zst", "parquet"),
        ("logs/csv", "parquet"),
        (["logs", "a.csv"], "parquet"),
        ({"a": "a.csv", "b": ["b.csv", "c.csv.gz"]}, "csv"),
        ({"a": "a.csv", "b": "b.parquet"}, None),
    ],
)
def test_the_names_of_files_say_their_format(path: Any, expected: str | None) -> None:
    assert config(source={"path": path}).source.format == expected


def test_each_experiment_has_the_files_that_a_mapping_names() -> None:
    result = config(
        source={"path": {"control": "{date}/a.parquet", 7: ["b/*.csv", "c.csv"]}, "where": "day = '{date}'"},
        evaluation_date="2026-11-21",
    )
    assert [(part.format, part.path, part.where, part.columns) for part in result.inputs] == [
        ("parquet", ("2026-11-21/a.parquet",), "day = '2026-11-21'", {"experiment": None}),
        ("csv", ("b/*.csv", "c.csv"), "day = '2026-11-21'", {"experiment": None}),
    ]
    assert result.source.paths == ("2026-11-21/a.parquet", "b/*.csv", "c.csv")
    # One of them is text, so numbers are read from text.
    assert result.options.text_numbers
    assert "experiment_id" not in result.source.required_columns() and "user_id" in result.source.required_columns()
    # The record is a config that reads the same.
    assert config(source=json.loads(json.dumps(as_dict(result)["source"]))).source == result.source


def test_ranks_start_at_1_or_at_0() -> None:
    with pytest.raises(ConfigError, match="first_rank is 2; allowed: a whole number from 0 to 1"):
        config(source={**LOGS, "first_rank": 2})
    assert config(source={**LOGS, "first_rank": 0}).options.first_rank == 0


def test_the_record_is_plain_and_hides_secrets() -> None:
    result = config(
        evaluation_date="2026-11-21",
        metrics="ap@10",
        source={**LOGS, "options": {"password": "hush", "header": True}},
        spark={"spark.hadoop.fs.s3a.secret.key": "hush", "spark.hadoop.fs.s3a.access.key": "hush", "spark.x": 1},
    )
    record = json.loads(json.dumps(as_dict(result)))
    assert record == {
        "source": {"format": "parquet", "path": ["logs"], "table": None, "where": None, "columns": {},
                   "options": {"password": "(hidden)", "header": "true"}, "list": [], "segments": [],
                   "segment_combinations": [], "first_rank": 1, "experiment_from": "tag", "team": None, "ranks": {}},
        "judgements": None,
        "rank_by": "position",
        "metrics": ["ap@10"],
        "convention": resolve("standard").text(),
        "percentiles": [],
        "quality": {"on_invalid": "quarantine", "max_invalid_fraction": 0.01, "repeated_items": "relevant",
                    "gates": {}},
        "comparison": {"baseline": None, "pairs": "baseline", "candidates": [], "confidence": 0.95,
                       "correction": "holm", "simultaneous": False, "primary": [], "guardrails": [],
                       "families": "split", "primary_share": None, "margin": None, "design": "auto",
                       "shared_users": "keep", "mean_over": "users", "cluster": None, "only_changed": False,
                       "wilcoxon": False, "randomization": None, "bootstrap": None, "aa_check": None, "shares": None,
                       "power": 0.8, "min_users": 0, "cuped": None, "looks": "one", "tuning_users": 10_000,
                       "period": None},
        "gates": [],
        "sink": {"format": "parquet", "path": "out", "mode": "overwrite_partitions", "table": None},
        "lineage": {"url": None, "namespace": None, "job": "rankmetrics"},
        "report": {"file": None, "examples": 0},
        "evaluation_date": "2026-11-21",
        "time_zone": "UTC",
        "engine": None,
        "spark": {"spark.hadoop.fs.s3a.secret.key": "(hidden)", "spark.hadoop.fs.s3a.access.key": "(hidden)",
                  "spark.x": "1"},
    }  # fmt: skip
