"""Fields that describe themselves and check their own value. A section is a frozen dataclass made of such fields."""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar, get_args, get_type_hints

from rankmetrics_spark import doors, errors as err

#: (path of the field, raw value) -> checked value; reading a checked value again gives the same value.
Read: TypeAlias = Callable[[str, object], object]

SectionT = TypeVar("SectionT", bound="Section")


@dataclass(frozen=True)
class Values:
    """A reader of values that JSON can name: a few words, or numbers between bounds."""

    read: Read
    json: Callable[[], Mapping[str, object]]

    def __call__(self, path: str, value: object) -> Any:
        """The checked value."""
        return self.read(path, value)


def key(default: object, read: Read, help: str = "", path: str = "") -> Any:
    """A field of a section; ``None`` means "not given".

    Args:
        default: Read like any other value.
        read: Checks a value; its message says what is allowed.
        help: One line for the docs, where the docstring of the section has none under ``Attributes``.
        path: Of an option of ``evaluate``: where a config has it, such as ``source.list``; empty = only Python has it.
    """
    return field(default=None, metadata={"default": default, "read": read, "help": help, "path": path})


@dataclass(frozen=True)
class Section:
    """Reads each of its fields once, by the reader declared beside it, however it is constructed.

    Attributes:
        at: Path of the section in the config; every message starts with it. Empty at the top level.
        words: Field -> its key in a config, where that is a word of Python such as ``from``.
    """

    at: ClassVar[str] = ""
    words: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, at: str | None = None) -> None:
        cls.at = cls.at if at is None else at

    def __post_init__(self) -> None:
        """Replaces each raw value by the checked one.

        Raises:
            ConfigError: A value is not allowed, or does not go with another one; the message has the path of the field.
        """
        checked = {}
        for name, path in self.paths_of_fields().items():
            metadata, value = self.__dataclass_fields__[name].metadata, getattr(self, name)
            value = metadata["default"] if value is None else value
            checked[name] = None if value is None else metadata["read"](path, value)
        self._settle(**checked)
        for each in reversed(type(self).__mro__):
            self.check(each.__name__)

    def check(self, rules: str) -> None:
        """Refuse values that do not go together by these rules: see ``check_rules``."""
        check_rules(rules, self, self.paths_of_fields())

    def path_of(self, name: str) -> str:
        """What messages call a field, such as ``source.columns``."""
        return self.paths_of_fields()[name]

    def _refused(self, name: str, allowed: str) -> err.ConfigError:
        """The error for a field whose value does not fit the others; see ``refuse``."""
        return refuse(self.path_of(name), getattr(self, name), allowed)

    @classmethod
    def read(cls: type[SectionT], value: Mapping[str, object]) -> SectionT:
        """The section that a mapping describes.

        Raises:
            ConfigError: A key is unknown (the message names the nearest known one), or a value is not allowed.
        """
        fields_by_key = {cls.words.get(name, name): name for name in field_names(cls)}
        for name in value:
            if name not in fields_by_key:
                raise err.ConfigError(f"{_joined(cls.at, name)}: {err.unknown('key', name, [*fields_by_key])}")
        return cls(**{fields_by_key[name]: item for name, item in value.items()})

    @classmethod
    def of(cls: type[SectionT], keywords: Mapping[str, object]) -> SectionT:
        """The section whose fields are among the keywords of a call, which its ``locals()`` hold; see ``read``."""
        return cls(**{name: keywords[name] for name in field_names(cls) if name in keywords})

    def paths_of_fields(self) -> Mapping[str, str]:
        """Field -> what messages call it."""
        return {name: _joined(self.at, self.words.get(name, name)) for name in field_names(type(self))}

    def _settle(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


#: Section -> its rules: fields with values (true: any, false: none, a list: one of these, above or from: a bound),
#: and what refuses such values together; of several fields in one key, one is enough. ``{field}`` stands for its path
#: there, ``{field=}`` and ``{field!r}`` for its value, and ``any`` for the first of several fields.
RULES = doors.data_of(__name__, "rules")


def value_at(given: Any, path: str) -> Any:
    """The value of a field, or of a field or key in it; empty for a key that is not there."""
    for step in path.split("."):
        given = given.get(step, "") if isinstance(given, Mapping) else getattr(given, step, None)
    return given


def check_rules(section: str, given: object, paths: Mapping[str, str]) -> None:
    """Refuse values that do not go together.

    Raises:
        ConfigError: The sentence of the first rule that they break.
    """

    value_of = partial(value_at, given)

    def holds(value: Any, wanted: Any) -> bool:
        """Whether a value is one that a rule is about."""
        if isinstance(wanted, bool):
            return bool(value) == wanted
        if isinstance(wanted, dict):
            ((how, limit),) = wanted.items()
            bound = value_of(limit) if isinstance(limit, str) else limit
            return None not in (value, bound) and bool(value > bound or (how == "from" and value == bound))
        return value in wanted if isinstance(wanted, list) else bool(value == wanted)

    for conditions, sentence in RULES.get(section, ()):
        found = dict[str, str]()
        for names, wanted in conditions.items():
            found[names] = next((name for name in names.split() if holds(value_of(name), wanted)), "")
        if not all(found.values()):
            continue
        several = next((name for names, name in found.items() if " " in names), "")

        def said(place: re.Match[str], several: str = several) -> str:
            """What a sentence says of a field."""
            name, form = several if place[1] == "any" else place[1], place[2]
            value = value_of(name)
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            return paths[name] if not form else text if form == "=" else _shown(value)

        refused = several or next(iter(found.values()))
        raise err.ConfigError(re.sub(r"[{]([\w.]+)(=|!r)?[}]", said, sentence), path=paths.get(refused, refused))


def field_names(cls: type[Section]) -> list[str]:
    """The fields of a section that a user may set, in the order of their declaration."""
    return [spec.name for spec in fields(cls) if "read" in spec.metadata]


def declared(cls: type[Section]) -> Iterator[tuple[Field[Any], str, Any, list[type[Section]]]]:
    """Each field of a section that a user may set, its path, its type, and the sections that it may hold."""
    hints = get_type_hints(cls)
    for spec in fields(cls):
        if "read" in spec.metadata:
            path = spec.metadata["path"] or _joined(cls.at, cls.words.get(spec.name, spec.name))
            parts = (hints[spec.name], *get_args(hints[spec.name]))
            # On Python 3.10, tuple[str, ...] passes for a type, and issubclass refuses it.
            yield spec, path, hints[spec.name], [part for part in parts if Section in getattr(part, "__mro__", ())]


def _joined(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)


def refuse(path: str, value: object, allowed: str) -> err.ConfigError:
    """The error for a value that is not allowed.

    >>> print(refuse("quality.max_invalid_fraction", 1.5, "a number from 0 to 1"))
    quality.max_invalid_fraction is 1.5; allowed: a number from 0 to 1
    """
    setting = path.removeprefix("spark.") if path.startswith("spark.") else path.partition(".options.")[2]
    hidden = err.is_secret(setting, value) if setting else False
    return err.ConfigError(f"{path} is {err.HIDDEN if hidden else _shown(value)}; allowed: {allowed}", allowed)


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)


