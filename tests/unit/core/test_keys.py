"""Places on the ring: the three ways to them agree, with each other and with what Spark SQL once answered.

That they agree with Spark on everything else is for `tests/spark/test_placement.py`.
"""

from __future__ import annotations

import enum
import math
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.key_types import KEY_TYPES, KeyType
from tidemill.core.ids import RING
from tidemill.core.keys import (
    FEW,
    FULL,
    NAN,
    KeyRange,
    check_key_type,
    even_ranges,
    function_key_position,
    needs_normalising,
    normal_key,
    ring_position,
    ring_positions,
)
from tidemill.errors import KeyTypeError

POSITIONS = st.sampled_from([0, 1, RING // 2, RING - 1]) | st.integers(0, RING - 1)
RANGES = st.tuples(POSITIONS, POSITIONS).map(lambda ends: KeyRange(min(ends), max(ends) + 1))


# --- ranges -----------------------------------------------------------------------------------------------------------


@given(RANGES, POSITIONS)
def test_range_is_half_open(range, position):
    assert range.contains(position) == (range.low <= position < range.high)
    assert range.contains(range.low)
    assert not range.contains(range.high)


@given(RANGES, RANGES, POSITIONS)
def test_intersection_contains_what_both_contain(one, other, position):
    both = one.intersect(other)
    assert (both is not None) == one.overlaps(other) == other.overlaps(one)
    assert (both is not None and both.contains(position)) == (one.contains(position) and other.contains(position))


@given(RANGES, POSITIONS)
def test_split_leaves_nothing_out(range, at):
    if range.low < at < range.high:
        left, right = range.split(at)
        assert (left.low, left.high, right.low, right.high) == (range.low, at, at, range.high)
        assert not left.overlaps(right)
    else:
        with pytest.raises(ValueError, match="not a range"):
            range.split(at)


@pytest.mark.parametrize("ends", [(0, 0), (5, 4), (-1, 4), (0, RING + 1), (RING, RING)])
def test_no_range_is_empty_or_off_the_ring(ends):
    with pytest.raises(ValueError, match="not a range"):
        KeyRange(*ends)


@given(st.integers(1, 1000))
def test_even_ranges_are_the_ring(n):
    ranges = even_ranges(n)
    assert len(ranges) == n
    assert ranges[0].low == FULL.low
    assert ranges[-1].high == FULL.high
    assert all(left.high == right.low for left, right in pairwise(ranges))
    sizes = {range.high - range.low for range in ranges}
    assert max(sizes) - min(sizes) <= 1


@given(RANGES)
def test_range_travels(range):
    assert pickle.loads(pickle.dumps(range)) == range  # noqa: S301
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(range), type=KeyRange) == range
    assert {range: 1}[KeyRange(range.low, range.high)] == 1


def test_a_range_that_is_none_does_not_arrive():
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"low": 5, "last": 4}), type=KeyRange)


def test_ranges_sort_by_place():
    left, right = FULL.split(5)
    assert sorted([right, left]) == [left, right]
    assert repr(KeyRange(0, RING)) == "KeyRange(0x0, 0x10000000000000000)"


# --- what Spark answered ----------------------------------------------------------------------------------------------

