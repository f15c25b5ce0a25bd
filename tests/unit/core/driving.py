"""A worker or a coordinator driven by hand: a test says what it hears, and reads what it says and asks for.

Everybody else stands behind a link of their own, so that what is said arrives as messages and not as packets. Nothing
happens by itself: a worker takes its turns when it is told to `work`, and time passes with `tick`.
"""

# mypy: disable-error-code="arg-type, index, list-item"

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from tests.unit.core.pipes import batch
from tidemill.core import decisions as d
from tidemill.core import effects, events, messages
from tidemill.core.coordinator import Coordinator, Plan
from tidemill.core.flow import Arrival
from tidemill.core.graph import Graph
from tidemill.core.ids import COORDINATOR, END, Peer
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.limits import Limits
from tidemill.core.link import Links
from tidemill.core.messages import Adoption, ChannelId, Delivery, Lineage, ShardReport
from tidemill.core.order import Entry
from tidemill.core.routing import Route
from tidemill.core.shard import Shard
from tidemill.core.worker import Worker
from tidemill.recovery.contract import WorkerBase

ME, OTHER, THIRD = Peer(0, 1), Peer(1, 1), Peer(2, 1)
FIRST = Peer(COORDINATOR, 1)
TICK = 20_000

Kind = TypeVar("Kind")


