"""Logs and results on an S3 server: ``s3a://`` gives the same results as local files."""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, errors as err, metrics as mx
from rankmetrics_spark.engines import QUICK_JAVA, spark
from rankmetrics_spark.job import run
from tests.helpers.commands import ROOT, spark_environment
from tests.helpers.logs import DATE, a_list, assert_close, config, obvious, parquet, random_log
from tests.helpers.readme import commands, rename, section
from tests.platforms.s3_server import Bucket, s3_server
from tests.platforms.support import Running, built_wheel, exact_rows, hadoop_of_spark, rows_of

JARS = ROOT / ".jars" / "s3"
TABLES = ("user_metrics", "experiment_metrics", "quarantine", "checks")
LOG = random_log(3, users=30)
# A corrected log of one experiment: fewer users and no invalid rows.
CORRECTED = [row for number in range(8) for row in a_list([0, 1, 0, 2], f"user {number}", "a")]
OTHER_DATE = "2026-11-21"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3")


@pytest.fixture(scope="module")
def bucket(folder: Path) -> Iterator[Bucket]:
    with s3_server(folder) as bucket:
        for name, rows in (("log", LOG), ("corrected", CORRECTED)):
            file = parquet(folder / name, rows) / "part-0.parquet"
            bucket.ask(f"/logs/{name}/part-0.parquet", "PUT", file.read_bytes())
        yield bucket


@pytest.fixture(scope="module")
def submitted(bucket: Bucket, folder: Path) -> str:
    """Run the README's command for the first date and return its output."""
    shutil.copy(built_wheel(folder / "dist"), folder / "dist" / "rankmetrics_spark.zip")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    (folder / "first.yaml").write_text("quality: {max_invalid_fraction: 1, repeated_items: all}\nmetrics: [ap@5, rr]\n")
    known = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something"}
    environment = spark_environment(JAVA_TOOL_OPTIONS=QUICK_JAVA, **known)
    (jar,) = JARS.glob("hadoop-aws-*.jar")
    (words,) = commands("spark-submit", section("S3 and other object stores"))
    spark_submit, *arguments = rename(
        words,
        {
            "--packages": "--jars",
            f"org.apache.hadoop:hadoop-aws:{jar.stem.removeprefix('hadoop-aws-')}": f"{JARS}/*.jar",
            "s3a://BUCKET/impressions": "s3a://lake/logs/log",
            "s3a://BUCKET/results": "s3a://lake/out",
        },
    )
    command = [
        f"{environment['SPARK_HOME']}/bin/{spark_submit}",
        *("--conf", f"spark.hadoop.fs.s3a.endpoint={bucket.server}"),
        *("--conf", "spark.hadoop.fs.s3a.path.style.access=true"),
        *(*arguments, "--date", DATE, "--format", "json"),
    ]
    job = Running.start(command, folder / "job.log", environment, folder)
    try:
        assert job.process.wait(400) == 0, job.text()[-3000:]
    finally:
        job.stop()
    return job.text()


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """A session with the jars but without the address of the server."""
    jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    conf = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": QUICK_JAVA}
    session = spark.local_session("local[2]", "s3", conf)
    yield session
    session.stop()


def on_s3(bucket: Bucket, name: str, **changes: Any) -> cfg.Config:
    """A config whose ``spark`` section has the address of the server and the credentials."""
    return small(f"s3a://lake/logs/{name}", "s3a://lake/out", spark=bucket.settings, **changes)


def small(log: Path | str, out: Path | str, **changes: Any) -> cfg.Config:
    quality = {"max_invalid_fraction": 1, "repeated_items": "all"}
    return config(log, out, quality=quality, metrics=["ap@5", "rr"], **changes)


def test_the_jars_match_the_hadoop_version_of_this_spark() -> None:
    assert (JARS / f"hadoop-aws-{hadoop_of_spark()}.jar").exists()


def test_spark_submit_reads_and_writes_s3(submitted: str, session: SparkSession, bucket: Bucket, folder: Path) -> None:
    local = folder / "local"
    run(session, small(folder / "log", local))
    result = bucket.download("out", folder / "found")
    for table in TABLES:
        assert exact_rows(result / table) == exact_rows(local / table), table
    users = {(row["experiment_id"], row["user_id"]): row for row in rows_of(result / "user_metrics")}
    assert_close(users, obvious(LOG, ["ap@5", "rr"], mx.STANDARD))
    message, _ = json.JSONDecoder().raw_decode(submitted, submitted.index("\n{\n") + 1)
    assert {row["experiment_id"] for row in message["means"]} == {"a", "b"}


def test_a_record_is_one_file_and_nothing_is_left_in_the_staging(submitted: str, bucket: Bucket) -> None:
    (record,) = (key for key, (_, size) in bucket.objects("out/runs/").items() if size)
    assert re.fullmatch(r"out/runs/[^/]+\.json", record)
    assert json.loads(bucket.ask(f"/{record}"))["rows"]["in"] == len(LOG)
    assert [key for key, (_, size) in bucket.objects("out/_staging/").items() if size] == []


def test_another_date_and_a_rerun_replace_exactly_their_partitions(
    submitted: str, session: SparkSession, bucket: Bucket, folder: Path
) -> None:
    first = partitions(bucket)
    run(session, on_s3(bucket, "log", evaluation_date=OTHER_DATE))
    second = partitions(bucket)
    assert {key: second[key] for key in first} == first
    assert {(table, name, date) for table, name, date in second if date == OTHER_DATE} == {
        (table, name, OTHER_DATE) for table, name, _ in first
    }
    result = bucket.download("out", folder / "found")
    for table in TABLES:
        days = [exact_rows(result / table, leave_out="evaluation_date", evaluation_date=d) for d in (DATE, OTHER_DATE)]
        assert days[0] == days[1], table

    run(session, on_s3(bucket, "corrected"))
    third = partitions(bucket)
    mine = {(table, "a", DATE) for table in TABLES}
    assert {key: third[key] for key in third.keys() - mine} == {key: second[key] for key in second.keys() - mine}
    result = bucket.download("out", folder / "found")
    users = rows_of(result / "user_metrics", experiment_id="a", evaluation_date=DATE)
    # The relevant items are at ranks 2 and 4.
    assert {row["user_id"]: row["ap_at_5"] for row in users} == {f"user {n}": (1 / 2 + 2 / 4) / 2 for n in range(8)}
    assert rows_of(result / "quarantine", experiment_id="a", evaluation_date=DATE) == []
    assert rows_of(result / "quarantine", experiment_id="a", evaluation_date=OTHER_DATE)


def partitions(bucket: Bucket) -> dict[tuple[str, str, str], dict[str, str]]:
    """(table, experiment, date) -> key and version of each object."""
    result: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for key, (version, _) in bucket.objects("out/").items():
        place = re.fullmatch(r"out/(\w+)/experiment_id=(\w+)/evaluation_date=([\d-]+)/.+", key)
        if place:
            result[place[1], place[2], place[3]][key] = version
    return dict(result)


def test_a_missing_path_fails_with_one_sentence(session: SparkSession, bucket: Bucket) -> None:
    with pytest.raises(err.InputError, match=r"^cannot read parquet from 's3a://lake/logs/nowhere': .*exist"):
        run(session, on_s3(bucket, "nowhere"))