FROM_SPARK = {
    "true": ([pa.bool_()], True, -6698625589789238999),
    "1Y": ([pa.int8()], 1, -6698625589789238999),
    "-1Y": ([pa.int8()], -1, 2017008487422258757),
    "300S": ([pa.int16()], 300, 4595878464234128934),
    "-7": ([pa.int32()], -7, 4987848727247274714),
    "-7L": ([pa.int64()], -7, -1663473129717591079),
    "CAST(1.5 AS FLOAT)": ([pa.float32()], 1.5, 6163473420726370430),
    "1.5D": ([pa.float64()], 1.5, 7738255526519901366),
    "-0.0D": ([pa.float64()], -0.0, -5252525462095825812),
    "CAST(-0.0D AS FLOAT)": ([pa.float32()], -0.0, 3614696996920510707),
    "CAST('NaN' AS DOUBLE)": ([pa.float64()], math.nan, -3127944061524951246),
    "CAST('NaN' AS FLOAT)": ([pa.float32()], math.nan, 2692338816207849720),
    "DATE'1969-12-31'": ([pa.date32()], date(1969, 12, 31), 2017008487422258757),
    "TIMESTAMP'1969-12-31 23:59:59.999999'": ([pa.timestamp("us", "UTC")], -1, 3858142552250413010),
    "TIMESTAMP_NTZ'2026-11-18 12:00:00'": ([pa.timestamp("us")], datetime(2026, 11, 18, 12), -2060767283433577101),  # noqa: DTZ001
    "'tide'": ([pa.string()], "tide", -2904010595880671706),
    "''": ([pa.string()], "", -7444071767201028348),
    "'märz'": ([pa.string()], "märz", -4464833571629599160),
    "X'00ff'": ([pa.binary()], b"\0\xff", 879945414100663330),
    "CAST(-1.50 AS DECIMAL(9,2))": ([pa.decimal128(9, 2)], Decimal("-1.50"), -3700955262752989823),
    "CAST(-12345678901234567.8 AS DECIMAL(18,1))": (
        [pa.decimal128(18, 1)],
        Decimal("-12345678901234567.8"),
        7700742269099517432,
    ),
    "CAST(-128 AS DECIMAL(19,0))": ([pa.decimal128(19, 0)], Decimal(-128), -7898411661632158123),
    "CAST(128 AS DECIMAL(19,0))": ([pa.decimal128(19, 0)], Decimal(128), 6715097930120473301),
    "CAST('-12345678901234567890.5' AS DECIMAL(38,10))": (
        [pa.decimal128(38, 10)],
        Decimal("-12345678901234567890.5"),
        -9054653796338183709,
    ),
    "CAST(NULL AS STRING)": ([pa.string()], None, 42),
    "'a', 1L, CAST(NULL AS INT), 2.5D": (
        [pa.string(), pa.int64(), pa.int32(), pa.float64()],
        ("a", 1, None, 2.5),
        -9138810548512568629,
    ),
    "'Spark', 123, 2": ([pa.string(), pa.int32(), pa.int32()], ("Spark", 123, 2), 5602566077635097486),
}
"""`SELECT xxhash64(<name>)`"""


@pytest.mark.parametrize(("types", "key", "signed"), FROM_SPARK.values(), ids=FROM_SPARK)
def test_place_is_what_spark_answered(types, key, signed):
    assert ring_position(key, types) == signed % RING


# --- the three ways agree ---------------------------------------------------------------------------------------------


def rows_of(*types: KeyType, sizes=(0, 3 * FEW)) -> st.SearchStrategy:
    return st.lists(st.tuples(*(st.none() | type.values for type in types)), min_size=sizes[0], max_size=sizes[1])


def columns_of(rows: list, types: list[KeyType]) -> list[pa.Array]:
    return [type.array([row[place] for row in rows]) for place, type in enumerate(types)]


def python_values(column: pa.Array) -> Any:
    """As ring_position takes them: times and dates as numbers."""
    if pa.types.is_temporal(column.type):
        return column.view(pa.int32() if column.type == pa.date32() else pa.int64()).to_pylist()
    return column.to_pylist()


def assert_agree(rows: list, types: list[KeyType]) -> None:
    columns, arrow_types = columns_of(rows, types), [type.type for type in types]
    found = ring_positions(columns, arrow_types)
    keys = list(zip(*map(python_values, columns), strict=True))
    assert found.dtype == np.uint64
    assert found.tolist() == [ring_position(key if len(types) > 1 else key[0], arrow_types) for key in keys]


