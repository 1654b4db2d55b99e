"""The JSON schema of a config: complete, true of the configs at hand, and never stricter than the config itself."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from rankmetrics_spark.config import Config, described, from_mapping, schema
from rankmetrics_spark.errors import ConfigError
from tests.helpers.commands import ROOT
from tests.helpers.messages import json_cases

CONF = sorted((ROOT / "conf").glob("*.yaml"))
# The oldest libraries come without it.
needs_validator = pytest.mark.skipif(find_spec("jsonschema") is None, reason="jsonschema is not installed")


def test_the_file_beside_the_configs_is_the_schema() -> None:
    assert json.loads((ROOT / "conf" / "schema.json").read_text(encoding="utf-8")) == schema(), "run make readme"
    assert all(file.read_text().startswith("# yaml-language-server: $schema=schema.json\n") for file in CONF)


def keys(part: dict[str, Any], at: str = "") -> Iterator[str]:
    for kind in (part, *part.get("anyOf", ())):
        for name, inner in {**kind.get("properties", {}), **kind.get("items", {}).get("properties", {})}.items():
            yield f"{at}{name}"
            yield from keys(inner, f"{at}{name}.")
        if other := kind.get("additionalProperties"):
            yield from keys(other, f"{at}NAME.")


def test_it_has_every_key_of_a_config_and_no_other() -> None:
    # A gate of a test has the keys that are described at ``gates``.
    found = {key for key in keys(schema()) if not key.startswith("tests.NAME.gates.")}
    assert found == {setting.path for setting in described(Config)}


@needs_validator
@pytest.mark.parametrize("file", CONF, ids=lambda file: file.name)
def test_the_configs_at_hand_fit(file: Any) -> None:
    import jsonschema

    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(yaml.safe_load(file.read_text(encoding="utf-8")), schema())


WRONG = json_cases("configs that the JSON schema refuses")
RIGHT: list[dict[str, Any]] = json_cases("configs that the JSON schema takes")


@needs_validator
@pytest.mark.parametrize("document", WRONG, ids=str)
def test_a_config_refuses_what_the_schema_refuses(document: dict[str, Any]) -> None:
    import jsonschema

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())
    with pytest.raises(ConfigError):
        from_mapping({"source": {"path": "logs"}} | document)


@needs_validator
@pytest.mark.parametrize("document", RIGHT, ids=str)
def test_the_schema_takes_what_a_config_takes(document: dict[str, Any]) -> None:
    import jsonschema

    whole = {"source": {"path": "logs"}} | document
    from_mapping(whole)
    jsonschema.validate(whole, schema())
