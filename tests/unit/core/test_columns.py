"""State in columns keeps the same promises: what is encoded, slice by slice, is what was there at the freeze."""

# mypy: disable-error-code="arg-type, dict-item, no-untyped-call"

import math
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidemill.core.columns import _FIRST_CAPACITY, ColumnarState, SavedColumns
from tidemill.core.graph import ColumnState

SPEC = ColumnState((("total", "int64"), ("mean", "float64"), ("odd", "bool")))


def picture(state):
    return {
        key: (int(state.total[row]), float(state.mean[row]), bool(state.odd[row])) for row, key in enumerate(state.keys)
    }


def restored(pieces):
    state = ColumnarState(SPEC)
    state.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(pieces), type=list[SavedColumns]))
    return state


def add(state, words, by=1):
    """As user code would: the rows of a batch, each once, then whole columns."""
    rows = np.unique(state.rows(pa.array(words)))
    state.total[rows] += by
    state.mean[rows] = state.total[rows] / 2
    state.odd[rows] = state.total[rows] % 2 == 1


class Checkpoints(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.state = ColumnarState(SPEC)
        self.pieces: list = []
        self.slices: Any = None
        self.frozen: dict = {}

    @rule(words=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5), by=st.integers(1, 9))
    def change(self, words, by):
        add(self.state, words, by)

    @rule(word=st.sampled_from("abcdefgh"))
    def change_one(self, word):
        row = self.state.row(word)
        self.state.total[row] *= 3

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
        keys = [key for piece in self.slices for key in piece.keys]
        assert len(keys) == len(set(keys)), "each key is saved once"
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


def saved(state):
    state.freeze()
    pieces = []
    while more := state.encode_slice(100):
        pieces += more
    return pieces


def keys_of(pieces):
    return {msgspec.msgpack.decode(key) for piece in pieces for key in piece.keys}


def test_a_checkpoint_holds_what_was_looked_up_since_the_one_before():
    state = ColumnarState(SPEC)
    add(state, ["a", "b"])
    assert state.changed == 2
    assert keys_of(saved(state)) == {"a", "b"}
    assert (state.changed, saved(state)) == (0, [])
    add(state, ["b", "c"])
    assert keys_of(saved(state)) == {"b", "c"}


def test_one_checkpoint_at_a_time():
    state = ColumnarState(SPEC)
    state.freeze()
    with pytest.raises(AssertionError, match="one checkpoint at a time"):
        state.freeze()


def test_rows_are_found_again_and_new_ones_begin_with_nothing():
    state = ColumnarState(SPEC)
    rows = state.rows(pa.array(["a", "b", "a", None]))
    assert rows[0] == rows[2]
    assert len(set(rows.tolist())) == 3
    assert state.keys == ["a", "b", None]
    assert state.total.tolist() == [0, 0, 0]
    assert state.rows(pa.array([None, "b"])).tolist() == [rows[3], rows[1]]
    assert state.row("b") == rows[1]


def test_an_encoded_column_is_a_column():
    state = ColumnarState(SPEC)
    state.rows(pa.array(["b"]))
    assert state.rows(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == [1, 0, 1]


def test_the_two_zeros_are_one_row_and_all_nans_are_one():
    state = ColumnarState(SPEC)
    rows = state.rows(pa.array([0.0, -0.0, math.nan, float("-nan")]))
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    assert state.row(-0.0) == rows[0]
    assert state.row(float("-nan")) == rows[2]
    again = restored(saved(state))
    assert again.rows(pa.array([math.nan, 0.0])).tolist() == [again.row(math.nan), again.row(-0.0)]
    assert len(again.keys) == 2


def test_it_grows_and_what_waits_to_be_encoded_waits_on():
    state = ColumnarState(SPEC)
    add(state, ["first"], by=5)
    state.freeze()
    add(state, [f"w{n}" for n in range(3 * _FIRST_CAPACITY)])
    add(state, ["first"])
    (piece,) = state.encode_slice(10)
    assert picture(restored([piece])) == {"first": (5, 2.5, True)}
    assert state.encode_slice(10) == []
    assert picture(restored(saved(state))) == picture(state)


def test_a_column_that_there_is_not_is_named():
    with pytest.raises(AttributeError, match="the state has no column 'sum'; it has total, mean, odd"):
        _ = ColumnarState(SPEC).sum


def test_columns_are_as_long_as_there_are_keys():
    state = ColumnarState(SPEC)
    assert len(state.total) == 0
    add(state, ["a", "b"])
    assert len(state.total) == len(state.mean) == 2


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("efgh")), st.sets(st.sampled_from("abcdefgh")))
def test_what_two_shards_had_is_had_by_one_and_only_what_stays_is_kept(one, other, stays):
    mine, theirs = ColumnarState(SPEC), ColumnarState(SPEC)
    for words, state in ((one, mine), (other, theirs)):
        for word in words:
            add(state, [word])
    both = picture(mine) | picture(theirs)
    saved(mine)
    mine.absorb(theirs)
    assert picture(mine) == both
    assert keys_of(saved(mine)) == set(other)
    mine.absorb(ColumnarState(SPEC))
    mine.keep([key in stays for key in mine.keys])
    kept = {key: row for key, row in both.items() if key in stays}
    assert picture(mine) == kept
    add(mine, ["a"])
    assert keys_of(saved(mine)) == {"a"}


def test_what_changed_before_the_others_left_is_still_to_be_saved():
    state = ColumnarState(SPEC)
    add(state, ["a", "b", "c"])
    state.keep([False, True, True])
    assert keys_of(saved(state)) == {"b", "c"}
