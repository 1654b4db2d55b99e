"""An operator for Airflow 3.3 or newer, with the extra ``airflow``. Nothing else imports this module."""

import asyncio
import json
import os
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, ObjectStoragePath, RetryDecision, RetryPolicy, exceptions as ex
from airflow.triggers.base import BaseTrigger, TriggerEvent

from rankmetrics_spark import tools

#: What spark-submit runs.
APPLICATION = str(Path(__file__).parent / "cli" / "submitted.py")
#: Lines of the log of a deferred job, its last ones, that the log of the task shows.
MOST_LINES = 1_000


class ByExitCode(RetryPolicy):  # type: ignore[misc]  # mypy cannot see Airflow: the base class is Any
    """Fail at once where a retry would fail in the same way (exit codes 2, 4, 5); ``retries`` covers all others."""

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        """Decide by the exit code that the error of an operator tells."""
        code = tools.exit_code_in(str(exception))
        if code in tools.PERMANENT:
            return RetryDecision.fail(f"exit code {code}, {tools.PERMANENT[code]}: a retry would fail in the same way")
        return RetryDecision.default()


class JobTrigger(BaseTrigger):  # type: ignore[misc]
    """Waits for the end of a job that a task has started and that nobody is the parent of."""

    def __init__(self, folder: str, poll: float) -> None:
        """``poll`` is the number of seconds between two looks into the folder of the job."""
        super().__init__()
        self.folder, self.poll = folder, poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger as the triggerer makes it."""
        return f"{__name__}.JobTrigger", {"folder": self.folder, "poll": self.poll}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the job has ended."""
        watch = tools.Watch(Path(self.folder))
        while (code := await asyncio.to_thread(watch.code)) is None:
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"folder": self.folder, "code": code})

    async def on_kill(self) -> None:
        """End the job of a task that a person has failed or cleared."""
        Path(self.folder, "stop").touch()


class RankmetricsOperator(SparkSubmitOperator):  # type: ignore[misc]
    """Evaluate a day, or several in one application, with spark-submit, and announce what was published.

    What a day has published (run, record, partitions, counts, verdict) is returned to XCom, and is in the events of the
    assets ``ASSET`` and ``ASSET_days``, which has the day as its partition key. A range announces nothing: see
    ``publish``.

    With ``deferrable=True``, spark-submit is a process of its own, and the slot of the worker is free until that has
    ended. The worker's machine has to live on, and the triggerer has to see ``job_folder``; neither is so where a
    worker is a pod of its own.

    Args:
        config: The config, as the driver sees it.
        output: Instead of the config's ``sink.path``.
        date: The day, or a range such as 2026-11-08..2026-11-21, as a template.
        arguments: Further arguments of ``rankmetrics evaluate``, such as ``["--set", "metrics=ap@10"]``.
        asset: Name of the assets; None announces nothing.
        output_conn_id: Connection for reading the output; by default what the worker itself may read.
        late_until: Hour of the day after ``date``, such as 09:00, until which a log that cannot be read yet (exit code
            3) is looked for again every ``retry_delay``, without counting as a retry; then the task fails. By default,
            ``retries`` covers this too.
        time_zone: Of that hour.
        log_level: Of Spark, such as WARN; by default its log is off.
        deferrable: Whether to hold no slot while the job runs.
        job_folder: Where a deferred job writes its log and exit code; by default below AIRFLOW_HOME.
        poll: Seconds between two looks at a deferred job.
        **submit: Those of ``SparkSubmitOperator``, such as ``conf``, ``packages``, ``archives``, ``driver_memory``,
            ``py_files``, and of every operator.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "config", "place", "date", "job_folder")

    def __init__(self, *, config: str, output: str | None = None, date: str = "{{ ds }}", arguments: Sequence[str] = (),
                 asset: str | None = "rankmetrics", output_conn_id: str | None = None, late_until: str | None = None,
                 time_zone: str = "UTC", log_level: str | None = None, deferrable: bool = False,
                 job_folder: str | None = None, poll: float = 5, **submit: Any) -> None:  # fmt: skip
        """See the class."""
        given = ["--config", config, *(["--output", output] if output else []), "--date", date, *arguments]
        conf = ({"spark.log.level": log_level} if log_level else {}) | (submit.pop("conf", None) or {})
        defaults = {"name": "rankmetrics", "application": APPLICATION, "retry_policy": ByExitCode(), "durable": False}
        super().__init__(application_args=given, conf=conf, **defaults | {"outlets": assets(asset)} | submit)
        # `output` is what other tasks take of an operator.
        self.config, self.place, self.date, self.output_conn_id = config, output, date, output_conn_id
        self.asset, self.late_until, self.time_zone = asset, late_until, time_zone
        if late_until is not None:
            tools.waits_until("2026-01-01", late_until, time_zone)
        self.deferrable, self.poll = deferrable, poll
        home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
        self.job_folder = job_folder or str(home / "rankmetrics_jobs")

    def execute(self, context: Any) -> Any:
        """Submit the job; wait for it, or defer."""
        try:
            super().execute(context)
        except ex.AirflowException as error:
            self._look_again(str(error))
            raise
        if self.deferrable:
            self.log.info("deferred until the job in %s has ended", self._folder)
            self.defer(trigger=JobTrigger(str(self._folder), self.poll), method_name="ended")
        return self._announce(context)

    def ended(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on after the end of a deferred job: its log becomes that of the task."""
        folder, code = Path(event["folder"]), event["code"]
        if code == tools.LOST:
            # Should it live after all, the next try is not to run beside it.
            Path(folder, "stop").touch()
            raise ex.AirflowException(f"nothing is heard of the job in {folder} any more")
        with (folder / "log").open(encoding="utf-8", errors="replace") as log:
            lines = [line.rstrip() for line in log][-MOST_LINES:]
        for line in lines:
            self.log.info("%s", line)
        shutil.rmtree(folder, ignore_errors=True)
        if code:
            # After its sentence, Spark may log that it ends.
            said = [line for line in lines if line.startswith("rankmetrics: ")] or lines or [""]
            self._look_again(error := f"Error code is: {code}. {said[-1]}")
            raise ex.AirflowException(error)
        return self._announce(context)

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        if self.deferrable:
            hook.submit = lambda application: self._start(hook, application)
        return hook

    def _start(self, hook: Any, application: str) -> None:
        """Start what the hook would run and wait for."""
        self._folder = Path(self.job_folder) / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        command = hook._build_spark_submit_command(application)
        if self.execution_timeout:
            command = ["timeout", "--foreground", str(self.execution_timeout.total_seconds()), *command]
        tools.start(self._folder, command, {**os.environ, **(hook._env or {})})

    def _look_again(self, error: str) -> None:
        """Give the slot back until the next look at a log that is not there yet, without spending a retry."""
        if tools.exit_code_in(error) != tools.LATE or self.late_until is None:
            return
        until = tools.waits_until(self.date, self.late_until, self.time_zone)
        again = datetime.now(timezone.utc) + self.retry_delay
        if again > until:
            raise ex.AirflowFailException(f"{error}; after {until}, nobody looks again")
        self.log.info("looking again at %s, and until %s: %s", again, until, error)
        raise ex.AirflowRescheduleException(again)

    def _announce(self, context: Any) -> dict[str, Any] | None:
        if ".." in self.date:
            return None
        place = self.place or _sink_of(self.config)
        return publish(self.date, context["outlet_events"], place, self.asset, self.output_conn_id)


