"""The road of the data: check -> rank -> score -> aggregate. ``Tables`` makes every table of an evaluation from it.

Nothing here starts a job, unless ``Tables.of`` gets a place to keep what the pass over the input gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, metrics as mx, schemas as sch
from rankmetrics_spark.engines import AnyTable, Step, beside, engine_of, few_rows, table_of
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.layouts import LAYOUTS, NO_ENTRIES, Layout, recheck_of
from rankmetrics_spark.road import aggregation as agg, checking, nested as nst, ranking, scoring
from rankmetrics_spark.road.assignments import Assigned, AssignmentCounts, Keep, with_assignments
from rankmetrics_spark.road.events import Timed, event_counts, flattened
from rankmetrics_spark.road.labels import LabelCounts, label_counts, of_both, split_labels
from rankmetrics_spark.road.plan import Plan, make_plan
from rankmetrics_spark.road.scoring import Kept

#: Rows, or the share of all rows if that is more, up to which the lists that need a second look are kept as rows.
_FEW, _FEW_SHARE = 100_000, 0.01


@dataclass(frozen=True)
class Tables:
    """The tables of one evaluation, each lazy like any DataFrame; a table that nobody reads is not even planned.

    Attributes:
        plan: Columns, layout, metrics and conventions, as they were chosen.
        rows: The typed rows of the input, each faulty one with its reason, in internal names.
        judgements: The judgements as they came.
        pools: The judged items of each user.
        keep: Stores what several tables are made from, when the first of them is made; None stores nothing.
        nested: The log as it came, if its rows are lists.
        timed: The times of impressions and events, if events count for some time.
        states: The status of each event, if there are events.
        assigned: Who is in which test, if assignments say so: what is read of lists is that of its experiments.
    """

    plan: Plan
    rows: DataFrame
    judgements: DataFrame | None
    pools: DataFrame | None
    keep: Keep | None = None
    nested: nst.Nested | None = None
    timed: Timed | None = None
    states: DataFrame | None = None
    assigned: Assigned | None = None

    @classmethod
    def of(
        cls,
        impressions: AnyTable,
        judgements: AnyTable | None,
        options: cfg.Options,
        conventions: Sequence[mx.Convention] = (),
        keep: Keep | None = None,
        events: AnyTable | None = None,
        day: str | None = None,
        assignments: AnyTable | None = None,
        compared: cfg.Comparison | None = None,
        machine: AnyTable | None = None,
    ) -> Tables:
        """Plan, and check each row: the evaluation that the options describe; with ``conventions``, under each of them.

        With ``keep``, the layout is the one that the first rows of the log fit; these rows are read.

        Raises:
            ConfigError: A table is none, or the options do not fit one another.
            InputError: A column is missing or has a type that cannot serve.
        """
        columns = (*options.columns.values(), *options.list, *options.segments, options.covariate)
        columns += (options.cluster, options.trigger)
        impressions = table_of(impressions, "impressions", columns, (*sch.ROLES, *sch.ROLES.values()), judgements)
        if judgements is not None:
            defaults = (*sch.JUDGEMENT_ROLES, *sch.JUDGEMENT_ROLES.values())
            own = (*options.judgement_columns.values(), *options.drawn_by.values())
            judgements = table_of(judgements, "judgements", own, (*defaults, *options.list), impressions)
        flat = flattened(impressions, judgements, events, options, day)
        impressions, judgements, options, lists, timed, states = flat
        rated = None
        if options.machine and judgements is not None:
            named = "machine judgements", options.machine_columns.values(), defaults, impressions
            apart = None if machine is None else table_of(machine, *named)
            judgements, rated = split_labels(judgements, apart, options)
        schema, assigned = None if judgements is None else judgements.schema, None
        if assignments is not None:
            asked = (options, compared or cfg.Comparison(), day, keep or (lambda rows, name: rows))
            options, assigned = with_assignments(impressions, assignments, *asked)
        timed_lists = assigned is not None and assigned.asked.timed
        plan = make_plan(options, impressions.schema, schema, conventions, timed_lists)
        if assigned and plan.scoring.judged and any(rule.population != "shown" for rule in plan.scoring.conventions):
            population = plan.scoring.conventions[0].population
            raise ConfigError.of("population_of_assignments", at=options.path_of("convention"), population=population)
        plan = plan.on(engine_of(impressions.sparkSession), impressions.schema, lists is not None)
        text, pools = options.text_numbers, None
        rows = checking.checked_rows(impressions, plan.mapping, plan.columns, text, plan.scoring.judged)
        if judgements is not None:
            every_grade = plan.scoring.every_grade
            reads_intents = plan.scoring.judged_intents
            pools = checking.pools(judgements, plan.judgement_mapping, every_grade, text, reads_intents)
            pools = pools if rated is None else of_both(pools, rated)
        if keep is not None and lists is None and events is None:
            plan = replace(plan, layout=ranking.layout_of_head(rows, plan.columns, plan.layout))
        return cls(plan, rows, judgements, pools, keep, lists, timed, states, assigned)

    @classmethod
    def of_config(cls, config: cfg.Config, inputs: Mapping[str, Any], keep: Keep | None = None) -> Tables:
        """The evaluation that a config describes, over the tables of its sections; see ``of``."""
        log, judged, machine = (inputs[name] for name in ("source", "judgements", "machine_judgements"))
        asked: dict[str, Any] = {"day": config.evaluation_date, "compared": config.comparison, "keep": keep}
        asked |= {name: inputs[name] for name in ("events", "assignments")}
        return cls.of(log, judged, config.options, **asked, machine=machine)

    # ---- the pass over the input

    @cached_property
    def _events(self) -> tuple[dict[str, int] | None, str | None]:
        return (None, None) if self.states is None else event_counts(self.states)

    @property
    def event_counts(self) -> dict[str, int] | None:
        """What became of the events: status -> how many; None without events. The first look starts a job."""
        return self._events[0]

    @cached_property
    def open_share(self) -> float | None:
        """Share of the impressions whose events may still come; see ``Timed``. The first look starts jobs."""
        return self.timed.open_share() if self.timed else None

    @property
    def digests(self) -> dict[str, str | None]:
        """Input beside the log -> its digest: the sum of the hashes of its rows; None without it."""
        judged, assigned = self.judgement_counts, self.assignment_counts
        of_people = {"judgements": judged.digest if judged else None, "machine_judgements": self._labels[1]}
        return {**of_people, "events": self._events[1], "assignments": assigned.digest if assigned else None}

    @cached_property
    def outcome(self) -> DataFrame:
        """Scored lists and groups of faulty rows, in internal names: every other table follows from it."""
        plan, keep = self.plan, self.keep
        if plan.scoring.finite:
            # The gates refuse what is infinite, and name the experiment.
            lenient = replace(self, plan=replace(plan, scoring=replace(plan.scoring, finite=False)))
            outcome = lenient.outcome
            shared: dict[str, Any] = {"_rows_again": lenient._rows_again}
            if self.nested is not None:
                shared["_of_nested"] = lenient._of_nested  # or lists would be scored once more
            vars(self).update(shared)
            return outcome
        if self.nested is not None:
            return self._of_nested[1]
        packed, flags, on_sail = self._packed, self._flags, plan.engine == "sail"
        # The column of faulty rows, without one. Sail finds no field of a struct that only one table has.
        none = f"{checking.no_rejected(plan.columns)} AS {sch.REJECTED}"
        if keep is None:
            lists = self._scored(packed).selectExpr("*", none)
            return lists.unionByName(self._faulty_groups(packed), allowMissingColumns=True)
        # The log is read again for flagged lists, and on Sail for faulty rows, each only if it has some.
        beside = scoring.columns_beside(plan.columns, plan.layout, plan.scoring) | {name: name for name in flags}
        lists = self._in_python(packed.where(f"{sch.REJECTED} IS NULL"), plan.layout, kept=beside)
        if not on_sail:
            lists = lists.selectExpr("*", none).unionByName(_faulty_of(packed, plan.columns), True)
        lists = keep(lists, "outcome")
        is_flagged = f"coalesce({sch.FLAGGED}, false)" if flags else "false"
        looked_at = f"{is_flagged} OR {sch.N_REPEATED} > 0"
        of_rows = f"coalesce(sum({sch.N_ROWS}), 0) AS rows", f"sum(IF({looked_at}, {sch.N_ROWS}, 0)) AS looked_at"
        (counts,) = few_rows(lists.selectExpr(f"count_if({is_flagged}) AS flagged", *of_rows))
        if 0 < (counts["looked_at"] or 0) <= max(_FEW, counts["rows"] * _FEW_SHARE):
            keys = lists.where(looked_at).select(*plan.columns.keys).distinct()
            # Faulty rows of these lists too: Sail would look for these in all columns before it looks for the users.
            named = ranking.named_users(self.rows, keys)
            vars(self)["_rows_again"] = keep(named.join(F.broadcast(keys), list(plan.columns.keys)), "again")
        outcome = lists.where(f"NOT {is_flagged}").drop(*flags).selectExpr("*", *[none] * on_sail)
        if counts["flagged"]:
            again = self._rescored(lists.where(is_flagged))
            outcome = outcome.unionByName(keep(again, "flagged").selectExpr("*", none))
        if on_sail and self.rows.count() > counts["rows"]:
            outcome = outcome.unionByName(keep(self._faulty_groups(packed), "faulty"), allowMissingColumns=True)
        return outcome

    @cached_property
    def _rows_again(self) -> DataFrame:
        """The rows for a second look at a list: on Sail, only those of lists that need one, if these are few."""
        return self.rows

    @cached_property
    def _of_nested(self) -> tuple[DataFrame, DataFrame]:
        """Scored lists, and the outcome, of a log of lists: what is faulty comes with the scores."""
        columns = self.plan.columns
        beside = scoring.columns_beside(columns, self.plan.layout, self.plan.scoring)
        beside |= {name: name for name in (sch.IS_LIST, sch.REJECTED_ITEMS)}
        scored = self._kept(self._in_python(self._packed, self.plan.layout, kept=beside), "outcome")
        faulty = scored.where(f"{sch.CONVENTION_INDEX} = 0 AND {sch.REJECTED_ITEMS} IS NOT NULL").selectExpr(
            *columns.keys, f"1L AS {sch.N_ROWS}", f"explode({sch.REJECTED_ITEMS}) AS {sch.REJECTED}"
        )
        none = f"{checking.no_rejected(columns)} AS {sch.REJECTED}"
        lists = scored.where(sch.IS_LIST).drop(sch.IS_LIST, sch.REJECTED_ITEMS)
        return lists, lists.selectExpr("*", none).unionByName(faulty, allowMissingColumns=True)

    def _kept(self, rows: DataFrame, name: str) -> DataFrame:
        return rows if self.keep is None else self.keep(rows, name)

    @cached_property
    def _packed(self) -> DataFrame:
        """Rank: the rows grouped by list, and groups of faulty rows; on Sail the lists only."""
        plan = self.plan
        if self.nested is not None:
            kinds = checking.kinds_of(self.nested.rows, plan.mapping, checking.read_of(plan.columns))
            return nst.packed(self.nested, plan, kinds)
        if plan.engine == "sail":
            return ranking.packed_sound(self.rows, plan.columns, plan.layout, plan.scoring.repeats)
        packed = ranking.packed(self.rows, plan.columns, plan.layout, plan.scoring.repeats)
        # Lists with events lie where their rows were joined, so there is no exchange yet.
        return ranking.share_exchange(packed if self.states is None else packed.repartition(*plan.columns.keys))

    def _faulty_groups(self, packed: DataFrame) -> DataFrame:
        """The groups of equal faulty rows, which Spark packs beside the lists."""
        columns = self.plan.columns
        return ranking.faulty_groups(self.rows, columns) if self.plan.engine == "sail" else _faulty_of(packed, columns)

    @property
    def _flags(self) -> tuple[str, ...]:
        """The columns that mark lists for which the packed form may be wrong; none if the layout is never wrong."""
        return tuple(self.plan.layout.pack(self.plan.columns, self.plan.scoring.repeats).flags)

    def _scored(self, packed: DataFrame) -> DataFrame:
        """Score: one row per list; flagged lists are recomputed from their rows."""
        if not self._flags:
            return self._in_python(packed.where(f"{sch.REJECTED} IS NULL"), self.plan.layout)
        scores = self._in_python(packed.where(f"NOT {sch.FLAGGED}"), self.plan.layout)
        return scores.unionByName(self._rescored(packed.where(sch.FLAGGED)))

    def _in_python(self, lists: DataFrame, layout: Layout, then: Step | None = None, kept: Kept = None) -> DataFrame:
        """Score lists in a layout. Left join: users without judgements are still counted."""
        lists = lists if self.pools is None else lists.join(self.pools, sch.USER, "left")
        return scoring.scored(lists, self.plan.columns, layout, self.plan.scoring, then, kept)

    def _rescored(self, flagged: DataFrame, then: Step | None = None, kept: Kept = None) -> DataFrame:
        """Score flagged lists from their rows, in the layout that computes them."""
        columns, layout = self.plan.columns, recheck_of(self.plan.layout)
        more = [sch.RANK_MAY_REPEAT] if sch.RANK_MAY_REPEAT in self._flags else []
        rows = ranking.rows_of(self._rows_again, flagged.selectExpr(*columns.keys, *more), columns)
        return self._in_python(ranking.packed(rows, columns, layout, self.plan.scoring.repeats), layout, then, kept)

    # ---- what is read of it

    @cached_property
    def lists(self) -> DataFrame:
        """One row per (experiment, list, convention), in internal names."""
        if self.assigned is None:
            return self.lists_of_log
        in_test = f"{sch.EXPERIMENT} IS NOT NULL"
        if self.keep is None:
            return self.assigned.of_arms(self.lists_of_log).where(in_test)
        return self.outcome_of_arms.where(f"{sch.REJECTED} IS NULL AND {in_test}")

    @cached_property
    def outcome_of_arms(self) -> DataFrame:
        """The outcome with the experiments of the assignments; null for what is in none."""
        return self.outcome if self.assigned is None else self._kept(self.assigned.of_arms(self.outcome), "of_arms")

    @cached_property
    def lists_of_log(self) -> DataFrame:
        """One row per (list, convention), whatever its experiments."""
        if self.nested is not None:
            return self._of_nested[0]
        if self.keep is None:
            return self._scored(self._packed)
        return self.outcome.where(f"{sch.REJECTED} IS NULL")

    @property
    def faulty(self) -> DataFrame:
        """Groups of equal faulty rows."""
        if self.keep is None and self.nested is None:
            return self._faulty_groups(self._packed)
        return _faulty_of(self.outcome, self.plan.columns)

    @cached_property
    def users(self) -> DataFrame:
        """One row per (experiment, user, convention) of the convention's population, in internal names."""
        return self._users()

    @cached_property
    def user_metrics(self) -> DataFrame:
        """One row per (experiment_id, user_id)."""
        of_test = [f"{sch.TEST_OF} AS {sch.TEST_NAME}"] if self.by_test else []
        rows = _published(self.users, self.plan, *of_test)
        is_projection = self.plan.lists_are_users or (self._are_alone and self.pools is None)
        return rows if is_projection and self.assigned is None else self._kept(rows, "users")

    @cached_property
    def _are_alone(self) -> bool:
        """Whether no user has several lists, as the lists that are kept show: then there is nothing to add up.

        Hashes of users are counted: where two share one, their lists are added up, which changes no value.
        """
        if self.keep is None or not self.plan.columns.list:
            return False
        user = F.xxhash64(sch.EXPERIMENT, sch.USER, sch.CONVENTION_INDEX).alias("user")
        (most,) = few_rows(self.lists.select(user).groupBy("user").count().agg(F.max("count").alias("n")))
        return (most["n"] or 0) <= 1

    @cached_property
    def user_days(self) -> DataFrame:
        """The values of all lists of a user, in a test or not: a row for each part of the day between two exposures."""
        assert self.assigned is not None
        plan = self.plan
        parts = scoring.per_user(self.assigned.parted(self.lists_of_log), plan.columns, plan.scoring)
        rows = _published(parts, plan)
        place = f"bigint(substring_index({sch.EXPERIMENT}, ' '"
        names = [sch.USER, f"{place}, 1)) AS {sch.SINCE}", f"{place}, -1)) AS {sch.UNTIL}"]
        names += [sch.quoted(name) for name in rows.columns if name not in (sch.EXPERIMENT, sch.USER)]
        return rows.selectExpr(f"string(null) AS {sch.EXPERIMENT}", *names)

    @property
    def by_test(self) -> bool:
        """Whether experiments are arms of tests."""
        return self.assigned is not None and self.assigned.asked.by_test

    @property
    def hashed_user_metrics(self) -> DataFrame:
        """The same with the hash of the convention, so that rows of two conventions are not compared."""
        rows, digest = self.user_metrics, F.lit(self.plan.options.convention.digest()).alias(sch.CONVENTION_HASH)
        others = (sch.quoted(name) for name in rows.columns if name not in (sch.EXPERIMENT, sch.USER))
        return rows.select(sch.EXPERIMENT, sch.USER, digest, *others)

    @cached_property
    def within_segments(self) -> Sequence[DataFrame]:
        """Per segment column: a row per user and value, over the user's lists with it; empty if users have one list."""
        names = self.plan.columns.segment_columns if self.plan.columns.list else ()
        return [_published(self._users(within=name), self.plan, sch.CONVENTION_INDEX) for name in names]

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """One row per (experiment_id, segment, metric); with several conventions, a row for each."""
        return self._means if self.assigned is None else self.assigned.with_counts(self._means)

    @property
    def _means(self) -> DataFrame:
        """The same without what only assignments know."""
        plan = self.plan
        if self.keep is not None:
            return averages(UserRows(self.user_metrics, self.within_segments), plan)
        if not plan.lists_are_users or self.assigned:
            users = self.users
            if self.assigned and plan.lists_are_users and not plan.options.percentiles:
                # A list is added up for all of its experiments at once, and not copied for each.
                users = scoring.per_user(self.assigned.of_all_arms(self.lists_of_log), plan.columns, plan.scoring)
            users = _published(users, plan, sch.CONVENTION_INDEX)
            return averages(UserRows(users, self.within_segments, several=True), plan)
        # One round trip to Python scores the lists and adds them up, each a user's only one; percentiles take another.
        columns, work = plan.columns, plan.scoring
        segments = dict(zip(columns.segments, columns.segment_columns, strict=True))
        what = agg.Summands(work.metrics, segments, plan.options.combined_segments, plan.over_lists)
        step = partial(agg.sums_of_lists, what)
        reads = {name: name for name in (sch.EXPERIMENT, *columns.segment_columns)}
        if not self._flags:
            sums = self._in_python(self._packed.where(f"{sch.REJECTED} IS NULL"), plan.layout, step(), reads)
        else:
            # The keys of flagged lists come back beside the sums: so the grouped lists are read once, and not twice.
            packed = ranking.packed(self.rows, columns, plan.layout, work.repeats).where(f"{sch.REJECTED} IS NULL")
            key = {sch.USER: f"CASE WHEN {sch.FLAGGED} THEN {sch.USER} END"}
            key |= {name: name for name in (sch.FLAGGED, sch.RANK_MAY_REPEAT)}
            both = self._in_python(packed, plan.layout, step(flagged=(sch.USER, sch.RANK_MAY_REPEAT)), reads | key)
            both = ranking.share_exchange(both.repartition(sch.EXPERIMENT), sch.EXPERIMENT)
            again = self._rescored(both.where(f"{sch.USER} IS NOT NULL"), step(), reads)
            own = both.where(f"{sch.USER} IS NULL").select(*step().schema.names)
            # Spark drops an exchange that it has seen to be empty, and adds up where the other sums lie: a job less.
            sums = own.unionByName(again.repartition(sch.EXPERIMENT))
        means = agg.averages_of_sums(sums, work.conventions, plan.options.confidence, plan.over_lists)
        if not plan.options.percentiles:
            return means
        of_rules = UserRows(_published(self.users, plan, sch.CONVENTION_INDEX), several=True)
        return _with_percentiles(means, of_rules, plan)

    @cached_property
    def quarantine(self) -> DataFrame:
        """The rows left out, with a reason each."""
        return self.rejected.unionByName(self.repeated)

    @cached_property
    def rejected(self) -> DataFrame:
        """The part of the quarantine that has a fault of its own; it needs no second look at the input."""
        return self._of_no_arm(checking.rejected_rows(self.faulty, self.plan.columns))

    def _of_no_arm(self, rows: DataFrame) -> DataFrame:
        """Rows that are left out; with assignments, they are there once, whatever the experiments of their users."""
        return rows if self.assigned is None else rows.withColumn(sch.EXPERIMENT, F.lit(None).cast("string"))

    @property
    def repeated(self) -> DataFrame:
        """The part of the quarantine that repeats an item or a rank of its list.

        Reads only the lists that have such rows, and of these the rows that scoring has read.
        """
        work, columns = self.plan.scoring, self.plan.columns
        keys = self.lists_of_log.where(f"{sch.N_REPEATED} > 0").selectExpr(*columns.keys, sch.ALL_ROWS_SEEN)
        condition = f"{sch.ALL_ROWS_SEEN} OR {sch.RELEVANCE} > 0" if columns.relevance else sch.ALL_ROWS_SEEN
        candidates = ranking.with_text(ranking.rows_of(self._rows_again, keys, columns).where(condition), columns)
        if not columns.relevance and self.pools is not None:
            # Which of several rows stays depends on their grades, here as in Python.
            candidates = ranking.with_judged_grades(candidates, self.pools)
            columns = replace(columns, relevance=True)
        if not work.repeats:
            columns = replace(columns, item=False)
        repeats = ranking.repeated_rows(candidates, columns, work.by_position, work.conventions[0].duplicates)
        return self._of_no_arm(checking.as_quarantined(repeats, self.plan.columns))

    @cached_property
    def judgement_counts(self) -> checking.JudgementCounts | None:
        """What was counted of the judgements; None without judgements. The first look starts a job."""
        if self.judgements is None:
            return None
        plan = self.plan
        text, intents = plan.options.text_numbers, plan.scoring.judged_intents
        return checking.JudgementCounts.of(self.judgements, plan.judgement_mapping, text, intents)

    @cached_property
    def _labels(self) -> tuple[LabelCounts | None, str | None]:
        if self.pools is None or self.judgements is None or not self.plan.scoring.machine:
            return None, None
        return label_counts(self.pools, self.judgements, self.plan.options)

    @property
    def label_counts(self) -> LabelCounts | None:
        """How people and a machine judged the same items; None without a machine. The first look starts a job."""
        return self._labels[0]

    @cached_property
    def assignment_counts(self) -> AssignmentCounts | None:
        """What was counted of the assignments; None without them. The first look starts a job."""
        return self.assigned.counts() if self.assigned else None

    def _users(self, within: str | None = None) -> DataFrame:
        plan, pools = self.plan, self.pools
        rows = scoring.per_user(self.lists, plan.columns, plan.scoring, within, self._are_alone)
        if pools is None:
            return rows
        members = rows.where(f"{sch.JUDGED} OR {_has_population(plan, 'shown', 'either')}")
        with_unseen = _has_population(plan, "judged", "either")
        if with_unseen == "false":
            return members
        at_once = self.keep is None and self.nested is None
        known = self._packed.where(f"{sch.REJECTED} IS NULL") if at_once else self.lists
        users_with_list = known.select(sch.EXPERIMENT, sch.USER).distinct()
        judged_users = pools.crossJoin(F.broadcast(users_with_list.select(sch.EXPERIMENT).distinct()))
        others = judged_users.join(users_with_list, [sch.EXPERIMENT, sch.USER], "left_anti")
        none = {sch.N_ROWS: "0L", sch.ENTRIES: NO_ENTRIES, sch.TOP: "0L", sch.N_NEGATIVE: "0L"}
        empty = others.selectExpr("*", *(f"{sql} AS {name}" for name, sql in none.items()))
        columns = sch.Columns(item=True, position=True, score=False, relevance=True)
        by_position = replace(plan.scoring, by_position=True, stored=False)  # they are no lists
        lists = scoring.scored(empty, columns, LAYOUTS["relevant"], by_position)
        unseen = scoring.per_user(lists, columns, by_position).withColumn(sch.N_LISTS, F.lit(0).cast("bigint"))
        return members.unionByName(unseen.where(with_unseen), allowMissingColumns=True)


