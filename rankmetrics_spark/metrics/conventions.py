"""The choices (knobs) on which systems disagree, as one frozen value, and presets that reproduce named systems."""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np

from rankmetrics_spark import doors, errors as err
from rankmetrics_spark.metrics.batch import Bools, Floats

GainTable: TypeAlias = tuple[tuple[float, float], ...]


def _choice(default: str | int, *others: str | int, later: bool = False) -> Any:
    """A knob with these values; ``later``: its default is left out of ``digest``, so older tables keep their hash."""
    values = (default, *others)
    by_text = {str(value).lower(): value for value in values}

    def read(name: str, value: object) -> object:
        key = str(value).replace(" ", "").lower()
        if key not in by_text:
            raise err.ConfigError(err.unknown(name, value, map(str, values)))
        return by_text[key]

    return field(default=default, metadata={"read": read, "values": values, "later": later})


def _number(default: float, lowest: float, *, inclusive: bool) -> Any:
    bound = f"{'at least' if inclusive else 'above'} {lowest:g}"

    def read(name: str, value: object) -> float:
        number = _float(name, value)
        if number < lowest or (number == lowest and not inclusive):
            raise err.ConfigError(f"{name} is {value!r}; it must be a number {bound}")
        return number

    return field(default=default, metadata={"read": read})


def number_in(value: object) -> float:
    """A number, or the one that a text is; NaN of anything else.

    >>> number_in("0.5"), number_in(True)
    (0.5, nan)
    """
    with suppress(ValueError):
        return float(str(value))
    return np.nan


def _float(name: str, value: object) -> float:
    number = number_in(value)
    if not np.isfinite(number):
        raise err.ConfigError(f"{name} is {value!r}; it must be a finite number")
    return number


def _read_table(name: str, value: object) -> GainTable:
    pairs = value.items() if isinstance(value, Mapping) else value
    listed: list[Any] = [*pairs] if isinstance(pairs, Iterable) and not isinstance(pairs, str) else [None]
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in listed):
        raise err.ConfigError(f"{name} is {value!r}; it must map grades to gains, such as {{1: 0.5, 2: 1}}")
    table = tuple(sorted((_float(name, grade), _float(name, gain)) for grade, gain in listed))
    if any(grade <= 0 or gain < 0 for grade, gain in table):
        raise err.ConfigError(f"{name} is {value!r}; grades must be above 0 and gains at least 0")
    return table


@dataclass(frozen=True)
class Convention:
    """One way to read AP, NDCG and related metrics. Two are equal if all knobs are equal; preset names do not count.

    Attributes:
        ap_denominator: What the sum of precisions is divided by. m = relevant judged items, k = the cut-off,
            L = length of the list, hits = relevant items in the top k. Without a cut-off, min(m,k) is m and k is L.
        ap_ties: How AP reads tied scores; ``threshold`` gives each relevant item the precision at the end of its tie.
        duplicates: What to do if an item is in a list twice: refuse the list, keep the best rank, keep the highest
            grade (then the best rank), or count each occurrence, in the list and in the pool of judged items.
        gain: Gain of a grade g > 0 in CG, DCG and NDCG: g, 2^g - 1, 1 for a relevant grade (``binary``), or the last
            entry of ``gain_table`` up to g.
        gain_table: Pairs of (grade, gain), ascending, for ``gain: table``; a mapping is accepted.
        ideal_pool: The items of the ideal list in NDCG: all judged, those shown, or k items of gain 1 (``constant_k``).
        max_grade: The highest grade in ERR (4 in gdeval); higher grades count as this one.
        ndcg_ties: How DCG, NDCG and AUC read tied scores; ``expected`` counts a tied pair half in AUC.
        population: Which users enter the mean: those with a list (shown), with judgements (judged), both, or either.
        relevant_from: Lowest relevant grade; 0 means any grade above 0. It belongs to the data, not to a system. Of the
            gains only ``binary`` depends on it.
        relevant_pool: The items among which m counts: all judged, or those shown, for systems that know no others.
        score_precision: Bits to which scores are rounded before lists are ordered by score.
        ties: Order of equal scores; ``expected`` is the mean over all orders.
        zero_relevant: Value of a metric where nothing is relevant: 0, left out, or 1. A list that is left out is left
            out of every metric. Under ``ap_denominator: hits`` or ``ideal_pool: shown``, ``skip`` also leaves out a
            list whose relevant items are all judged and none shown, in recall too.
        unjudged: Whether a shown item without a judgement stays where it is, as not relevant, or is removed before
            anything is computed, so that the items below move up (condensed lists). A negative grade is a judgement.
        preset: Name of the preset this came from; for display only.

    >>> Convention().ap_denominator, Convention(gain="binary") == Convention()
    ('min(m,k)', False)
    """

    ap_denominator: str = _choice("min(m,k)", "m", "hits", "k", "min(L,k)")
    ap_ties: str = _choice("same", "expected", "threshold")
    duplicates: str = _choice("highest_grade", "best_rank", "refuse", "count")
    gain: str = _choice("linear", "exponential", "binary", "table")
    gain_table: GainTable = field(default=(), metadata={"read": _read_table})
    ideal_pool: str = _choice("judged", "shown", "constant_k")
    max_grade: float = _number(4.0, 0.0, inclusive=False)
    ndcg_ties: str = _choice("same", "expected")
    population: str = _choice("shown", "judged", "both", "either")
    relevant_from: float = _number(0.0, 0.0, inclusive=True)
    relevant_pool: str = _choice("judged", "shown", later=True)
    score_precision: int = _choice(64, 32)
    ties: str = _choice("item_desc", "item_asc", "position", "expected", "best", "worst")
    zero_relevant: str = _choice("zero", "skip", "one")
    unjudged: str = _choice("not_relevant", "removed", later=True)
    preset: str = field(default="standard", compare=False)

    def __post_init__(self) -> None:
        """Check every knob and bring it to its type.

        Raises:
            ConfigError: If a knob has a value that it does not allow.
        """
        for knob in knobs(self):
            object.__setattr__(self, knob.name, knob.metadata["read"](knob.name, getattr(self, knob.name)))
        if (self.gain == "table") != bool(self.gain_table):
            raise err.ConfigError.of("gain_without_table", gain=self.gain, table=repr(self.gain_table))

    @property
    def averages_ties(self) -> bool:
        """Whether metrics need the tie groups of a batch (``tie_first``, ``tie_last``)."""
        return "expected" in (self.ties, self.ap_ties, self.ndcg_ties) or self.ap_ties == "threshold"

    @property
    def name(self) -> str:
        """The preset, with the knobs that differ from it.

        >>> resolve({"preset": "trec_eval", "ties": "expected"}).name
        'trec_eval(ties=expected)'
        """
        base = _settings(PRESETS[self.preset]) if self.preset in PRESETS else {}
        overrides = ";".join(f"{knob}={text}" for knob, text in _settings(self).items() if base.get(knob) != text)
        return f"{self.preset}({overrides})" if overrides else self.preset

    def relevant(self, grade: Floats) -> Bools:
        """Which grades are relevant to binary metrics; NaN (unjudged), 0 and negative grades never are.

        >>> resolve({"relevant_from": 2}).relevant(np.array([np.nan, -1, 0, 1, 2])).tolist()
        [False, False, False, False, True]
        """
        return np.asarray((grade > 0) & (grade >= self.relevant_from))

    def text(self) -> str:
        """The preset and every knob in alphabetical order, as one line.

        >>> Convention().text()[:49]
        'standard;ap_denominator=min(m,k);ap_ties=same;dup'
        """
        return ";".join([self.preset, *(f"{knob}={text}" for knob, text in _settings(self).items())])

    def digest(self) -> str:
        """Eight hexadecimal digits that are equal exactly when every knob is.

        >>> Convention(preset="mine").digest() == Convention().digest()
        True
        """
        usual, later = _settings(STANDARD), {knob.name for knob in knobs(self) if knob.metadata.get("later")}
        told = (f"{knob}={text}" for knob, text in _settings(self).items() if knob not in later or text != usual[knob])
        return hashlib.sha256(";".join(told).encode()).hexdigest()[:8]


