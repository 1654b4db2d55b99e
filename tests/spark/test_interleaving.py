"""Interleaved lists on both engines: credit and tests against loops and SciPy, dirty logs, bits, what is refused."""

import csv
import io
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from scipy import stats

from rankmetrics_spark import interleaving
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.studies.drafts import COLUMNS
from tests.helpers.commands import ROOT, Call
from tests.helpers.messages import json_cases, messages, refusal
from tests.helpers.readme import blocks, names_after

SCHEMA = "user_id string, request string, position double, relevance double, drafted_by string"
OPTIONS: dict[str, Any] = {"team": "drafted_by", "list": "request"}


class Shown(NamedTuple):
    user: str | None
    request: str | None
    position: float | None
    click: float | None
    team: str | None


def drafted(rng: random.Random, rankers: Sequence[str], rounds: int) -> Iterator[str]:
    """The teams of a list: in each round every ranker drafts once, in the order of a draw."""
    for _ in range(rounds):
        yield from rng.sample(rankers, len(rankers))


def team_log(seed: int, rates: dict[str, float], users: int, lists: int = 3, rounds: int = 3) -> list[Shown]:
    """Drafts by teams; an item is clicked with the rate of its ranker, and less the lower it is."""
    rng = random.Random(seed)
    return [
        Shown(f"u{user}", f"q{at}", float(rank), float(rng.random() < rates[team] / math.sqrt(rank)), team)
        for user in range(users)
        for at in range(lists)
        for rank, team in enumerate(drafted(rng, [*rates], rounds), start=1)
    ]


def pairs(table: DataFrame) -> dict[tuple[Any, Any], dict[str, Any]]:
    rows = [row.asDict() for row in table.collect()]
    result = {(row["ranker_a"], row["ranker_b"]): row for row in rows}
    assert len(result) == len(rows) and all([*row] == [*COLUMNS] for row in rows)
    return result


def a_table(spark: SparkSession, rows: Sequence[Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row) for row in rows], SCHEMA)


# ---- the same, slowly


def is_sound(row: Shown) -> bool:
    if row.user is None or row.request is None or row.position is None or row.click is None:
        return False
    whole = not math.isnan(row.position) and row.position >= 1 and row.position == int(row.position)
    return whole and row.click >= 0 and math.isfinite(row.click)


def by_loops(rows: Sequence[Shown]) -> tuple[dict[str, int], dict[tuple[str, str], dict[str, Any]]]:
    """Counts of the log, and for each pair of rankers its counts, the values of its users and its slots by rank."""
    lists: dict[tuple[Any, Any], dict[float, list[Shown]]] = defaultdict(lambda: defaultdict(list))
    for row in filter(is_sound, rows):
        lists[row.user, row.request][row.position or 0].append(row)
    counts = Counter(n_rows=len(rows), n_faulty_rows=sum(not is_sound(row) for row in rows), n_lists_of_log=len(lists))
    result: dict[tuple[str, str], dict[str, Any]] = {}
    for (user, _), ranks in lists.items():
        credit: Counter[str] = Counter()
        slots: dict[str, list[int]] = defaultdict(list)
        for rank, same in ranks.items():
            teams = {(row.team or "").strip() and row.team for row in same}
            counts["n_repeated"] += len(same) - (len(teams) == 1)
            if len(teams) > 1:
                continue
            (team,) = teams
            clicked = any(row.click for row in same)
            if not team:
                counts["n_rows_without_team"] += 1
                counts["n_clicks_without_team"] += clicked
                continue
            credit[team] += clicked
            slots[team].append(int(rank))
        for a in slots:
            for b in slots:
                if a < b:
                    new = {"counts": Counter(), "users": defaultdict(list), "ranks": [Counter(), Counter()]}
                    of = result.setdefault((a, b), new)
                    add_list(of, str(user), (credit[a], credit[b]), (slots[a], slots[b]))
    return dict(counts), result


