"""What gates say of rows."""

from typing import Any

from rankmetrics_spark.gates import gate_checks


def failed_gates(*arguments: Any) -> list[str]:
    """The sentences of the limits that are not kept, each once."""
    return [*dict.fromkeys(check.sentence for check in gate_checks(*arguments) if check.status == "fail")]
