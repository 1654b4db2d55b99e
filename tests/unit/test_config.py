"""A config is read once: its defaults, its sections, and its record."""

import dataclasses
import json
from dataclasses import replace
from datetime import date, datetime, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark import config as cfg
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import parse, resolve
from tests.helpers.configs import LOGS, TRUTH, config
from tests.helpers.messages import json_cases


def test_only_the_source_needs_a_value() -> None:
    result = cfg.from_mapping({"source": {"path": "logs"}, "evaluation_date": "2026-11-21"})
    assert result.source == cfg.Source(format="parquet", path=("logs",), columns={}, list=(), segments=(), options={})
    assert result.judgements is None
    assert result.rank_by == "position"
    assert [str(metric) for metric in result.metrics] == ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]
    assert result.convention == resolve("standard")
    assert result.quality == cfg.Quality("quarantine", 0.01, "relevant")
    assert result.comparison == cfg.Comparison(baseline=None, confidence=0.95, correction="holm")
    assert result.gates == ()
    assert result.sink == cfg.Sink("parquet", "out", "overwrite_partitions")
    assert result.spark == {}


def test_the_date_is_today_in_utc_unless_given() -> None:
    before = datetime.now(timezone.utc).date().isoformat()
    assert before <= config().evaluation_date <= datetime.now(timezone.utc).date().isoformat()


@pytest.mark.parametrize("given", ["2026-11-21", date(2026, 11, 21), datetime(2026, 11, 21, 5)])
def test_a_date_may_be_a_text_or_a_date(given: object) -> None:
    assert config(evaluation_date=given).evaluation_date == "2026-11-21"


# 23:30 in UTC is the next day in Berlin and the same day in New York.
NIGHT = datetime(2026, 11, 20, 23, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(("given", "zone", "day"), json_cases("a date may count back from today in a time zone"))
def test_a_date_may_count_back_from_today_in_a_time_zone(
    given: object, zone: str, day: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return NIGHT.astimezone(tz)

    monkeypatch.setattr(cfg.days, "datetime", Clock)
    changes = {"time_zone": zone, "source": {"path": "logs/{date}", "where": "day = '{date}'"}}
    result = config(evaluation_date=given, **changes)
    assert (result.evaluation_date, result.source.where) == (day, f"day = '{day}'")
    # The same from the command line, whose values are texts.
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(changes))
    assert cfg.load(tmp_path / "c.yaml", date=None if given is None else str(given)) == result
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


@pytest.mark.parametrize(("given", "names"), json_cases("lists of metrics"))
def test_metrics_are_a_list_or_a_text_and_each_is_kept_once(given: object, names: list[str]) -> None:
    assert [str(metric) for metric in config(metrics=given).metrics] == names
    metrics = [parse(name) for name in names]
    assert config(metrics=metrics).metrics == tuple(metrics) and config(metrics=metrics[0]).metrics == (metrics[0],)


def test_a_trec_run_is_ranked_by_score_by_default() -> None:
    run = {"source": {"path": "run", "format": "trec_run"}, "judgements": {"path": "qrels", "format": "trec_qrels"}}
    assert cfg.from_mapping(run).rank_by == "score"
    assert cfg.from_mapping({**run, "rank_by": "position"}).rank_by == "position"


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
    assert getattr(cfg.Options.read({part: list(NAMES)}), part) == NAMES


def test_a_source_says_which_columns_may_be_read() -> None:
    columns = {"experiment": None, "user": "uid", "relevance": "clicked"}
    source = config(source={**LOGS, "columns": columns, "list": "request", "segments": "country"}).source
    expected = ("uid", "item_id", "item", "position", "score", "clicked", "intents", "request", "country")
    assert source.required_columns() == expected


def test_a_column_with_two_uses_is_read_once() -> None:
    source = config(source={**LOGS, "columns": {"user": "uid", "experiment": "arm"}, "segments": ["arm", "uid"]}).source
    assert source.required_columns() == ("arm", "uid", "item_id", "item", "position", "score", "relevance", "intents")
    source = config(source={**LOGS, "columns": {"user": "Item"}, "list": "POSITION", "segments": "Score"}).source
    names = "experiment_id experiment Item item_id POSITION Score relevance intents"
    assert source.required_columns() == tuple(names.split())


def test_null_and_an_empty_section_mean_not_given() -> None:
    today = config().evaluation_date
    assert config(quality=None, metrics=None, judgements=None, evaluation_date=today) == config(evaluation_date=today)


def test_sections_can_be_made_by_hand_and_replaced() -> None:
    made = cfg.Config(source=cfg.Source(path=Path("logs"), columns={"user": "uid"}), evaluation_date="2026-11-21")  # type: ignore[arg-type]
    assert made.source.path == ("logs",)
    assert dataclasses.replace(made) == made
    assert dataclasses.replace(made, rank_by="score").rank_by == "score"
    with pytest.raises(ConfigError, match=r"^quality\.on_invalid: unknown value 'x'"):
        cfg.Quality(on_invalid="x")


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
    assert result.options == cfg.Options.read(expected)
    assert (result.options.layout, result.options.text_numbers) == ("auto", False)
    assert dataclasses.replace(result, metrics="rr").options == cfg.Options.read({**expected, "metrics": "rr"})  # type: ignore[arg-type]


def test_a_share_may_be_a_percentage() -> None:
    rates = {"tie_rate": {"warn": "2%"}, "rows": {"fail_change": "50 %"}}
    comparison = {"baseline": "a", "confidence": "90%", "shares": {"a": "99.9%", "b": "0.1%"}}
    rest = {"comparison": comparison, "gates": [{"metric": "ap", "max_relative_drop": "1.5%"}], "sink": {"path": "out"}}
    result = cfg.Config.read({"metrics": "ap", "source": LOGS, "quality": {"gates": rates}, **rest})
    assert result.quality.gates["tie_rate"] == {"warn": 0.02} and result.quality.gates["rows"]["fail_change"] == 0.5
    assert (result.options.confidence, result.comparison.shares) == (0.9, {"a": 0.999, "b": 0.001})
    assert result.gates[0].max_relative_drop == 0.015 and result.comparison.gates == result.gates


@pytest.mark.parametrize(("source", "judgements", "expected"), json_cases("formats without types"))
def test_numbers_may_be_text_where_a_format_has_no_types(source: str, judgements: str | None, expected: bool) -> None:
    truth = {"judgements": {**TRUTH, "format": judgements}} if judgements else {}
    assert config(source={**LOGS, "format": source}, **truth).options.text_numbers is expected


def test_options_have_a_default_for_every_field() -> None:
    assert cfg.Options() == config().options
    assert cfg.Options() == cfg.Options.read({"metrics": None, "list": None, "columns": None, "judged": None})
    assert [str(metric) for metric in cfg.Options().metrics] == ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]