def add_list(of: dict[str, Any], user: str, credit: tuple[int, int], slots: tuple[list[int], list[int]]) -> None:
    (a, b), counts = credit, of["counts"]
    counts.update(n_lists=1, clicks_a=a, clicks_b=b, slots_a=len(slots[0]), slots_b=len(slots[1]))
    for ranks, own in zip(of["ranks"], slots, strict=True):
        ranks.update(own)
    if a or b:
        counts.update(n_lists_clicked=1, lists_a=a > b, lists_b=b > a, lists_tied=a == b)
        of["users"][user].append(1.0 if b > a else 0.5 if a == b else 0.0)


def check(row: dict[str, Any], of: dict[str, Any]) -> None:
    """One row of the result against the loops, SciPy and formulas."""
    assert {name: row[name] for name in of["counts"]} == dict(of["counts"])
    values = [sum(won) / len(won) - 0.5 for won in of["users"].values()]
    n_a, n_b = sum(value < 0 for value in values), sum(value > 0 for value in values)
    assert (row["n_users"], row["users_a"], row["users_b"]) == (len(values), n_a, n_b)
    test = stats.ttest_1samp(values, 0.0)
    interval = test.confidence_interval(0.95)
    assert row["preference"] == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert row["p_value"] == pytest.approx(test.pvalue, rel=1e-9)
    assert row["p_sign"] == pytest.approx(stats.binomtest(n_b, n_a + n_b).pvalue, rel=1e-9)
    # Howard et al.: the mixture that is tightest at 10,000 users; Waudby-Smith et al.: its bound.
    n, error = len(values), stats.sem(values)
    rho = 10_000 / (math.log(1 - 2 * math.log(0.05)) - 2 * math.log(0.05))
    bound = math.sqrt((n + rho) / n * (math.log((n + rho) / rho) - 2 * math.log(0.05)))
    # Both go through the tails of t, as one look does.
    half = error * stats.t.isf(stats.norm.sf(bound), n - 1)
    assert row["sequential_ci_low"] == pytest.approx(row["preference"] - half, rel=1e-6)
    assert row["sequential_ci_high"] == pytest.approx(row["preference"] + half, rel=1e-6)
    z = stats.norm.isf(stats.t.sf(abs(row["preference"] / error), n - 1))
    e_value = math.sqrt(rho / (n + rho)) * math.exp(n * z**2 / (2 * (n + rho)))
    assert row["p_sequential"] == pytest.approx(max(min(1.0, 1 / e_value), test.pvalue), rel=1e-6)
    a, b = of["ranks"]
    last = max(rank for rank in (*a, *b) if rank <= 10)
    both = [rank for rank in range(1, last + 1) if a[rank] + b[rank]]
    expected = [b[rank] / (a[rank] + b[rank]) if rank in both else math.nan for rank in range(1, last + 1)]
    assert row["draft_shares"] == pytest.approx(expected, nan_ok=True)
    smallest = min(stats.chisquare([a[rank], b[rank]]).pvalue for rank in both)
    assert row["p_draft"] == pytest.approx(min(1.0, len(both) * smallest), rel=1e-9)


DIRTY = [Shown(*row) for row in json_cases("faulty rows of interleaved lists")]


@pytest.mark.both_engines
@pytest.mark.outcome(
    "an interleaved log with rows without a user, list, rank or click, or with negative clicks", "left out and counted"
)
@pytest.mark.outcome(
    "several rows of an interleaved list at one rank",
    "one row, clicked if one of them is; where they name different rankers, none counts; counted",
)
@pytest.mark.outcome(
    "rows of an interleaved list without a ranker", "belong to nobody; counted, and so are the clicks on them"
)
def test_two_rankers_and_a_dirty_log_are_as_in_the_loops(spark: SparkSession) -> None:
    rows = [*team_log(1, {"control": 0.2, "new": 0.3}, 60), *DIRTY]
    counts, expected = by_loops(rows)
    result = pairs(interleaving(a_table(spark, rows), max_invalid_fraction=0.02, **OPTIONS))
    assert result.keys() == expected.keys() == {("control", "new")}
    row = result["control", "new"]
    assert {name: row[name] for name in counts} == counts
    assert (counts["n_faulty_rows"], counts["n_repeated"]) == (9, 2 + 2 + 2)
    assert (counts["n_rows_without_team"], counts["n_clicks_without_team"]) == (2, 1)
    assert (row["credit"], row["confidence"], row["p_adjusted"]) == ("team", 0.95, row["p_value"])
    check(row, expected["control", "new"])


