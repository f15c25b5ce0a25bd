"""A channel delivers in order, never more than its credit allows, and forgets only what was taken."""

# mypy: disable-error-code="arg-type, list-item, union-attr"

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.core.driving import ME, OTHER, THIRD, route
from tests.unit.core.pipes import LEFT, bundle, rows_of
from tidemill.core.flow import BUNDLE_WEIGHT, WINDOW, InChannel, OutChannel, weight_of
from tidemill.core.messages import ChannelId, Receipt


def channel(*, owner=OTHER, epoch=5, back_edge=False, in_cycle=False):
    to = route(2, "count", owner, epoch=epoch)
    return OutChannel(1, 4, to, back_edge=back_edge, in_cycle=in_cycle)


def item(n, at=None):
    return bundle(("a", n, n if at is None else at), first=n + 1)


def numbers(items):
    return [each if isinstance(each, bytes) else rows_of(each)[0][1] for each in items]


def sent(out):
    return [(number, numbers([each])[0]) for number, each in out.sendable()]


def receipt(out, taken=0, worked=0, report=0):
    out.receipt(Receipt(out.id, taken, worked, report))


BIG = bundle(*(("a", n, n) for n in range(WINDOW // 2)))


def test_it_is_named_by_both_ends_and_their_epochs():
    assert channel().id == ChannelId(1, 4, 2, 5)


def test_what_is_pushed_leaves_in_order_and_once():
    out = channel()
    for n in range(3):
        out.push(item(n))
    assert sent(out) == [(1, 0), (2, 1), (3, 2)]
    assert sent(out) == []
    out.push(item(3))
    assert sent(out) == [(4, 3)]


def test_a_marker_keeps_its_place_among_the_bundles():
    out = channel()
    for each in (item(0), b"marker", item(1)):
        out.push(each)
    assert sent(out) == [(1, 0), (2, b"marker"), (3, 1)]


def test_without_an_owner_everything_waits():
    out = channel(owner=None)
    out.push(item(0))
    assert sent(out) == []
    assert out.backlogged
    out.reopen(route(2, "count", THIRD, epoch=6))
    assert sent(out) == [(1, 0)]
    assert (out.owner, out.id.to_epoch) == (THIRD, 6)


def test_what_was_taken_is_forgotten_and_what_was_only_worked_off_is_not():
    out = channel()
    for n in range(3):
        out.push(item(n))
    sent(out)
    receipt(out, taken=0, worked=10_000)
    assert numbers(out.untaken()) == [0, 1, 2]
    receipt(out, taken=2, worked=0)
    assert numbers(out.untaken()) == [2]
    assert not out.drained
    receipt(out, taken=3)
    assert out.drained


def test_an_older_receipt_changes_nothing():
    out = channel()
    for n in range(3):
        out.push(item(n))
    sent(out)
    receipt(out, taken=2, worked=50)
    receipt(out, taken=1, worked=20)
    assert numbers(out.untaken()) == [2]
    assert out._worked == 50


def test_opened_again_it_sends_what_was_not_taken_in_order_and_numbers_anew():
    out = channel()
    for n in range(5):
        out.push(item(n))
        if n == 2:
            sent(out)
    receipt(out, taken=1)
    out.reopen(route(2, "count", THIRD, epoch=6))
    assert sent(out) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    out.reopen(route(2, "count", None, epoch=7))
    assert sent(out) == []
    out.reopen(route(2, "count", THIRD, epoch=8))
    assert [n for _, n in sent(out)] == [1, 2, 3, 4]


def test_credit_bounds_what_is_under_way():
    out = channel()
    for _ in range(4):
        out.push(BIG)
    assert len(sent(out)) == 2
    assert out.backlogged
    receipt(out, taken=2)
    assert sent(out) == [], "taken is not worked off"
    receipt(out, taken=2, worked=weight_of(BIG))
    assert len(sent(out)) == 1
    receipt(out, taken=3, worked=3 * weight_of(BIG))
    assert len(sent(out)) == 1
    assert not out.backlogged


def test_many_tiny_bundles_are_bounded_too():
    out = channel()
    for n in range(WINDOW // BUNDLE_WEIGHT + 100):
        out.push(item(n))
    assert len(sent(out)) <= WINDOW // BUNDLE_WEIGHT + 1


def test_markers_weigh_something_and_bundles_their_records():
    assert weight_of(b"marker") == BUNDLE_WEIGHT
    assert weight_of(item(0)) == BUNDLE_WEIGHT + 1


def test_an_edge_that_closes_a_cycle_needs_no_credit():
    out = channel(back_edge=True)
    for _ in range(10):
        out.push(BIG)
    assert len(sent(out)) == 10


def test_opened_again_it_has_its_credit_again():
    out = channel()
    for _ in range(3):
        out.push(BIG)
    sent(out)
    out.reopen(route(2, "count", THIRD, epoch=6))
    assert len(sent(out)) == 2


# What it answers for in time


def test_it_answers_for_the_oldest_that_was_not_taken():
    out = channel()
    assert out.oldest() is None
    for n, at in enumerate((30, 10, 20)):
        out.push(item(n, at))
    assert out.oldest() == 10
    sent(out)
    assert out.oldest() == 10
    receipt(out, taken=2)
    assert out.oldest() == 20
    out.push(b"marker")
    receipt(out, taken=3)
    assert out.oldest() is None


def test_inside_a_cycle_it_answers_until_the_receiver_s_report_is_accepted():
    out = channel(in_cycle=True)
    out.push(item(0, 10))
    out.push(item(1, 20))
    sent(out)
    receipt(out, taken=1, report=7)
    assert out.oldest() == 10
    receipt(out, taken=2, report=8)
    assert out.oldest() == 10
    out.accepted(5, 6)
    assert out.oldest() == 10, "that report may have been made before the record came"
    out.accepted(5, 7)
    assert out.oldest() == 20
    assert out.drained, "it was taken all the same: nothing of it is sent again"
    out.accepted(5, 9)
    assert out.oldest() is None


def test_a_report_under_an_older_epoch_says_nothing_and_one_under_a_newer_all():
    out = channel(in_cycle=True)
    out.push(item(0, 10))
    sent(out)
    receipt(out, taken=1, report=3)
    out.accepted(4, 1_000)
    assert out.oldest() == 10
    out.reopen(route(2, "count", THIRD, epoch=6))
    assert out.oldest() == 10, "its new owner has not answered for it yet"
    out.accepted(6, 1)
    assert out.oldest() is None


def test_whoever_succeeds_the_receiver_is_waited_for():
    """A split: the child's channel answers for what the parent took, until the child has reported."""
    parent = channel(in_cycle=True)
    parent.push(item(0, 10))
    sent(parent)
    receipt(parent, taken=1, report=3)
    heir = OutChannel(1, 4, route(20, "count", None, range=LEFT, epoch=0), back_edge=False, in_cycle=True)
    heir.inherit_awaiting(parent)
    assert heir.oldest() == 10
    heir.accepted(5, 1_000)
    assert heir.oldest() == 10, "that was the parent's epoch"
    heir.reopen(route(20, "count", OTHER, range=LEFT, epoch=6))
    heir.accepted(6, 1)
    assert heir.oldest() is None


def test_outside_a_cycle_what_was_taken_is_not_waited_for():
    out = channel(in_cycle=False)
    out.push(item(0, 10))
    sent(out)
    receipt(out, taken=1, report=3)
    assert out.oldest() is None


def test_the_receiving_end_says_how_far_it_is():
    came = InChannel(ChannelId(1, 4, 2, 5), ME, back_edge=False)
    came.taken, came.worked, came.owed = 3, 70, True
    assert came.receipt(9) == Receipt(ChannelId(1, 4, 2, 5), 3, 70, 9)
    assert not came.owed


class Channel(RuleBasedStateMachine):
    """A sender, and receivers that take over from each other and know what was known before them.

    Each receiver takes what comes in order; a new one begins where responsibility ended. Whatever happens, everything
    arrives, in order, and what is under way never exceeds the window by more than one bundle.
    """

    @initialize()
    def begin(self):
        self.out = channel(epoch=1)
        self.epoch = 1
        self.pushed = 0
        self.wire: list = []
        self.came: list = []  # by the receiver as it is
        self.taken: list = []  # for good
        self.worked = 0
        self.number = 0

    @rule(rows=st.sampled_from([1, 3, WINDOW // 3]))
    def push(self, rows):
        self.out.push(bundle(*[("a", self.pushed, 0)] * rows, first=1 + WINDOW * self.pushed))
        self.pushed += 1

    @rule()
    def send(self):
        self.wire += self.out.sendable()

    @rule(count=st.integers(1, 3))
    def arrive(self, count):
        for number, each in self.wire[:count]:
            assert number == self.number + 1
            self.number = number
            self.came.append(each)
        del self.wire[:count]

    @rule(count=st.integers(0, 3))
    def work_and_take(self, count):
        taken = min(count, len(self.came))
        for each in self.came[:taken]:
            self.taken.append(rows_of(each)[0][1])
            self.worked += weight_of(each)
        del self.came[:taken]
        receipt(self.out, taken=self.number - len(self.came), worked=self.worked)

    @rule()
    def lose_the_receiver(self):
        self.epoch += 1
        self.out.reopen(route(2, "count", THIRD, epoch=self.epoch))
        self.wire, self.came = [], []
        self.worked = self.number = 0

    @invariant()
    def what_is_under_way_is_bounded(self):
        if hasattr(self, "out"):
            under_way = sum(weight_of(each) for _, each in self.wire) + sum(map(weight_of, self.came))
            assert under_way < WINDOW + WINDOW // 3 + BUNDLE_WEIGHT

    @invariant()
    def what_was_taken_came_in_order_and_once(self):
        if hasattr(self, "out"):
            assert self.taken == list(range(len(self.taken)))

    def teardown(self):
        if not hasattr(self, "out"):
            return
        for _ in range(3 * self.pushed + 3):
            self.send()
            self.arrive(3)
            self.work_and_take(3)
        assert self.taken == list(range(self.pushed))
        assert self.out.drained


TestChannel = Channel.TestCase


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 6))
def test_opening_again_any_number_of_times_changes_no_order(pushed, taken):
    out = channel()
    for n in pushed:
        out.push(item(n))
    sent(out)
    receipt(out, taken=min(taken, len(pushed)))
    for epoch in (6, 7):
        out.reopen(route(2, "count", OTHER, epoch=epoch))
    assert numbers(out.untaken()) == pushed[min(taken, len(pushed)) :]
    assert [n for _, n in sent(out)] == pushed[min(taken, len(pushed)) :]


def test_a_marker_of_the_receiver_s_is_not_waited_for():
    out = channel(in_cycle=True)
    out.push(b"marker")
    sent(out)
    receipt(out, taken=1, report=3)
    assert out.oldest() is None
    with pytest.raises(StopIteration):
        next(out.sendable())
