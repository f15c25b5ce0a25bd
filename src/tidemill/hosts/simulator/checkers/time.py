"""Time keeps its word: marks rise, nothing comes from behind them, and nobody is called late who is not."""

from __future__ import annotations

from typing import Any

from tidemill.hosts.simulator.checkers.checker import BEGINNING, COORDINATOR, Checker, Links, kind


class MarksRise(Checker):
    """What a coordinator tells a process of a node's mark never falls, until it says that all begins anew."""

    name = "marks rise"

    def __init__(self) -> None:
        super().__init__()
        self._links = Links()
        self._told: dict[tuple[Any, Any], dict[str, int]] = {}  # by link, for each node

    def sent(self, packet: Any) -> None:
        what = kind(packet.message)
        if what not in ("Marks", "Reset") or not self._links.new(packet):
            return
        link = packet.sender, packet.to
        if what == "Reset":
            self._told[link] = {}
            return
        told = self._told.setdefault(link, {})
        for node, mark in packet.message.marks:
            if mark < told.get(node, BEGINNING):
                self.complain(f"{packet.sender} told {packet.to} that {node} is at {mark}, after {told[node]}")
            told[node] = mark


class MarksKept(Checker):
    """No record is sent for the first time when the mark of its producer has been published beyond it.

    A record that is sent again is none of these: whoever took it knows it. Nor is one that its shard's former owner
    still sends: it will be refused.
    """

    name = "marks kept"

    def __init__(self) -> None:
        super().__init__()
        self._links = Links()
        self._generation = 0
        self._published: dict[str, int] = {}
        self._nodes: dict[int, str] = {}  # of each shard
        self._epochs: dict[int, int] = {}  # the newest of each shard
        self._sent: dict[tuple[str, str, int], set[int]] = {}  # to whom, of which stream and origin

    def sent(self, packet: Any) -> None:
        what = kind(packet.message)
        if what not in _CONCERN or not self._links.new(packet):
            return
        if packet.sender.worker == COORDINATOR:
            if packet.sender.incarnation >= self._generation:
                self._generation = packet.sender.incarnation
                self._told(what, packet.message)
        elif what == "Delivery":
            self._delivered(packet)

    def _told(self, what: str, message: Any) -> None:
        if what == "Reset":
            self._published, self._sent = {}, {}
        elif what == "Adopt":
            for given in message.adoptions:
                self._nodes[given.shard] = given.node
                self._epochs[given.shard] = max(given.epoch, self._epochs.get(given.shard, 0))
        else:
            for node, mark in message.marks:
                self._published[node] = max(mark, self._published.get(node, BEGINNING))

    def _delivered(self, packet: Any) -> None:
        channel, bundle = packet.message.channel, packet.message.bundle
        sender, receiver = self._nodes.get(channel.from_shard), self._nodes.get(channel.to_shard)
        if sender is None or receiver is None or channel.from_epoch < self._epochs[channel.from_shard]:
            return
        sent = self._sent.setdefault((receiver, bundle.stream, bundle.origin), set())
        times = bundle.batch.column(bundle.batch.num_columns - 1).to_pylist()
        published = self._published.get(sender, BEGINNING)
        for sequence, at in zip(bundle.sequences.tolist(), times, strict=True):
            if sequence not in sent and at < published:
                self.complain(
                    f"record {bundle.origin}:{sequence} of {bundle.stream}, of {at}, first left {packet.sender} for "
                    f"{receiver} when {sender} was said to be at {published}"
                )
            sent.add(sequence)


_CONCERN = frozenset({"Marks", "Reset", "Adopt", "Delivery"})


class NobodyLate(Checker):
    """Where all records are on time, no shard counts a late one."""

    name = "nobody late"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, int], int] = {}

    def handled(self, process: Any) -> None:
        if process.role != "worker":
            return
        for id, hosted in process.core.hosted.items():
            late = hosted.shard.late if hosted.shard is not None else 0
            if late > self._seen.get((id, hosted.adoption.epoch), 0):
                self._seen[id, hosted.adoption.epoch] = late
                self.complain(f"shard {id} of {hosted.node.name} on {process.peer} counts {late} late records")
