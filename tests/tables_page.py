"""The schemas of the output tables: ``python -m tests.tables_page docs/tables.md`` writes them anew."""

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.comparison import STATISTICS
from tests.helpers.readme import between, rewrite

SQL = {"long": "bigint"}

PARTITION_COLUMNS = {
    sch.EXPERIMENT: ("string", "the experiment; of `comparisons`, the candidate; null for rows without one"),
    sch.DATE: ("date", "the evaluation date"),
}
"""Columns that the folders of every output table hold -> type and meaning."""
NO_KEY = [(table, sch.EXPERIMENT) for table in sch.OF_DATES]
"""What the folders of some tables do not hold."""
OUTPUT_TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "user_metrics": {
        sch.USER: ("string", "the user, or the query"),
        "<segment>": ("string", "each of `source.segments`, under its own name"),
        "<covariate>": ("double", "the column of `comparison.cuped`, if one is read from the log"),
        "<cluster>": ("string", "the column of `comparison.cluster`, if it is read from the log"),
        "<trigger>": ("boolean", "the column of `comparison.trigger`: whether it is set in any row of the user"),
        sch.N_LISTS: ("bigint", "lists of the user"),
        sch.N_SHOWN: ("bigint", "items in them"),
        sch.N_RELEVANT: ("bigint", "relevant items, *m* of the conventions, over all lists"),
        sch.N_REPEATED: ("bigint", "rows that were left out because they repeat an item or a rank"),
        "<metric>": ("double", "each metric, `ndcg@10` as `ndcg_at_10`: the mean over the lists; null where left out"),
        "n_lists_<metric>": (
            "bigint",
            "lists with a value of the metric; only with `source.list`, where a list may lack one",
        ),
        "list_hash_at_<k>": (
            "bigint",
            "hash of which item is at which rank of the user's lists, down to the largest cut-off of the metrics "
            "(`list_hash`: of all items); only with `only_changed: true`",
        ),
        sch.CONVENTION_HASH: ("string", "the convention; values of two conventions must not be compared"),
    },
    "experiment_metrics": {
        sch.SEGMENT: ("string", "`all`, or `column=value`"),
        sch.METRIC: ("string", "the metric, such as `ndcg@10`"),
        sch.CONVENTION: ("string", "its convention: a preset, with what differs from it"),
        sch.N_USERS: ("bigint", "users with a value, without those that the convention leaves out of the mean"),
        sch.N_USERS_WITH_RELEVANT: ("bigint", "of these `n_users`, those with a relevant item"),
        sch.N_USERS_WITHOUT_LIST: ("bigint", "users of the judgements who were shown nothing"),
        "mean": ("double", "mean over the users"),
        "std": ("double", "standard deviation over the users"),
        "ci_low": (
            "double",
            "lower bound of the interval of the mean; with `cluster`, of clusters; null where all values are equal",
        ),
        "ci_high": ("double", "its upper bound"),
        "confidence": ("double", "how sure the interval is, such as 0.95"),
        "mean_with_relevant": ("double", "the mean without users who have no relevant item"),
        sch.N_REPEATED: ("bigint", "rows that were left out because they repeat an item or a rank"),
        "convention_text": ("string", "every knob of the convention"),
        sch.CONVENTION_HASH: ("string", "the same, short"),
        sch.MEAN_OVER: ("string", "`users` or `lists`"),
        sch.N_LISTS: ("bigint", "lists with a value; only with `mean_over: lists`"),
        "bootstrap_ci_low": ("double", "lower bound of the bootstrap interval of the mean; only with `bootstrap`"),
        "bootstrap_ci_high": ("double", "its upper bound"),
        "percentile_<p>": ("double", "each of `percentiles` of the users' values; 99.9 is `percentile_99_9`"),
        "percentile_<p>_ci_low": ("double", "lower bound of its interval; null with too few users"),
        "percentile_<p>_ci_high": ("double", "its upper bound"),
    },
    "checks": {
        name: (sch.CHECK_COLUMNS[name], meaning)
        for name, meaning in {
            "name": "what was checked",
            sch.SEGMENT: "of a gate; else `all`",
            sch.METRIC: "of a gate",
            "observed": "the number",
            "limit": "what it was judged by",
            "margin": "how far the number is on the right side of the limit; negative beyond",
            "status": "`ok`, `warn`, `fail` or `not_checked`",
            "sentence": "the same in words",
        }.items()
    },
    "quarantine": {
        **{
            name: ("string", "as it came, in text; where the log has it")
            for name in sch.ROLES.values()
            if name not in (sch.EXPERIMENT, sch.INTENTS)
        },
        "<list>": ("string", "each of `source.list`, as it came"),
        sch.REASON: ("string", "why the row was left out"),
    },
    "user_days": {
        sch.USER: ("string", "the user; written with `assignments` that have times"),
        sch.SINCE: ("bigint", "when this part of the day starts: at an exposure of the user, or at midnight"),
        sch.UNTIL: ("bigint", "when it ends; both in microseconds since 1970"),
        sch.N_LISTS: ("bigint", "lists of the user in this part, whatever tests the user is in"),
        **{name: ("bigint", "as in `user_metrics`") for name in (sch.N_SHOWN, sch.N_RELEVANT, sch.N_REPEATED)},
        "<metric>": ("double", "each metric: the mean over these lists"),
        "<segment>": ("string", "as in `user_metrics`, as is `n_lists_<metric>`"),
    },
    sch.LISTS: {
        sch.USER: ("string", "the user of a list; written with `sink.lists: true`"),
        sch.ARM: ("string", "the experiment"),
        "_list_<n>": ("string", "each of `source.list`; segments are `_segment_<n>`"),
        sch.TOP: ("bigint", "the last rank, if ranks are given"),
        sch.N_NEGATIVE: ("bigint", "rows with a grade below 0"),
        sch.N_ROWS: ("bigint", "rows of the list without a fault"),
        **{name: ("bigint", "as in `user_metrics`, of the list") for name in (sch.N_SHOWN, sch.N_REPEATED)},
        sch.N_TIED: ("bigint", "rows that share their score with another one"),
        sch.RANKS: ("array of int", "ranks as they were scored: of relevant items, or of all, where needed"),
        sch.GRADES: ("array of double", "the grade of each"),
    },
}
"""Table -> its columns beside ``PARTITION_COLUMNS``: type and meaning. ``comparisons`` has a registry of its own."""


def tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Table -> column -> type and meaning, without the partition columns."""
    compared = {
        name: (SQL.get(each.type, each.type), each.meaning) for each in STATISTICS.values() for name in each.columns
    }
    return OUTPUT_TABLES | {"comparisons": compared}


def updated(page: str) -> str:
    """The page with the columns of each table between its two markers."""
    lines = []
    for table, columns in tables().items():
        lines += [f"### {table}", "", "| column | type | what it is |", "|---|---|---|"]
        keys = {name: PARTITION_COLUMNS[name] for name in PARTITION_COLUMNS if (table, name) not in NO_KEY}
        lines += [f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in (keys | columns).items()]
        lines.append("")
    return between("schemas", "\n".join(lines), page)


if __name__ == "__main__":
    rewrite(updated)
