"""The coordinator's process: the core's coordinator, beside the driver and not in it.

A driver that computes, sleeps or is stopped does not silence it. It knows of workers' deaths by their lifelines and of
the driver's by the end of its own standard input; then it lets the workers go and ends.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
from collections import deque
from typing import Any, Final

from tidemill.core import effects, events
from tidemill.core.coordinator import COMMIT_TICKET, Coordinator, decode_commit, decode_entry
from tidemill.core.graph import Node
from tidemill.core.ids import Generation, Incarnation, Micros, NodeName, Peer, WorkerId, coordinator_peer
from tidemill.errors import RunError
from tidemill.hosts.loop import Loop, broken
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.clock import WallClock
from tidemill.hosts.spark.lifeline import Lifelines
from tidemill.hosts.spark.orders import CoordinatorOrders, Gathered
from tidemill.hosts.spark.overview import Known, Overview
from tidemill.hosts.spark.sinking import Blame
from tidemill.hosts.spark.transport import Transport
from tidemill.observe.journal import Happening, JournalWriter

TICK: Final = Micros(10_000)
SHOW_EVERY: Final = Micros(200_000)
FAREWELL: Final = Micros(1_000_000)
"""So long the workers have, after the end, to hear of it and to leave."""

LAST_WORDS: Final = Micros(50_000)
"""What the workers said last is here so long after they have left, at the latest."""

UNWELCOME: Final = WorkerId(-2)
"""In place of a worker: one that may be told only that it can't be one."""

