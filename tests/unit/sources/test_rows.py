"""Rows in memory: dealt to splits, rewound exactly, and refused where they do not fit."""

import datetime as dt
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.ids import BEGINNING, END, LAST
from tidemill.errors import DataError, PipelineError, SchemaError
from tidemill.ports import SCHEDULED, Source

HERE = r"the Rows declared at test_rows.py:\d+"


def timed(times, **options):
    return tm.sources.Rows([(n, at) for n, at in enumerate(times)], "n long, at timestamp", timestamp="at", **options)


def chunks(source, split, position=0, limit=2):
    reader = source.open(split, position)
    read = [reader.read(limit)]
    while not read[-1].ended:
        read.append(reader.read(limit))
    reader.close()
    return read


def column(read, name="n"):
    return [value for chunk in read for value in chunk.batch.column(name).to_pylist()]


def test_rows_are_a_source():
    source: Source = tm.sources.Rows([(1, 2)], "n long, at timestamp", timestamp="at")
    assert isinstance(source, Source)
    assert source.schema.names == ["n", "at"]
    assert source.timestamp == "at"


def test_rows_are_dealt_in_turn_and_keep_their_order():
    source = timed(range(7), splits=3)
    assert source.splits() == ["0", "1", "2"]
    assert [column(chunks(source, split)) for split in source.splits()] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_chunk_says_where_to_go_on_and_how_far_time_is():
    read = chunks(timed([10, 30, 20, 50, 40], delay=5), "0")
    assert [chunk.position for chunk in read] == [2, 4, 5]
    assert [chunk.times.tolist() for chunk in read] == [[10, 30], [20, 50], [40]]
    assert [chunk.watermark for chunk in read] == [25, 45, END]
    assert [chunk.ended for chunk in read] == [False, False, True]
    assert not any(chunk.idle for chunk in read)
    assert read[0].batch.schema == timed([]).schema


def test_a_split_without_rows_has_ended():
    (chunk,) = chunks(timed([1], splits=2), "1")
    assert (chunk.batch.num_rows, chunk.position, chunk.watermark, chunk.ended) == (0, 0, END, True)


@given(
    st.lists(st.integers(-(10**15), 10**15), max_size=20),
    st.integers(1, 4),
    st.integers(0, 20),
    st.integers(1, 5),
    st.integers(0, 10**16),
)
def test_reading_on_from_anywhere_is_as_if_never_stopped(times, splits, position, limit, delay):
    source = timed(times, splits=splits, delay=delay)
    for split in source.splits():
        single = chunks(source, split, limit=1)
        start = min(position, len(times[int(split) :: splits]))
        again = chunks(pickle.loads(pickle.dumps(source)), split, start, limit)  # noqa: S301 - our own
        assert column(again) == column(single)[start:]
        assert np.concatenate([chunk.times for chunk in again]).tolist() == times[int(split) :: splits][start:]
        marks = {chunk.position: chunk.watermark for chunk in single}
        assert all(chunk.watermark == marks[chunk.position] for chunk in again)


