"""A shard: one node of the graph over one key range, the unit of ownership, state, recovery and movement.

A shard is a function of its order log: `handle(entry)` is the only thing that changes it, and handling the same
entries again gives the same shard and the same records with the same identities. What it produced is taken by
`flush`. It knows no worker, no channel and no mechanism.

There are three kinds, one for each kind of node: `ComputationShard` runs user code, `SourceShard` stands for one
split of a source, `SinkShard` passes records on to the sink. This module holds what they share and the two simple
ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tidemill.core.bundle import Bundle, join
from tidemill.core.graph import Graph, Node
from tidemill.core.identities import Identities, SavedPiece
from tidemill.core.ids import BEGINNING, END, LAST, Epoch, Micros, NodeName, Sequence, ShardId, StreamName
from tidemill.core.keying import Keying, origin_position
from tidemill.core.keys import KeyRange
from tidemill.core.order import BundleEntry, Entry, MarkEntry, ReadEntry
from tidemill.core.outbox import Outbox


class Place(NamedTuple):
    """Which shard: of which node, over which range, of which lineage, under which epoch."""

    shard: ShardId
    node: NodeName
    range: KeyRange
    epoch: Epoch


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint holds of a shard beside the rows of its keys."""

    mark: Micros
    outside: Micros
    events: int
    position: int  # a source's
    late: int
    hold: Micros | None  # of a vectorised computation
    identities: list[SavedPiece]
    sequences: dict[StreamName, Sequence]


class Shard:
    """What all kinds share: identities, marks, outboxes."""

    def __init__(self, graph: Graph, place: Place) -> None:
        self.graph = graph
        self.place = place
        self.node: Node = graph.nodes[place.node]
        self.mark = BEGINNING
        self.outside = BEGINNING
        self.events = 0
        self.position = 0
        self.late = 0
        self.identities = Identities(place.range)
        self.boxes = {stream: Outbox(graph.streams[stream], place.shard) for stream in self.node.outputs}
        self.keyings: dict[StreamName, Keying] = {
            s.stream: Keying(s.key, graph.streams[s.stream])
            for s in graph.subscriptions
            if s.consumer == self.node.name
        }

    def handle(self, entry: Entry) -> Entry | None:
        """Takes the next event. Gives it back as it took effect; `None` if all of it was known already."""
        raise NotImplementedError

    def output_mark(self) -> Micros:
        """No record that this shard will yet produce is older, unless its cause is still to arrive inside a cycle."""
        return self.outside

    def next_wake(self) -> Micros | None:
        """When wall timers are due."""
        return None

    def pending_timer(self) -> bool:
        """Whether event timers are due at the present mark: a slice of them fired and more are left."""
        return False

    def hold(self) -> Micros | None:
        """What a vectorised computation holds the output mark at, for the whole shard."""
        return None

    @property
    def produced(self) -> int:
        """How many records wait in the outboxes."""
        waiting = 0
        for box in self.boxes.values():
            waiting += box.size
        return waiting

    def flush(self) -> list[Bundle]:
        return [bundle for box in self.boxes.values() if (bundle := box.flush()) is not None]

    def admit(self, bundle: Bundle) -> Bundle | None:
        return self.identities.admit(bundle, self._positions)

    def _positions(self, bundle: Bundle) -> Any:
        keying = self.keyings[bundle.stream]
        if keying.keyed:
            return keying.positions(bundle.batch)
        return pa.array([origin_position(bundle.origin)] * bundle.rows, pa.uint64()).to_numpy()

    def head(self) -> Head:
        assert self.produced == 0, "a checkpoint lies between flushes"
        sequences = {stream: box.sequence for stream, box in self.boxes.items()}
        return Head(
            self.mark,
            self.outside,
            self.events,
            self.position,
            self.late,
            self.hold(),
            self.identities.save(),
            sequences,
        )

    def restore_head(self, head: Head) -> None:
        self.mark, self.outside, self.events = head.mark, head.outside, head.events
        self.position, self.late = head.position, head.late
        self.identities = Identities.load(head.identities)
        for stream, sequence in head.sequences.items():
            if stream in self.boxes:
                self.boxes[stream].sequence = sequence


class SourceShard(Shard):
    """One split of a source. Its records' identities are their offsets: rewinding gives the same ones again."""

    def __init__(self, graph: Graph, place: Place) -> None:
        super().__init__(graph, place)
        self.idle = False
        self.next_sequence = Sequence(1)
        self.next_malformed = Sequence(1)  # on the stream that what could not be read is diverted to
        self._read: list[Bundle] = []
        self._malformed: list[Bundle] = []

    def handle(self, entry: Entry) -> Entry | None:
        assert isinstance(entry, ReadEntry)
        assert entry.position >= self.position, "a source never goes back by itself"
        if entry.bundle is not None:
            self._read.append(entry.bundle)
            self.next_sequence = Sequence(self.next_sequence + entry.bundle.rows)
        if entry.malformed is not None:
            self._malformed.append(entry.malformed)
            self.next_malformed = Sequence(self.next_malformed + entry.malformed.rows)
        self.events += 1
        self.position = entry.position
        self.idle = entry.idle
        self.mark = self.outside = Micros(max(self.mark, entry.mark))
        return entry

    @property
    def produced(self) -> int:
        return sum(bundle.rows for bundles in (self._read, self._malformed) for bundle in bundles)

    def flush(self) -> list[Bundle]:
        read, self._read = self._read, []
        malformed, self._malformed = self._malformed, []
        return [join(bundles) for bundles in (read, malformed) if bundles]

    @property
    def ended(self) -> bool:
        return self.mark == END

    def head(self) -> Head:
        head = super().head()
        numbers = (self.next_sequence, self.next_malformed)
        return msgspec.structs.replace(head, sequences=dict(zip(self.node.outputs, numbers, strict=False)))

    def restore_head(self, head: Head) -> None:
        super().restore_head(head)
        read, *malformed = self.node.outputs
        self.next_sequence = head.sequences[read]
        for stream in malformed:
            self.next_malformed = head.sequences[stream]


class SinkShard(Shard):
    """A sink's part of the ring. What it handled waits in `accepted` for the worker to hand on."""

    def __init__(self, graph: Graph, place: Place) -> None:
        super().__init__(graph, place)
        self.accepted: list[Bundle] = []

    def handle(self, entry: Entry) -> Entry | None:
        if isinstance(entry, MarkEntry):
            self.events += 1
            self.mark = Micros(max(self.mark, entry.mark))
            self.outside = Micros(max(self.outside, entry.outside))
            return entry
        assert isinstance(entry, BundleEntry)
        fresh = self.admit(entry.bundle)
        if fresh is None:
            return None
        self.events += 1
        self.accepted.append(fresh)
        return entry if fresh is entry.bundle else BundleEntry(fresh, entry.now)

    def take_accepted(self) -> list[Bundle]:
        accepted, self.accepted = self.accepted, []
        return accepted


def held(mark: Micros, first_timer: Micros | None, first_hold: Micros | None, *, wall_pending: bool) -> Micros:
    """An output mark from what holds it back. A wall timer holds back nothing but the end."""
    if first_timer is not None and first_timer < mark:
        mark = first_timer
    if first_hold is not None and first_hold < mark:
        mark = first_hold
    return LAST if wall_pending and mark == END else mark
