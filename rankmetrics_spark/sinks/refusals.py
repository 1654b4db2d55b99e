"""``refused_checks``: the checks of runs that published nothing, and why, so that an alert can ask for them."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import pyarrow as pa

from rankmetrics_spark.pointers import REFUSED, record_path, refused_folder
from rankmetrics_spark.schemas import CHECK_COLUMNS, DATE, FAIL, RUN, Check
from rankmetrics_spark.sinks.files import of_disk
from rankmetrics_spark.sinks.partitions import Store, as_json

_KINDS = {"string": pa.string(), "double": pa.float64()}
#: The columns of ``checks``, with the date, which is in no folder here.
SCHEMA = pa.schema([*((name, _KINDS[kind]) for name, kind in CHECK_COLUMNS.items()), (DATE, pa.date32())])
#: Stands for a run where none was refused yet: its file has no row, so that every reader finds the table.
NO_RUN = "none"


def refused_checks(record: Mapping[str, Any]) -> pa.Table:
    """The rows of a run that failed: one named ``run`` with its exit code and its sentence, then what was checked."""
    error = record["error"]
    run = Check("run", FAIL, error["message"], observed=float(error["exit_code"])).as_row()
    day = date.fromisoformat(record[DATE])
    return pa.Table.from_pylist([{**row, DATE: day} for row in (run, *record.get("checks", ()))], SCHEMA)


def refuse(store: Store, record: Mapping[str, Any]) -> None:
    """Write the record of a run that published nothing, and its checks."""
    store.record(record)
    store.refuse(record[RUN], refused_checks(record))


def refuse_on_disk(path: str | None, record: Mapping[str, Any]) -> None:
    """The same without an engine, if the output is a folder of this machine."""
    files = of_disk(path) if path else None
    if files is not None:
        files.write(record_path(record[RUN]), as_json(record) + "\n")
        files.write_table(f"{refused_folder(record[RUN])}/part-{record[RUN]}.parquet", refused_checks(record))


def begin(store: Store) -> None:
    """Make the table where no run was refused yet."""
    if not store.exists(REFUSED):
        store.refuse(NO_RUN, SCHEMA.empty_table())
