"""The registry of metrics: what each is called, what its kernel reads, and how its values are to be understood."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, overload

from rankmetrics_spark import errors
from rankmetrics_spark.metrics.batch import Floats
from rankmetrics_spark.metrics.conventions import Convention
from rankmetrics_spark.schemas import METRIC, SEGMENT, USER_COLUMNS

Kernel: TypeAlias = Callable[..., Floats]
K = TypeVar("K", bound=Callable[..., Floats])
Needs: TypeAlias = Literal["relevant", "judged", "scores"]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]

RESERVED = frozenset({*USER_COLUMNS, SEGMENT, METRIC})
"""Columns of the output tables; no metric may have one of these names."""

DIRECTIONS = {True: "higher is better", False: "lower is better", None: "neither direction is better"}
"""What ``Definition.higher_is_better`` means, in words."""

_VALID = re.compile(r"[a-z][a-z0-9_]*")
_TRAILING_CUT = re.compile(r"(?P<stem>.+?)(?:_at)?_(?P<cut>\d+)")


@dataclass(frozen=True)
class Definition:
    """A registered metric: its kernel, what the kernel needs, and how to read its values.

    Attributes:
        name: Canonical name, lower case.
        kernel: ``(lists: Lists, **parameters) -> (n,) floats``.
        aliases: Other names that ``parse`` accepts.
        needs: ``relevant``: entries and judged items with a grade above 0 suffice. ``judged``: every entry and every
            judged item. ``scores``: every entry, with its score.
        zero_policy: Whether ``Convention.zero_relevant`` decides the value of a list where the kernel has none (NaN).
        readings: How the kernel can read tied scores (``Lists.ties``): ``plain``, ``expected``, ``threshold``.
        tie_knob: The field of the convention that decides how this metric reads ties.
        bounds: Lowest and highest value of the named parameters, both excluded.
        higher_is_better: True, False, or None if neither direction is better; under the standard convention.
        range: Lowest and highest possible value, both included; under the standard convention.
        mean_name: What people call the mean over users, such as MAP; empty: ``mean`` and the name in upper case.
    """

    name: str
    kernel: Kernel
    aliases: tuple[str, ...] = ()
    needs: Needs = "relevant"
    zero_policy: bool = True
    readings: tuple[str, ...] = ("plain",)
    tie_knob: str = "ties"
    bounds: Bounds = field(default_factory=dict)
    higher_is_better: bool | None = True
    range: tuple[float, float] = (0.0, 1.0)
    mean_name: str = ""

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
        """A name that ``parse`` accepts.

        >>> from rankmetrics_spark.metrics import REGISTRY
        >>> REGISTRY["p"].example, REGISTRY["ap"].example, REGISTRY["rbp"].example
        ('p@10', 'ap@10', 'rbp(p=0.8)')
        """
        named = {name: default for name, default in self.parameters.items() if name != "k"}
        return self.name + (f"({_render(named)})" if named else "@10" if "k" in self.parameters else "")

    @property
    def headline(self) -> str:
        """What people call the mean over users.

        >>> from rankmetrics_spark.metrics import REGISTRY
        >>> REGISTRY["ap"].headline, REGISTRY["ndcg"].headline
        ('MAP', 'mean NDCG')
        """
        return self.mean_name or f"mean {self.name.upper()}"

    def reading(self, convention: Convention) -> str:
        """How this metric reads ties under a convention: ``plain``, ``expected`` or ``threshold``."""
        knob = getattr(convention, self.tie_knob)
        value = convention.ties if knob == "same" else knob
        return value if value in ("expected", "threshold") else "plain"


REGISTRY: dict[str, Definition] = {}


@overload
def metric(kernel: K) -> K: ...
@overload
def metric(
    *,
    aliases: tuple[str, ...] = ...,
    needs: Needs = ...,
    zero_policy: bool = ...,
    readings: tuple[str, ...] = ...,
    tie_knob: str = ...,
    bounds: Bounds = ...,
    higher_is_better: bool | None = ...,
    range: tuple[float, float] = ...,
    mean_name: str = ...,
) -> Callable[[K], K]: ...
def metric(kernel: Kernel | None = None, **settings: Any) -> Any:
    """Register a kernel ``(lists: Lists, **parameters) -> (n,) floats`` as a metric with the name of the function.

    The kernel returns NaN where the metric has no value (nothing is relevant); the convention decides what NaN becomes.
    A parameter ``k: int`` is a required cut-off, ``k: int | None = None`` an optional one, any other a named number
    with a default. A function that is defined again, as in a notebook cell that runs twice, replaces its old version.

    Args:
        kernel: The function, when used as a bare ``@metric``.
        settings: The other fields of ``Definition``.

    Raises:
        ConfigError: A setting is unknown, or the name or an alias is malformed, reserved or that of another metric.

    >>> from rankmetrics_spark.metrics import parse
    >>> @metric(aliases=("length",))
    ... def list_length(lists):
    ...     return lists.batch.shown.astype(float)
    >>> str(parse("Length"))
    'list_length'
    >>> del REGISTRY["list_length"]
    """

    known = [each.name for each in fields(Definition) if each.name not in ("name", "kernel")]
    for setting in settings:
        if setting not in known:
            raise errors.ConfigError(errors.unknown("setting of a metric", setting, known))

    def register(function: K) -> K:
        definition = Definition(name=function.__name__, kernel=function, **settings)
        for name in (definition.name, *definition.aliases):
            _check_name(name, definition)
        REGISTRY[definition.name] = definition
        return function

    return register if kernel is None else register(kernel)


def _check_name(name: str, new: Definition) -> None:
    if not _VALID.fullmatch(name):
        raise errors.ConfigError(
            f"metric name {name!r} must start with a lower-case letter and hold only lower-case letters, digits and _"
        )
    if name in RESERVED:
        raise errors.ConfigError(f"metric name {name!r} is a column of the output tables; choose another name")
    owner = find(split_cut(name)[0])
    if owner is not None and not _same_function(owner.kernel, new.kernel):
        raise errors.ConfigError(f"metric name {name!r} already belongs to metric {owner.name!r}; choose another name")


def _same_function(one: Kernel, other: Kernel) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def names() -> dict[str, Definition]:
    """Every name and alias, with its metric."""
    return {name: entry for entry in REGISTRY.values() for name in (entry.name, *entry.aliases)}


def find(name: str) -> Definition | None:
    """The metric with this name or alias, or None."""
    return names().get(name)


def split_cut(name: str) -> tuple[str, str | None]:
    """A name that ends in a cut-off, as in trec_eval (``ndcg_cut_10``) and in columns (``ap_at_10``), in two parts.

    >>> split_cut("ndcg_cut_10"), split_cut("ap_at_10"), split_cut("f1")
    (('ndcg_cut', '10'), ('ap', '10'), ('f1', None))
    """
    trailing = _TRAILING_CUT.fullmatch(name)
    if trailing is None or find(name) is not None:
        return name, None
    return trailing["stem"], trailing["cut"]


@dataclass(frozen=True)
class Metric:
    """A metric with its parameters; ``str`` gives the canonical name, ``column`` the column name.

    It holds its definition, so a metric defined in a notebook reaches the executors with it.

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
        return self.name + self._suffix

    @property
    def _suffix(self) -> str:
        named = f"({_render(dict(self.parameters))})" if self.parameters else ""
        return named + (f"@{self.cut}" if self.cut else "")

    @property
    def column(self) -> str:
        """The canonical name as a column name, such as ``ndcg_at_10``."""
        return re.sub(r"[^a-z0-9]+", "_", str(self).replace("@", "_at_").replace(")", ""))

    @property
    def headline(self) -> str:
        """What people call the mean over users.

        >>> from rankmetrics_spark.metrics import parse
        >>> [parse(name).headline for name in ("ap@10", "rr", "ndcg@10", "rbp(p=0.8)")]
        ['MAP@10', 'MRR', 'mean NDCG@10', 'mean RBP(p=0.8)']
        """
        return self.definition.headline + self._suffix

    @property
    def higher_is_better(self) -> bool | None:
        """True, False, or None if neither direction is better."""
        return self.definition.higher_is_better

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


def reference() -> list[dict[str, str]]:
    """Every registered metric in words, for a table in the docs or on the command line.

    Returns:
        One row per metric: ``name`` (one that ``parse`` accepts), ``aliases``, ``mean`` (what people call the mean over
        users), ``range``, ``direction`` and ``summary`` (the formula).

    >>> from rankmetrics_spark.metrics import reference
    >>> for column, text in reference()[0].items():
    ...     print(f"{column}: {text[:60]}")
    name: ap@10
    aliases: map, map_cut, average_precision, mean_average_precision
    mean: MAP
    range: 0 to 1
    direction: higher is better
    summary: Average precision: sum of r_i P_i for i <= k, over the conve
    """
    return [
        {
            "name": definition.example,
            "aliases": ", ".join(definition.aliases),
            "mean": definition.headline,
            "range": _range_in_words(*definition.range),
            "direction": DIRECTIONS[definition.higher_is_better],
            "summary": definition.summary,
        }
        for definition in REGISTRY.values()
    ]


def _range_in_words(low: float, high: float) -> str:
    return f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
