"""The registry of metrics: what each is called, what its kernel reads, and how its values are to be understood."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, overload

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.metrics import batch, conventions

Kernel: TypeAlias = Callable[..., batch.Floats]
K = TypeVar("K", bound=Callable[..., batch.Floats])
Needs: TypeAlias = Literal["relevant", "judged", "scores", "intents", "shown_intents"]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]

#: Columns of the output tables; no metric may have one of these names.
RESERVED = frozenset({*sch.USER_COLUMNS, sch.SEGMENT, sch.METRIC})

#: What ``Definition.higher_is_better`` means, in words.
DIRECTIONS = {True: "higher is better", False: "lower is better", None: "neither direction is better"}


def _fields_alone(of: Any) -> dict[str, Any]:
    """What travels to workers: without kept properties, which another thread may add while this is written."""
    return {each.name: getattr(of, each.name) for each in fields(of)}


@dataclass(frozen=True)
class Definition:
    """A registered metric: its kernel, what the kernel needs, and how to read its values.

    Attributes:
        name: Canonical name, lower case.
        kernel: ``(lists: Lists, **parameters) -> (n,) floats``.
        aliases: Other names that ``parse`` accepts.
        needs: ``relevant``: entries and judged items with a grade above 0 suffice. ``judged``: every entry and every
            judged item. ``scores``: every entry, with its score. ``intents``: every entry and judged item, with its
            intents; ``shown_intents``: those of the entries alone.
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
    __getstate__ = _fields_alone

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
        defaults = {name: default for name, default in self.parameters.items() if name != "k"}
        needs_cut = self.parameters.get("k") is inspect.Parameter.empty
        cut = "@10" if needs_cut or ("k" in self.parameters and not defaults) else ""
        return self.name + (f"({_render(defaults)})" if defaults else "") + cut

    @property
    def headline(self) -> str:
        """What people call the mean over users.

        >>> from rankmetrics_spark.metrics import REGISTRY
        >>> REGISTRY["ap"].headline, REGISTRY["ndcg"].headline
        ('MAP', 'mean NDCG')
        >>> REGISTRY["r"].headline, REGISTRY["hit_rate"].headline
        ('mean Recall', 'mean Hit rate')
        """
        # Longer names are words, not initials.
        words = self.name.upper() if len(self.name) <= 4 else self.name.replace("_", " ").capitalize()
        return self.mean_name or f"mean {words}"

    def reading(self, convention: conventions.Convention) -> str:
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

    allowed = [entry.name for entry in fields(Definition) if entry.name not in ("name", "kernel")]
    err.check_known("setting of a metric", settings, allowed)

    def register(function: K) -> K:
        definition = Definition(name=function.__name__, kernel=function, **settings)
        for name in (definition.name, *definition.aliases):
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise err.ConfigError.of("no_metric_name", name=name)
            if name in RESERVED:
                raise err.ConfigError(f"metric name {name!r} is a column of the output tables; choose another name")
            owner = names().get(split_cut(name)[0])
            kernels = {(each.kernel.__module__, each.kernel.__qualname__) for each in (owner or definition, definition)}
            if owner is not None and len(kernels) > 1:
                raise err.ConfigError.of("metric_name_taken", name=name, owner=owner.name)
        REGISTRY[definition.name] = definition
        return function

    return register if kernel is None else register(kernel)


def names() -> dict[str, Definition]:
    """Every name and alias, with its metric."""
    return {name: entry for entry in REGISTRY.values() for name in (entry.name, *entry.aliases)}


