"""What all studies of a log promise alike: a sentence for a mistake, ranks from 0, the same bits in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from rankmetrics_spark import changed, coec_judgements, exposure, interleaving, off_policy, propensities, unjudged
from rankmetrics_spark.errors import InputError
from tests.helpers.logs import exact
from tests.helpers.messages import messages, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "experiment_id string, user_id string, item_id string, position int, relevance int, team string, "
    "propensity double, target double"
)
TRUTH = [{"user_id": f"u{user:02}", "item_id": "a", "relevance": 1} for user in range(60)]
BY_RANK = [{"rank": rank, "propensity": 1 / rank} for rank in (1, 2, 3)]


def study(of: Callable[..., DataFrame], **usual: Any) -> Callable[..., DataFrame]:
    """A study with its usual arguments, which others replace."""
    return lambda log, **more: of(log, **{**usual, **more})


STUDIES = {
    "changed": study(changed, baseline="control", k=3),
    "exposure": study(exposure, baseline="control", k=3),
    "unjudged": study(
        lambda log, **more: unjudged(log, more.pop("judgements"), **more).users, judgements=TRUTH,
        metrics="p@3",
    ),
    "coec_judgements": study(coec_judgements, min_impressions=2),
    "propensities": study(propensities, key=["user_id", "item_id"], replicates=99, k=3),
    "off_policy": study(off_policy, metrics=["p@3", "ndcg@3"], target="target", clip=1.5),
    "off_policy by rank": study(off_policy, metrics="dcg@3", propensities=BY_RANK),
    "interleaving": study(interleaving, team="team", list="experiment_id"),
}  # fmt: skip


def rows() -> list[tuple[Any, ...]]:
    """60 users with a list in each of two experiments, which rank other items first; a repeated rank and no user."""
    rng, result = random.Random(3), []
    for user in range(60):
        for arm, items in (("control", "abc"), ("new", "bca")):
            for rank, item in enumerate(items, start=1):
                row = (arm, f"u{user:02}", item, rank, int(rng.random() < 0.5), rng.choice("xy"), 0.5, rng.random())
                result.append(row)
    return [*result, ("new", "u00", "z", 3, 1, "x", 0.5, 0.5), ("new", None, "z", 3, 1, "y", 0.5, 0.5)]


@pytest.mark.parametrize(("given", "message"), messages("studies"), ids=lambda value: str(value)[:70])
def test_a_wrong_argument_is_one_sentence_before_any_job(
    spark: SparkSession, given: dict[str, dict[str, Any]], message: str
) -> None:
    ((name, wrong),) = given.items()
    kind, _, words = message.partition(": ")
    # It is raised by the call: no row has to be computed.
    error = refusal(lambda: STUDIES[name](spark.createDataFrame([], SCHEMA), **wrong))
    assert type(error).__name__ == kind and str(error).startswith(words), error


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.both_engines] * (name == "coec_judgements")) for name in STUDIES]
)
def test_ranks_from_0_are_refused_and_first_rank_reads_them(spark: SparkSession, name: str) -> None:
    log = spark.createDataFrame(rows(), SCHEMA)
    from_0 = log.withColumn("position", F.col("position") - 1)
    error = refusal(lambda: STUDIES[name](from_0).collect())
    assert type(error) is InputError and str(error) == (
        "120 rows have a rank below 1, and there are 120 lists: the ranks seem to start at 0; set first_rank to 0"
    )
    read, plain = STUDIES[name](from_0, first_rank=0), STUDIES[name](log)
    assert exact(read.collect()) == exact(plain.collect()) != []


@pytest.mark.parametrize("name", STUDIES)
def test_the_order_of_the_rows_and_the_partitions_change_no_bit(spark: SparkSession, name: str) -> None:
    shuffled = rows()
    expected = STUDIES[name](spark.createDataFrame(shuffled, SCHEMA).coalesce(1))
    random.Random(1).shuffle(shuffled)
    other = STUDIES[name](spark.createDataFrame(shuffled, SCHEMA).repartition(5, "item_id", "relevance"))
    assert exact(other.collect()) == exact(expected.collect()) != []
