"""One worker's process: the core's worker, and all that it asks of the world, in one Spark task.

It lives until the run is over, until its place was given to another, or until the coordinator's process is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from tidemill.core import effects, events
from tidemill.core.graph import Node
from tidemill.core.ids import Incarnation, Micros, Peer, ShardId, WorkerId, coordinator_peer
from tidemill.core.messages import Packet
from tidemill.core.worker import Worker
from tidemill.errors import RunError
from tidemill.hosts.loop import Loop
from tidemill.hosts.spark import lifeline, protocol
from tidemill.hosts.spark.clock import WallClock
from tidemill.hosts.spark.orders import Orders, submission_of
from tidemill.hosts.spark.orphans import OrphanWatch
from tidemill.hosts.spark.reading import Reading
from tidemill.hosts.spark.sinking import Sinking
from tidemill.hosts.spark.spilling import Spilling
from tidemill.hosts.spark.transport import Transport
from tidemill.observe.progress import ShardFacts, WorkerFacts
from tidemill.recovery.contract import NOTHING

TICK: Final = Micros(10_000)
FACTS_EVERY: Final = Micros(250_000)
LAST_WORDS_MS: Final = 500

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

KEPT: Final = 64 * 1024 * 1024
"""Bytes that the process keeps for itself when nothing uses them."""

LARGEST_KEPT: Final = 16 * 1024 * 1024
"""A larger piece of memory goes back to the system at once."""

ORPHANED: Final = "orphaned"
"""The coordinator's process is gone."""


