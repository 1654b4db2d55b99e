"""Guess the columns of a log from their names and values, and say how sure each guess is."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rankmetrics_spark import config as cfg, errors as err
from rankmetrics_spark.tools.log_sample import OWN_NAMES, WORDS, words_of

#: Role -> the names that people give its column, the most telling first; only letters and digits count.
NAMES = OWN_NAMES | {"experiment": f"{OWN_NAMES['experiment']} {WORDS['also_of_items']}"}
NAMES["list"] = f"{cfg.LIST_NAMES} {OWN_NAMES['list']}"
#: Names of columns that number the parts of one list.
_PARTS = re.compile(r"(page|slot|block|row|offset)(no|nr|num|number|index|idx)?$")
#: Names of a baseline, the most telling first.
CONTROLS = WORDS["controls"].split()
_MOST_PARTS = 100
_MOST_ARMS = 20
#: A few faulty rows are no reason to doubt a name.
_MOST_FAULTY = 0.01
_DECIMAL_COMMA = r"[-+]?\d+,\d+"
_NEEDED = WORDS["needed"]


class Guess(NamedTuple):
    """A column for a role, and how sure that is: ``given``, ``sure``, ``likely`` or ``a guess``, with why.

    Lists may need several columns: ``beside`` holds those after the first.
    """

    column: str
    reason: str
    beside: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All its columns; only lists have several."""
        return (self.column, *self.beside)

    @property
    def sureness(self) -> str:
        """How sure it is, without why."""
        return self.reason.partition(",")[0]


def guesses(
    rows: pd.DataFrame, roles: Mapping[str, str], refused: Container[str] = (), placed: Mapping[str, str] | None = None
) -> dict[str, Guess]:
    """Role -> its column; roles without a plausible column are left out.

    Args:
        rows: A sample of the log.
        roles: Role -> column, as the user says.
        refused: Columns that the user says are not the experiment.
        placed: Role -> column, as the kind of the file says.

    Raises:
        ConfigError: A given column is not in the log, or there is no such role.
    """
    for role, column in roles.items():
        err.check_known("role", [role], NAMES, "--column")
        err.check_known("column", [column], [*map(str, rows.columns)], f"--column {role}={column}")
    columns = {role: Guess(column, "given") for role, column in roles.items()}
    for role, column in (placed or {}).items():
        if role not in columns and column not in roles.values():
            columns[role] = Guess(column, "likely, by its place in the line")
    free = _free(rows, columns)
    unknown = [role for role in NAMES if role not in columns]
    named = {role: [name for name in named_like(free, role) if _fits(rows[name], role)] for role in unknown}
    columns |= {role: _by_name(role, names) for role, names in named.items() if names}
    # Where no column names users, searches count; Expedia calls them srch_id.
    if "user" not in columns and "list" in columns and re.match("(sea|s)rch", cfg.letters(columns["list"].column)):
        searches = columns.pop("list").column
        columns["user"] = Guess(searches, "likely, since no column names users: each search counts as one")
    # What lists look like depends on their user; what experiments do depends on the position as well.
    if len(names := named.get("position", ())):
        columns["position"] = _weighed(names, {name: _odd_position(rows, columns, name) for name in names})
        if columns["position"].sureness == "a guess":
            columns["position"] = _position_by_values(rows, columns, named.get("experiment", ())) or columns["position"]
    if names := named.get("experiment", ()):
        if guess := _experiment(rows, columns, names):
            columns["experiment"] = guess
        else:
            del columns["experiment"]
    for role in ("relevance", "position"):
        fitting = [name for name in _free(rows, columns) if _has_values_of(rows[name], role)]
        if role == "position":  # within a list, ranks differ; the number of a query does not
            fitting = [name for name in fitting if "user" in columns and _varies(rows, columns["user"].column, name)]
        if role not in columns and len(fitting) == 1:
            columns[role] = Guess(fitting[0], "a guess, by its values")
    if guess := _experiment_by_values(rows, columns, refused):
        columns["experiment"] = guess
    if "list" not in roles and (guess := _list_by_values(rows, columns)):
        columns["list"] = guess
    return columns


def _free(rows: pd.DataFrame, columns: Mapping[str, Guess]) -> list[str]:
    """The columns without a role."""
    taken = {name for guess in columns.values() for name in guess.columns}
    return [str(name) for name in rows.columns if name not in taken]