def split_cut(name: str) -> tuple[str, str | None]:
    """A name that ends in a cut-off, as in trec_eval (``ndcg_cut_10``) and in columns (``ap_at_10``), in two parts.

    >>> split_cut("ndcg_cut_10"), split_cut("ap_at_10"), split_cut("f1")
    (('ndcg_cut', '10'), ('ap', '10'), ('f1', None))
    """
    match = re.fullmatch(r"(?P<stem>.+?)(?:_at)?_(?P<cut>\d+)", name)
    if match is None or name in names():
        return name, None
    return match["stem"], match["cut"]


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
    __getstate__ = _fields_alone

    def __str__(self) -> str:
        """The canonical name, such as ``ndcg@10``."""
        values = f"({_render(dict(self.parameters))})" if self.parameters else ""
        return self.name + values + (f"@{self.cut}" if self.cut else "")

    @cached_property
    def column(self) -> str:
        """The canonical name as a column name, such as ``ndcg_at_10``."""
        return re.sub(r"[^a-z0-9]+", "_", str(self).replace("@", "_at_").replace(")", ""))

    @property
    def headline(self) -> str:
        """What people call the mean over users.

        >>> from rankmetrics_spark.metrics import parse
        >>> [parse(name).headline for name in ("ap@10", "rr", "r@10", "softmax_loss(t=1)")]
        ['MAP@10', 'MRR', 'mean Recall@10', 'mean Softmax loss (t = 1)']
        """
        values = _render(dict(self.parameters)).replace("=", " = ").replace(",", ", ")
        return self.definition.headline + (f" ({values})" if values else "") + (f"@{self.cut}" if self.cut else "")

    @cached_property
    def higher_is_better(self) -> bool | None:
        """True, False, or None if neither direction is better."""
        return self.definition.higher_is_better

    def room(self, mean: float) -> float:
        """The largest change from a mean that the values allow, up or down.

        >>> from rankmetrics_spark.metrics import parse
        >>> parse("ap").room(0.75), parse("ap").room(0.25), parse("dcg@10").room(0.5)
        (0.75, 0.75, inf)
        """
        low, high = self.definition.range
        return max(high - mean, mean - low)

    @cached_property
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
            "range": f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more",
            "direction": DIRECTIONS[definition.higher_is_better],
            "summary": definition.summary,
        }
        for definition in REGISTRY.values()
        for low, high in [definition.range]
    ]


#: The highest cut-off that a metric may have.
MAX_CUT = 1_000_000

_NAME = re.compile(r"(?P<stem>[a-z][a-z0-9_-]*?)\s*(?:\((?P<named>[^()]*)\))?\s*(?:@\s*(?P<cut>[^@]*))?")


def parse(text: str) -> Metric:
    """A metric from its name.

    Args:
        text: ``name``, ``name@k``, ``name(x=1)`` or ``name(x=1)@k``, in any case, or an alias in place of the name.
            ``name_k`` and ``name_at_k`` are read as ``name@k``: trec_eval's names and this package's columns parse.

    Raises:
        ConfigError: If the name is unknown (suggests the nearest one), or the cut-off or a parameter is not allowed.

    >>> [str(parse(text)) for text in ("MAP@10", "Precision@5", "ndcg_cut_10", "RBP(p=0.95)@20", "R-Prec")]
    ['ap@10', 'p@5', 'ndcg@10', 'rbp(p=0.95)@20', 'rprec']
    """
    match = _NAME.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if match is None:
        raise err.ConfigError(f"metric {text!r} is not of the form name, name@10 or name(p=0.8)")
    stem, cut = match["stem"].replace("-", "_"), match["cut"]
    if cut is None:
        stem, cut = split_cut(stem)
    definition = names().get(stem)
    if definition is None:
        near = get_close_matches(stem, names(), n=1, cutoff=0.5)
        suffix = text.strip()[len(stem) :] if text.strip().lower().startswith(stem) else ""
        hint = f"did you mean '{near[0]}{suffix}'? " if near else ""
        raise err.ConfigError(f"unknown metric '{text}'; {hint}known: {', '.join(REGISTRY)}")
    named = _read_named(text, match["named"], definition)
    if cut is None and definition.parameters.get("k", 0) is inspect.Parameter.empty:
        raise err.ConfigError(f"metric '{text}' needs a cut-off, such as {definition.name}@10")
    if cut is not None and "k" not in definition.parameters:
        raise err.ConfigError(f"metric '{text}' takes no cut-off; write {definition.example}")
    if cut is not None and not (cut.strip().isdecimal() and 1 <= int(cut) <= MAX_CUT):
        raise err.ConfigError(f"metric '{text}': the cut-off {cut!r} must be a whole number from 1 to {MAX_CUT}")
    return Metric(definition.name, named, None if cut is None else int(cut), definition=definition)