@pytest.mark.parametrize("type", KEY_TYPES.values(), ids=KEY_TYPES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_batch_agrees_with_single_keys(type, data):
    assert_agree(data.draw(rows_of(type)), [type])


@pytest.mark.parametrize("type", KEY_TYPES.values(), ids=KEY_TYPES)
@pytest.mark.parametrize("rows", [FEW, 3 * FEW])
def test_batch_of_odd_values_agrees(type, rows):
    values = [None, *type.odd] * rows
    assert_agree([(value,) for value in values[:rows]], [type])
    assert_agree(list(pairwise(values))[:rows], [type, type])


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_chain_of_columns_agrees(data):
    types = data.draw(st.lists(st.sampled_from(list(KEY_TYPES.values())), min_size=2, max_size=4))
    assert_agree(data.draw(rows_of(*types)), types)


@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1, 10 * FEW])
@pytest.mark.parametrize("name", ["bigint", "string", "decimal(9,2)", "boolean"])
def test_slices_and_repeats(name, rows):
    """A slice shares its buffers with what was cut off, and repeated values are hashed once."""
    type = KEY_TYPES[name]
    some = {"bigint": [7, None], "string": ["a", "b", None], "boolean": [True, False]}.get(
        name, [Decimal("1.50"), None]
    )
    whole = type.array((some * (rows + 20))[: rows + 20])
    part = whole.slice(3, rows)
    assert ring_positions([part], [type.type]).tolist() == [ring_position(v, [type.type]) for v in part.to_pylist()]
    both = ring_positions([part, part], [type.type] * 2).tolist()
    assert both == [ring_position((v, v), [type.type] * 2) for v in part.to_pylist()]


@pytest.mark.parametrize("name", ["string", "binary"])
def test_large_arrays_lie_where_small_ones_do(name):
    type = KEY_TYPES[name]
    values = ["a", "bc", None] if name == "string" else [b"a", b"bc", None]
    large = pa.large_string() if name == "string" else pa.large_binary()
    for repeat in (1, FEW):
        found = ring_positions([pa.array(values * repeat, large)], [large])
        assert found.tolist() == ring_positions([type.array(values * repeat)], [type.type]).tolist()


@given(st.datetimes(timezones=st.sampled_from([None, timezone.utc, timezone(timedelta(hours=-9, minutes=-30))])))
def test_times_may_be_given_as_datetimes(at):
    type = pa.timestamp("us", "UTC")
    micros = pa.array([at.astimezone(timezone.utc) if at.tzinfo else at.replace(tzinfo=timezone.utc)], type)
    assert ring_position(at, [type]) == ring_positions([micros], [type])[0] == function_key_position(at)


@given(st.dates())
def test_dates_may_be_given_as_dates(day):
    assert ring_position(day, [pa.date32()]) == function_key_position(day)
    assert ring_position(day, [pa.date32()]) == ring_position((day - date(1970, 1, 1)).days, [pa.date32()])


def test_nulls_leave_the_seed():
    assert ring_position(None, [pa.string()]) == 42
    assert ring_position((None, "a"), [pa.int64(), pa.string()]) == ring_position("a", [pa.string()])
    assert ring_positions([pa.nulls(100, pa.int64())], [pa.int64()]).tolist() == [42] * 100


def test_types_are_part_of_the_place():
    assert ring_position(1, [pa.int32()]) == ring_position(1, [pa.int8()]) == ring_position(True, [pa.bool_()])
    assert ring_position(1, [pa.int32()]) != ring_position(1, [pa.int64()])
    assert ring_position(1.0, [pa.float32()]) != ring_position(1.0, [pa.float64()])


# --- keys of functions ------------------------------------------------------------------------------------------------

FUNCTION_KEYS = {
    "bool": (pa.bool_(), st.booleans()),
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float64(), st.floats()),
    "str": (pa.string(), st.text()),
    "bytes": (pa.binary(), st.binary()),
    "datetime": (pa.timestamp("us"), st.datetimes()),
    "date": (pa.date32(), st.dates()),
    "Decimal": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18) | st.decimals(-9, 9, places=2)),
}


