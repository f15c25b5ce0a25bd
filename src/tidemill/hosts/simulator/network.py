"""A network that delays, reorders, loses and repeats packets, and loses connections for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidemill.core.graph import Graph
from tidemill.core.ids import Peer
from tidemill.core.messages import Packet
from tidemill.core.wire import frames_of, packet_of
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.watching import Watch
from tidemill.hosts.simulator.world import World

Deliver = Callable[[Packet], None]


class Network:
    def __init__(self, world: World, faults: Faults, graph: Graph, watch: Watch) -> None:
        self._world = world
        self._watch = watch
        self._faults = faults
        self._graph = graph
        self._doors: dict[Peer, Deliver] = {}
        self._cut: dict[tuple[int, int], int] = {}  # pair of workers -> until when
        self._newest: dict[tuple[Peer, Peer], int] = {}
        self.counts: Counter[str] = Counter()

    def connect(self, peer: Peer, deliver: Deliver) -> None:
        self._doors[peer] = deliver

    def disconnect(self, peer: Peer) -> None:
        self._doors.pop(peer, None)

    def cut(self, one: int, other: int, until: int) -> None:
        """Nothing passes between two workers (or a worker and the coordinator) for a while."""
        self._cut[min(one, other), max(one, other)] = until

    def send(self, packet: Packet) -> None:
        self._watch.sent(packet)
        world, faults = self._world, self._faults
        one, other = packet.sender.worker, packet.to.worker
        if one != other:
            if self._cut.get((min(one, other), max(one, other)), 0) > world.now or world.happens(faults.loss):
                self.counts["packets lost"] += 1
                return
            if world.happens(faults.duplication):
                self.counts["packets repeated"] += 1
                self._carry(packet)
        self._carry(packet)

    def _carry(self, packet: Packet) -> None:
        if self._faults.wire:
            packet = packet_of([bytes(frame) for frame in frames_of(packet)], self._graph)
        delay = int(self._world.chance.expovariate(1 / self._faults.latency))
        self._world.after(delay, lambda: self._arrive(packet))

    def _arrive(self, packet: Packet) -> None:
        link = packet.sender, packet.to
        if packet.number < self._newest.get(link, 0):
            self.counts["packets overtaken"] += 1
        else:
            self._newest[link] = packet.number
        deliver = self._doors.get(packet.to)
        if deliver is not None:
            deliver(packet)