class Driven:
    """What both have in common: the others' ends of the links."""

    core: Any
    me: Peer

    def __init__(self) -> None:
        self.now = 1_000_000
        self.effects: list[Any] = []
        self.said: dict[Peer, list[Any]] = {}
        self.to_itself: list[messages.Packet] = []
        self._others: dict[Peer, Links] = {}

    def other(self, peer: Peer) -> Links:
        return self._others.setdefault(peer, Links(peer))

    def perform(self, performed: list[Any]) -> None:
        """Lets what is sent arrive, and keeps the rest in `effects`."""
        for effect in performed:
            if not isinstance(effect, effects.Send):
                self.effects.append(effect)
                continue
            to = effect.packet.to
            if to == self.me:
                self.to_itself.append(effect.packet)
                continue
            arrived, _ = self.other(to).receive(effect.packet, self.now)
            self.said.setdefault(to, []).extend(arrived)

    def happen(self, event: Any) -> None:
        self.perform(self.core.handle(event))

    def hear(self, sender: Peer, *heard: Any) -> None:
        for message in heard:
            packet = self.other(sender).send(self.me, message, self.now).packet
            self.happen(events.Received(self.now, packet))

    def tick(self, after: int = TICK) -> None:
        self.now += after
        self.happen(events.Ticked(self.now))

    def persist(self, ticket: int) -> None:
        self.happen(events.Persisted(self.now, ticket))

    def refuse(self, ticket: int) -> None:
        self.happen(events.Refused(self.now, ticket))

    def asked(self, kind: type[Kind]) -> list[Kind]:
        """The effects of a kind since the last time, taken out."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def told(self, peer: Peer, kind: type[Kind]) -> list[Kind]:
        """The messages of a kind that were said to a peer since the last time, taken out."""
        said = self.said.get(peer, [])
        self.said[peer] = [message for message in said if not isinstance(message, kind)]
        return [message for message in said if isinstance(message, kind)]


# A worker


class Told(WorkerBase):
    """A half that does what a test decides, and writes down what it is told.

    It installs shards and takes what arrives at once, unless told to hold; releasing is always left to the test
    with `hold=True`.
    """

    def __init__(self, *, hold: bool = False, take: bool = True) -> None:
        self.hold = hold
        self.take = take
        self.events: list[tuple[Any, ...]] = []
        self.decisions: tuple[Any, ...] = ()

    def arrived(self, shard: Any, arrival: Arrival) -> Any:
        self.events.append(("arrived", shard, arrival.channel.id.from_shard, arrival.number))
        return super().arrived(shard, arrival) if self.take else ()

    def handled(self, shard: Shard, entry: Entry | None, arrival: Arrival | None) -> Any:
        self.events.append(("handled", shard.place.shard, entry, arrival and arrival.number))
        return ()

    def flushed(self, shard: Any, flush: int) -> Any:
        self.events.append(("flushed", shard, flush))
        return () if self.hold else super().flushed(shard, flush)

    def marker(self, shard: Shard, sender: Any, marker: bytes) -> Any:
        self.events.append(("marker", shard.place.shard, sender, marker))
        return ()

    def acknowledged(self, shard: Any, receiver: Any, number: int) -> Any:
        self.events.append(("acknowledged", shard, receiver, number))
        return ()

    def ticked(self, now: Any) -> Any:
        decisions, self.decisions = self.decisions, ()
        return decisions

    def dropped(self, shard: Any) -> None:
        self.events.append(("dropped", shard))

    def of(self, what: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] == what]


def route(shard: int, node: str, owner: Peer | None, *, range: KeyRange = FULL, epoch: int = 1) -> Route:
    return Route(shard, node, range, epoch, owner)


def adoption(shard: int, node: str, *, range: KeyRange = FULL, epoch: int = 1) -> Adoption:
    return Adoption(shard, node, range, epoch, Lineage(shard, range, []))


class DrivenWorker(Driven):
    core: Worker

    def __init__(self, graph: Graph, half: Any = None, *, limits: Limits | None = None, me: Peer = ME) -> None:
        super().__init__()
        self.me = me
        self.half = half if half is not None else Told()
        self.core = Worker(me, graph, self.half, limits or Limits(), plan_seed=1)
        self.core.meet(FIRST)
        self._numbers: dict[ChannelId, int] = {}

    def routes(self, *changed: Route, removed: tuple[int, ...] = (), gone: tuple[Peer, ...] = ()) -> None:
        self.hear(FIRST, messages.Routes(list(removed), list(changed), list(gone)))

    def adopt(self, *adoptions: Adoption) -> None:
        self.hear(FIRST, messages.Adopt(list(adoptions)))

    def decide(self, *decisions: Any) -> None:
        """What the half decides of its own accord, as if a tick had brought it about."""
        self.half.decisions = decisions
        self.happen(events.Ticked(self.now))

    def deliver(
        self,
        channel: ChannelId,
        item: Any,
        sender: Peer = OTHER,
        *,
        number: int | None = None,
        back_edge: bool = False,
    ) -> None:
        """A bundle or a marker comes from a shard elsewhere."""
        self._numbers[channel] = number or self._numbers.get(channel, 0) + 1
        kind = messages.InBand if isinstance(item, bytes) else Delivery
        self.hear(sender, kind(channel, self._numbers[channel], item, back_edge))

    def take_receipt(self, channel: ChannelId, taken: int, worked: int = 0, report: int = 0, by: Peer = OTHER) -> None:
        self.hear(by, messages.Receipts([messages.Receipt(channel, taken, worked, report)]))

    def publish(self, *accepted: messages.Accepted, idle: tuple[str, ...] = (), **marks: int) -> None:
        """The authority's word; `_` stands for the hyphen in a node's name."""
        named = [(name.replace("_", "-"), mark) for name, mark in marks.items()]
        self.hear(FIRST, messages.Marks(named, list(accepted), list(idle)))

    def turn(self) -> None:
        self.happen(events.Turn(self.now))

    def work(self) -> None:
        for _ in range(10_000):
            if not self.core.busy:
                return
            self.turn()
        raise AssertionError("it never comes to rest")

    def read(self, *rows: tuple[str, int, int], mark: int, idle: bool = False, take: bool = True) -> None:
        """Answers the one read that was asked for; `END` as the mark ends the source."""
        (asked,) = self.asked(effects.Read)
        self.answer(asked, *rows, mark=mark, idle=idle)
        if take:
            self.work()

    def answer(self, asked: effects.Read, *rows: tuple[str, int, int], mark: int, idle: bool = False) -> None:
        times = np.array([at for _, _, at in rows], np.int64)
        columns = batch(*((word, n) for word, n, _ in rows)) if rows else None
        position = asked.position + len(rows)
        self.happen(events.ReadDone(self.now, asked.shard, asked.epoch, columns, times, position, mark, idle))

    def deliveries(self, peer: Peer = OTHER) -> list[Delivery]:
        return self.told(peer, Delivery)

    def loop_back(self) -> None:
        """What it said to itself arrives."""
        packets, self.to_itself = self.to_itself, []
        for packet in packets:
            self.happen(events.Received(self.now, packet))

    def reports(self) -> list[ShardReport]:
        return [value for report in self.told(FIRST, messages.Report) for value in report.shards]

    def reported(self) -> dict[int, int]:
        """What it reports when it has come to rest and some time has passed: shard to mark."""
        self.work()
        self.tick()
        return {value.shard: value.mark for value in self.reports()}


# A coordinator


class Deciding:
    """A coordinator's half that assigns everything at first, and then does what a test says."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    def _told(self, what: str, *about: Any) -> Any:
        self.events.append((what, *about))
        answer = self.answers.get(what, ())
        return answer(*about) if callable(answer) else answer

    def begin(self, generation: Any, journal: list[bytes], routing: Any) -> Any:
        self._told("begin", generation, journal)
        return self.answers.get("begin", (d.Assign([route.shard for route in routing.all()]),))

    def lost(self, shards: Any) -> Any:
        self._told("lost", list(shards))
        return self.answers.get("lost", (d.Assign(list(shards)),))

    def lineage(self, shard: Any) -> Lineage:
        return Lineage(shard, FULL, [])

    def reroute(self, change: Any, routing: Any) -> Any:
        return self._told("reroute", change)

    def yielded(self, shard: Any) -> Any:
        return self._told("yielded", shard)

    def persisted(self, ticket: Any) -> Any:
        return self._told("persisted", ticket)

    def told(self, sender: Peer, payload: bytes) -> Any:
        return self._told("told", sender, payload)

    def ticked(self, now: Any) -> Any:
        return self.answers.pop("ticked", ())

    def drained(self) -> Any:
        self._told("drained")
        return self.answers.get("drained", (d.Finish(),))

    def of(self, what: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] == what]