def test_each_pair_of_many_rankers_is_as_in_the_loops(spark: SparkSession) -> None:
    multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
    rng = random.Random(5)
    # More rankers than slots: each list has some of them.
    rows = [row for row in team_log(3, dict(zip("abcdef", (0.3, 0.3, 0.2, 0.4, 0.3, 0.1), strict=True)), 80)
            if (row.position or 0) <= 4]  # fmt: skip
    rng.shuffle(rows)
    counts, expected = by_loops(rows)
    result = pairs(interleaving(a_table(spark, rows), **OPTIONS))
    assert [*result] == sorted(expected) and len(result) == 15
    for key, row in result.items():
        assert {name: row[name] for name in counts} == counts
        check(row, expected[key])
    p = [row["p_value"] for row in result.values()]
    assert [row["p_adjusted"] for row in result.values()] == pytest.approx(multipletests(p, method="holm")[1].tolist())


def test_the_baseline_is_the_first_of_its_pairs(spark: SparkSession) -> None:
    rows = team_log(2, {"a": 0.2, "b": 0.3, "c": 0.3}, 30)
    plain, turned = (pairs(interleaving(a_table(spark, rows), baseline=name, **OPTIONS)) for name in (None, "c"))
    assert [*plain] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [*turned] == [("c", "a"), ("c", "b"), ("a", "b")]
    for name, other in (("lists_a", "lists_b"), ("clicks_a", "clicks_b"), ("users_a", "users_b")):
        assert turned["c", "a"][name] == plain["a", "c"][other]
    assert turned["c", "a"]["preference"] == -plain["a", "c"]["preference"]
    assert turned["c", "a"]["p_value"] == plain["a", "c"]["p_value"]


# ---- balanced interleaving


def balanced_lists(seed: int, users: int) -> Iterator[tuple[str, list[str], list[str], list[str], list[bool]]]:
    """User, both rankings, the list by algorithm 1 of Radlinski et al., and its clicks."""
    rng = random.Random(seed)
    for user in range(users):
        a = rng.sample("abcdefgh", 6)
        b = rng.sample(a, 6) if rng.random() < 0.7 else rng.sample("abcdefghij", 6)
        shown: list[str] = []
        at, first = [0, 0], rng.random() < 0.5
        while at[0] < len(a) and at[1] < len(b):
            of = 0 if at[0] < at[1] or (at[0] == at[1] and first) else 1
            item = (a, b)[of][at[of]]
            at[of] += 1
            if item not in shown:
                shown.append(item)
        shown = shown[:6]
        yield f"u{user % (users // 2)}", a, b, shown, [rng.random() < 0.25 for _ in shown]


def test_balanced_interleaving_gives_credit_as_in_the_paper(spark: SparkSession) -> None:
    of: dict[str, Any] = {"counts": Counter(), "users": defaultdict(list), "ranks": [Counter(), Counter()]}
    rows, n_led = [], Counter[str]()
    for at, (user, a, b, shown, clicks) in enumerate(balanced_lists(4, 120)):
        clicked = [item for item, click in zip(shown, clicks, strict=True) if click]
        tops: tuple[list[str], list[str]] = ([], [])
        if clicked:
            k = next(j for j in range(1, 7) if clicked[-1] in (*a[j - 1 : j], *b[j - 1 : j]))
            tops = a[:k], b[:k]
        credit = tuple(sum(item in top for item in clicked) for top in tops)
        led = "" if a[0] == b[0] else "a" if shown[0] == a[0] else "b"
        n_led[led] += 1
        add_list(of, user, (credit[0], credit[1]), ([1] * (led == "a"), [1] * (led == "b")))
        ranks = [{item: rank for rank, item in enumerate(ranking, start=1)} for ranking in (a, b)]
        rows += [
            (user, f"q{at}", float(rank), float(click), ranks[0].get(item), ranks[1].get(item))
            for rank, (item, click) in enumerate(zip(shown, clicks, strict=True), start=1)
        ]
    assert min(n_led.values()) > 10
    rows += [("u0", "q0", 8.0, 1.0, None, None), ("u0", "q0", 9.0, 1.0, 0, 2), ("u0", "q0", 9.0, 1.0, 1, -3)]
    log = spark.createDataFrame(rows, "user_id string, request string, position double, relevance double, a int, b int")
    (row,) = pairs(interleaving(log, ranks={"A": "a", "B": "b"}, list="request")).values()
    assert (row["ranker_a"], row["ranker_b"], row["credit"]) == ("A", "B", "balanced")
    assert [row[name] for name in ("n_faulty_rows", "n_rows_without_team", "n_clicks_without_team")] == [2, 1, 1]
    check(row, of)
    (turned,) = interleaving(log, ranks={"A": "a", "B": "b"}, list="request", baseline="B").collect()
    assert (turned["ranker_a"], turned["lists_a"], turned["preference"]) == ("B", row["lists_b"], -row["preference"])


