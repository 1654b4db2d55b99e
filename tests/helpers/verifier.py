"""Derive what a test has published again, in a process of its own: on the other engine, from rows in another order.

The process has neither what a test has changed in the program nor the tables of its session.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from threading import Lock
from typing import Any

PYTHONS = {"sail": ".venvs/laptop/bin/python", "spark": ".venv/bin/python"}
LEFT_OUT = {
    "the input or the output is a table of the session": ("TABLE_OR_VIEW", "table not found", "of a catalog"),
    "the output is a name that Spark takes for no folder": ("Relative path in absolute URI",),
    "the record hides a secret": ("hides secrets",),
    "its users were erased": ("users were erased from run",),
    "the test has changed the plan": ("registered/plan.json is not as it was written",),
    "the test adds to the program": ("unknown metric", "source.format: unknown value", "the column most_users"),
}
"""Why a run cannot be derived by another process -> what the error then says."""


class Verifier:
    """A process that verifies, and what it has found of the runs of all tests."""

    def __init__(self, engine: str) -> None:
        self.engine, self.lock, self.counts = engine, Lock(), Counter[str]()
        self.process: subprocess.Popen[str] | None = None
        self.folder = ""

    def __call__(self, path: str | None, date: str, run: str) -> str:
        """Verify what a run has published in a folder; what is wrong, or nothing."""
        with self.lock:
            asked = {"path": os.path.abspath(path or ""), "date": date, "run": run}
            answer = self._ask(asked) if path else {"error": "of a catalog"}
        if not (error := str(answer.get("error", ""))):
            self.counts[f"the same {' and '.join(answer['how'])}"] += 1
            return ""
        reason = next((why for why, texts in LEFT_OUT.items() if any(text in error for text in texts)), None)
        self.counts[f"left out: {reason}" if reason else "not the same"] += 1
        return "" if reason else error

    def _ask(self, question: dict[str, str]) -> dict[str, Any]:
        if self.process is not None and self.folder != os.getcwd():
            # Java stays in the folder where it was started, and a config may name a log below another.
            self.process.communicate()
            self.process = None
        if self.process is None:
            self.folder = os.getcwd()
            root = Path(__file__).resolve().parents[2]
            words = [root / PYTHONS[self.engine], "-m", "tests.helpers.verifier", self.engine]
            pipe = subprocess.PIPE
            more = {"PYTHONPATH": str(root)}
            self.process = subprocess.Popen(
                words,
                cwd=self.folder,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                text=True,
                env=os.environ | more,
            )
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline() or '{"error": "the process that verifies has ended"}'))


def main(engine: str) -> None:
    """Answer each line of stdin by a line."""
    from pyspark.sql import DataFrame, functions as F

    from rankmetrics_spark import job, sources
    from rankmetrics_spark.config import Sink
    from rankmetrics_spark.job.verifying import _Derived
    from rankmetrics_spark.report import format_of
    from tests.conftest import session_of

    read, again, compare, answers = sources.read, _Derived.again, _Derived.compare, sys.stdout
    asked: dict[str, str] = {}

    def shuffled(*arguments: Any) -> "DataFrame":
        return read(*arguments).repartition(3).sortWithinPartitions(F.rand(7))

    def of_run(method: Any) -> Any:
        """Earlier runs of the date were verified as they had published; the test may have changed their logs since."""
        return lambda self, *given: method(self, *given) if self.entry.run_id == asked["run"] else None

    sources.read = shuffled  # type: ignore[assignment]
    _Derived.again, _Derived.compare = of_run(again), of_run(compare)  # type: ignore[method-assign]
    with redirect_stdout(sys.stderr):
        spark = session_of(engine)
        for line in sys.stdin:
            asked.update(json.loads(line))
            try:
                result = job.verify(spark, Sink(path=asked["path"], format=format_of(asked["path"])), asked["date"])
                answer: dict[str, Any] = {"how": sorted({row["the same"] for row in result.rows})}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
