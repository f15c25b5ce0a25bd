"""Small pipelines as plain values, the records that flow in them, and shards of them.

All streams have the columns `word` and `n`, and are keyed by `word` unless a test says otherwise. A pipeline reads
"words", and what user code calls `COUNTS`, `AGAIN` and `LATE` are the streams it may produce.
"""

# mypy: disable-error-code="arg-type, dict-item, list-item"
# The names of streams and nodes are plain text here, and a program needs only the methods that are called.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Bundle, new_bundle, times_of, with_times
from tidemill.core.graph import Graph, Key, Late, Node, RowState, Stream, Subscription
from tidemill.core.ids import Epoch
from tidemill.core.keys import FULL, KeyRange, even_ranges, ring_position
from tidemill.core.order import BundleEntry, MarkEntry, WakeEntry
from tidemill.core.shard import Place
from tidemill.core.succession import new_shard

SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])
BY_WORD = Key(("word",), (pa.string(),))
NO_KEY = Key()
SEED = 7


class Port:
    def __init__(self, stream: str) -> None:
        self.stream = stream


COUNTS, AGAIN, LATE = Port("counts"), Port("again"), Port("late")


@dataclass
class Seen:
    n: int = 0
    words: list[str] = field(default_factory=list)


SEEN = RowState(Seen, Seen)
NUMBER = RowState(int, int)


class Pass:
    """Sends on what comes."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce(COUNTS, word=record.word, n=record.n)


class Count:
    """Numbers the records of each word."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(COUNTS, word=record.word, n=ctx.state.n)


class Hop:
    """Sends a record round the loop `n` times, then out."""

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.n > 0:
            ctx.produce(AGAIN, word=record.word, n=record.n - 1)
        else:
            ctx.produce(COUNTS, word=record.word, n=0)


def pipeline(
    make: Callable[[], Any] = Count,
    *,
    state: Any = SEEN,
    key: Key = BY_WORD,
    late: Late | None = None,
    loop: bool = False,
    vectorised: bool = False,
    sources: tuple[str, ...] = ("words",),
    sinks: tuple[str, ...] = ("counts",),
) -> Graph:
    """Sources, one computation called "count", and a sink for each stream of `sinks`."""
    late = late or Late()
    ports = (COUNTS, *((AGAIN,) if loop else ()), *((LATE,) if late.stream == "late" else ()))
    outputs = tuple(port.stream for port in ports)
    nodes = {f"{name}-source": Node(f"{name}-source", "source", (name,)) for name in sources}
    nodes["count"] = Node(
        "count", "computation", outputs, ports, make, state, vectorised=vectorised, declared_at="here.py:1"
    )
    nodes |= {f"{name}-sink": Node(f"{name}-sink", "sink") for name in sinks}
    reads = (*sources, "again") if loop else sources
    return Graph(
        "test",
        {name: Stream(name, SCHEMA) for name in (*sources, *outputs)},
        nodes,
        (
            *(Subscription(name, "count", key, late) for name in reads),
            *(Subscription(name, f"{name}-sink", NO_KEY) for name in sinks),
        ),
    )


def chain(*makes: Callable[[], Any], state: Any = SEEN) -> Graph:
    """A source, computations "step-1", "step-2" ... one behind the other, and a sink."""
    names = [f"step-{place}" for place in range(1, len(makes) + 1)]
    ports = [Port(f"from-{name}") for name in names]
    nodes = {"words-source": Node("words-source", "source", ("words",))}
    streams = {"words": Stream("words", SCHEMA)}
    subscriptions = []
    before = "words"
    for name, port, make in zip(names, ports, makes, strict=True):
        # User code says COUNTS wherever it stands.
        nodes[name] = Node(name, "computation", (port.stream,), (COUNTS,), make, state)
        streams[port.stream] = Stream(port.stream, SCHEMA)
        subscriptions.append(Subscription(before, name, BY_WORD))
        before = port.stream
    nodes["sink"] = Node("sink", "sink")
    subscriptions.append(Subscription(before, "sink", NO_KEY))
    return Graph("test", streams, nodes, tuple(subscriptions))


def cycle(*makes: Callable[[], Any]) -> Graph:
    """Computations "step-1" and "step-2" that send to each other, behind a source."""
    made = chain(*(makes or (Count, Count)))
    back = Subscription("from-step-2", "step-1", BY_WORD)
    return replace(made, subscriptions=(*made.subscriptions, back))


# Records


def batch(*rows: tuple[str | None, int]) -> pa.RecordBatch:
    """As the user's schema says, without times."""
    return pa.RecordBatch.from_pylist([{"word": word, "n": n} for word, n in rows], schema=SCHEMA)


def wire_batch(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    times = np.array([at for _, _, at in rows], np.int64)
    return with_times(batch(*((word, n) for word, n, _ in rows)), times, Stream("words", SCHEMA).wire_schema)


def bundle(*rows: tuple[str | None, int, int], stream: str = "words", origin: int = 1, first: int = 1) -> Bundle:
    """Of rows (word, n, event time), with sequences that follow on each other."""
    return new_bundle(stream, origin, first, wire_batch(*rows))


def rows_of(*bundles: Bundle | None) -> list[tuple[str | None, int, int]]:
    """The rows (word, n, event time) of bundles."""
    found = []
    for each in bundles:
        if each is not None:
            words, numbers = each.batch.column(0).to_pylist(), each.batch.column(1).to_pylist()
            found += list(zip(words, numbers, times_of(each.batch).tolist(), strict=True))
    return found


def records_of(*bundles: Bundle) -> list[tuple[str, int, int, str | None, int, int]]:
    """Each record with its identity: stream, origin, sequence, and the row."""
    return [
        (each.stream, each.origin, sequence, *row)
        for each in bundles
        for sequence, row in zip(each.sequences.tolist(), rows_of(each), strict=True)
    ]


def words_in(range: KeyRange, count: int = 3) -> list[str]:
    """Words whose place is in the range."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        word = f"w{number}"
        number += 1
        if range.contains(ring_position(word, (pa.string(),))):
            found.append(word)
    return found


LEFT, RIGHT = even_ranges(2)

# Shards


def shard_of(
    graph: Graph, node: str = "count", range: KeyRange = FULL, *, shard: int = 9, epoch: int = 1, seed: int = SEED
) -> Any:
    return new_shard(graph, Place(shard, node, range, Epoch(epoch)), seed)


def take(shard: Any, *rows: tuple[str | None, int, int], now: int = 0, **where: Any) -> Any:
    """Lets a shard handle one bundle."""
    return shard.handle(BundleEntry(bundle(*rows, **where), now))


def advance(shard: Any, mark: int, outside: int | None = None, now: int = 0) -> Any:
    """Lets its input mark rise."""
    return shard.handle(MarkEntry(mark, mark if outside is None else outside, now))


def wake(shard: Any, now: int) -> Any:
    return shard.handle(WakeEntry(now))


def picture(shard: Any) -> dict[Any, Any]:
    """All that a shard knows of its keys, as bytes, so that later changes do not reach it."""
    rows = {}
    for key in shard.state.known_keys():
        state = shard.state.rows.get(key)
        saved = (
            None if state is None else msgspec.msgpack.encode(state),
            sorted(shard.times.event.of_key(key)),
            sorted(shard.times.wall.of_key(key)),
            [at for _, at, _ in shard.times.holds.of_key(key)],
        )
        if saved != (None, [], [], []):
            rows[key] = saved
    return rows
