"""Lists as they were scored: what of them is stored, and the same tables made from what an earlier run has stored."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import errors as err, layouts as lay, schemas as sch
from rankmetrics_spark.road import checking, scoring
from rankmetrics_spark.road.tables import Tables

#: Reasons of rows that are left out because of other rows of their list.
_REPEATS = ("duplicate_item", "repeated_position")


def refuse_to_store(tables: Tables) -> None:
    """Refuse to store lists that could not be scored again from what is stored of them.

    Raises:
        ConfigError: A metric or the convention reads more, or the lists are not those of the log alone.
    """
    work, options = tables.plan.scoring, tables.plan.options
    more = [(f"metric '{metric}'", needed) for metric in work.metrics if (needed := needs_more(metric.needs))]
    if not work.by_position and any(rule.averages_ties for rule in work.conventions):
        more.append((f"{options.path_of('convention')}.ties 'expected'", "scores"))
    wrong = [(f"{what} reads {needed}", with_reads(*work.reads, needed)) for what, needed in more
             if needed not in work.reads]  # fmt: skip
    if (work.looks_up or work.looks_up_intents) and not work.repeats:
        wrong.append(("judgements are looked up, while quality.repeated_items is 'ignore'", "false"))
    wrong += [("machine is given", "false")] * work.machine
    for why, allowed in wrong:
        reads, stored = with_reads(*work.reads), " and ".join(("ranks", "grades", *work.reads))
        raise err.ConfigError(f"sink.lists is {reads}, which stores {stored} only, and {why}; allowed: {allowed}")


def with_reads(*names: str) -> str:
    """The value of ``sink.lists`` that stores these beside ranks and grades.

    >>> with_reads("scores"), with_reads()
    ('{scores: true}', 'true')
    """
    return f"{{{', '.join(f'{name}: true' for name in names)}}}" if names else "true"


def needs_more(needs: str) -> str:
    """What a metric reads beside ranks and grades; empty if nothing."""
    return {"scores": "scores", "intents": "intents", "shown_intents": "intents"}.get(needs, "")


def lists_to_store(tables: Tables) -> DataFrame:
    """A row per list of a run, of no experiment but with its name: what scores and aggregates are made from.

    With assignments, a list is there once, whatever tests its user is in.
    """
    plan = tables.plan
    beside = scoring.columns_beside(plan.columns, lay.Stored(), plan.scoring)
    # The number of a row is another one in another order of the rows.
    numbers = [name for name, own in zip(plan.columns.list_columns, plan.columns.list, strict=True) if own == sch.ROW]
    kept = [name for name in beside if name not in (sch.EXPERIMENT, sch.USER, sch.ALL_ROWS_SEEN, sch.JUDGED)]
    own = [f"string(null) AS {name}" if name in numbers else name for name in kept]
    read = (*own, sch.N_ROWS, *lay.Stored(plan.scoring.stored_arrays, plan.scoring.list_hash).payload)
    keys = (f"string(null) AS {sch.EXPERIMENT}", sch.USER, f"{sch.EXPERIMENT} AS {sch.ARM}")
    return tables.lists_of_log.selectExpr(*keys, *read)


def log_of_lists(stored: DataFrame) -> DataFrame:
    """A log of stored lists: a row per shown item, whose hash stands for it."""
    rows = stored.selectExpr(sch.ARM, sch.USER, f"inline(arrays_zip({sch.RANKS}, {sch.ITEM_HASHES}))")
    names = {sch.ARM: sch.EXPERIMENT, sch.RANKS: sch.POSITION, sch.ITEM_HASHES: sch.ITEM}
    return rows.withColumnsRenamed(names).withColumn(sch.ITEM, F.col(sch.ITEM).cast("string"))


def hashed_judgements(tables: Tables) -> DataFrame:
    """The judgements of these tables, with the hash of an item in place of the item; a faulty one has none."""
    options, mapping = tables.plan.options, tables.plan.judgement_mapping
    rows = checking.typed_judgements(tables.judgements, mapping, options.text_numbers)  # type: ignore[arg-type]
    item = f"CASE WHEN {checking.FAULTY} IS NULL THEN string(xxhash64({sch.ITEM})) END AS {sch.ITEM}"
    return rows.selectExpr(sch.USER, item, f"{checking.GRADE} AS {sch.RELEVANCE}")


@dataclass(frozen=True)
class StoredTables(Tables):
    """The tables of an evaluation whose lists an earlier run has stored; no row of the log is read.

    Attributes:
        stored: The rows of ``lists``.
        left_out: The rows of ``quarantine``.
        of_events: What the earlier run has counted of the events, their digest, and the share of impressions whose
            events may still come; None without.
    """

    stored: DataFrame = None  # type: ignore[assignment]
    left_out: DataFrame = None  # type: ignore[assignment]
    of_events: tuple[dict[str, int] | None, str | None, float | None] = (None, None, None)

    @classmethod
    def of_tables(cls, of: Tables, stored: DataFrame, left_out: DataFrame, **more: Any) -> "StoredTables":
        """The same tables, planned as if their log were read; only judgements and assignments are read of inputs."""
        work = replace(of.plan.scoring, stored=True, finite=False)
        layout = lay.Stored(work.stored_arrays, work.list_hash, work.looks_up)
        plan = replace(of.plan, scoring=work, layout=layout)
        stored = stored.drop(sch.EXPERIMENT).withColumnRenamed(sch.ARM, sch.EXPERIMENT)
        none = f"{checking.no_rejected(plan.columns)} AS {sch.REJECTED}"
        rows = stored.selectExpr(sch.EXPERIMENT, sch.USER, f"explode({sch.GRADES}) AS {sch.RELEVANCE}", none)
        more |= {"assigned": of.assigned}
        return cls(plan, rows, of.judgements, of.pools, stored=stored, left_out=left_out, **more)

    @property
    def _events(self) -> tuple[dict[str, int] | None, str | None]:
        return self.of_events[:2]

    @property
    def open_share(self) -> float | None:
        """The share that the earlier run has found."""
        return self.of_events[2]

    @cached_property
    def _packed(self) -> DataFrame:
        return self.stored.selectExpr("*", f"{checking.no_rejected(self.plan.columns)} AS {sch.REJECTED}")

    @cached_property
    def outcome(self) -> DataFrame:
        """The stored lists, scored, and the faulty rows as the quarantine has them."""
        none = f"{checking.no_rejected(self.plan.columns)} AS {sch.REJECTED}"
        lists = self._scored(self._packed).selectExpr("*", none)
        return self._kept(lists.unionByName(self._faulty_groups(lists), allowMissingColumns=True), "outcome")

    def _faulty_groups(self, packed: DataFrame) -> DataFrame:
        """The groups of equal rows with a fault of their own, as the quarantine has them."""
        columns, public = self.plan.columns, checking.quarantined(self.plan.columns)
        texts = {name: sch.quoted(public[name]) if name in public else "string(null)"
                 for name in checking.rejected_type(columns).names}  # fmt: skip
        # An empty name is null as the value of a partition.
        empty = f"CASE WHEN {sch.REASON} = 'empty_experiment' THEN '' ELSE {texts[sch.EXPERIMENT]} END"
        texts[sch.EXPERIMENT] = f"'{sch.EVERYONE}'" if self.assigned else empty
        faulty = self.left_out.where(~F.col(sch.REASON).isin(*_REPEATS))
        fields = ", ".join(f"{sql} AS {name}" for name, sql in texts.items())
        groups = faulty.selectExpr(f"struct({fields}) AS {sch.REJECTED}").groupBy(sch.REJECTED)
        counted = groups.agg(F.expr(f"count(1) AS {sch.N_ROWS}"))
        return counted.selectExpr(*(f"{sch.REJECTED}.{name}" for name in columns.keys), sch.N_ROWS, sch.REJECTED)

    @property
    def quarantine(self) -> DataFrame:
        """The rows that the earlier run has left out."""
        return self.left_out

    @property
    def rejected(self) -> DataFrame:
        """The same: without repeated rows, these are all."""
        return self.left_out

    @property
    def repeated(self) -> DataFrame:
        """The part that repeats an item or a rank."""
        return self.left_out.where(F.col(sch.REASON).isin(*_REPEATS))
