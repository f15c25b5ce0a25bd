"""What a shard handled comes back from its bytes as what it was."""

# mypy: disable-error-code="arg-type"

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import bundle, pipeline, records_of
from tidemill.core.ids import BEGINNING, END
from tidemill.core.order import (
    BundleEntry,
    MarkEntry,
    ReadEntry,
    WakeEntry,
    decode_bundle,
    decode_entry,
    encode_bundle,
    encode_entry,
)

GRAPH = pipeline()
TIMES = st.integers(BEGINNING, END)
ROWS = st.lists(
    st.tuples(st.text(max_size=3) | st.none(), st.integers(-9, 9), st.integers(BEGINNING, END - 1)),
    min_size=1,
    max_size=6,
)
BUNDLES = st.builds(
    lambda rows, origin, first: bundle(*rows, origin=origin, first=first),
    ROWS,
    st.integers(1, 2**63 - 1),
    st.integers(1, 2**40),
)


def assert_same_bundle(one, other):
    assert records_of(one) == records_of(other)
    assert one.oldest == other.oldest
    assert one.batch.schema == other.batch.schema


@given(BUNDLES)
def test_bundles(made):
    assert_same_bundle(decode_bundle(encode_bundle(made), GRAPH), made)


@given(BUNDLES, st.data())
def test_bundles_with_gaps(made, data):
    places = sorted(data.draw(st.sets(st.integers(0, made.rows - 1), min_size=1)))
    gappy = made.take(np.array(places))
    assert_same_bundle(decode_bundle(encode_bundle(gappy), GRAPH), gappy)


@given(BUNDLES, TIMES)
def test_bundle_entries(made, now):
    again = decode_entry(encode_entry(BundleEntry(made, now)), GRAPH)
    assert isinstance(again, BundleEntry)
    assert again.now == now
    assert_same_bundle(again.bundle, made)


@given(st.builds(MarkEntry, TIMES, TIMES, TIMES) | st.builds(WakeEntry, TIMES))
def test_entries_without_records(entry):
    assert decode_entry(encode_entry(entry), GRAPH) == entry


@given(st.none() | BUNDLES, st.integers(0, 2**62), TIMES, st.booleans(), TIMES)
def test_read_entries(made, position, mark, idle, now):
    again = decode_entry(encode_entry(ReadEntry(made, position, mark, idle, now)), GRAPH)
    assert isinstance(again, ReadEntry)
    assert (again.position, again.mark, again.idle, again.now) == (position, mark, idle, now)
    if made is None:
        assert again.bundle is None
    else:
        assert_same_bundle(again.bundle, made)


def test_anything_else_is_refused():
    with pytest.raises(AssertionError, match="no entry"):
        encode_entry("a word")