def test_the_watermark_is_the_greatest_time_less_the_delay_and_never_overflows():
    first, *_ = chunks(timed([-(2**62), 0], delay=2**62 + 1), "0", limit=1)
    assert first.watermark == BEGINNING
    first, *_ = chunks(timed([LAST // 2, 0], delay="1s"), "0", limit=1)
    assert first.watermark == LAST // 2 - 1_000_000


def test_times_may_be_datetimes_or_microseconds():
    zone = dt.timezone(dt.timedelta(hours=2))
    rows = [(dt.datetime(1970, 1, 1, 0, 0, 1),), (dt.datetime(1970, 1, 1, 2, 0, 1, tzinfo=zone),), (1_000_000,)]  # noqa: DTZ001
    for type in ("timestamp", "timestamp_ntz"):
        read = chunks(tm.sources.Rows(rows, f"at {type}", timestamp="at"), "0", limit=3)
        assert read[0].times.tolist() == [1_000_000] * 3
    read = chunks(tm.sources.Rows([(5,)], "at long", timestamp="at"), "0")
    assert read[0].times.tolist() == [5]


@pytest.mark.parametrize("timestamp", [None, tm.ARRIVAL])
def test_rows_without_a_time_column_are_as_old_as_can_be(timestamp):
    read = chunks(tm.sources.Rows([(1,), (2,), (3,)], "n long", timestamp=timestamp), "0")
    assert [chunk.watermark for chunk in read] == [BEGINNING, END]
    assert read[0].times.tolist() == [BEGINNING, BEGINNING]


def test_rows_are_dicts_or_tuples_and_what_a_dict_lacks_is_null():
    source = tm.sources.Rows([{"b": "x", "a": 1}, (2, "y"), [3, None], {"a": 4}], "a int, b string")
    assert column(chunks(source, "0"), "a") == [1, 2, 3, 4]
    assert column(chunks(source, "0"), "b") == ["x", "y", None, None]


GOOD = {
    "boolean": True,
    "byte": 127,
    "long": np.int64(3),
    "float": 1.5,
    "double": 3,
    "string": "é",
    "binary": b"\xff",
    "date": dt.date(2020, 2, 29),
    "decimal(5, 2)": Decimal("1.25"),
    "array<int>": [1, None],
    "map<string, int>": {"a": 1},
    "struct<a: int, b: string>": {"a": 1},
}


@pytest.mark.parametrize(("type", "value"), GOOD.items(), ids=str)
def test_what_fits(type, value):
    assert len(column(chunks(tm.sources.Rows([(value,)], f"n {type}"), "0"))) == 1


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("boolean", 1),
        ("long", "1"),
        ("long", 1.5),
        ("long", 1.0),
        ("long", float("nan")),
        ("long", True),
        ("long", 2**63),
        ("byte", 128),
        ("double", "1"),
        ("double", True),
        ("double", 2**60 + 1),
        ("string", 1),
        ("string", b"x"),
        ("binary", "x"),
        ("date", dt.datetime(2020, 1, 1)),  # noqa: DTZ001
        ("timestamp", dt.date(2020, 1, 1)),
        ("timestamp", "2020-01-01"),
        ("timestamp", 1.5),
        ("decimal(5, 2)", 1.5),
        ("decimal(5, 2)", Decimal("1.255")),
        ("decimal(5, 2)", Decimal(1000)),
        ("array<string>", "ab"),
        ("array<long>", [1, 2.5]),
        ("struct<a int>", (1,)),
        ("struct<a int>", {"a": "x"}),
        ("struct<a int>", {"b": 1}),
        ("struct<a int not null>", {}),
        ("map<string, long>", {"a": 1.5}),
        ("map<string, long>", {1: 1}),
        ("map<string, long>", [("a", 1)]),
        ("long not null", None),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named(type, value):
    good = GOOD.get(type.split(" not")[0])
    rows = [(good if good is not None else {"a": 1} if "not null" in type else None,), (value,)]
    if type == "long not null":
        rows[0] = (1,)
    with pytest.raises(DataError, match=rf"^Row 1 \(from 0\) of {HERE} does not fit: column 'n' is ") as refused:
        tm.sources.Rows(rows, f"n {type}")
    assert f"{value!r}, of type {value.__class__.__name__}, and should be " in str(refused.value)
    expected = str(refused.value).partition("should be ")[2]
    assert expected.lower().replace(":", "") == f"{type}."


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"wrod": "a"},
            "has a column 'wrod', which its schema does not have. Columns are: 'word', 'n'. Did you mean 'word'?",
        ),
        (("a",), "has 1 values, ('a',), for 2 columns: 'word', 'n'."),
        ("ab", "is 'ab'. A row is a dict, or a tuple of its columns' values."),
    ],
)
def test_a_row_of_another_shape_is_named(row, said):
    with pytest.raises(DataError, match=rf"^Row 1 \(from 0\) of {HERE} ") as refused:
        tm.sources.Rows([("a", 1), row], "word string, n long")
    assert said in str(refused.value)


@pytest.mark.parametrize("at", [None, LAST + 1])
def test_a_time_that_is_none_is_named(at):
    with pytest.raises(
        DataError, match=rf"Row 1 \(from 0\) of {HERE} does not fit: column 'at' is {at}.*should be a time"
    ):
        tm.sources.Rows([(0,), (at,)], "at long", timestamp="at")


def test_what_rows_cannot_be_made_with():
    with pytest.raises(SchemaError, match=rf"The schema of {HERE} can't be used: at position 2, 'lung' is no type"):
        tm.sources.Rows([], "n lung")
    with pytest.raises(PipelineError, match=r"The Rows declared at test_rows.py:\d+ have splits=0: at least one"):
        tm.sources.Rows([], "n long", splits=0)
    with pytest.raises(PipelineError, match=rf"The delay of {HERE} can't be read: '3'"):
        tm.sources.Rows([], "n long", delay="3")
    with pytest.raises(PipelineError, match=rf"There is no split '2' in {HERE}; splits are: '0', '1'."):
        tm.sources.Rows([], "n long", splits=2).open("2", 0)


def test_rows_are_not_due_at_any_time():
    with pytest.raises(PipelineError, match=rf"The timestamp of {HERE} is SCHEDULED, but its records are not due"):
        tm.sources.Rows([], "n long", timestamp=SCHEDULED)


def test_a_timestamp_that_is_wrong_is_left_for_the_pipeline_to_tell():
    tm.sources.Rows([("a",)], "word string", timestamp="at")
    tm.sources.Rows([("a",)], "word string", timestamp="word")
