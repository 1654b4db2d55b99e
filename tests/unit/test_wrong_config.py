"""Every mistake in a config or in options is one sentence that names the field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rankmetrics_spark.config import Options
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import Convention, resolve
from tests.helpers.configs import INPUT, LOGS, ROLES, SOURCE, TEXT, TRUTH, config

FORMATS = "parquet, csv, json, orc, table, delta, iceberg"
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
    *(
        (
            part,
            f"{place} is {shown}; allowed: a text without NUL and without halves of characters, which no path and "
            "no file has",
        )
        for text, shown in (("a\0b", r"'a\x00b'"), ("a\ud800", r"'a\ud800'"))
        for place, part in (
            ("source.path", {"source": {"path": text}}),
            ("sink.path", {"sink": {"path": text}}),
            ("report.file", {"report": {"file": text}}),
            ("source.where", {"source": {**LOGS, "where": text}}),
        )
    ),
    (
        {"source": {**LOGS, "ranks": {"a": "rank_a"}}},
        "source.ranks is {'a': 'rank_a'}; allowed: a mapping of two rankers to their columns of ranks; more than two "
        "are compared by a column of the team",
    ),
    (
        {"quality": 1},
        "quality is 1; allowed: a mapping with keys out of on_invalid, max_invalid_fraction, repeated_items, gates, "
        "on_broken_split",
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
        "'bonferroni'? known: holm, bonferroni, fdr_bh, tukey, none",
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
