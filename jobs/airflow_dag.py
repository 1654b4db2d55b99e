"""A daily evaluation in Airflow 3.3 or newer, whose environment has the wheel with its extra ``airflow``.

Set Airflow's DAGs folder to the folder of this file, or link the file into the DAGs folder. The logical date, as a date
in TIME_ZONE, is the day that is evaluated. A scheduled run starts when that day is over there, and DELAY seconds later
where a log takes its time. It is named after that moment: ``scheduled__2026-11-21T08:00:00+00:00`` evaluates 2026-11-20
in ``America/Los_Angeles``. A run writes only the partitions of its own day, so days can be repeated and backfilled:
clear a run, or ``airflow backfill create --reprocess-behavior completed``, which without that word leaves days that
have run.

The DAG ``rankmetrics_backfill`` evaluates several days in one Spark application, so that Spark starts once: trigger it
with the parameters ``from`` and ``to``. Each day is published on its own. It goes on after a day that is late or
refused, ``publish`` runs for those that it has published, and the run fails if there was one that it has not; on
Databricks ``publish`` waits for all of them. ``airflow backfill create`` starts an application for each day instead,
several at a time where MAX_ACTIVE_RUNS allows it.

``evaluate`` is retried after a temporary failure, such as a lost machine. A wrong config or a failed gate (exit codes
2, 4 and 5) fails at once and publishes nothing; earlier published results stay. A log that is late (exit code 3) is
looked for until LATE_UNTIL, or else is a failure that is retried. If the driver runs on the cluster
(``deploy-mode: cluster``), spark-submit does not report the exit code, so these failures are retried too.

A day that is published updates two assets, which other DAGs can wait for: ``rankmetrics``, for a DAG with
``schedule=[Asset("rankmetrics")]``, and ``rankmetrics_days``, whose events have the day as their partition key, for one
with ``schedule=PartitionedAssetTimetable(assets=Asset("rankmetrics_days"))``. The event of each asset, and the XCom of
the task, name the run, its partitions, its counts and its verdict. On Databricks they have only the day, because
Airflow cannot access the output.

With DEFERRABLE, no task holds a slot while Spark runs; a triggerer waits. On Spark, the driver is then a process of its
own on the worker's machine, whose log and exit code are files of JOB_FOLDER, which the triggerer has to see. Where a
worker is a pod of its own, leave it off.

With ``OPENLINEAGE_URL`` in the environment of the driver, a run sends OpenLineage events. With
``AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO=true`` and ``apache-airflow-providers-openlineage``, they name the
task as their parent.

Settings are environment variables of the DAG processor and the workers. Prefix each name with ``RANKMETRICS_``:

===============  =========================  ====================================================================
PLATFORM         spark                      spark (spark-submit), or databricks
CONN_ID          spark_default              connection; on Databricks databricks_default
HOME             the folder above this one  has dist/rankmetrics_spark.zip (from make wheel), for the executors
CONFIG           HOME/conf/example.yaml     use an absolute source.path: a worker may run in any folder
OUTPUT           HOME/out                   replaces sink.path; s3a://... needs the Amazon provider with its extra s3fs
OUTPUT_CONN_ID   (none)                     connection for reading OUTPUT; by default what the worker itself may read
WHERE            (none)                     the filter of a CONFIG without source.where, such as
                                            event_date = '{date}'; refused with one. By default CONFIG selects the day,
                                            with {date} in source.where or source.path, and means the same by hand
TIME_ZONE        UTC                        where a day starts and ends, such as America/Los_Angeles
DELAY            0                          seconds after the end of a day in which its log may still grow
LATE_UNTIL       (none)                     hour of the day after, such as 09:00, until which a log that is not there is
                                            looked for every RETRY_DELAY; it holds no slot and spends none of RETRIES
PERIOD_FROM      (none)                     first day of a test: the days from it on are compared as one; see below
DEFERRABLE       false                      true: no slot of a worker is held while a job runs
JOB_FOLDER       AIRFLOW_HOME/...           where a deferred job writes its log and exit code
CONF             {}                         Spark's settings as JSON, such as {"spark.executor.instances": "4"}
PACKAGES         (none)                     Maven coordinates of jars, with commas; ARCHIVES: of a packed environment
DRIVER_MEMORY    (none)                     such as 8g; EXECUTOR_MEMORY as well
LOG_LEVEL        (none)                     of Spark, such as INFO; by default its log is off
KEEP             (none)                     days that stay, such as 90d: after each day, prune removes older ones
JOB              rankmetrics on a cluster   name or id of a job of conf/databricks.yml; see below
START_DATE       2020-01-01                 first day to evaluate
CATCHUP          false                      true: evaluate every day since START_DATE
MAX_ACTIVE_RUNS  1                          days evaluated at the same time
RETRIES          3                          per task
RETRY_DELAY      900                        seconds between tries
===============  =========================  ====================================================================

PERIOD_FROM sets ``comparison.period``, so CONFIG needs a ``comparison.baseline``. Days before it are compared alone. A
backfill fills the period in; days that ran while an earlier one was missing are compared again when they are repeated.
On Databricks, the period and what is kept are the bundle's variables ``period`` and ``keep``.

The bundle's target ``prod`` deploys the job under this name, the target ``dev`` with ``[dev USER]`` before it. JOB is
``[dev jane_doe] rankmetrics on a cluster`` there, or the id: ``databricks bundle summary`` prints the job's address,
which ends with the id.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
    from airflow.sdk import DAG, CronDataIntervalTimetable, Param

    from rankmetrics_spark.airflow import ByExitCode, RankmetricsOperator, assets, pointer_of, publish
except ImportError as error:
    raise ImportError(
        "the DAG rankmetrics needs Airflow 3.3 or newer, and rankmetrics_spark with its extra airflow; "
        f"found Airflow {version('apache-airflow')}: {error}"
    ) from None


def setting(name: str, default: str, allowed: str = ".*", words: str = "") -> str:
    value = os.environ.get(f"RANKMETRICS_{name}", default)
    if not re.fullmatch(allowed, value, re.DOTALL):
        raise ValueError(f"RANKMETRICS_{name} is '{value}'; allowed: {words or allowed.replace('|', ', ')}")
    return value


def number(name: str, default: int) -> int:
    return int(setting(name, str(default), "[0-9]+", "a whole number"))


def switch(name: str) -> bool:
    return setting(name, "false", "false|true") == "true"


def conf() -> dict[str, str]:
    try:
        return {name: str(value) for name, value in json.loads(setting("CONF", "{}")).items()}
    except (ValueError, AttributeError):
        example = '{"spark.executor.instances": "4"}'
        raise ValueError(f"RANKMETRICS_CONF is '{setting('CONF', '')}'; allowed: JSON such as {example}") from None


DATABRICKS = setting("PLATFORM", "spark", "spark|databricks") == "databricks"
CONNECTION = setting("CONN_ID", "databricks_default" if DATABRICKS else "spark_default")
HOME = setting("HOME", str(Path(__file__).resolve().parents[1]))
OUTPUT = setting("OUTPUT", f"{HOME}/out").rstrip("/")
# The command fills {date} in for each day.
WHERE = re.sub(r"{{ *ds *}}", "{date}", setting("WHERE", ""))
TIME_ZONE = setting("TIME_ZONE", "UTC", "[A-Za-z0-9_+/-]+", "a name such as America/Los_Angeles")
DAY = f"{{{{ logical_date.in_timezone('{TIME_ZONE}').to_date_string() }}}}"
DELAY = number("DELAY", 0)
LATE_UNTIL = setting("LATE_UNTIL", "", "|([01][0-9]|2[0-3]):[0-5][0-9]", "an hour such as 09:00")
START = setting("START_DATE", "2020-01-01", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as YYYY-MM-DD")
PERIOD_FROM = setting("PERIOD_FROM", "", "|[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as YYYY-MM-DD")
KEEP = setting("KEEP", "", "|[1-9][0-9]{0,4}[dw]", "days or weeks such as 90d or 12w")
DEFERRABLE = switch("DEFERRABLE")
ASSET = "rankmetrics"
# What Airflow can read of the output.
PUBLISHED = {"output": None if DATABRICKS else OUTPUT, "conn_id": setting("OUTPUT_CONN_ID", "") or None, "asset": ASSET}


def on_spark(days: str, first: str, asset: str | None = ASSET) -> Any:
    """The task that evaluates days; ``first`` is the first of them, as a template."""
    arguments = ["--where", WHERE] if WHERE else []
    if PERIOD_FROM:
        named = f"{{{{ '{{from: {PERIOD_FROM}}}' if {first.strip('{} ')} >= '{PERIOD_FROM}' else 'null' }}}}"
        arguments += ["--set", f"comparison.period={named}"]
    names = ("PACKAGES", "ARCHIVES", "DRIVER_MEMORY", "EXECUTOR_MEMORY", "LOG_LEVEL", "JOB_FOLDER")
    given: dict[str, Any] = {name.lower(): setting(name, "") or None for name in names}
    return RankmetricsOperator(
        task_id="evaluate",
        conn_id=CONNECTION,
        config=setting("CONFIG", f"{HOME}/conf/example.yaml"),
        output=OUTPUT,
        output_conn_id=PUBLISHED["conn_id"],
        date=days,
        arguments=[*arguments, *([] if asset else ["--keep-going"])],
        asset=asset,
        # A range has days that will never be there.
        late_until=(asset and LATE_UNTIL) or None,
        time_zone=TIME_ZONE,
        py_files=f"{HOME}/dist/rankmetrics_spark.zip",
        conf=conf(),
        deferrable=DEFERRABLE,
        **given,
    )


def on_databricks(days: str) -> Any:
    """The task that starts the job for a day, or for several such as 2026-11-08..2026-11-21."""
    variables = {"PERIOD_FROM": (PERIOD_FROM, "period"), "KEEP": (KEEP, "keep")}
    for name, (value, variable) in variables.items():
        if value:
            raise ValueError(
                f"RANKMETRICS_{name} is '{value}', and RANKMETRICS_PLATFORM is 'databricks'; allowed: the variable "
                f"{variable} of the bundle"
            )
    try:
        from airflow.providers.databricks.operators.databricks import DatabricksRunNowOperator
    except ImportError:
        provider = "apache-airflow-providers-databricks"
        raise ImportError(
            f"the DAG rankmetrics needs {provider} where RANKMETRICS_PLATFORM is 'databricks': pip install {provider}"
        ) from None
    job = setting("JOB", "rankmetrics on a cluster")
    return DatabricksRunNowOperator(
        task_id="evaluate",
        databricks_conn_id=CONNECTION,
        **({"job_id": int(job)} if job.isdecimal() else {"job_name": job}),
        job_parameters={"date": days},
        retry_policy=ByExitCode(),
        deferrable=DEFERRABLE,
    )


def days_between(first: str, last: str) -> list[dict[str, str | None]]:
    """What ``publish`` gets for each day of a backfill: also the run that is published before it."""
    start, end = (datetime.strptime(day, "%Y-%m-%d") for day in (first, last))
    if end < start:
        raise ValueError(f"from is {first}, and to is {last}; allowed: to on or after from")
    dates = [f"{start + timedelta(days=n):%Y-%m-%d}" for n in range((end - start).days + 1)]
    if DATABRICKS:
        return [PUBLISHED | {"date": date} for date in dates]
    runs = [pointer_of(date, OUTPUT, PUBLISHED["conn_id"]).get("run_id", "") for date in dates]
    return [PUBLISHED | {"date": date, "before": run} for date, run in zip(dates, runs, strict=True)]


RETRYING = {"retries": number("RETRIES", 3), "retry_delay": timedelta(seconds=number("RETRY_DELAY", 900))}

with DAG(
    "rankmetrics",
    description="Daily ranking metrics of every experiment",
    # The plain "@daily" of Airflow 3 would start at the beginning of the logical date, not at its end.
    schedule=CronDataIntervalTimetable("@daily", timezone=TIME_ZONE),
    start_date=datetime.strptime(START, "%Y-%m-%d").replace(tzinfo=timezone.utc),
    catchup=switch("CATCHUP"),
    max_active_runs=number("MAX_ACTIVE_RUNS", 1),
    default_args=RETRYING,
    tags=["rankmetrics"],
    doc_md=__doc__,
):
    evaluated = on_databricks(DAY) if DATABRICKS else on_spark(DAY, DAY)
    if DELAY:
        # Until then, it holds no slot of a worker.
        TimeDeltaSensor(task_id="wait", delta=timedelta(seconds=DELAY), mode="reschedule") >> evaluated
    if DATABRICKS:
        evaluated >> PythonOperator(
            task_id="publish", python_callable=publish, op_kwargs={"date": DAY, **PUBLISHED}, outlets=assets(ASSET)
        )
    if KEEP:
        pruned = [sys.executable, "-m", "rankmetrics_spark", "prune", "--output", OUTPUT, "--keep", KEEP]
        evaluated >> BashOperator(task_id="prune", bash_command=shlex.join(pruned))

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
    days = f"{FIRST}..{LAST}"
    several = on_databricks(days) if DATABRICKS else on_spark(days, FIRST, asset=None)
    # On Databricks nothing says which days are published where the job has failed.
    rule = "all_success" if DATABRICKS else "all_done"
    each_day = PythonOperator.partial(
        task_id="publish", python_callable=publish, outlets=assets(ASSET), trigger_rule=rule
    ).expand(op_kwargs=listed.output)
    listed >> several >> each_day
    # The state of the run is that of its last task, which fails with the days that failed.
    [several, each_day] >> EmptyOperator(task_id="done", trigger_rule="none_failed")
