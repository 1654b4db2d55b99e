"""Users -> exact sums: against NumPy, and the same bits in any order and in any parts."""

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankmetrics_spark import comparison as cmp, errors as err
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.statistics import LARGEST_SUMMAND, POWERS, poisson_weights, random_signs, weighted_totals
from tests.helpers.messages import json_cases
from tests.helpers.users import METRIC, keys_of, table, times, totals_of, user_rows

ARM_SUMS, PAIR_SUMS = cmp.KINDS["arm"].columns, cmp.KINDS["pair"].columns
EVERYTHING = Comparison("a", pairs="all", bootstrap=times(130), randomization=times(134), aa_check=times(129))


def whole(sums: Any, names: tuple[str, ...], kind: str) -> Fraction:
    """A sum that consists of limbs, exact."""
    at = names.index(f"{kind}_0")
    return sum((int(sums[at + i]) * Fraction(2) ** e for i, e in enumerate(POWERS[len(kind)])), Fraction(0))


def some_users(n: int = 40, experiments: str = "abc") -> pd.DataFrame:
    """Users in some of the experiments, with segments, users without a value and users without relevant items."""
    rng = np.random.default_rng(5)
    rows = table({name: rng.random(n) for name in experiments})
    rows["country"] = rng.choice(["de", "fr"], len(rows))
    rows["ndcg"] = np.where(rng.random(len(rows)) < 0.2, np.nan, rng.normal(0, 1e6, len(rows)))
    rows["relevant"] = rng.random(len(rows)) < 0.8
    rows[f"before {METRIC}"] = np.where(rng.random(len(rows)) < 0.3, np.nan, rng.random(len(rows)))
    return rows[rng.random(len(rows)) < 0.8]


def all_sums(rows: pd.DataFrame) -> cmp.Totals:
    return totals_of(user_rows(rows, (METRIC, "ndcg"), ("country",)), EVERYTHING)


def plain(result: cmp.Totals) -> dict[Any, Any]:
    # Values that are too many to be read may be there in part.
    return {key: sums.tolist() for key, sums in result.sums.items() if key.kind not in cmp.measures.VALUES}


def sizes_of_replicates(result: cmp.Totals) -> Counter[str]:
    sizes = Counter[str]()
    for key, sums in result.sums.items():
        kind, piece, _ = key.kind.partition(".")
        sizes[kind] += sums.size if piece else 0
    return +sizes


def test_the_sums_of_an_experiment_are_those_of_its_users() -> None:
    users = table({"a": [0.5, 0.25, np.nan, 2.0**61]}).assign(relevant=[True, False, True, True])
    sums = totals_of(user_rows(users), Comparison()).sums[cmp.Key("arm", "", "a", "all", METRIC)]
    assert dict(zip(ARM_SUMS[:4], sums[:4], strict=True)) == {"users": 4, "n": 3, "with_relevant": 2, "beyond": 1}
    # The value beyond 2**60 counts, and is not summed.
    assert whole(sums, ARM_SUMS, "v") == Fraction(3, 4)
    assert whole(sums, ARM_SUMS, "vv") == Fraction(1, 4) + Fraction(1, 16)


def test_the_sums_of_a_pair_are_those_of_the_users_in_both() -> None:
    users = table({"a": [0.5, 0.25, np.nan, 1.0], "b": [1.0, 0.25, 3.0, 0.5, 9.0]})
    sums = totals_of(user_rows(users), Comparison("a")).sums[cmp.Key("pair", "a", "b", "all", METRIC)]
    # Users 0, 1 and 3: differences 0.5, 0 and -0.5.
    assert sums[: PAIR_SUMS.index("x_0")].tolist() == [3, 1, 1]
    expected = {"x": "7/4", "xx": "21/16", "y": "7/4", "yy": "21/16", "d": 0, "dd": "1/2"}
    assert {kind: whole(sums, PAIR_SUMS, kind) for kind in expected} == {k: Fraction(v) for k, v in expected.items()}


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_sums_of_values_of_any_size_are_exact_to_the_last_limb(scale: float) -> None:
    values = np.random.default_rng(1).normal(0, scale, 50)
    sums = totals_of(user_rows(table({"a": values})), Comparison()).sums[cmp.Key("arm", "", "a", "all", METRIC)]
    expected = sum((Fraction(v) for v in values), Fraction(0))
    # A value is kept to 2**-60.
    assert abs(whole(sums, ARM_SUMS, "v") - expected) <= len(values) * Fraction(1, 2**61)
    squares = sum((Fraction(v) ** 2 for v in values), Fraction(0))
    assert float(abs(whole(sums, ARM_SUMS, "vv") - squares)) <= len(values) * max(2.0**-61, scale**2 * 2.0**-49)


