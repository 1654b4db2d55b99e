"""The project on the laptop engine, in an environment of its own, on two threads."""

import tempfile
from functools import partial

from rankmetrics_spark import config as cfg, laptop_session, run
from tests.benchmarks.peers import ours
from tests.benchmarks.peers.common import COLUMNS


def prepare(path: str) -> None:
    laptop_session(threads=2)


default = ours.run
ignoring = partial(ours.run, repeated_items="ignore")
real_valued = partial(ours.run, relevance="gain")
by_score = ours.by_score


def job(path: str) -> dict:
    """The whole job with all tables."""
    columns = {name: name for name in ("experiment", "user", "item")}
    with tempfile.TemporaryDirectory() as out:
        document = {"source": {"path": path, "columns": columns}, "metrics": list(COLUMNS), "sink": {"path": out}}
        run(laptop_session(threads=2), cfg.from_mapping(document))
    return {}
