"""Links: messages between two processes, in order, each exactly once, over a transport that loses and repeats.

A link is the sender's and the receiver's numbers and what was sent and not yet acknowledged. A message is sent again
until it is known to have been *received*; that says nothing about responsibility for what is in it, which is the
channels' matter (`flow.py`). What is unacknowledged is bounded by the credit of the channels on top.

`Links` are all the links of one process. It listens only to the newest incarnation of each worker, and to messages
addressed to this very incarnation: what an older one sent, or was sent, is refused.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidemill.core.effects import Send
from tidemill.core.ids import Incarnation, Micros, Peer, WorkerId
from tidemill.core.messages import OUTSIDE, Delivery, Message, Packet

RESEND_AFTER: Final = 200_000
RESEND_AFTER_AT_MOST: Final = 16 * RESEND_AFTER
"""The pause doubles while nothing is heard: to one that is stopped, everything again and again would pile up unread."""

RESEND_AT_MOST: Final = 64
ACKNOWLEDGE_EVERY: Final = 32

AnyMessage = Message | Delivery


class _Link:
    __slots__ = ("ahead", "owed", "pause", "received", "sent", "sent_at", "unacked")

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.owed = 0  # messages received and not yet acknowledged
        self.unacked: deque[Packet] = deque()
        self.sent_at = Micros(0)  # when the oldest unacknowledged one was sent last
        self.pause = RESEND_AFTER
        self.ahead: dict[int, AnyMessage] = {}  # overtook others on the way


class Links:
    def __init__(self, me: Peer) -> None:
        self.me = me
        self._links: dict[Peer, _Link] = {}
        self._newest: dict[WorkerId, Incarnation] = {}
        self.refused = 0

    def send(self, to: Peer, message: AnyMessage, now: Micros) -> Send:
        link = self._links.get(to) or self._open(to)
        link.sent += 1
        link.owed = 0
        packet = Packet(self.me, to, link.sent, link.received, message)
        if not link.unacked:
            link.sent_at = now
        link.unacked.append(packet)
        return Send(packet)

    def _open(self, peer: Peer) -> _Link:
        link = self._links[peer] = _Link()
        return link

    def receive(self, packet: Packet, now: Micros) -> tuple[list[AnyMessage], list[Send]]:
        """The messages that are now in order, and an acknowledgement if one is due."""
        if not self._listens_to(packet):
            self.refused += 1
            return [], []
        if packet.number == OUTSIDE and packet.message is not None:
            return [packet.message], []
        sender = packet.sender
        link = self._links.get(sender) or self._open(sender)
        link.pause = RESEND_AFTER
        self._acknowledged(link, packet.acked, now)
        if packet.number == 0 or packet.message is None:
            return [], []
        if packet.number <= link.received:  # a repeat: the sender does not know yet
            link.owed += ACKNOWLEDGE_EVERY
            return [], self._acknowledgement(sender, link)
        link.ahead[packet.number] = packet.message
        messages: list[AnyMessage] = []
        while (message := link.ahead.pop(link.received + 1, None)) is not None:
            link.received += 1
            link.owed += 1
            messages.append(message)
        return messages, self._acknowledgement(sender, link)

    def _listens_to(self, packet: Packet) -> bool:
        if packet.to != self.me or self.gave_up(packet.sender):
            return False
        self.heard_of(packet.sender)
        return True

    def heard_of(self, peer: Peer) -> None:
        """Learns of an incarnation; older ones of that worker are no longer listened to."""
        if peer.incarnation > self._newest.get(peer.worker, 0):
            self._newest[peer.worker] = peer.incarnation
            for old in [known for known in self._links if known.worker == peer.worker and known != peer]:
                del self._links[old]

    def gave_up(self, peer: Peer) -> bool:
        """Whether this incarnation is over, or was replaced by a newer one."""
        return peer.incarnation < self._newest.get(peer.worker, 0)

    def give_up(self, peer: Peer) -> None:
        """Never listens to this incarnation again."""
        newest = max(self._newest.get(peer.worker, 0), peer.incarnation + 1)
        self._newest[peer.worker] = Incarnation(newest)
        self._links.pop(peer, None)

    @staticmethod
    def _acknowledged(link: _Link, acked: int, now: Micros) -> None:
        unacked = link.unacked
        while unacked and unacked[0].number <= acked:
            unacked.popleft()
            link.sent_at = now

    def _acknowledgement(self, peer: Peer, link: _Link) -> list[Send]:
        if link.owed < ACKNOWLEDGE_EVERY:
            return []
        link.owed = 0
        return [Send(Packet(self.me, peer, 0, link.received, None))]

    def tick(self, now: Micros) -> list[Send]:
        """Acknowledges what is owed, and sends again what has waited too long."""
        sends: list[Send] = []
        for peer, link in self._links.items():
            if link.owed:
                link.owed = 0
                sends.append(Send(Packet(self.me, peer, 0, link.received, None)))
            if link.unacked and now - link.sent_at >= link.pause:
                link.sent_at = now
                link.pause = min(2 * link.pause, RESEND_AFTER_AT_MOST)
                sends.extend(Send(packet) for packet in list(link.unacked)[:RESEND_AT_MOST])
        return sends

    def unacknowledged(self, peer: Peer) -> int:
        link = self._links.get(peer)
        return len(link.unacked) if link else 0
