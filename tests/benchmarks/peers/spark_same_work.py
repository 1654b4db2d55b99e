"""Spark without the project, doing the same work in SQL: ``same_work`` says what that is.

Rows are shuffled once. A list collects its relevant rows, which are laid out again and added up where they are.
"""

from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, types as T

from tests.benchmarks.peers import same_work
from tests.benchmarks.peers.common import COLUMNS, CUTOFFS
from tests.benchmarks.peers.same_work import LARGEST_RANK, MASK_RANKS, UNIT, Work

CONDITIONS = {
    "null": "{0} IS NULL",
    "empty": "{0} = ''",
    "nan": "isnan({0})",
    "infinite": "abs({0}) = double('inf')",
    "low": "{0} < 1",
    "large": f"{{0}} > {LARGEST_RANK}",
}
DISCOUNT = "ln(2D) / ln({} + 1)"
HALF = 2**30
"""A value in units of 2**-60 is added up as two whole numbers, so that sums fit into 64 bits."""


def rows(path: str, work: Work) -> DataFrame:
    """The rows with ``grade``, and the number of the first check that fails as ``reason``."""
    table = SparkSession.active().read.parquet(path)
    is_real = isinstance(table.schema[work.relevance].dataType, T.DoubleType)
    checks = same_work.reasons(work, relevance_is_real=is_real)
    cases = (f"WHEN {CONDITIONS[check].format(column)} THEN {n}" for n, (_, column, check) in enumerate(checks))
    # Adding 0 makes -0.0 and 0.0 the same score.
    order, item = "score + 0D AS score" if work.by_score else "position", ["item"] * work.reads_item
    reason = f"CASE {' '.join(cases)} END AS reason"
    return table.selectExpr("experiment", "user", order, *item, f"{work.relevance} AS grade", reason)


def lists(source: DataFrame, work: Work) -> DataFrame:
    """A row per list, and per (list, reason) of faulty rows: ``n``, ``sound``, and the relevant rows as ``hits``."""
    hashed = "xxhash64(item)" if work.items else "0L"
    if work.by_score:
        every = f"sort_array(collect_list(struct(score, item, grade, {hashed} AS hash)), false)"
        evidence, sound = f"{every} AS every", "size(array_distinct(every.hash)) = n"
        ranked = "transform(every, (row, i) -> struct(i + 1 AS position, row.grade AS grade))"
        hits = f"filter({ranked}, row -> row.grade > 0)"
    else:
        bit = f"CASE WHEN position BETWEEN 1 AND {MASK_RANKS} THEN shiftleft(1L, int(position) - 1) END"
        every = f"collect_list(struct(position, grade, {hashed} AS hash)) FILTER (WHERE grade > 0)"
        evidence = f"{every} AS every, max(position) AS top, bit_count(bit_or({bit})) AS ranks"
        sound, hits = "size(array_distinct(every.hash)) = size(every)", "sort_array(every)"
    sound = sound if work.items else "true"
    sound += "" if work.by_score else f" AND top <= {MASK_RANKS} AND ranks = n"
    return _sql(
        f"""SELECT experiment, user, reason, n, reason IS NOT NULL OR ({sound}) AS sound,
            CASE WHEN reason IS NULL THEN {hits} END AS hits
        FROM (SELECT experiment, user, reason, count(1) AS n, {evidence} FROM {{source}} GROUP BY 1, 2, 3)""",
        source=source,
    )


def users(table: DataFrame) -> DataFrame:
    """The metrics of each list of ``lists``: 0 without a relevant row; and the number of these as ``m``."""
    metrics = []
    for k in CUTOFFS:
        top, ideal = f"FILTER (WHERE position <= {k})", f"FILTER (WHERE hit <= {k})"
        metrics += [
            f"sum(hit / position) {top} / least(nullif(count(hit), 0), {k})",
            f"sum(grade * {DISCOUNT.format('position')}) {top} / sum(best * {DISCOUNT.format('hit')}) {ideal}",
            f"count(hit) {top} / {k}",
            f"count(hit) {top} / nullif(count(hit), 0)",
        ]
    names = (f"{name}@{k}" for k in CUTOFFS for name in ("ap", "ndcg", "p", "r"))
    columns = ", ".join(f"coalesce({sql}, 0D) AS `{name}`" for name, sql in zip(names, metrics, strict=True))
    return _sql(
        f"""SELECT experiment, user, reason, sound, first(n) AS n, count(hit) AS m, {columns} FROM (
            SELECT experiment, user, reason, sound, n, place + 1 AS hit, row.position, row.grade, best[place] AS best
            FROM (SELECT *, sort_array(hits.grade, false) AS best FROM {{table}})
            LATERAL VIEW OUTER posexplode(hits) AS place, row)
        GROUP BY 1, 2, 3, 4""",
        table=table,
    )