def section(cls: type[Section], short: tuple[type, ...] = (), words: str = "", of: Read | None = None) -> Read:
    """A nested section, given as a mapping or as an instance; or as ``words`` say: ``of`` reads the types ``short``."""

    def read(path: str, value: object) -> object:
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls.read(value)
        if of and isinstance(value, short):
            return of(path, value)
        keys = [cls.words.get(name, name) for name in field_names(cls)]
        raise refuse(path, value, f"{words}a mapping with keys out of {', '.join(keys)}")

    return read


def switched(cls: type[Section]) -> Read:
    """A section, or ``true`` for all of its defaults; ``false`` for none."""
    return section(cls, (bool,), "true, false, or ", lambda path, value: cls() if value else None)


def choice(*words: str, listed: Callable[[], Iterable[str]] = tuple) -> Values:
    """One of a few words, in upper or lower case; ``listed`` says which ones, where more may be added.

    >>> choice("quarantine", "fail")("quality.on_invalid", "FAIL")
    'fail'
    """

    def read(path: str, value: object) -> str:
        word, known = str(value).lower(), [*words, *listed()]
        if word not in known:
            raise err.ConfigError(f"{path}: {err.unknown('value', value, known)}", ", ".join(known))
        return word

    return Values(read, lambda: {"enum": [*words, *listed(), None]})


