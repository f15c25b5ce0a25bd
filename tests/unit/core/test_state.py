"""A checkpoint is the state at the moment of the freeze, whatever happens while it is encoded, slice by slice.

Everything here goes through a shard and user code, for it is the shard that must mark a key before it changes.
"""

# mypy: disable-error-code="arg-type, dict-item, no-untyped-call"

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.core.pipes import (
    COUNTS,
    NUMBER,
    SEEN,
    Count,
    Pass,
    advance,
    picture,
    pipeline,
    records_of,
    shard_of,
    take,
    wake,
)
from tidemill.core.codec import decode_key
from tidemill.core.graph import RowState
from tidemill.core.shard import Head
from tidemill.core.state import SavedRow


@dataclass
class Diary:
    n: int = 0
    lines: list[str] = field(default_factory=list)


OPERATIONS = ["look", "number", "line", "replace", "delete", "set", "cancel", "hold", "let go", "wall", "produce"]


class Everything:
    """Does with a key what the record's number says: all that user code can do to what a shard keeps."""

    def process_record(self, ctx, record):
        match OPERATIONS[record.n]:
            case "look":
                pass
            case "number":
                ctx.state.n += 1
            case "line":
                ctx.state.lines.append(str(record.word))
            case "replace":
                ctx.state = Diary(ctx.state.n + 10)
            case "delete":
                del ctx.state
            case "set":
                ctx.set_timer("bell", record.timestamp + 5)
            case "cancel":
                ctx.cancel_timer("bell")
            case "hold":
                ctx.hold_watermark(record.timestamp)
            case "let go":
                ctx.hold_watermark(None)
            case "wall":
                ctx.set_timer("clock", record.timestamp, clock="wall")
            case "produce":
                ctx.produce(COUNTS, word=record.word, n=ctx.state.n)

    def process_timer(self, ctx, timer):
        ctx.state.n += 100
        ctx.produce(COUNTS, word=ctx.key, n=ctx.state.n)
        if timer.tag == "clock" and ctx.state.n % 200 == 0:
            del ctx.state
        elif ctx.state.n % 300 == 0:
            ctx.set_timer("bell", timer.at + 7)


GRAPH = pipeline(Everything, state=RowState(Diary, Diary))
KEYS = ["a", "b", "c", "d", None]


def through_bytes(rows):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(rows), type=list[SavedRow])


def restored(pieces, head=None):
    shard = shard_of(GRAPH)
    if head is not None:
        shard.restore_head(msgspec.msgpack.decode(msgspec.msgpack.encode(head), type=Head))
    shard.restore(through_bytes(pieces))
    return shard


class Checkpoints(RuleBasedStateMachine):
    """Records, timers, holds and deletions, in between freezes and slices."""

    @initialize()
    def begin(self):
        self.shard = shard_of(GRAPH)
        self.sequence = 1
        self.at = 0
        self.pieces: Any = []  # of whole checkpoints, in order: the master
        self.slices: Any = None  # of the one under way
        self.frozen: dict = {}
        self.frozen_keys: set = set()

    @rule(
        events=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, len(OPERATIONS) - 1)), min_size=1, max_size=4)
    )
    def handle_records(self, events):
        take(self.shard, *((key, n, self.at) for key, n in events), first=self.sequence)
        self.sequence += len(events)
        self.at += 1

    @rule(by=st.integers(1, 9))
    def let_the_mark_rise(self, by):
        advance(self.shard, max(self.shard.mark, -1) + by)
        self.at = max(self.at, self.shard.mark)

    @rule(now=st.integers(0, 60))
    def let_wall_timers_fire(self, now):
        wake(self.shard, now)

    @precondition(lambda self: self.slices is None)
    @rule()
    def freeze(self):
        self.frozen = picture(self.shard)
        self.shard.freeze()
        self.slices = []

    @precondition(lambda self: self.slices is not None)
    @rule(limit=st.integers(1, 4))
    def encode_a_slice(self, limit):
        rows = self.shard.encode_slice(limit)
        assert len(rows) <= limit
        self.slices += rows
        if not rows:
            self.finished()

    def finished(self):
        assert not self.shard.state.encoding
        keys = [row.key for row in self.slices]
        assert len(keys) == len(set(keys)), "each key is saved once"
        self.pieces += self.slices
        self.slices = None
        assert picture(restored(self.pieces)) == self.frozen

    @invariant()
    def encoding_says_whether_there_is_more(self):
        if hasattr(self, "shard") and self.shard.state.encoding:
            assert self.slices is not None

    def teardown(self):
        """With one checkpoint more, the restored shard is the live one: it knows the same, and goes on the same."""
        if not hasattr(self, "shard"):
            return
        if self.slices is not None:
            while rows := self.shard.encode_slice(2):
                self.slices += rows
            self.finished()
        self.shard.flush()
        head = self.shard.head()
        self.freeze()
        while rows := self.shard.encode_slice(2):
            self.slices += rows
        self.finished()
        again = restored(self.pieces, head)
        assert picture(again) == picture(self.shard)
        assert again.output_mark() == self.shard.output_mark()
        for shard in (self.shard, again):
            rows = [(key, n, self.at) for key in KEYS for n in (1, 5, 10)]
            take(shard, *rows, first=self.sequence)
            advance(shard, self.at + 100)
            wake(shard, 100)
        assert records_of(*again.flush()) == records_of(*self.shard.flush())
        assert picture(again) == picture(self.shard)


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(max_examples=150, stateful_step_count=30)


class Add:
    def process_record(self, ctx, _):
        ctx.state += 1


