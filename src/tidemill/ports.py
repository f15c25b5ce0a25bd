"""The doors of the house: what the core and the hosts need from the world, and what each of them must promise.

A port is a protocol whose docstring states the guarantees that the protocols above it rest on. An implementation that
keeps the methods but not the guarantees is broken, whatever its tests say: each has a conformance suite of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.ids import Epoch, Generation, Micros, Peer
from tidemill.core.keys import KeyRange

ARRIVAL: Final = "__arrival"
"""A source's `timestamp` when event time is the time at which each record is read. No column may have this name."""

SCHEDULED: Final = "__scheduled"
"""A source's `timestamp` when event time is the time at which each record is due, which no column tells: the source
gives it in `Chunk.times`. No column may have this name.
"""

_NO_WAIT: Final = Micros(0)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some consecutive records of one split, and where to go on behind them."""

    batch: pa.RecordBatch
    """The user's columns only, in the order of the source's schema."""

    times: npt.NDArray[np.int64]
    """Each record's event time. A source without one gives `BEGINNING`; for `ARRIVAL` the host stamps its own."""

    position: int
    """Reading from here gives what follows this chunk."""

    watermark: Micros
    """No later record of this split is older: `BEGINNING` while nothing is known, `END` once it has ended, else a time
    up to `LAST`. For `ARRIVAL` only `END` counts; the host knows the rest.
    """

    ended: bool
    """No record will ever follow."""

    idle: bool
    """Nothing is there and nothing is expected soon: this split must not hold time back."""

    wait: Micros = _NO_WAIT
    """Where nothing was read: reading again sooner than this would find nothing either. 0 if that is not known."""

    skipped: int = 0
    """How many records in this chunk could not be read and were left out."""

    malformed: pa.RecordBatch | None = None
    """The ones that go to the stream `diverts_to`, as `MALFORMED` says."""


MALFORMED: Final = pa.schema(
    [
        pa.field("place", pa.string(), nullable=False),  # where it was read: a file, a partition
        pa.field("position", pa.int64(), nullable=False),  # at which place in there
        pa.field("text", pa.string(), nullable=False),  # as it was found; what is no text is escaped
        pa.field("problem", pa.string(), nullable=False),
    ]
)
"""The schema of the stream that a source diverts malformed records to."""


class SourceReader(Protocol):
    """One split, being read from some position onwards. Used by one thread."""

    def read(self, limit: int) -> Chunk:
        """At most `limit` records. Never blocks: an empty chunk if nothing is there yet."""
        ...

    def close(self) -> None:
        """Lets go of what the reader holds. May be called twice."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where records come from. A rewind is exact.

    Reading a split from a position gives the same records in the same order each time, in this process or another, for
    as long as the run lasts; only the cuts between chunks may fall elsewhere. Only 0 and positions that a chunk gave
    are ever opened. The object is pickled to reach the workers, so it holds no open file or connection.
    """

    schema: pa.Schema
    """The user's columns."""

    timestamp: str | None
    """The column of event time, `ARRIVAL`, `SCHEDULED`, or None where records have none."""

    def splits(self) -> Sequence[str]:
        """Names of the parts that can be read independently of each other; the same ones for the whole run."""
        ...

    def open(self, split: str, position: int) -> SourceReader: ...


@runtime_checkable
class Diverting(Protocol):
    """A source that can divert what it can't read to a stream of its own, with the schema `MALFORMED`."""

    diverts_to: str | None
    """The stream's name; None if this one does not divert."""


@runtime_checkable
class Preparable(Protocol):
    """A source that must settle something before a run can rewind it: which files there are, when its clock began."""

    def prepared(self, now: Micros) -> Source:
        """The same source, settled. Called once for each run, in the program that starts it."""
        ...


@runtime_checkable
class Endless(Protocol):
    """A source that can tell whether it will ever end. One that does not say is taken for one that does."""

    @property
    def endless(self) -> bool: ...


class InitialState(Protocol):
    """What a computation's state begins with, wherever and whenever its shards begin; the same for the whole run."""

    def load(self, range: KeyRange) -> list[list[bytes]]:
        """All pieces with keys that may lie in the range, in parts: each is what one shard held."""
        ...


