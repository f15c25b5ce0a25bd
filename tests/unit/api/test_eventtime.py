"""Event time out of a column."""

import pyarrow as pa
import pytest

from tidemill.api.eventtime import mark_behind, refuse_scheduled, time_column, times_of, without_time
from tidemill.api.schema import read_schema
from tidemill.core.ids import BEGINNING, END, LAST, Micros
from tidemill.errors import PipelineError
from tidemill.ports import ARRIVAL, SCHEDULED

SCHEMA = read_schema("word string, n int, at timestamp, local timestamp_ntz, micros long")


@pytest.mark.parametrize("column", ["at", "local", "micros"])
def test_a_column_of_time(column):
    assert time_column(SCHEMA, column) == column


@pytest.mark.parametrize("column", [None, ARRIVAL, SCHEDULED, "word", "n", "absent"])
def test_no_column_of_time(column):
    assert time_column(SCHEMA, column) is None


@pytest.mark.parametrize("type", [pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_null_and_the_end_are_no_times(type):
    times, bad = times_of(pa.array([BEGINNING, None, 7, END, LAST], pa.int64()).cast(type))
    assert bad == [1, 3]
    assert times[[0, 2, 4]].tolist() == [BEGINNING, 7, LAST]


def test_a_mark_is_never_before_the_beginning():
    assert mark_behind(10, Micros(3)) == 7
    assert mark_behind(BEGINNING + 2, Micros(3)) == BEGINNING
    assert without_time(2).tolist() == [BEGINNING, BEGINNING]


def test_only_what_is_due_has_a_schedule():
    refuse_scheduled(ARRIVAL, "it")
    with pytest.raises(PipelineError, match="The timestamp of it is SCHEDULED"):
        refuse_scheduled(SCHEDULED, "it")
