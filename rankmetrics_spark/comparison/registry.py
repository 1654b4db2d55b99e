"""The registry of statistics: a function of the rows becomes columns of ``comparisons``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, TypeVar

from rankmetrics_spark.comparison.compared import Compared
from rankmetrics_spark.doors import data_of
from rankmetrics_spark.errors import ConfigError, unknown

F = TypeVar("F", bound=Callable[[Compared], Any])
TYPES = ("double", "long", "string", "boolean")
#: What a statistic may need beside the sums of experiments and pairs -> what asks for it.
NEEDS = data_of(__name__, "needs")


@dataclass(frozen=True)
class Statistic:
    """A function that becomes columns of ``comparisons``.

    Attributes:
        function: From the rows to (g,) values, NaN and None where there is none; a tuple of such for several columns.
            Its docstring is what the docs say.
        columns: Their names.
        type: Of their values, one of ``TYPES``.
        needs: One of ``NEEDS``, beside the sums of experiments and pairs; the columns are null where it is not there.
            Empty: nothing.
    """

    function: Callable[[Compared], Any]
    columns: tuple[str, ...]
    type: str
    needs: str

    def values(self, rows: Compared) -> dict[str, Any]:
        """Column -> (g,) values."""
        columns = self.function(rows)
        return dict(zip(self.columns, columns if len(self.columns) > 1 else (columns,), strict=True))

    @property
    def meaning(self) -> str:
        """What asks for it, and the docstring, in one line."""
        text = " ".join((getdoc(self.function) or "").split())
        return f"{NEEDS[self.needs]}. {text}" if self.needs else text


#: Name of the function -> the statistic, in the order of the columns.
STATISTICS: dict[str, Statistic] = {}


def statistic(*columns: str, type: str = "double", needs: str = "") -> Callable[[F], F]:
    """Register a function of the rows as a statistic; see ``Statistic``.

    A function that is defined again, as in a notebook cell that runs twice, replaces its old version.

    Args:
        columns: By default one, with the name of the function.
        type: One of ``TYPES``.
        needs: What it needs beside the sums of experiments and pairs.

    Raises:
        ConfigError: An unknown type or need, or a column that belongs to another statistic.

    >>> @statistic()
    ... def ratio(rows):
    ...     return rows.moments[1].mean / rows.moments[0].mean
    >>> STATISTICS.pop("ratio").columns
    ('ratio',)
    """

    def register(function: F) -> F:
        new = Statistic(function, columns or (function.__name__,), type, needs)
        for what, value, known in (("type", type, TYPES), ("need", needs, ("", *NEEDS))):
            if value not in known:
                raise ConfigError(f"statistic {function.__name__}: {unknown(what, value, known)}")
        for name, other in STATISTICS.items():
            if name != function.__name__ and (both := {*new.columns} & {*other.columns}):
                raise ConfigError(f"column {min(both)!r} already belongs to statistic {name!r}; choose another name")
        STATISTICS[function.__name__] = new
        return function

    return register


def types_of(statistics: Iterable[Statistic]) -> dict[str, str]:
    """Column of ``comparisons`` -> its type, in their order."""
    return {name: each.type for each in statistics for name in each.columns}