def test_ranks_from_0_and_as_texts_are_the_same_ranks(spark: SparkSession) -> None:
    shown = [("u", 1, 0, 1, 3), ("u", 2, 1, 3, 1), ("u", 3, 0, 2, None), ("v", 1, 1, 1, 2), ("v", 2, 0, None, 1)]
    log = spark.createDataFrame(shown, "user_id string, position int, relevance int, a int, b int")
    new = log.selectExpr("user_id", "position - 1 AS position", "relevance", "string(a - 1) AS a", "double(b - 1) AS b")
    ranks = {"A": "a", "B": "b"}
    (row,) = interleaving(log, ranks=ranks).collect()
    (other,) = interleaving(new, ranks=ranks, first_rank=0).collect()
    assert row == other
    # In u, k is 1: B has the clicked item first. In v, A has it first.
    numbers = {"lists_a": 1, "lists_b": 1, "clicks_a": 1, "clicks_b": 1, "slots_a": 2, "slots_b": 0}
    assert row.asDict().items() >= numbers.items()


# ---- bits, tables, edges


def test_tables_of_python_whole_teams_and_flags_are_read(spark: SparkSession) -> None:
    clicks = {"u": [(1, True), (2, False)], "v": [(2, True), (1, False)], "w": [(1, False), (2, True)]}
    log = [
        {"person": user, "at": rank, "tapped": tapped, "ranker": ranker}
        for user, items in clicks.items()
        for rank, (ranker, tapped) in enumerate(items)
    ]
    columns = {"user": "person", "position": "at", "relevance": "tapped"}
    (row,) = interleaving(log, "ranker", columns=columns, first_rank=0).collect()
    assert (row["ranker_a"], row["ranker_b"], row["users_a"], row["users_b"], row["n_users"]) == ("1", "2", 1, 2, 3)
    assert row["draft_shares"] == pytest.approx([1 / 3, 2 / 3])
    # (-1/2 + 1/2 + 1/2) / 3
    assert row["preference"] == pytest.approx(1 / 6, abs=1e-15)


@pytest.mark.parametrize(("rows", "sentence"), messages("no pair of rankers"))
def test_a_log_that_compares_nothing_has_one_row_that_says_why(
    spark: SparkSession, rows: list[tuple[Any, ...]], sentence: str
) -> None:
    (row,) = interleaving(a_table(spark, rows), **OPTIONS).collect()
    assert row["sentence"] == sentence
    assert (row["n_rows"], row["n_faulty_rows"], row["p_value"]) == (len(rows), 0, None)


def test_lists_that_are_not_told_apart_are_named(spark: SparkSession) -> None:
    rows = team_log(7, {"a": 0.3, "b": 0.3}, 40)
    (row,) = interleaving(a_table(spark, rows), "drafted_by", max_invalid_fraction=1).collect()
    share = 100 * row["n_repeated"] / row["n_rows"]
    assert share > 50
    assert row["sentence"].startswith(f"{share:.1f} % of the rows repeat a rank of their list and are left out: name")


