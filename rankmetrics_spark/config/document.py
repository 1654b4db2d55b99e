"""The text of a config as nested mappings, YAML and ``a.b=value`` overrides; the JSON schema of such a text."""

import re
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from importlib import resources
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, NoReturn, get_args, get_origin

import yaml

from rankmetrics_spark import doors, errors as err, metrics as mx
from rankmetrics_spark.config.fields import Read, Section, Values, declared, field_names

#: Levels of a document; a config has five.
DEEPEST = 50
#: Values of a document after each alias stands for what it names.
LARGEST = 100_000
#: Configs that come with the package: every key with its default, an A/B test, a TREC run.
EXAMPLES = ("example", "ab_test", "trec")
#: What the first line of a written config names, for editors: the JSON schema, in the config's own folder.
SCHEMA_FILE = "rankmetrics.schema.json"
#: Sections that may be written as one word, and the key that this word stands for.
_SHORTHAND = {"convention": "preset", "report": "file"}


class _Loader(yaml.SafeLoader):
    """Safe YAML in which ``007``, ``no``, ``12:30`` and dates stay text; a repeated key is an error.

    YAML 1.1 reads them as 7, false, 750 and a date, so the experiment "007" would silently become another one.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML fills it, for this class alone

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping of a node.

        Raises:
            MarkedYAMLError: for a key that is there twice; YAML itself would keep the last one silently.
        """
        scalars = [name for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        first = {name.value: name for name in reversed(scalars)}
        for name in scalars:
            if name is not first[name.value]:
                problem = f"the key '{name.value}' is there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=name.start_mark)
        return super().construct_mapping(node, deep)


#: Type of a scalar -> the pattern of its texts, and the first characters that these may have.
for _tag, (_pattern, _first) in doors.data_of(__name__, "resolvers").items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def example_text(name: str) -> str:
    """One of ``EXAMPLES``, with the name of the schema that ``rankmetrics init`` writes beside a config.

    >>> example_text("trec").splitlines()[0]
    '# yaml-language-server: $schema=rankmetrics.schema.json'
    """
    content = resources.files("rankmetrics_spark.config").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return content.replace("$schema=schema.json", f"$schema={SCHEMA_FILE}", 1)


def read_document(path: str | Path, what: str = "config", first: str = "source") -> dict[str, object]:
    """The mapping in a YAML file, by what it is called and its first key; ``-`` is stdin.

    Raises:
        ConfigError: for a file that cannot be read, is not YAML, or does not hold a mapping.
    """
    try:
        content = parse(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise err.ConfigError(f"the {what} '{path}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise err.ConfigError(f"the {what} '{path}' is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            problem = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
        raise err.ConfigError(f"the {what} '{path}' is not valid YAML: {problem}") from None
    if not isinstance(content, Mapping):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise err.ConfigError(f"the {what} '{path}' holds {kind}; allowed: a mapping that starts with {first}")
    return dict(content)


def parse(content: str) -> object:
    """What a YAML text holds; the loader is a safe one.

    >>> parse("{baseline: 007, header: no, fraction: 1e-2, day: 2026-11-21}")
    {'baseline': '007', 'header': 'no', 'fraction': 0.01, 'day': '2026-11-21'}
    """
    # Too deep, or too large once its aliases are expanded: PyYAML would recurse through both.
    anchors: dict[str, int | None] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(content, Loader=_Loader):
        read: tuple[str | None, int] | None = None
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            anchors |= {event.anchor: None} if event.anchor else {}
        elif isinstance(event, yaml.CollectionEndEvent):
            read = open_nodes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            read = event.anchor, 1
        elif isinstance(event, yaml.AliasEvent):
            size = anchors.get(event.anchor or "", 0)
            if size is None:
                _refuse(event, f"the alias '{event.anchor}' is inside of what it stands for")
            read = None, size
        if read:
            anchors |= {read[0]: read[1]} if read[0] else {}
            parent, total = open_nodes.pop()
            open_nodes.append((parent, total + read[1]))
        if len(open_nodes) > DEEPEST:
            _refuse(event, f"more than {DEEPEST} levels; allowed: {DEEPEST}")
        if open_nodes[-1][1] > LARGEST:
            _refuse(event, f"its aliases stand for more than {LARGEST:,} values; allowed: {LARGEST:,}")
    try:
        return yaml.load(content, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # PyYAML does not catch errors of int() and of dates: a number of 5,000 digits, `!!int x`.
        problem = error if isinstance(error, ValueError) else "it does not fit its tag"
        raise yaml.YAMLError(f"a value cannot be read: {problem}") from None


def _refuse(event: yaml.Event, problem: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]


def override(document: Mapping[str, object], assignment: str) -> dict[str, object]:
    """The document with one ``a.b=value`` applied; the value is YAML, and a plain text needs no quotes.

    Raises:
        ConfigError: for a text without ``=``, or a path through something that is not a mapping.

    >>> override({"convention": "trec_eval"}, "convention.ties=expected")
    {'convention': {'preset': 'trec_eval', 'ties': 'expected'}}
    >>> override({}, "spark.sql.shuffle.partitions=8")
    {'spark': {'spark.sql.shuffle.partitions': 8}}
    """
    name, equals, text = (part.strip() for part in assignment.partition("="))
    steps = name.split(".")
    if name.startswith("spark."):
        # A setting of Spark has dots of its own.
        rest = name.removeprefix("spark.")
        steps = ["spark", rest if rest.startswith("spark.") else name]
    if len(steps) > DEEPEST:
        raise err.ConfigError(f"the override '{assignment}' has {len(steps):,} levels; allowed: {DEEPEST}")
    if not equals or not all(steps):
        raise err.ConfigError(f"the override '{assignment}' is not an assignment; allowed: such as source.path=logs")
    try:
        value = parse(text)
    except yaml.YAMLError:
        value = text
    if isinstance(value, (str, list, dict)) and text[:1] not in ("[", "{", "'", '"'):
        value = text
    return _assigned(document, steps, value, assignment)


def merged(document: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """The document with each change that is not ``None``; mappings are merged, anything else is replaced.

    >>> merged({"sink": {"path": "a", "mode": "b"}}, {"sink": {"path": "c"}, "rank_by": None})
    {'sink': {'path': 'c', 'mode': 'b'}}
    """
    result = dict(document)
    for name, change in changes.items():
        old = result.get(name)
        if isinstance(old, Mapping) and isinstance(change, Mapping):
            change = merged(old, change)
        if change is not None:
            result[name] = change
    return result


def _assigned(document: Mapping[str, object], steps: list[str], value: object, assignment: str) -> dict[str, object]:
    head, *rest = steps
    if not rest:
        return {**document, head: value}
    inner = document.get(head)
    if isinstance(inner, str) and head in _SHORTHAND:
        inner = {_SHORTHAND[head]: inner}
    inner = {} if inner is None else inner
    if not isinstance(inner, Mapping):
        raise err.ConfigError(f"the override '{assignment}' does not fit: {head} is {inner!r}, not a mapping")
    return {**document, head: _assigned(inner, rest, value, assignment)}


class Setting(NamedTuple):
    """What users may know of a field.

    Attributes:
        path: Where a config has it, such as ``source.list``; its name if only Python has it.
        name: What Python calls it.
        type: The type of the checked value.
        default: As a config would give it.
        allowed: What is allowed, in words.
        help: What it does, in one line.
        read: Checks a value.
    """

    path: str
    name: str
    type: Any
    default: Any
    allowed: str
    help: str
    read: Read


def described(cls: type[Section]) -> Iterator[Setting]:
    """The fields of a section, each followed by those of the section that it holds.

    >>> from rankmetrics_spark.config import Quality
    >>> setting = list(described(Quality))[0]
    >>> setting.path, setting.default, setting.allowed
    ('quality.on_invalid', 'quarantine', 'quarantine, fail')
    """
    for spec, path, hint, sections in declared(cls):
        read, default, allowed = spec.metadata["read"], spec.metadata["default"], ""
        try:
            read("", object())  # which no setting can be
        except err.ConfigError as error:
            allowed = error.allowed
        help = spec.metadata["help"] or _helps(cls).get(spec.name, "")
        yield Setting(path, spec.name, hint, default, allowed, help, read)
        # Those of another place are described there.
        for part in (part for part in sections if path.startswith(part.at.partition(".")[0])):
            yield from described(part)


def _helps(cls: type[Section]) -> dict[str, str]:
    """Field -> what it does, as the docstrings of a section and of those that it extends have it."""
    helps: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        attributes = cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for name, words in re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|^\S|\Z)", attributes):
            helps[name] = " ".join(words.split())
    return helps


def as_dict(config: Section) -> dict[str, Any]:
    """A config, or a section, as plain values for the run record: metrics by name, a convention as text, no secrets.

    >>> from rankmetrics_spark.config import Config, Source
    >>> as_dict(Config(source=Source(path="logs"), metrics="ap@10"))["metrics"]
    ['ap@10']
    """
    return err.values_without_secrets(_plain(config))  # type: ignore[no-any-return]


#: Fields whose names are those of an engine, so what is not known to be public is hidden.
_SETTINGS = ("options", "spark")


def _of_field(name: str, value: Any) -> Any:
    if name in _SETTINGS:
        return {key: err.HIDDEN if err.is_secret(key, each) else each for key, each in value.items()}
    return _plain(value)


def _plain(value: object) -> Any:
    if isinstance(value, Section):
        return {value.words.get(name, name): _of_field(name, getattr(value, name)) for name in field_names(type(value))}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, mx.Convention):
        return value.text()
    return str(value) if isinstance(value, mx.Metric) else value


#: Type of a checked value -> what JSON may have for it.
_TYPES: dict[object, str] = {tuple: "array string integer", str: "string integer", float: "number string",
                             Mapping: "object", bool: "boolean"}  # fmt: skip


def json_schema(cls: type[Section], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The schema (draft 7) of a section and those in it; what it refuses, the section refuses too, not the reverse."""

    def takes(read: Read, sample: object) -> bool:
        with suppress(err.ConfigError):
            read("", sample)
            return True
        return False

    properties = {}
    for _, path, _, sections in declared(cls):
        setting = settings[path]
        values = _of_values(setting.read, setting.type)
        if sections:
            within = json_schema(sections[0], settings)
            nested = {"type": "array", "items": within} if get_origin(setting.type) is tuple else within
            if get_origin(setting.type) is Mapping:
                nested = {"type": "object", "additionalProperties": within}
            # What may stand for a section: nothing, and true or a word where the reader takes one.
            kinds = {"boolean": takes(setting.read, True), "string": takes(setting.read, "one")}
            values = {"anyOf": [nested, {"type": ["null", *(kind for kind, taken in kinds.items() if taken)]}]}
        plain = [*setting.default] if isinstance(setting.default, tuple) else setting.default
        help = {"description": setting.help.replace("``", "`")}
        default = {} if plain in (None, [], {}) else {"default": plain}
        properties[path.rpartition(".")[2]] = values | help | default
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _of_values(read: Read, hint: Any) -> dict[str, Any]:
    """What JSON knows of the values of a field."""
    if isinstance(read, Values):
        return dict(read.json())
    hint = str if hint is mx.Metric else hint
    kinds = {get_origin(part) or part for part in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    types = dict.fromkeys(name for kind, names in _TYPES.items() if kind in kinds for name in names.split())
    return {"type": [*types, "null"]} if types else {}
