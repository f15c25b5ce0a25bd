"""What a worker or the coordinator asks of its host. The core never waits: an answer comes back as an event."""

from __future__ import annotations

import msgspec

from tidemill.core.bundle import Bundle
from tidemill.core.ids import Epoch, Generation, NodeName, Peer, ShardId, Ticket
from tidemill.core.keys import KeyRange
from tidemill.core.messages import Packet


class Send(msgspec.Struct, frozen=True):
    """May be lost on the way: the link sends again."""

    packet: Packet


class Read(msgspec.Struct, frozen=True):
    """Answered by `ReadDone`: when something is there, or after a while that the host chooses. It sets the pace."""

    shard: ShardId
    epoch: Epoch
    split: int
    position: int
    limit: int


class LoadInitial(msgspec.Struct, frozen=True):
    """Fetches what a node's state begins with, as far as it may lie in the range. Answered by `InitialLoaded`."""

    shard: ShardId
    epoch: Epoch
    node: NodeName
    range: KeyRange


class OpenLog(msgspec.Struct, frozen=True):
    """Fences all lower epochs, then reads the whole entries. Answered by `Loaded` or `Refused`.

    With `last`, nobody will append to it any more: it is read whatever the epoch, and the fence only rises.
    """

    ticket: Ticket
    log: str
    epoch: int
    last: bool = False


class Append(msgspec.Struct, frozen=True):
    """Answered by `Persisted` when durable, or by `Refused` under an old epoch. Appends to one log keep their order."""

    ticket: Ticket
    log: str
    epoch: int
    entries: list[bytes]


class Claim(msgspec.Struct, frozen=True):
    """Claims the next generation of coordinators by a conditional create, and reads the journal: `Claimed`."""


class Journal(msgspec.Struct, frozen=True):
    """Appends one entry to the run's journal, if the generation still is the newest: `Persisted` or `Refused`."""

    ticket: Ticket
    generation: Generation
    entry: bytes


class Spill(msgspec.Struct, frozen=True):
    """Puts something aside on the worker's own disk, behind what the shard put there before. It need not be durable."""

    shard: ShardId
    epoch: Epoch
    entry: bytes


class ReadBack(msgspec.Struct, frozen=True):
    """Takes the oldest of what was spilled. Answered by `ReadBackDone`."""

    shard: ShardId
    epoch: Epoch
    count: int


class DropSpill(msgspec.Struct, frozen=True):
    """The shard is gone, and what it had spilled is of no use."""

    shard: ShardId
    epoch: Epoch


class Stage(msgspec.Struct, frozen=True):
    """Hands records to a sink; they are visible to nobody until a commit lists them."""

    shard: ShardId
    epoch: Epoch
    bundle: Bundle


class CloseStage(msgspec.Struct, frozen=True):
    """Makes durable what was staged for the shard under the epoch since the last time; what is staged from now on is
    for the next. Answered by `SealDone` with the piece's name; empty, if nothing was staged.
    """

    shard: ShardId
    epoch: Epoch
    round: int = 0


class Note(msgspec.Struct, frozen=True):
    """For the journal of what happened, metrics and the curious. Nothing depends on it."""

    what: str
    about: str


class Exit(msgspec.Struct, frozen=True):
    """The process has nothing more to do here."""

    reason: str


class Fail(msgspec.Struct, frozen=True):
    """The run ended with an error."""

    error: str
    message: str
    trace: str = ""


class Forget(msgspec.Struct, frozen=True):
    """The connection to a peer that is gone can be closed."""

    peer: Peer


Effect = (
    Send
    | Read
    | LoadInitial
    | OpenLog
    | Append
    | Claim
    | Journal
    | Spill
    | ReadBack
    | DropSpill
    | Stage
    | CloseStage
    | Note
    | Exit
    | Fail
    | Forget
)
