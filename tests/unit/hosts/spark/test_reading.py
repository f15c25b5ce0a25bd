"""When a source is read, and how long an answer is put off; rewinds open it anew; what it raises names it."""

# mypy: disable-error-code="arg-type, return-value"

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.core.pipes import SCHEMA, batch
from tidemill.core.effects import Read
from tidemill.core.graph import Node
from tidemill.core.ids import BEGINNING
from tidemill.errors import DataError, RunError
from tidemill.hosts.spark.reading import ANSWER_AFTER, BREATH, LOOK_AGAIN, Reading
from tidemill.ports import ARRIVAL, Chunk

SHARD, EPOCH, LIMIT = 3, 1, 100


def chunk(rows, position, *, wait=0, ended=False, skipped=0, malformed=None, idle=False):
    made = batch(*((f"w{n}", n) for n in range(rows)))
    return Chunk(made, np.arange(rows), position, BEGINNING, ended, idle, wait, skipped, malformed)


class Faucet:
    """A source that gives what a test puts in."""

    schema = SCHEMA
    timestamp = "at"

    def __init__(self):
        self.waiting: list = []
        self.opened: list = []
        self.closed: list = []
        self.reads = 0

    def splits(self):
        return ["left", "right"]

    def open(self, split, position):
        self.opened.append((split, position))
        return Reader(self, split, position)


class Reader:
    def __init__(self, source, split, position):
        self.source, self.split, self.position = source, split, position

    def read(self, limit):
        self.source.reads += 1
        now = self.source.waiting.pop(0) if self.source.waiting else None
        if isinstance(now, Exception):
            raise now
        made = now or chunk(0, self.position)
        self.position = made.position
        return made

    def close(self):
        self.source.closed.append(self.split)


class Asking:
    """A worker's sources, its clock and what it is told."""

    def __init__(self):
        self.source = Faucet()
        self.node: Node | None = Node("words-source", "source", ("words",), handle=self.source, declared_at="here.py:1")
        self.now = 1_000_000
        self.told: list = []
        self.reading = Reading(lambda _: self.node, lambda: self.now, self.told.append)

    def ask(self, position=0, *, limit=LIMIT, split=0, shard=SHARD, epoch=EPOCH):
        self.reading.read(Read(shard, epoch, split, position, limit))

    def pass_time(self, micros):
        """As the loop does, which waits as long as there is nothing to do."""
        until = self.now + micros
        while True:
            due = self.reading.due(self.now)
            assert due > 0
            if self.now + due > until:
                self.now = until
                return
            self.now += due

    def answers(self):
        made, self.told[:] = [make(self.now) for make in self.told], []
        return made


@pytest.fixture
def faucet():
    return Asking()


# The pace


def test_what_is_there_is_told_at_once(faucet):
    faucet.source.waiting = [chunk(LIMIT, 100)]
    faucet.ask()
    (answer,) = faucet.answers()
    assert (answer.shard, answer.epoch, answer.position, answer.mark) == (SHARD, EPOCH, 100, BEGINNING)
    assert answer.batch.num_rows == LIMIT
    assert answer.times.tolist() == list(range(LIMIT))
    assert faucet.reading.due(faucet.now) == ANSWER_AFTER


def test_one_that_has_nothing_is_asked_again_soon_until_it_has(faucet):
    faucet.ask()
    assert faucet.reading.due(faucet.now) == LOOK_AGAIN
    faucet.pass_time(3 * LOOK_AGAIN)
    assert faucet.told == []
    faucet.source.waiting = [chunk(1, 1)]
    faucet.pass_time(LOOK_AGAIN)
    assert [answer.position for answer in faucet.answers()] == [1]
    assert faucet.source.reads == 5


def test_one_that_can_say_when_is_asked_then(faucet):
    faucet.source.waiting = [chunk(0, 0, wait=2_500), chunk(1, 1)]
    faucet.ask()
    assert faucet.reading.due(faucet.now) == 2_500
    faucet.pass_time(2_499)
    assert faucet.source.reads == 1
    faucet.pass_time(1)
    assert faucet.source.reads == 2
    assert len(faucet.answers()) == 1


def test_an_answer_is_not_put_off_for_ever(faucet):
    """Marks must be told, and the core may have other plans."""
    faucet.source.waiting = [chunk(0, 0, wait=10**9)]
    faucet.ask()
    faucet.pass_time(ANSWER_AFTER - 1)
    assert faucet.told == []
    faucet.pass_time(1)
    (answer,) = faucet.answers()
    assert (answer.batch.num_rows, answer.position) == (0, 0)
    faucet.pass_time(ANSWER_AFTER)
    assert faucet.told == [], "and it is given once"


def test_one_that_gave_less_than_it_was_asked_for_is_left_alone_for_a_breath(faucet):
    faucet.source.waiting = [chunk(LIMIT - 1, 99), chunk(1, 100)]
    faucet.ask()
    faucet.answers()
    faucet.ask(99)
    assert faucet.source.reads == 1
    assert faucet.reading.due(faucet.now) == BREATH
    faucet.pass_time(BREATH)
    assert [answer.position for answer in faucet.answers()] == [100]


