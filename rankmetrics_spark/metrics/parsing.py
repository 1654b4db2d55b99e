"""Reads metric names: ``parse("nDCG@10")`` is the metric ``ndcg@10``."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from difflib import get_close_matches

from rankmetrics_spark import errors
from rankmetrics_spark.metrics.names import REGISTRY, Bounds, Definition, Metric, find, names, split_cut

MAX_CUT = 1_000_000
"""The highest cut-off that a metric may have."""

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
    match = _NAME.fullmatch(text.strip().lower())
    if match is None:
        raise errors.ConfigError(f"metric {text!r} is not of the form name, name@10 or name(p=0.8)")
    stem, cut = match["stem"].replace("-", "_"), match["cut"]
    if cut is None:
        stem, cut = split_cut(stem)
    definition = find(stem)
    if definition is None:
        raise errors.ConfigError(_unknown(text, stem))
    return Metric(
        definition.name,
        _read_named(text, match["named"], definition),
        _read_cut(text, cut, definition),
        definition=definition,
    )


def metric_of_column(column: str) -> Metric | None:
    """The metric whose column of ``user_metrics`` has this name; None if there is none.

    >>> [str(metric_of_column(name)) for name in ("ap_at_10", "rbp_p_0_8_at_20", "rr", "country")]
    ['ap@10', 'rbp(p=0.8)@20', 'rr', 'None']
    """
    stem, cut = split_cut(column)
    definition = REGISTRY.get(stem)
    named = "" if definition else _named_in(stem)
    try:
        found = parse((stem if definition else named) + (f"@{cut}" if cut else ""))
    except errors.ConfigError:
        return None
    return found if found.column == column else None


def _named_in(stem: str) -> str:
    """A name with parameters as a column spells them -> ``name(p=0.8)``; the text itself if it has none."""
    for definition in REGISTRY.values():
        known = [name for name in definition.parameters if name != "k"]
        pattern = definition.name + "".join(rf"_{name}_(\d+(?:_\d+)?)" for name in known)
        match = re.fullmatch(pattern, stem) if known else None
        if match:
            pairs = zip(known, match.groups(), strict=True)
            given = ",".join(name + "=" + value.replace("_", ".") for name, value in pairs)
            return f"{definition.name}({given})"
    return stem


def _unknown(text: str, stem: str) -> str:
    near = get_close_matches(stem, names(), n=1, cutoff=0.5)
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
