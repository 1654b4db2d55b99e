"""A plan that was written down before the first look: what was to decide, and how a run differs from it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any, ClassVar, TypeAlias

from pyspark.sql import SparkSession

from rankmetrics_spark import errors as err, sinks
from rankmetrics_spark.config import Comparison, Config, OfTest, as_dict, dated, day, key, names, refuse, tests, text
from rankmetrics_spark.pointers import PLAN, REGISTERED, LookNumbers, is_sealed, sealed
from rankmetrics_spark.schemas import OK, PRIMARY, WARN, Check

#: Test -> what is compared in it, and its experiments that have lists; all are of "" where there are no tests.
Parts: TypeAlias = Mapping[str, tuple[Comparison, list[str]]]


@dataclass(frozen=True)
class _Plan(Comparison):
    """The keys of ``comparison``, and what else a plan says."""

    at: ClassVar[str] = ""

    end: str | None = key(None, day, "Last day of the log.")
    segments: tuple[str, ...] = key((), names, "Columns whose values split the users.")
    exclusions: str | None = key(None, text, "The filter of the log, as ``source.where`` has it.")
    tests: Mapping[str, OfTest] = key({}, tests, "Name of a test -> what it has of its own, as a config has it.")


def register(plan: Mapping[str, Any], output: str) -> dict[str, Any]:
    """Write down what will decide the comparisons of an output; return what was written.

    Args:
        plan: Keys of ``comparison``, ``convention``, ``metrics`` and others of a config, and ``end``, ``segments``,
            ``exclusions``, ``tests``; what it leaves out binds nobody.
        output: Folder of the runs.

    Raises:
        ConfigError: A key or a value is not allowed, it has no primary metric, or the output has a plan.
    """
    section = _Plan.read(plan)
    open_tests = [f"the test '{name}' of the plan" for name, own in section.tests.items() if not own.primary]
    for what in () if section.primary else open_tests or ["the plan"] * (not section.tests):
        raise err.ConfigError(f"{what} has no primary metric; allowed: such as primary: [ndcg@10]")
    begins = [section.period.first] if section.period else [own.first or "" for own in section.tests.values()]
    if any((section.end or "~") < first < "{" for first in begins):  # {date} is any day
        raise refuse("end", section.end, f"a day from {max(begins)} on, the first one of what is compared")
    known, files = as_dict(section), sinks.files_of(output)
    given = {name: own or {} for name, own in (plan.get("tests") or {}).items()}
    known["tests"] = {name: {each: known["tests"][name][each] for each in own} for name, own in given.items()}
    if (earlier := files.read(PLAN)) is not None:
        raise err.ConfigError.of("plan_is_there", output=output, day=json.loads(earlier)["registered"][:10])
    pointers = sinks.pointers_of(None, files.root) if files.local else {}
    looks = sorted(each for each, pointer in pointers.items() if any(entry.compared for entry in pointer.entries))
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    document = {"registered": now, "looks_before": looks, "plan": {name: known[name] for name in plan}}
    files.write(PLAN, sealed(document))
    return document


def checks_of_plan(spark: SparkSession, config: Config, started: str, looks: LookNumbers, parts: Parts) -> list[Check]:
    """Whether a run decides as was registered: a row for each experiment with lists; none without a plan.

    Args:
        spark: The session.
        config: The config.
        started: When the run has started: a plan that came later is none of the run.
        looks: The numbers of the looks.
        parts: What is compared.
    """
    texts = sinks.plan_texts(spark, config.sink.path, started) if config.comparison.is_requested else []
    if not texts:
        return []
    document, on, before = json.loads(texts[0]) if is_sealed(texts[0]) else None, "", []
    if document:
        on = f" on {document['registered'][:10]}"
        before = [f"the plan came after the first published look, of {day}" for day in document["looks_before"][:1]]
    checks = []
    for test, (own, experiments) in parts.items():
        found = [f"{PLAN} is not as it was written"]
        if document:
            found = [*before, *_deviations(document["plan"], test, config, own, looks, experiments)]
        sentence = f"not as registered{on}: {'; '.join(found)}" if found else f"as registered{on}"
        sentence = f"{test}: {sentence}" if test else f"{sentence[0].upper()}{sentence[1:]}"
        checks += [Check(REGISTERED, WARN if found else OK, sentence, name) for name in experiments if name]
    return checks


def _deviations(
    plan: Mapping[str, Any], test: str, config: Config, own: Comparison, looks: LookNumbers, experiments: list[str]
) -> Iterator[str]:
    whole = as_dict(config)
    now = whole | whole["comparison"] | {"segments": [*config.source.segments], "exclusions": config.source.where}
    if test:
        if test not in plan.get("tests", {test: {}}):
            yield "the plan has no test of this name"
        plan = {**plan, **plan.get("tests", {}).get(test, {})}
        now |= {name: value for name, value in whole["tests"].get(test, {}).items() if value is not None}
    elif "tests" in plan:
        yield "the plan is one of tests, and the run has none"
    deciding = [*map(str, own.primary)] or [name for name, role in own.roles(config.metrics).items() if role == PRIMARY]
    now["primary"] = deciding
    for name, value in plan.items():
        pair = dated(value, config.evaluation_date) if name in ("exclusions", "period") else value, now.get(name)
        # Lists say the same in any order.
        both = (sorted(each, key=str) if isinstance(each, list) else each for each in pair)
        if name == "shares":  # in any unit
            both = ({arm: round(of / sum(each.values()), 9) for arm, of in (each or {}).items()} for each in pair)
        then, here = (json.dumps(each, ensure_ascii=False, sort_keys=True) for each in both)
        if then != here and name not in ("end", "tests"):
            what = "another metric decides: " if name == "primary" else ""
            yield f"{what}{name} is {here}, registered is {then}"
    planned = plan.get("looks", "any")
    pairs = [(base, name) for base in ([own.baseline] if own.baseline else experiments) for name in experiments]
    numbers = (looks.get((str(base), name, metric)) or 1 for base, name in pairs for metric in deciding)
    most = 1 if planned == "one" else planned["planned"] if isinstance(planned, dict) else None
    more = max(numbers, default=1) - most if most else -1
    if more > 0:
        yield f"{more} look{'s' * (more > 1)} more than the {most} registered"
    if end := plan.get("end") or plan.get("to"):
        last = config.evaluation_date
        days = (date.fromisoformat(last) - date.fromisoformat(end)).days
        if days > 0 or (days < 0 and more >= 0):  # the last look
            by = f"{abs(days)} day{'s' * (abs(days) > 1)} {'after' if days > 0 else 'before'}"
            yield f"it ends on {last}, {by} the registered end, {end}"
