"""Rows made columns. What a value may be is held by the tests of Rows; here is what they do not reach."""

from collections import OrderedDict
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.api.rowform import array_of_values, batch_of_rows, refused
from tidemill.api.schema import read_schema
from tidemill.errors import DataError


def name(place):
    return f"Number {place}"


def batch(rows, schema):
    return batch_of_rows(rows, read_schema(schema), name)


def test_no_rows_are_a_batch_of_nothing():
    made = batch([], "word string, n long NOT NULL")
    assert made.num_rows == 0
    assert made.schema == read_schema("word string, n long NOT NULL")


def test_any_mapping_is_a_row():
    assert batch([OrderedDict(n=1), {}], "n long").to_pylist() == [{"n": 1}, {"n": None}]


@pytest.mark.parametrize("rows", [[{"n": 1}, {"m": 2}], [(1,), (1, 2)], [(1,), 5], [(1,), ("x",)], [(1,), (True,)]])
def test_an_error_calls_the_row_as_it_is_told(rows):
    with pytest.raises(DataError, match=r"^Number 1 "):
        batch(rows, "n long")


@given(st.lists(st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=2)))
def test_the_quick_look_at_kinds_lets_nothing_through(values):
    """A column gets in if each of its values does, alone."""
    field = pa.field("n", pa.int64())

    def fits(values):
        try:
            array_of_values(values, field, name)
        except DataError:
            return False
        return True

    assert fits(values) == all(fits([value]) for value in values)
    assert fits(values) == all(value is None or (type(value) is int and abs(value) < 2**63) for value in values)


def test_what_a_type_cannot_hold():
    assert refused([Decimal(1), Decimal("1.5"), None, Decimal("0.25")], pa.decimal128(3, 0)) == [1, 3]