def test_replicates_are_products_with_the_weights_of_the_users() -> None:
    users = some_users()
    result = all_sums(users).replicates
    wide = users.pivot(index="user", columns="experiment", values=METRIC)
    keys = keys_of(wide.index)
    weights = poisson_weights(keys, 1, 130).astype(float)
    signs, moves = (np.hstack([random_signs(keys, 1, n), np.ones((len(keys), 1))]) for n in (134, 129))
    a, b, d = wide["a"].to_numpy(), wide["b"].to_numpy(), (wide["b"] - wide["a"]).to_numpy()
    both, one = ~np.isnan(d), np.isnan(a) ^ np.isnan(b)
    alone = np.where(one, np.nan_to_num(a) + np.nan_to_num(b), 0)
    for kind, baseline, drawn, columns in (
        ("bootstrap_arm", "", weights, (b, ~np.isnan(b))),
        ("bootstrap_pair", "a", weights, (np.where(both, a, 0), np.where(both, b, 0), both)),
        ("flips", "a", signs, (d, both)),
        ("aa_paired", "a", moves, (d, both)),
        ("aa_independent", "a", moves, (alone, alone**2, one)),
    ):
        sums = weighted_totals(result(cmp.Key(kind, baseline, "b", "all", METRIC)))
        for each, column in zip(sums, columns, strict=True):
            # A value is cut off at 2**-30.
            assert each == pytest.approx(drawn.T @ np.nan_to_num(column), abs=len(keys) * 8 * 2.0**-30)


def test_pairs_that_are_resampled_one_after_another_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plain(all_sums(some_users()))
    monkeypatch.setattr(cmp.pairs, "MOST_VALUES", 1)
    assert plain(all_sums(some_users())) == result


def test_a_user_who_changes_the_segment_between_experiments_is_in_both_only_as_a_whole() -> None:
    users = table({"a": [0.1, 0.2], "b": [0.3, 0.4]}).assign(country=["de", "de", "de", "fr"])
    result = totals_of(user_rows(users, segments=["country"]), Comparison("a")).sums
    both = {key.segment: int(sums[0]) for key, sums in result.items() if key.kind == "pair"}
    assert both == {"all": 2, "country=de": 1}
    n = {(key.candidate, key.segment): int(sums[0]) for key, sums in result.items() if key.kind == "arm"}
    assert n == {("a", "all"): 2, ("a", "country=de"): 2, ("b", "all"): 2, ("b", "country=de"): 1,
                 ("b", "country=fr"): 1}  # fmt: skip


def test_an_experiment_whose_users_have_no_value_is_there_with_none() -> None:
    result = totals_of(user_rows(table({"a": [0.1], "b": [np.nan, np.nan]})), Comparison("a")).sums
    assert result[cmp.Key("arm", "", "b", "all", METRIC)][:4].tolist() == [2, 0, 0, 0]
    assert not [key for key in result if key.kind == "pair"]


