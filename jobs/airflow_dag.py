"""A daily evaluation in Airflow 3.3 or newer: ``evaluate``, then ``publish`` if it succeeded.

Set Airflow's DAGs folder to the folder of this file, or link the file into the DAGs folder. The logical date, as a date
in TIME_ZONE, is the day that is evaluated: ``scheduled__2026-11-20T08:00:00+00:00`` is 2026-11-20 in
``America/Los_Angeles``. A scheduled run starts when that day is over there, and DELAY seconds later where a log takes
its time. A run writes only the partitions of its own day, so days can be repeated and backfilled: clear a run, or
``airflow backfill create --reprocess-behavior completed``, which without that word leaves days that have run.

The DAG ``rankmetrics_backfill`` evaluates several days in one Spark application, so that Spark starts once: trigger it
with the parameters ``from`` and ``to``. Each day is published on its own. It goes on after a day that is late or
refused, ``publish`` runs for those that it has published, and the run fails if there was one that it has not; on
Databricks ``publish`` waits for all of them. ``airflow backfill create`` starts an application for each day instead,
several at a time where MAX_ACTIVE_RUNS allows it.

``evaluate`` is retried after a temporary failure, such as a late log or a lost machine. A wrong config or a failed gate
(exit codes 2, 4 and 5) fails at once and publishes nothing; earlier published results stay. If the driver runs on the
cluster (``deploy-mode: cluster``), spark-submit does not report the exit code, so these failures are retried too.

``publish`` reads ``published/DAY.json``, which the run has written last, and updates two assets, which other DAGs can
wait for: ``rankmetrics``, for a DAG with ``schedule=[Asset("rankmetrics")]``, and ``rankmetrics_days``, whose events
have the day as their partition key, for one with
``schedule=PartitionedAssetTimetable(assets=Asset("rankmetrics_days"))``. The event of each asset names the run and its
partitions. On Databricks it has only the day, because Airflow cannot access
the output.

With ``OPENLINEAGE_URL`` in the environment of the driver, a run sends OpenLineage events. With
``AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO=true`` and ``apache-airflow-providers-openlineage``, they name the
task as their parent.

Settings are environment variables of the DAG processor and the workers. Prefix each name with ``RANKMETRICS_``:

===============  =========================  ====================================================================
PLATFORM         spark                      spark (spark-submit), or databricks
CONN_ID          spark_default              connection; on Databricks databricks_default
HOME             the folder above this one  has jobs/evaluate.py and dist/rankmetrics_spark.zip (from make wheel)
CONFIG           HOME/conf/example.yaml     use an absolute source.path: a worker may run in any folder
OUTPUT           HOME/out                   replaces sink.path; s3a://... needs the Amazon provider with its extra s3fs
OUTPUT_CONN_ID   (none)                     connection for reading OUTPUT; by default what the worker itself may read
WHERE            (none)                     the filter of a CONFIG without source.where, such as
                                            event_date = '{date}'; refused with one. By default CONFIG selects the day,
                                            with {date} in source.where or source.path, and means the same by hand
TIME_ZONE        UTC                        where a day starts and ends, such as America/Los_Angeles
DELAY            0                          seconds after the end of a day in which its log may still grow
PERIOD_FROM      (none)                     first day of a test: the days from it on are compared as one; see below
JOB              rankmetrics on a cluster   name or id of a job of conf/databricks.yml; see below
START_DATE       2020-01-01                 first day to evaluate
CATCHUP          false                      true: evaluate every day since START_DATE
MAX_ACTIVE_RUNS  1                          days evaluated at the same time
RETRIES          3                          per task
RETRY_DELAY      900                        seconds between tries
===============  =========================  ====================================================================

PERIOD_FROM sets ``comparison.period``, so CONFIG needs a ``comparison.baseline``. Days before it are compared alone. A
backfill fills the period in; days that ran while an earlier one was missing are compared again when they are repeated.
On Databricks the period is the bundle's variable ``period``.

The bundle's target ``prod`` deploys the job under this name, the target ``dev`` with ``[dev USER]`` before it. JOB is
``[dev jane_doe] rankmetrics on a cluster`` there, or the id: ``databricks bundle summary`` prints the job's address,
which ends with the id.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timedelta, timezone
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
    from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, ObjectStoragePath, Param, RetryDecision, RetryPolicy
    from airflow.sdk.exceptions import AirflowSkipException
except ImportError as error:
    raise ImportError(
        "the DAG rankmetrics needs Airflow 3.3 or newer with apache-airflow-providers-standard; "
        f"found Airflow {version('apache-airflow')}: {error}"
    ) from None


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
# The command fills {date} in for each day.
WHERE = re.sub(r"{{ *ds *}}", "{date}", setting("WHERE", ""))
TIME_ZONE = setting("TIME_ZONE", "UTC", "[A-Za-z0-9_+/-]+", "a name such as America/Los_Angeles")
DAY = f"{{{{ logical_date.in_timezone('{TIME_ZONE}').to_date_string() }}}}"
DELAY = number("DELAY", 0)
START = setting("START_DATE", "2020-01-01", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as YYYY-MM-DD")
PERIOD_FROM = setting("PERIOD_FROM", "", "|[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as YYYY-MM-DD")
PUBLISHED = Asset("rankmetrics")
# An asset of its own: an event with a partition starts no DAG that waits for the asset as a whole.
DAYS = Asset("rankmetrics_days")


class FailOnPermanentErrors(RetryPolicy):  # type: ignore[misc]  # mypy cannot see Airflow: the base class is Any
    """Fail at once on errors that a retry cannot fix; ``retries`` covers all others."""

    # The operators report an exit code, or the exception that ended a notebook.
    PERMANENT = re.compile(r"\b(Error code is|SystemExit): [245]\b|\b(Config|Quality|MetricGate)Error: ")

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        if self.PERMANENT.search(str(exception)):
            return RetryDecision.fail("a wrong config or a failed gate: a retry would fail in the same way")
        return RetryDecision.default()


def operator(provider: str, module: str, name: str) -> Any:
    try:
        return getattr(import_module(f"airflow.providers.{module}"), name)
    except ImportError:
        platform = "databricks" if DATABRICKS else "spark"
        raise ImportError(
            f"the DAG rankmetrics needs {provider} where RANKMETRICS_PLATFORM is '{platform}': pip install {provider}"
        ) from None


def on_spark(days: list[str], first: str) -> Any:
    """The task that evaluates days; ``first`` is the first of them, as a template."""
    submit = operator(
        "apache-airflow-providers-apache-spark", "apache.spark.operators.spark_submit", "SparkSubmitOperator"
    )
    # Not --set, which would replace a filter of the config without a word.
    filtered = ["--where", WHERE] if WHERE else []
    named = f"{{{{ '{{from: {PERIOD_FROM}}}' if {first.strip('{} ')} >= '{PERIOD_FROM}' else 'null' }}}}"
    period = ["--set", f"comparison.period={named}"] if PERIOD_FROM else []
    config = setting("CONFIG", f"{HOME}/conf/example.yaml")
    return submit(
        task_id="evaluate",
        conn_id=CONNECTION,
        name="rankmetrics",
        application=f"{HOME}/jobs/evaluate.py",
        py_files=f"{HOME}/dist/rankmetrics_spark.zip",
        application_args=["--config", config, "--output", OUTPUT, *days, *filtered, *period],
        retry_policy=FailOnPermanentErrors(),
    )


def on_databricks(days: str) -> Any:
    """The task that starts the job for a day, or for several such as 2026-11-08..2026-11-21."""
    if PERIOD_FROM:
        raise ValueError(
            f"RANKMETRICS_PERIOD_FROM is '{PERIOD_FROM}', and RANKMETRICS_PLATFORM is 'databricks'; allowed: the "
            "variable period of the bundle"
        )
    run_now = operator(
        "apache-airflow-providers-databricks", "databricks.operators.databricks", "DatabricksRunNowOperator"
    )
    job = setting("JOB", "rankmetrics on a cluster")
    return run_now(
        task_id="evaluate",
        databricks_conn_id=CONNECTION,
        **({"job_id": int(job)} if job.isdecimal() else {"job_name": job}),
        job_parameters={"date": days},
        retry_policy=FailOnPermanentErrors(),
    )


def days_between(first: str, last: str) -> list[dict[str, str]]:
    """What ``publish`` gets for each day of a backfill."""
    start, end = (datetime.strptime(day, "%Y-%m-%d") for day in (first, last))
    if end < start:
        raise ValueError(f"from is {first}, and to is {last}; allowed: to on or after from")
    # Ids of runs begin with their time.
    now = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
    return [{"date": f"{start + timedelta(days=n):%Y-%m-%d}", "since": now} for n in range((end - start).days + 1)]


def publish(date: str, outlet_events: Any, since: str = "") -> None:
    """Mark the results of a day as ready to use, if a run has published them ``since`` then."""
    extra = {"evaluation_date": date} if DATABRICKS else pointer_of(date)
    if str(extra.get("run_id", since)) < since:
        raise AirflowSkipException(f"{date} was not published: see the log of evaluate")
    outlet_events[PUBLISHED].extra = outlet_events[DAYS].extra = extra
    outlet_events[DAYS].add_partitions(date)


def pointer_of(date: str) -> dict[str, Any]:
    """What ``published/DAY.json`` says: the run whose numbers may be read, its record and its partitions."""
    place = ObjectStoragePath(re.sub("^s3a:", "s3:", OUTPUT), conn_id=setting("OUTPUT_CONN_ID", "") or None)
    path = place / "published" / f"{date}.json"
    # Where only Spark reaches the output, it has written a folder with one file.
    file = next(path.glob("part-*")) if path.is_dir() else path
    if not file.exists():
        raise AirflowSkipException(f"{date} was not published: see the log of evaluate")
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {name: result[name] for name in ("evaluation_date", "run_id", "record", "partitions")}


RETRYING = {"retries": number("RETRIES", 3), "retry_delay": timedelta(seconds=number("RETRY_DELAY", 900))}

with DAG(
    "rankmetrics",
    description="Daily ranking metrics of every experiment",
    # The plain "@daily" of Airflow 3 would start at the beginning of the logical date, not at its end.
    schedule=CronDataIntervalTimetable("@daily", timezone=TIME_ZONE),
    start_date=datetime.strptime(START, "%Y-%m-%d").replace(tzinfo=timezone.utc),
    catchup=setting("CATCHUP", "false", "false|true") == "true",
    max_active_runs=number("MAX_ACTIVE_RUNS", 1),
    default_args=RETRYING,
    tags=["rankmetrics"],
    doc_md=__doc__,
):
    evaluated = on_databricks(DAY) if DATABRICKS else on_spark(["--date", DAY], DAY)
    if DELAY:
        # Until then, it holds no slot of a worker.
        TimeDeltaSensor(task_id="wait", delta=timedelta(seconds=DELAY), mode="reschedule") >> evaluated
    evaluated >> PythonOperator(
        task_id="publish", python_callable=publish, op_kwargs={"date": DAY}, outlets=[PUBLISHED, DAYS]
    )

FIRST, LAST = "{{ params['from'] }}", "{{ params['to'] }}"

with DAG(
    "rankmetrics_backfill",
    description="Ranking metrics of several days in one session; each day is published on its own",
    schedule=None,
    params={
        name: Param(type="string", format="date", description=f"{which} day")
        for name, which in (("from", "First"), ("to", "Last"))
    },
    default_args=RETRYING,
    tags=["rankmetrics"],
    doc_md=__doc__,
):
    listed = PythonOperator(task_id="days", python_callable=days_between, op_kwargs={"first": FIRST, "last": LAST})
    if DATABRICKS:
        several = on_databricks(f"{FIRST}..{LAST}")
    else:
        several = on_spark(["--from", FIRST, "--to", LAST, "--keep-going"], FIRST)
    # On Databricks nothing says which days are published where the job has failed.
    rule = "all_success" if DATABRICKS else "all_done"
    each_day = PythonOperator.partial(
        task_id="publish", python_callable=publish, outlets=[PUBLISHED, DAYS], trigger_rule=rule
    ).expand(op_kwargs=listed.output)
    listed >> several >> each_day
    # The state of the run is that of its last task, which fails with the days that failed.
    [several, each_day] >> EmptyOperator(task_id="done", trigger_rule="none_failed")