DRIVER: Final = b"driver"
"""The name of the driver's own connection."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    data = _exactly(int.from_bytes(_exactly(8), "big"))
    orders: CoordinatorOrders = pickle.loads(data)  # noqa: S301 - over the pipe of the driver, its parent
    process = CoordinatorProcess(orders)
    try:
        process.run()
    finally:
        process.close()


def _exactly(count: int) -> bytes:
    """From the standard input, past any buffer: its end is waited for later."""
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            sys.exit("the driver ended before it said what to do")
        data += more
    return data


class CoordinatorProcess:
    def __init__(self, orders: CoordinatorOrders) -> None:
        self.orders = orders
        self._clock = WallClock()
        self._known: dict[Peer, Known] = {}
        self._forgotten: dict[Peer, None] = {}
        self._unwelcome: dict[str, Peer] = {}  # by where they listen
        self._shown = Micros(0)
        self._leave_at: Micros | None = None
        self._gathering: dict[Peer, int] = {}  # the last number that came of each worker
        self._claimed = coordinator_peer(Generation(orders.generation))
        self._trouble: effects.Fail | None = None
        self._said_the_end = False
        self._for_driver: deque[protocol.Control] | None = deque()  # until it is there
        self._committed: dict[NodeName, int] = {}  # each sink's last commit
        self.journal = JournalWriter(orders.journal, on_trouble=self._complain) if orders.journal is not None else None
        door = socket.socket(fileno=orders.door)
        self.transport = Transport(
            orders.secrets, orders.host, orders.graph, hear=self._hear, say=self._say, bound=door
        )
        self.core = Coordinator(orders.graph, orders.mechanism.coordinator_half(), orders.plan)
        self.loop = Loop(self.core, self.transport, self._clock, tick=TICK)
        self.overview = Overview(self.core, orders.mechanism.name, Micros(orders.started))
        self.lines = Lifelines(
            socket.socket(fileno=orders.lifelines),
            orders.secrets,
            watch=self.transport.watch,
            unwatch=self.transport.unwatch,
            gone=self._gone,
            say=self._say,
        )
        self.transport.watch(0, self._look_at_driver)
        self.loop.every += [self.transport.look, self.lines.look, self._show]
        self.loop.performs(
            {
                effects.Send: lambda effect: self.transport.send(effect.packet),
                effects.Claim: self._claim,
                effects.Journal: self._journal,
                effects.Note: lambda effect: self._note(str(self._claimed), effect.what, effect.about),
                effects.Forget: lambda effect: self._forget(effect.peer),
                effects.Fail: self._fail,
                effects.Exit: self._exit,
            }
        )

    def run(self) -> None:
        self._note("driver", "started", f"{self.orders.graph.name}, recovery={self.orders.mechanism.name}")
        self.loop.run()

    def close(self) -> None:
        self.transport.close(500)
        self.lines.close()
        if self.journal is not None:
            self.journal.close()

    # Storage. Without a folder there is one generation, and nothing outlives the process.

    def _claim(self, _: effects.Claim) -> None:
        """The sinks are claimed with it: an earlier run may have committed to them, and numbers go on from there."""
        generation = Generation(self.orders.generation)

        def claim() -> dict[NodeName, int]:
            numbers = {}
            for node in self._sinks():
                with Blame(node):
                    numbers[node.name] = node.handle.committed(generation)
            return numbers

        def claimed(numbers: dict[NodeName, int]) -> Any:
            self._committed = numbers
            return lambda now: events.Claimed(now, generation, [])

        if self._sinks():
            self.loop.aside(claim, claimed)
        else:
            self.loop.tell(claimed({}))

    def _sinks(self) -> list[Node]:
        """Those with commits of their own; the others are places in the driver's memory."""
        return [node for node in self.orders.graph.of_kind("sink") if not isinstance(node.handle, Gathered)]

    def _journal(self, effect: effects.Journal) -> None:
        entry = decode_entry(effect.entry)
        if effect.ticket != COMMIT_TICKET or entry.kind != "commit":
            self.loop.tell(lambda now: events.Persisted(now, effect.ticket))
            return
        by_node: dict[NodeName, list[bytes]] = {}
        for name, piece in decode_commit(entry.payload).pieces:
            by_node.setdefault(name, []).append(piece)

        def commit() -> None:
            for node in self._sinks():
                number = self._committed[node.name] + 1
                with Blame(node):
                    node.handle.commit(
                        effect.generation, number, [piece for piece in by_node.get(node.name, ()) if piece]
                    )
                self._committed[node.name] = number

        def done(_: Any) -> Any:
            for name, pieces in by_node.items():
                if isinstance(self.orders.graph.nodes[name].handle, Gathered):
                    self._hand_over(name, pieces)
            return lambda now: events.Persisted(now, effect.ticket)

        self.loop.aside(commit, done)

    def _hand_over(self, node: str, pieces: list[bytes]) -> None:
        """What was gathered for the driver and is committed now."""
        for piece in pieces:
            if piece:
                message = protocol.Gathered(WorkerId(-1), self._claimed.incarnation, 0, node, piece)
                self.loop.post(lambda message=message: self._to_driver(message))  # type: ignore[misc]

    # Workers come and go

    def _hear(self, identity: bytes, message: protocol.Control) -> None:
        match message:
            case protocol.Join():
                self._join(message)
            case protocol.Facts(facts):
                self.overview.learn(Peer(facts.worker, facts.incarnation), facts)  # type: ignore[arg-type]
            case protocol.Noted(who, what, about):
                self._note(who, what, about)
            case protocol.Gathered():
                self._gathered(message)
            case protocol.Taken(worker, incarnation, _):
                self.transport.control(Peer(worker, incarnation), message)
            case protocol.Attach(version) if identity == DRIVER and version == protocol.VERSION:
                self._attached()
            case protocol.Heard() if identity == DRIVER:
                self.loop.over = True
            case protocol.StopRun(abandon) if identity == DRIVER:
                self._stop(abandon=abandon)
            case _:
                raise ValueError(f"{type(message).__name__} is not for the coordinator")

    def _join(self, message: protocol.Join) -> None:
        peer = Peer(message.worker, message.incarnation)
        if message.version != protocol.VERSION:
            self._turn_away(peer, message)
            return
        self._known[peer] = Known(message.address, message.host, message.pid)
        self._tell_transport()
        self.transport.control(peer, protocol.Welcome(self.orders.generation))
        newest = {known.worker: known for known in sorted(self._known) if known not in self._forgotten}
        book = protocol.Book([(*known, self._known[known].address) for known in newest.values()])
        for known in newest.values():
            self.transport.control(known, book)

    def _turn_away(self, peer: Peer, message: protocol.Join) -> None:
        """Under a name of its own: its real one may be that of a worker that is here."""
        first = message.address not in self._unwelcome
        name = self._unwelcome.setdefault(message.address, Peer(UNWELCOME, Incarnation(len(self._unwelcome) + 1)))
        self._tell_transport()
        mine = protocol.VERSION
        why = f"{peer} speaks version {message.version} and the driver {mine}: install one version of tidemill"
        self.transport.control(name, protocol.Unwelcome(why))
        if first:
            self._note(str(self._claimed), "refused", why)

    def _tell_transport(self) -> None:
        known = {peer: at.address for peer, at in self._known.items()}
        self.transport.know(known | {peer: address for address, peer in self._unwelcome.items()})

    def _forget(self, peer: Peer) -> None:
        """It is in nobody's book any more, but can still be told so."""
        self._forgotten[peer] = None

    def _gone(self, peer: Peer) -> None:
        """Its process has ended."""
        self.loop.tell(lambda now: events.PeerGone(now, peer))

    # The driver

    def _look_at_driver(self) -> None:
        if select.select([0], [], [], 0)[0] and not os.read(0, 4096):
            self._note("driver", "gone", "its process has ended; the workers are let go")
            self.loop.over = True

    def _attached(self) -> None:
        waiting, self._for_driver = self._for_driver, None
        for message in waiting or ():
            self._to_driver(message)
        self._show(self._clock.now(), now_or_later=False)

    def _to_driver(self, message: protocol.Control) -> None:
        """Nothing is dropped while it is not there: there may be rows in it."""
        if self._for_driver is not None:
            self._for_driver.append(message)
        elif not self.transport.answer(DRIVER, message):
            self._for_driver = deque([message])

    def _gathered(self, message: protocol.Gathered) -> None:
        peer = Peer(message.worker, message.incarnation)
        expected = self._gathering.get(peer, 0) + 1
        if message.number < expected:
            return  # came twice
        if message.number > expected:
            lost = f"{message.number - expected} batches that {peer} gathered for the driver were lost on the way"
            self.loop.tell(broken(RunError(lost)))
            return
        self._gathering[peer] = message.number
        self._to_driver(message)

    def _stop(self, *, abandon: bool) -> None:
        if abandon:
            self._trouble = effects.Fail("", "abandoned")
            self._exit(effects.Exit("stopped"))
            self._leave_at = self._clock.now()  # nobody is waited for: the workers go when their lifelines are cut
            return
        if self.overview.status in ("starting", "running"):
            self.overview.status = "stopping"
            self.loop.tell(events.StopAsked)

    def _show(self, now: Micros, *, now_or_later: bool = True) -> None:
        if self._leave_at is not None:
            if not self.lines.held():
                self._leave_at = min(self._leave_at, Micros(now + LAST_WORDS))
            if now >= self._leave_at and not self._said_the_end:
                self._say_the_end()
            return
        if self.overview.status == "starting" and self.core.phase == "running" and self.core.ownership.complete():
            self.overview.status = "running"
        if now - self._shown >= SHOW_EVERY or not now_or_later:
            self._shown = now
            self._to_driver(protocol.State(self._progress()))

    def _progress(self) -> Any:
        return self.overview.progress(self._clock.now(), self._known, self._refused())

    def _refused(self) -> int:
        return self.transport.refused + self.lines.refused + len(self._unwelcome)

    # The end

    def _fail(self, effect: effects.Fail) -> None:
        self._trouble = effect

    def _exit(self, effect: effects.Exit) -> None:
        """The core is done. The workers hear of it and say their last words; then the driver hears how it ended."""
        reason = "failed" if self._trouble is not None and self._trouble.error else effect.reason
        self.overview.status = reason  # type: ignore[assignment]
        self._leave_at = Micros(self._clock.now() + FAREWELL)

    def _say_the_end(self) -> None:
        trouble = self._trouble or effects.Fail("", "")
        message = f"{trouble.message}{self._losses()}" if trouble.error else trouble.message
        status = self.overview.status
        self._to_driver(protocol.Ended(status, trouble.error, message, trouble.trace, self._progress()))
        self._said_the_end = True  # once the driver has heard it, or is gone, this process ends

    def _losses(self) -> str:
        """Who was lost, and what had been written by then."""
        lost = [
            f"{peer} (process {self._known[peer].pid} on {self._known[peer].host})"
            for peer in self._forgotten
            if peer in self._known
        ]
        if not lost:
            return ""
        progress = self._progress()
        written = ", ".join(f"{n.name} {n.records_in:,} records" for n in progress.nodes if n.kind == "sink")
        read = ", ".join(f"{n.name} {n.records_out:,}" for n in progress.nodes if n.kind == "source")
        return (
            f". Lost: {', '.join(lost)}. Read by then: {read}. Written by then: {written or 'nothing'}; what else "
            "would have come of what was read is not written."
        )

    # What is said

    def _say(self, text: str) -> None:
        self._note(str(self._claimed), "refused", text)

    def _complain(self, text: str) -> None:
        self._to_driver(protocol.Noted("journal", "trouble", text))

    def _note(self, who: str, what: str, about: str) -> None:
        if self.journal is not None:
            self.journal.write(Happening(self._clock.now(), who, what, about))
        self._to_driver(protocol.Noted(who, what, about))