def assets(name: str | None) -> list[Any]:
    """The assets: of every day, and one whose events have the day as their partition."""
    # Two of them: an event with a partition starts no DAG that waits for the asset as a whole.
    return [Asset(name), Asset(f"{name}_days")] if name else []


def publish(
    date: str, outlet_events: Any, output: str | None, asset: str | None, conn_id: str | None = None, before: str = ""
) -> dict[str, Any]:
    """Announce what a day has published, in a task with ``assets(asset)`` as its outlets; for a PythonOperator.

    Args:
        date: The day.
        outlet_events: Of the context of the task.
        output: Output of the run; None where Airflow cannot read it: the day is then all that is announced.
        asset: Name of the assets.
        conn_id: Connection for reading the output.
        before: The run that was published before, which is not announced again.

    Raises:
        AirflowSkipException: Nothing else is published on this day.
    """
    facts: dict[str, Any] = {"evaluation_date": date}
    if output is not None:
        pointer = pointer_of(date, output, conn_id)
        if pointer.get("run_id", before) == before:
            raise ex.AirflowSkipException(f"{date} was not published: see the log of evaluate")
        facts = tools.announcement(pointer, _document(_place(output, conn_id) / pointer["record"]))
    for outlet in assets(asset):
        outlet_events[outlet].extra = facts
    for outlet in assets(asset)[1:]:
        outlet_events[outlet].add_partitions(date)
    return facts


def pointer_of(date: str, output: str, conn_id: str | None = None) -> Any:
    """What ``published/DATE.json`` of an output says; empty where nothing is published."""
    return _document(_place(output, conn_id) / "published" / f"{date}.json")


def _place(output: str, conn_id: str | None) -> Any:
    return ObjectStoragePath(re.sub("^s3a:", "s3:", output.rstrip("/")), conn_id=conn_id)


def _sink_of(config: str) -> Any:
    """The output that a config names; None if it is no folder, or if this machine does not see the config."""
    with suppress(OSError, TypeError, KeyError, ValueError, yaml.YAMLError):
        return yaml.safe_load(Path(config).read_text(encoding="utf-8"))["sink"]["path"]
    return None


def _document(path: Any) -> Any:
    # Where only Spark reaches the output, it has written a folder with one file.
    file = next(path.glob("part-*"), path) if path.is_dir() else path
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
