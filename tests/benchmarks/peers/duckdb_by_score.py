"""DuckDB on two threads, ranking by score."""

from tests.benchmarks.peers import duckdb_sql


def run(path: str) -> dict:
    return duckdb_sql.run(path, duckdb_sql.BY_SCORE)