@pytest.mark.outcome(
    "an interleaved log of which more rows are left out than `max_invalid_fraction`",
    "`InputError`, of the command exit 4: how many have a fault and how many repeat a rank",
)
def test_more_rows_left_out_than_allowed_are_refused(spark: SparkSession) -> None:
    rows = [*team_log(7, {"a": 0.3, "b": 0.3}, 4, rounds=2), Shown(None, "q0", 1.0, 0.0, "a")]
    rows.append(rows[0])
    # 4 users x 3 lists x 4 rows, one without a user, and one that repeats a rank: 2 of 50.
    error = refusal(interleaving(a_table(spark, rows), **OPTIONS).collect)
    assert type(error) is InputError and str(error) == (
        "2 of 50 rows are left out (4.00%; max_invalid_fraction is 1.00%): 1 have a fault, 1 repeat a rank of their "
        "list; to go on, repair the log, name the columns that tell lists apart (list), or allow more"
    )


@pytest.mark.slow
def test_two_hundred_rankers_are_all_compared_and_an_item_is_no_ranker(spark: SparkSession) -> None:
    rankers = [f"r{at:03}" for at in range(200)]
    rows = [(f"u{user}", "q", float(rank), float(rank == user), ranker)
            for user in (1, 2) for rank, ranker in enumerate(rankers, start=1)]  # fmt: skip
    result = pairs(interleaving(a_table(spark, rows), **OPTIONS))
    assert len(result) == 200 * 199 / 2
    assert [result["r000", "r001"][name] for name in ("lists_a", "lists_b", "n_users")] == [1, 1, 2]
    assert [result["r001", "r199"][name] for name in ("lists_a", "lists_b", "n_users")] == [1, 0, 1]
    table = spark.range(1001).selectExpr(
        "string(id) user_id", "'q' request", "1 position", "1 relevance", "string(id) drafted_by"
    )
    with pytest.raises(Exception, match="the column of the team names 1,001 rankers or more; allowed: up to 1,000"):
        interleaving(table, **OPTIONS).collect()


# ---- the command


@pytest.fixture
def a_config(tmp_path: Path) -> Path:
    with (tmp_path / "log.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Shown._fields, *team_log(8, {"control": 0.1, "new": 0.3, "old": 0.1}, 60)])
    columns = {"user": "user", "position": "position", "relevance": "click"}
    source = {"path": str(tmp_path / "log.csv"), "list": ["request"], "columns": columns, "team": "team"}
    (tmp_path / "c.yaml").write_text(json.dumps({"source": source, "comparison": {"baseline": "new"}}))
    return tmp_path / "c.yaml"


def test_the_command_prints_each_pair_and_its_sentence(call: Call, a_config: Path, spark: SparkSession) -> None:
    rows = team_log(8, {"control": 0.1, "new": 0.3, "old": 0.1}, 60)
    expected = [row.asDict() for row in interleaving(a_table(spark, rows), baseline="new", **OPTIONS).collect()]
    code, out, err = call("interleaving", "--config", a_config, "--format", "json", "--date", "2026-11-21")
    printed = json.loads(out)
    assert (code, printed["evaluation_date"], printed["comparisons"]) == (0, "2026-11-21", expected), err
    assert printed["counts"]["n_rows"] == len(rows) == 60 * 3 * 9
    by_p = sorted(expected, key=lambda row: row["p_adjusted"])
    assert printed["verdict"] == [row["sentence"] for row in by_p]
    code, out, err = call("interleaving", "--config", a_config, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["preference"]) for row in table] == [row["preference"] for row in expected]
    assert [json.loads(row["draft_shares"]) for row in table] == [row["draft_shares"] for row in expected]
    code, out, err = call("interleaving", "--config", a_config)
    assert code == 0 and all(row["sentence"] in err for row in expected)
    assert "1,620 rows in 180 lists; left out: 0 faulty, 0 repeated; rows without a ranker: 0, clicks on them: 0" in err
    (line,) = [line for line in out.splitlines() if "new" in line and "old" in line]
    assert f"{100 * (0.5 + expected[1]['preference']):.1f}" in line and f"{expected[1]['lists_a']}" in line


@pytest.mark.parametrize(("given", "message"), messages("mistakes of interleaving"))
def test_a_mistake_ends_the_command_with_its_code(call: Call, a_config: Path, given: list[Any], message: str) -> None:
    override, code = given
    result, out, err = call("interleaving", "--config", a_config, "--set", override)
    assert (result, out) == (code, "") and message in err


