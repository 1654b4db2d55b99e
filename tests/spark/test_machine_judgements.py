"""Labels of people for a sample and of a machine for all: from the log to stored tables, on both engines."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F
from scipy.stats import chi2_contingency
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.power import TTestPower

from rankmetrics_spark import compare, config as cfg, evaluate, plan_labels, read, unjudged
from rankmetrics_spark.errors import ConfigError, DifferenceError, InputError
from rankmetrics_spark.job import run, verify
from tests.helpers.commands import Call
from tests.helpers.logs import config
from tests.tables_page import tables
from tests.unit.test_judged_rows import added, slow_mean, weighted_mean
from tests.unit.test_machine_labels import drawn_sides, many_means, profiles

METRICS = ["ap@3", "ndcg@3", "dcg@3"]
JUDGED, QUERIES = 50, 120


def made(seed: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A log of two systems, and one table of labels: of people for the first queries, of a machine for all."""
    rng, log, labels = np.random.default_rng(seed), [], []
    for query in range(QUERIES):
        grades = rng.integers(0, 3, 5) * (rng.random(5) < 0.6)
        for system, noise in (("a", 1.5), ("b", 0.8)):
            order = np.argsort(rng.normal(0, noise, 5) - grades)
            log += [(system, f"q{query}", f"d{item}", rank) for rank, item in enumerate(order[:3], 1)]
        machine = np.where(rng.random(5) < 0.75, grades, rng.integers(0, 3, 5))
        people = [int(grade) if query < JUDGED else None for grade in grades]
        labels += [(f"q{query}", f"d{i}", people[i], int(machine[i]), query < JUDGED) for i in range(5)]
    shown = pd.DataFrame(log, columns=["experiment", "user", "item", "position"])
    judged = pd.DataFrame(labels, columns=["user", "item", "relevance", "llm", "drawn"])
    return shown, judged.astype({"relevance": "Int64"})


def evaluated(spark: SparkSession, log: pd.DataFrame, labels: pd.DataFrame, **more: Any) -> Any:
    asked: dict[str, Any] = {"judgement_columns": {"machine": "llm"}, "human_sample": "random", "baseline": "a"}
    tables = (spark.createDataFrame(each) for each in (log, labels))
    shown, judged = tables
    return evaluate(shown, METRICS, judged, **(asked | more))


def sorted_rows(table: Any, *keys: str) -> pd.DataFrame:
    return table.to_pandas().sort_values([*keys]).reset_index(drop=True)


@pytest.mark.both_engines
def test_each_value_is_that_of_one_pool_and_the_test_that_of_a_slow_loop(spark: SparkSession) -> None:
    log, labels = made()
    result = evaluated(spark, log, labels)
    users = sorted_rows(result.user_metrics, "experiment_id", "user_id")
    for column, prefix in (("relevance", ""), ("llm", "machine_")):
        own = labels[["user", "item"]].assign(relevance=labels[column])
        tables = (spark.createDataFrame(each) for each in (log, own[own["relevance"].notna()]))
        alone = sorted_rows(evaluate(*[next(tables), METRICS, next(tables)]).user_metrics, "experiment_id", "user_id")
        expected = alone.set_index(["experiment_id", "user_id"])[["ap_at_3", "ndcg_at_3"]]
        known = users["judged"] if not prefix else users["judged"].notna()
        ours = users[known].set_index(["experiment_id", "user_id"])[[f"{prefix}ap_at_3", f"{prefix}ndcg_at_3"]]
        assert ours.to_numpy().tolist() == expected.loc[ours.index].to_numpy().tolist()
    assert users.loc[~users["judged"], "ap_at_3"].isna().all() and users["judged"].sum() == 2 * JUDGED
    row = result.comparisons.to_pandas().set_index("metric").loc["ap@3"]
    sides = [users[users["experiment_id"] == name].set_index("user_id") for name in "ab"]
    h, f = (sides[1][name] - sides[0][name] for name in ("ap_at_3", "machine_ap_at_3"))
    judged = sides[0]["judged"]
    mean, squared, _ = slow_mean(h[judged].to_numpy(), f[judged].to_numpy(), f[~judged].to_numpy())
    assert (row["difference"], row["standard_error"]) == pytest.approx((mean, np.sqrt(squared)), rel=1e-9)
    assert (row["n_judged"], row["n_users"], row["mean_baseline_machine"]) == (
        JUDGED, QUERIES, pytest.approx(sides[0]["machine_ap_at_3"].mean(), rel=1e-12))  # fmt: skip
    means = result.experiment_metrics.to_pandas().set_index(["experiment_id", "metric"]).loc[("a", "ap@3")]
    assert means["mean"] == pytest.approx(row["mean_baseline"], rel=1e-12) and means["n_judged"] == JUDGED
    assert means["ci_low"] < means["mean"] < means["ci_high"]