def named_like(names: Iterable[str], role: str) -> list[str]:
    """Those of these columns whose names say the role, the most telling first.

    >>> named_like(["rank", "page", "event.user.position"], "position")
    ['event.user.position', 'rank']
    """
    words = {name: words_of(name) for name in names}
    return list(dict.fromkeys(name for word in NAMES[role].split() for name in words if word in words[name]))


def _by_name(role: str, names: Sequence[str]) -> Guess:
    others = names[1:] if role not in ("date", "list") else ()
    return Guess(names[0], f"likely, by its name; or {', '.join(others)}" if others else "sure, by its name")


def _weighed(names: Sequence[str], odd: Mapping[str, str]) -> Guess:
    """The first column whose values agree with its name, or the first one where none does.

    Args:
        names: Columns whose names say the role, the most telling first.
        odd: Column -> what contradicts its name, or an empty text.
    """
    agreeing = [name for name in names if not odd[name]]
    if len(agreeing) == len(names):
        return _by_name("", names)
    if not agreeing:
        return Guess(names[0], f"a guess, by its name; but {odd[names[0]]}{_others(names)}")
    contradicted = "; ".join(f"not {name}: {odd[name]}" for name in names if odd[name])
    return Guess(agreeing[0], f"likely, by its name and values{_others(agreeing)}; {contradicted}")


def _others(names: Sequence[str]) -> str:
    """The columns after the first one, in words."""
    return f"; or {', '.join(names[1:])}" if names[1:] else ""


# ---- positions


def _odd_position(rows: pd.DataFrame, columns: Mapping[str, Guess], name: str) -> str:
    """What keeps a column from being a position; empty if nothing does.

    Lists may be cut, and hold only the rows with a click: most of them decide.
    """
    keys = [columns[role].column for role in ("user", "date") if role in columns]
    requests = columns.get("list")
    if requests and 2 * len(rows[[*keys, requests.column]].drop_duplicates()) <= len(rows):
        keys.append(requests.column)
    if not keys:
        return ""
    values = numbers(rows[name])
    lists = values.groupby([rows.loc[values.index, key] for key in keys], sort=False)
    if (lists.min() <= 1).mean() < 0.5:
        return "lists of the sample do not start at 0 or 1"
    if (lists.max() <= 2 * lists.count() + 1).mean() < 0.5:
        return f"lists of {lists.count().median():g} rows reach {lists.max().median():g}"
    return ""


def _varies(rows: pd.DataFrame, user: str, name: str) -> bool:
    """Whether a column has several values for most users with several rows."""
    of_users = rows.groupby(user)[name].agg(["size", "nunique"])
    several = of_users[of_users["size"] > 1]
    return bool(2 * (several["nunique"] > 1).sum() > len(several))


def _position_by_values(rows: pd.DataFrame, columns: Mapping[str, Guess], experiments: Sequence[str]) -> Guess | None:
    """The only column without a role that behaves like a position, where the one with the name does not."""
    named = columns["position"]
    others = {role: guess for role, guess in columns.items() if role != "position"}
    ranks = [name for name in _free(rows, columns) if _has_values_of(rows[name], "position")]
    fitting = [name for name in ranks if not _odd_position(rows, others, name)]
    fitting = [name for name in fitting if not repeats(rows, {**others, "position": Guess(name, "")}, experiments)]
    odd = named.reason.partition("; but ")[2]
    return Guess(fitting[0], f"a guess, by its values; not {named.column}: {odd}") if len(fitting) == 1 else None


# ---- experiments


def _experiment(rows: pd.DataFrame, columns: Mapping[str, Guess], names: Sequence[str]) -> Guess | None:
    """The column of the experiments: it does not vary within a list, and varies over the log if any of them does."""
    others = {role: guess for role, guess in columns.items() if role != "experiment"}
    varying: list[str] = []
    if "user" in others and {"position", "item"} & {*others}:
        known = rows[rows[others["user"].column].notna()]
        requests = _list_by_values(known, others, names) or others.get("list")
        of_list = requests.columns if requests else ()
        keys = [*(others[role].column for role in ("user", "date") if role in others), *of_list]
        for name in names:
            values = known[[*keys, name]].drop_duplicates()
            # A few lists with faulty rows do not count.
            if (~values.duplicated(keys, keep=False)).sum() < 0.95 * (~values.duplicated(keys)).sum():
                varying.append(name)
        if repeats(known, others, of_list):
            # A user may be in several experiments, with a list in each: they tell which of two equal ranks is whose,
            # perhaps with one more column that tells lists apart.
            leaving = [
                name
                for name in varying
                if repeats(known, others, [*of_list, name])
                and _list_by_values(known, {**others, "experiment": Guess(name, "")}, (name, *names)) is None
            ]
            varying = leaving if len(leaving) < len(names) else []
    names = [name for name in names if name not in varying or not words_of(name) & {*WORDS["also_of_items"].split()}]
    if not names:
        return None
    one_value = [name for name in names if rows[name].nunique() <= 1]
    odd = {name: "it varies within lists" if name in varying else "" for name in names}
    if any(name not in one_value and not odd[name] for name in names):
        odd |= dict.fromkeys(one_value, "it has the same value in every row")
    return _weighed(names, odd)


