"""What ``rankmetrics interleaving`` reads and prints."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, doors, engines as eng, errors as err, job, sources, studies, words
from rankmetrics_spark.cli.options import note, refuse_assignments, say
from rankmetrics_spark.report import LIST_PRINTERS, MOST_SENTENCES, print_json
from rankmetrics_spark.road import shown_rows
from rankmetrics_spark.schemas import DATE, Row, is_unknown

#: Keys of ``comparison`` that interleaving follows; every pair of rankers is compared, whatever ``pairs`` says.
READ = ("baseline", "pairs", "confidence", "correction", "looks", "tuning_users", "power")
#: Key of ``comparison`` -> why interleaving does not follow it.
_WHY = doors.data_of(__name__, "interleaving")


def preferences_of(spark: SparkSession, config: cfg.Config, effect: str | None = None) -> list[dict[str, Any]]:
    """Compare the rankers of the log of a config, and plan for an effect; a row per pair.

    Raises:
        ConfigError: The config names no column of rankers, a baseline that is none, or a key of ``comparison`` that
            interleaving does not follow.
        InputError: The log cannot be read, is empty, or has no such column.
        QualityError: More rows are left out than ``quality`` allows, or ranks seem to start at 0.
    """
    source, compared = config.source, config.comparison
    refuse_assignments(config, "interleaving")
    if source.team is None and not source.ranks:
        raise err.ConfigError.of("no_rankers")
    if source.team is not None and source.ranks:
        raise err.ConfigError("source.team and source.ranks: both given; allowed: one of the two")
    usual, given = cfg.Comparison(), cfg.as_dict(config)["comparison"]
    for name in (field.name for field in fields(cfg.Comparison)):
        value, default = getattr(compared, name), getattr(usual, name)
        is_read = name in READ and (name != "looks" or value == "any")
        if value != default and not is_read:
            path = compared.path_of(name)
            allowed = "one or any" if name == "looks" else "none" if default == () else json.dumps(default).strip('"')
            why = words.worded(_WHY.get(name, "interleaving has no use for it"))
            raise cfg.refuse(path, given[path.rpartition(".")[2]], f"{allowed}, since {why}")
    request = studies.Preferences.of(vars(compared) | {"team": source.team, "ranks": source.ranks, "effect": effect})
    with job.errors_in_words(config):
        log, _ = job.inputs(spark, config)
        log, options = shown_rows(log, config.options, sources.read_events(spark, config.events))
        table = studies.preferences(log, options, request, config.quality)
        rows = [row.asDict() for row in eng.few_rows(table)]
    if not rows[0]["n_rows"]:
        raise err.InputError(f"the input is empty: no rows in {config.source.place}")
    return rows


def print_preferences(rows: Sequence[Row], date: str, style: str) -> None:
    """Print the rows on stdout, and on stderr a sentence per pair and what became of the rows of the log."""
    ordered = sorted(rows, key=lambda row: 1.0 if is_unknown(row["p_adjusted"]) else row["p_adjusted"])
    if style == "json":
        pairs = [row for row in rows if row["ranker_b"] is not None]
        counts = {name: rows[0][name] for name in studies.LOG_COUNTS}
        verdict = [row["sentence"] for row in ordered]
        print_json({DATE: date, "comparisons": pairs, "verdict": verdict, "counts": counts})
    elif style == "csv":

        def as_json(shares: Sequence[float] | None) -> str | None:
            """Null where a rank has no slot."""
            return None if shares is None else json.dumps([None if is_unknown(share) else share for share in shares])

        LIST_PRINTERS["csv"]([{**row, "draft_shares": as_json(row["draft_shares"])} for row in rows])
    elif rows[0]["ranker_b"] is not None:
        LIST_PRINTERS["table"]([_texts(row) for row in rows])
    for row in ordered[:MOST_SENTENCES]:
        say.lines(row["sentence"])
    if len(ordered) > MOST_SENTENCES:
        say.lines(f"{len(ordered) - MOST_SENTENCES:,} more pairs: --format json has a sentence for each")
    note.lines(studies.counts_in_words(rows[0]))


def _texts(row: Row) -> dict[str, Any]:
    """A row as people read it: the share of the lists that B won."""
    interval, kind = "-", "sequential_" if row["looks"] == "any" else ""
    if not is_unknown(row[f"{kind}ci_low"]):
        shares = (min(1.0, max(0.0, 0.5 + row[f"{kind}ci_{end}"])) for end in ("low", "high"))
        interval = " to ".join(f"{100 * share:.1f}" for share in shares)
    return {
        "A": row["ranker_a"],
        "B": row["ranker_b"],
        str(words.UNITS): f"{row['n_users']:,}",
        "lists that A won": f"{row['lists_a']:,}",
        "ties": f"{row['lists_tied']:,}",
        "lists that B won": f"{row['lists_b']:,}",
        "share of B %": "-" if is_unknown(row["preference"]) else f"{100 * (0.5 + row['preference']):.1f}",
        "interval %": interval,
        "p": "-" if is_unknown(row["p_adjusted"]) else f"{row['p_adjusted']:.3g}",
        "p at every look": "-" if is_unknown(row["p_sequential"]) else f"{row['p_sequential']:.3g}",
        "p of the draft": "-" if is_unknown(row["p_draft"]) else f"{row['p_draft']:.3g}",
    }
