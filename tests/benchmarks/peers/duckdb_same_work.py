"""DuckDB on two threads, doing the same work as the project: ``same_work`` says what that is."""

from functools import partial

import duckdb

from tests.benchmarks.peers import same_work
from tests.benchmarks.peers.common import COLUMNS, CUTOFFS
from tests.benchmarks.peers.same_work import LARGEST_RANK, MASK_RANKS, UNIT, Work

CONDITIONS = {
    "null": "{0} is null",
    "empty": "{0} = ''",
    "nan": "isnan({0})",
    "infinite": "isinf({0})",
    "low": "{0} < 1",
    "large": f"{{0}} > {LARGEST_RANK}",
}
KEYS = 'experiment, "user"'
DISCOUNT = "ln(2) / ln({} + 1)"
_base: list[duckdb.DuckDBPyConnection] = []


def prepare(path: str) -> None:
    """Open the database that all runs use."""
    if not _base:
        _base.append(duckdb.connect(config={"threads": 2}))


def rows(path: str, work: Work) -> str:
    """SQL: the rows with ``grade``, and the number of the first check that fails as ``reason``."""
    source = f"read_parquet('{path}/*.parquet')"
    (kind,) = _base[0].execute(f"select typeof({work.relevance}) from {source} limit 1").fetchone() or ("INTEGER",)
    checks = same_work.reasons(work, relevance_is_real=kind == "DOUBLE")
    cases = (
        f"when {CONDITIONS[check].format(chr(34) + column + chr(34))} then {number}::utinyint"
        for number, (_, column, check) in enumerate(checks)
    )
    # Adding 0 makes -0.0 and 0.0 the same score.
    order = "score + 0.0 as score" if work.by_score else "position"
    item = ", item" if work.reads_item else ""
    return (
        f"select {KEYS}, {order}{item}, {work.relevance} as grade, case {' '.join(cases)} end as reason from {source}"
    )


def lists(source: str, work: Work) -> str:
    """SQL: a row per list, and per (list, reason) of faulty rows, with what shows that something may repeat."""
    if work.by_score:
        evidence = "list_unique(list(hash(item))) = count(*)" if work.items else "true"
        return f"select {KEYS}, reason, count(*) as n, {evidence} as sound from ({source}) group by all"
    bit = f"case when position between 1 and {MASK_RANKS} then 1::bigint << (position - 1)::int end"
    sound = f"max(position) <= {MASK_RANKS} and bit_count(bit_or({bit})) = count(*)"
    return f"select {KEYS}, reason, count(*) as n, {sound} as sound from ({source}) group by all"


def hits(source: str, work: Work) -> str:
    """SQL: the relevant rows with rank, number among the relevant ones and rank in the ideal list."""
    item = "hash(item) as item" if work.items else "0 as item"
    if work.by_score:
        window = f"row_number() over (partition by {KEYS} order by score desc, item desc)"
        source = f"select {KEYS}, grade, item, {window} as position from ({source}) where reason is null"
    return f"""
        select {KEYS}, position, grade, {item},
               row_number() over (partition by {KEYS} order by position) as hit,
               row_number() over (partition by {KEYS} order by grade desc) as ideal
        from (select * from ({source}) where grade > 0 {"" if work.by_score else "and reason is null"})
    """


def users(source: str) -> str:
    """SQL: the metrics of users with a relevant item, from ``hits``."""
    result = [f"{KEYS}, count(*) as m, count(distinct item) as items"]
    for k in CUTOFFS:
        top = f"filter (where position <= {k})"
        ideal = f"sum(grade * {DISCOUNT.format('ideal')}) filter (where ideal <= {k})"
        result += [
            f'coalesce(sum(hit / position) {top}, 0) / least(count(*), {k}) as "ap@{k}"',
            f'coalesce(sum(grade * {DISCOUNT.format("position")}) {top}, 0) / {ideal} as "ndcg@{k}"',
            f'count(*) {top} / {k} as "p@{k}"',
            f'count(*) {top} / count(*) as "r@{k}"',
        ]
    return f"select {', '.join(result)} from ({source}) group by {KEYS}"


