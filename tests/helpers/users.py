"""Users of experiments as a table, and what the comparison makes of them without Spark."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata

from rankmetrics_spark import comparison as cmp, metrics as mx, schemas as sch
from rankmetrics_spark.config import Comparison

METRIC = "ap@10"
PAIR = ("a", "b", sch.EVERYONE, METRIC)
Found = dict[tuple[str | None, str | None, str, str], dict[str, Any]]
"""(baseline, candidate, segment, metric) -> the row."""


def table(arms: Mapping[str | None, Any], users: Mapping[str | None, Sequence[str]] | None = None) -> pd.DataFrame:
    """One row per (experiment, user), with one metric; by default the users "u0", "u1", ... of every experiment."""
    parts = []
    for name, values in arms.items():
        names = [f"u{i}" for i in range(len(values))] if users is None else list(users[name])
        columns = {"experiment": name, "user": names, METRIC: np.asarray(values, float)}
        parts.append(pd.DataFrame(columns, columns=list(columns)).astype({"experiment": object}))
    return pd.concat(parts, ignore_index=True).assign(relevant=True)


def apart(**arms: Any) -> pd.DataFrame:
    """Experiments that share no user."""
    return table(arms, {name: [f"{name}{i}" for i in range(len(values))] for name, values in arms.items()})


def keys_of(users: Iterable[str]) -> npt.NDArray[np.uint64]:
    """A hash of each user, as Spark would give one."""
    return np.array([int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") for name in users], np.uint64)


def user_rows(rows: pd.DataFrame, metrics: Sequence[str] = (METRIC,), segments: Sequence[str] = ()) -> cmp.UserRows:
    """The rows of some users; ``before <metric>`` and ``own <metric>`` hold earlier values, and those of the covariates
    "0" and "1", ``machine <metric>`` those under the labels of a machine, ``chance`` the probability that people judge,
    ``list_count`` lists, ``list_hash`` the hash of the lists, ``without`` the share of the lists that have no value,
    ``triggered`` who counts, ``stratum`` the user's stratum, ``shown`` the items of their lists, and ``in_part`` who is
    judged in part.
    """
    user, names = pd.factorize(rows["user"])
    strata = sorted(set(rows.get("stratum", ())))
    rows = rows.iloc[np.argsort(user, kind="stable")]
    experiment, experiments = _coded(rows["experiment"])
    splits: list[tuple[list[str], Any]] = [([sch.EVERYONE], np.zeros(len(rows), np.int64))]
    for segment in segments:
        code, labels = _coded(rows[segment])
        splits.append(([sch.segment_label(segment, label) for label in labels], code))
    return cmp.UserRows(
        user=np.sort(user),
        keys=keys_of(names),
        experiments=experiments,
        experiment=experiment,
        segments=splits,
        values={metric: rows[metric].to_numpy(float) for metric in metrics},
        relevant=rows["relevant"].to_numpy(bool),
        before=_earlier(rows, "before", metrics),
        before_own=_earlier(rows, "own", metrics),
        lists={metric: rows["list_count"].to_numpy(float) for metric in metrics if "list_count" in rows.columns},
        without={metric: rows["without"].to_numpy(float) for metric in metrics if "without" in rows.columns},
        machine=_earlier(rows, "machine", metrics),
        chance=rows["chance"].to_numpy(float) if "chance" in rows.columns else None,
        shown=rows["shown"].to_numpy(float) if "shown" in rows.columns else None,
        in_part=rows["in_part"].to_numpy(bool) if "in_part" in rows.columns else None,
        triggered=rows["triggered"].to_numpy(bool) if "triggered" in rows.columns else None,
        strata=strata,
        stratum=rows["stratum"].map(strata.index).to_numpy() if strata else None,
        lists_hash=rows["list_hash"].to_numpy(np.int64) if "list_hash" in rows.columns else None,
    )


def _earlier(rows: pd.DataFrame, name: str, metrics: Sequence[str]) -> dict[str, Any]:
    present = [metric for metric in (*metrics, "0", "1") if f"{name} {metric}" in rows.columns]
    return {metric: rows[f"{name} {metric}"].to_numpy(float) for metric in present}


def _coded(column: pd.Series) -> tuple[npt.NDArray[np.int64], list[Any]]:
    labels = list(dict.fromkeys(None if pd.isna(label) else label for label in column))
    return np.array([labels.index(None if pd.isna(label) else label) for label in column], np.int64), labels


def totals_of(rows: cmp.UserRows, request: Comparison) -> cmp.Totals:
    """The sums of these users."""
    totals = cmp.Totals()
    cmp.add_rows(totals, rows, request)
    return totals


def add_ranks(totals: cmp.Totals, rows: cmp.UserRows, request: Comparison) -> None:
    """Add the sums of signed ranks, by ``scipy.stats.rankdata``."""
    for key, sizes, positive, negative in cmp.signed_sizes(rows, request):
        ranks = rankdata(np.repeat(sizes, positive + negative))
        of_size = dict(zip(np.repeat(sizes, positive + negative), ranks, strict=True))
        ties = positive + negative
        plus = sum(count * of_size[size] for size, count in zip(sizes, positive, strict=True))
        totals.add(key, np.array([ties.sum(), round(2 * plus), *divmod((ties**3 - ties).sum(), 2**31)]))


def compared(
    users: pd.DataFrame,
    request: Comparison | None = None,
    metrics: Sequence[str] = (METRIC,),
    segments: Sequence[str] = (),
    **asked: Any,
) -> Found:
    """The rows of ``comparisons``; by default of every pair, with 1 as the best value of every metric."""
    whole = question(request or Comparison(pairs="all"), metrics, **asked)
    if "ranges" not in asked:
        whole = replace(whole, ranges=dict.fromkeys(metrics, (0.0, 1.0)))
    rows = user_rows(users, metrics, segments)
    totals = totals_of(rows, whole.request)
    if whole.request.wilcoxon:
        add_ranks(totals, rows, whole.request)
    return by_key(cmp.comparison_rows(totals, whole))


def question(request: Comparison, metrics: Sequence[str] = (METRIC,), **asked: Any) -> cmp.Question:
    """The question with more keys of the comparison, and of its own; by default, higher is better for every metric."""
    keys = {name: value for name, value in asked.items() if name in Comparison.__dataclass_fields__}
    own = {name: value for name, value in asked.items() if name not in keys}
    return cmp.Question(
        replace(request, **keys), **({"directions": dict.fromkeys(metrics, True), "metrics": (mx.parse(METRIC),)} | own)
    )


def one(users: pd.DataFrame, request: Comparison | None = None, **asked: Any) -> dict[str, Any]:
    """The row of b against a over all users."""
    return compared(users, request or Comparison("a"), **asked)[PAIR]


def deciding_p(row: Mapping[str, Any]) -> float:
    """The p-value of the test that decides: of t, unless another one is there."""
    p = row.get("sparse_p_value")
    return float(row["p_value"] if p is None or np.isnan(p) else p)


def times(n: int) -> dict[str, int]:
    """As many replicates."""
    return {"replicates": n}


def values(n: int, seed: int = 1) -> tuple[Any, Any]:
    """Values of n users in two experiments: correlated, some equal."""
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    b = np.where(rng.random(n) < 0.2, a, a + rng.normal(0.1, 0.3, n))
    return a, b


def by_key(columns: Mapping[str, Any]) -> Found:
    """Columns as rows, in their order."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {(row["baseline"], row["experiment_id"], row["segment"], row["metric"]): row for row in rows}