def saved(shard, limit=100):
    """One whole checkpoint: key to row."""
    shard.freeze()
    rows = []
    while more := shard.encode_slice(limit):
        rows += more
    return {decode_key(row.key): row for row in rows}


def state_of(row):
    return None if row.state is None else msgspec.msgpack.decode(row.state)


def test_a_checkpoint_holds_what_changed_since_the_one_before():
    shard = shard_of(pipeline(Count))
    take(shard, ("a", 0, 1), ("b", 0, 2))
    assert shard.state.changed == 2
    assert set(saved(shard)) == {"a", "b"}
    assert shard.state.changed == 0
    assert saved(shard) == {}
    take(shard, ("b", 0, 3), first=3)
    assert set(saved(shard)) == {"b"}


def test_a_key_that_is_about_to_change_is_encoded_first():
    shard = shard_of(pipeline(Add, state=NUMBER))
    take(shard, ("a", 0, 1), ("b", 0, 1))
    shard.freeze()
    take(shard, ("b", 0, 2), first=3)
    rows = {decode_key(row.key): state_of(row) for row in shard.encode_slice(10)}
    assert rows == {"a": 1, "b": 1}
    assert {key: state_of(row) for key, row in saved(shard).items()} == {"b": 2}


def test_one_checkpoint_at_a_time():
    shard = shard_of(pipeline(Count))
    take(shard, ("a", 0, 1))
    shard.freeze()
    with pytest.raises(AssertionError, match="one checkpoint at a time"):
        shard.freeze()


def test_a_deleted_key_is_saved_as_deleted_and_made_anew_when_it_comes_again():
    class Forget:
        def process_record(self, ctx, record):
            if record.n:
                del ctx.state
            else:
                ctx.state += 1

    shard = shard_of(pipeline(Forget, state=NUMBER))
    take(shard, ("a", 0, 1), ("b", 0, 1))
    before = list(saved(shard).values())
    take(shard, ("a", 1, 2), first=3)
    after = saved(shard)
    assert after["a"].empty
    again = shard_of(pipeline(Forget, state=NUMBER))
    again.restore([*before, *after.values()])
    assert again.state.rows == {"b": 1}
    take(shard, ("a", 0, 3), first=4)
    assert state_of(saved(shard)["a"]) == 1


def test_a_key_that_was_deleted_and_came_again_is_saved_as_it_is():
    class Forget:
        def process_record(self, ctx, record):
            if record.n:
                del ctx.state
            else:
                ctx.state += 1

    shard = shard_of(pipeline(Forget, state=NUMBER))
    take(shard, ("a", 0, 1), ("a", 1, 1), ("a", 0, 1))
    assert shard.state.changed == 1
    assert {key: state_of(row) for key, row in saved(shard).items()} == {"a": 1}


def test_timers_of_a_computation_without_state_are_saved_too():
    class Ring(Pass):
        def process_record(self, ctx, record):
            ctx.set_timer("bell", record.timestamp)

        def process_timer(self, ctx, timer):
            ctx.produce(COUNTS, word=ctx.key, n=timer.at)

    graph = pipeline(Ring, state=None)
    shard = shard_of(graph)
    take(shard, ("a", 0, 5), ("b", 0, 4))
    rows = saved(shard)
    again = shard_of(graph)
    again.restore(rows.values())
    advance(again, 10)
    assert [record[3:] for record in records_of(*again.flush())] == [("b", 4, 4), ("a", 5, 5)]
    advance(shard, 4)
    assert saved(shard)["b"].empty


def test_a_timer_that_fires_while_its_key_waits_to_be_encoded_is_still_saved():
    class Ring(Count):
        def process_record(self, ctx, record):
            ctx.set_timer("bell", record.timestamp)

        def process_timer(self, ctx, _):
            ctx.state += 1

    shard = shard_of(pipeline(Ring, state=NUMBER))
    take(shard, ("a", 0, 5))
    shard.freeze()
    advance(shard, 10)
    (row,) = shard.encode_slice(10)
    assert (state_of(row), [tag for tag, *_ in row.event_timers]) == (0, ["bell"])
    (later,) = saved(shard).values()
    assert (state_of(later), later.event_timers) == (1, [])


def test_a_later_row_of_a_key_replaces_the_earlier_one():
    class Ring(Count):
        def process_record(self, ctx, record):
            ctx.set_timer(f"bell {record.n}", record.timestamp)
            ctx.hold_watermark(record.timestamp)

        def process_timer(self, ctx, _):
            pass

    graph = pipeline(Ring, state=NUMBER)
    shard = shard_of(graph)
    take(shard, ("a", 1, 5))
    first = saved(shard)["a"]
    advance(shard, 10)
    take(shard, ("a", 2, 20), first=2)
    second = saved(shard)["a"]
    again = shard_of(graph)
    again.restore([first, second])
    assert [tag for tag, *_ in again.times.event.of_key("a")] == ["bell 2"]
    assert again.times.output_hold() == (20, 20)


def test_state_is_restored_before_anything_runs():
    shard = shard_of(pipeline(Count))
    take(shard, ("a", 0, 1))
    with pytest.raises(AssertionError, match="before anything runs"):
        shard.restore([])


def test_it_is_decoded_by_its_type():
    shard = shard_of(pipeline(Count, state=SEEN))
    take(shard, ("a", 0, 1))
    again = shard_of(pipeline(Count, state=SEEN))
    again.restore(through_bytes(list(saved(shard).values())))
    assert again.state.rows == shard.state.rows
    assert type(again.state.rows["a"]) is SEEN.type
