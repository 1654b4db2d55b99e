"""Users' rows of several dates, and what an effect over time makes of them without Spark."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rankmetrics_spark.comparison import Totals, UserDays, add_days, over_time_rows
from rankmetrics_spark.config import Comparison
from tests.helpers.users import METRIC, question, user_rows

DATES = [f"2026-11-{day:02}" for day in range(8, 22)]
Rows = dict[tuple[str, str, str], dict[str, Any]]
"""(candidate, kind, label) -> the row."""


def log(seed: int = 1, users: int = 40, share: float = 0.4, **effects: float) -> Any:
    """A row per user and day of three experiments, each with users of its own who return; some lack a value."""
    rng, rows = np.random.default_rng(seed), []
    for name, effect in ({"a": 0.0, "b": 0.1, "c": 0.0} | effects).items():
        for i in range(users):
            level = rng.normal(0.5, 0.2)
            for date in DATES:
                if rng.random() < share:
                    value = level + effect + rng.normal(0, 0.1)
                    n_lists = int(rng.integers(1, 4))
                    rows.append((name, f"{name}{i}", date, value if rng.random() > 0.05 else np.nan, n_lists))
    return pd.DataFrame(rows, columns=["experiment", "user", "date", METRIC, "lists"]).assign(relevant=True)


def days_of(rows: pd.DataFrame) -> UserDays:
    """The rows of whole users, as a chunk of them arrives."""
    plain = user_rows(rows)
    # The helper puts the rows of a user together, in the order in which users first appear.
    rows = rows.iloc[np.argsort(pd.factorize(rows["user"])[0], kind="stable")]
    lists = rows["lists"].to_numpy(float)
    with_value = rows["with_value"].to_numpy(float) if "with_value" in rows else np.full(len(rows), np.nan)
    return UserDays.of(plain, rows["date"].to_numpy("datetime64[D]"), lists, {METRIC: with_value})


def developed(rows: pd.DataFrame, start: str | None = None, request: Comparison | None = None, **asked: Any) -> Rows:
    """The rows of the effect over time, from two chunks of users."""
    totals, whole = Totals(), question(request or Comparison(baseline="a"), (), **asked)
    for _, some in rows.groupby(rows["user"].map(lambda name: len(name) % 2)):
        add_days(totals, days_of(some), whole.request, start)
    columns = over_time_rows(totals, whole, start)
    return by_label([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])


def by_label(rows: Sequence[dict[str, Any]]) -> Rows:
    """Rows by what they are about."""
    return {(row["experiment_id"], row["kind"], row["label"]): row for row in rows}