def few_of_many(n_experiments: int, users: int = 60) -> pd.DataFrame:
    """Users who are in the first of many experiments and in two others, with a segment for each second user."""
    rng = np.random.default_rng(9)
    rows = [
        {"experiment": f"e{place}", "user": f"u{user}", METRIC: rng.random(), "relevant": True, "shop": str(user // 2)}
        for user in range(users)
        for place in (0, *rng.choice(np.arange(1, n_experiments), 2, replace=False))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("which", ["baseline", "all"])
def test_rows_are_paired_within_a_user_and_within_nothing_else(which: str) -> None:
    users = few_of_many(7).assign(shop=lambda rows: rows["shop"].str[0])
    result = totals_of(user_rows(users, segments=["shop"]), Comparison("e0", pairs=which)).sums
    both = {key[1:4]: int(sums[0]) for key, sums in result.items() if key.kind == "pair"}
    expected: dict[Any, int] = {}
    for _, own in users.groupby("user"):
        names = sorted(own["experiment"])
        for first, second in itertools.combinations(names, 2):
            for segment in ("all", f"shop={own['shop'].iloc[0]}") if which == "all" or first == "e0" else ():
                expected[first, second, segment] = expected.get((first, second, segment), 0) + 1
    assert both == expected


@pytest.mark.parametrize("which", ["baseline", "all"])
def test_work_grows_with_the_rows_of_users_and_not_with_the_experiments(which: str) -> None:
    def counted(n_experiments: int) -> tuple[int, int]:
        rows = user_rows(few_of_many(n_experiments), segments=["shop"])
        places = cmp.pairs_of(Comparison("e0", pairs=which), rows.experiments)
        labels, code = rows.segments[1]
        paired = sum(len(some.left) for some in cmp.pairs.RowPairs.of(rows, labels, code, places))
        cells = cmp.measures.Groups.of_cells(rows.experiments, labels, code * len(rows.experiments) + rows.experiment)
        return paired, len(cells.names)

    # 60 users with three rows each: two rows beside that of the baseline, and three pairs of any two.
    for n_experiments in (10, 100, 1_000):
        paired, n_groups = counted(n_experiments)
        assert paired == (180 if which == "all" else 120)
        assert n_groups <= 180


def test_sizes_of_differences_are_counted_by_sign_without_zeros() -> None:
    users = table({"a": [0.0, 0.0, 0.0, 0.0, 0.0], "b": [0.5, -0.5, 0.5, 0.0, np.nan]})
    ((key, sizes, positive, negative),) = cmp.signed_sizes(user_rows(users), Comparison("a"))
    assert key == cmp.Key("ranks", "a", "b", "all", METRIC)
    assert (sizes.tolist(), positive.tolist(), negative.tolist()) == ([0.5], [2], [1])


def test_two_rows_of_a_user_in_one_experiment_are_refused() -> None:
    users = table({"a": [0.1, 0.2]}, {"a": ["u", "u"]})
    with pytest.raises(err.InputError, match="a user has two rows of one experiment in user_metrics; allowed: one"):
        totals_of(user_rows(users), Comparison())


@pytest.mark.parametrize(
    "request_",
    [
        EVERYTHING,
        Comparison("a", bootstrap=times(130)),
        Comparison("a", candidates=("c",), randomization=times(134), aa_check=times(129)),
        Comparison(pairs="all", aa_check=times(129)),
    ],
)
def test_the_numbers_of_replicates_are_known_before_a_row_is_read(request_: Comparison) -> None:
    users = table({name: np.random.default_rng(1).random(9) for name in "abcd"})
    # Some users are in one of two experiments alone, as the A/A check of different users wants them.
    result = totals_of(user_rows(users[users.index % 5 > 0]), request_)
    assert cmp.n_cells(request_, 4) == sum(sizes_of_replicates(result).values()) == result.n_cells


def test_too_many_replicates_are_refused_with_the_number_that_can_be_had() -> None:
    request = Comparison(pairs="all", bootstrap=times(50_000), randomization=times(50_000))
    # 66 pairs of 12 experiments: 3 limbs x (50,000 x (2 x 12 + 3 x 66) + 50,001 x 2 x 66) = 53,100,396 a metric.
    cmp.refuse_too_many_replicates(request, 12, 1)
    with pytest.raises(err.ConfigError) as caught:
        cmp.refuse_too_many_replicates(request, 12, 5)
    assert str(caught.value) == (
        "comparison: 50,000 replicates of 66 pairs and 5 metrics are 265,501,980 numbers; allowed: 100,000,000, so at "
        "most 18,832 replicates, or fewer pairs or metrics"
    )
    fewer = Comparison(pairs="all", bootstrap=times(18_832), randomization=times(18_832))
    cmp.refuse_too_many_replicates(fewer, 12, 5)


def test_replicates_travel_in_pieces_and_come_back_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cmp.measures, "PIECE", 100)
    monkeypatch.setattr(cmp.sums, "SUMS_AT_ONCE", 7)
    users = some_users()
    part = users["user"].map(lambda name: int(name[1:]) % 3)
    sent = [batch for i in range(3) for batch in cmp.sums.as_batches(all_sums(users[part == i]))]
    assert max(batch.num_rows for batch in sent) == 7
    assert max(len(cells) for batch in sent for cells in batch.column("sums").to_pylist()) == 100
    assert plain(cmp.sums.read(reversed(sent))) == plain(all_sums(users))


def test_more_replicates_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cmp.measures, "MOST_CELLS", 3_000)
    with pytest.raises(err.ConfigError, match="allowed: fewer replicates, pairs, metrics or segments"):
        totals_of(user_rows(table({"a": [1.0], "b": [2.0]})), Comparison("a", bootstrap=times(250)))


@pytest.mark.parametrize(("asked", "expected"), json_cases("pairs of four experiments"))
def test_pairs_start_with_the_baseline_and_follow_the_names(asked: dict[str, Any], expected: list[str]) -> None:
    for names in (["a", "b", "c", "d"], ["d", "b", "a", "c"]):
        assert [names[i] + names[j] for i, j in zip(*cmp.pairs_of(Comparison(**asked), names), strict=True)] == expected


def test_128_experiments_make_8128_pairs() -> None:
    assert len(cmp.pairs_of(Comparison(pairs="all"), [f"e{i}" for i in range(128)])[0]) == 8128


def test_the_limbs_of_a_square_hold_that_of_the_largest_difference() -> None:
    users = table({"a": [-LARGEST_SUMMAND], "b": [LARGEST_SUMMAND]})
    sums = totals_of(user_rows(users), Comparison("a")).sums[cmp.Key("pair", "a", "b", "all", METRIC)]
    assert whole(sums, PAIR_SUMS, "dd") == Fraction(2) ** 122


def test_replicates_are_held_only_for_pairs_that_have_users() -> None:
    request = Comparison("a", pairs="all", bootstrap=times(100), randomization=times(99), aa_check=times(100))
    rows = pd.concat([table({"a": [1.0, 2.0], "b": [2.0, 3.0]}), table({"c": [1.0]}, {"c": ["u9"]})])
    # Three experiments; one pair has users in both, three have some in one. Signs have one more: the users as they are.
    kinds = sizes_of_replicates(totals_of(user_rows(rows), request))
    assert kinds == {"bootstrap_arm": 3 * 3 * 2 * 100, "bootstrap_pair": 3 * 3 * 100, "flips": 3 * 2 * 100,
                     "aa_paired": 3 * 2 * 101, "aa_independent": 2 * 3 * 3 * 101}  # fmt: skip