class DrivenCoordinator(Driven):
    core: Coordinator

    def __init__(
        self,
        graph: Graph,
        half: Any = None,
        *,
        workers: int = 1,
        shards: int = 1,
        splits: int = 1,
        generation: int = 1,
        journal: tuple[bytes, ...] = (),
        claim: bool = True,
    ) -> None:
        super().__init__()
        self.half = half if half is not None else Deciding()
        sources = {node.name: splits for node in graph.of_kind("source")}
        self.core = Coordinator(graph, self.half, Plan(workers, sources, shards))
        self.me = Peer(COORDINATOR, generation)
        self.happen(events.Started(self.now))
        if claim:
            self.happen(events.Claimed(self.now, generation, list(journal)))
            self.tick()
        self._numbers: dict[Peer, int] = {}

    def join(self, *peers: Peer) -> None:
        for peer in peers:
            self.hear(peer, messages.Hello())

    def adopted(self, peer: Peer) -> list[Adoption]:
        return [given for adopt in self.told(peer, messages.Adopt) for given in adopt.adoptions]

    def ready(self, *peers: Peer) -> None:
        """All that was given to them is restored."""
        for peer in peers:
            for given in self.adopted(peer):
                self.hear(peer, messages.Ready(given.shard, given.epoch))

    def gone(self, peer: Peer) -> None:
        self.happen(events.PeerGone(self.now, peer))

    def report(self, peer: Peer, *values: tuple[int, int], idle: bool = False) -> None:
        """The worker's next report, of (shard, mark), under the epochs as they are."""
        self._numbers[peer] = self._numbers.get(peer, 0) + 1
        routing = self.core.ownership.routing
        shards = [ShardReport(shard, routing[shard].epoch, mark, idle) for shard, mark in values]
        self.hear(peer, messages.Report(self._numbers[peer], shards))

    def end(self) -> None:
        """Everybody says that all is over, and the authority finds so."""
        for peer in self.core.members.alive():
            self.report(peer, *((route.shard, END) for route in self.core.ownership.routing.of_owner(peer)))
        self.tick()

    def owner_of(self, shard: int) -> Peer | None:
        return self.core.ownership.routing[shard].owner

    def epoch_of(self, shard: int) -> int:
        return self.core.ownership.routing[shard].epoch

    def shards_of(self, node: str) -> list[int]:
        return [route.shard for route in self.core.ownership.routing.of_node(node)]
