"""What happens to a worker or the coordinator. Every event carries the process's own wall clock."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tidemill.core.bundle import Int64s
from tidemill.core.ids import Epoch, Generation, Micros, Peer, ShardId, Ticket, WorkerId
from tidemill.core.messages import Packet


class Started(msgspec.Struct, frozen=True):
    now: Micros


class Received(msgspec.Struct, frozen=True):
    now: Micros
    packet: Packet


class Ticked(msgspec.Struct, frozen=True):
    """Time passed. Comes every few milliseconds, late when the process was paused."""

    now: Micros


class Turn(msgspec.Struct, frozen=True):
    """Nothing else is waiting: do a piece of the work that `busy` says there is."""

    now: Micros


class ReadDone(msgspec.Struct, frozen=True):
    """Records of a source; `batch` is as the user's schema says, `times` the event times."""

    now: Micros
    shard: ShardId
    epoch: Epoch
    batch: pa.RecordBatch | None
    times: Int64s | None  # None: a record's event time is the time at which it is read
    position: int
    mark: Micros
    idle: bool
    malformed: pa.RecordBatch | None = None  # what the source diverts


class ReadBackDone(msgspec.Struct, frozen=True):
    """What a shard had spilled, as much as it asked for, in order."""

    now: Micros
    shard: ShardId
    epoch: Epoch
    entries: list[bytes]


class InitialLoaded(msgspec.Struct, frozen=True):
    """What the shard's state begins with: parts, each of pieces."""

    now: Micros
    shard: ShardId
    epoch: Epoch
    parts: list[list[bytes]]


class Persisted(msgspec.Struct, frozen=True):
    """What was asked under the ticket is durable."""

    now: Micros
    ticket: Ticket


class Loaded(msgspec.Struct, frozen=True):
    now: Micros
    ticket: Ticket
    entries: list[bytes]


class Refused(msgspec.Struct, frozen=True):
    """A newer owner or coordinator exists."""

    now: Micros
    ticket: Ticket


class Claimed(msgspec.Struct, frozen=True):
    """This coordinator is the run's, until a higher generation is claimed."""

    now: Micros
    generation: Generation
    entries: list[bytes]


class SealDone(msgspec.Struct, frozen=True):
    now: Micros
    shard: ShardId
    epoch: Epoch
    piece: bytes
    round: int = 0


class Broken(msgspec.Struct, frozen=True):
    """The host could not do what it was asked: a source can't be read, a disk is gone. Or a fault of ours."""

    now: Micros
    error: Exception


class StopAsked(msgspec.Struct, frozen=True):
    """Somebody wants the run to end: nothing more is read, and what was read is worked off."""

    now: Micros


class PeerGone(msgspec.Struct, frozen=True):
    """The host knows that a worker's process has ended."""

    now: Micros
    peer: Peer


class MoveAsked(msgspec.Struct, frozen=True):
    now: Micros
    shard: ShardId
    to: WorkerId


class SplitAsked(msgspec.Struct, frozen=True):
    now: Micros
    shard: ShardId


class MergeAsked(msgspec.Struct, frozen=True):
    """Merges the shard with the one to its right."""

    now: Micros
    shard: ShardId


WorkerEvent = (
    Started
    | Received
    | Ticked
    | Turn
    | ReadDone
    | ReadBackDone
    | InitialLoaded
    | Persisted
    | Loaded
    | Refused
    | SealDone
    | Broken
)
CoordinatorEvent = (
    Started
    | Received
    | Ticked
    | Persisted
    | Loaded
    | Refused
    | Claimed
    | Broken
    | StopAsked
    | PeerGone
    | MoveAsked
    | SplitAsked
    | MergeAsked
)
Event = WorkerEvent | CoordinatorEvent
