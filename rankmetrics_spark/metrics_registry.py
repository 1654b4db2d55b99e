"""What a metric is called and where its kernel is: the registry, and ``parse("nDCG@10")`` <-> ``ndcg@10``."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, overload

from rankmetrics_spark import errors
from rankmetrics_spark.batch import Floats
from rankmetrics_spark.conventions import Convention

Kernel: TypeAlias = Callable[..., Floats]
K = TypeVar("K", bound=Callable[..., Floats])
Needs: TypeAlias = Literal["relevant", "judged", "scores"]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]

MAX_CUT = 1_000_000
_NAME = re.compile(r"(?P<stem>[a-z][a-z0-9_-]*?)\s*(?:\((?P<named>[^()]*)\))?\s*(?:@\s*(?P<cut>[^@]*))?")
_TRAILING_CUT = re.compile(r"(?P<stem>.+?)(?:_at)?_(?P<cut>\d+)")


@dataclass(frozen=True)
class Definition:
    """A registered metric: its kernel, what it needs, and what its parameters may be.

    Attributes:
        name: Canonical name, lower case.
        kernel: ``(lists: Lists, **parameters) -> (n,) floats``.
        aliases: Other names, as ``parse`` accepts them.
        needs: ``relevant``: entries and judged items of a grade above 0 suffice. ``judged``: every entry and every
            judged item. ``scores``: every entry, with its score.
        zero_policy: Whether ``Convention.zero_relevant`` decides the value of a list where the kernel has none (NaN).
        readings: How the kernel can read tied scores (``Lists.ties``): ``plain``, ``expected``, ``threshold``.
        tie_knob: The field of the convention that says how this metric reads ties.
        bounds: Exclusive bounds of the named parameters.
    """

    name: str
    kernel: Kernel
    aliases: tuple[str, ...] = ()
    needs: Needs = "relevant"
    zero_policy: bool = True
    readings: tuple[str, ...] = ("plain",)
    tie_knob: str = "ties"
    bounds: Bounds = field(default_factory=dict)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameter names and defaults, from the signature of the kernel; ``k`` is the cut-off."""
        signature = inspect.signature(self.kernel)
        return {name: parameter.default for name, parameter in list(signature.parameters.items())[1:]}

    @property
    def summary(self) -> str:
        """First line of the kernel's docstring: the formula and its convention."""
        return (inspect.getdoc(self.kernel) or "").partition("\n")[0]

    @property
    def example(self) -> str:
        """A name that parses.

        >>> from rankmetrics_spark.metrics import REGISTRY
        >>> REGISTRY["p"].example, REGISTRY["ap"].example, REGISTRY["rbp"].example
        ('p@10', 'ap@10', 'rbp(p=0.8)')
        """
        named = {name: default for name, default in self.parameters.items() if name != "k"}
        return self.name + (f"({_render(named)})" if named else "@10" if "k" in self.parameters else "")

    def reading(self, convention: Convention) -> str:
        """How this metric reads ties under a convention: ``plain``, ``expected`` or ``threshold``."""
        knob = getattr(convention, self.tie_knob)
        value = convention.ties if knob == "same" else knob
        return value if value in ("expected", "threshold") else "plain"


REGISTRY: dict[str, Definition] = {}


@overload
def metric(kernel: K) -> K: ...
@overload
def metric(**settings: Any) -> Callable[[K], K]: ...
def metric(kernel: Kernel | None = None, **settings: Any) -> Any:
    """Registers a kernel ``(lists: Lists, **parameters) -> (n,) floats`` under its function's name.

    The kernel gives NaN where the metric has no value (no relevant item); the convention decides what that counts as.
    A parameter ``k: int`` is a required cut-off, ``k: int | None = None`` an optional one, any other a named number
    with a default.

    Args:
        kernel: The function, when used as a bare ``@metric``.
        settings: The other fields of ``Definition``.

    >>> @metric(aliases=("shown_items",))
    ... def n_shown(lists):
    ...     return lists.batch.shown.astype(float)
    >>> str(parse("Shown_Items"))
    'n_shown'
    >>> del REGISTRY["n_shown"]
    """

    def register(function: K) -> K:
        REGISTRY[function.__name__] = Definition(name=function.__name__, kernel=function, **settings)
        return function

    return register if kernel is None else register(kernel)


