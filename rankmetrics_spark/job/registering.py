"""A plan that was written down before the first look: what was to decide, and how a run differs from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

from rankmetrics_spark.config import Comparison, Config, Section, as_dict, day, key, names, text
from rankmetrics_spark.errors import ConfigError, printable_json
from rankmetrics_spark.pointers import REGISTERED, LookNumbers, is_sealed, sealed
from rankmetrics_spark.schemas import OK, WARN, Check
from rankmetrics_spark.sinks import files_of, pointers_of

NAME = f"{REGISTERED}/plan.json"


@dataclass(frozen=True)
class _Beside(Section):
    """What a plan says beside the keys of ``comparison``."""

    end: str | None = key(None, day, "Last day of the log.")
    segments: tuple[str, ...] = key((), names, "Columns whose values split the users.")
    exclusions: str | None = key(None, text, "The filter of the log, as ``source.where`` has it.")


def _of(config: Config) -> dict[str, Any]:
    """What a config says under the keys of a plan."""
    where = config.source.where
    return {**as_dict(config.comparison), "segments": [*config.source.segments], "exclusions": where}


def register(plan: Mapping[str, object], output: str) -> dict[str, Any]:
    """Write down what will decide the comparisons of an output; return what was written.

    Args:
        plan: Keys of ``comparison`` and ``end``, ``segments``, ``exclusions``; what it leaves out, nobody is held to.
        output: Folder of the runs.

    Raises:
        ConfigError: A key or a value is not allowed, it has no primary metric, or the output has a plan.
    """
    own = {name: value for name, value in plan.items() if name in ("end", "segments", "exclusions")}
    section = Comparison.read({name: value for name, value in plan.items() if name not in own})
    if not section.primary:
        raise ConfigError("the plan has no primary metric; allowed: such as primary: [ndcg@10]")
    known = as_dict(section) | as_dict(_Beside.read(own))
    files = files_of(output)
    if (earlier := files.read(NAME)) is not None:
        raise ConfigError(
            f"'{output}' has the plan of {json.loads(earlier)['registered'][:10]}; allowed: another output, since a "
            "plan that could be replaced would show nothing"
        )
    pointers = pointers_of(None, files.root) if files.local else {}
    looks = sorted(each for each, pointer in pointers.items() if any(entry.compared for entry in pointer.entries))
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    document = {"registered": now, "looks_before": looks, "plan": {name: known[name] for name in plan}}
    files.write(NAME, sealed(document))
    return document


def check_of_plan(texts: list[str], config: Config, looks: LookNumbers, experiments: list[str]) -> Check | None:
    """Whether a run decides as was registered; None without a plan."""
    if not texts or not config.comparison.is_requested:
        return None
    document = json.loads(texts[0])
    day_of_plan, before = document["registered"][:10], document["looks_before"]
    found = [*_deviations(document["plan"], config, looks, experiments)]
    if not is_sealed(texts[0].removesuffix("\n")):
        found.insert(0, "the plan itself was changed since")
    if before:
        found.insert(0, f"the plan was registered after the first published look, of {before[0]}")
    if found:
        return Check(REGISTERED, WARN, f"Not as registered on {day_of_plan}: {'; '.join(found)}")
    return Check(REGISTERED, OK, f"As registered on {day_of_plan}")


def _deviations(plan: Mapping[str, Any], config: Config, looks: LookNumbers, experiments: list[str]) -> Iterator[str]:
    now, own = _of(config), config.comparison
    for name, value in plan.items():
        if name in ("looks", "end"):
            continue
        filled = value.replace("{date}", config.evaluation_date) if name == "exclusions" and value else value
        if json.dumps(filled) != json.dumps(now[name]):
            what = "another metric decides: " if name == "primary" else ""
            yield f"{what}{name} is {_short(now[name])}, registered is {_short(filled)}"
    planned = plan.get("looks", "any")
    if planned != now["looks"] and "looks" in plan:
        yield f"looks is {_short(now['looks'])}, registered is {_short(planned)}"
    metrics = own.primary or ()
    numbers = [looks.get((str(own.baseline), name, str(metric))) for name in experiments for metric in metrics]
    most = 1 if planned == "one" else planned["planned"] if isinstance(planned, dict) else None
    if most is not None and (more := max((n or 1 for n in numbers), default=1) - most) > 0:
        yield f"{more} look{'s' * (more > 1)} more than the {most} registered"
    if end := plan.get("end"):
        last = config.evaluation_date
        days = (date.fromisoformat(last) - date.fromisoformat(end)).days
        if days > 0 or (days < 0 and most == 1):
            yield f"it ends on {last}, {abs(days)} days {'after' if days > 0 else 'before'} the registered end, {end}"


def _short(value: object) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False))