def metric_of_column(column: str) -> Metric | None:
    """The metric whose column of ``user_metrics`` has this name; None if there is none.

    >>> [str(metric_of_column(name)) for name in ("ap_at_10", "rbp_p_0_8_at_20", "softmax_loss_t_1", "country")]
    ['ap@10', 'rbp(p=0.8)@20', 'softmax_loss(t=1)', 'None']
    """
    for definition in REGISTRY.values():
        parameters = [name for name in definition.parameters if name != "k"]
        pattern = definition.name + "".join(rf"_{name}_(\d+(?:_\d+)?)" for name in parameters) + r"(?:_at_(\d+))?"
        if match := re.fullmatch(pattern, column):
            *texts, cut = match.groups()
            values = ",".join(f"{name}={text.replace('_', '.')}" for name, text in zip(parameters, texts, strict=True))
            with suppress(err.ConfigError):
                metric = parse(definition.name + (f"({values})" if values else "") + (f"@{cut}" if cut else ""))
                return metric if metric.column == column else None
    return None


def _read_named(text: str, parameters: str | None, definition: Definition) -> tuple[tuple[str, float], ...]:
    values = {name: default for name, default in definition.parameters.items() if name != "k"}
    texts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in (parameters or "").split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise err.ConfigError(f"metric '{text}': write a parameter as name=value, not {part!r}")
        texts[name.strip()] = value.strip()
    if texts:
        err.check_known(f"parameter of metric '{text}'", texts, values)
    for name, given in (values | texts).items():
        low, high = definition.bounds.get(name, (-math.inf, math.inf))
        values[name] = conventions.number_in(given)
        if not low < values[name] < high:
            raise err.ConfigError(f"metric '{text}': {name} is {given!r}; it must be a number above {low} below {high}")
    return tuple(values.items())


def cut_of(metric: Metric) -> float:
    """The cut-off; infinity without one."""
    return metric.cut or math.inf


def deciding(metrics: Sequence[Metric]) -> Metric | None:
    """The metric that decides unless it is said which: the first one, with its largest cut-off.

    >>> str(deciding([parse("ap@5"), parse("ap@10"), parse("ndcg@20")]))
    'ap@10'
    """
    return max((metric for metric in metrics if metric.name == metrics[0].name), key=cut_of, default=None)


def check(metrics: Iterable[Metric], convention: conventions.Convention) -> None:
    """Refuse metrics that cannot read tied scores as the convention asks.

    Args:
        metrics: Metrics from ``parse``.
        convention: Its tie knobs are checked.

    Raises:
        ConfigError: Names the metric, and the metrics that can.
    """
    for metric in metrics:
        if metric.definition.reading(convention) not in metric.definition.readings:
            able = [name for name, definition in REGISTRY.items() if "expected" in definition.readings]
            raise err.ConfigError.of("no_expected_value", metric=metric, able=able)


#: Column of ``user_metrics`` with a hash of the items of a user's lists, all of them; see ``list_hash``.
LIST_HASH = "list_hash"


def list_hash(cut: int | None) -> str:
    """The column of ``user_metrics`` with a hash of which item is at which rank of a user's lists, down to a cut-off.

    >>> list_hash(10), list_hash(None)
    ('list_hash_at_10', 'list_hash')
    """
    return LIST_HASH if cut is None else f"{LIST_HASH}_at_{cut}"


def hashed_cut(column: str) -> float | None:
    """The cut-off of a column with a hash of lists, infinity without one; None for another column.

    >>> hashed_cut("list_hash_at_10"), hashed_cut("list_hash"), hashed_cut("list_hash_at_x")
    (10.0, inf, None)
    """
    match = re.fullmatch(rf"{LIST_HASH}(?:_at_(\d+))?", column)
    return None if match is None else float(match[1] or math.inf)
