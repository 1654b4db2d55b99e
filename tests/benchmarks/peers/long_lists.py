"""Long lists ranked by score, with judgements, as trec_eval reads them: the project, DuckDB and pytrec_eval.

A log is a folder with ``log`` (experiment, user, item, score) and ``judgements`` (user, item, relevance). Each function
takes the folder and returns the means of ``METRICS`` per experiment; libraries are imported where they are needed,
since each function runs in an environment of its own.
"""

from collections.abc import Iterator
from typing import Any

METRICS = ("ndcg@10", "ndcg@20", "p@5", "p@20", "r@1000", "ap")
_TREC = {"ndcg@10": "ndcg_cut_10", "ndcg@20": "ndcg_cut_20", "p@5": "P_5", "p@20": "P_20", "r@1000": "recall_1000"}
_inputs: dict[str, tuple[dict, dict]] = {}


def on_sail(path: str) -> dict:
    from rankmetrics_spark import laptop_session

    return _ours(path, laptop_session(threads=2))


def on_spark(path: str) -> dict:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.engines import SETTINGS_OF_RUNS
    from rankmetrics_spark.engines.spark import local_session
    from tests.benchmarks.peers.settings import SETTINGS

    return _ours(
        path, SparkSession.getActiveSession() or local_session("local[2]", "long", SETTINGS | SETTINGS_OF_RUNS)
    )


def _ours(path: str, spark: Any) -> dict:
    from rankmetrics_spark import evaluate
    from rankmetrics_spark.engines import sessions

    log, judgements = (spark.read.parquet(f"{path}/{name}") for name in ("log", "judgements"))
    with sessions.session_settings(spark, sessions.SETTINGS_OF_ROWS):
        result = evaluate(log, METRICS, judgements, "score", columns={"relevance": None}, convention="trec_eval")
        rows = result.experiment_metrics.collect()
    return {(row["experiment_id"], row["metric"]): row["mean"] for row in rows}


def duckdb(path: str) -> dict:
    """The same work: faulty rows with reasons, repeated items, exact sums and intervals."""
    import duckdb

    from tests.benchmarks.peers import same_work

    keys, unit = 'experiment, "user"', same_work.UNIT
    values = {"ap": "coalesce(sum(hit / position) / any_value(m), 0)"}
    for k in (10, 20):
        dcg = f"sum(greatest(grade, 0) * ln(2) / ln(position + 1)) filter (where position <= {k})"
        values[f"ndcg@{k}"] = f"coalesce({dcg} / any_value(ideal{k}), 0)"
    for k in (5, 20):
        values[f"p@{k}"] = f"count(*) filter (where position <= {k}) / {k}"
    values["r@1000"] = "coalesce(count(*) filter (where position <= 1000) / any_value(m), 0)"
    powers = (power for name in METRICS for power in (f'"{name}"', f'"{name}" * "{name}"'))
    sums = ", ".join(f"coalesce(sum(({power} * {unit}::double)::hugeint), 0)" for power in powers)
    reason = "case when experiment is null then 1 when experiment = '' then 2 when \"user\" is null then 3 "
    reason += "when item is null then 4 when score is null then 5 when isnan(score) then 6 end"
    with duckdb.connect(config={"threads": 2}) as base:
        base.execute(f"""
            create temp table judged as select "user", item, max(relevance) as grade
            from read_parquet('{path}/judgements/*.parquet')
            where "user" is not null and item is not null and relevance is not null group by all
        """)
        ideal = ", ".join(
            f"sum(grade * ln(2) / ln(place + 1)) filter (where grade > 0 and place <= {k}) as ideal{k}"
            for k in (10, 20)
        )
        base.execute(f"""
            create temp table pools as select "user", count(*) filter (where grade > 0) as m, {ideal} from (
                select *, row_number() over (partition by "user" order by grade desc) as place from judged
            ) group by "user"
        """)
        base.execute(f"create temp view rows as select *, {reason} as reason from read_parquet('{path}/log/*.parquet')")
        base.execute(f"""
            create temp table lists as select {keys}, reason, count(*) as n,
                   list_unique(list(hash(item))) = count(*) as sound from rows group by all
        """)
        if base.execute("select count(*) from lists where reason is null and not sound").fetchone() != (0,):
            raise ValueError("an item is twice in a list, which trec_eval refuses")
        base.execute(f"""
            create temp table hits as select *, row_number() over (partition by {keys} order by position) as hit from (
                select experiment, ranked."user", position, grade from (
                    select {keys}, item, row_number() over (partition by {keys} order by score::float desc, item desc)
                           as position from rows where reason is null
                ) ranked join judged on ranked."user" = judged."user" and ranked.item = judged.item where grade > 0
            )
        """)
        listed = ", ".join(f'{sql} as "{name}"' for name, sql in values.items())
        base.execute(
            f'create temp table users as select {keys}, {listed} from hits join pools using ("user") group by all'
        )
        totals = base.execute(f"select experiment, {sums} from users group by all").fetchall()
        (n,) = base.execute("select count(*) from pools").fetchone() or (0,)
    result = {}
    for experiment, *numbers in totals:
        pairs = dict(zip(METRICS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        estimated = same_work.estimates(n, n, 0, pairs)
        result |= {(experiment, name): estimated[name] for name in METRICS}
    return result


def trec_eval(path: str) -> dict:
    """pytrec_eval; the nested dicts that it reads are built before, and not timed."""
    import pytrec_eval

    judged, runs = _inputs[path]
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10,20", "P.5,20", "recall.1000", "map"})
    result = {}
    for experiment, run in runs.items():
        topics = evaluator.evaluate(run).values()
        for name in METRICS:
            values = [topic[_TREC.get(name, "map")] for topic in topics]
            result[experiment, name] = sum(values) / len(judged)
    return result


def prepare(path: str) -> None:
    """Build what ``trec_eval`` reads, where it is installed."""
    try:
        import pytrec_eval  # noqa: F401
    except ImportError:
        return
    judged: dict[str, dict[str, int]] = {}
    for user, item, grade in _rows(f"{path}/judgements"):
        judged.setdefault(user, {})[item] = int(grade)
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for experiment, user, item, score in _rows(f"{path}/log"):
        runs.setdefault(experiment, {}).setdefault(user, {})[item] = score
    _inputs[path] = judged, runs


def _rows(folder: str) -> Iterator[tuple]:
    import pyarrow.parquet as pq

    for batch in pq.read_table(folder).to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
