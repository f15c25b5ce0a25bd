"""Channels: bundles from shard to shard, in order, with credit and with responsibility.

Two things flow back on a channel and must not be confused. *Credit*: the receiver has worked something off, so the
sender may send more; a slow consumer thus slows its senders, and what is queued anywhere is bounded.
*Responsibility*: whatever happens to the receiver now, the bundle's effect will not be lost; only then may the sender
forget it. When a shard changes hands its channels are opened again under its new epoch, and everything not taken is
sent again, in order. Identities make that harmless.

Edges that close a cycle need no credit: a loop that waits for itself would wait for ever (Law 7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidemill.core.bundle import Bundle
from tidemill.core.ids import Epoch, Micros, Peer, ShardId
from tidemill.core.keys import KeyRange
from tidemill.core.messages import ChannelId, Receipt
from tidemill.core.routing import Route

WINDOW: Final = 32_768
"""The weight that may be under way on a channel before its receiver has worked it off."""

BUNDLE_WEIGHT: Final = 16
"""What a bundle weighs beside its records, so that many tiny bundles are bounded too."""

Item = Bundle | bytes
"""A bundle, or a mechanism's marker."""


def weight_of(item: Item) -> int:
    return BUNDLE_WEIGHT + (item.rows if isinstance(item, Bundle) else 0)


class _Awaiting(NamedTuple):
    """Taken inside a cycle, and not yet in a report that the authority has accepted."""

    epoch: Epoch
    report: int
    oldest: Micros


class OutChannel:
    """The sending end. `owner` is `None` while the receiving shard is not ready: then all waits in the backlog."""

    def __init__(
        self,
        sender: ShardId,
        sender_epoch: Epoch,
        route: Route,
        *,
        window: int = WINDOW,
        back_edge: bool = False,
        in_cycle: bool = False,
    ) -> None:
        self._window = window
        self.range: KeyRange = route.range
        self.back_edge = back_edge
        self._in_cycle = in_cycle
        self._sender = (sender, sender_epoch)
        self._backlog: deque[Item] = deque()
        self._untaken: deque[tuple[int, Item]] = deque()
        self._awaiting: deque[_Awaiting] = deque()
        self._open(route)

    def _open(self, route: Route) -> None:
        self.owner: Peer | None = route.owner
        self.id = ChannelId(*self._sender, route.shard, route.epoch)
        self._number = 0
        self._sent_weight = 0
        self._worked = 0

    def reopen(self, route: Route) -> None:
        """The receiving shard is owned by another process or under another epoch: what it has not taken goes again."""
        self._backlog.extendleft(item for _, item in reversed(self._untaken))
        self._untaken.clear()
        self._open(route)

    def push(self, item: Item) -> None:
        self._backlog.append(item)

    def sendable(self) -> Iterator[tuple[int, Item]]:
        """What may leave now, in order."""
        while self._backlog and self.owner is not None:
            if not self.back_edge and self._sent_weight - self._worked >= self._window:
                return
            item = self._backlog.popleft()
            self._number += 1
            self._sent_weight += weight_of(item)
            self._untaken.append((self._number, item))
            yield self._number, item

    def receipt(self, receipt: Receipt) -> None:
        self._worked = max(self._worked, receipt.worked)
        while self._untaken and self._untaken[0][0] <= receipt.taken:
            _, item = self._untaken.popleft()
            if self._in_cycle and isinstance(item, Bundle):
                self._awaiting.append(_Awaiting(receipt.channel.to_epoch, receipt.report, item.oldest))

    def accepted(self, epoch: Epoch, report: int) -> None:
        """The authority holds a report of the receiver. One under a newer epoch includes all that was ever taken."""
        while self._awaiting and (self._awaiting[0].epoch, self._awaiting[0].report) <= (epoch, report):
            self._awaiting.popleft()

    def inherit_awaiting(self, other: OutChannel) -> None:
        """The other's receiver was split or merged into this one's, whose first report will include what it took."""
        for waiting in other._awaiting:
            self._awaiting.append(_Awaiting(Epoch(max(waiting.epoch + 1, self.id.to_epoch)), 0, waiting.oldest))

    def untaken(self) -> list[Item]:
        """All that the receiver has not taken responsibility for, in order."""
        return [*(item for _, item in self._untaken), *self._backlog]

    @property
    def backlogged(self) -> bool:
        """Something waits to leave. Unless this closes a cycle, the sender has to wait too."""
        return bool(self._backlog)

    @property
    def drained(self) -> bool:
        return not self._backlog and not self._untaken

    @property
    def weight(self) -> int:
        return sum(map(weight_of, self.untaken()))

    def oldest(self) -> Micros | None:
        """The least event time among the records that this end still answers for."""
        times = [item.oldest for item in self.untaken() if isinstance(item, Bundle)]
        times.extend(waiting.oldest for waiting in self._awaiting)
        return min(times, default=None)


class InChannel:
    """The receiving end."""

    __slots__ = ("back_edge", "id", "number", "owed", "peer", "taken", "worked")

    def __init__(self, id: ChannelId, peer: Peer, *, back_edge: bool) -> None:
        self.id = id
        self.peer = peer
        self.back_edge = back_edge
        self.number = 0
        self.taken = 0
        self.worked = 0
        self.owed = False  # whether the sender does not yet know what is here

    def receipt(self, report: int) -> Receipt:
        self.owed = False
        return Receipt(self.id, self.taken, self.worked, report)


class Arrival(NamedTuple):
    """Something received and not yet handled."""

    channel: InChannel
    number: int
    item: Item
