"""Rows that are lists or hold structs, in the sample of a log: items as rows, fields as columns."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

#: Column of a sample with the rank that an item has by its place.
PLACE = "(place in the list)"
_ID = r"[\w.:]*\d[\w.:-]*"
_CELL = re.compile(rf"{_ID}( {_ID})*")
_WITH_CLICK = re.compile(rf"({_ID}|[\w.:-]+)-[01]( ([\w.:-]+)-[01])*")
_TIME = r"\d{1,4}[-/]\d\d?[-/]\d{1,4}[ T]"
_MOSTLY = 0.9
_MOST_FIELDS = 100
#: Column -> the values of its lists.
Cells: TypeAlias = Mapping[str, Sequence[Sequence[object]]]
#: Part of an item -> its place around the dash.
_PARTS = {"item": 0, "relevance": 2}


class Lists(NamedTuple):
    """How the rows of a log hold lists.

    Attributes:
        rows: One row per item: fields of structs and arrays as columns, and ``PLACE``; the index is that of its list.
        items: The column of lists with fields or in texts; None for arrays side by side.
        packed: How texts hold items, as a config says it; empty for arrays.
        item: The column that looks like the items.
        chosen: The columns of ``rows`` with a value per item.
    """

    rows: pd.DataFrame
    items: str | None = None
    packed: str = ""
    item: str | None = None
    chosen: Sequence[str] = ()

    def written(self, column: str) -> str:
        """What a config calls a column of the items: the field, or the array."""
        return column.removeprefix(f"{self.items}.") if self.items else column


def lists_of(rows: pd.DataFrame, arrays: Sequence[str], texts: bool) -> Lists | None:
    """The lists of a sample; None if its rows are items.

    Args:
        rows: The sample.
        arrays: Its columns with arrays.
        texts: Whether cells of text may hold lists too.
    """
    filled = {name: next(filter(_size, rows[name]), None) for name in arrays}
    structs = [name for name, value in filled.items() if value is not None and isinstance(value[0], dict)]
    if structs:
        return _of_structs(rows, structs[0])
    plain = [name for name, value in filled.items() if value is not None]
    if plain:
        # Arrays of equal lengths belong together.
        sizes = {name: tuple(_size(value) for value in rows[name]) for name in plain}
        most = max(plain, key=lambda name: (list(sizes.values()).count(sizes[name]), sum(sizes[name])))
        beside = [name for name in plain if sizes[name] == sizes[most]]
        cells = {name: [list(value) if _size(value) else [] for value in rows[name]] for name in beside}
        # Like items are those with the most different values.
        items = max(beside, key=lambda name: len({str(value) for values in cells[name] for value in values}))
        return _exploded(rows, cells, None, "", items)
    return _of_texts(rows) if texts else None


def _size(value: object) -> int:
    return len(value) if isinstance(value, (list, np.ndarray)) else 0


def _of_structs(rows: pd.DataFrame, name: str) -> Lists:
    """The fields of a column of structs."""
    values = [list(value) if _size(value) else [] for value in rows[name]]
    structs = [[each if isinstance(each, dict) else {} for each in value] for value in values]
    fields = dict.fromkeys(key for value in structs for each in value for key in each)
    cells = {f"{name}.{key}": [[each.get(key) for each in value] for value in structs] for key in fields}
    own_id = next((f"{name}.{key}" for key in fields if key.lower() in ("id", "_id")), None)
    return _exploded(rows, cells, name, "", own_id)


def _of_texts(rows: pd.DataFrame) -> Lists | None:
    """Ids with blanks between them, perhaps each with 0 or 1 after a dash, in the cells of one column."""
    with_clicks, plain = [], []
    for name in map(str, rows):
        cells = rows[name].dropna().astype(str).str.strip()
        several = cells.str.contains(" ").mean() if len(cells) else 0
        if several < 0.5 or cells.str.match(_TIME).mean() > 0.5:
            continue
        if cells.map(lambda cell: bool(_WITH_CLICK.fullmatch(cell))).mean() > _MOSTLY:
            with_clicks.append(name)
        elif cells.map(lambda cell: bool(_CELL.fullmatch(cell))).mean() > _MOSTLY:
            plain.append(name)
    names = with_clicks or plain
    if len(names) != 1:
        return None
    (name,) = names
    texts = [str(cell).split() for cell in rows[name].fillna("")]
    if plain and not with_clicks:
        return _exploded(rows, {name: texts}, name, '{separator: " "}', name)
    parts = [[part.rpartition("-") for part in cell] for cell in texts]
    values = {f"{name}.{role}": [[part[at] for part in cell] for cell in parts] for role, at in _PARTS.items()}
    return _exploded(rows, values, name, '{parts: [item, relevance], between: "-"}', f"{name}.item")


def _exploded(rows: pd.DataFrame, cells: Cells, items: str | None, packed: str, item: str | None) -> Lists:
    """One row per item, with the other columns of its list."""
    sizes = [len(value) for value in next(iter(cells.values()))] if cells else [0] * len(rows)
    others = [name for name in rows if name not in cells and name != items]
    flat = rows[others].loc[rows.index.repeat(sizes)].copy()
    for name, values in cells.items():
        flat[name] = pd.Series([each for value in values for each in value], index=flat.index, dtype=object)
    flat[PLACE] = [place for size in sizes for place in range(1, size + 1)]
    return Lists(flat, items, packed, item, [*cells])


# ---- structs


def columns_of(rows: pd.DataFrame, *kinds: type) -> list[str]:
    """The columns with a value of one of these types."""
    return [str(name) for name in rows if rows[name].map(lambda value: isinstance(value, kinds)).any()]


def with_fields(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column for each field of a struct, such as ``event.user.id``."""
    if not columns_of(rows, dict):
        return rows
    columns = [field for name in rows for field in _fields(str(name), rows[name])]
    return pd.DataFrame(dict(columns), index=rows.index)


def _fields(name: str, column: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """The column, or the fields of its structs; a struct with a field per item or user is left out."""
    structs = [value if isinstance(value, dict) else {} for value in column]
    fields = dict.fromkeys(key for struct in structs for key in struct)
    if not fields:
        yield name, column
    elif len(fields) <= _MOST_FIELDS:
        for key in fields:
            yield from _fields(f"{name}.{key}", pd.Series([each.get(key) for each in structs], index=column.index))