def test_with_any_number_of_looks_the_verdict_is_that_of_every_look(call: Call, a_config: Path) -> None:
    arguments = ("interleaving", "--config", a_config, "--format", "json", "--set", "comparison.tuning_users=10000")
    (one, *_), (any_, *_) = (
        json.loads(call(*arguments, "--set", f"comparison.looks={looks}")[1])["comparisons"] for looks in ("one", "any")
    )
    assert one["p_adjusted"] < 0.05 < any_["p_adjusted"] and (one["looks"], any_["looks"]) == ("one", "any")
    assert " beats " in one["sentence"] and " beats " not in any_["sentence"]
    assert any_["sequential_ci_low"] < -0.5 < 0 < any_["sequential_ci_high"]
    # Of so few users, far from 10,000, every share is in it.
    assert any_["sequential_ci_high"] > 0.5 and "(95 % interval at every look 0.0 to 100.0 %)" in any_["sentence"]
    code, out, _ = call(*arguments[:3], "--set", "comparison={baseline: new, pairs: all, looks: any}")
    assert code == 0 and " 0.0 to 100.0 " in out


def test_more_rows_left_out_than_allowed_end_the_command_with_4(call: Call, a_config: Path) -> None:
    rows = team_log(8, {"control": 0.1, "new": 0.3, "old": 0.1}, 60)
    counts, _ = by_loops([row._replace(request="q") for row in rows])
    n, share = counts["n_repeated"], counts["n_repeated"] / len(rows)
    for more, allowed in (
        ([], "max_invalid_fraction is 1.00%"),
        (["quality.on_invalid=fail"], "on_invalid: fail allows 0.00%"),
    ):
        overrides = [part for each in ("source.list=[]", *more) for part in ("--set", each)]
        code, out, err = call("interleaving", "--config", a_config, *overrides)
        assert (code, out) == (4, "")
        assert (
            f"{n:,} of 1,620 rows are left out ({share:.2%}; quality.{allowed}): 0 have a fault, {n:,} repeat a rank "
            "of their list; to go on, repair the log, name the columns that tell lists apart (source.list), or allow "
            "more"
        ) in err
    allow = ("--set", "source.list=[]", "--set", "quality.max_invalid_fraction=1")
    assert call("interleaving", "--config", a_config, *allow)[0] == 0


@pytest.mark.outcome(
    "an interleaved log whose ranks start at 0, without `first_rank: 0`", "`InputError`, of the command exit 4"
)
def test_ranks_that_start_at_0_end_the_command_with_4(call: Call, a_config: Path) -> None:
    # 60 users x 3 lists.
    log = a_config.parent / "log.csv"
    lines = log.read_text().splitlines()
    moved = [re.sub(r"^(\w+,\w+),(\d+)\.0", lambda row: f"{row[1]},{int(row[2]) - 1}", line) for line in lines]
    log.write_text("\n".join(moved))
    for more in ([], ["--set", "quality.max_invalid_fraction=0.5"]):
        code, out, err = call("interleaving", "--config", a_config, *more)
        assert (code, out) == (4, "")
        assert "180 rows have a rank below 1, and there are 180 lists: the ranks seem to start at 0; set" in err
        assert "source.first_rank to 0" in " ".join(err.split())
    assert call("interleaving", "--config", a_config, "--set", "source.first_rank=0")[0] == 0