def totals(table: DataFrame) -> list[dict[str, Any]]:
    """Counts and exact sums of ``users``, by experiment, reason and whether a list is sound."""
    sums = []
    for name in COLUMNS:
        for power, label in ((f"`{name}`", name), (f"`{name}` * `{name}`", f"{name} squared")):
            whole = f"bigint(if(sound, {power}, 0D) * {UNIT}D)"
            sums += [f"sum(shiftright({whole}, 30)) AS `{label} high`", f"sum({whole} & {HALF - 1}) AS `{label} low`"]
    query = f"""SELECT experiment, reason, sound, count(1) AS lists, sum(n) AS n_rows, count_if(m > 0) AS with_relevant,
        {", ".join(sums)} FROM {{table}} GROUP BY 1, 2, 3"""
    return [row.asDict() for row in _sql(query, table=table).collect()]


def cleaned(source: DataFrame, flagged: DataFrame, work: Work) -> DataFrame:
    """The rows of ``flagged`` lists, and as ``stays`` whether a row repeats no item and no rank."""
    own = _sql(
        "SELECT s.* FROM {source} s LEFT SEMI JOIN {flagged} f ON s.experiment = f.experiment AND s.user = f.user "
        "WHERE reason IS NULL",
        source=source,
        flagged=flagged,
    )
    best, compared = "score DESC" if work.by_score else "position", own
    if not work.by_score:
        of_list = "OVER (PARTITION BY experiment, user)"
        distinct = f"size(collect_set(position) {of_list}) = count(1) {of_list}"
        short = f"(max(position) {of_list} <= {MASK_RANKS} OR max(position) {of_list} = count(1) {of_list})"
        query = f"SELECT * FROM (SELECT *, NOT ({short} AND {distinct}) AS whole FROM {{own}}) WHERE whole OR grade > 0"
        compared = _sql(query, own=own)
    item = f"row_number() OVER (PARTITION BY experiment, user, item ORDER BY grade DESC, {best})" if work.items else "1"
    first = _sql(f"SELECT *, {item} = 1 AS one FROM {{compared}}", compared=compared)
    rank = "row_number() OVER (PARTITION BY experiment, user, one, position ORDER BY grade DESC)"
    stays = "one" if work.by_score else f"one AND {rank} = 1"
    return _sql(f"SELECT *, {stays} AS stays FROM {{first}}", first=first)


def run(path: str, work: Work = same_work.DEFAULT) -> dict:
    source = rows(path, work)
    every = lists(source, work)
    table = totals(users(every))
    repeated: dict[str, int] = {}
    if any(not row["sound"] for row in table):
        flagged = every.where("NOT sound")
        again = cleaned(source, flagged, work)
        rest = _completed(flagged, lists(again.where("stays"), work))
        table = [row for row in table if row["sound"]] + totals(users(rest))
        repeated = dict(again.where("NOT stays").groupBy("experiment").count().collect())
    return _values(table, repeated, work)


def _completed(flagged: DataFrame, rest: DataFrame) -> DataFrame:
    """The flagged lists with the hits that are left; a list of which no row was compared has none."""
    return _sql(
        """SELECT f.experiment, f.user, f.reason, f.n, true AS sound, r.hits FROM {flagged} f
        LEFT JOIN {rest} r ON f.experiment = r.experiment AND f.user = r.user""",
        flagged=flagged,
        rest=rest,
    )


def _values(table: list[dict[str, Any]], repeated: dict[str, int], work: Work) -> dict:
    checks = same_work.reasons(work, relevance_is_real=True)
    result: dict[tuple[str, str], float] = {}
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in table:
        if row["reason"] is None:
            parts.setdefault(row["experiment"], []).append(row)
        else:
            key = (row["experiment"], f"faulty {checks[row['reason']][0]}")
            result[key] = result.get(key, 0.0) + float(row["n_rows"])
    for experiment, of_experiment in parts.items():
        added = partial(_added, of_experiment)
        pairs = {
            name: (added(f"{name} high") * HALF + added(f"{name} low"),
                   added(f"{name} squared high") * HALF + added(f"{name} squared low"))
            for name in COLUMNS
        }  # fmt: skip
        numbers = same_work.estimates(added("lists"), added("with_relevant"), repeated.get(experiment, 0), pairs)
        result |= {(experiment, name): value for name, value in numbers.items()}
    return result


def _added(table: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] or 0 for row in table)


def _sql(query: str, **tables: DataFrame) -> DataFrame:
    return SparkSession.active().sql(query, **tables)


default = run
ignoring = partial(run, work=same_work.IGNORING)
real_valued = partial(run, work=same_work.REAL_VALUED)
by_score = partial(run, work=same_work.BY_SCORE)
