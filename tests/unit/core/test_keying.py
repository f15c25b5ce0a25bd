"""A subscriber's view of a stream: the same key has the same place, whichever way it was found."""

# mypy: disable-error-code="arg-type"

import math
from enum import Enum, IntEnum

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import BY_WORD, NO_KEY, SCHEMA, batch, wire_batch
from tidemill.core.codec import decode_key, encode_key
from tidemill.core.graph import TIME_COLUMN, TIME_TYPE, Key, Stream
from tidemill.core.ids import RING
from tidemill.core.keying import FEW, Keying, columns_of, origin_position
from tidemill.errors import KeyTypeError, UserCodeError

WORDS = Stream("words", SCHEMA)
BOTH = Key(("n", "word"), (pa.int64(), pa.string()))
ROWS = st.lists(st.tuples(st.text(max_size=2) | st.none(), st.integers(-3, 3), st.integers(0, 9)), min_size=1)


@pytest.mark.parametrize("key", [BY_WORD, BOTH, Key(function=lambda record: (record.word, record.timestamp))])
@given(rows=st.lists(st.tuples(st.text(max_size=2), st.integers(-3, 3), st.integers(0, 9)), min_size=1, max_size=30))
def test_each_record_lies_where_its_key_lies(key, rows):
    keying = Keying(key, WORDS)
    whole = wire_batch(*rows)
    keys = list(keying.keys(columns_of(whole)))
    assert keying.positions(whole).tolist() == [keying.position(each) for each in keys]


def test_keys_are_the_columns_in_the_order_of_the_key():
    columns = columns_of(wire_batch(("a", 1, 10), (None, 2, 20)))
    assert list(Keying(BY_WORD, WORDS).keys(columns)) == ["a", None]
    assert list(Keying(BOTH, WORDS).keys(columns)) == [(1, "a"), (2, None)]
    assert list(Keying(Key(function=lambda record: record.timestamp), WORDS).keys(columns)) == [10, 20]


def floats(*values):
    stream = Stream("floats", pa.schema([("x", pa.float64())]))
    made = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.float64()), pa.array([0] * len(values), TIME_TYPE)], names=["x", TIME_COLUMN]
    )
    return stream, made


@pytest.mark.parametrize(
    "key",
    [
        Key(("x",), (pa.float64(),)),
        Key(("x", "x"), (pa.float64(), pa.float64())),
        Key(function=lambda record: record.x),
        Key(function=lambda record: (record.x,)),
    ],
)
def test_the_two_zeros_are_one_key_and_all_nans_are_one(key):
    stream, made = floats(0.0, -0.0, math.nan, float("-nan"))
    keying = Keying(key, stream)
    keys = list(keying.keys(columns_of(made)))
    assert len(dict.fromkeys(keys)) == 2
    assert len(set(keying.positions(made).tolist())) == 2
    assert str(keys[1]) == str(keys[0])


def test_without_a_key_records_go_where_their_origin_says():
    assert not Keying(NO_KEY, WORDS).keyed
    assert Keying(BY_WORD, WORDS).keyed
    assert Keying(Key(function=lambda record: record.n), WORDS).keyed
    places = [origin_position(origin) for origin in range(1, 200)]
    assert len(set(places)) == len(places)
    assert all(0 <= place < RING for place in places)
    assert 0.3 < sum(place < RING // 2 for place in places) / len(places) < 0.7


@given(ROWS)
def test_columns_are_the_same_for_few_rows_and_for_many(rows):
    many = wire_batch(*rows * (FEW + 1))
    few = columns_of(wire_batch(*rows))
    assert columns_of(many) == [column * (FEW + 1) for column in few]
    assert few == [list(column) for column in zip(*rows, strict=True)]
    assert all(type(at) is int for at in few[-1])


def test_the_times_are_the_last_column():
    assert columns_of(wire_batch(("a", 1, 10), ("b", 2, 20))) == [["a", "b"], [1, 2], [10, 20]]
    assert batch(("a", 1)).num_columns == 2


def test_a_key_function_that_raises_is_named():
    keying = Keying(Key(function=lambda record: record.nothing), WORDS)
    with pytest.raises(UserCodeError, match=r"key function of an input on stream 'words' raised AttributeError"):
        keying.keys(columns_of(wire_batch(("a", 1, 10))))


class Colour(str, Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("returned", "key"),
    [
        (Colour.RED, "red"),
        (Size.BIG, 3),
        ((Colour.RED, Size.BIG, None), ("red", 3, None)),
        (np.float64(-0.0), 0.0),
        (np.str_("red"), "red"),
        (True, True),
    ],
)
def test_what_a_key_function_returns_is_made_plain_and_can_be_saved(returned, key):
    keying = Keying(Key(function=lambda _: returned), WORDS)
    (found,) = keying.keys(columns_of(wire_batch(("a", 1, 10))))
    assert repr(found) == repr(key)
    assert decode_key(encode_key(found)) == key
    assert keying.positions(wire_batch(("a", 1, 10))).tolist() == [keying.position(found)]


@pytest.mark.parametrize("other", [1.0, True, "1"])
def test_a_key_function_returns_one_type_for_1_and_true_are_one_key_in_two_places(other):
    keying = Keying(Key(function=lambda record: other if record.n else 1), WORDS)
    keying.keys(columns_of(wire_batch(("a", 0, 10))))
    with pytest.raises(KeyTypeError, match="returned a int before and a"):
        keying.keys(columns_of(wire_batch(("a", 1, 10))))


def test_a_key_function_may_return_none_beside_its_type():
    keying = Keying(Key(function=lambda record: record.word), WORDS)
    assert list(keying.keys(columns_of(wire_batch(("a", 0, 10), (None, 0, 1), ("b", 0, 1))))) == ["a", None, "b"]


def test_what_a_key_function_returns_must_have_a_place():
    keying = Keying(Key(function=lambda record: [record.word]), WORDS)
    with pytest.raises(KeyTypeError, match="returned a value of type list"):
        keying.positions(wire_batch(("a", 1, 10)))
