"""What a plan's tasks do: read a source to its end, or run one computation's shard over sorted input.

A task is a value that Spark pickles: the part of the pipeline that it needs, and what to do with it. It is given Arrow
batches and gives Arrow batches. A task that Spark repeats gives the same again, as far as the user's code does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from tidemill.core.bundle import new_bundle, with_times
from tidemill.core.graph import Graph, Node, Stream, Subscription
from tidemill.core.ids import Epoch, Micros, NodeName, Sequence, ShardId, StreamName
from tidemill.core.intime import InTime
from tidemill.core.keying import Keying
from tidemill.core.keys import FULL
from tidemill.core.shard import Place
from tidemill.errors import RunError
from tidemill.hosts.spark import initial
from tidemill.hosts.spark.attendance import import_paths, pickled
from tidemill.ports import ARRIVAL

POSITION: Final = "__position"
STREAM: Final = "__stream"

READ: Final = 65_536
GATHERED_ROWS: Final = 2**20
GATHERED_BYTES: Final = 64 * 1024 * 1024

PATIENCE: Final = 60.0
"""Seconds in which a source that has not ended must have something."""

What = Literal["read", "run", "place", "state"]


def alone(graph: Graph, node: Node, *, handle: bool = False) -> Graph:
    """The part of the pipeline that a task of this node needs; without the driver's own objects."""
    subscriptions = tuple(s for s in graph.subscriptions if s.consumer == node.name)
    streams = {name: graph.streams[name] for name in (*node.outputs, *(s.stream for s in subscriptions))}
    kept = node if handle else replace(node, handle=None)
    return Graph(graph.name, streams, {node.name: kept}, subscriptions)


@dataclass(frozen=True)
class Task:
    """One node's work in one partition."""

    graph: Graph
    name: NodeName
    now: Micros
    seed: int
    what: What
    together: bool = False  # several streams come in, each in a column of its own
    until: Micros | None = None
    of_stream: StreamName | None = None

    def shipped(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """What `mapInArrow` is given: a function that finds Tidemill before it opens what needs it."""
        data, paths = pickled(self), import_paths()

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pickle

            sys.path.extend(path for path in paths if path not in sys.path)
            task = pickle.loads(data)  # noqa: S301 - of the driver, in Spark's own closure
            yield from task(batches)

        return run

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        do = {"read": self._read, "run": self._run, "place": self._place, "state": self._state}[self.what]
        return do(batches)

    @property
    def _node(self) -> Node:
        return self.graph.nodes[self.name]

    # A source

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = self._node.handle
        splits = source.splits()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                reader = source.open(splits[place], 0)
                try:
                    yield from self._read_all(reader)
                finally:
                    reader.close()

    def _read_all(self, reader: Any) -> Iterator[pa.RecordBatch]:
        arrival = self._node.handle.timestamp == ARRIVAL
        patient_until = time.monotonic() + PATIENCE
        while True:
            chunk = reader.read(READ)
            times = np.full(chunk.batch.num_rows, self.now, np.int64) if arrival else chunk.times
            read = [with_times(chunk.batch, times, self._wire(0))]
            if chunk.malformed is not None:
                mark = np.full(chunk.malformed.num_rows, self.now, np.int64)
                read.append(with_times(chunk.malformed, mark, self._wire(1)))
            for place, part in enumerate(read):
                if part.num_rows:
                    yield self._sent(place, part)
                    patient_until = time.monotonic() + PATIENCE
            if chunk.ended:
                return
            if not chunk.batch.num_rows:
                if time.monotonic() > patient_until:
                    raise RunError(
                        f"the source of {self._node.outputs[0]!r} (declared at {self._node.declared_at}) has not ended "
                        f"and gave nothing for {PATIENCE:.0f} s; a plan needs all of its input"
                    )
                time.sleep(min(max(chunk.wait / 1e6, 0.001), 1.0))

    def _wire(self, place: int) -> pa.Schema:
        return self.graph.streams[self._node.outputs[place]].wire_schema

    # A computation

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        running = self._running()
        yield from self._fed(running, batches)
        for _ in running.end():
            yield from self._flushed(running)

    def _running(self) -> InTime:
        from pyspark import TaskContext

        context = TaskContext.get()
        lineage = ShardId(1 + (context.partitionId() if context is not None else 0))
        return InTime(self.graph, Place(lineage, self.name, FULL, Epoch(1)), self.seed, self.now)

    def _fed(self, running: InTime, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers: dict[StreamName, int] = {}
        for batch in _gathered(batches) if self._node.vectorised else batches:
            for stream, part in self._parts(batch):
                first = numbers.get(stream.name, 1)
                numbers[stream.name] = first + part.num_rows
                running.feed(new_bundle(stream.name, ShardId(0), Sequence(first), part))
                yield from self._flushed(running)

    def _flushed(self, running: InTime) -> Iterator[pa.RecordBatch]:
        outputs = self._node.outputs
        for bundle in running.shard.flush():
            yield self._sent(outputs.index(bundle.stream), bundle.batch)

    def _sent(self, place: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As the plan's DataFrames have it: the stream's own columns, or a struct for each of several streams."""
        if len(self._node.outputs) == 1:
            return batch
        columns = [pa.array(np.full(batch.num_rows, place, np.int32))]
        fields = [pa.field(STREAM, pa.int32())]
        for other in range(len(self._node.outputs)):
            type = pa.struct(list(self._wire(other)))
            fields.append(pa.field(f"s{other}", type))
            columns.append(batch.to_struct_array() if other == place else pa.nulls(batch.num_rows, type))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Stream, pa.RecordBatch]]:
        """The runs of records of one stream, in order."""
        if batch.num_rows == 0:
            return
        streams = [self.graph.streams[s.stream] for s in self.graph.subscriptions]
        if not self.together:
            yield streams[0], as_wire(batch, streams[0])
            return
        which = batch.column(0).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
        for start, end in pairwise(bounds):
            stream = streams[int(which[start])]
            struct = batch.column(2 + int(which[start])).slice(start, end - start)
            arrays = [*struct.flatten(), batch.column(1).slice(start, end - start)]
            yield stream, as_wire(pa.RecordBatch.from_arrays(arrays, names=stream.wire_schema.names), stream)

    # Where keys of the user's own function lie

    def _place(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subscription: Subscription = self.graph.subscription(self.name, self.of_stream)  # type: ignore[arg-type]
        stream = self.graph.streams[subscription.stream]
        keying = Keying(subscription.key, stream)
        for batch in batches:
            wire = as_wire(batch, stream)
            positions = pa.array(keying.positions(wire).view(np.int64))
            yield pa.RecordBatch.from_arrays([*wire.columns, positions], names=[*wire.schema.names, POSITION])

    # What is left at the end

    def _state(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        running = self._running()
        for _ in self._fed(running, batches):
            continue  # what it produced on the way is history
        if self.until is not None:
            for _ in running.until(self.until):
                running.shard.flush()
        yield from initial.saved(running.shard, running.shard.place.shard)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fewer and larger batches than Spark's own: what is computed for whole bundles costs less the larger they are."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def as_wire(batch: pa.RecordBatch, stream: Stream) -> pa.RecordBatch:
    """Spark's own columns as the core knows them.

    A timestamp bears the session's zone there, and UTC's here; a column that nobody looks at did not come.
    """
    wanted = stream.wire_schema
    if batch.schema.equals(wanted):
        return batch
    arrays = []
    for field in wanted:
        place = batch.schema.get_field_index(field.name)
        column = batch.column(place) if place >= 0 else pa.nulls(batch.num_rows, field.type)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