def work(orders: bytes, place: int, submission: int, attempt: int) -> str:
    """The whole life of a worker; why it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on a terminal, Ctrl-C reaches everybody; the driver decides
    given: Orders = pickle.loads(orders)  # noqa: S301 - made by the driver, carried in Spark's own closure
    process = WorkerProcess(given, given.me(place, submission, attempt))
    wake_on_time()
    keep_memory()
    gc.collect()
    gc.freeze()  # what is here stays; to look through it again and again would stop the worker for milliseconds
    try:
        return process.run()
    finally:
        process.close()


class WorkerProcess:
    def __init__(self, orders: Orders, me: Peer) -> None:
        self.me = me
        self.orders = orders
        self._clock = WallClock()
        self._ended = ""
        self._parked = False
        self._coordinator: Peer | None = None
        self._line = lifeline.hold(orders.lifeline, me, orders.secrets)
        host = self._line.getsockname()[0]
        self.transport = Transport(orders.secrets, host, orders.graph, hear=self._hear, say=self._say)
        self.transport.watch(self._line, self._look_at_line)
        half = orders.mechanism.worker_half()
        self.core = Worker(me, orders.graph, half, orders.limits, orders.plan_seed, trace_of)
        self.loop = Loop(self.core, self.transport, self._clock, tick=TICK)
        self.reading = Reading(self._node_of, self._clock.now, self.loop.tell)
        self.spilling = Spilling()
        at_once = orders.mechanism.promise == NOTHING
        self.sinking = Sinking(me, orders.graph, self._node_of, self.loop, self._to_coordinator, at_once=at_once)
        self._told_facts = Micros(0)
        self._newest = me  # of this place, as far as is known
        self._set_up()
        self._join()

    def _set_up(self) -> None:
        loop = self.loop
        loop.performs(self._performers())
        loop.every += [self.transport.look, self._tell_facts, lambda _: self.sinking.send_gathered()]
        loop.idle.append(self.sinking.send_gathered)
        loop.held = lambda: self.sinking.full
        loop.due = self.reading.due

    def _performers(self) -> dict[type, Callable[[Any], None]]:
        return {
            effects.Send: self._send,
            effects.Read: self.reading.read,
            effects.LoadInitial: self._load_initial,
            effects.Stage: self.sinking.stage,
            effects.CloseStage: self.sinking.close_stage,
            effects.Spill: self.spilling.spill,
            effects.ReadBack: self._read_back,
            effects.DropSpill: self.spilling.drop,
            effects.Note: lambda effect: self._note(effect.what, effect.about),
            effects.Exit: self._exit,
            effects.OpenLog: self._no_log,
            effects.Append: self._no_log,
        }

    def run(self) -> str:
        watch = OrphanWatch(self._line)
        try:
            self.loop.run()
        except Exception as error:
            self._last_words(error)
            raise
        finally:
            watch.close()
        if self._parked:
            select.select([self._line], [], [])
        return self._ended

    def _last_words(self, error: Exception) -> None:
        """A fault of ours: the run learns of it before this process dies of it."""
        self.loop.perform(self.core.handle(events.Broken(self._clock.now(), error)))
        time.sleep(LAST_WORDS_MS / 1_000)

    def close(self) -> None:
        self.reading.close()
        self.sinking.close()
        self.spilling.close()
        self.transport.close(LAST_WORDS_MS)
        self._line.close()

    # Where the coordinator and the others are

    def _join(self) -> None:
        unknown = Peer(WorkerId(-1), Incarnation(0))  # until it says which it is
        self.transport.know({unknown: self.orders.coordinator})
        join = protocol.Join(
            protocol.VERSION,
            self.me.worker,
            self.me.incarnation,
            self.transport.address,
            socket.gethostname(),
            os.getpid(),
        )
        self.transport.control(unknown, join)

    def _hear(self, _: bytes, message: protocol.Control) -> None:
        match message:
            case protocol.Welcome(generation):
                self._coordinator = coordinator_peer(generation)  # type: ignore[arg-type]
                self.transport.know({self._coordinator: self.orders.coordinator})
                self.core.meet(self._coordinator)
                self.loop.perform(self.core.greet(self._clock.now()))
            case protocol.Book(entries):
                book = {Peer(worker, incarnation): address for worker, incarnation, address in entries}
                self._newest = max((peer for peer in book if peer.worker == self.me.worker), default=self.me)
                if self._coordinator is not None:
                    book[self._coordinator] = self.orders.coordinator
                self.transport.know(book)
            case protocol.Taken(number=number):
                self.sinking.taken(number)
            case protocol.Unwelcome(why):
                raise RunError(why)
            case _:
                raise ValueError(f"{type(message).__name__} is not for a worker")

    def _look_at_line(self) -> None:
        if lifeline.is_cut(self._line):
            self.transport.unwatch(self._line)
            self._end(self._ended or ORPHANED)

    # Performing

    def _node_of(self, shard: ShardId) -> Node | None:
        hosted = self.core.hosted.get(shard)
        return hosted.node if hosted is not None else None

    def _send(self, effect: effects.Send) -> None:
        packet: Packet = effect.packet
        if packet.to == self.me:
            self.loop.tell(lambda now: events.Received(now, packet))
        else:
            self.transport.send(packet)

    def _read_back(self, effect: effects.ReadBack) -> None:
        entries = self.spilling.take(effect)
        self.loop.tell(lambda now: events.ReadBackDone(now, effect.shard, effect.epoch, entries))

    def _load_initial(self, effect: effects.LoadInitial) -> None:
        state = self.core.graph.nodes[effect.node].initial
        shard, epoch = effect.shard, effect.epoch
        self.loop.aside(
            lambda: state.load(effect.range),
            lambda parts: lambda now: events.InitialLoaded(now, shard, epoch, parts),
        )

    def _no_log(self, _: Any) -> None:
        raise RunError(
            f"recovery by {self.orders.mechanism.name} keeps logs, and a live run has no storage for them yet. Use "
            "recovery=None, or tm.testing.simulate for this mechanism."
        )

    def _exit(self, effect: effects.Exit) -> None:
        """Outdated by another attempt of the same job, this one waits: Spark ends all attempts when one has ended."""
        newest = self._newest
        of_same_job = newest > self.me and submission_of(newest) == submission_of(self.me)
        self._parked = effect.reason == "outdated" and of_same_job
        self._to_coordinator(protocol.Facts(self.facts()))
        self._end(effect.reason)

    def _end(self, reason: str) -> None:
        self._ended = reason
        self.loop.over = True

    # What it says of itself

    def _to_coordinator(self, message: protocol.Control) -> None:
        if self._coordinator is not None:
            self.transport.control(self._coordinator, message)

    def _say(self, text: str) -> None:
        self._note("refused", text)

    def _note(self, what: str, about: str) -> None:
        self._to_coordinator(protocol.Noted(str(self.me), what, about))

    def _tell_facts(self, now: Micros) -> None:
        if now - self._told_facts >= FACTS_EVERY:
            self._told_facts = now
            self._to_coordinator(protocol.Facts(self.facts()))

    def facts(self) -> WorkerFacts:
        shards = [
            ShardFacts(
                hosted.node.name,
                hosted.id,
                hosted.records_in,
                hosted.records_out,
                hosted.shard.late if hosted.shard is not None else 0,
                self.reading.malformed.get(hosted.id, 0),
                hosted.queued_weight(),
            )
            for hosted in self.core.hosted.values()
        ]
        used = os.times()
        refused = self.transport.refused + self.core.refused + self.core.links.refused
        return WorkerFacts(
            self.me.worker,
            self.me.incarnation,
            socket.gethostname(),
            os.getpid(),
            resident_memory(),
            used.user + used.system,
            refused,
            shards,
        )


def wake_on_time() -> None:
    """Linux lets a sleeper oversleep by 50 microseconds unless it is told otherwise. Elsewhere nothing is lost."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(29, 1_000, 0, 0, 0)  # PR_SET_TIMERSLACK, in nanoseconds


def keep_memory() -> None:
    """The columns of a bundle are large, and made anew for each: fetching their memory from the system again and again
    costs more than the work that is done on them. What glibc has, it keeps, up to a bound. Elsewhere nothing is lost.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)


def resident_memory() -> int:
    """In bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as statm:  # noqa: PTH123 - a few times a second
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def trace_of(error: Exception) -> str:
    """The user's own part of a traceback: from where our code called theirs."""
    cause = error.__cause__ if error.__cause__ is not None else error
    frames = traceback.extract_tb(cause.__traceback__)
    theirs = [frame for frame in frames if f"{os.sep}tidemill{os.sep}" not in frame.filename]
    lines = traceback.format_list(theirs or frames) + traceback.format_exception_only(cause)
    return "Traceback (most recent call last):\n" + "".join(lines)
