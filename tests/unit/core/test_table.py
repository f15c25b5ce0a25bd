"""State in a table: what is encoded, slice by slice, is what was there at the freeze, and what was taken stays gone."""

# mypy: disable-error-code="arg-type, dict-item, no-untyped-call"

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidemill.core import table
from tidemill.core.graph import TableState
from tidemill.core.table import SavedTable, Table

SCHEMA = pa.schema([("key", pa.string()), ("due", pa.int64()), ("values", pa.list_(pa.int64()))])
SPEC = TableState(SCHEMA, ("key",), "due")


def rows(*given):
    return pa.RecordBatch.from_pylist([{"key": key, "due": due, "values": [due]} for key, due in given], schema=SCHEMA)


def picture(state):
    """What is there, in order, and how it lies: what is merged when must not depend on a restart."""
    return [[row["key"] for row in chunk.rows().to_pylist()] for chunk in state._chunks], state.rows().to_pylist()


def restored(pieces):
    state = Table(SPEC)
    state.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(pieces), type=list[SavedTable]))
    return state


def of_key(key):
    return lambda batch: np.array([value == key for value in batch.column("key").to_pylist()], bool)


def merged(batch):
    """Rows of a key as one, with all their values."""
    found: dict[Any, list[int]] = {}
    for row in batch.to_pylist():
        found.setdefault(row["key"], []).extend(row["values"])
    made = [{"key": key, "due": min(values), "values": values} for key, values in found.items()]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


KEYS = st.sampled_from("abcdef")
GIVEN = st.lists(st.tuples(KEYS, st.integers(-5, 20)), min_size=1, max_size=6)


class Checkpoints(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.state = Table(SPEC)
        self.model: Counter = Counter()
        self.pieces: list = []
        self.slices: Any = None
        self.frozen: Any = None

    @rule(given=GIVEN)
    def add(self, given):
        self.state.add(rows(*given))
        self.model.update(given)

    @rule(key=KEYS)
    def take(self, key):
        taken = self.state.take(of_key(key))
        self._gone(taken, [value for value in self.model.elements() if value[0] == key])

    @rule(until=st.integers(-6, 21))
    def take_due(self, until):
        taken = self.state.take_due(until)
        self._gone(taken, [value for value in self.model.elements() if value[1] <= until])

    def _gone(self, taken, expected):
        found = Counter((row["key"], value) for row in taken.to_pylist() for value in row["values"])
        assert found >= Counter(expected)
        self.model -= found

    @rule()
    def merge(self):
        self.state.add(merged(self.state.take(lambda batch: np.ones(batch.num_rows, bool))))

    @rule()
    def settle(self):
        before = Counter((row["key"], v) for row in self.state.rows().to_pylist() for v in row["values"])
        self.state.settle(merged)
        after = Counter((row["key"], v) for row in self.state.rows().to_pylist() for v in row["values"])
        assert before == after

    @precondition(lambda self: self.slices is None)
    @rule()
    def freeze(self):
        self.frozen = picture(self.state)
        self.state.freeze()
        self.slices = []

    @precondition(lambda self: self.slices is not None)
    @rule(limit=st.integers(1, 4))
    def encode_a_slice(self, limit):
        pieces = self.state.encode_slice(limit)
        self.slices += pieces
        if not pieces:
            self.finished()

    def finished(self):
        assert not self.state.encoding
        self.pieces += self.slices
        self.slices = None
        assert picture(restored(self.pieces)) == self.frozen

    def teardown(self):
        if not hasattr(self, "state"):
            return
        if self.slices is None:
            self.freeze()
        for _ in range(2):
            while pieces := self.state.encode_slice(3):
                self.slices += pieces
            self.finished()
            self.freeze()
        assert picture(restored(self.pieces)) == picture(self.state)


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(max_examples=80, stateful_step_count=25)


@pytest.fixture(autouse=True)
def merges_early(monkeypatch):
    monkeypatch.setattr(table, "FEW_CHUNKS", 4)


def saved(state):
    state.freeze()
    pieces = []
    while more := state.encode_slice(100):
        pieces += more
    return pieces


def test_a_checkpoint_holds_what_is_new_and_crosses_out_what_is_gone():
    state = Table(SPEC)
    state.add(rows(("a", 1), ("b", 2)))
    assert state.changed == 2
    first = saved(state)
    assert saved(state) == []
    state.add(rows(("c", 3)))
    state.take(of_key("a"))
    state.take(of_key("c"))
    assert state.changed == 1
    second = saved(state)
    assert [row["key"] for row in restored(first + second).rows().to_pylist()] == ["b"]
    assert [len(piece.gone) for piece in second] == [8]


def test_one_checkpoint_at_a_time():
    state = Table(SPEC)
    state.freeze()
    with pytest.raises(AssertionError, match="one checkpoint at a time"):
        state.freeze()


def test_what_was_restored_is_saved_no_more_and_its_numbers_are_not_given_again():
    state = Table(SPEC)
    state.add(rows(("a", 1), ("b", 2)))
    pieces = saved(state)
    again = restored(pieces)
    assert again.changed == 0
    again.add(rows(("c", 3)))
    again.take(of_key("a"))
    assert [row["key"] for row in restored(pieces + saved(again)).rows().to_pylist()] == ["b", "c"]


def test_the_first_row_that_is_due_is_known():
    state = Table(SPEC)
    assert state.first_due == table.NEVER
    state.add(rows(("a", 7), ("b", 2), ("c", 9)))
    assert state.first_due == 2
    assert state.take_due(1).num_rows == 0
    assert [row["key"] for row in state.take_due(2).to_pylist()] == ["b"]
    assert state.first_due == 7
    state.take_due(9)
    assert (state.first_due, len(state)) == (table.NEVER, 0)


def test_memory_is_bounded_by_what_is_there():
    state = Table(SPEC)
    for at in range(300):
        state.add(rows(*((key, at) for key in "abcdefgh")))
        state.settle(merged)
        assert len(state._chunks) <= 20
        assert sum(len(chunk.numbers) for chunk in state._chunks) <= 16 * 8
        if at % 50 == 49:
            state.take_due(at - 1)


def test_rows_that_are_looked_at_stay():
    state = Table(SPEC)
    state.add(rows(("a", 1), ("b", 2)))
    assert [row["key"] for row in state.rows(of_key("b")).to_pylist()] == ["b"]
    assert len(state) == 2


@given(GIVEN, GIVEN, st.sets(KEYS))
def test_what_two_shards_had_is_had_by_one_and_only_what_stays_is_kept(one, other, stays):
    mine, theirs = Table(SPEC), Table(SPEC)
    mine.add(rows(*one))
    theirs.add(rows(*other))
    theirs.take_due(0)
    saved(mine)
    mine.absorb(theirs)
    left = [value for value in other if value[1] > 0]
    assert [(row["key"], row["due"]) for row in mine.rows().to_pylist()] == one + left
    assert mine.changed == len(left)
    mine.keep(lambda batch: np.array([key in stays for key in batch.column("key").to_pylist()]))
    assert [(r["key"], r["due"]) for r in mine.rows().to_pylist()] == [v for v in one + left if v[0] in stays]
    assert mine.changed == sum(key in stays for key, _ in left)
