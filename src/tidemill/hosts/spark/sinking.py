"""A worker's sinks: hands records to the sink's writers, or gathers them for the driver.

A sink of its own has a writer for each shard and epoch; what it was given becomes visible when a commit lists it. What
is gathered for the driver travels there: at once where nothing can be taken back (`recovery=None`), else as a piece of
the commit. What the driver has not taken yet is bounded: beyond that this worker stands still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tidemill.core import effects, events
from tidemill.core.bundle import without_times
from tidemill.core.graph import Graph, Node
from tidemill.core.ids import Epoch, NodeName, Peer, ShardId
from tidemill.errors import RunError, TidemillError
from tidemill.hosts.loop import Loop, MakeEvent
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.orders import Gathered
from tidemill.ports import SinkWriter

AHEAD: Final = 64 * 1024 * 1024
"""How many bytes a worker gathers before the driver has taken them."""


class Sinking:
    def __init__(
        self,
        me: Peer,
        graph: Graph,
        node_of: Callable[[ShardId], Node | None],
        loop: Loop,
        send: Callable[[protocol.Gathered], None],
        *,
        at_once: bool,
    ) -> None:
        self._me = me
        self._graph = graph
        self._node_of = node_of
        self._loop = loop
        self._send = send
        self._at_once = at_once
        self._writers: dict[tuple[ShardId, Epoch], SinkWriter] = {}
        self._preparing: dict[tuple[ShardId, Epoch], list[pa.RecordBatch]] = {}  # what came while the writer was busy
        self._held: dict[tuple[ShardId, Epoch], list[pa.RecordBatch]] = {}
        self._gathered: dict[NodeName, list[pa.RecordBatch]] = {}
        self._number = 0
        self._untaken: dict[int, int] = {}

    def stage(self, effect: effects.Stage) -> None:
        node = self._node_of(effect.shard)
        assert node is not None, "the shard's own worker stages"
        batch = without_times(effect.bundle.batch)
        if not isinstance(node.handle, Gathered):
            self._write(node, (effect.shard, effect.epoch), batch)
        elif self._at_once:
            self._gathered.setdefault(node.name, []).append(batch)
        else:
            self._held.setdefault((effect.shard, effect.epoch), []).append(batch)

    def _write(self, node: Node, key: tuple[ShardId, Epoch], batch: pa.RecordBatch) -> None:
        waiting = self._preparing.get(key)
        if waiting is not None:
            waiting.append(batch)
            return
        with Blame(node):
            writer = self._writers.get(key)
            if writer is None:
                writer = self._writers[key] = node.handle.open(_schema(self._graph, node), f"{key[0]}-{key[1]}")
            writer.write(batch)

    def send_gathered(self) -> None:
        """Called when there is nothing else to do, and with every tick."""
        for name, batches in self._gathered.items():
            self._number += 1
            data = stream_of(batches)
            self._untaken[self._number] = len(data)
            self._send(protocol.Gathered(self._me.worker, self._me.incarnation, self._number, name, data))
        self._gathered.clear()

    def taken(self, number: int) -> None:
        for known in [known for known in self._untaken if known <= number]:
            del self._untaken[known]

    @property
    def full(self) -> bool:
        """The driver is so far behind that this worker must wait for it."""
        return sum(self._untaken.values()) > AHEAD

    def close_stage(self, effect: effects.CloseStage) -> None:
        node = self._node_of(effect.shard)
        assert node is not None, "the shard's own worker closes its stage"
        key = effect.shard, effect.epoch
        if isinstance(node.handle, Gathered):
            batches = self._held.pop(key, [])
            self.send_gathered()
            piece = stream_of(batches) if batches else b""
            self._loop.tell(lambda now: events.SealDone(now, *key, piece, effect.round))
            return
        assert key not in self._preparing, "the core asks for one piece after the other"
        writer = self._writers.get(key)
        if writer is None:
            self._loop.tell(lambda now: events.SealDone(now, *key, b"", effect.round))
            return
        self._preparing[key] = []

        def prepare() -> bytes:
            with Blame(node):
                return writer.prepare()

        def prepared(piece: bytes) -> MakeEvent:
            self._loop.post(lambda: self._go_on(node, key))
            return lambda now: events.SealDone(now, *key, piece, effect.round)

        self._loop.aside(prepare, prepared)

    def _go_on(self, node: Node, key: tuple[ShardId, Epoch]) -> None:
        """What came meanwhile is for the next piece."""
        for batch in self._preparing.pop(key):
            self._write(node, key, batch)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class Blame:
    """Says of what a sink raises which sink it was."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            where = f"[in {self._node.name}, declared at {self._node.declared_at}]"
            if isinstance(error, TidemillError):
                raise type(error)(f"{error} {where}") from error
            raise RunError(f"the sink raised {type(error).__name__}: {error} {where}") from error


def _schema(graph: Graph, node: Node) -> pa.Schema:
    stream = next(s.stream for s in graph.subscriptions if s.consumer == node.name)
    return graph.streams[stream].schema


def stream_of(batches: list[pa.RecordBatch]) -> bytes:
    into = pa.BufferOutputStream()
    with pa.ipc.new_stream(into, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    data: bytes = into.getvalue().to_pybytes()
    return data


def batches_of(data: bytes) -> list[pa.RecordBatch]:
    return pa.ipc.open_stream(data).read_all().to_batches() if data else []


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