PERCENTAGE = r"^[0-9]{1,6}(\.[0-9]{1,9})? ?%$"


def parsed(path: str, read: Callable[[Any], Any], value: object) -> Any:
    """What reads a value by itself; its error gets the path of the field."""
    try:
        return read(value)
    except err.ConfigError as error:
        raise err.ConfigError(f"{path}: {error}") from None


def fraction(value: Any) -> Any:
    """A percentage as a share of 1; everything else as it is."""
    if isinstance(value, str) and re.fullmatch(PERCENTAGE, value):
        return float(Decimal(value.rstrip("% ")) / 100)
    return value


def number(low: float, high: float, *, inclusive: bool, share: bool = False) -> Values:
    """A number between two bounds; ``inclusive`` says whether the bounds themselves are allowed.

    A share, such as everything from 0 to 1, is read from a percentage as well.

    >>> number(0, 1, inclusive=True)("quality.max_invalid_fraction", "2 %")
    0.02
    """
    share = share or high == 1
    allowed = f"a number from {low:g} to {high:g}" if inclusive else f"a number above {low:g} and below {high:g}"
    allowed += ", or a percentage such as 2%" * share

    def read(path: str, value: object) -> float:
        plain = fraction(value) if share else value
        size = float(plain) if isinstance(plain, (int, float)) and not isinstance(plain, bool) else math.nan
        if not low <= size <= high or (not inclusive and size in (low, high)):
            raise refuse(path, value, allowed)
        return size

    names = ("minimum", "maximum") if inclusive else ("exclusiveMinimum", "exclusiveMaximum")
    types = {"type": ["number", "string", "null"], "pattern": PERCENTAGE} if share else {"type": ["number", "null"]}
    return Values(read, lambda: types | {names[0]: float(low), names[1]: float(high)})


def count(low: int, high: int, *, or_0: bool = False) -> Values:
    """A whole number between two bounds, which are allowed themselves; perhaps 0 as well.

    >>> count(1, 10)("seed", 3)
    3
    """

    def read(path: str, value: object) -> int:
        zero = 0 if or_0 else low
        if not isinstance(value, int) or isinstance(value, bool) or not (low <= value <= high or value == zero):
            raise refuse(path, value, f"{'0, or ' * or_0}a whole number from {low:,} to {high:,}")
        return value

    return Values(read, lambda: {"type": ["integer", "null"], "minimum": low, "maximum": high})


