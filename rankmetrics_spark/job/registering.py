"""A plan that was written down before the first look: what was to decide, and how a run differs from it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from rankmetrics_spark.config import Comparison, Config, as_dict, day, key, names, text
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.gates import Counts
from rankmetrics_spark.pointers import PLAN, REGISTERED, LookNumbers, is_sealed, sealed
from rankmetrics_spark.schemas import OK, WARN, Check
from rankmetrics_spark.sinks import files_of, plan_texts, pointers_of


@dataclass(frozen=True)
class _Plan(Comparison):
    """The keys of ``comparison``, and what else a plan says."""

    at: ClassVar[str] = ""

    end: str | None = key(None, day, "Last day of the log.")
    segments: tuple[str, ...] = key((), names, "Columns whose values split the users.")
    exclusions: str | None = key(None, text, "The filter of the log, as ``source.where`` has it.")


def register(plan: Mapping[str, object], output: str) -> dict[str, Any]:
    """Write down what will decide the comparisons of an output; return what was written.

    Args:
        plan: Keys of ``comparison`` and ``end``, ``segments``, ``exclusions``; what it leaves out, nobody is held to.
        output: Folder of the runs.

    Raises:
        ConfigError: A key or a value is not allowed, it has no primary metric, or the output has a plan.
    """
    section = _Plan.read(plan)
    if not section.primary:
        raise ConfigError("the plan has no primary metric; allowed: such as primary: [ndcg@10]")
    known, files = as_dict(section), files_of(output)
    if (earlier := files.read(PLAN)) is not None:
        raise ConfigError(
            f"'{output}' has the plan of {json.loads(earlier)['registered'][:10]}; allowed: another output, since a "
            "plan that could be replaced would show nothing"
        )
    pointers = pointers_of(None, files.root) if files.local else {}
    looks = sorted(each for each, pointer in pointers.items() if any(entry.compared for entry in pointer.entries))
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    document = {"registered": now, "looks_before": looks, "plan": {name: known[name] for name in plan}}
    files.write(PLAN, sealed(document))
    return document


def checks_of_plan(spark: SparkSession, config: Config, looks: LookNumbers, counts: Counts) -> list[Check]:
    """Whether a run decides as was registered: a row for each experiment with lists; none without a plan."""
    texts = plan_texts(spark, config.sink.path) if config.comparison.is_requested else []
    names = [name for name, count in counts.items() if name and count["lists"]]
    if not texts:
        return []
    if is_sealed(texts[0]):
        document = json.loads(texts[0])
        on, before = f"egistered on {document['registered'][:10]}", document["looks_before"]
        found = [f"the plan came after the first published look, of {before[0]}"] if before else []
        found += _deviations(document["plan"], config, looks, names)
    else:
        on, found = "egistered", [f"{PLAN} is not as it was written"]
    sentence = f"Not as r{on}: {'; '.join(found)}" if found else f"As r{on}"
    return [Check(REGISTERED, WARN if found else OK, sentence, name) for name in names]


def _deviations(plan: Mapping[str, Any], config: Config, looks: LookNumbers, experiments: list[str]) -> Iterator[str]:
    own = config.comparison
    now = as_dict(own) | {"segments": [*config.source.segments], "exclusions": config.source.where}
    for name, value in plan.items():
        filled = value.replace("{date}", config.evaluation_date) if name == "exclusions" and value else value
        then, here = (json.dumps(each, ensure_ascii=False, sort_keys=True) for each in (filled, now.get(name)))
        if then != here and name != "end":
            what = "another metric decides: " if name == "primary" else ""
            yield f"{what}{name} is {here}, registered is {then}"
    planned = plan.get("looks", "any")
    metrics = [str(metric) for metric in own.primary or ()]
    numbers = [looks.get((str(own.baseline), name, metric)) for name in experiments for metric in metrics]
    most = 1 if planned == "one" else planned["planned"] if isinstance(planned, dict) else None
    if most is not None and (more := max((n or 1 for n in numbers), default=1) - most) > 0:
        yield f"{more} look{'s' * (more > 1)} more than the {most} registered"
    if end := plan.get("end"):
        last = config.evaluation_date
        days = (date.fromisoformat(last) - date.fromisoformat(end)).days
        if days > 0 or (days < 0 and most == 1):
            by = f"{abs(days)} day{'s' * (abs(days) > 1)} {'after' if days > 0 else 'before'}"
            yield f"it ends on {last}, {by} the registered end, {end}"
