"""A coordinator's process, the driver that attends to it, and workers that do as a test says."""

# mypy: disable-error-code="arg-type, call-arg, dict-item, type-var"

from __future__ import annotations

import select
from dataclasses import replace

from tests.unit.core.pipes import pipeline
from tests.unit.hosts.spark.wires import HOST, KEYS, Place, eventually
from tidemill.core.coordinator import Plan
from tidemill.core.graph import Graph
from tidemill.core.ids import COORDINATOR, Peer
from tidemill.core.link import Links
from tidemill.core.messages import Hello
from tidemill.hosts.spark import lifeline, protocol
from tidemill.hosts.spark.attendance import Attendance, pickled
from tidemill.hosts.spark.orders import CoordinatorOrders, Gathered, for_coordinator
from tidemill.recovery.nothing import Nothing

FIRST = Peer(COORDINATOR, 1)


def with_sinks(handle=None) -> Graph:
    """The pipeline of these tests, with what stands for its sink."""
    graph = pipeline()
    nodes = {
        name: replace(node, handle=handle or Gathered(), declared_at="here.py:9") if node.kind == "sink" else node
        for name, node in graph.nodes.items()
    }
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)


def command(graph=None, *, workers=1, journal=None, **more):
    plan = Plan(workers, {"words-source": 1}, workers, patience=0, silence=60_000_000, gathering=2**62)
    graph = for_coordinator(graph or with_sinks())
    return CoordinatorOrders(graph, Nothing(), plan, KEYS, HOST, -1, -1, 1, 1_000_000, journal, **more)


class Office:
    """A driver that writes down what it is told."""

    def __init__(self, orders=None, *, pickled=pickled, hear=None):
        self.heard: list = []
        self.deaths: list[str] = []
        self.attendance = Attendance(HOST, KEYS)
        self.attendance.start(orders or command(), pickled, hear=hear or self.heard.append, died=self.deaths.append)

    def of(self, kind):
        return [message for message in list(self.heard) if isinstance(message, kind)]

    def hears(self, kind, count=1, seconds=15.0, do=lambda: None):
        eventually(lambda: len(self.of(kind)) >= count, seconds, do)
        return self.of(kind)

    def notes(self, what):
        return [note.about for note in self.of(protocol.Noted) if note.what == what]

    @property
    def process(self):
        return self.attendance._process

    def close(self):
        self.attendance.close(grace=0.0)


class Hand:
    """A worker's connections, without a worker."""

    def __init__(self, office, me, *, version=protocol.VERSION, alive=True):
        self.me = me
        self.line = lifeline.hold(office.attendance.lifeline, me, KEYS) if alive else None
        self.place = Place()
        self.links = Links(me)
        self.told: list = []
        self.now = 0
        self.place.transport.know({FIRST: office.attendance.address})
        self.control(protocol.Join(version, *me, self.place.address, "host-of-a-test", 4711))

    def control(self, message):
        self.place.transport.control(FIRST, message)

    def say(self, message):
        self.place.transport.send(self.links.send(FIRST, message, self.now).packet)

    def greet(self):
        self.say(Hello())

    def turn(self):
        self.place.look()
        self.now += 100_000
        for packet in self.place.packets:
            messages, sends = self.links.receive(packet, self.now)
            self.told += messages
            for send in sends:
                self.place.transport.send(send.packet)
        self.place.packets.clear()
        for send in self.links.tick(self.now):
            self.place.transport.send(send.packet)

    def heard(self, kind):
        return [message for _, message in self.place.heard if isinstance(message, kind)]

    def hears(self, kind, count=1):
        eventually(lambda: len(self.heard(kind)) >= count, 15, self.turn)
        return self.heard(kind)

    def is_told(self, kind):
        return eventually(lambda: [each for each in self.told if isinstance(each, kind)], 15, self.turn)

    def cut(self):
        """Whether the coordinator is gone."""
        return bool(select.select([self.line], [], [], 0)[0]) and lifeline.is_cut(self.line)

    def close(self):
        if self.line is not None:
            self.line.close()
        self.place.close()