def _faulty_of(table: DataFrame, columns: sch.Columns) -> DataFrame:
    """The groups of equal faulty rows that a table holds beside the lists."""
    return table.where(f"{sch.REJECTED} IS NOT NULL").selectExpr(*columns.keys, sch.N_ROWS, sch.REJECTED)


def _has_population(plan: Plan, *populations: str) -> str:
    """SQL: whether the convention of a row has one of these populations."""
    indices = [str(i) for i, rule in enumerate(plan.scoring.conventions) if rule.population in populations]
    return f"{sch.CONVENTION_INDEX} IN ({', '.join(indices)})" if indices else "false"


def _published(table: DataFrame, plan: Plan, *more: str) -> DataFrame:
    """``user_metrics`` with what describes the user under the user's own names."""
    described = zip(plan.columns.of_user, plan.public_names, strict=True)
    renamed = [f"{internal} AS {sch.quoted(public)}" for internal, public in described]
    counts = (sch.N_LISTS, sch.N_SHOWN, sch.N_RELEVANT, sch.N_REPEATED, *filter(None, [plan.scoring.list_hash]))
    counts += (f"coalesce({sch.JUDGED}, false) AS {sch.HAS_LABELS}", sch.TO_JUDGE) if plan.scoring.machine else ()
    counts += (sch.CHANCE,) if plan.scoring.chance else ()
    metrics = (*(metric.column for metric in plan.scoring.metrics), *plan.scoring.machine_columns)
    with_value = map(sch.lists_with_value, scoring.without_value(plan.columns, plan.scoring))
    return table.selectExpr(sch.EXPERIMENT, sch.USER, *renamed, *counts, *metrics, *with_value, *more)


