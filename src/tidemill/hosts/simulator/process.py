"""A simulated process: one core, an inbox, a clock that may be wrong, and a life that may end between two effects.

This is the interpreter of effects under virtual time. It handles one event at a time; each takes some microseconds,
more on a slow machine. While it is paused everything waits in the inbox, as it would for a process that was stopped.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tidemill.core import effects, events
from tidemill.core.bundle import encode_batch
from tidemill.core.coordinator import Coordinator
from tidemill.core.effects import Effect
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, Incarnation, Micros, Peer, ShardId, WorkerId, coordinator_peer
from tidemill.core.messages import Packet
from tidemill.core.worker import Worker
from tidemill.hosts.simulator.disk import Disk
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.network import Network
from tidemill.hosts.simulator.world import World
from tidemill.ports import ARRIVAL, Source

TICK = 20_000
HANDLING = 30  # microseconds for one event


class Surroundings(Protocol):
    """What a process needs of the cluster it runs in."""

    world: World
    network: Network
    disk: Disk
    graph: Graph
    faults: Faults

    def crash_due(self, role: str, effect: str) -> str | None:
        """Whether the process is to die at this effect, and at which moment of it."""

    def crashed(self, process: Process, effect: str, moment: str) -> None: ...
    def exited(self, process: Process, reason: str) -> None: ...
    def failed(self, error: str, message: str) -> None: ...
    def noted(self, process: Process, what: str, about: str) -> None: ...
    def handled(self, process: Process) -> None: ...


class Process:
    role = "process"
    peer: Peer

    def __init__(self, around: Surroundings, core: Any, clock_offset: int, slowness: int) -> None:
        self.around = around
        self.core = core
        self.alive = True
        self.paused_until = 0
        self.inbox: deque[Callable[[], Any]] = deque()
        self.trace = hashlib.sha256()
        self.events = 0
        self._clock_offset = clock_offset
        self._slowness = slowness
        self._running = False
        self._perform: dict[type, Callable[[Any], None]] = {
            effects.Send: lambda effect: around.network.send(effect.packet),
            effects.Note: lambda effect: around.noted(self, effect.what, effect.about),
            effects.Exit: lambda effect: self._exit(effect.reason),
            effects.Forget: lambda _: None,
        }

    def clock(self) -> Micros:
        return Micros(self.around.world.now + self._clock_offset)

    def start(self) -> None:
        self.tell(lambda: events.Started(self.clock()))
        self._tick()

    def _tick(self) -> None:
        if self.alive:
            self.tell(lambda: events.Ticked(self.clock()))
            self.around.world.after(TICK, self._tick)

    def tell(self, event: Callable[[], Any]) -> None:
        """Puts an event into the inbox; it is made when its turn comes, with the clock as it is then."""
        if self.alive:
            self.inbox.append(event)
            self._run_later(HANDLING * self._slowness)

    def receive(self, packet: Packet) -> None:
        self.tell(lambda: events.Received(self.clock(), packet))

    def pause(self, length: int) -> None:
        self.paused_until = max(self.paused_until, self.around.world.now + length)

    def _run_later(self, delay: int) -> None:
        if not self._running:
            self._running = True
            self.around.world.after(max(delay, self.paused_until - self.around.world.now), self._run)

    def _run(self) -> None:
        self._running = False
        if not self.alive:
            return
        if self.paused_until > self.around.world.now:
            self._run_later(0)
            return
        if self.inbox:
            self._handle(self.inbox.popleft()())
        elif self.core.busy:
            self._handle(events.Turn(self.clock()))
        self._go_on(HANDLING * self._slowness)

    def _go_on(self, delay: int) -> None:
        if self.alive and (self.inbox or self.core.busy):
            self._run_later(delay)

    def _handle(self, event: Any) -> None:
        self.events += 1
        performed = self.core.handle(event)
        self.trace.update(type(event).__name__.encode())
        self.perform(performed)
        self.around.handled(self)

    def perform(self, performed: list[Effect]) -> None:
        for effect in performed:
            name = type(effect).__name__
            self.trace.update(name.encode())
            moment = self.around.crash_due(self.role, name)
            if moment == "torn":
                self._tear(effect)
            elif moment != "before":
                self._perform[type(effect)](effect)
            if moment is not None:
                self.die()
                self.around.crashed(self, name, moment)
            if not self.alive:
                return

    def _tear(self, effect: Any) -> None:
        raise NotImplementedError

    def _answered(self, ticket: Any, *, durable: bool) -> None:
        if durable:
            self.tell(lambda: events.Persisted(self.clock(), ticket))
        else:
            self.tell(lambda: events.Refused(self.clock(), ticket))

    def die(self) -> None:
        self.alive = False
        self.inbox.clear()

    def _exit(self, reason: str) -> None:
        self.die()
        self.around.exited(self, reason)


class WorkerProcess(Process):
    role = "worker"
    core: Worker

    def __init__(self, around: Surroundings, core: Worker, clock_offset: int, slowness: int) -> None:
        super().__init__(around, core, clock_offset, slowness)
        self._readers: dict[tuple[ShardId, Epoch], Any] = {}
        self._staged: dict[tuple[ShardId, Epoch], list[bytes]] = {}
        self._spilled: dict[tuple[ShardId, Epoch], list[bytes]] = {}  # gone with the process
        self._pieces = 0
        disk = around.disk
        performs: dict[type, Callable[[Any], None]] = {
            effects.Read: self._read,
            effects.OpenLog: lambda e: disk.open_log(
                e.log, e.epoch, last=e.last, done=lambda entries: self._loaded(e.ticket, entries)
            ),
            effects.Append: lambda e: disk.append(
                e.log, e.epoch, e.entries, lambda durable: self._answered(e.ticket, durable=durable)
            ),
            effects.LoadInitial: self._load_initial,
            effects.Stage: self._stage,
            effects.CloseStage: self._close_stage,
            effects.Spill: lambda e: self._spilled.setdefault((e.shard, e.epoch), []).append(e.entry),
            effects.ReadBack: self._read_back,
            effects.DropSpill: self._drop_spill,
        }
        self._perform |= performs

    @property
    def peer(self) -> Peer:  # type: ignore[override]
        return self.core.me

    def meet(self, coordinator: Peer) -> None:
        if self.alive:
            self.core.meet(coordinator)
            self.perform(self.core.greet(self.clock()))
            self._go_on(0)

    def _loaded(self, ticket: Any, entries: list[bytes] | None) -> None:
        if entries is None:
            self.tell(lambda: events.Refused(self.clock(), ticket))
        else:
            self.tell(lambda: events.Loaded(self.clock(), ticket, entries))

    def _read(self, effect: effects.Read) -> None:
        """Reads a few records, after a while: a source is spread over the run's time."""
        node = self.core.hosted[effect.shard].node
        source: Source = node.handle
        world = self.around.world
        limit = world.between(1, 24)
        key = (effect.shard, effect.epoch)
        position, reader = self._readers.get(key, (None, None))
        if position != effect.position:
            reader = source.open(source.splits()[effect.split], effect.position)

        def done() -> None:
            chunk = reader.read(limit)
            self._readers[key] = (chunk.position, reader)
            self.tell(lambda: self._read_event(effect, chunk, source))

        world.after(int(world.chance.expovariate(1 / self.around.faults.reading)), done)

    def _read_event(self, effect: effects.Read, chunk: Any, source: Source) -> events.ReadDone:
        times = None if source.timestamp == ARRIVAL else chunk.times
        shard, epoch = effect.shard, effect.epoch
        return events.ReadDone(
            self.clock(), shard, epoch, chunk.batch, times, chunk.position, chunk.watermark, chunk.idle, chunk.malformed
        )

    def _drop_spill(self, effect: effects.DropSpill) -> None:
        del self._spilled[effect.shard, effect.epoch]

    def _read_back(self, effect: effects.ReadBack) -> None:
        spilled = self._spilled[effect.shard, effect.epoch]
        entries, spilled[:] = spilled[: effect.count], spilled[effect.count :]
        delay = int(self.around.world.chance.expovariate(1 / 300))
        self.around.world.after(
            delay,
            lambda: self.tell(lambda: events.ReadBackDone(self.clock(), effect.shard, effect.epoch, entries)),
        )

    def _load_initial(self, effect: effects.LoadInitial) -> None:
        parts = self.core.graph.nodes[effect.node].initial.load(effect.range)
        self.around.world.after(
            int(self.around.world.chance.expovariate(1 / 300)),
            lambda: self.tell(lambda: events.InitialLoaded(self.clock(), effect.shard, effect.epoch, parts)),
        )

    def _stage(self, effect: effects.Stage) -> None:
        bundle = effect.bundle
        self._staged.setdefault((effect.shard, effect.epoch), []).append(encode_batch(bundle.batch))

    def _piece_name(self, effect: effects.CloseStage) -> str:
        self._pieces += 1
        return f"piece-{effect.shard}-{effect.epoch}-{self._pieces}"

    def _close_stage(self, effect: effects.CloseStage) -> None:
        name = self._piece_name(effect)
        shard, epoch, round = effect.shard, effect.epoch, effect.round
        batches = self._staged.pop((shard, epoch), [])  # what is staged from now on is for the next
        done = lambda: events.SealDone(self.clock(), shard, epoch, name.encode(), round)  # noqa: E731
        self.around.disk.put_piece(name, batches, lambda: self.tell(done))

    def _tear(self, effect: Any) -> None:
        disk = self.around.disk
        if isinstance(effect, effects.Append):
            disk.tear(effect.log, effect.epoch, effect.entries)
        else:
            assert isinstance(effect, effects.CloseStage)
            disk.tear_piece(self._piece_name(effect), self._staged.get((effect.shard, effect.epoch), []))


