"""The search for repeated items never misses a repeat, and its rate of false alarms is the stated one."""

from __future__ import annotations

import numpy as np
import pytest

from rankmetrics_spark.layouts import WORDS, item_words, no_item_repeats


def bits(hashes: np.ndarray) -> np.ndarray:
    """(lists, words) number of different bits that the items of a list set in each word; each item sets one bit."""
    found = np.zeros((len(hashes), WORDS), np.int64)
    for word in range(WORDS):
        masks = np.bitwise_or.reduce(np.uint64(1) << hashes[:, :, word].astype(np.uint64), axis=1)
        found[:, word] = np.unpackbits(masks.view(np.uint8).reshape(len(hashes), 8), axis=1).sum(axis=1)
    return found


@pytest.mark.parametrize("n", [10, 12, 16])
def test_lists_without_a_repeat_are_flagged_as_often_as_stated(n: int) -> None:
    """Lists with fewer items are not tested: their stated rate is too low to measure."""
    random, lists = np.random.default_rng(n), 20_000
    # Six independent bits of a hash per word, as the SQL takes them.
    hashes = random.integers(0, 64, (lists, n, WORDS))
    flagged = (bits(hashes) < n).all(axis=1).mean()
    stated = (1 - np.prod((64 - np.arange(n)) / 64)) ** WORDS
    assert abs(flagged - stated) <= 5 * np.sqrt(stated * (1 - stated) / lists) + 1 / lists


def test_with_a_repeat_every_word_has_fewer_bits_than_items() -> None:
    random = np.random.default_rng(1)
    hashes = random.integers(0, 64, (5_000, 6, WORDS))
    hashes[:, 5] = hashes[:, 2]
    assert (bits(hashes) < 6).all()


def test_the_sql_has_one_aggregate_per_word_and_one_condition_over_them() -> None:
    words = item_words("relevance > 0")
    assert len(words) == WORDS + 1
    assert all(name in no_item_repeats() for name in words)