@dataclass(frozen=True)
class UserRows:
    """Rows of ``user_metrics``, whether just computed or read back.

    Attributes:
        rows: The rows.
        within: The users of each segment, if they are in tables of their own.
        several: Whether the rows follow several conventions.
    """

    rows: DataFrame
    within: Sequence[DataFrame] = ()
    several: bool = False

    def added(self, summed: Callable[[DataFrame, agg.Summands], DataFrame], plan: Plan) -> DataFrame:
        """What is added up over the users and those of each segment."""
        segments, combined = plan.public_segments, plan.options.combined_segments
        whole = agg.Summands(plan.scoring.metrics, segments, combined, plan.over_lists, self.several)
        rows = summed(self.rows, replace(whole, segments={}, combinations=()) if self.within else whole)
        for table, (name, column) in zip(self.within, segments.items(), strict=bool(self.within)):
            own = replace(whole, segments={name: column}, combinations=(), several=True)
            rows = rows.unionByName(summed(table, own).where(F.col(sch.SEGMENT) != sch.EVERYONE))
        return rows


def averages(users: UserRows, plan: Plan) -> DataFrame:
    """Aggregate: ``experiment_metrics`` from ``user_metrics``."""
    sums = users.added(agg.sums_of_users, plan)
    means = agg.averages_of_sums(sums, plan.scoring.conventions, plan.options.confidence, plan.over_lists)
    return _with_percentiles(means, users, plan)


def _with_percentiles(means: DataFrame, users: UserRows, plan: Plan) -> DataFrame:
    """The means, with the percentiles that the options ask for."""
    request = agg.Percentiles(plan.options.percentiles, plan.options.confidence)
    if not request.percentiles:
        return means
    table = agg.percentiles_of(users.added(agg.value_counts, plan), plan.scoring.conventions, request)
    return beside(means, table, (sch.EXPERIMENT, sch.SEGMENT, sch.METRIC, sch.CONVENTION_HASH))
