"""Lists with scores as columns of an Arrow batch: tests call the same functions as the Python worker."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rankmetrics_spark.layouts import LAYOUTS, Arrays, Scoring, score_batch
from rankmetrics_spark.metrics import Convention, parse, resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Case(NamedTuple):
    """One list: the items shown, their scores, and the judgements."""

    items: Sequence[str]
    scores: Sequence[float]
    judged: Mapping[str, int]


ENTRY = {"_hash": pa.int64(), "item_id": pa.string(), "score": pa.float64(), "position": pa.int64()}


def columns(cases: Sequence[Case], by_position: bool = False) -> Arrays:
    """Return the cases as a batch; with ``by_position`` each entry also has its position."""
    names = sorted({item for case in cases for item in (*case.items, *case.judged)})
    code = {name: index for index, name in enumerate(names)}
    pools = [sorted(case.judged.items(), key=lambda pair: -pair[1]) for case in cases]
    kinds = {name: kind for name, kind in ENTRY.items() if by_position or name != "position"}
    shown = [
        [
            {"_hash": code[item], "item_id": item, "score": score, "position": rank}
            for rank, (item, score) in enumerate(zip(case.items, case.scores, strict=True), 1)
        ]
        for case in cases
    ]
    return {
        "_rows": pa.array([len(case.items) for case in cases]),
        "_entries": pa.array(shown, pa.list_(pa.struct(kinds.items()))),
        "_pool_grade": pa.array([[grade for _, grade in pool] for pool in pools], pa.list_(pa.float64())),
        "_pool_hash": pa.array([[code[item] for item, _ in pool] for pool in pools], pa.list_(pa.int64())),
    }


def values(
    cases: Sequence[Case], metrics: Sequence[str], convention: object, by_position: bool = False
) -> list[list[float]]:
    """Return the value of each metric, for each case."""
    rule: Convention = resolve(convention)  # type: ignore[arg-type]
    scoring = Scoring(tuple(parse(name) for name in metrics), (rule,), by_position, judged=True)
    (result,) = score_batch(columns(cases, by_position), LAYOUTS["rows"], scoring)
    by_metric = [result[metric.column].tolist() for metric in scoring.metrics]
    return [list(row) for row in zip(*by_metric, strict=True)]


@contextmanager
def calls_of_the_jvm(spark: "SparkSession") -> Iterator[list[str]]:
    """The calls that a classic session makes meanwhile; not those that only release an object."""
    client: Any = type(spark._jvm._gateway_client)
    calls: list[str] = []
    send = client.send_command

    def noted(self: Any, command: str, *more: Any, **named: Any) -> Any:
        """Send a command, and note it."""
        if not command.startswith("m\n"):
            calls.append(command)
        return send(self, command, *more, **named)

    client.send_command = noted
    try:
        yield calls
    finally:
        client.send_command = send