def test_of_many_pairs_the_command_has_the_surest_sentences(call: Call, a_config: Path) -> None:
    rows = team_log(9, dict.fromkeys("abcdef", 0.3), 20)
    with (a_config.parent / "log.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Shown._fields, *rows])
    arguments = ("interleaving", "--config", a_config, "--set", "comparison={baseline: b, correction: none}")
    code, _, err = call(*arguments)
    assert code == 0 and "3 more pairs: --format json has a sentence for each" in err
    printed = json.loads(call(*arguments, "--format", "json")[1])
    surest = [row["sentence"] for row in sorted(printed["comparisons"], key=lambda row: row["p_value"])]
    assert printed["verdict"] == surest != [row["sentence"] for row in printed["comparisons"]]
    assert [sentence in err for sentence in surest] == [True] * 12 + [False] * 3


def test_the_command_reads_ranks_of_balanced_lists_from_text(call: Call, tmp_path: Path) -> None:
    # The lowest click of u is on B's first item; v has a rank that is no number, and is an error of the log.
    log = ["uid,slot,tap,in_a,in_b", "u,1,0,1,3", "u,2,true,3,1", "u,3,0,2,", "w,1,1,1,2", "w,2,0,,1", "v,1,1,x,1"]
    (tmp_path / "log.csv").write_text("\n".join(log))
    columns = {"user": "uid", "position": "slot", "relevance": "tap"}
    source = {"path": str(tmp_path / "log.csv"), "columns": columns, "ranks": {"A": "in_a", "B": "in_b"}}
    document = {"source": source, "quality": {"max_invalid_fraction": 0.2}, "comparison": {"baseline": "B"}}
    (tmp_path / "c.yaml").write_text(json.dumps(document))
    code, out, err = call("interleaving", "--config", tmp_path / "c.yaml", "--format", "json")
    (row,) = json.loads(out)["comparisons"]
    assert code == 0 and [row[name] for name in ("ranker_a", "ranker_b", "credit")] == ["B", "A", "balanced"], err
    assert [row[name] for name in ("lists_a", "lists_b", "n_users", "n_faulty_rows")] == [1, 1, 2, 1]


def test_a_log_without_a_pair_ends_with_0_and_says_so(call: Call, a_config: Path) -> None:
    code, out, err = call("interleaving", "--config", a_config, "--set", "source.where=team = 'new'")
    assert (code, out) == (0, "") and "There is one ranker, new, so nothing to compare it with." in err
    code, out, _ = call("interleaving", "--config", a_config, "--set", "source.where=team = 'new'", "--format", "json")
    printed = json.loads(out)
    assert (code, printed["comparisons"], printed["counts"]["n_rows"]) == (0, [], 540)


# ---- what it is for


@pytest.mark.slow
def test_where_nothing_differs_one_in_twenty_drafts_says_otherwise_and_better_rankers_win(spark: SparkSession) -> None:
    """200 tests in one log: a log per pair of rankers of its own, so that one pass computes them all."""
    n_tests = 200
    for rates, low, high in (((0.2, 0.2), 0, 20), ((0.1, 0.4), 180, 200)):
        rows = [
            Shown(f"{test}/{row.user}", row.request, row.position, row.click, f"{test}/{row.team}")
            for test in range(n_tests)
            for row in team_log(test, {"a": rates[0], "b": rates[1]}, 60, 2, 2)
        ]
        result = interleaving(a_table(spark, rows), correction="none", **OPTIONS).collect()
        assert len(result) == n_tests
        # At 0.05, more than 20 of 200 have a probability below 0.002.
        assert low <= sum(row["p_value"] < 0.05 for row in result) <= high
        assert low <= sum(row["p_sign"] < 0.05 for row in result) <= high
        assert sum(row["p_sequential"] < 0.05 for row in result) <= sum(row["p_value"] < 0.05 for row in result)
        assert sum(row["p_draft"] < 0.001 for row in result) <= 3
        if low:
            assert all(row["preference"] > 0 for row in result if row["p_value"] < 0.05)


def test_the_example_of_the_docs_runs(spark: SparkSession, call: Call, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "interleaving.md").read_text(encoding="utf-8")
    (example,), (shown,), (document,), (lines,) = (blocks(kind, page) for kind in ("python", "text", "yaml", "sh"))
    names = names_after(example)
    assert names["found"].collect()[0]["sentence"].split() == shown.split()
    # The commands of the page, on the same log.
    spark.createDataFrame(names["log"]).write.parquet(str(tmp_path / "logs" / "interleaved"))
    config = document.replace("logs/interleaved", str(tmp_path / "logs" / "interleaved"))
    (tmp_path / "interleaved.yaml").write_text(config)
    for line in lines.splitlines():
        arguments = line.replace("interleaved.yaml", str(tmp_path / "interleaved.yaml")).split()[1:]
        code, out, err = call(*arguments)
        said = err if "json" not in line else json.loads(out)["verdict"][0]
        assert code == 0 and shown.split() == said.split()[: len(shown.split())]
