"""A shard of a window or a join, put back from a checkpoint, split or merged, gives what it would have given."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.unit.windows.driving import made_rows, same, source
from tidemill.core.computing import BundleShard
from tidemill.core.ids import RING, Epoch, Micros, ShardId
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.shard import Place
from tidemill.core.succession import new_shard, successor
from tidemill.core.table import SavedTable
from tidemill.testing.inputs import batch_of

AGGREGATES = {"n": "count", "total": ("sum", "n"), "least": ("min", "s"), "kinds": ("distinct", "s")}
SHAPES = {
    "tumbling": lambda rows, _: rows.window(tm.tumbling(20)).aggregate(**AGGREGATES),
    "sliding": lambda rows, _: rows.window(tm.sliding(20, every=8), two_phase=False).aggregate(**AGGREGATES),
    "corrected": lambda rows, _: rows.window(
        tm.tumbling(20), early=5, allowed_lateness=10, retract=True, two_phase=False
    ).aggregate(**AGGREGATES),
    "session": lambda rows, _: rows.window(tm.session(6)).aggregate(**AGGREGATES),
    "growing": lambda rows, _: rows.window(
        tm.session(6), early=5, allowed_lateness=10, retract=True, two_phase=False
    ).aggregate(**AGGREGATES),
    "count": lambda rows, _: rows.window(tm.count(3)).aggregate(**AGGREGATES),
    "join": lambda rows, others: rows.join(others, within=9),
}


class Saved:
    """A shard's checkpoints, as a mechanism would keep them: each piece once, in order."""

    def __init__(self):
        self.pieces = []

    def again(self, stage, name, shard, limit):
        shard.freeze()
        while more := shard.encode_slice(limit):
            self.pieces += more
        made = new_shard(stage.graph, shard.place, 0)
        assert isinstance(made, BundleShard)
        made.restore_head(shard.head())
        made.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(self.pieces), type=list[SavedTable]))
        return made


def split_and_merged(stage, name, shard, number, cut):
    """Both halves of its range, and one shard of both again: a new lineage each, like the routing makes them."""
    ranges = (KeyRange(0, cut), KeyRange(cut, RING))
    halves: list[Any] = [
        successor(stage.graph, Place(ShardId(number + place), name, part, Epoch(1)), 0, [shard])
        for place, part in enumerate(ranges)
    ]
    assert len(halves[0].state) + len(halves[1].state) == len(shard.state)
    return successor(stage.graph, Place(ShardId(number + 2), name, FULL, Epoch(1)), 0, halves)


def outcome(shape, rows, others, seed, disturb):
    marks, chance = random.Random(seed), random.Random(seed)
    pipeline = tm.Pipeline("test")
    left = source(pipeline).key_by("k", "f")
    right = source(pipeline, "others").select("k", "f", m="n", then="ts").key_by("k", "f")
    made = SHAPES[shape](left, right)
    made.to(tm.sinks.Collect())
    stage = tm.testing.Stage(pipeline)
    saved, number = Saved(), 100
    for place in range(0, len(rows), 4):
        for stream, given_rows in (("rows", rows), ("others", others)):
            stage.send_batch(stream, *batch_of(stage.graph, stream, given_rows[place : place + 4], Micros(0)))
        if marks.random() < 0.5:
            stage.advance_watermark(rows[place]["ts"])
        choice = chance.choice(["restore", "restore", "split", "nothing"])
        if disturb and choice != "nothing":
            name = next(name for name in stage._shards if name == made.label)
            shard = stage._shards[name]
            if choice == "restore":
                stage._shards[name] = saved.again(stage, name, shard, chance.choice([1, 3, 100]))
            else:
                number += 3
                stage._shards[name] = split_and_merged(stage, name, shard, number, chance.randrange(1, RING))
                saved = Saved()
    return stage.finish()[made.label]


@pytest.mark.parametrize("shape", SHAPES)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_nobody_sees_it(shape, seed):
    rows, others = made_rows(seed, 80, 60), made_rows(seed + 1, 80, 60)
    if shape not in ("corrected", "growing"):
        rows.sort(key=lambda row: row["ts"])
        others.sort(key=lambda row: row["ts"])
    calm = outcome(shape, rows, others, seed, disturb=False)
    assert calm or shape == "count"
    same(outcome(shape, rows, others, seed, disturb=True), calm)
