"""Every option is described once, at its field; calls, commands and the docs are held against the description."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import click
import pytest

from rankmetrics_spark.cli import main
from rankmetrics_spark.config import Comparison, Options, Section, Setting, description
from rankmetrics_spark.studies.weighting import off_policy
from tests.helpers.commands import ROOT
from tests.helpers.packages import Changes, run_with
from tests.options_page import CALLS, known, updated

TABLES = {"self", "impressions", "judgements", "machine_judgements", "events", "assignments", "tests", "user_metrics",
          "before", "dates"}  # fmt: skip
"""Parameters that are tables, or a section of a config as it is."""
ELSEWHERE = {
    "Options": {"judged", "with_machine", "with_events", "with_assignments", "paths", "reads"},
    "Comparison": {"cuped", "tests", "gates"},
    "Quality": {"repeated_items", "on_broken_split"},
}
"""Fields that no call has as a keyword: they follow from the tables, or another section's keyword sets them."""


SETTINGS = description()


def names(cls: type[Section]) -> set[str]:
    return {spec.name for spec in fields(cls)} - ELSEWHERE[cls.__name__]


def settings_of(sections: tuple[type[Section], ...]) -> dict[str, tuple[type[Section], Setting]]:
    """Keyword -> its section and setting; the first section wins."""
    result: dict[str, tuple[type[Section], Setting]] = {}
    for cls in sections:
        for setting in known(cls):
            if setting.name in names(cls) and (cls is Options or setting.path.rpartition(".")[0] == cls.at):
                result.setdefault(setting.name, (cls, setting))
    return result


def hold(call: str) -> set[str]:
    """Hold the keywords of a call against the description; return their names."""
    function, sections = CALLS[call]
    settings, hints = settings_of(sections), get_type_hints(function)
    parameters = inspect.signature(function).parameters
    message = dict(re.findall(r"^ {4,12}(\w+): (.*?)(?=^ {4,12}\w+: |\Z)", function.__doc__ or "", re.M | re.S))
    for name in parameters.keys() - TABLES:
        cls, setting = settings[name]
        default, words = parameters[name].default, hints[name]
        assert getattr(cls.read({name: default}), name) == getattr(cls(), name), name
        if get_origin(words) is Literal and isinstance(get_args(words)[0], str):
            assert ", ".join(get_args(words)) == setting.allowed, name
        assert " ".join(message[name].split()).startswith(setting.help.rstrip(".")), (name, setting.help)
    return parameters.keys() - TABLES


@pytest.mark.parametrize("call", CALLS)
def test_a_keyword_has_the_default_the_words_and_the_help_of_its_setting(call: str) -> None:
    assert hold(call)


def test_every_field_is_a_keyword_of_a_call() -> None:
    assert hold("evaluate") == names(Options) | {"baseline", "pairs", "correction"}
    # The dates of a call are those of its rows: ``dates``.
    assert hold("compare") == names(Comparison) - {"period"} | {"metrics", "segments", "segment_combinations"}
    assert hold("result.check") == names(CALLS["result.check"][1][0])


@pytest.mark.parametrize("name", ["columns", "list", "confidence"])
def test_off_policy_has_the_defaults_of_evaluate(name: str) -> None:
    default = inspect.signature(off_policy).parameters[name].default
    assert getattr(Options.read({name: default}), name) == getattr(Options(), name)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_says_in_one_line_what_it_does(setting: Setting) -> None:
    assert re.fullmatch(r"[A-Z`].{10,110}\.", setting.help), setting.help
    assert setting.allowed and setting.type


def test_the_page_of_every_option_is_that_of_the_description() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert updated(page) == page, "run make readme"


# ---- The command line

KEYS = {
    "baseline": "comparison.baseline",
    "candidates": "comparison.candidates",
    "pairs": "comparison.pairs",
    "engine": "engine",
    "sink_format": "sink.format",
}
"""Parameter of a command -> the setting that it sets."""


@pytest.mark.parametrize("command", main.commands)
def test_an_option_of_a_command_has_a_help_and_the_words_and_the_default_of_its_setting(command: str) -> None:
    for option in main.commands[command].params:
        if isinstance(option, click.Argument):  # click shows its name alone
            assert f"{command} {option.name}" in ("check config", "init log", "example name", "register plan")
            continue
        assert isinstance(option, click.Option)
        assert option.help or option.name in KEYS, option.name
        if option.name in KEYS:
            setting = SETTINGS[KEYS[option.name]]
            if isinstance(option.type, click.Choice):
                assert set(option.type.choices) <= set(setting.allowed.split(", ")), option.name
            if option.name == "pairs":
                assert option.default == setting.default


# ---- A new option: two files, and what make readme writes

NEW: Changes = {
    "config/options.py": {
        "    layout: str = fd.key(": """    shortest: int = fd.key(
        0, fd.count(0, 100), "Lists with fewer items are left out.", "quality.shortest"
    )
    layout: str = fd.key("""
    },
    "pipeline.py": {
        "    text_numbers: bool = False,": "    shortest: int = 0,\n    text_numbers: bool = False,",
        "        text_numbers: N": "        shortest: Lists with fewer items are left out.\n        text_numbers: N",
    },
}
USED = """
import rankmetrics_spark, sys
from rankmetrics_spark.config import load
from rankmetrics_spark.config import Options, Quality, from_mapping
from rankmetrics_spark.errors import ConfigError
from tests.options_page import markdown
from tests.unit.test_options import hold

assert rankmetrics_spark.__file__.startswith(sys.argv[1])
hold("compare")
assert "shortest" in hold("evaluate")
config = from_mapping({"source": {"path": "logs"}, "quality": {"shortest": 3}})
assert (config.options.shortest, config.quality.shortest, Options().shortest) == (3, 3, 0)
assert load(sys.argv[2], ["quality.shortest=4"]).options.shortest == 4
for wrong, path in ((lambda: Quality(shortest=-1), "quality.shortest"), (lambda: Options(shortest=-1), "shortest")):
    try:
        wrong()
    except ConfigError as error:
        assert str(error) == f"{path} is -1; allowed: a whole number from 0 to 100", error
    else:
        raise AssertionError(path)
row = "| `quality.shortest` | `0` | a whole number from 0 to 100 | Lists with fewer items are left out. | `evaluate` |"
assert row in markdown().splitlines()
"""


def test_a_new_option_touches_two_files(tmp_path: Path) -> None:
    assert len(NEW) == 2
    run_with(NEW, USED, tmp_path, ROOT / "conf" / "example.yaml")