@dataclass(frozen=True)
class Metric:
    """A metric with its parameters; ``str`` gives the canonical name, ``column`` the column name.

    It carries its definition, so that a metric defined in a notebook reaches the executors with it.

    >>> from rankmetrics_spark.metrics import parse
    >>> parse("nDCG@10").column, parse("RBP").column, str(parse("softmax_loss(t=0.10)"))
    ('ndcg_at_10', 'rbp_p_0_8', 'softmax_loss(t=0.1)')
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    cut: int | None = None
    definition: Definition = field(compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        """The canonical name, such as ``ndcg@10``."""
        named = f"({_render(dict(self.parameters))})" if self.parameters else ""
        return self.name + named + (f"@{self.cut}" if self.cut else "")

    @property
    def column(self) -> str:
        """The canonical name as a column name, such as ``ndcg_at_10``."""
        return re.sub(r"[^a-z0-9]+", "_", str(self).replace("@", "_at_").replace(")", ""))

    @property
    def needs(self) -> Needs:
        """Which entries its kernel reads: see ``Definition.needs``."""
        return self.definition.needs

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of its kernel."""
        cut = {"k": self.cut} if "k" in self.definition.parameters else {}
        return {**cut, **dict(self.parameters)}


def _render(parameters: Mapping[str, float]) -> str:
    return ",".join(f"{name}={value!r}".removesuffix(".0") for name, value in parameters.items())


def parse(text: str) -> Metric:
    """A metric from its name: ``name``, ``name@k``, ``name(x=1)``, ``name(x=1)@k``, in any case; aliases are accepted.

    ``name_k`` and ``name_at_k`` are read as ``name@k``, so trec_eval's names and this package's columns parse too.

    Raises:
        ConfigError: for an unknown name (names the nearest known one), or a wrong cut-off or parameter.

    >>> from rankmetrics_spark.metrics import parse
    >>> [str(parse(text)) for text in ("MAP@10", "Precision@5", "ndcg_cut_10", "RBP(p=0.95)@20", "R-Prec")]
    ['ap@10', 'p@5', 'ndcg@10', 'rbp(p=0.95)@20', 'rprec']
    """
    match = _NAME.fullmatch(text.strip().lower())
    if match is None:
        raise errors.ConfigError(f"metric {text!r} is not of the form name, name@10 or name(p=0.8)")
    stem, cut = _split_cut(match["stem"].replace("-", "_"), match["cut"])
    definition = _lookup().get(stem)
    if definition is None:
        raise errors.ConfigError(_unknown(text, stem))
    return Metric(
        definition.name,
        _read_named(text, match["named"], definition),
        _read_cut(text, cut, definition),
        definition=definition,
    )


def _lookup() -> dict[str, Definition]:
    return {name: entry for entry in REGISTRY.values() for name in (entry.name, *entry.aliases)}


def _split_cut(stem: str, cut: str | None) -> tuple[str, str | None]:
    trailing = _TRAILING_CUT.fullmatch(stem)
    if cut is not None or trailing is None or stem in _lookup():
        return stem, cut
    return trailing["stem"], trailing["cut"]


def _unknown(text: str, stem: str) -> str:
    near = get_close_matches(stem, _lookup(), n=1, cutoff=0.5)
    suffix = text.strip()[len(stem) :] if text.strip().lower().startswith(stem) else ""
    hint = f"did you mean '{near[0]}{suffix}'? " if near else ""
    return f"unknown metric '{text}'; {hint}known: {', '.join(REGISTRY)}"


def _read_cut(text: str, cut: str | None, definition: Definition) -> int | None:
    default = definition.parameters.get("k", 0)
    if cut is None and default is inspect.Parameter.empty:
        raise errors.ConfigError(f"metric '{text}' needs a cut-off, such as {definition.name}@10")
    if cut is None:
        return None
    if "k" not in definition.parameters:
        raise errors.ConfigError(f"metric '{text}' takes no cut-off; write {definition.example}")
    if not cut.strip().isdecimal() or not 1 <= int(cut) <= MAX_CUT:
        raise errors.ConfigError(f"metric '{text}': the cut-off {cut!r} must be a whole number from 1 to {MAX_CUT}")
    return int(cut)


def _read_named(text: str, named: str | None, definition: Definition) -> tuple[tuple[str, float], ...]:
    known = {name: default for name, default in definition.parameters.items() if name != "k"}
    given = dict(_pairs(text, named or ""))
    for name in given:
        if name not in known:
            raise errors.ConfigError(errors.unknown(f"parameter of metric '{text}'", name, known or ["none"]))
    return tuple(
        (name, _read_number(text, name, given.get(name, default), definition.bounds)) for name, default in known.items()
    )


def _pairs(text: str, named: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in named.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise errors.ConfigError(f"metric '{text}': write a parameter as name=value, not {part!r}")
        yield name.strip(), value.strip()


def _read_number(text: str, name: str, value: object, bounds: Bounds) -> float:
    low, high = bounds.get(name, (-math.inf, math.inf))
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not low < number < high:
        raise errors.ConfigError(f"metric '{text}': {name} is {value!r}; it must be a number above {low} below {high}")
    return number
