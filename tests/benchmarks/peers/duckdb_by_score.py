"""DuckDB on two threads; it ranks by score."""

from tests.benchmarks.peers import duckdb_sql


def run(path: str) -> dict:
    return duckdb_sql.run(path, duckdb_sql.BY_SCORE)
