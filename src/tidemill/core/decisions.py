"""What a recovery mechanism decides, as values that the core carries out.

The first group is for a worker's half, the second for the coordinator's, `TellHalf` and the storage effects for both.
A `Ticket` is the mechanism's own number; it comes back with `persisted`, `loaded` or `refused`.
"""

from __future__ import annotations

import msgspec

from tidemill.core.bundle import Bundle
from tidemill.core.effects import Append, OpenLog
from tidemill.core.ids import NodeName, Peer, ShardId, Ticket, WorkerId
from tidemill.core.keys import KeyRange
from tidemill.core.messages import ChannelId, Lineage
from tidemill.core.shard import Shard


class Install(msgspec.Struct, frozen=True):
    """The shard is restored: it may run, and senders may be told where it is.

    `unsent` is what its parents may not have sent; it leaves before anything of the shard's own, under their origins.
    """

    shard: Shard
    unsent: list[Bundle] = []


class Release(msgspec.Struct, frozen=True):
    """What was flushed up to this number may leave, and the mark with it."""

    shard: ShardId
    flush: int


class Acknowledge(msgspec.Struct, frozen=True):
    """Responsibility is taken for what came on this very channel up to this number.

    A sender that changed hands numbers anew on a new channel, so a number alone would say too much.
    """

    channel: ChannelId
    number: int


class Block(msgspec.Struct, frozen=True):
    """Nothing more of this sender is handled until `Unblock`."""

    shard: ShardId
    sender: ShardId


class Unblock(msgspec.Struct, frozen=True):
    shard: ShardId
    sender: ShardId


class SendMarker(msgspec.Struct, frozen=True):
    """A marker behind everything the shard has produced, on all of its channels."""

    shard: ShardId
    marker: bytes


class GiveUp(msgspec.Struct, frozen=True):
    """The shard belongs to somebody else: drop it and release nothing more."""

    shard: ShardId


class TellHalf(msgspec.Struct, frozen=True):
    """A message to the mechanism's half elsewhere; without a peer, to the coordinator's."""

    payload: bytes
    peer: Peer | None = None


WorkerDecision = Install | Release | Acknowledge | Block | Unblock | SendMarker | GiveUp | TellHalf | Append | OpenLog


class AssignAll(msgspec.Struct, frozen=True):
    """Everything goes back: new epochs for all shards, and the marks with them."""

    to: dict[ShardId, WorkerId] = {}


class Assign(msgspec.Struct, frozen=True):
    """Each shard gets a new epoch and an owner: the worker named for it, or the one with the least to do."""

    shards: list[ShardId]
    to: dict[ShardId, WorkerId] = {}


class NewShard(msgspec.Struct, frozen=True):
    node: NodeName
    range: KeyRange
    shard: ShardId
    lineage: Lineage


class Supersede(msgspec.Struct, frozen=True):
    """Shards are replaced by others over the same range of the ring; these are assigned next."""

    removed: list[ShardId]
    added: list[NewShard]


class TakeBack(msgspec.Struct, frozen=True):
    """The owner is to drain the shard and yield it, others perhaps together with it."""

    shard: ShardId
    together: list[ShardId] = []


class Write(msgspec.Struct, frozen=True):
    """An entry in the run's journal."""

    ticket: Ticket
    entry: bytes


class SealSoFar(msgspec.Struct, frozen=True):
    """What the sinks have been given will not be taken back: it may be committed while the run goes on."""


class Finish(msgspec.Struct, frozen=True):
    """The input has ended and everything is worked off: seal the sinks and commit."""


class EndRun(msgspec.Struct, frozen=True):
    """The run can't go on, and why."""

    reason: str


CoordinatorDecision = AssignAll | Assign | Supersede | TakeBack | Write | SealSoFar | Finish | EndRun | TellHalf