class SinkWriter(Protocol):
    """One shard's hand in a sink."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def prepare(self) -> bytes:
        """Makes all that was written since the last call durable but not visible; the answer names it to `commit`."""
        ...

    def close(self) -> None:
        """Lets go of everything. What was not prepared is gone; what was prepared stays until committed or cleaned."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where records leave for good, in commits that are whole or absent.

    Nobody who reads the sink's target sees a record of a commit before all of them, nor one that was never committed.
    A commit that may have happened is tried again under the same number, and takes effect once.
    """

    def open(self, schema: pa.Schema, writer: str) -> SinkWriter:
        """`writer` is unique in the run: no two writers' files or transactions may meet."""
        ...

    def commit(self, generation: Generation, number: int, prepared: Sequence[bytes]) -> None:
        """One atomic step makes all of these visible. Does nothing if `number` is committed already.

        Refuses with `FencedError` if a newer generation has committed or claimed the sink. Numbers rise by one.
        """
        ...

    def committed(self, generation: Generation) -> int:
        """Claims the sink for this generation, finishes a commit that was begun, and gives the last number, or 0."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """A sink that wants to know what it will be given before a run begins, to make ready or to refuse."""

    def expecting(self, schema: pa.Schema, run: str) -> Sink:
        """The same sink, for one run and a stream of this schema. `run` is no other run's.

        Called once for each run, in the program that starts it. `PipelineError` if the stream does not fit.
        """
        ...


@runtime_checkable
class Gathering(Protocol):
    """A sink that is only a place in the driver's memory: it is given rows there, each once, when they are final."""

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None: ...


class Clock(Protocol):
    """Wall time. Within one process it never goes back; between processes it may differ, and nothing relies on it."""

    def now(self) -> Micros: ...


class Transport(Protocol):
    """Messages between the run's processes.

    Between two peers they arrive whole, in order and unaltered, while the connection lasts; when it breaks, those under
    way may be lost or, after it is made anew, come twice. An answer to one incarnation never reaches another. Who sent
    a message is proved by the connection, not by what the message says; a process without the run's keys is refused.
    """

    def send(self, to: Peer, frames: Sequence[bytes | memoryview]) -> None:
        """Never blocks and never fails: what can't be sent now waits, and is dropped when `to` is declared lost."""
        ...

    def receive(self, timeout: Micros) -> Sequence[tuple[Peer, Sequence[memoryview]]]:
        """What has arrived, waiting up to `timeout` for the first of it."""
        ...

    def lost(self) -> Sequence[Peer]:
        """Peers whose connection ended since the last call. One that is busy is not lost: it still answers."""
        ...

    def close(self) -> None: ...


class Blobs(Protocol):
    """Named immutable bytes, in a file system or an object store.

    `put` is atomic: a reader gets all of the bytes or finds no such name, also after a crash. What `put` returned from
    is durable, and every later `get` and `list`, by anyone, sees it. A conditional put is linearizable: of any number
    of concurrent ones for a name exactly one is told True. Each blob carries a checksum; damaged bytes are a
    `StorageError`.
    """

    def put(self, name: str, data: bytes, *, if_absent: bool = False) -> bool:
        """False only if `if_absent` and the name is taken; then nothing was changed."""
        ...

    def get(self, name: str) -> bytes | None:
        """None if there is no such blob."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """All names that begin so, in order."""
        ...

    def delete(self, name: str) -> None:
        """Nothing happens if there is no such blob. A reader never sees half of one."""
        ...


class Log(Protocol):
    """Named sequences of entries, each with one owner at a time.

    Entries are durable, in order, when `append` returns. A crash in the middle of it leaves a prefix of the entries it
    was given; a torn one is detected and cut off when the log is next opened, never read as data.
    """

    def open(self, name: str, epoch: Epoch) -> Sequence[bytes]:
        """Makes `epoch` the owner and gives all whole entries. From the moment it returns, no append under a lower
        epoch can succeed, nor add to what was returned. `FencedError` if a higher epoch has opened the log.
        """
        ...

    def append(self, name: str, epoch: Epoch, frames: Sequence[bytes]) -> None:
        """Adds the entries. `FencedError`, and nothing added, if a higher epoch has opened the log."""
        ...

    def truncate(self, name: str, epoch: Epoch, before: int) -> None:
        """Forgets the entries before this index, counted from the log's first ever. Fenced as `append` is."""
        ...


class Store(Protocol):
    """Sorted rows in named tables, each table with one owner at a time, changed in transactions.

    A transaction is all or nothing and durable when `commit` returns. Its epoch is checked inside it: between the check
    and the change no other owner can get in, so a delayed write of a former owner is refused however late it comes.
    """

    def claim(self, table: str, epoch: Epoch) -> None:
        """Makes `epoch` the owner. A transaction of a lower one has happened before this returns, or never will."""
        ...

    def scan(self, table: str, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows with `low` <= key < `high` in order, as they were at one moment."""
        ...

    def commit(self, table: str, epoch: Epoch, changes: Mapping[bytes, bytes | None]) -> None:
        """Puts rows, and deletes those that map to None. `FencedError`, and nothing changed, if the owner is newer."""
        ...
