"""Whole columns made a batch: held to the rules of rows."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidemill.api.columnform import Told, batch_of_columns
from tidemill.api.schema import read_schema
from tidemill.errors import DataError

TOLD = Told(lambda place: f"Number {place}", "Numbers 0 to 1")


def batch(given, schema, count=2):
    made = batch_of_columns(given, count, read_schema(schema), TOLD)
    made.validate(full=True)
    assert made.schema == read_schema(schema)
    return made


def values(given, type):
    return batch({"n": given}, f"n {type}").column("n").to_pylist()


DAY = dt.datetime(2020, 2, 29, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("given", "type", "found"),
    [
        (np.array([1, 2], np.uint8), "long", [1, 2]),
        (np.array([1, 2]), "byte", [1, 2]),
        (np.array([9, 1, 9, 2])[1::2], "int", [1, 2]),
        (np.array([1, 2]), "double", [1.0, 2.0]),
        (np.array([0.5, 2], np.float32), "double", [0.5, 2.0]),
        (np.array([True, False]), "boolean", [True, False]),
        (np.array(["é", "bc"]), "string", ["é", "bc"]),
        (np.array([b"a", b"\xff"]), "binary", [b"a", b"\xff"]),
        (np.array(["2020-02-29", "NaT"], "M8[D]"), "date", [DAY.date(), None]),
        (np.array(["2020-02-29", "NaT"], "M8[s]"), "timestamp", [DAY, None]),
        (np.array(["2020-02-29", "NaT"], "M8[ns]"), "timestamp_ntz", [DAY.replace(tzinfo=None), None]),
        (np.array([0, 1_000_000]), "timestamp_ntz", [dt.datetime(1970, 1, 1, 0, 0, n) for n in (0, 1)]),  # noqa: DTZ001
        (np.array(["a", None], object), "string", ["a", None]),
        (["a", None], "string", ["a", None]),
        ([[1], (2, None)], "array<int>", [[1], [2, None]]),
        (pa.array(["a", "b"]).dictionary_encode(), "string", ["a", "b"]),
        (pa.chunked_array([["a"], ["b"]]), "string", ["a", "b"]),
        (pa.array([[1], None], pa.large_list(pa.int32())), "array<long>", [[1], None]),
        (pa.array([{"a": 1}, None]), "struct<a: int>", [{"a": 1}, None]),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "map<string, int>", [[("a", 1)], None]),
        (pa.array([Decimal("1.5"), None]), "decimal(5, 2)", [Decimal("1.50"), None]),
        (pa.nulls(2), "decimal(5, 2)", [None, None]),
    ],
    ids=str,
)
def test_what_fits(given, type, found):
    assert values(given, type) == found


def test_a_batch_goes_by_its_names_and_what_is_left_out_is_null():
    given = pa.RecordBatch.from_pydict({"m": [1, 2], "n": ["a", "b"]})
    assert batch(given, "n string, gone date, m int").to_pydict() == {"n": ["a", "b"], "gone": [None] * 2, "m": [1, 2]}


@pytest.mark.parametrize(
    ("given", "type", "said"),
    [
        (np.array([1.0, 2.0]), "long", "is an array of double, and should be an array of long."),
        (np.array(["1", "2"]), "long", "is an array of string, and"),
        (np.array([1, 2]), "string", "is an array of int64, and"),
        (np.array([True, False]), "long", "is an array of bool, and"),
        (np.array([1, 2]), "boolean", "is an array of int64, and"),
        (np.array([1, 2], "m8[s]"), "timestamp", "is an array of duration[s], and"),
        (np.array([1, 2], complex), "double", "is a numpy array of complex128, and"),
        (np.array([[1], [2]]), "long", "is array([[1],"),
        (np.array([1, 2, 3]), "long", "has 3 values for 2 records, and"),
        (7, "long", "is 7, of type int, and"),
        ("ab", "string", "is 'ab', of type str, and"),
        (pa.array([["1"], []]), "array<long>", "is an array of list<item: string>, and"),
        (pa.array([{"b": 1}, {"b": 2}]), "struct<a: long>", "is an array of struct<b: int64>, and"),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_is_named(given, type, said):
    with pytest.raises(DataError, match=r"^Numbers 0 to 1 do not fit: column 'n' ") as refused:
        values(given, type)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "type", "value"),
    [
        (np.array([1, 128]), "byte", "128, of type int"),
        (np.array([1, 2**63], np.uint64), "long", f"{2**63}, of type int"),
        (np.array([1, 2**60 + 1]), "double", f"{2**60 + 1}, of type int"),
        (np.array([1000, 1001], "M8[ns]"), "timestamp", "'1970-01-01 00:00:00.000001001', of type str"),
        (np.array([1, True], object), "long", "True, of type bool"),
        ([1, 1.5], "long", "1.5, of type float"),
        (pa.array([1, None]), "long NOT NULL", "None, of type NoneType"),
        ([1, None], "long NOT NULL", "None, of type NoneType"),
        (pa.array([{"a": 1}, {"a": None}]), "struct<a: long NOT NULL>", "{'a': None}, of type dict"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named(given, type, value):
    with pytest.raises(DataError) as refused:
        values(given, type)
    assert str(refused.value) == f"Number 1 does not fit: column 'n' is {value}, and should be {type}."


def test_a_null_around_a_value_that_must_be_there_is_none():
    there = pa.array([[{"a": 1}], None], pa.list_(pa.struct([("a", pa.int64())])))
    assert values(there, "array<struct<a: long not null>>") == [[{"a": 1}], None]


@pytest.mark.parametrize(
    ("given", "type"),
    [
        (pa.array([[1], [None]]), pa.list_(pa.field("element", pa.int64(), nullable=False))),
        (
            pa.array([[("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        ),
    ],
    ids=["array", "map"],
)
def test_a_null_further_in_where_none_may_be(given, type):
    with pytest.raises(DataError, match="Numbers 0 to 1 do not fit: column 'n' holds a null where none may be"):
        batch_of_columns({"n": given}, 2, pa.schema([("n", type)]), TOLD)


def test_what_is_no_columns():
    with pytest.raises(DataError, match=r"Numbers 0 to 1 are 5, of type int, and should be a dict of arrays"):
        batch(5, "n long")
    with pytest.raises(DataError, match=r"have a column 'm', which their schema does not have. Columns are: 'n'."):
        batch({"m": [1, 2]}, "n long")
    with pytest.raises(DataError, match=r"Number 0 does not fit: column 'n' is None"):
        batch({}, "n long not null")
