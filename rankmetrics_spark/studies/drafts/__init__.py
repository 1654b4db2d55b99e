"""``interleaving``: which ranker wins the clicks on lists that several rankers made together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, errors as err, layouts as lay, schemas as sch
from rankmetrics_spark.studies import frame
from rankmetrics_spark.studies.drafts import credits
from rankmetrics_spark.studies.drafts.credits import LIST_COUNTS, LOG_COUNTS, PAIR_SUMS, RANK_COUNTS
from rankmetrics_spark.studies.drafts.estimates import COLUMNS, Preferences, counts_in_words, preference_rows

_UNREAD: dict[str, Any] = {"segment_combinations": (), "covariate": None, "cluster": None, "trigger": None,
                           "judged": False}  # fmt: skip


def _refuse(counts: Mapping[str, int], options: cfg.Options, request: Preferences, quality: cfg.Quality | None) -> None:
    """Refuse a log by its ``READ_COUNTS``: ranks that start at 0, or more rows that are left out than allowed.

    It is the arguments that say how many; of a command, its config does, and the error is that of a run.
    """
    error: type[err.RankmetricsError] = err.InputError
    share, setting = request.max_invalid_fraction, "max_invalid_fraction is"
    if quality is not None:
        setting = f"quality.{'on_invalid: fail allows' if quality.on_invalid == 'fail' else setting}"
        share, error = quality.allowed_fraction, err.QualityError
    first_rank, lists = options.path_of("first_rank"), options.path_of("list")
    if share < 1:
        frame.refuse_ranks_from_0(counts["n_below"], counts["n_lists_of_log"], options.first_rank, first_rank, error)
    n, n_rows = counts["n_faulty_rows"] + counts["n_repeated"], counts["n_rows"]
    if n > share * n_rows:
        limit = f"{n / n_rows:.2%}; {setting} {share:.2%}"
        raise error(frame.said("rows_left_out", n=n, n_rows=n_rows, limit=limit, counts=counts, lists=lists))


def interleaving(
    log: eng.AnyTable,
    team: str = "team",
    *,
    ranks: Mapping[str, str] | None = None,
    columns: Mapping[str, str | None] | None = None,
    list: str | Sequence[str] = (),
    events: eng.AnyTable | None = None,
    event_columns: Mapping[str, object] | None = None,
    grades: Mapping[str, float] | None = None,
    within: str | None = None,
    baseline: str | None = None,
    confidence: float = 0.95,
    correction: str = "holm",
    tuning_users: int = 10_000,
    looks: Literal["one", "any"] = "one",
    first_rank: int = 1,
    max_invalid_fraction: float = 0.01,
    power: float = 0.8,
    effect: float | str | None = None,
) -> eng.ResultTable:
    """Compare rankers by the clicks on lists that they made together; every user counts once.

    Team drafts of two rankers (Radlinski, Kurup and Joachims, CIKM 2008) or more (Schuth et al., CIKM 2014): a click
    counts for the ranker that drafted the item. With ``ranks``, balanced interleaving (same source as the first): a
    click counts for each ranker that has the item in its top k, where k is the better of the two ranks of the lowest
    clicked item. The ranker with more clicks wins the list. A pair of rankers is compared on the lists in which both
    have a slot.

    Args:
        log: One row per shown item. A relevance above 0 is a click.
        team: Column with the ranker that drafted the item; null or empty: none did, such as an advertisement.
        ranks: Ranker -> column with the rank of the item in its own list, of two rankers; null: not in it. The column
            of the team is then not read.
        columns: Role (user, position, relevance) -> column, as in ``evaluate``; other roles are not read.
        list: Columns that tell a user's lists apart.
        events: A row per click and the like, which give the relevance of shown items, as in ``evaluate``.
        event_columns: Role (list, user, item, kind, time) -> column of the events.
        grades: Kind of event -> the grade that it gives to its impression.
        within: How long after its impression an event counts, such as ``1h``.
        baseline: The ranker that is the first one of each of its pairs. The others are in the order of their names.
        confidence: Of the intervals, in (0, 1).
        correction: Of the p-values of all pairs: holm, bonferroni, fdr_bh or none.
        tuning_users: Users at which the intervals over any looks are tightest; fixed before the test.
        looks: ``any``: the corrected p-value and the sentence hold however often people look at a growing test.
        first_rank: What the columns of ranks call the first rank: 1 or 0.
        max_invalid_fraction: Largest fraction of rows that are left out: faulty ones, and those that repeat a rank of
            their list.
        power: Probability of finding ``smallest_effect``, and ``effect`` with ``users_needed``, at the level of the
            smallest step of the correction.
        effect: To plan for: how far the preference is from 0, such as ``"2%"`` for a ranker that wins 52 %.

    Returns:
        One row per pair (ranker_a, ranker_b), lazy like any DataFrame; see docs/interleaving.md for its columns. The
        preference is positive where ranker_b is ahead: the mean over users of (lists that B won + ties / 2) / lists
        with a click, less 1/2 (Chapelle, Joachims, Radlinski and Yue, TOIS 2012). A log without a pair has one row,
        whose sentence says so.

    Raises:
        ConfigError: A wrong argument; when it is computed, a baseline that drafted nothing or too many rankers.
        InputError: A column is missing or has a wrong type; when it is computed: ranks seem to start at 0, or too many
            rows are left out.
    """
    request = Preferences.of(keywords := locals())
    keywords = frame.with_events(keywords, *(ranks or {team: team}).values(), log="log")
    return preferences(keywords["log"], cfg.Options.of(keywords), request)


def preferences(
    log: eng.AnyTable, options: cfg.Options, request: Preferences, quality: cfg.Quality | None = None
) -> eng.ResultTable:
    """``interleaving`` with the roles and lists of ``options``; with ``quality``, a log is refused as by a run."""
    ranks = request.ranks
    roles = {**options.columns, **dict.fromkeys(("experiment", "item", "score"))}
    options = replace(options, columns=roles, rank_by="position", segments=(), **_UNREAD)
    # Of two columns of ranks, the first one is that of the baseline.
    ordered = sorted(ranks, key=lambda ranker: ranker != request.baseline)
    extra = [ranks[ranker] for ranker in ordered] or [str(request.team)]
    table, options = frame.log_of(log, options, *extra, name="log")
    draft = credits.Draft(request.baseline, tuple(ordered))
    wrong, texts = "column '{name}' has type {kind}; it must be a string or a number", []
    allowed = T.StringType | T.NumericType | T.BooleanType
    kinds = frame.column_types(table, ((name, "the rankers") for name in extra), allowed, "impressions", wrong)
    engine = eng.engine_of(table.sparkSession)
    for place, name in enumerate(extra):
        plain = eng.as_text(sch.quoted(name), kinds[name], engine)
        missing = f"isnan({sch.quoted(name)}) OR " if isinstance(kinds[name], eng.REAL) else ""
        texts.append(f"CASE WHEN {missing}trim({plain}) = '' THEN NULL ELSE {plain} END AS _interleaving_{place}")
    # Of the log as it is: a message about a missing column lists its columns, and not those that follow.
    present: dict[str, Any] = {"item": False, "position": True, "relevance": True}
    frame.typed_rows(table, options, **present)
    named = replace(options, segments=tuple(f"_interleaving_{place}" for place in range(len(extra))))
    users = _users(frame.typed_rows(table.selectExpr("*", *texts), named, **present)[0], options, draft)
    sums = frame.added_up(users, credits.SUMS, partial(credits.user_sums, draft=draft), credits.refuse_many)
    # A row that adds nothing: Spark 3.5 takes no step over an empty table, and a log without a pair has a row too.
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in credits.SUMS.schema.fields)
    sums = sums.unionAll(table.sparkSession.range(1).select(*nothing))
    refuse = partial(_refuse, options=options, request=request, quality=quality)
    return frame.of_sums(sums, credits.SUMS, COLUMNS, partial(_rows, request=request, refuse=refuse))


def _users(rows: DataFrame, options: cfg.Options, draft: credits.Draft) -> DataFrame:
    """Return one row per user: their rows and the number of faulty ones; the only shuffle of raw rows."""
    lists = [f"_list_{place}" for place in range(len(options.list))]
    of_list = f"xxhash64({', '.join(lists)})" if lists else "0L"
    faults = [f"{sch.REJECTED} IS NOT NULL", f"coalesce({sch.RELEVANCE} < 0, false)"]
    if draft.rankers:
        ranks = [eng.as_number(f"_segment_{place}") for place in range(2)]
        whole = [f"{rank} = rint({rank}) AND {rank} BETWEEN {options.first_rank} AND {2**31}" for rank in ranks]
        faults += [f"_segment_{place} IS NOT NULL AND NOT coalesce({each}, false)" for place, each in enumerate(whole)]
        shift = 1 - options.first_rank
        named = zip(ranks, credits.RANKS, strict=True)
        ranker = [f"coalesce(bigint({rank}) + {shift}L, 0L) AS {name}" for rank, name in named]
    else:
        ranker = [f"_segment_0 AS {credits.TEAM}"]
    row = lay.entry(f"{of_list} AS {sch.HASH}", sch.POSITION, f"{sch.RELEVANCE} > 0 AS {sch.RELEVANCE}", *ranker)
    is_faulty = " OR ".join(f"({fault})" for fault in faults)
    below = f"{sch.REJECTED}.{sch.REASON} = 'position_below_{options.first_rank}'"
    return rows.groupBy(sch.USER).agg(
        F.expr(f"collect_list({row}) FILTER (WHERE NOT ({is_faulty})) AS {sch.ENTRIES}"),
        F.expr(f"count_if({is_faulty}) AS {credits.FAULTY}"),
        F.expr(f"count_if({below}) AS {credits.BELOW}"),
    ).select(sch.ENTRIES, credits.FAULTY, credits.BELOW)  # fmt: skip


def _rows(totals: credits.Totals, request: Preferences, refuse: Callable[[Mapping[str, int]], None]) -> sch.Rows:
    """Make the rows of the result from the sums of all users, unless the log is refused."""
    credits.refuse_many(totals)
    if (of_log := totals.get((None, None))) is not None:
        refuse(dict(zip(credits.READ_COUNTS, map(int, of_log), strict=True)))
        totals[None, None] = of_log[: len(LOG_COUNTS)]
    return preference_rows(totals, request)