def knobs(convention: Convention | type[Convention] = Convention) -> list[Any]:
    """The dataclass fields that are knobs, in alphabetical order; ``metadata["values"]`` lists what a choice allows."""
    return sorted((knob for knob in fields(convention) if knob.metadata), key=lambda knob: knob.name)


def _settings(convention: Convention) -> dict[str, str]:
    values = {knob.name: getattr(convention, knob.name) for knob in knobs(convention)}
    return {
        name: ",".join(f"{grade!r}:{gain!r}" for grade, gain in value) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
    }


STANDARD = Convention()
PRESETS = {name: Convention(preset=name, **own) for name, own in doors.data_of(__name__, "presets").items()}


def resolve(value: str | Mapping[str, object] | Convention) -> Convention:
    """A convention from what a config holds: a preset, or a preset with overrides.

    Args:
        value: A preset such as ``"trec_eval"``, a mapping such as ``{"preset": "trec_eval", "ties": "expected"}``
            (default preset: standard), the text of a convention, or a convention, which is returned unchanged.

    Raises:
        ConfigError: If a preset, knob or value is unknown; suggests the nearest one.

    >>> resolve("trec_eval").ap_denominator, resolve({"gain": {1: 0.5, 2: 1}}).gain_table
    ('m', ((1.0, 0.5), (2.0, 1.0)))
    >>> resolve(resolve({"gain": {1: 0.5, 2: 1}}).text()) == resolve({"gain": {1: 0.5, 2: 1}})
    True
    """
    if isinstance(value, Convention):
        return value
    if isinstance(value, str) and ";" in value:
        # As run records hold it.
        preset, *settings = value.split(";")
        texts = dict(setting.partition("=")[::2] for setting in settings)
        table = [pair.partition(":")[::2] for pair in texts.pop("gain_table", "").split(",") if pair]
        return replace(_override(STANDARD, {**texts, "gain_table": table}), preset=preset)
    if isinstance(value, str):
        return _preset(value)
    if not isinstance(value, Mapping):
        raise err.ConfigError(f"convention is {value!r}; it must be a preset or a mapping of knobs")
    overrides = {str(knob): setting for knob, setting in value.items()}
    return _override(_preset(overrides.pop("preset", "standard")), overrides)


def _preset(name: object) -> Convention:
    key = str(name).strip().lower()
    if key not in PRESETS:
        raise err.ConfigError(err.unknown("convention", name, PRESETS))
    return PRESETS[key]


def _override(base: Convention, overrides: dict[str, Any]) -> Convention:
    known = ["preset", *(knob.name for knob in knobs())]
    err.check_known("convention knob", overrides, known)
    gain = overrides.get("gain")
    if isinstance(gain, Mapping):
        overrides = {**overrides, "gain": "table", "gain_table": gain}
    elif gain is not None and gain != "table":
        overrides = {"gain_table": (), **overrides}
    return replace(base, **overrides)
