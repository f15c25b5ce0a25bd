"""What processes say to each other.

Between workers: `Delivery` (a bundle), `InBand` (a mechanism's marker, in order with the bundles) and `Receipts`.
Between a worker and the coordinator: the rest. All travel on a link (`link.py`), which keeps their order and resends
them, so that a message is either received or its receiver is gone. Their bytes are the matter of `wire.py`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidemill.core.bundle import Bundle
from tidemill.core.ids import Epoch, Micros, NodeName, Peer, ShardId
from tidemill.core.keys import KeyRange
from tidemill.core.routing import Route


class ChannelId(msgspec.Struct, frozen=True, array_like=True):
    """One sender's way to one receiver, both under the epochs that they had when it was opened."""

    from_shard: ShardId
    from_epoch: Epoch
    to_shard: ShardId
    to_epoch: Epoch


class Delivery(msgspec.Struct, frozen=True):
    """`back_edge` is the sender's word that its edge closes a cycle: the receiver may not know its route yet."""

    channel: ChannelId
    number: int
    bundle: Bundle
    back_edge: bool = False


class InBand(msgspec.Struct, frozen=True, array_like=True, tag="in-band"):
    channel: ChannelId
    number: int
    marker: bytes
    back_edge: bool = False


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """Cumulative, so that the newest says it all."""

    channel: ChannelId
    taken: int  # the receiver has taken responsibility up to this number
    worked: int  # the weight of what it has worked off: gives the sender credit
    report: int  # the receiver's next report: only when the authority has it may a sender inside a cycle forget


class Receipts(msgspec.Struct, frozen=True, array_like=True, tag="receipts"):
    receipts: list[Receipt]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A worker is there and owns nothing."""


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """Where a shard's state comes from: its own log or pieces, and those of the shards it was split or merged from."""

    shard: ShardId
    range: KeyRange
    parents: list[Lineage]


class Adoption(msgspec.Struct, frozen=True, array_like=True):
    """A shard is given to a worker, with what its mechanism needs to restore it."""

    shard: ShardId
    node: NodeName
    range: KeyRange
    epoch: Epoch
    lineage: Lineage
    initial: list[list[bytes]] = []  # what the state begins with; its worker fetches it (`core.pieces`)


class Adopt(msgspec.Struct, frozen=True, array_like=True, tag="adopt"):
    adoptions: list[Adoption]


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Everything goes back: the worker drops all shards, channels, routes and marks of the attempt before."""

    attempt: int


class Yield(msgspec.Struct, frozen=True, array_like=True, tag="yield"):
    """The shard will be given to somebody else: take nothing more for it, and say when it is drained.

    What it sent to those that are taken back together with it can't be waited for: they take nothing either.
    """

    shard: ShardId
    epoch: Epoch
    together: list[ShardId] = []


class Yielded(msgspec.Struct, frozen=True, array_like=True, tag="yielded"):
    shard: ShardId
    epoch: Epoch


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    shard: ShardId
    epoch: Epoch


class Routes(msgspec.Struct, frozen=True, array_like=True, tag="routes"):
    removed: list[ShardId]
    changed: list[Route]
    gone: list[Peer]  # given up: never listened to again
    whole: bool = False  # this is the whole table; what it does not name is no more


class ShardReport(msgspec.Struct, frozen=True, array_like=True):
    shard: ShardId
    epoch: Epoch
    mark: Micros
    idle: bool
    at_rest: bool = False  # the run is being stopped, and nothing more will come of this shard


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """A worker's low watermarks; also its sign of life."""

    number: int
    shards: list[ShardReport]


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """The authority holds this report of a shard on a cycle."""

    shard: ShardId
    epoch: Epoch
    report: int


class Marks(msgspec.Struct, frozen=True, array_like=True, tag="marks"):
    """The authority publishes: minima per node, and which reports they include."""

    marks: list[tuple[NodeName, Micros]]
    accepted: list[Accepted]
    idle: list[NodeName]  # all that are: they hold nobody back
    at_rest: list[NodeName] = []  # all that are: the run is being stopped


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    """Close what the sink's shard has staged, so that it can be committed."""

    shard: ShardId
    epoch: Epoch
    round: int = 0


class Sealed(msgspec.Struct, frozen=True, array_like=True, tag="sealed"):
    """Holds all that was staged before it was asked for in this round, and in no earlier piece."""

    shard: ShardId
    epoch: Epoch
    piece: bytes
    round: int = 0


class Tell(msgspec.Struct, frozen=True, array_like=True, tag="tell"):
    """One half of the mechanism to another."""

    payload: bytes


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Read no more; what was read is to be worked off, and then the run ends."""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """User code raised, or a worker can't go on: the run ends with this."""

    error: str
    message: str
    trace: str = ""  # of the user's code, as text


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """The run is over and committed."""


class Outdated(msgspec.Struct, frozen=True, array_like=True, tag="outdated"):
    """The process addressed was given up: a newer one has its place, or its shards are elsewhere."""


Message = (
    InBand
    | Receipts
    | Hello
    | Adopt
    | Reset
    | Yield
    | Yielded
    | Ready
    | Routes
    | Report
    | Marks
    | Seal
    | Sealed
    | Tell
    | Stop
    | Failed
    | Finished
    | Outdated
)


OUTSIDE: Final = -1
"""The number of a packet to a process with which there is no link any more. Nobody sends it again."""


class Packet(msgspec.Struct, frozen=True):
    """A message on its way, or a bare acknowledgement. Numbered by the link, not by what it carries."""

    sender: Peer
    to: Peer
    number: int  # 0: carries no message; OUTSIDE: belongs to no link
    acked: int
    message: Message | Delivery | None