def _experiment_by_values(rows: pd.DataFrame, columns: Mapping[str, Guess], refused: Container[str]) -> Guess | None:
    """A text that tells apart the lists which most users have for each of its values, where no name says it."""
    known = columns.get("experiment")
    if (known and (known.reason == "given" or rows[known.column].nunique() > 1)) or not _needs_list(rows, columns):
        return None
    requests, user = columns["list"].columns if "list" in columns else (), columns["user"].column
    shared = [name for name in _free(rows, columns) if name not in refused and _is_shared_text(rows, user, name)]
    fitting = [name for name in shared if _tells_apart(rows, columns, (*requests, name))]
    reason = f"a guess, by its values: users have a list for each{_others(fitting)}"
    return Guess(fitting[0], reason) if fitting else None


def _is_shared_text(rows: pd.DataFrame, user: str, name: str) -> bool:
    """Whether a column has few values, which are words and which most users share."""
    users_by_value = rows[[user, name]].dropna().drop_duplicates()[name].value_counts()
    if _is_named_list(name) or _PARTS.search(cfg.letters(name)) or not 2 <= len(users_by_value) <= _MOST_ARMS:
        return False
    values = pd.Series(users_by_value.index)
    words = values.map(lambda value: isinstance(value, str) and any(map(str.isalpha, value)))
    return bool(words.all() and numbers(values).isna().all() and 2 * users_by_value.min() > rows[user].nunique())


# ---- lists


def _list_by_values(rows: pd.DataFrame, columns: Mapping[str, Guess], kept: Sequence[str] = ()) -> Guess | None:
    """The columns that tell the lists of a user apart; None if a name has told it, or if there is one list per user.

    Args:
        rows: The sample.
        columns: Role -> column.
        kept: Columns that may have another role.
    """
    if not _needs_list(rows, columns):
        return None
    free = [name for name in _candidates(rows, columns) if name not in kept and not _is_part(rows, columns, name)]
    named = columns.get("list")
    fitting: list[tuple[str, ...]] = [(name,) for name in free if _tells_apart(rows, columns, (name,))]
    if named and not fitting:
        fitting = [(named.column, name) for name in free if _tells_apart(rows, columns, (named.column, name))]
    if not fitting:
        return None
    reason = f"a guess, by its values{_others([name for (*_, name) in fitting])}"
    return Guess(fitting[0][0], reason, fitting[0][1:])


def _needs_list(rows: pd.DataFrame, columns: Mapping[str, Guess]) -> bool:
    """Whether users have several lists that no name tells apart."""
    if "user" not in columns or not {"position", "score"} & {*columns} or not repeats(rows, columns, ()):
        return False
    return "list" not in columns or repeats(rows, columns, columns["list"].columns)


def _candidates(rows: pd.DataFrame, columns: Mapping[str, Guess]) -> list[str]:
    """The columns without a role, those with a name of lists or users first."""
    return sorted(_free(rows, columns), key=lambda name: not _is_named_list(name))


def _is_named_list(name: str) -> bool:
    return bool(named_like([name], "list") or named_like([name], "user"))


def _tells_apart(rows: pd.DataFrame, columns: Mapping[str, Guess], names: Sequence[str]) -> bool:
    """Whether no rank repeats within a list, and lists have more than a single row."""
    users = [columns[role].column for role in ("experiment", "user") if role in columns]
    return not repeats(rows, columns, names) and 2 * len(rows[[*users, *names]].drop_duplicates()) <= len(rows)


def parts_of_lists(rows: pd.DataFrame, columns: Mapping[str, Guess]) -> list[str]:
    """Columns that look like the pages of a list, where ranks repeat without them and no other column tells why."""
    if not _needs_list(rows, columns):
        return []
    named = columns["list"].columns if "list" in columns else ()
    parts = [name for name in _candidates(rows, columns) if _is_part(rows, columns, name)]
    return [name for name in parts if any(_tells_apart(rows, columns, names) for names in ((name,), (*named, name)))]


