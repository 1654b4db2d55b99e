"""Recompute: metrics for published dates, another convention or other judgements, from the lists that runs stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import errors as err, gates, metrics as mx, report as rep, road, schemas as sch, sinks
from rankmetrics_spark.config import ENDINGS, Config, Sink, as_dict, dates_in_words, load, override
from rankmetrics_spark.job import record as rec, verifying
from rankmetrics_spark.pointers import Pointer, record_path
from rankmetrics_spark.sources import judgements as judgements_of, read_events

#: Keys of a config that need nothing of the log beside what is stored.
FOLLOW = ("percentiles", "source.segment_combinations")
#: What to do where stored lists do not serve.
FROM_LOG = "allowed: rankmetrics evaluate --config C --from D1 --to D2, over the log"
#: The same for a study.
STUDY_LOG = "allowed: --from log"
#: Keys that say which rows of which log are read.
_INPUTS = ("source.", "events.", "judgements.columns", "rank_by", "quality.repeated_items")


@dataclass(frozen=True)
class StoredDay:
    """What one run has published on a date, with its lists: it stands for the log in a run that replaces it.

    Attributes:
        pointer: The pointer of the date.
        record: The record of the run.
        before: Its config.
        replaced: Whether its values are replaced, and not kept: there is another convention, or are other judgements.
        judged: Where other judgements are.
        cure: What to do where stored lists do not serve.
    """

    pointer: Pointer
    record: Mapping[str, Any]
    before: Config
    replaced: bool
    judged: str | None = None
    cure: str = FROM_LOG

    def rows(self, store: sinks.Store, table: str) -> DataFrame:
        """The rows of a table on the date."""
        return verifying.rows_of_run(store, self.pointer, self.pointer.entries[0], table)

    @classmethod
    def of_config(cls, store: sinks.Store, config: Config) -> "StoredDay":
        """What is published on the date of a config, whose lists are to stand for its log.

        Raises:
            ConfigError: The run has read another log, or otherwise.
            InputError: Nothing is published on this date, or its lists are not stored.
        """
        if config.assignments is not None:
            raise err.ConfigError(f"assignments: stored lists name no test or arm of a list; {STUDY_LOG}")
        pointers, date = store.pointers(), config.evaluation_date
        records = rec.known_runs(store, date, pointers)
        if not verifying.has_lists(pointers[date]):
            raise err.InputError.of("no_stored_lists", dates=date, done="read from lists", cure=STUDY_LOG)
        record = rec.with_config(store, records, pointers[date].entries[0].run_id)
        before = load(record["config"], date=date)
        for other in verifying.other_keys(as_dict(before), as_dict(config)):
            if other.startswith(_INPUTS):
                raise err.ConfigError(f"{other}, so the lists stored on {date} are of another log; {STUDY_LOG}")
        return cls(pointers[date], record, before, True)

    def log(self, store: sinks.Store, config: Config) -> dict[str, DataFrame]:
        """The stored lists as ``impressions``, and the ``judgements``; the hash of an item stands for it.

        Raises:
            ConfigError: Not every shown item is stored, or an item may have another rank in the log.
        """
        tables = rec.tables_on_record(store.spark, config, self.record, judgements=judgements_of(store.spark, config))
        lists, rule = self.rows(store, sch.LISTS), self.before.convention
        needed = {
            "every shown item": tables.plan.scoring.looks_up and sch.ITEM_HASHES in lists.columns,
            "repeated items and ranks": not self._has("repeated"),
        }
        # Where no scores are equal once they are rounded, all conventions have one order.
        as_scored = (rule.score_precision, rule.ties) == (64, "item_desc") or not self._has("tied")
        if lacking := [what for what, stored in needed.items() if not stored]:
            raise self._refused(f"{lacking[0]} would be read", STUDY_LOG)
        if not (tables.plan.scoring.by_position or as_scored):
            raise err.ConfigError.of("tied_otherwise", date=self.pointer.date, rule=rule, cure=STUDY_LOG)
        return {"impressions": road.log_of_lists(lists), "judgements": road.hashed_judgements(tables)}

    def side_by_side(
        self, store: sinks.Store, config: Config, rules: Sequence[mx.Convention]
    ) -> tuple[road.Tables, list[tuple[mx.Convention, str]]]:
        """The tables under the conventions that the stored lists can tell, and why they cannot tell the others."""
        of_run = rec.tables_on_record(store.spark, self.before, self.record).plan
        plans = [rec.tables_on_record(store.spark, config, self.record, None, [rule]).plan for rule in rules]
        lacking = [next(self._lacking(plan, of_run), "") for plan in plans]
        why, judged = [*zip(rules, lacking, strict=True)], judgements_of(store.spark, config)
        told = [rule for rule, text in why if not text]
        if not told:
            raise self._refused(lacking[0], STUDY_LOG)
        planned = rec.tables_on_record(store.spark, config, self.record, rules=told, judgements=judged)
        return self._tables(store, planned), [(rule, text) for rule, text in why if text]

    def _tables(self, store: sinks.Store, planned: road.Tables) -> road.StoredTables:
        lists, left_out = (self.rows(store, table) for table in (sch.LISTS, "quarantine"))
        open_share = self.record["quality"]["overall"].get("open_window_rate")
        of_events = self.record.get("events"), self.record.get("digests", {}).get("events"), open_share
        return road.StoredTables.of_tables(planned, lists, left_out, of_events=of_events)

    def _refused(self, lacking: str, cure: str) -> err.ConfigError:
        return err.ConfigError(f"{lacking}, which the lists stored on {self.pointer.date} do not hold; {cure}")

    def tables(self, store: sinks.Store, config: Config, record: rec.Record) -> road.Tables:
        """The tables of a run over the stored lists, and what the record says of the inputs that are not read."""
        before = rec.tables_on_record(store.spark, self.before, self.record).plan
        judged, assigned = judgements_of(store.spark, config), read_events(store.spark, config.assignments)
        read = {"judgements": judged, "assignments": assigned}
        tables = rec.tables_on_record(
            store.spark, config, self.record, store.stage if assigned else None, judgements=judged, assignments=assigned
        )
        if lacking := next(self._lacking(tables.plan, before), ""):
            cure = next((f", with sink.lists: {road.with_reads(*before.scoring.reads, name)}"
                         for name in ("scores", "intents") if lacking.endswith(f" reads {name}")), "")  # fmt: skip
            raise self._refused(lacking, f"{self.cure}{cure}")
        run_id = self.record[sch.RUN]
        notes = [f"computed from the lists that run {run_id} has stored, not from the log"]
        digests = self.record.get("digests", {})
        if (counts := tables.assignment_counts) and counts.digest != digests.get("assignments"):
            raise err.DifferenceError.of("assignments_differ", date=self.pointer.date, run=run_id, cure=FROM_LOG)
        record.add_inputs(config, read)
        inputs = {**self.record["inputs"], **record.entries["inputs"]}
        record.entries |= {"inputs": inputs, "recomputed": run_id, "notes": notes}
        # The log may still hold users who were erased.
        record.entries |= {key: self.record[key] for key in (sch.ERASED,) if key in self.record}
        return replace(self._tables(store, tables), keep=store.stage)

    def _lacking(self, plan: road.Plan, before: road.Plan) -> Iterator[str]:
        """What a run over the log would read of it, beside what is stored."""
        (rule, *_), (old, *_) = plan.scoring.conventions, before.scoring.conventions
        for metric in plan.scoring.metrics:
            every_item = metric.needs != "relevant" and before.scoring.reading(old).only_relevant
            needed = road.needs_more(metric.needs)
            if needed not in before.scoring.reads and (needed := needed or "items without relevance" * every_item):
                yield f"metric '{metric}' reads {needed}"
        if rule.averages_ties and not plan.scoring.by_position and "scores" not in before.scoring.reads:
            yield f"the convention '{rule.name}' has ties 'expected', and so reads scores"
        if "item_hashes" in {*plan.scoring.stored_arrays} - {*before.scoring.stored_arrays}:
            yield "--judgements or --convention reads hashes of items"
        reasons = self.record["quarantine_reasons"]
        if self.judged and not before.scoring.judged:
            if before.scoring.reading(old).only_relevant and plan.layout.name == "rows":
                yield "--judgements reads items without relevance"
            if "null_relevance" in reasons:
                yield "--judgements reads items whose relevance is null"
        by_grade = plan.scoring.by_position and "repeated_position" in reasons
        by_grade |= rule.ties in ("best", "worst") and self._has("tied")
        if self.judged and plan.scoring.looks_up and by_grade:
            yield "--judgements may change the order of repeated ranks or tied items"
        if plan.scoring.judged and rule.population != "shown" and sch.ERASED in self.record:
            yield f"the population is {rule.population}, and judgements may hold users who were erased"
        if self.before.assignments and sch.ERASED in self.record:
            yield "assignments say who is in which test, and may hold users who were erased"
        if plan.columns.list_hash != before.columns.list_hash:
            yield err.said("hashed_deeper")
        # Where nothing repeats or is tied, its order does not depend on the convention.
        needs = {"duplicates": "repeated", "ties": "tied", "ap_ties": "tied", "ndcg_ties": "tied"}
        read = [name for name, count in needs.items() if self._has(count)]
        read += ["score_precision"] if plan.columns.score else []
        # The order of ties is that of the ids where values are expected over them.
        of_rules = [vars(each) | {"ties": each.ties.replace("expected", "item_desc")} for each in (rule, old)]
        if other := [name for name in read if of_rules[0][name] != of_rules[1][name]]:
            yield f"the convention '{rule.name}' has another {other[0]}, and so reads repeated or tied items"
        if (plan.layout.name == "rows") != (before.layout.name == "rows"):
            cure = "quality.repeated_items: all stores them"
            yield f"with the convention '{rule.name}', these metrics read other items of a list ({cure})"

    def _has(self, count: str) -> bool:
        return any(each[count] for each in self.record["experiments"].values())

    def refuse_replaced(self, store: sinks.Store) -> None:
        """Refuse a date that another run has published since."""
        if store.pointer(self.pointer.date) != self.pointer:
            raise err.OutputError(f"{self.pointer.date} was published again meanwhile; run this again")

    def refuse_other_lists(self, counts: gates.Counts, judgements: str | None) -> None:
        """Refuse lists that are not those which the run has scored, by its digests and that of the judgements."""
        others = judgements != self.record["digests"]["judgements"]
        for name, count in counts.items():
            then = self.record["experiments"].get(sch.NULL_PARTITION if name is None else name, {})
            # An experiment that has lost an erased user has no digest; other judgements give other grades.
            digest = count.get("digest")
            if then.get("rows") != count["rows"] or (digest != then.get("digest", digest) and not others):
                raise err.DifferenceError.of(
                    "stored_lists_differ", name=name, date=self.pointer.date, record=record_path(self.record[sch.RUN])
                )

    def refuse_other_values(self, store: sinks.Store, users: DataFrame) -> None:
        """Refuse values of published metrics that are not the same in every bit."""
        if self.replaced:
            return
        published = self.rows(store, "user_metrics").drop(sch.CONVENTION_HASH)
        names = [*map(sch.quoted, published.columns)]
        # Those of a test that its own gate has withheld are not there.
        users = users.where(F.col(sch.EXPERIMENT).isin(*filter(None, self.pointer.entries[0].experiments)))
        if found := verifying.first_difference("user_metrics", published, users.select(*names), exact=True):
            raise err.DifferenceError(f"{found}, so old values would change; nothing was published; {FROM_LOG}")


def recompute(
    spark: SparkSession,
    sink: Sink,
    metrics: Sequence[str] = (),
    convention: str | None = None,
    dates: tuple[str | None, str | None] = (None, None),
    judgements: str | None = None,
    settings: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
    done: Callable[[Mapping[str, Any]], None] = lambda record: None,
) -> list[rec.Outcome]:
    """Compute published dates anew from their stored lists, one date after the other, each published at once.

    Args:
        spark: The session.
        sink: Where the runs have written.
        metrics: New metrics, such as ``err@20``.
        convention: A convention, as in a config, for every metric of the dates; by default each date keeps its own.
        dates: The first and the last date; by default all that are published.
        judgements: File of judgements in place of those of the dates, for every metric; with the same columns.
        settings: Other values of keys in ``FOLLOW``, such as ``percentiles=[50, 90]``.
        progress: Called with a short description before each step.
        done: Called with the record of each date that is published anew, also where another one fails.

    Raises:
        ConfigError: A date has a metric already, or the stored lists do not hold what a metric reads.
        DifferenceError: Old values would change, or the stored lists are not those of the run.
        InputError: Nothing is published on these dates, or a date has no lists.
        MetricGateError: A gate fails; where it is one of a test, the other tests of the dates are published.
    """
    from rankmetrics_spark.job import run

    if not (metrics or convention or judgements or settings):
        raise err.ConfigError("nothing to recompute; allowed: --metrics, --convention, --judgements, --set, or several")
    for setting in settings:
        if setting.partition("=")[0].strip() not in FOLLOW:
            raise err.ConfigError(f"--set is {setting}; allowed: {' or '.join(FOLLOW)}; for others, run the log again")
    store = sinks.store_of(spark, sink, "recompute")
    pointers = store.pointers()
    first, last = dates[0] or min(pointers, default=""), dates[1] or dates[0] or max(pointers, default="")
    chosen = {date: each for date, each in sorted(pointers.items()) if first <= date <= last}
    records = rec.known_runs(store, min(chosen, default=first), pointers)
    # One run has the lists of a date: those of another run, of other experiments, are not beside them.
    if without := [date for date, each in chosen.items() if not verifying.has_lists(each)]:
        raise err.InputError.of("no_stored_lists", dates=dates_in_words(without), done="recomputed", cure=FROM_LOG)
    days: list[tuple[StoredDay, Config]] = []
    for date, pointer in chosen.items():
        record = rec.with_config(store, records, pointer.entries[0].run_id)
        place = {"path": sink.path, "table": sink.table, "format": sink.format}
        document = {**record["config"], "sink": {**record["config"]["sink"], **place}, "lineage": {}}
        before = load(document, date=date)
        changes: dict[str, Any] = {"metrics": [*map(str, before.metrics), *metrics]}
        if convention:
            changes |= override({}, f"convention={convention}")
        if judgements:
            ending = ENDINGS.get(Path(judgements).suffix[1:].lower())
            format = {"format": ending} if ending else {}
            changes["judgements"] = {**(document["judgements"] or {}), "table": None, "path": judgements, **format}
        after = load(reduce(override, settings, {**document, **changes}), date=date)
        days.append((StoredDay(pointer, record, before, bool(convention or judgements), judgements), after))
    for metric in map(mx.parse, metrics):
        if known := [day.pointer.date for day, _ in days if metric in day.before.metrics]:
            raise err.ConfigError.of("metric_known", metric=metric, dates=dates_in_words(known))
    run_of_page, outcomes, failed = rec.pages_of(records), [], []
    pages = [[file for file, run_id in run_of_page.items() if run_id == day.record[sch.RUN]] for day, _ in days]
    if any(pages):
        rep.check_page_libraries()
    for (day, config), files in zip(days, pages, strict=True):
        progress(f"recomputing {day.pointer.date}")
        try:
            outcomes.append(run(spark, config, stored=day))
        except Exception as error:  # of files that are gone, for one
            if not isinstance(error, err.MetricGateError) or error.published is None:
                day.refuse_replaced(store)
                raise
            failed.append(f"{day.pointer.date}: {error}")
            outcomes.append(error.published)
        done(outcomes[-1].record)
        for file in files:  # without examples, which are in the log
            rep.write_page(rep.figures_of_output(spark, sink, day.pointer.date), file)
    if failed:
        raise err.MetricGateError("; ".join(failed))
    return outcomes
