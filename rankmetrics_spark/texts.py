"""Values as text in SQL, the same text on every engine: ids, and the quarantined rows as they came."""

from __future__ import annotations

from pyspark.sql import types as T

REAL = (T.FloatType, T.DoubleType)
_TIMES = (T.TimestampType, T.TimestampNTZType)


def as_text(name: str, kind: T.DataType, engine: str) -> str:
    """SQL: the text that Spark makes of a column.

    Args:
        name: The column.
        kind: Its type.
        engine: ``spark``, or ``sail``, which writes 1e20 where Spark writes 1.0E20, and a T between date and time.

    >>> as_text("user_id", T.DoubleType(), "spark")
    'string(user_id)'
    """
    if engine == "sail" and isinstance(kind, REAL):
        return _real(name)
    if engine == "sail" and isinstance(kind, _TIMES):
        return _time(name)
    return f"string({name})"


def _time(name: str) -> str:
    """Without the T, the zone and the zeros at the end of a fraction."""
    plain = f"replace(replace(string({name}), 'T', ' '), 'Z', '')"
    return f"CASE WHEN contains({plain}, '.') THEN regexp_replace({plain}, '[.]?0+$', '') ELSE {plain} END"


def _real(name: str) -> str:
    """As Java writes doubles: plain from 0.001 to 10,000,000, otherwise with an exponent."""
    size = f"abs({name})"
    infinite = f"CASE WHEN {name} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    return (
        f"CASE WHEN {name} IS NULL THEN NULL WHEN isnan({name}) THEN 'NaN' WHEN {size} = double('inf') THEN {infinite} "
        f"WHEN {name} = 0 OR ({size} >= 0.001D AND {size} < 10000000D) THEN string({name}) "
        f"ELSE concat(CASE WHEN {name} < 0 THEN '-' ELSE '' END, {_scientific(f'string({size})')}) END"
    )


def _scientific(text: str) -> str:
    """1.5e-7 -> 1.5E-7, 100000000.0 -> 1.0E8, 0.00012 -> 1.2E-4."""
    mantissa = f"split({text}, 'e')[0], CASE WHEN contains({text}, '.') THEN '' ELSE '.0' END"
    with_exponent = f"concat({mantissa}, 'E', split({text}, 'e')[1])"
    large = _digits(f"replace({text}, '.', '')", f"length(split({text}, '[.]')[0]) - 1")
    fraction = f"split({text}, '[.]')[1]"
    digits = f"regexp_replace({fraction}, '^0+', '')"
    small = _digits(digits, f"length({digits}) - length({fraction}) - 1")
    return f"CASE WHEN contains({text}, 'e') THEN {with_exponent} WHEN {text} LIKE '0.%' THEN {small} ELSE {large} END"


def _digits(digits: str, exponent: str) -> str:
    """One digit, a point, the others without zeros at the end, and the exponent."""
    others = f"regexp_replace(substring({digits}, 2), '0+$', '')"
    behind = f"CASE WHEN {others} = '' THEN '0' ELSE {others} END"
    return f"concat(substring({digits}, 1, 1), '.', {behind}, 'E', {exponent})"
