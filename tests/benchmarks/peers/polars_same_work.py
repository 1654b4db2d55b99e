"""Polars on two threads, doing the same work as the project: ``same_work`` says what that is."""

import math
import os
from functools import partial

os.environ["POLARS_MAX_THREADS"] = "2"

import polars as pl

from tests.benchmarks.peers import same_work
from tests.benchmarks.peers.common import COLUMNS, CUTOFFS
from tests.benchmarks.peers.same_work import LARGEST_RANK, MASK_RANKS, Work

KEYS = ["experiment", "user"]
CONDITIONS = {
    "null": lambda column: column.is_null(),
    "empty": lambda column: column == "",
    "nan": lambda column: column.is_nan(),
    "infinite": lambda column: column.is_infinite(),
    "low": lambda column: column < 1,
    "large": lambda column: column > LARGEST_RANK,
}
HALF = 2.0**30
"""A value is a whole number of 2**-30 and a whole number of 2**-60; both fit 64 bits, also when added up."""


def rows(path: str, work: Work) -> pl.LazyFrame:
    """The rows with ``grade``, and the number of the first check that fails as ``reason``."""
    source = pl.scan_parquet(f"{path}/*.parquet")
    is_real = source.collect_schema()[work.relevance] == pl.Float64
    reason = pl.lit(None, pl.UInt8)
    for number, (_, column, check) in reversed(list(enumerate(same_work.reasons(work, is_real)))):
        reason = pl.when(CONDITIONS[check](pl.col(column))).then(pl.lit(number, pl.UInt8)).otherwise(reason)
    # Adding 0 makes -0.0 and 0.0 the same score.
    order = pl.col("score") + 0.0 if work.by_score else pl.col("position")
    item = ["item"] if work.reads_item else []
    return source.select(*KEYS, order, *item, pl.col(work.relevance).alias("grade"), reason.alias("reason"))


def lists(source: pl.LazyFrame, work: Work) -> pl.LazyFrame:
    """A row per list, and per (list, reason) of faulty rows, with what shows that something may repeat."""
    if work.by_score:
        # Lists with tied scores are ranked again, by score and item: sorting all rows by both takes four times as long.
        sound = (pl.col("score").n_unique() == pl.len()) & (pl.col("item").hash().n_unique() == pl.len())
    else:
        sound = (pl.col("position").max() <= MASK_RANKS) & (pl.col("position").n_unique() == pl.len())
    return source.group_by(*KEYS, "reason").agg(pl.len().alias("n"), sound.alias("sound"))


def hits(source: pl.LazyFrame, work: Work, ties: bool = False) -> pl.LazyFrame:
    """The relevant rows with rank, number among the relevant ones and rank in the ideal list.

    ``ties`` = items may have equal scores.
    """
    if work.by_score:
        rank = pl.col("score").rank("ordinal", descending=True).over(KEYS)
        if ties:
            source, rank = source.sort("score", "item", descending=True), pl.int_range(1, pl.len() + 1).over(KEYS)
        source = source.filter(pl.col("reason").is_null()).with_columns(position=rank)
    result = source.filter(pl.col("reason").is_null() & (pl.col("grade") > 0))
    return result.with_columns(
        hit=pl.col("position").rank("ordinal").over(KEYS),
        ideal=pl.col("grade").rank("ordinal", descending=True).over(KEYS),
    )


def _sums(k: int) -> list[pl.Expr]:
    rank, ideal, grade = pl.col("position"), pl.col("ideal"), pl.col("grade")
    top = rank <= k

    def discounted(ranks: pl.Expr) -> pl.Expr:
        return grade * math.log(2) / (ranks + 1).cast(pl.Float64).log()

    return [
        (pl.col("hit") / rank).filter(top).sum().alias(f"ap@{k}"),
        discounted(rank).filter(top).sum().alias(f"ndcg@{k}"),
        discounted(ideal).filter(ideal <= k).sum().alias(f"ideal@{k}"),
        top.sum().alias(f"n@{k}"),
    ]


def _ratios(k: int) -> list[pl.Expr]:
    return [
        (pl.col(f"ap@{k}") / pl.col("m").clip(0, k)).alias(f"ap@{k}"),
        (pl.col(f"ndcg@{k}") / pl.col(f"ideal@{k}")).alias(f"ndcg@{k}"),
        (pl.col(f"n@{k}") / k).alias(f"p@{k}"),
        (pl.col(f"n@{k}") / pl.col("m")).alias(f"r@{k}"),
    ]