def test_two_tables_a_column_of_drawn_queries_and_another_scale_give_the_same(spark: SparkSession) -> None:
    log, labels = made()
    expected = evaluated(spark, log, labels).comparisons.to_pandas()
    people = labels[labels["relevance"].notna()][["user", "item", "relevance"]]
    machine = spark.createDataFrame(labels[["user", "item"]].assign(grade=labels["llm"] * 10))
    apart = {"machine_judgements": machine, "machine_columns": {"relevance": "grade"}, "judgement_columns": {}}
    scale = {"machine_grades": {0: 0, 10: 1, 20: 2}}
    pd.testing.assert_frame_equal(evaluated(spark, log, people, **apart, **scale).comparisons.to_pandas(), expected)
    # Who was not drawn is not judged, whatever people say of them.
    more = labels.assign(relevance=labels["relevance"].fillna(1))
    drawn = evaluated(spark, log, more, human_sample={"column": "drawn"}).comparisons.to_pandas()
    pd.testing.assert_frame_equal(drawn, expected)
    # Who was drawn and has no label is judged in part, and not one of those who were not drawn.
    lost = labels.assign(relevance=labels["relevance"].where(labels["user"] > "q12"))
    rows = evaluated(spark, log, lost, human_sample={"column": "drawn"}).comparisons.to_pandas()
    gone = sum(f"q{i}" <= "q12" for i in range(JUDGED))
    assert set(rows["note"].str.partition(",")[0]) == {f"people judged {gone} of {JUDGED} users in part"}
    assert set(rows["n_judged"]) == {JUDGED} and rows["p_value"].isna().all()