def test_a_sink_with_a_table_has_no_folder() -> None:
    result = cfg.from_mapping({"source": {"path": "logs"}, "sink": {"format": "Iceberg", "table": "lake.ranking"}}).sink
    assert (result.format, result.path, result.table) == ("iceberg", None, "lake.ranking")


@pytest.mark.parametrize(("path", "expected"), json_cases("the names of files say their format"))
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
    assert config(source=json.loads(json.dumps(cfg.as_dict(result)["source"]))).source == result.source


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
    record = json.loads(json.dumps(cfg.as_dict(result)))
    assert record == {
        "source": {"format": "parquet", "path": ["logs"], "table": None, "where": None, "columns": {},
                   "options": {"password": "(hidden)", "header": "true"}, "packed": None, "list": [], "segments": [],
                   "segment_combinations": [], "first_rank": 1, "experiment_from": "tag", "rows": {}, "ready": None,
                   "team": None, "ranks": {}},
        "judgements": None,
        "events": None,
        "machine_judgements": None,
        "assignments": None,
        "tests": {},
        "rank_by": "position",
        "metrics": ["ap@10"],
        "convention": resolve("standard").text(),
        "percentiles": [],
        "unit": "user",
        "quality": {"on_invalid": "quarantine", "max_invalid_fraction": 0.01, "repeated_items": "relevant",
                    "gates": {}, "on_broken_split": "fail"},
        "comparison": {"baseline": None, "pairs": "baseline", "candidates": [], "confidence": 0.95,
                       "correction": "holm", "ranks": False, "simultaneous": False, "primary": [], "guardrails": [],
                       "families": "split", "primary_share": None, "margin": None, "effect": None, "design": "auto",
                       "shared_users": "keep", "mean_over": "users", "cluster": None, "only_changed": False,
                       "trigger": None, "cap": None, "strata": [], "covariates": [],
                       "wilcoxon": False, "randomization": None, "bootstrap": None, "aa_check": None, "shares": None,
                       "power": 0.8, "min_users": 0, "cuped": None, "looks": "one", "tuning_users": 10_000,
                       "period": None, "target": "population"},
        "gates": [],
        "sink": {"format": "parquet", "path": "out", "mode": "overwrite_partitions", "table": None,
                     "layout": "by_experiment", "user_states": None, "lists": None},
        "lineage": {"url": None, "namespace": None, "job": "rankmetrics"},
        "report": {"file": None, "examples": 0, "title": None, "description": None},
        "evaluation_date": "2026-11-21",
        "time_zone": "UTC",
        "engine": None,
        "spark": {"spark.hadoop.fs.s3a.secret.key": "(hidden)", "spark.hadoop.fs.s3a.access.key": "(hidden)",
                  "spark.x": "1"},
    }  # fmt: skip