def _is_part(rows: pd.DataFrame, columns: Mapping[str, Guess], name: str) -> bool:
    """Whether a column looks like the pages of a list: few values, which repeat over the users."""
    if _is_named_list(name):
        return False
    user = columns["user"].column
    users_by_value = rows[[user, name]].drop_duplicates()[name].value_counts()
    few = 0 < len(users_by_value) <= _MOST_PARTS and 2 * users_by_value.max() > rows[user].nunique()
    if not few or _PARTS.search(cfg.letters(name)):
        return bool(few)
    values = numbers(rows[name])
    counts_up = not values.isna().any() and values.min() in (0, 1)
    return counts_up and len(values.unique()) == values.max() - values.min() + 1


def repeats(rows: pd.DataFrame, columns: Mapping[str, Guess], of_list: Sequence[str]) -> bool:
    """Whether more than a few rows repeat the rank, or the item, of a list: a user on a date, told apart by columns.

    Rows without a user, rank or item are faulty by themselves.
    """
    roles = ("experiment", "user", "date", "position" if "position" in columns else "item")
    keys = [columns[role].column for role in roles if role in columns]
    whole = rows.dropna(subset=keys)
    return bool(whole.duplicated([*keys, *of_list]).sum() > _MOST_FAULTY * len(rows))


def controls_first(names: Iterable[str]) -> list[str]:
    """Names of experiments, those first that a baseline has."""
    ordered = sorted(names)
    return list(dict.fromkeys([*(name for word in CONTROLS for name in ordered if name.lower() == word), *ordered]))


# ---- values


def present(column: pd.Series) -> pd.Series:
    """The values that are there."""
    return column[column.notna() & (column.astype(str) != "")]


def numbers(column: pd.Series) -> pd.Series:
    """The values that are there, as numbers; NaN where one is none."""
    if pd.api.types.is_numeric_dtype(column):
        return column.dropna().astype(float)
    words = present(column).astype(str).str.lower().replace({"true": "1", "false": "0"})
    return pd.to_numeric(words, errors="coerce")


def unusable(rows: pd.DataFrame, role: str, name: str) -> str:
    """Why most values of a column cannot serve, such as yes and no as relevance; empty if they can."""
    values = present(rows[name])
    if role not in _NEEDED or not len(values):
        return ""
    faulty = values[numbers(values).isna()].astype(str).str.strip()
    if 2 * len(faulty) <= len(values):
        return ""
    commas = faulty[faulty.str.fullmatch(_DECIMAL_COMMA)]
    if len(commas):
        return f"column '{name}' holds {commas.iloc[0]}: decimal commas; allowed: decimal points"
    if faulty.str.split().str.len().median() > 2:
        split = "map(ast.literal_eval)" if faulty.iloc[0].startswith("[") else "str.split()"
        each = f"a row per item (pandas: df.assign({name}=df['{name}'].{split}).explode('{name}'))"
        return f"column '{name}' holds lists in its cells, such as {faulty.iloc[0][:40]}; allowed: {each}"
    shown = ", ".join(faulty.unique()[:3])
    return f"column '{name}' holds {shown}; {_NEEDED[role]}: map it first"


def unusable_names(rows: pd.DataFrame, role: str) -> Iterator[str]:
    """Of each column whose name says the role, why its values cannot serve."""
    yield from filter(None, (unusable(rows, role, name) for name in named_like(map(str, rows.columns), role)))


def _fits(column: pd.Series, role: str) -> bool:
    """Whether the values can serve: numbers where numbers are needed, dates where a date is."""
    if role == "date":
        return bool(column.astype(str).str.fullmatch(r"\d{4}-\d{2}-\d{2}|(19|20)\d{6}").all())
    if role not in _NEEDED:
        return True
    values = numbers(column)
    if values.isna().mean() > _MOST_FAULTY:
        return False
    if role == "relevance":  # a grade below 0 is a judgement, as long as another one is above
        return bool((values.dropna() >= 0).all() or (values > 0).any())
    return role == "score" or bool((values % 1 != 0).mean() <= _MOST_FAULTY)


def _has_values_of(column: pd.Series, role: str) -> bool:
    values = numbers(column)
    if not len(values) or values.isna().any():
        return False
    if role == "relevance":
        return {*values.unique()} == {0, 1}
    return values.min() in (0, 1) and len(values.unique()) == values.max() - values.min() + 1 > 2
