"""A record is its columns by name, its event time and its stream, whatever the columns are called."""

# mypy: disable-error-code="arg-type"

import pyarrow as pa
import pytest

from tidemill.core.graph import Stream
from tidemill.core.records import record_maker


def record(values, at, *names):
    make = record_maker(Stream("clicks", pa.schema([(name, pa.int64()) for name in names])))
    return make([*values, at])


def test_columns_time_and_stream():
    made = record((1, 2), 30, "user", "page")
    assert (made.user, made.page, made.timestamp, made.stream) == (1, 2, 30, "clicks")
    assert (made["user"], made["page"]) == (1, 2)


@pytest.mark.parametrize("name", ["timestamp", "stream", "class", "two words", "_hidden", "9", "count", "index", ""])
def test_every_column_can_be_read_by_its_name(name):
    made = record((1, 2), 30, "user", name)
    assert made[name] == 2
    assert (made.user, made.timestamp, made.stream) == (1, 30, "clicks")


def test_the_odd_columns_of_one_stream_are_not_mixed_up():
    made = record((1, 2, 3), 30, "timestamp", "class", "stream")
    assert [made[name] for name in ("timestamp", "class", "stream")] == [1, 2, 3]
    assert (made.timestamp, made.stream) == (30, "clicks")


def test_what_is_no_column_is_no_attribute_either():
    made = record((1,), 30, "user")
    with pytest.raises(AttributeError):
        _ = made.page
    with pytest.raises(KeyError):
        _ = made["page"]


def test_it_is_a_value():
    assert record((1, 2), 30, "user", "page") == record((1, 2), 30, "user", "page")
    assert record((1, 2), 30, "user", "page") != record((1, 2), 31, "user", "page")
    with pytest.raises(AttributeError):
        record((1,), 30, "user").user = 2