@given(st.data())
def test_function_keys_lie_where_spark_types_them(data):
    kinds = data.draw(st.lists(st.sampled_from(list(FUNCTION_KEYS.values())), min_size=1, max_size=3))
    key = tuple(data.draw(st.none() | values) for _, values in kinds)
    types = [type for type, _ in kinds]
    assert function_key_position(key) == ring_position(key if len(key) > 1 else key[0], types)
    assert function_key_position(key[0]) == ring_position(key[0], types[:1])


def test_equal_keys_lie_together():
    assert function_key_position(0.0) == function_key_position(-0.0)
    assert function_key_position(NAN) == function_key_position(-math.nan) == function_key_position(math.inf - math.inf)
    assert function_key_position(Decimal("1.0")) == function_key_position(Decimal("1.000"))
    noon = datetime(2020, 1, 1, 12, tzinfo=timezone.utc)
    assert function_key_position(noon) == function_key_position(noon.astimezone(timezone(timedelta(hours=5))))
    assert function_key_position(()) == function_key_position(None) == 42


def test_subclasses_lie_where_their_values_do():
    class Colour(str, enum.Enum):
        RED = "red"

    class Size(enum.IntEnum):
        SMALL = 1

    assert function_key_position(Colour.RED) == function_key_position("red")
    assert function_key_position(Size.SMALL) == function_key_position(1)
    assert function_key_position(np.float64(1.5)) == function_key_position(1.5)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (2**63, "int"),
        (-(2**63) - 1, "int"),
        ([1], "list"),
        ((1, {"a": 1}), "dict"),
        (object(), "object"),
        (np.int64(1), "numpy.int64"),
        (1j, "complex"),
        (timedelta(1), "datetime.timedelta"),
        ("\ud800", "str"),
        (Decimal("NaN"), "Decimal"),
        (Decimal("-Infinity"), "Decimal"),
        (Decimal(10) ** 20, "Decimal"),
        (Decimal(1).scaleb(-19), "Decimal"),
    ],
    ids=repr,
)
def test_other_keys_are_refused_by_name(key, named):
    with pytest.raises(KeyTypeError, match=rf"\b{named}\b"):
        function_key_position(key)


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [*(key_type.type for key_type in KEY_TYPES.values()), pa.large_string()], ids=str)
def test_keyable(type):
    assert check_key_type(type)


@pytest.mark.parametrize(
    "type",
    [
        pa.uint8(),
        pa.uint64(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.timestamp("s"),
        pa.date64(),
        pa.time64("us"),
        pa.decimal256(40),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_not_keyable(type):
    assert not check_key_type(type)


def test_unkeyable_types_are_refused_by_name():
    with pytest.raises(KeyTypeError, match=r"uint64.*bigint"):
        ring_position(1, [pa.uint64()])
    with pytest.raises(KeyTypeError, match="uint64"):
        ring_positions([pa.array([1] * 1000, pa.uint64())], [pa.uint64()])


# --- keys in dictionaries ---------------------------------------------------------------------------------------------


def test_normal_keys_are_found():
    nan, other = float("nan"), math.inf - math.inf
    assert normal_key(nan) is normal_key(other) is NAN
    found = {normal_key(nan): 1, normal_key(("a", (other, -0.0))): 2}
    assert found[normal_key(other)] == 1
    assert found[normal_key(("a", (nan, 0.0)))] == 2
    assert math.copysign(1, normal_key(-0.0)) == 1


@pytest.mark.parametrize("key", [1, True, "a", b"a", None, 1.5, Decimal("-0.0"), date(2020, 1, 1), ("a", 1)], ids=repr)
def test_other_keys_are_normal(key):
    assert repr(normal_key(key)) == repr(key)


def test_only_floats_need_it():
    assert needs_normalising([pa.string(), pa.float32()])
    assert needs_normalising([pa.float64()])
    assert not needs_normalising([pa.string(), pa.int64(), pa.decimal128(5, 2)])
    assert needs_normalising([])  # a function's keys may be anything
