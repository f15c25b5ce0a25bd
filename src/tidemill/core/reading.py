"""Reading a source: what to ask the host for, and what its answer means for the shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Bundle, new_bundle, with_times
from tidemill.core.effects import Read
from tidemill.core.events import ReadDone
from tidemill.core.hosted import Hosted
from tidemill.core.ids import END, LAST, Micros
from tidemill.core.order import ReadEntry
from tidemill.core.routing import Routing
from tidemill.core.shard import SourceShard


def read_on(hosted: Hosted, routing: Routing, limit: int) -> Read:
    """Asks for what follows. A shard's split is its place among its node's routes, which are never split or merged."""
    assert hosted.shard is not None
    shards = [route.shard for route in routing.of_node(hosted.node.name)]
    return Read(hosted.id, hosted.adoption.epoch, shards.index(hosted.id), hosted.shard.position, limit)


def what_was_read(shard: SourceShard, event: ReadDone) -> ReadEntry | None:
    """The entry for the shard; `None` if nothing has changed."""
    mark = event.mark
    if event.times is None and mark != END:
        mark = _arrival(shard, event.now)
    bundle = _bundle(shard, event) if event.batch is not None and event.batch.num_rows else None
    malformed = _malformed(shard, event.malformed) if event.malformed is not None else None
    nothing = bundle is None and malformed is None and event.position == shard.position
    if nothing and mark <= shard.mark and event.idle == shard.idle:
        return None
    return ReadEntry(bundle, event.position, mark, event.idle, event.now, malformed)


def _malformed(shard: SourceShard, read: pa.RecordBatch) -> Bundle:
    """It has no event time that could be read; it bears one that is not late."""
    stream = shard.graph.streams[shard.node.outputs[1]]
    batch = with_times(read, np.full(read.num_rows, min(shard.mark, LAST), np.int64), stream.wire_schema)
    return new_bundle(stream.name, shard.place.shard, shard.next_malformed, batch)


def _bundle(shard: SourceShard, event: ReadDone) -> Bundle:
    stream = shard.graph.streams[shard.node.outputs[0]]
    times = event.times
    assert event.batch is not None
    if times is None:
        times = np.full(event.batch.num_rows, _arrival(shard, event.now), np.int64)
    batch = with_times(event.batch, times, stream.wire_schema)
    return new_bundle(stream.name, shard.place.shard, shard.next_sequence, batch)


def _arrival(shard: SourceShard, now: Micros) -> Micros:
    """The event time of what arrives now. A clock that is behind the one before it must not make records late."""
    return Micros(min(max(now, shard.mark), LAST))
