"""A shard that was split or merged goes on for its keys as its parents would have, under an origin of its own."""

# mypy: disable-error-code="arg-type, dict-item, no-untyped-call"

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import (
    COUNTS,
    LEFT,
    NUMBER,
    RIGHT,
    SEED,
    Count,
    Pass,
    advance,
    bundle,
    picture,
    pipeline,
    records_of,
    rows_of,
    shard_of,
    take,
    words_in,
)
from tidemill.core.codec import decode_key
from tidemill.core.computing import BundleShard, RecordShard
from tidemill.core.graph import ColumnState
from tidemill.core.keys import FULL
from tidemill.core.order import BundleEntry
from tidemill.core.shard import Place, SinkShard, SourceShard
from tidemill.core.succession import new_shard, successor

LEFTS, RIGHTS = words_in(LEFT), words_in(RIGHT)
A, B = LEFTS[0], RIGHTS[0]


class Bells:
    def process_record(self, ctx, record):
        ctx.state += record.n
        ctx.set_timer("bell", record.timestamp + 100)
        ctx.set_timer("clock", record.timestamp, clock="wall")
        ctx.hold_watermark(record.timestamp)

    def process_timer(self, ctx, _):
        ctx.produce(COUNTS, word=ctx.key, n=ctx.state)


BELLS = pipeline(Bells, state=NUMBER)


def child(graph, range, *parents, shard=50):
    return successor(graph, Place(shard, "count", range, 2), SEED, parents)


def test_every_kind_of_node_has_its_kind_of_shard():
    graph = pipeline(Count)
    kinds = {node: type(new_shard(graph, Place(1, node, FULL, 1), SEED)) for node in graph.nodes}
    assert kinds == {"words-source": SourceShard, "count": RecordShard, "counts-sink": SinkShard}
    assert type(shard_of(pipeline(Pass, state=None, vectorised=True))) is BundleShard


ROWS = st.lists(st.tuples(st.sampled_from([*LEFTS, *RIGHTS, None]), st.integers(1, 9), st.integers(0, 50)), max_size=8)


def lived(range, rows, origin=1):
    shard = shard_of(BELLS, range=range)
    if rows:
        take(shard, *rows, origin=origin)
    return shard


@given(ROWS)
def test_a_split_shares_out_the_keys_with_all_that_belongs_to_them(rows):
    whole = lived(FULL, rows)
    before = picture(whole)
    children = [child(BELLS, half, lived(FULL, rows)) for half in (LEFT, RIGHT)]
    pictures = [picture(each) for each in children]

    def without_counts(rows):
        return {key: (state, [at for _, at, _ in bells], hold) for key, (state, bells, _, hold) in rows.items()}

    assert without_counts(pictures[0] | pictures[1]) == without_counts(before)
    assert not set(pictures[0]) & set(pictures[1])
    for half, each in zip((LEFT, RIGHT), children, strict=True):
        assert all(half.contains(each.key_position(key)) for key in picture(each))


@given(ROWS, ROWS)
def test_a_merge_has_the_keys_of_both(rows, others):
    one = lived(LEFT, [row for row in rows if row[0] in LEFTS])
    other = lived(RIGHT, [row for row in others if row[0] in RIGHTS])
    states = {**one.state.rows, **other.state.rows}
    fires = [shard.times.event.first() for shard in (one, other)]
    whole = child(BELLS, FULL, one, other)
    assert whole.state.rows == states
    assert whole.times.event.first() == min((at for at in fires if at is not None), default=None)


def test_a_child_saves_all_that_it_took_over():
    """Whoever keeps its pieces has none of it yet."""
    one, other = lived(LEFT, [(A, 1, 1)]), lived(RIGHT, [(B, 2, 1)])
    for parent in (one, other):  # what the parents had saved is the parents'
        parent.freeze()
        while parent.encode_slice(10):
            pass
    whole = child(BELLS, FULL, one, other)
    whole.freeze()
    rows = {decode_key(row.key): row for row in whole.encode_slice(10)}
    assert {key: msgspec.msgpack.decode(row.state) for key, row in rows.items()} == {A: 1, B: 2}
    assert all(row.event_timers and row.wall_timers and row.hold is not None for row in rows.values())


def test_what_went_to_another_is_not_saved_as_deleted():
    half = child(BELLS, LEFT, lived(FULL, [(A, 1, 1), (B, 2, 1)]))
    half.freeze()
    assert [decode_key(row.key) for row in half.encode_slice(10)] == [A]
    assert half.encode_slice(10) == []


def test_marks_are_the_least_of_the_parents():
    one, other = lived(LEFT, []), lived(RIGHT, [])
    advance(one, 10, outside=30)
    advance(other, 20, outside=25)
    whole = child(BELLS, FULL, one, other)
    assert (whole.mark, whole.outside, whole.output_mark()) == (10, 25, 25)


