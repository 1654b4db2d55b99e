"""The JSON schema of a section, made from the fields that check it; editors complete keys with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from rankmetrics_spark.config.fields import Section, Setting
from rankmetrics_spark.errors import ConfigError

_NUMBERS = re.compile(r"a (whole )?number (from|above) (\S+) (?:to|and below) (\S+)")


def json_schema(cls: type[Section], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The schema (draft 7) of a section and those in it; what it refuses, the section refuses too, not the reverse.

    Args:
        cls: The section.
        settings: Path -> what users may know of a field.
    """
    hints = get_type_hints(cls)
    properties = {}
    for spec in fields(cls):
        if "read" not in spec.metadata:
            continue
        word = cls.words.get(spec.name, spec.name)
        path = spec.metadata["path"] or (f"{cls.at}.{word}" if cls.at else word)
        # On Python 3.10, tuple[str, ...] passes for a type, and issubclass refuses it.
        parts = (hints[spec.name], *get_args(hints[spec.name]))
        sections = [part for part in parts if Section in getattr(part, "__mro__", ())]
        values = _of_values(settings[path])
        if sections:
            within = json_schema(sections[0], settings)
            is_list = str(spec.type).startswith("tuple")
            nested = {"type": "array", "items": within} if is_list else within
            values = {"anyOf": [nested, {"type": _plain_types(spec.metadata["read"])}]}
        properties[word] = values | _words_of(settings[path])
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _words_of(setting: Setting) -> dict[str, Any]:
    """Help and default; what is allowed is part of the help where it is more than a list of words."""
    plain = [*setting.default] if isinstance(setting.default, tuple) else setting.default
    help = setting.help.replace("``", "`")
    return {"description": help} | ({} if plain in (None, [], {}) else {"default": plain})


def _plain_types(read: Any) -> list[str]:
    """What may stand for a section: nothing, and true or a word where the reader takes one."""

    def takes(sample: object) -> bool:
        try:
            read("", sample)
        except ConfigError:
            return False
        return True

    return ["null", *(["boolean"] if takes(True) else []), *(["string"] if takes("one") or takes("standard") else [])]


def _of_values(setting: Setting) -> dict[str, Any]:
    """What JSON knows of the values of a field."""
    allowed = setting.allowed
    if numbers := _NUMBERS.fullmatch(allowed):
        kind, read = ("integer", int) if numbers[1] else ("number", float)
        low, high = (read(text.replace(",", "")) for text in numbers.groups()[2:])
        bounds = ("minimum", "maximum") if numbers[2] == "from" else ("exclusiveMinimum", "exclusiveMaximum")
        return {"type": [kind, "null"], bounds[0]: low, bounds[1]: high}
    if allowed == "true or false":
        return {"type": ["boolean", "null"]}
    if re.fullmatch(r"[a-z0-9_]+(, [a-z0-9_]+)*", allowed):
        return {"enum": [*allowed.split(", "), None]}
    if allowed.startswith("a text, a list of texts, or a mapping"):
        return {"type": ["array", "string", "integer", "object", "null"]}
    if allowed.startswith(("a list", "a text or a list")) or "tuple" in setting.type:
        return {"type": ["array", "string", "integer", "null"]}
    if allowed.startswith(("a text", "a date")):
        return {"type": ["string", "integer", "null"]}
    if allowed.startswith("a mapping"):
        return {"type": ["object", "null"]}
    return {}