def cleaned(source: str, work: Work) -> str:
    """SQL: the rows of ``flagged`` lists, and as ``stays`` whether a row repeats no item and no rank."""
    own = f"select r.*, m from ({source}) r join flagged using ({KEYS}) where reason is null"
    best = "score desc" if work.by_score else "position"
    if work.by_score:
        compared = own
    else:
        whole = f"""
            select {KEYS}, not ((max(position) <= {MASK_RANKS} or max(position) = count(*))
                                and count(distinct position) = count(*)) as all_rows
            from ({own}) group by {KEYS}
        """
        compared = f"select o.* from ({own}) o join ({whole}) using ({KEYS}) where all_rows or grade > 0"
    item = f"row_number() over (partition by {KEYS}, item order by grade desc, {best})" if work.items else "1"
    first = f"select *, {item} = 1 as one from ({compared})"
    if work.by_score:
        return f"select *, one as stays from ({first})"
    rank = f"row_number() over (partition by {KEYS}, one, position order by grade desc)"
    return f"select *, one and {rank} = 1 as stays from ({first})"


def run(path: str, work: Work = same_work.DEFAULT) -> dict:
    prepare(path)
    base, source = _base[0], rows(path, work)
    base.execute(f"create or replace temp table lists as {lists(source, work)}")
    base.execute(f"create or replace temp table users as {users(hits(source, work))}")
    repeats = "or m != items" if work.items and not work.by_score else ""
    base.execute(f"""
        create or replace temp table flagged as select {KEYS}, m from lists left join users using ({KEYS})
        where reason is null and (not sound {repeats})
    """)
    repeated = {}
    if base.execute("select count(*) from flagged").fetchone() != (0,):
        base.execute(f"create or replace temp table cleaned as {cleaned(source, work)}")
        base.execute("delete from users using flagged f where users.experiment = f.experiment and users.user = f.user")
        base.execute(f"insert into users {users(hits('select * from cleaned where stays', work))}")
        repeated = _by_experiment(base, "select experiment, count(*) from cleaned where not stays group by all")
    return _values(base, repeated, work)


def _values(base: duckdb.DuckDBPyConnection, repeated: dict, work: Work) -> dict:
    checks = same_work.reasons(work, relevance_is_real=True)
    faulty = "select experiment, reason, sum(n) from lists where reason is not null group by all"
    rows = base.execute(faulty).fetchall()
    result = {(experiment, f"faulty {checks[reason][0]}"): float(n) for experiment, reason, n in rows}
    powers = (power for name in COLUMNS for power in (f'"{name}"', f'"{name}" * "{name}"'))
    sums = ", ".join(f"sum(({power} * {UNIT}::double)::hugeint)" for power in powers)
    counts = _by_experiment(base, "select experiment, count(*) from lists where reason is null group by all")
    totals = base.execute(f"select experiment, count(*), {sums} from users group by all").fetchall()
    by_experiment = {experiment: (n, numbers) for experiment, n, *numbers in totals}
    for experiment, n in counts.items():
        with_relevant, numbers = by_experiment.get(experiment, (0, [0] * 2 * len(COLUMNS)))
        pairs = dict(zip(COLUMNS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        named = same_work.estimates(n, with_relevant, repeated.get(experiment, 0), pairs)
        result |= {(experiment, name): value for name, value in named.items()}
    return result


def _by_experiment(base: duckdb.DuckDBPyConnection, query: str) -> dict:
    return dict(base.execute(query).fetchall())


default = run
ignoring = partial(run, work=same_work.IGNORING)
real_valued = partial(run, work=same_work.REAL_VALUED)
by_score = partial(run, work=same_work.BY_SCORE)