def test_what_a_parent_knew_its_children_know():
    sent = bundle((A, 1, 1), (B, 2, 2), (A, 3, 3), (B, 4, 4))
    parent = shard_of(pipeline(Count))
    parent.handle(BundleEntry(sent.part(0, 3), 0))
    seen = []
    for half in (LEFT, RIGHT):
        heir = child(pipeline(Count), half, parent)
        inside = heir._positions(sent)
        mine = sent.take(np.array([n for n, place in enumerate(inside.tolist()) if half.contains(place)]))
        entry = heir.handle(BundleEntry(mine, 0))
        seen += [] if entry is None else records_of(entry.bundle)
    assert [record[2] for record in seen] == [4]


def test_of_merged_parents_each_knows_its_own():
    """The left one was ahead of the right one: what the right one has not seen must not count as known."""
    sent = bundle((A, 1, 1), (B, 2, 2), (A, 3, 3), (B, 4, 4))
    graph = pipeline(Count)
    one, other = shard_of(graph, range=LEFT), shard_of(graph, range=RIGHT)
    one.handle(BundleEntry(sent.take(np.array([0, 2])), 0))
    whole = child(graph, FULL, one, other)
    entry = whole.handle(BundleEntry(sent, 0))
    assert [record[2] for record in records_of(entry.bundle)] == [2, 4]


def test_a_child_numbers_its_own_records_from_one():
    parent = shard_of(pipeline(Count))
    take(parent, (A, 1, 1), (A, 1, 1))
    parent.flush()
    heir = child(pipeline(Count), LEFT, parent, shard=51)
    take(heir, (A, 1, 1), first=3)
    assert records_of(*heir.flush()) == [("counts", 51, 1, A, 3, 1)]


def test_a_child_of_a_child_keeps_what_all_before_it_knew():
    graph = pipeline(Count)
    sent = bundle((A, 1, 1), (B, 2, 2))
    parent = shard_of(graph)
    parent.handle(BundleEntry(sent, 0))
    halves = [child(graph, half, parent) for half in (LEFT, RIGHT)]
    whole = child(graph, FULL, *halves)
    assert whole.handle(BundleEntry(sent, 0)) is None
    take(whole, (A, 1, 5), (B, 1, 5), first=3)
    assert rows_of(*whole.flush()) == [(A, 2, 5), (B, 2, 5)]


class Totals:
    def process_bundle(self, ctx, batch):
        rows = ctx.state.rows(batch.column("word"))
        np.add.at(ctx.state.n, rows, batch.column("n").to_numpy())
        ctx.hold_watermark(int(ctx.timestamps.min()))

    def process_watermark(self, ctx):
        ctx.produce_batch(COUNTS, {"word": ctx.state.keys, "n": ctx.state.n}, [0] * len(ctx.state.keys))


TOTALS = pipeline(Totals, state=ColumnState((("n", "int64"),)), vectorised=True)


def test_columns_are_shared_out_and_put_together_too():
    parent = shard_of(TOTALS)
    take(parent, *((word, place, 7 + place) for place, word in enumerate([A, B, None])))
    halves = [child(TOTALS, half, parent) for half in (LEFT, RIGHT)]
    found = [dict(zip(half.state.keys, half.state.n.tolist(), strict=True)) for half in halves]
    assert found[0] | found[1] == {A: 0, B: 1, None: 2}
    assert A in found[0]
    assert B in found[1]
    assert [half.hold() for half in halves] == [7, 7]
    whole = child(TOTALS, FULL, *halves)
    assert dict(zip(whole.state.keys, whole.state.n.tolist(), strict=True)) == {A: 0, B: 1, None: 2}


def test_of_two_holds_the_lesser_holds_the_merged_shard():
    one, other = shard_of(TOTALS, range=LEFT), shard_of(TOTALS, range=RIGHT)
    take(one, (A, 0, 30))
    take(other, (B, 0, 20))
    assert child(TOTALS, FULL, one, other).hold() == 20
    assert child(TOTALS, FULL, one, shard_of(TOTALS, range=RIGHT)).hold() == 30


def test_a_bundle_computation_without_state_is_split_too():
    class Echo:
        def process_bundle(self, ctx, batch):
            ctx.produce_batch(COUNTS, batch)

    graph = pipeline(Echo, state=None, vectorised=True)
    heir = child(graph, LEFT, shard_of(graph))
    take(heir, (A, 1, 1))
    assert rows_of(*heir.flush()) == [(A, 1, 1)]


def test_only_computations_are_split_and_merged():
    graph = pipeline(Count)
    sink = shard_of(graph, "counts-sink")
    with pytest.raises(AssertionError, match="only computations"):
        successor(graph, Place(50, "counts-sink", LEFT, 2), SEED, [sink])