def test_one_that_gave_all_it_was_asked_for_is_read_on_at_once(faucet):
    faucet.source.waiting = [chunk(LIMIT, 100), chunk(LIMIT, 200)]
    faucet.ask()
    faucet.ask(100)
    assert [answer.position for answer in faucet.answers()] == [100, 200]
    assert faucet.source.opened == [("left", 0)], "by the same reader"


@pytest.mark.parametrize("said", [{"ended": True}, {"malformed": batch(("bad", 1))}])
def test_what_is_no_record_is_an_answer_too(faucet, said):
    faucet.source.waiting = [chunk(0, 0, **said)]
    faucet.ask()
    assert len(faucet.answers()) == 1


def test_a_position_that_moved_on_is_an_answer(faucet):
    """All that was there was left out."""
    faucet.source.waiting = [chunk(0, 7, skipped=7)]
    faucet.ask()
    assert [answer.position for answer in faucet.answers()] == [7]


def test_each_shard_has_its_own_pace(faucet):
    faucet.source.waiting = [chunk(0, 0, wait=5_000), chunk(LIMIT, 100)]
    faucet.ask()
    faucet.ask(shard=4, split=1)
    assert [answer.shard for answer in faucet.answers()] == [4]
    assert faucet.reading.due(faucet.now) == 5_000


# Positions


def test_a_rewind_opens_the_source_anew(faucet):
    faucet.source.waiting = [chunk(LIMIT, 100), chunk(LIMIT, 150)]
    faucet.ask(split=1)
    faucet.ask(50, split=1)
    assert faucet.source.opened == [("right", 0), ("right", 50)]
    assert faucet.source.closed == ["right"]


def test_another_epoch_opens_it_anew(faucet):
    faucet.source.waiting = [chunk(LIMIT, 100), chunk(LIMIT, 200)]
    faucet.ask()
    faucet.ask(100, epoch=2)
    assert faucet.source.opened == [("left", 0), ("left", 100)]
    assert faucet.source.closed == ["left"]


def test_what_was_put_off_is_read_where_it_stood(faucet):
    faucet.ask()
    faucet.pass_time(2 * LOOK_AGAIN)
    assert faucet.source.opened == [("left", 0)]


def test_a_shard_that_was_given_to_another_is_read_no_more(faucet):
    faucet.ask()
    faucet.node = None
    faucet.pass_time(2 * ANSWER_AFTER)
    assert faucet.told == []
    assert faucet.source.reads == 1
    assert faucet.source.closed == ["left"]
    assert faucet.reading.due(faucet.now) == ANSWER_AFTER


def test_all_are_closed_in_the_end(faucet):
    faucet.ask()
    faucet.ask(shard=4, split=1)
    faucet.reading.close()
    assert sorted(faucet.source.closed) == ["left", "right"]


# Trouble

WHERE = r"\[in the source of 'words', declared at here\.py:1, split 0\]"


def test_what_a_source_raises_names_it(faucet):
    problem = OSError("gone")
    faucet.source.waiting = [problem]
    with pytest.raises(RunError, match=rf"reading raised OSError: gone {WHERE}") as raised:
        faucet.ask()
    assert raised.value.__cause__ is problem


def test_an_error_of_ours_stays_what_it_is(faucet):
    faucet.source.waiting = [DataError("line 3 is malformed")]
    with pytest.raises(DataError, match=rf"line 3 is malformed {WHERE}"):
        faucet.ask()


def test_what_it_raises_later_names_it_too_and_it_is_asked_no_more(faucet):
    faucet.ask()
    faucet.source.waiting = [OSError("gone")]
    faucet.now += LOOK_AGAIN
    with pytest.raises(RunError, match=WHERE):
        faucet.reading.due(faucet.now)
    faucet.pass_time(ANSWER_AFTER)
    assert faucet.source.reads == 2
    assert faucet.told == []


def test_what_opening_raises_names_it(faucet):
    with pytest.raises(RunError, match=r"IndexError.*split 7\]"):
        faucet.ask(split=7)


# What is counted, and times


def test_what_can_not_be_read_is_counted(faucet):
    faucet.source.waiting = [chunk(1, 4, skipped=3), chunk(1, 6, malformed=batch(("bad", 1)))]
    faucet.ask(limit=1)
    faucet.ask(4, limit=1)
    assert faucet.reading.malformed == {SHARD: 4}
    assert [answer.malformed is not None for answer in faucet.answers()] == [False, True]


def test_times_of_arrival_are_left_to_the_core(faucet):
    faucet.source.timestamp = ARRIVAL
    faucet.source.waiting = [chunk(LIMIT, 100)]
    faucet.ask()
    assert faucet.answers()[0].times is None


def test_idleness_is_told(faucet):
    faucet.source.waiting = [chunk(LIMIT, 100, idle=True)]
    faucet.ask()
    assert faucet.answers()[0].idle
