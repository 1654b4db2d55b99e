"""Config files: the examples, what cannot be read, and what is set from outside."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from rankmetrics_spark.config import Config, Judgements, Sink, as_dict, described, from_mapping, load, override
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import resolve
from tests.helpers.commands import ROOT
from tests.helpers.messages import json_cases, messages

CONF = Path(__file__).parents[2] / "conf"


def written(folder: Path, content: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def message(error: pytest.ExceptionInfo[ConfigError], folder: Path = CONF) -> str:
    return str(error.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_loads(path: Path) -> None:
    assert isinstance(load(path), Config)


def test_the_example_states_the_defaults() -> None:
    example = load(CONF / "example.yaml", evaluation_date="2026-11-21")
    bare = from_mapping({"source": {"path": "logs/impressions"}, "evaluation_date": "2026-11-21"})
    assert dataclasses.replace(example, source=bare.source) == bare


def test_the_example_has_every_key() -> None:
    keys = {*re.findall(r"(\w+):", (CONF / "example.yaml").read_text(encoding="utf-8"))}
    assert [setting.path for setting in described(Config) if setting.path.split(".")[-1] not in keys] == []


def test_the_other_examples_have_the_settings_that_they_show() -> None:
    trial, trec = load(CONF / "ab_test.yaml", evaluation_date="2026-11-20"), load(CONF / "trec.yaml")
    assert trial.source.path == ("logs/impressions/event_date=2026-11-20",)
    assert trial.judgements == Judgements(
        format="parquet", path=("logs/truth",), columns={"user": "user_id", "item": "item_id", "relevance": "grade"}
    )
    assert (trec.source.format, trec.rank_by, trec.convention.preset) == ("trec_run", "score", "trec_eval")


@pytest.mark.parametrize(("assignment", "part", "expected"), json_cases("a key can be set from outside"))
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


def test_a_date_from_outside_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: logs}\nevaluation_date: 2026-11-20")
    assert load(path).evaluation_date == "2026-11-20"
    assert load(path, date="2026-11-21").evaluation_date == "2026-11-21"


def test_an_id_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    path = written(tmp_path, "source: {path: 2026-11-20, where: on}\ncomparison: {baseline: 007}")
    result = load(path)
    assert (result.source.path, result.source.where, result.comparison.baseline) == (("2026-11-20",), "on", "007")


@pytest.mark.outcome("a config file that holds {content}", "exit 2: {expected}")
@pytest.mark.parametrize(("content", "expected"), messages("a file"))
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


@pytest.mark.outcome("`--set` with a key of 2,001 levels", "exit 2: allowed are 50")
def test_an_override_has_a_depth() -> None:
    with pytest.raises(
        ConfigError, match=r"^the override 'a\.\.\. \(4,003 characters\)' has 2,001 levels; allowed: 50$"
    ):
        override({}, f"{'a.' * 2000}b=1")


def test_the_page_of_security_names_who_is_told_of_a_run() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    (sentence,) = [part for part in page.split("* ") if part.startswith("The package calls one server")]
    assert "`OPENLINEAGE_URL`" in sentence and "`lineage.url`" in sentence


@pytest.mark.outcome("`--set` with {assignment}", "exit 2: {expected}")
@pytest.mark.parametrize(("assignment", "expected"), messages("--set"))
def test_an_override_that_does_not_fit_is_an_error(tmp_path: Path, assignment: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, "source: {path: logs}\nrank_by: score"), [assignment])
    assert str(error.value) == expected
