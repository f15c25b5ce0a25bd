"""What all shards share: identities, marks, outboxes, and a head by which they are restored. Sources and sinks."""

# mypy: disable-error-code="arg-type, dict-item"

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import Count, Pass, advance, bundle, pipeline, records_of, rows_of, shard_of, take
from tidemill.core.ids import BEGINNING, END, LAST
from tidemill.core.order import BundleEntry, MarkEntry, ReadEntry
from tidemill.core.shard import Head, held

GRAPH = pipeline(Count)


def through_bytes(head):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(head), type=Head)


# Sources


def source():
    return shard_of(GRAPH, "words-source", shard=3)


def read(shard, *rows, position, mark, idle=False):
    """Records as the worker numbers them: by what the shard has read so far."""
    made = bundle(*rows, origin=3, first=shard.next_sequence) if rows else None
    return shard.handle(ReadEntry(made, position, mark, idle, 0))


def test_a_source_numbers_its_records_by_their_offsets():
    shard = source()
    read(shard, ("a", 1, 1), ("b", 2, 2), position=2, mark=2)
    read(shard, ("c", 3, 3), position=3, mark=3)
    assert records_of(*shard.flush()) == [
        ("words", 3, 1, "a", 1, 1),
        ("words", 3, 2, "b", 2, 2),
        ("words", 3, 3, "c", 3, 3),
    ]


def test_a_restored_source_reads_on_where_it_was_and_numbers_on():
    shard = source()
    read(shard, ("a", 1, 1), ("b", 2, 2), position=17, mark=2)
    shard.flush()
    again = source()
    again.restore_head(through_bytes(shard.head()))
    assert (again.position, again.mark, again.next_sequence) == (17, 2, 3)
    read(again, ("c", 3, 3), position=18, mark=3)
    assert records_of(*again.flush()) == [("words", 3, 3, "c", 3, 3)]


def test_what_several_reads_brought_leaves_as_one_bundle():
    shard = source()
    read(shard, ("a", 1, 1), position=1, mark=1)
    read(shard, ("b", 2, 2), position=2, mark=2)
    assert shard.produced == 2
    assert len(shard.flush()) == 1
    assert shard.flush() == []


def test_a_source_s_mark_rises_and_it_never_goes_back_by_itself():
    shard = source()
    read(shard, position=4, mark=10)
    read(shard, position=4, mark=7)
    assert (shard.mark, shard.output_mark()) == (10, 10)
    with pytest.raises(AssertionError, match="never goes back"):
        read(shard, position=3, mark=11)


def test_a_source_is_idle_as_long_as_it_says_so_and_ends():
    shard = source()
    read(shard, position=1, mark=1, idle=True)
    assert (shard.idle, shard.ended) == (True, False)
    read(shard, position=1, mark=END)
    assert (shard.idle, shard.ended) == (False, True)


# Sinks


def test_a_sink_hands_on_each_record_once():
    shard = shard_of(GRAPH, "counts-sink")
    assert take(shard, ("a", 1, 1), stream="counts") is not None
    assert take(shard, ("a", 1, 1), stream="counts") is None
    take(shard, ("a", 1, 1), ("b", 2, 2), stream="counts")
    accepted = shard.take_accepted()
    assert rows_of(*accepted) == [("a", 1, 1), ("b", 2, 2)]
    assert shard.take_accepted() == []


def test_a_sink_s_mark_says_that_everything_was_handed_on():
    shard = shard_of(GRAPH, "counts-sink")
    advance(shard, 10)
    advance(shard, 5)
    assert (shard.mark, shard.output_mark()) == (10, 10)
    assert shard.flush() == []


# All of them


def test_an_entry_comes_back_as_it_took_effect():
    """What is written down holds new records only, so that a replay need not ask which those were."""
    for node, stream in (("count", "words"), ("counts-sink", "counts")):
        shard = shard_of(GRAPH, node)
        whole = bundle(("a", 1, 1), ("b", 2, 2), stream=stream)
        entry = BundleEntry(whole.part(0, 1), 5)
        assert shard.handle(entry) is entry
        rest = shard.handle(BundleEntry(whole, 6))
        assert (rows_of(rest.bundle), rest.now) == ([("b", 2, 2)], 6)
        assert shard.handle(BundleEntry(whole, 7)) is None


def test_what_is_known_is_no_event():
    shard = shard_of(GRAPH)
    take(shard, ("a", 1, 1))
    take(shard, ("a", 1, 1))
    assert shard.events == 1
    assert rows_of(*shard.flush()) == [("a", 1, 1)]


def test_a_head_restores_what_is_not_in_the_rows():
    shard = shard_of(GRAPH)
    take(shard, ("a", 0, 5), ("b", 0, 5))
    advance(shard, 10, outside=8)
    take(shard, ("late", 0, 1), first=3)
    shard.flush()
    again = shard_of(GRAPH)
    again.restore_head(through_bytes(shard.head()))
    assert (again.mark, again.outside, again.events, again.late) == (10, 8, 3, 1)
    assert take(again, ("a", 0, 5), ("b", 0, 5), ("late", 0, 1)) is None
    take(again, ("c", 0, 20), first=4)
    assert records_of(*again.flush()) == [("counts", 9, 3, "c", 1, 20)]


def test_a_checkpoint_lies_between_flushes():
    shard = shard_of(GRAPH)
    take(shard, ("a", 0, 5))
    with pytest.raises(AssertionError, match="between flushes"):
        shard.head()


def test_marks_only_rise_also_where_an_entry_says_less():
    """The queue may hold the input mark below what it was, and `outside` may fall behind it."""
    shard = shard_of(GRAPH)
    advance(shard, 10, outside=9)
    shard.handle(MarkEntry(8, 12, 0))
    assert (shard.mark, shard.outside, shard.output_mark()) == (10, 12, 12)


def test_what_a_computation_does_not_handle_is_refused():
    with pytest.raises(AssertionError, match="does not handle"):
        shard_of(GRAPH).handle(ReadEntry(None, 0, 0, False, 0))


MARKS = st.integers(-5, 5) | st.sampled_from([BEGINNING, END, LAST])


@given(MARKS, st.none() | MARKS, st.none() | MARKS, st.booleans())
def test_an_output_mark_is_the_least_of_what_holds_it_and_a_wall_timer_holds_the_end(mark, timer, hold, wall):
    least = min(each for each in (mark, timer, hold) if each is not None)
    assert held(mark, timer, hold, wall_pending=wall) == (LAST if wall and least == END else least)


def test_a_stateless_computation_needs_no_state():
    shard = shard_of(pipeline(Pass, state=None))
    take(shard, ("a", 1, 1))
    assert rows_of(*shard.flush()) == [("a", 1, 1)]
