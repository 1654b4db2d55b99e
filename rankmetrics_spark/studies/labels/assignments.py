"""Values of lists under every assignment of labels, for users with few unjudged items.

Differences of AP, NDCG, recall and F1 have no short formula: a label changes the divisor of both lists. Each assignment
is written as a user of its own whose items are all judged, and the kernels compute the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankmetrics_spark.metrics import Floats, Ints, Metric, spans
from rankmetrics_spark.studies.labels.kernels import Flags, Labels, Shown, Top, bounds

MOST_ASSIGNMENTS = 256
"""Of a user; with more, a difference has an enclosure. 8 items have as many if labels are 0 or 1."""
_ENTRIES = 2**20
"""Entries of all assignments that are held at once."""


@dataclass(frozen=True)
class Assigned:
    """Values of lists under each assignment of labels.

    Attributes:
        user: (n,) user of each list.
        number: (u,) assignments of each user; 0 if there are too many.
        start: (n,) place in ``values`` of each list under the first assignment.
        step: (n,) from one assignment to the next.
        values: The values of all lists.
    """

    user: Ints
    number: Ints
    start: Ints
    step: Ints
    values: Floats

    def extremes(self, base: Ints, other: Ints) -> tuple[Floats, Floats]:
        """(p,) lowest and highest value of ``other`` less that of ``base``, of lists of users with assignments."""
        pair, at = spans(np.zeros(len(base), np.int64), self.number[self.user[base]])
        differences = (
            self.values[self.start[other][pair] + at * self.step[other][pair]]
            - self.values[self.start[base][pair] + at * self.step[base][pair]]
        )
        starts = np.flatnonzero(np.diff(pair, prepend=-1))
        if not len(starts):
            return np.zeros(0), np.zeros(0)
        return np.minimum.reduceat(differences, starts), np.maximum.reduceat(differences, starts)


def assigned(shown: Shown, metric: Metric, labels: Labels) -> Assigned:
    """Return the values of the lists of every user with up to ``MOST_ASSIGNMENTS`` assignments."""
    users = _Users(Top(shown, metric.cut, labels))
    start, values, filled = np.zeros(len(shown.user), np.int64), [np.zeros(0)], 0
    for chunk in users.chunks():
        judged, lists, is_first = users.copies(chunk)
        values.append(bounds(judged, metric, labels).value)
        start[lists[is_first]] = filled + np.flatnonzero(is_first)
        filled += len(lists)
    return Assigned(shown.user, users.number, start, users.n_lists[shown.user], np.concatenate(values))


class _Users:
    """Users with lists down to a cut-off, and the assignments of labels to their unjudged items."""

    def __init__(self, top: Top) -> None:
        self.top, self.grades, n_users = top, top.labels.max_grade + 1, top.n_users
        self.n_lists = np.bincount(top.shown.user, minlength=n_users)
        self.first_list = np.cumsum(self.n_lists) - self.n_lists
        self.n_items = top.of_user[self.first_list]
        most = int(np.log(MOST_ASSIGNMENTS + 0.5) / np.log(self.grades))
        self.number = np.where(self.n_items <= most, self.grades ** np.minimum(self.n_items, most), 0)
        # Which of its user's unjudged items each entry is: the digit of the assignment that is its label.
        shown_items, is_open = top.shown.item[top.at], top.unjudged
        items, first, inverse = np.unique(shown_items[is_open], return_index=True, return_inverse=True)
        owner = top.shown.user[top.list[is_open][first]]
        self.digit = np.full(len(top.at), -1)
        self.digit[is_open] = (np.arange(len(items)) - np.searchsorted(owner, owner))[inverse]

    def chunks(self) -> Iterator[Ints]:
        """Users with assignments, so few at once that all copies fit into memory."""
        users = np.flatnonzero(self.number)
        entries = np.bincount(self.top.shown.user[self.top.list], minlength=len(self.number))
        cost = (self.number * (entries + self.n_items + self.n_lists))[users]
        if len(users):
            yield from np.split(users, np.flatnonzero(np.diff(np.cumsum(cost) // _ENTRIES)) + 1)

    def copies(self, users: Ints) -> tuple[Shown, Ints, Flags]:
        """A copy of each user for each assignment, each item judged; of its lists, whose they are, and if the first."""
        top, shown = self.top, self.top.shown
        at, assignment = spans(np.zeros(len(users), np.int64), self.number[users])
        user = users[at]
        copy, lists = spans(self.first_list[user], self.n_lists[user])
        ends = np.searchsorted(top.list, np.arange(len(shown.user) + 1))
        of_list, entries = spans(ends[lists], np.diff(ends)[lists])
        place = self.digit[entries]
        label = assignment[copy[of_list]] // self.grades ** np.maximum(place, 0) % self.grades
        grade = np.where(place >= 0, label, top.grade[entries])
        ends = np.searchsorted(shown.pool_user, np.arange(len(self.number) + 1))
        pool_copy, pool = spans(ends[user], np.diff(ends)[user])
        label_copy, place = spans(np.zeros(len(user), np.int64), self.n_items[user])
        label = assignment[label_copy] // self.grades**place % self.grades
        pool_user = np.concatenate([pool_copy, label_copy])
        order = np.argsort(pool_user, kind="stable")
        pool_grade = np.concatenate([shown.pool_grade[pool], label])[order]
        item = np.arange(len(entries))
        judged = Shown(copy, of_list, top.rank[entries], grade, item, pool_user[order], pool_grade)
        return judged, lists, assignment[copy] == 0
