"""Timers fire in order of their times, those of one time in the order in which they were set, each once."""

# mypy: disable-error-code="arg-type"

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.core.keys import NAN
from tidemill.core.timers import NOBODY, Timers


def fired(timers, until):
    found = []
    while timers.due_key(until) is not NOBODY:
        found.append(tuple(timers.pop()))
    return found


def test_they_fire_in_order_of_time_whatever_the_order_of_setting():
    timers = Timers()
    for key, at in (("a", 30), ("b", 10), ("c", 20)):
        timers.set(key, "t", at)
    assert timers.first() == 10
    assert fired(timers, 20) == [("b", "t", 10), ("c", "t", 20)]
    assert fired(timers, 20) == []
    assert fired(timers, 30) == [("a", "t", 30)]
    assert timers.first() is None


def test_those_of_one_time_fire_in_the_order_of_setting():
    timers = Timers()
    for key in ("b", "a", None, NAN, ("x", 1), 3):  # keys that can't be compared
        timers.set(key, "t", 10)
    assert [key for key, _, _ in fired(timers, 10)] == ["b", "a", None, NAN, ("x", 1), 3]


def test_setting_it_again_moves_it():
    timers = Timers()
    timers.set("a", "t", 10)
    timers.set("a", "t", 30)
    assert fired(timers, 20) == []
    timers.set("a", "t", 5)
    assert fired(timers, 100) == [("a", "t", 5)]


def test_setting_it_again_to_its_own_time_puts_it_behind_others_of_that_time():
    timers = Timers()
    timers.set("a", "t", 10)
    timers.set("b", "t", 10)
    timers.set("a", "t", 10)
    assert [key for key, _, _ in fired(timers, 10)] == ["b", "a"]


def test_tags_are_timers_of_their_own():
    timers = Timers()
    timers.set("a", "x", 20)
    timers.set("a", "y", 10)
    timers.cancel("a", "x")
    assert fired(timers, 100) == [("a", "y", 10)]


def test_a_cancelled_one_does_not_fire_and_is_not_waited_for():
    timers = Timers()
    timers.set("a", "t", 10)
    timers.set("b", "t", 20)
    timers.cancel("a", "t")
    timers.cancel("a", "t")
    timers.cancel("nobody", "t")
    assert timers.first() == 20
    assert fired(timers, 100) == [("b", "t", 20)]


def test_one_that_fired_can_be_set_again():
    timers = Timers()
    timers.set("a", "t", 10)
    fired(timers, 10)
    timers.set("a", "t", 10)
    assert fired(timers, 10) == [("a", "t", 10)]


def test_none_is_a_key_and_nobody_is_none():
    timers = Timers()
    assert timers.due_key(10) is NOBODY
    timers.set(None, "t", 10)
    assert timers.due_key(9) is NOBODY
    assert timers.due_key(10) is None


def test_there_must_be_one_to_take_out():
    with pytest.raises(AssertionError):
        Timers().pop()


def test_a_forgotten_key_has_none():
    timers = Timers()
    timers.set("a", "t", 10)
    timers.set("b", "t", 20)
    timers.forget("a")
    assert timers.keys() == ["b"]
    assert fired(timers, 100) == [("b", "t", 20)]


def test_of_two_shards_together_each_keeps_its_order():
    mine, theirs = Timers(), Timers()
    mine.set("a", "t", 10)
    for key in ("d", "c", "b"):
        theirs.set(key, "t", 10)
    theirs.set("b", "t", 10)  # moved behind itself: still the last
    mine.absorb(theirs)
    assert [key for key, _, _ in fired(mine, 10)] == ["a", "d", "c", "b"]


KEYS = st.sampled_from("abc")
TAGS = st.sampled_from("xy")
TIMES = st.integers(0, 9)


class AgainstAList(RuleBasedStateMachine):
    """The same as a plain list of (time, how-manieth setting, key, tag), also through saving and putting back."""

    def __init__(self):
        super().__init__()
        self.timers = Timers()
        self.model: dict[tuple[str, str], tuple[int, int]] = {}
        self.settings = 0
        self.saved: list = []

    @rule(key=KEYS, tag=TAGS, at=TIMES)
    def set(self, key, tag, at):
        self.settings += 1
        self.timers.set(key, tag, at)
        self.model[key, tag] = (at, self.settings)

    @rule(key=KEYS, tag=TAGS)
    def cancel(self, key, tag):
        self.timers.cancel(key, tag)
        self.model.pop((key, tag), None)

    @rule(until=TIMES)
    def fire(self, until):
        due = sorted((at, n, key, tag) for (key, tag), (at, n) in self.model.items() if at <= until)
        assert fired(self.timers, until) == [(key, tag, at) for at, _, key, tag in due]
        for _, _, key, tag in due:
            del self.model[key, tag]

    @precondition(lambda self: self.model)
    @rule()
    def move_house(self):
        restored = Timers()
        for key in reversed(self.timers.keys()):
            restored.put_back(key, self.timers.of_key(key))
        self.timers = restored

    @rule(key=KEYS)
    def take_a_key_from_its_bytes(self, key):
        """As a later piece of a checkpoint replaces an earlier one."""
        saved = self.timers.of_key(key)
        self.timers.forget(key)
        self.timers.put_back(key, saved)

    @invariant()
    def the_first_is_known(self):
        assert self.timers.first() == min((at for at, _ in self.model.values()), default=None)

    @invariant()
    def keys_are_those_that_have_one(self):
        assert set(self.timers.keys()) == {key for key, _ in self.model}


TestAgainstAList = AgainstAList.TestCase


@given(st.lists(st.tuples(KEYS, TAGS, TIMES)), st.lists(st.tuples(st.sampled_from("de"), TAGS, TIMES)))
def test_absorbing_loses_none_and_keeps_the_order_of_each(one, other):
    mine, theirs, mine_alone, theirs_alone = Timers(), Timers(), Timers(), Timers()
    for timer in one:
        mine.set(*timer)
        mine_alone.set(*timer)
    for timer in other:
        theirs.set(*timer)
        theirs_alone.set(*timer)
    mine.absorb(theirs)
    together = fired(mine, math.inf)
    assert [due for due in together if due[0] in "abc"] == fired(mine_alone, math.inf)
    assert [due for due in together if due[0] in "de"] == fired(theirs_alone, math.inf)
    assert [at for _, _, at in together] == sorted(at for _, _, at in together)
