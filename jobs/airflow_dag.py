"""A daily evaluation in Airflow 3.3 or newer: ``evaluate``, and ``publish`` only where that succeeded.

Make the folder of this file Airflow's folder of DAGs, or link the file there. The logical date is the day that is
evaluated, and a scheduled run starts when that day is over. A day writes nothing but its own partitions, so days can
be repeated and backfilled.

``evaluate`` is tried again after a failure that time may mend: a late log, a lost machine. A wrong config or a failed
gate (exit codes 2, 4 and 5) fails at once, writes nothing, and what was published before stays. Where the driver runs
on the cluster (``deploy-mode: cluster``) spark-submit does not learn the code, and they are tried again in vain.

``publish`` writes ``published/DAY.json`` into the output, which names the run and its partitions, and updates the asset
``rankmetrics``, for which other DAGs can wait. On Databricks it does only that: Airflow does not see the output.

Settings are environment variables of the DAG processor and the workers, ``RANKMETRICS_`` and:

===============  =========================  ====================================================================
PLATFORM         spark                      spark (spark-submit), or databricks
CONN_ID          spark_default              connection; on Databricks databricks_default
HOME             the folder above this one  has jobs/evaluate.py and, by make wheel, dist/rankmetrics_spark.zip
CONFIG           HOME/conf/example.yaml     with an absolute source.path: a worker runs anywhere
OUTPUT           HOME/out                   instead of sink.path; s3a://... needs the provider for Amazon
WHERE            event_date = '{{ ds }}'    instead of source.where; empty: {date} in the config chooses the day
JOB              rankmetrics on a cluster   of conf/databricks.yml, where {date} in its variable where does
START_DATE       2020-01-01                 no day before it is evaluated
CATCHUP          false                      true: every day since then is evaluated
MAX_ACTIVE_RUNS  1                          days at a time
RETRIES          3
RETRY_DELAY      900                        seconds
===============  =========================  ====================================================================
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, ObjectStoragePath, RetryDecision, RetryPolicy


def setting(name: str, default: str, allowed: str = ".*", words: str = "") -> str:
    value = os.environ.get(f"RANKMETRICS_{name}", default)
    if not re.fullmatch(allowed, value):
        raise ValueError(f"RANKMETRICS_{name} is '{value}'; allowed: {words or allowed.replace('|', ', ')}")
    return value


def number(name: str, default: int) -> int:
    return int(setting(name, str(default), "[0-9]+", "a whole number"))


DATABRICKS = setting("PLATFORM", "spark", "spark|databricks") == "databricks"
CONNECTION = setting("CONN_ID", "databricks_default" if DATABRICKS else "spark_default")
HOME = setting("HOME", str(Path(__file__).resolve().parents[1]))
OUTPUT = setting("OUTPUT", f"{HOME}/out").rstrip("/")
WHERE = setting("WHERE", "event_date = '{{ ds }}'")
START = setting("START_DATE", "2020-01-01", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as YYYY-MM-DD")
PUBLISHED = Asset("rankmetrics")


class UnlessInVain(RetryPolicy):  # type: ignore[misc]  # for mypy, which does not see Airflow, that is Any
    """Fail at once where another try would end the same way; the rest is up to ``retries``."""

    # How the operators tell the exit code, or the exception that ended a notebook.
    LASTING = re.compile(r"\b(Error code is|SystemExit): [245]\b|\b(Config|Quality|MetricGate)Error: ")

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        if self.LASTING.search(str(exception)):
            return RetryDecision.fail("a wrong config or a failed gate: another try would end the same way")
        return RetryDecision.default()


def on_spark() -> Any:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    only = ["--set", f"source.where={WHERE}"] if WHERE else []
    config = setting("CONFIG", f"{HOME}/conf/example.yaml")
    return SparkSubmitOperator(
        task_id="evaluate",
        conn_id=CONNECTION,
        name="rankmetrics",
        application=f"{HOME}/jobs/evaluate.py",
        py_files=f"{HOME}/dist/rankmetrics_spark.zip",
        application_args=["--config", config, "--output", OUTPUT, "--date", "{{ ds }}", *only],
        retry_policy=UnlessInVain(),
    )


def on_databricks() -> Any:
    from airflow.providers.databricks.operators.databricks import DatabricksRunNowOperator

    return DatabricksRunNowOperator(
        task_id="evaluate",
        databricks_conn_id=CONNECTION,
        job_name=setting("JOB", "rankmetrics on a cluster"),
        job_parameters={"date": "{{ ds }}"},
        retry_policy=UnlessInVain(),
    )


def publish(date: str, outlet_events: Any) -> None:
    """Say that the numbers of a day may be used."""
    outlet_events[PUBLISHED].extra = {"evaluation_date": date} if DATABRICKS else pointed_at(date)


def pointed_at(date: str) -> dict[str, Any]:
    """Write ``published/DAY.json``, whole or not at all; what it says."""
    out = ObjectStoragePath(re.sub("^s3a:", "s3:", OUTPUT))
    record = newest_record(out, date)
    run = record["run_id"]
    names = sorted(name for name, counts in record["experiments"].items() if counts["lists"])
    said = {
        "evaluation_date": date,
        "run_id": run,
        "record": f"runs/{run}.json",
        "partitions": [{"experiment_id": name, "evaluation_date": date} for name in names],
    }
    folder = out / "published"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{date}.{run}"
    draft.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.rename(folder / f"{date}.json")
    return said


def newest_record(out: Any, date: str) -> dict[str, Any]:
    """The record of the last run that evaluated a day; its name begins with the time."""
    for path in sorted((out / "runs").glob("*.json"), key=lambda path: str(path.name), reverse=True):
        # On an object store Spark wrote it: a folder.
        file = next(path.glob("part-*")) if path.is_dir() else path
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if record["evaluation_date"] == date:
            return record
    raise FileNotFoundError(f"{out}/runs has no record of {date}; evaluate leaves one")


with DAG(
    "rankmetrics",
    description="Ranking metrics of every experiment, day by day",
    # Airflow 3 would start "@daily" in the first moment of the day that it names.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime.strptime(START, "%Y-%m-%d").replace(tzinfo=timezone.utc),
    catchup=setting("CATCHUP", "false", "false|true") == "true",
    max_active_runs=number("MAX_ACTIVE_RUNS", 1),
    default_args={"retries": number("RETRIES", 3), "retry_delay": timedelta(seconds=number("RETRY_DELAY", 900))},
    tags=["rankmetrics"],
    doc_md=__doc__,
):
    evaluated = on_databricks() if DATABRICKS else on_spark()
    evaluated >> PythonOperator(
        task_id="publish", python_callable=publish, op_kwargs={"date": "{{ ds }}"}, outlets=[PUBLISHED]
    )
