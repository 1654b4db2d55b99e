"""DuckDB on two threads, with given ranks or ranking by score."""

import duckdb

from tests.benchmarks.peers.common import COLUMNS, CUTOFFS

HITS = """
select experiment, "user", position, ln(2) / ln(position + 1) as discount,
       row_number() over (partition by experiment, "user" order by position) as hit
from {rows} where relevance > 0
"""
GIVEN = "read_parquet('{path}/*.parquet')"
BY_SCORE = f"""(
    select experiment, "user", relevance,
           row_number() over (partition by experiment, "user" order by score desc) as position
    from {GIVEN}
)"""
COUNTS = """
select experiment, count(*) as n
from (select distinct experiment, "user" from read_parquet('{path}/*.parquet')) group by experiment
"""


def _per_user(k: int) -> str:
    ideal = f"list_sum([ln(2) / ln(i + 1) for i in range(1, 1 + least(count(*), {k}))])"
    top = f"filter (where position <= {k})"
    return f"""
        coalesce(sum(hit / position) {top}, 0) / least(count(*), {k}) as "ap@{k}",
        coalesce(sum(discount) {top}, 0) / {ideal} as "ndcg@{k}",
        count(*) {top} / {k} as "p@{k}",
        count(*) {top} / count(*) as "r@{k}"
    """


def query(path: str, rows: str) -> str:
    users = ", ".join(_per_user(k) for k in CUTOFFS)
    means = ", ".join(f'sum("{name}") / any_value(n) as "{name}"' for name in COLUMNS)
    return f"""
        with hits as ({HITS.format(rows=rows.format(path=path))}), counts as ({COUNTS.format(path=path)}),
             users as (select experiment, {users} from hits group by experiment, "user")
        select experiment, {means} from users join counts using (experiment) group by experiment
    """


def run(path: str, rows: str = GIVEN) -> dict:
    with duckdb.connect(config={"threads": 2}) as base:
        rows = base.execute(query(path, rows)).fetchall()
    return {(row[0], name): value for row in rows for name, value in zip(COLUMNS, row[1:], strict=True)}


def by_score(path: str) -> dict:
    return run(path, BY_SCORE)