def flag(path: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise refuse(path, value, "true or false")
    return value


def as_given(path: str, value: object) -> object:
    """The raw value, for a field that another section reads."""
    return value


def text(path: str, value: object) -> str:
    """A text that is not empty; a whole number or a date is read as its digits, so ``baseline: 7`` is allowed.

    >>> text("comparison.baseline", 7)
    '7'
    """
    if isinstance(value, (str, int, date, os.PathLike)) and not isinstance(value, bool):
        plain = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        if isinstance(plain, str) and re.search("[\0\ud800-\udfff]", plain):
            allowed = "a text without NUL and without halves of characters, which no path and no file has"
            raise refuse(path, plain, allowed)
        if isinstance(plain, str) and plain.strip():
            return plain
    raise refuse(path, value, "a text (in quotes where YAML would read something else)")


def texts(path: str, value: object) -> tuple[str, ...]:
    """A text or a list of texts."""
    if not isinstance(value, (list, tuple)):
        return (text(path, value),)
    if not value:
        raise refuse(path, value, "a text or a list of texts")
    return tuple(text(f"{path}[{place}]", item) for place, item in enumerate(value))


def listed(path: str, value: object) -> list[object]:
    """The items of a list, or of a text with commas; a comma inside parentheses does not separate items.

    >>> listed("metrics", "ap@10, rbp(p=0.8,q=1)")
    ['ap@10', 'rbp(p=0.8,q=1)']
    """
    if isinstance(value, str):
        return [part.strip() for part in re.split(r",(?![^()]*\))", value)]
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return list(value)
    raise refuse(path, value, "a list, or a text with commas")


def names(path: str, value: object) -> tuple[str, ...]:
    """Names of columns, each once; like Spark, this check does not tell upper from lower case.

    >>> names("source.list", "request_id, surface")
    ('request_id', 'surface')
    """
    columns = tuple(text(f"{path}[{place}]", item) for place, item in enumerate(listed(path, value)))
    lower = [name.lower() for name in columns]
    for place, name in enumerate(lower):
        if name in lower[:place]:
            raise err.ConfigError(f"{path} names the column '{columns[place]}' twice; allowed: each column once")
    return columns


def mapped(roles: Mapping[str, str], nullable: Collection[str] = ()) -> Read:
    """Roles of columns to the input's own column names.

    Args:
        roles: Role -> canonical name; both are accepted as keys, and the result has roles.
        nullable: Roles that may be ``null``: the input has no such column.

    >>> mapped({"user": "user_id", "item": "item_id"}, nullable=["item"])("columns", {"user_id": "uid", "item": None})
    {'user': 'uid', 'item': None}
    """
    role_of = {**{canonical: role for role, canonical in roles.items()}, **{role: role for role in roles}}

    def read(path: str, value: object) -> dict[str, str | None]:
        if not isinstance(value, Mapping):
            raise refuse(path, value, f"a mapping with keys out of {', '.join(roles)}")
        columns: dict[str, str | None] = {}
        for name, column in value.items():
            role = role_of.get(name)
            if role is None:
                raise err.ConfigError(f"{path}.{name}: {err.unknown('key', name, roles)}")
            if role in columns:
                raise err.ConfigError(f"{path}: '{role}' and '{roles[role]}' mean the same; allowed: one of the two")
            columns[role] = None if column is None and role in nullable else text(f"{path}.{name}", column)
        return columns

    return read


def mapping(
    allowed: str, value: Read = text, fits: Callable[[Mapping[Any, Any]], bool] = lambda given: True, key: Read = text
) -> Read:
    """A mapping that ``fits``, with each of its keys and values read.

    >>> mapping("such as {click: 1}", number(0, 9, inclusive=True))("grades", {"click": 1})
    {'click': 1.0}
    """

    def read(path: str, given: object) -> dict[Any, Any]:
        if not isinstance(given, Mapping) or not fits(given):
            raise refuse(path, given, allowed)
        return {key(path, name): value(f"{path}.{name}", each) for name, each in given.items()}

    return read


#: Two rankers and the columns of their ranks; empty for none.
two_ranks = mapping(
    "a mapping of two rankers to their columns of ranks; more than two are compared by a column of the team",
    fits=lambda given: len(given) in (0, 2),
)


def _scalar(path: str, value: object) -> str:
    """A text, a number, true or false, as a text.

    >>> settings("source.options", {"header": True, "sep": ";", "maxColumns": 10})
    {'header': 'true', 'sep': ';', 'maxColumns': '10'}
    """
    if not isinstance(value, (str, int, float)):
        raise refuse(path, value, "a text, a number, true or false")
    return str(value).lower() if isinstance(value, bool) else str(value)


#: Names to scalars, as texts, which is what Spark takes.
settings = mapping("a mapping of names to texts, numbers, true or false", _scalar, key=lambda path, name: str(name))


def day(path: str, value: object) -> str:
    """A date as YYYY-MM-DD.

    >>> day("evaluation_date", "2026-11-21")
    '2026-11-21'
    """
    plain = str(value.date() if isinstance(value, datetime) else value)
    with suppress(ValueError):
        if date.fromisoformat(plain).isoformat() == plain:
            return plain
    raise refuse(path, value, "a date as YYYY-MM-DD")
