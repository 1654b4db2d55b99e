"""Polars on two threads, ranking by score."""

from tests.benchmarks.peers import polars_lazy


def run(path: str) -> dict:
    return polars_lazy.run(path, by_score=True)