class CoordinatorProcess(Process):
    role = "coordinator"
    core: Coordinator

    def __init__(self, around: Surroundings, core: Coordinator, clock_offset: int, slowness: int) -> None:
        super().__init__(around, core, clock_offset, slowness)
        disk = around.disk
        performs: dict[type, Callable[[Any], None]] = {
            effects.Claim: lambda _: disk.claim(
                lambda generation, entries: self.tell(lambda: events.Claimed(self.clock(), generation, entries))
            ),
            effects.Journal: lambda e: disk.write_journal(
                e.generation, e.entry, lambda durable: self._answered(e.ticket, durable=durable)
            ),
            effects.Fail: lambda e: around.failed(e.error, e.message),
        }
        self._perform |= performs

    @property
    def peer(self) -> Peer:  # type: ignore[override]
        if self.core.phase == "claiming":
            return Peer(WorkerId(-1), Incarnation(0))
        return coordinator_peer(self.core.generation)

    def gone(self, peer: Peer) -> None:
        self.tell(lambda: events.PeerGone(self.clock(), peer))

    def _exit(self, reason: str) -> None:
        self.around.exited(self, reason)  # it stays, and tells of the end whoever asks

    def _tear(self, effect: Any) -> None:
        assert isinstance(effect, effects.Journal)
        self.around.disk.tear_journal(effect.generation, effect.entry)