@pytest.mark.both_engines
def test_a_system_whose_items_no_person_judged_has_no_verdict(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    log, labels = made()
    later = log[log["experiment"] == "b"].assign(experiment="c")
    later["item"] = later["item"].where(later["position"] > 1, "new")
    rated = labels[["user"]].drop_duplicates().assign(item="new", relevance=pd.NA, llm=1, drawn=False)
    labels = pd.concat([labels, rated.astype({"relevance": "Int64"})])
    result = evaluated(spark, pd.concat([log, later]), labels, unit="query")
    rows = result.comparisons.to_pandas().set_index("experiment_id")
    gap = f"people judged {JUDGED} of {JUDGED} queries in part, as where a system came later"
    said = "n_to_judge of user_metrics says how many items are to judge, and `unjudged` which"
    assert set(rows.loc["c", "note"]) == {f"{gap}; {said}"}
    gaps = result.user_metrics.to_pandas().groupby("experiment_id")["n_to_judge"].sum()
    assert gaps.to_dict() == {"a": 0, "b": 0, "c": JUDGED}
    assert rows.loc["c", "p_value"].isna().all() and rows.loc["b", "p_value"].notna().all()
    # The items are listed, of drawn queries alone; a query that was drawn may have no label at all.
    shown, drawn = pd.concat([log, later]), labels.loc[labels["drawn"], "user"]
    lost = labels.assign(relevance=labels["relevance"].where(labels["user"] != "q7"), drawn=labels["user"].isin(drawn))
    sample: dict[str, Any] = {"human_sample": {"column": "drawn"}}
    tables = (spark.createDataFrame(each) for each in (shown, lost))
    asked = {"baseline": "a", "judgement_columns": {"machine": "llm"}, **sample}
    items = unjudged(*tables, "dcg@3", **asked).to_judge.to_pandas()[["user_id", "item_id"]].itertuples(index=False)
    of_q7 = {("q7", item) for item in shown.loc[shown["user"] == "q7", "item"]}
    assert {*map(tuple, items)} == of_q7 | {(query, "new") for query in drawn}
    log_file, label_file = (str(tmp_path / f"{name}.parquet") for name in ("log", "labels"))
    shown.to_parquet(log_file)
    lost.to_parquet(label_file)
    config = {"source": {"path": log_file, "columns": {"experiment": "experiment"}}, "metrics": "dcg@3",
              "judgements": {"path": label_file, "columns": {"machine": "llm"}, **sample},
              "comparison": {"baseline": "a"}}  # fmt: skip
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    code, out, err = call("unjudged", "--config", tmp_path / "run.yaml", "--show", "to_judge", "--format", "json")
    assert code == 0 and {row["user_id"] for row in json.loads(out)} <= {*drawn}, err
    lost.assign(relevance=lost["relevance"].where(lost["relevance"] > 9)).to_parquet(label_file)
    assert "nobody has judged an item" in call("evaluate", "--config", tmp_path / "run.yaml", "-o", tmp_path / "out")[2]


@pytest.mark.both_engines
def test_lists_clusters_probabilities_and_all_pairs_come_from_the_log_to_the_rows(spark: SparkSession) -> None:
    log, labels = made()
    # Some queries were shown twice, the second time in another order; one or two queries are of one home.
    again = log[log["user"].str[1:].astype(int) % 3 == 0].assign(position=lambda rows: 4 - rows["position"], page="2")
    homes = {f"q{i}": f"h{3 * (i // 5) + (i % 5 + 1) // 2}" for i in range(QUERIES)}
    log = pd.concat([log.assign(page="1"), again]).assign(home=lambda rows: rows["user"].map(homes))
    chance = dict(zip(homes, np.random.default_rng(1).uniform(0.1, 0.9, QUERIES), strict=True))
    labels = labels.assign(chance=labels["user"].map(chance).where(labels["drawn"]).astype(str))
    sample = {"column": "drawn", "probability": "chance"}
    asked: dict[str, Any] = {"list": "page", "mean_over": "lists", "baseline": None, "pairs": "all"}
    result = evaluated(spark, log, labels, human_sample=sample, **asked)
    users = sorted_rows(result.user_metrics, "experiment_id", "user_id")
    a, b = (users[users["experiment_id"] == name].set_index("user_id") for name in "ab")
    drawn, lists, w = a["judged"].to_numpy(), a["n_lists"].to_numpy(float), 1 / a.loc[a["judged"]].index.map(chance)
    arms = [[arm[name].to_numpy() for name in ("ap_at_3", "machine_ap_at_3")] for arm in (a, b)]
    z = [(added(h[drawn], lists[drawn], w.to_numpy()), added(f, lists)) for h, f in arms]
    h, f = (theirs - ours for ours, theirs in zip(*z, strict=True))
    mean, squared = weighted_mean(h, f[drawn], f[~drawn], w.to_numpy())
    rows = result.comparisons.to_pandas().set_index("metric")
    numbers = rows.loc["ap@3", ["difference", "standard_error", "difference_human"]].tolist()
    assert numbers == pytest.approx([mean, np.sqrt(squared), np.average(h, weights=w)], rel=1e-9)
    assert set(rows["n_lists_baseline"]) == {lists.sum()}
    # Homes were drawn as a whole.
    rows = evaluated(spark, log, labels, cluster="home", list="page").comparisons.to_pandas().set_index("metric")
    of_home = [pd.DataFrame(np.transpose(arm)).groupby(a.index.map(homes)).agg(["mean", "size"]) for arm in arms]
    judged = of_home[0][0, "mean"].notna().to_numpy()
    z = [[added(arm[at, "mean"].to_numpy()[some], arm[at, "size"].to_numpy()[some])
          for at, some in ((0, judged), (1, judged | True))] for arm in of_home]  # fmt: skip
    h, f = (theirs - ours for ours, theirs in zip(*z, strict=True))
    mean, squared, _ = slow_mean(h, f[judged], f[~judged])
    row = rows.loc["ap@3"]
    assert (row["difference"], row["standard_error"]) == pytest.approx((mean, np.sqrt(squared)), rel=1e-9)
    assert (row["n_judged"], row["n_users"], row["n_members_baseline"]) == (30, 72, QUERIES)
    unknown = labels.assign(chance=labels["chance"].where(labels["user"] != "q7", "2"))
    with pytest.raises(InputError, match=r"1 of 50 users of [ab] that people were to judge have no probability"):
        evaluated(spark, log, unknown, human_sample=sample).comparisons.to_pandas()


@pytest.mark.both_engines
@pytest.mark.parametrize(("kind", "said"), [("values", "the machine rates them otherwise"),
                                            ("shown", "their lists have other lengths"),
                                            ("segments", "other segments have more of them")])  # fmt: skip
def test_a_sample_that_is_not_like_the_others_has_no_verdict(spark: SparkSession, kind: str, said: str) -> None:
    log, labels = made()
    number = log["user"].str[1:].astype(int)
    log["country"] = np.where(number % 2, "de", "fr")
    if kind == "values":
        labels["llm"] = np.where(labels["drawn"], labels["llm"], 0)
    if kind == "shown":
        log = log[(number < JUDGED) | (log["position"] < 3)]
    if kind == "segments":
        log["country"] = np.where(number % 10 < 1 + 8 * (number < JUDGED), "de", "fr")
    result = evaluated(spark, log, labels, segments=["country"])
    rows = result.comparisons.to_pandas()
    told = f"the users that people judged are not like the others: {said} (p < 0.001)"
    assert set(rows.loc[rows["segment"] == "all", "note"]) == {told} and rows["p_value"].isna().all()
    means = result.experiment_metrics.to_pandas()
    means = means[means["segment"] == "all"]
    assert (means[f"p_sample_{kind}"] < 0.001).all() and means["bias_machine"].notna().all()
    drawn = log.drop_duplicates(["experiment", "user"]).assign(drawn=lambda r: r["user"].isin(labels.dropna()["user"]))
    known = chi2_contingency(pd.crosstab(drawn["country"], drawn["drawn"]), correction=False).pvalue
    assert means["p_sample_segments"].tolist() == pytest.approx([known] * len(means), rel=1e-6)


@pytest.mark.both_engines
@pytest.mark.parametrize("apart", [False, True])
def test_a_label_of_the_machine_that_has_changed_is_named(spark: SparkSession, tmp_path: Path, apart: bool) -> None:
    """Of a query that people did not judge; the order of rows is none of the digest."""
    log, labels = made()
    log.to_parquet(tmp_path / "log.parquet")
    given = {"path": str(tmp_path / "labels.parquet"), "human_sample": "random"}
    both: dict[str, Any] = {"judgements": given | {"columns": {"machine": "llm"}}}
    if apart:
        both = {"judgements": given, "machine_judgements": {"path": given["path"], "columns": {"relevance": "llm"}}}
    settings = config(tmp_path / "log.parquet", tmp_path / "out", metrics=METRICS, comparison={"baseline": "a"}, **both)
    labels.to_parquet(given["path"])
    run(spark, settings)
    labels[::-1].to_parquet(given["path"])
    assert not verify(spark, settings.sink).other
    changed, added = labels.copy(), labels.iloc[[-1]].assign(item="another")
    changed.loc[len(labels) - 1, "llm"] += 1
    for other in (changed, pd.concat([labels, added]), labels[:-1]):
        other.to_parquet(given["path"])
        with pytest.raises(DifferenceError, match=r"^the machine judgements are not those on record; user_metrics: "):
            verify(spark, settings.sink)


def test_a_run_stores_what_compare_reads(spark: SparkSession, tmp_path: Path) -> None:
    log, labels = made()
    log.to_parquet(tmp_path / "log.parquet")
    labels.to_parquet(tmp_path / "labels.parquet")
    config = cfg.Config(
        source={"path": str(tmp_path / "log.parquet"), "columns": {"experiment": "experiment"}},
        judgements={"path": str(tmp_path / "labels.parquet"), "columns": {"machine": "llm"}, "human_sample": "random"},
        metrics=METRICS,
        comparison={"baseline": "a"},
        sink={"path": str(tmp_path / "out")},
        gates=[{"metric": "dcg@3", "max_drop": 0.5, "on": "bound"}],
        evaluation_date="2026-11-20",
    )
    done = run(spark, config)
    # What people did not judge counts as the machine judges it.
    assert not any("count as not relevant" in each for each in done.record["quality"]["warnings"])
    assert not any(name in done.record["quality"]["overall"] for name in ("no_relevant_rate", "unjudged_rate"))
    checks = {(row["experiment_id"], row["name"]): row["sentence"] for row in done.checks.collect()}
    assert not any(name == "users_without_relevant" for _, name in checks)
    share = labels.dropna()["user"].nunique() / labels["user"].nunique()
    for name in ("a", "b"):
        assert checks[name, "judge_agreement"].startswith("The machine agrees with people on ")
        assert (
            checks[name, "judged_rate"]
            == f"People judged {share:.1%} of the lists, and a machine judged all of them; the ideal lists of AP and "
            "NDCG are those of the judged items, the first ones of all systems"
        )
        alike = checks[name, "sample_values"]
        assert re.fullmatch(rf"{name}: users that people judged and the others are alike in the machine's \w+@3 "
                            r"\(p = 0\.\d+\), which proves nothing", alike)  # fmt: skip
        assert {checks[name, f"sample_{kind}"].rpartition(", ")[2] for kind in ("values", "shown")} == {
            "which proves nothing"
        }
        assert checks[name, "sample_segments"].endswith(
            "not known whether users that people judged and the others are alike in segments"
        )
    stored, means = (read(spark, tmp_path / "out" / name) for name in ("comparisons", "experiment_metrics"))
    direct = evaluated(spark, log, labels).comparisons.to_pandas()
    (gate,) = (row["observed"] for row in done.checks.collect() if row["name"] == "max_drop")
    assert gate == -direct.set_index("metric").loc["dcg@3", "ci_low"]
    again = compare(read(spark, tmp_path / "out" / "user_metrics"), baseline="a").to_pandas()
    for table in (stored.to_pandas().sort_values("metric"), again):
        for name in ("difference", "standard_error", "p_value", "lambda", "n_judged"):
            assert table[name].tolist() == direct[name].tolist(), name
    assert means.to_pandas()["mean_machine"].notna().all()
    listed = tables()["experiment_metrics"]
    assert {*means.columns} == {name for name in listed if not name.startswith(("bootstrap", "percentile"))}
    for wrong in ({"wilcoxon": True}, {"dates": ("2026-11-20", "2026-11-20")}):
        said = f"{next(iter(wrong))} is given, and a machine has judged the users; allowed"
        with pytest.raises(ConfigError, match=said):
            compare(read(spark, tmp_path / "out" / "user_metrics"), baseline="a", **wrong)


@pytest.mark.both_engines
def test_the_check_says_how_the_machine_agrees_and_refuses_labels_that_cannot_be_compared(spark: SparkSession) -> None:
    log, labels = made()
    known = labels[labels["relevance"].notna()]
    same = (known["relevance"] == known["llm"]).mean()
    text = next(row.sentence for row in evaluated(spark, log, labels).check().checks if row.name == "judge_agreement")
    kappa = cohens_kappa(pd.crosstab(known["relevance"], known["llm"]).to_numpy(), return_results=False)
    assert text.startswith(f"The machine agrees with people on {same:.1%} of {len(known):,} items (kappa {kappa:.2f}, ")
    hidden = labels.assign(llm=labels["llm"].where(labels.index != 1).astype("Int64"))
    for wrong, says in (
        (hidden, "1 of 250 items that people judged have no label of the machine; allowed: both labels"),
        (labels.assign(llm=labels["llm"] + 1), "the highest grade of people is 2, and that of the machine on the same "
         "items 3; allowed: one scale, or judgements.machine_grades"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(says)):
            evaluated(spark, log, wrong).check()
    sample = {"column": "drawn", "prompt": "shaped"}
    for shaped, n in ((["q7", "q8", "q99"], 2), (["q99"], 0)):
        result = evaluated(spark, log, labels.assign(shaped=labels["user"].isin(shaped)), human_sample=sample)
        said = f"was made with {n} users that people judged (human_sample.prompt: shaped); allowed: others"
        with pytest.raises(InputError, match=re.escape(said)) if n else nullcontext():
            result.check()


@pytest.mark.both_engines
def test_labels_are_planned_with_what_the_pilot_says(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    log, labels = made()
    users = evaluated(spark, log, labels).user_metrics
    (plan,) = plan_labels(users, "ndcg@3", "a", "10%", 1_000, power=0.9)
    rows = users.to_pandas().sort_values("user_id").set_index("experiment_id")
    h, f = (rows.loc["b", n].to_numpy() - rows.loc["a", n].to_numpy() for n in ("ndcg_at_3", "machine_ndcg_at_3"))
    judged = ~np.isnan(h)
    rho = np.corrcoef(h[judged], f[judged])[0, 1]
    assert plan.correlations == pytest.approx([rho], rel=1e-9) and plan.n_judged == JUDGED and rho > 1 / np.sqrt(48)
    (side,) = plan.sides
    variances = h[judged].var(ddof=1), f.var(ddof=1), rho
    assert (side.people, side.machine, side.rho) == pytest.approx(variances, rel=1e-9) and side.size == 1_000
    alone = 1 + next(
        n for n in range(19, 9_999) if TTestPower().power(plan.effect / h[judged].std(ddof=1), n + 1, 0.05) >= 0.9
    )
    needed, human = plan.labels_needed
    assert human == pytest.approx(alone, abs=1) and 20 < needed < human
    found = f"is found where people judge {needed} of 1,000 users that the machine judges; without it, they have to"
    assert f"{found} judge {human}" in plan.answer
    assert f"correlate with theirs by {rho:.2f} (" in plan.basis and "in their differences, so it helps" in plan.basis
    folder = tmp_path / "out"
    stored = users if hasattr(users, "write") else spark.createDataFrame(users.to_pandas())
    stored.withColumn("evaluation_date", F.lit("2026-11-20")).write.partitionBy(
        "experiment_id", "evaluation_date"
    ).parquet(str(folder / "user_metrics"))
    command = ("plan", "--human-labels", "--input", folder, "--metric", "ndcg@3", "--effect", "10%", "--users", 1_000)
    code, out, err = call(*command, "--experiment", "a", "--set", "power=0.9", "--format", "json")
    assert code == 0 and json.loads(out) == [json.loads(json.dumps(plan.as_dict()))] and plan.answer in err
    code, out, _ = call(*command, "--experiment", "a", "--set", "power=0.9")
    last = plan.rows[-1]
    assert code == 0 and "without the machine" in out and f"{last['smallest_effect']:#.3g}" in out
    code, _, err = call(*command)
    assert code == 2 and err.startswith("rankmetrics: --human-labels is given without --experiment, or with what is")


def test_a_pilot_that_says_nothing_is_refused(spark: SparkSession) -> None:
    log, labels = made()
    users = evaluated(spark, log, labels).user_metrics.to_pandas()
    few = users.assign(ndcg_at_3=users["ndcg_at_3"].where(users["user_id"] < "q15"))
    same = users.assign(ndcg_at_3=users["ndcg_at_3"].where(users["ndcg_at_3"].isna(), 0.5))
    for table, says in (
        (few, "the pilot cannot be planned with: people judged 7 users, and a verdict needs 20; allowed: one that has"),
        (same, "the pilot cannot be planned with: people's values do not differ; allowed: one that has a verdict"),
        (users.drop(columns="machine_ndcg_at_3"), "user_metrics has no ndcg@3 under the labels of a machine; allowed"),
    ):
        with pytest.raises(InputError, match=says):
            plan_labels(spark.createDataFrame(table), "ndcg@3", "a")
    noise = np.random.default_rng(0).normal(0, 1, len(users))
    (plan,) = plan_labels(spark.createDataFrame(users.assign(machine_ndcg_at_3=noise)), "ndcg@3", "a", 0.001)
    assert plan.basis.count("does not help, and labels of people count alone") == 1 and plan.sides[0].rho == 0
    assert "is not found even where people judge all 120 users that the machine judges" in plan.answer


@pytest.mark.slow
@pytest.mark.parametrize("arms", [1, 2], ids=["paired", "independent"])
def test_the_rows_of_100_judges_are_those_of_the_simulation(spark: SparkSession, arms: int) -> None:
    rng, draws, users, known = np.random.default_rng(8), 4, [], {}
    for j, (n, size, *rest) in enumerate(profiles()):
        sides = drawn_sides(rng, (draws, n + size), arms, *rest)
        each = [many_means(h, f, n) for h, f in sides]
        sums = np.sum([(mean * (1 - 2 * side), *error) for side, (mean, *error) in enumerate(each)], axis=0)
        known |= {f"draw={j}.{i}": (-sums[0, i] if arms == 2 else sums[0, i], sums[1:, i].sum()) for i in range(draws)}
        for name, (h, f) in zip("ab", sides if arms == 2 else [[np.zeros_like(sides[0][0])] * 2, *sides], strict=True):
            h = np.where(np.arange(n + size) < n, h, np.nan)
            ids = [f"{name * (arms - 1)}{j}.{i}" for i in range(h.size)]
            draw = np.repeat([f"{j}.{i}" for i in range(draws)], n + size)
            of = {"user_id": ids, "draw": draw, "n_relevant": 1, "ap_at_10": h.ravel(), "machine_ap_at_10": f.ravel()}
            # Of all users together, each judge's are drawn with chances of their own.
            users.append(pd.DataFrame({"experiment_id": name, "judged_probability": n / (n + size), **of}))
    table = spark.createDataFrame(pd.concat(users))
    rows = compare(table, segments="draw", baseline="a", correction="none").to_pandas().set_index("segment")
    rows = rows.drop("all").dropna(subset=["p_value"])
    expected = np.array([known[name] for name in rows.index])
    assert rows["difference"].tolist() == pytest.approx(expected[:, 0], rel=1e-9, abs=1e-12)
    assert rows["standard_error"].tolist() == pytest.approx(np.sqrt(expected[:, 1]), rel=1e-9)
    # Of 400, those with a sample that is unlike the others have no test.
    assert len(rows) > 390 and (rows["p_value"] < 0.05).mean() < 0.055 + 3 * np.sqrt(0.055 * 0.945 / len(rows))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paired", "independent", "lists", "clusters", "all pairs", "margin", "these_queries"])
def test_a_judge_that_overrates_a_system_calls_no_winner(spark: SparkSession, how: str) -> None:
    paired, several = how != "independent", how in ("lists", "clusters")
    draws, size, rng, lost = 400, 250, np.random.default_rng(9), 0.02 * (how == "margin")
    n, house = (150, np.arange(size) // 3) if how == "clusters" else (50, np.arange(size))
    base, users, truth = rng.beta(2, 3, (draws, size))[:, house], [], np.zeros(draws)
    lists = rng.integers(1, 5, base.size) if several else 1
    for system, bias in (("a", 0.0), ("b", 0.06), ("c", -0.06))[: 3 if how == "all pairs" else 2]:
        h = (base if paired else rng.beta(2, 3, base.shape)) + rng.normal(0, 0.1, base.shape)[:, house]
        h -= lost * (system == "b")
        f = h + bias + rng.normal(0, 0.05, h.shape)
        truth += (h.mean(1) if system == "b" else -h.mean(1)) * (how == "these_queries")
        h[:, n:] = np.nan
        names = [f"{'' if paired else system}{i}" for i in range(draws * size)]
        columns = {"user_id": names, "draw": np.repeat(np.arange(draws), size), "n_relevant": 1, "n_lists": lists}
        columns["home"] = (np.arange(draws)[:, None] * size + house).ravel().astype(str)
        users.append(
            pd.DataFrame({"experiment_id": system, **columns, "ap_at_10": h.ravel(), "machine_ap_at_10": f.ravel()})
        )
    asked: dict[str, Any] = {"pairs": "all"} if how == "all pairs" else {"baseline": "a"}
    asked |= {"mean_over": "lists"} if several else {}
    asked |= {"margin": {"margin": {"ap@10": 0.02}}, "clusters": {"cluster": "home"},
              "these_queries": {"target": how}}.get(how, {})  # fmt: skip
    rows = compare(spark.createDataFrame(pd.concat(users)), segments="draw", correction="none", **asked).to_pandas()
    rows = rows[rows["segment"] != "all"]
    assert (rows["p_value_machine"] < 0.05).mean() > (0.9 if paired else 0.6)
    at = truth[rows["segment"].str.removeprefix("draw=").astype(int)]
    level, wrong = 0.05, ((rows["ci_low"] > at) | (rows["ci_high"] < at)).mean()
    if how == "margin":
        # At the edge of the margin, it is called no worse as rarely as one side of an interval misses.
        level, wrong = 0.025, (rows["p_no_worse"] < 0.025).mean()
    # Three standard errors of a share of 400, as if of three pairs, too.
    assert wrong < level + 3 * np.sqrt(level * (1 - level) / draws) and rows["p_value"].notna().mean() > 0.98
    assert (rows["standard_error"] / rows["standard_error_human"]).mean() < 0.8
    assert how != "clusters" or set(rows["n_judged"]) == {50}
