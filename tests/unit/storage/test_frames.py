"""What was cut short or altered is found by reading, and never taken for data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.storage.frames import Frames, frame, whole_frames

ENTRIES = st.lists(st.binary(max_size=20), max_size=5)


def stored(entries):
    return b"".join(map(frame, entries))


@given(ENTRIES)
def test_what_was_stored_is_read(entries):
    data = stored(entries)
    assert whole_frames(data) == Frames(entries, len(data), torn=False)
    assert whole_frames(bytearray(data)).entries == whole_frames(memoryview(data)).entries == entries


@given(ENTRIES.filter(bool), st.data())
def test_cut_anywhere_it_is_the_entries_before_the_cut(entries, data):
    whole = stored(entries)
    cut = data.draw(st.integers(0, len(whole)))
    read = whole_frames(whole[:cut])
    assert read.entries == entries[: len(read.entries)]
    assert read.end == len(stored(read.entries)) <= cut
    assert read.torn == (read.end < cut)
    assert len(read.entries) == len(entries) or cut < len(whole)


@given(ENTRIES.filter(bool), st.data())
def test_any_byte_that_was_altered_is_found(entries, data):
    whole = bytearray(stored(entries))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    read = whole_frames(whole)
    assert read.torn
    assert read.entries == entries[: len(read.entries)]
    assert read.end <= place


@given(ENTRIES, st.binary(min_size=1, max_size=20))
def test_what_lies_behind_is_not_read(entries, rest):
    read = whole_frames(stored(entries) + b"\x00" + rest)
    assert read.entries == entries
    assert read.torn


@given(ENTRIES.filter(bool), st.data())
def test_an_append_goes_on_behind_what_is_whole(entries, data):
    """A torn write, and then another over what it left."""
    cut = data.draw(st.integers(0, len(stored(entries)) - 1))
    left = stored(entries)[:cut]
    again = left[: whole_frames(left).end] + frame(b"next")
    assert whole_frames(again).entries == [*whole_frames(left).entries, b"next"]
    assert not whole_frames(again).torn


def test_nothing_is_whole():
    assert whole_frames(b"") == Frames([], 0, torn=False)


@pytest.mark.parametrize("place", [0, 2])
def test_another_magic_or_another_version_is_not_read(place):
    data = bytearray(frame(b"entry"))
    data[place] += 1
    assert whole_frames(data) == Frames([], 0, torn=True)
