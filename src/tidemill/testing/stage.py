"""One process, one shard for each computation, and time that moves only when the test moves it.

A stage has no workers, no channels and no recovery: it hands records from shard to shard and raises marks until nothing
is left to do. The shards are the very ones that a live run uses, so state, timers, marks and late records behave alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemill.api.durations import duration
from tidemill.api.pipeline import Pipeline
from tidemill.core.bundle import Bundle, Int64s, new_bundle, times_of, with_times, without_times
from tidemill.core.computing import BundleShard, ComputationShard, RecordShard
from tidemill.core.context import micros
from tidemill.core.graph import Graph
from tidemill.core.ids import BEGINNING, END, LAST, Epoch, Micros, NodeName, Sequence, ShardId, StreamName
from tidemill.core.keys import FULL
from tidemill.core.order import BundleEntry, Entry, MarkEntry, WakeEntry
from tidemill.core.shard import Place
from tidemill.core.succession import new_shard
from tidemill.errors import TidemillError
from tidemill.testing.inputs import batch_of, produced_streams, source_of

ENDLESS = 100_000
"""So many wall timers without an end are taken for one that sets itself again for ever."""


class Row(dict[str, Any]):
    """A record that came out: a dict of its columns, with its event time beside them."""

    timestamp: Micros

    def __init__(self, columns: Mapping[str, Any], timestamp: Micros) -> None:
        super().__init__(columns)
        self.timestamp = timestamp


class Stage:
    """A pipeline to go through by hand.

    stage = Stage(pipeline)
    stage.send("words", {"word": "to", "at": 1})
    stage.advance_watermark(10)
    assert stage.outputs["counts"] == [{"word": "to", "n": 1}]
    """

    def __init__(self, pipeline: Pipeline, *, now: Any = 0, seed: int = 0) -> None:
        self.graph: Graph = pipeline.graph()
        self.now = micros(now)
        self.outputs: dict[str, list[Row]] = {stream: [] for stream in produced_streams(self.graph)}
        self._shards: dict[NodeName, ComputationShard] = {}
        for number, node in enumerate(self.graph.of_kind("computation")):
            shard = new_shard(self.graph, Place(ShardId(number + 1), node.name, FULL, Epoch(1)), seed)
            assert isinstance(shard, ComputationShard)
            self._shards[node.name] = shard
        self._marks: dict[NodeName, Micros] = {node.name: BEGINNING for node in self.graph.of_kind("source")}
        self._sent: dict[StreamName, int] = {}
        self._queue: deque[tuple[NodeName, Bundle]] = deque()

    # What a test does

    def send(self, stream: str, *rows: Mapping[str, Any]) -> None:
        """Lets records arrive, together; all that follows from them happens before this returns."""
        batch, times = batch_of(self.graph, stream, list(rows), self.now)
        self.send_batch(stream, batch, times)

    def send_batch(self, stream: str, batch: pa.RecordBatch, times: Int64s) -> None:
        name = source_of(self.graph, stream).outputs[0]
        if batch.num_rows == 0:
            return
        first = self._sent.get(name, 0) + 1
        self._sent[name] = first + batch.num_rows - 1
        wire = with_times(batch, times, self.graph.streams[name].wire_schema)
        self._route(new_bundle(name, ShardId(0), Sequence(first), wire))
        self._settle()

    def advance_watermark(self, to: Any, stream: str | None = None) -> None:
        """Nothing older will come from the source of this stream, or from any."""
        mark = END if to == END else micros(to)
        nodes = list(self._marks) if stream is None else [source_of(self.graph, stream).name]
        for node in nodes:
            self._marks[node] = Micros(max(self._marks[node], mark))
        self._settle()

    def advance_clock(self, by: Any) -> None:
        """Moves wall time on; timers of the wall clock fire on the way, in order."""
        until = Micros(self.now + duration(by, "advance_clock"))
        self._wake_until(until)
        self.now = until

    def finish(self) -> dict[str, list[Row]]:
        """The input has ended: all timers fire, those of the wall clock too. Gives the outputs."""
        self.advance_watermark(END)
        self._wake_until(LAST)
        self._settle()
        return self.outputs

    # What a test can look at

    def watermark(self, computation: str) -> Micros:
        return self._shard(computation).mark

    def state(self, computation: str, key: Any) -> Any:
        """What a computation holds for a key; `None` if nothing."""
        shard = self._shard(computation)
        if isinstance(shard, RecordShard):
            return shard.state.rows.get(key)
        assert isinstance(shard, BundleShard)
        return shard.state

    def late(self, computation: str) -> int:
        """How many records came behind the mark."""
        return self._shard(computation).late

    def _shard(self, computation: str) -> ComputationShard:
        for name, shard in self._shards.items():
            if name == computation:
                return shard
        raise TidemillError(f"no computation {computation!r}; there are: {', '.join(sorted(self._shards))}")

    # How it goes

    def _route(self, bundle: Bundle) -> None:
        if bundle.stream in self.outputs:
            rows = without_times(bundle.batch).to_pylist()
            times = times_of(bundle.batch).tolist()
            self.outputs[bundle.stream].extend(map(Row, rows, times))
        for subscription in self.graph.subscribers(bundle.stream):
            if subscription.consumer in self._shards:
                self._queue.append((subscription.consumer, bundle))

    def _handle(self, name: NodeName, entry: Entry) -> None:
        shard = self._shards[name]
        shard.handle(entry)
        for bundle in shard.flush():
            self._route(bundle)

    def _settle(self) -> None:
        """Everything that can happen now, happens: records first, then time."""
        while True:
            while self._queue:
                name, bundle = self._queue.popleft()
                self._handle(name, BundleEntry(bundle, self.now))
            if not self._raise_a_mark():
                return

    def _raise_a_mark(self) -> bool:
        """Raises the first mark that can rise; those behind it then see what it brought."""
        for name, shard in self._shards.items():
            mark, outside = self._input_marks(name)
            if mark > shard.mark or outside > shard.outside or shard.pending_timer():
                self._handle(name, MarkEntry(mark, outside, self.now))
                return True
        return False

    def _input_marks(self, name: NodeName) -> tuple[Micros, Micros]:
        graph = self.graph
        outside = min((self._output_mark(sender) for sender in graph.outside_senders[name]), default=END)
        mark = min((self._output_mark(sender) for sender in graph.senders[name]), default=END)
        return mark, outside

    def _output_mark(self, name: NodeName) -> Micros:
        """A node's mark; the nodes of a cycle have one together."""
        if name in self._marks:
            return self._marks[name]
        together = self.graph.cycles.get(name, (name,))
        return Micros(min(self._shards[member].output_mark() for member in together))

    def _wake_until(self, until: Micros) -> None:
        for _ in range(ENDLESS):
            due = [(wake, name) for name, shard in self._shards.items() if (wake := shard.next_wake()) is not None]
            wake, name = min(due, default=(END, NodeName("")))
            if wake > until:
                return
            self.now = Micros(max(self.now, wake))
            self._handle(name, WakeEntry(self.now))
            self._settle()
        raise TidemillError(f"more than {ENDLESS} wall timers fired: one seems to set itself again for ever")