def users(result: pl.LazyFrame, work: Work) -> pl.LazyFrame:
    """The metrics of users with a relevant item, from ``hits``."""
    compared = work.items and not work.by_score
    items = [pl.col("item").n_unique().alias("items")] if compared else []
    sums = result.group_by(KEYS).agg(pl.len().alias("m"), *items, *(e for k in CUTOFFS for e in _sums(k)))
    return sums.select(*KEYS, "m", *(["items"] if compared else []), *(e for k in CUTOFFS for e in _ratios(k)))


def cleaned(source: pl.LazyFrame, flagged: pl.LazyFrame, work: Work) -> pl.DataFrame:
    """The rows of flagged lists, and as ``stays`` whether a row repeats no item and no rank."""
    own = source.filter(pl.col("reason").is_null()).join(flagged, on=KEYS)
    best = -pl.col("score") if work.by_score else pl.col("position")
    if not work.by_score:
        rank = pl.col("position")
        is_sound = ((rank.max() <= MASK_RANKS) | (rank.max() == pl.len())) & (rank.n_unique() == pl.len())
        own = own.filter(~is_sound.over(KEYS) | (pl.col("grade") > 0))
    own = own.sort(-pl.col("grade").cast(pl.Float64), best)
    first = pl.int_range(pl.len()).over(*KEYS, "item") == 0 if work.items else pl.lit(True)
    own = own.with_columns(one=first)
    if not work.by_score:
        own = own.with_columns(stays=pl.col("one") & (pl.int_range(pl.len()).over(*KEYS, "one", "position") == 0))
    return own.rename({"one": "stays"} if work.by_score else {}).collect()


def run(path: str, work: Work = same_work.DEFAULT) -> dict:
    """The fastest of several variants: the streaming engine, which ranks only the relevant rows."""
    source = rows(path, work)
    request = [lists(source, work), users(hits(source, work), work)]
    result, values = pl.collect_all(request, engine="streaming")
    sound = result.filter(pl.col("reason").is_null())
    flagged = sound.filter(~pl.col("sound")).select(KEYS)
    if work.items and not work.by_score:
        flagged = pl.concat([flagged, values.filter(pl.col("m") != pl.col("items")).select(KEYS)]).unique()
    repeated = {}
    if len(flagged):
        rest = cleaned(source, flagged.lazy(), work)
        more = users(hits(rest.lazy().filter("stays"), work, ties=True), work).collect()
        values = pl.concat([values.join(flagged, on=KEYS, how="anti"), more])
        repeated = dict(rest.filter(~pl.col("stays")).group_by("experiment").len().iter_rows())
    return _values(result, sound, values, repeated, work)


def _values(result: pl.DataFrame, sound: pl.DataFrame, values: pl.DataFrame, repeated: dict, work: Work) -> dict:
    checks = same_work.reasons(work, relevance_is_real=True)
    faulty = result.filter(pl.col("reason").is_not_null()).group_by("experiment", "reason").agg(pl.col("n").sum())
    numbers = {(experiment, f"faulty {checks[reason][0]}"): float(n) for experiment, reason, n in faulty.iter_rows()}
    powers = {name: pl.col(name) for name in COLUMNS} | {f"{name}²": pl.col(name) ** 2 for name in COLUMNS}
    scaled = values.lazy().select("experiment", *((power * HALF).alias(name) for name, power in powers.items()))
    high = [pl.col(name).floor().cast(pl.Int64).alias(f"{name} high") for name in powers]
    low = [
        ((pl.col(name) - pl.col(name).floor()) * HALF).round().cast(pl.Int64).alias(f"{name} low") for name in powers
    ]
    totals = scaled.select("experiment", *high, *low).group_by("experiment").agg(pl.len().alias("n"), pl.all().sum())
    by_experiment = {row["experiment"]: row for row in totals.collect().to_dicts()}
    none = {"n": 0} | {f"{name} {half}": 0 for name in powers for half in ("high", "low")}
    for experiment, n in sound.group_by("experiment").len().iter_rows():
        row = by_experiment.get(experiment, none)
        whole = {name: row[f"{name} high"] * int(HALF) + row[f"{name} low"] for name in powers}
        pairs = {name: (whole[name], whole[f"{name}²"]) for name in COLUMNS}
        named = same_work.estimates(n, row["n"], repeated.get(experiment, 0), pairs)
        numbers |= {(experiment, name): value for name, value in named.items()}
    return numbers


def prepare(path: str) -> None:
    """Nothing to prepare: Polars keeps nothing between two runs."""


default = run
ignoring = partial(run, work=same_work.IGNORING)
real_valued = partial(run, work=same_work.REAL_VALUED)
by_score = partial(run, work=same_work.BY_SCORE)
