"""The validated pipeline, as plain values: what the core is told of the user's program.

`tidemill.api` builds a `Graph` and proves it sound; nothing here checks again. A graph is made of nodes (sources,
computations, sinks), the streams between them, and one subscription for each stream that a node reads. From these the
graph derives what the protocols need to know: who sends to whom, in which order nodes lie, which subscriptions close a
cycle, and which nodes form a cycle together.

Every record batch that travels has the columns of its stream's schema, in order, and behind them `TIME_COLUMN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from tidemill.core.ids import Micros, NodeName, StreamName

TIME_COLUMN: Final = "__at"
TIME_TYPE: Final = pa.int64()

NodeKind = Literal["source", "computation", "sink"]

LateChoice = Literal["drop", "process", "divert", "self"]
"""With "self" the computation, a vectorised one, judges what is late by its own measure."""


@dataclass(frozen=True)
class Stream:
    name: StreamName
    schema: pa.Schema

    @cached_property
    def wire_schema(self) -> pa.Schema:
        """The schema of the batches that travel: the user's columns, then the event time."""
        return self.schema.append(pa.field(TIME_COLUMN, TIME_TYPE, nullable=False))


@dataclass(frozen=True)
class Key:
    """How a subscriber finds a record's key: columns of the stream, or a function of the record.

    With neither, the records are not keyed: they go where their origin's place on the ring says (sinks read so).
    """

    columns: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] = ()
    function: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Late:
    """What becomes of a record behind the mark: one choice for all, or the user's choice for each."""

    choice: LateChoice = "drop"
    stream: StreamName | None = None  # where diverted records go
    choose: Callable[[Any, Micros], LateChoice] | None = None  # (record, watermark) -> choice


@dataclass(frozen=True)
class Subscription:
    stream: StreamName
    consumer: NodeName
    key: Key
    late: Late = Late()


class OutputPort(Protocol):
    """What user code hands to `ctx.produce`: the `Output` it declared. Compared by identity."""

    @property
    def stream(self) -> str: ...


class Program(Protocol):
    """The user's computation, as the core calls it. One instance serves one shard."""

    def process_record(self, ctx: Any, record: Any) -> None: ...

    def process_timer(self, ctx: Any, timer: Any) -> None: ...

    def process_bundle(self, ctx: Any, batch: Any) -> None: ...

    def process_watermark(self, ctx: Any) -> None: ...


@dataclass(frozen=True)
class RowState:
    """Typed state, one value a key."""

    type: Any
    make: Callable[[], Any]


@dataclass(frozen=True)
class ColumnState:
    """State in columns, one row a key, for vectorised computations."""

    fields: tuple[tuple[str, str], ...]  # (column, numpy dtype)


@dataclass(frozen=True)
class TableState:
    """State in rows of an Arrow table, as many a key as wanted, for vectorised computations."""

    schema: pa.Schema
    keys: tuple[str, ...]  # the columns whose place on the ring is the row's
    due: str  # an int64 column: when the row will be asked for


@dataclass(frozen=True)
class InSql:
    """What a computation without state does, in the words of Spark SQL, so that a plan may let Spark do it.

    It has one input, and groups its records: one record leaves for each group. Pairs are a column and its expression.
    """

    groups: tuple[tuple[str, str], ...]
    aggregates: tuple[tuple[str, str], ...]
    time: str


@dataclass(frozen=True)
class Node:
    name: NodeName
    kind: NodeKind
    outputs: tuple[StreamName, ...] = ()
    ports: tuple[OutputPort, ...] = ()  # for each output, the object that user code names it by
    make: Callable[[], Program] | None = None
    state: RowState | ColumnState | TableState | None = None
    vectorised: bool = False
    handle: Any = None  # a source's or a sink's own object, for the host
    declared_at: str = ""
    reads: Mapping[str, tuple[str, ...]] | None = None  # by stream, the columns that it looks at; None: all of them
    in_sql: InSql | None = None
    initial: Any = None  # where the host finds what the state begins with; None: nothing


@dataclass(frozen=True)
class Graph:
    name: str
    streams: dict[StreamName, Stream]
    nodes: dict[NodeName, Node]
    subscriptions: tuple[Subscription, ...]
    _by_stream: dict[StreamName, tuple[Subscription, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_stream = {name: tuple(s for s in self.subscriptions if s.stream == name) for name in self.streams}
        object.__setattr__(self, "_by_stream", by_stream)

    def subscribers(self, stream: StreamName) -> tuple[Subscription, ...]:
        return self._by_stream[stream]

    def subscription(self, consumer: NodeName, stream: StreamName) -> Subscription:
        return next(s for s in self._by_stream[stream] if s.consumer == consumer)

    def of_kind(self, kind: NodeKind) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.kind == kind)

    @cached_property
    def producers(self) -> dict[StreamName, tuple[NodeName, ...]]:
        return {name: tuple(n.name for n in self.nodes.values() if name in n.outputs) for name in self.streams}

    @cached_property
    def senders(self) -> dict[NodeName, tuple[NodeName, ...]]:
        """For each node, the nodes that send to it."""
        found: dict[NodeName, dict[NodeName, None]] = {name: {} for name in self.nodes}
        for subscription in self.subscriptions:
            found[subscription.consumer].update(dict.fromkeys(self.producers[subscription.stream]))
        return {name: tuple(senders) for name, senders in found.items()}

    @cached_property
    def receivers(self) -> dict[NodeName, tuple[NodeName, ...]]:
        """For each node, the nodes it sends to."""
        return {name: tuple(other for other in self.nodes if name in self.senders[other]) for name in self.nodes}

    @cached_property
    def cycles(self) -> dict[NodeName, tuple[NodeName, ...]]:
        """For each node on a cycle, all nodes of its cycle (its strongly connected component), itself included."""
        reach = {name: self._reachable(name) for name in self.nodes}
        return {
            name: tuple(other for other in self.nodes if other in reach[name] and name in reach[other])
            for name in self.nodes
            if name in reach[name]
        }

    def _reachable(self, start: NodeName) -> dict[NodeName, None]:
        found: dict[NodeName, None] = {}
        open_ends = list(self.receivers[start])
        while open_ends:
            name = open_ends.pop()
            if name not in found:
                found[name] = None
                open_ends.extend(self.receivers[name])
        return found

    @cached_property
    def outside_senders(self) -> dict[NodeName, tuple[NodeName, ...]]:
        """For each node, those that send to it and are not on its cycle."""
        return {
            name: tuple(sender for sender in senders if sender not in self.cycles.get(name, ()))
            for name, senders in self.senders.items()
        }

    @cached_property
    def back_edges(self) -> frozenset[tuple[NodeName, NodeName]]:
        """The edges that close a cycle: those that meet a node still open in a depth-first walk from the sources."""
        found: list[tuple[NodeName, NodeName]] = []
        state: dict[NodeName, Literal["open", "done"]] = {}

        def walk(name: NodeName) -> None:
            state[name] = "open"
            for receiver in self.receivers[name]:
                if state.get(receiver) == "open":
                    found.append((name, receiver))
                elif receiver not in state:
                    walk(receiver)
            state[name] = "done"

        for node in (*self.of_kind("source"), *self.nodes.values()):
            if node.name not in state:
                walk(node.name)
        return frozenset(found)
