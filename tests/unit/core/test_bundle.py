"""A bundle's records keep their identities, their order and their times, however it is cut, sent and joined."""

# mypy: disable-error-code="arg-type"

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import SCHEMA, batch, bundle, records_of, rows_of
from tidemill.core.bundle import (
    decode_batch,
    encode_batch,
    int64_array,
    join,
    new_bundle,
    times_of,
    with_times,
    without_times,
)
from tidemill.core.graph import TIME_COLUMN, Stream

WIRE = Stream("words", SCHEMA).wire_schema

ROWS = st.lists(
    st.tuples(st.text(max_size=3) | st.none(), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 2)),
    min_size=1,
    max_size=12,
)


def test_what_is_produced_is_numbered_in_order():
    made = bundle(("a", 1, 30), ("b", 2, 10), ("a", 3, 20), first=5, origin=4)
    assert records_of(made) == [
        ("words", 4, 5, "a", 1, 30),
        ("words", 4, 6, "b", 2, 10),
        ("words", 4, 7, "a", 3, 20),
    ]
    assert made.rows == 3


def test_it_knows_its_least_time():
    assert bundle(("a", 1, 30), ("b", 2, 10), ("a", 3, 20)).oldest == 10
    assert bundle(("a", 1, -7)).oldest == -7


def test_there_is_no_empty_bundle():
    with pytest.raises(AssertionError):
        new_bundle("words", 1, 1, bundle(("a", 1, 1)).batch.slice(1))


@given(ROWS, st.data())
def test_a_part_is_the_records_between(rows, data):
    whole = bundle(*rows, first=3)
    start = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(start + 1, len(rows)))
    part = whole.part(start, end)
    assert records_of(part) == records_of(whole)[start:end]
    assert part.oldest == min(at for _, _, at in rows[start:end])


@given(ROWS, st.data())
def test_taking_keeps_each_record_with_its_identity(rows, data):
    whole = bundle(*rows, first=3)
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    taken = whole.take(np.array(places))
    assert records_of(taken) == [records_of(whole)[place] for place in places]
    assert taken.oldest == min(rows[place][2] for place in places)


@given(ROWS, st.integers(1, 3), st.integers(0, 20), st.data())
def test_since_a_sequence_is_what_lies_behind_it(rows, first, known, data):
    whole = bundle(*rows, first=first)
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    gappy = whole.take(np.array(places))  # the gaps belong to others
    rest = gappy.since(known)
    assert (records_of(rest) if rest else []) == [record for record in records_of(gappy) if record[2] > known]
    if rest:
        assert rest.oldest == min(at for _, _, at in rows_of(rest))


def test_a_bundle_that_is_new_as_a_whole_is_not_touched():
    whole = bundle(("a", 1, 1), ("b", 2, 2), first=5)
    assert whole.since(4) is whole


@given(ROWS, st.data())
def test_joined_parts_are_the_whole(rows, data):
    whole = bundle(*rows)
    cuts = sorted({0, len(rows), *data.draw(st.sets(st.integers(1, len(rows)), max_size=3))})
    parts = [whole.part(start, end) for start, end in pairwise(cuts)]
    joined = join(parts)
    assert records_of(joined) == records_of(whole)
    assert joined.oldest == whole.oldest


@given(ROWS, st.data())
def test_bytes_are_the_batch_also_of_a_part(rows, data):
    whole = bundle(*rows).batch
    start = data.draw(st.integers(0, len(rows) - 1))
    part = whole.slice(start)
    assert decode_batch(encode_batch(part), WIRE).equals(part)


def test_times_travel_as_the_last_column():
    made = with_times(batch(("a", 1), ("b", 2)), np.array([7, 8]), WIRE)
    assert made.schema.names == ["word", "n", TIME_COLUMN]
    assert times_of(made).tolist() == [7, 8]
    assert without_times(made).equals(batch(("a", 1), ("b", 2)))


def test_times_of_every_other_record_are_no_others():
    assert int64_array(np.arange(10)[::2]).equals(pa.array([0, 2, 4, 6, 8]))
