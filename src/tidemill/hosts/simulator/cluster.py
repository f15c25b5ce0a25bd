"""The simulated cluster: starts processes, kills, pauses and replaces them, and knows how it ended.

What Spark and the operating system do for a real run is done here: a process that dies is replaced after a while, its
death is made known to the coordinator, and a coordinator that dies is started anew.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.core.bundle import decode_batch
from tidemill.core.coordinator import Coordinator, Plan, decode_commit, decode_entry
from tidemill.core.events import MergeAsked, MoveAsked, SplitAsked
from tidemill.core.graph import Graph
from tidemill.core.ids import Incarnation, Micros, NodeName, Peer, ShardId, WorkerId
from tidemill.core.limits import Limits
from tidemill.core.worker import Worker
from tidemill.hosts.simulator.disk import Disk
from tidemill.hosts.simulator.faults import CrashPoint, Faults
from tidemill.hosts.simulator.network import Network
from tidemill.hosts.simulator.process import CoordinatorProcess, Process, WorkerProcess
from tidemill.hosts.simulator.watching import Watch
from tidemill.hosts.simulator.world import World
from tidemill.recovery.contract import Mechanism

TOO_LONG = 600_000_000
"""Virtual time after which a run counts as stuck."""

SLOWEST_START = 4_000_000
"""Virtual time in which a process that died is replaced."""


class Crash(NamedTuple):
    role: str
    effect: str
    moment: str


@dataclass
class Outcome:
    """How a simulated run ended."""

    seed: int
    faults: Faults
    finished: bool
    error: tuple[str, str] | None
    virtual_seconds: float
    events: int
    crashes: list[Crash]
    counts: Counter[str]  # what happened how often: losses, recoveries, reroutings ...
    story: list[str]
    trace: str  # the same for the same seed
    calm_after: float  # from this virtual second on nothing new went wrong, and what had was over
    effects: Counter[tuple[str, str]]  # by role and kind: where a crash can be planned
    disk: Disk  # as it was left
    pieces: dict[str, list[list[pa.RecordBatch]]] = field(default_factory=dict)  # by sink, with event times

    @property
    def committed(self) -> dict[str, list[pa.RecordBatch]]:
        """By sink, with event times."""
        return {sink: [batch for piece in pieces for batch in piece] for sink, pieces in self.pieces.items()}


def _limits(faults: Faults) -> Limits:
    limits = Limits(report_every=Micros(20_000))
    if not faults.window:
        return limits
    return limits._replace(window=faults.window, full_bundle=faults.window, loop_memory=faults.window)


class Simulation:
    """One run of a pipeline under one seed."""

    def __init__(
        self,
        graph: Graph,
        mechanism: Mechanism,
        *,
        seed: int,
        workers: int = 5,
        faults: Faults | None = None,
        limits: Limits | None = None,
        shards: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.graph = graph
        self.mechanism = mechanism
        self.seed = seed
        self.faults = faults or Faults()
        self.limits = limits or _limits(self.faults)
        self.world = World(seed)
        self.watch = watch or Watch()
        self.network = Network(self.world, self.faults, graph, self.watch)
        self.disk = Disk(self.world, self.faults)
        splits = {node.name: len(node.handle.splits()) for node in graph.of_kind("source")}
        self.plan = Plan(workers, splits, shards or workers)
        self.coordinator: CoordinatorProcess | None = None
        self.workers: dict[WorkerId, WorkerProcess] = {}
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.crashes: list[Crash] = []
        self.error: tuple[str, str] | None = None
        self.finished = False
        self.calm_after = 0
        self._effects: Counter[tuple[str, str]] = Counter()
        self._points: list[CrashPoint] = list(self.faults.crashes)
        self._ended_processes: list[Process] = []
        self._incarnations: Counter[WorkerId] = Counter()

    # Running

    def run(self) -> Outcome:
        self._start_coordinator()
        for place in range(self.plan.workers):
            self._start_worker(WorkerId(place))
        self._plan_faults()
        while not self.finished and self.error is None and self.world.now < TOO_LONG and self.world.step():
            pass
        return self.outcome()

    def outcome(self) -> Outcome:
        processes = [*self._ended_processes, *self.workers.values()]
        if self.coordinator is not None:
            processes.append(self.coordinator)
        trace = hashlib.sha256()
        for process in processes:
            trace.update(process.trace.digest())
        for line in self.story:
            trace.update(line.encode())
        outcome = Outcome(
            self.seed,
            self.faults,
            self.finished,
            self.error,
            self.world.now / 1e6,
            sum(process.events for process in processes),
            self.crashes,
            self.counts + self.network.counts + self.disk.counts,
            self.story,
            trace.hexdigest(),
            self.calm_after / 1e6,
            self._effects,
            self.disk,
        )
        if self.finished:
            outcome.pieces = self.committed()
            for _, batches in sorted(outcome.committed.items()):
                for batch in batches:
                    trace.update(batch.serialize().to_pybytes())
            outcome.trace = trace.hexdigest()
        return outcome

    def committed(self) -> dict[str, list[list[pa.RecordBatch]]]:
        """What the sinks show: the pieces that the final commit lists."""
        shown: dict[str, list[list[pa.RecordBatch]]] = {str(node.name): [] for node in self.graph.of_kind("sink")}
        for data in self.disk.journal():
            entry = decode_entry(data)
            if entry.kind == "commit":
                for node, piece in decode_commit(entry.payload).pieces:
                    schema = self._sink_schema(node)
                    shown[node].append([decode_batch(batch, schema) for batch in self.disk.piece(piece.decode())])
        return shown

    def _sink_schema(self, node: NodeName) -> pa.Schema:
        stream = next(s.stream for s in self.graph.subscriptions if s.consumer == node)
        return self.graph.streams[stream].wire_schema

    def tell(self, text: str) -> None:
        self.story.append(f"{self.world.now / 1e6:10.6f}  {text}")

    # Processes

    def _offset(self) -> int:
        most = self.faults.clock_offset
        return self.world.between(-most, most) if most else 0

    def _start_worker(self, place: WorkerId) -> None:
        self._incarnations[place] += 1
        me = Peer(place, Incarnation(self._incarnations[place]))
        core = Worker(me, self.graph, self.mechanism.worker_half(), self.limits, plan_seed=self.seed)
        slowness = 10 if place < self.faults.slow_workers else 1
        process = WorkerProcess(self, core, self._offset(), slowness)
        previous = self.workers.get(place)
        if previous is not None:
            self._ended_processes.append(previous)
        self.workers[place] = process
        self.network.connect(me, process.receive)
        self.tell(f"{me} starts")
        process.start()
        if self.coordinator is not None and self.coordinator.core.phase != "claiming":
            process.meet(self.coordinator.peer)

    def _start_coordinator(self) -> None:
        if self.coordinator is not None:
            self._ended_processes.append(self.coordinator)
        core = Coordinator(self.graph, self.mechanism.coordinator_half(), self.plan)
        process = self.coordinator = CoordinatorProcess(self, core, self._offset(), 1)
        self.tell("a coordinator starts")
        process.start()

    def noted(self, process: Process, what: str, about: str) -> None:
        self.counts[what] += 1
        self.tell(f"{process.peer}: {what} {about}")
        if what == "claimed":
            assert isinstance(process, CoordinatorProcess)
            self.network.connect(process.peer, process.receive)
            for worker in self.workers.values():
                self.world.after(self.world.between(100, 5_000), partial(worker.meet, process.peer))

    def handled(self, process: Process) -> None:
        self.watch.handled(process)

    def failed(self, error: str, message: str) -> None:
        self.error = (error, message)
        self.tell(f"the run failed: {error}: {message}")

    def exited(self, process: Process, reason: str) -> None:
        if isinstance(process, CoordinatorProcess):
            self.tell(f"{process.peer} is done: {reason}")
            if reason == "finished" and process is self.coordinator:
                self.finished = True
            return
        assert isinstance(process, WorkerProcess)
        self.tell(f"{process.peer} exits: {reason}")
        self.counts[f"exit {reason}"] += 1
        self.network.disconnect(process.peer)
        if reason == "outdated" and process is self.workers[process.peer.worker]:
            self._replace(process)

    # Faults

    def crash_due(self, role: str, effect: str) -> str | None:
        self._effects[role, effect] += 1
        for point in self._points:
            if point.role == role and point.effect == effect and point.nth == self._effects[role, effect]:
                self._points.remove(point)
                return point.moment
        return None

    def crashed(self, process: Process, effect: str, moment: str) -> None:
        self.crashes.append(Crash(process.role, effect, moment))
        self.tell(f"{process.peer} crashes {moment} {effect}")
        self._bury(process)

    def _trouble(self, length: int = 0) -> None:
        """Something goes wrong now, for so long."""
        self.calm_after = max(self.calm_after, self.world.now + length)

    def kill(self, process: Process) -> None:
        """`kill -9`, at any moment."""
        if process.alive:
            process.die()
            self.counts["killed"] += 1
            self.tell(f"{process.peer} is killed")
            self._bury(process)

    def _bury(self, process: Process) -> None:
        world = self.world
        self._trouble(SLOWEST_START)
        if isinstance(process, WorkerProcess):
            self.network.disconnect(process.peer)
            if process is self.workers[process.peer.worker]:
                self._replace(process)
            peer = process.peer
            world.after(world.between(1_000, 300_000), lambda: self._announce(peer))
        elif process is self.coordinator:
            assert isinstance(process, CoordinatorProcess)
            self.network.disconnect(process.peer)
            world.after(world.between(10_000, 1_000_000), self._start_coordinator)

    def _replace(self, process: WorkerProcess) -> None:
        place = process.peer.worker
        self.world.after(self.world.between(10_000, SLOWEST_START), lambda: self._start_worker(place))

    def _announce(self, peer: Peer) -> None:
        """The coordinator learns that a process has ended."""
        if self.coordinator is not None and self.coordinator.alive:
            self.coordinator.gone(peer)

    def _plan_faults(self) -> None:
        faults = self.faults
        for times, happen in (
            (faults.pauses, self._pause_somebody),
            (faults.cuts, self._cut_somewhere),
            (faults.full_disks, self.fill_disk),
            (faults.reroutings, self._reroute),
            (faults.second_coordinators, self.doubt_coordinator),
            (faults.second_workers, self._double_somebody),
        ):
            for _ in range(times):
                # Most of the work is done at once, or after the first recovery; little happens between the two.
                latest = self.world.chance.choice((200_000, 2_000_000, 5_000_000))
                self.world.after(self.world.between(10_000, latest), happen)

    def _pause_somebody(self) -> None:
        processes: list[Any] = [p for p in (*self.workers.values(), self.coordinator) if p is not None and p.alive]
        if processes:
            self.pause(self.world.chance.choice(processes), self.faults.pause_length)

    def pause(self, process: Process, length: int) -> None:
        """It stands still, as under SIGSTOP, and does not know of it when it goes on."""
        self.counts["paused"] += 1
        self._trouble(length)
        self.tell(f"{process.peer} is paused for {length / 1e6} s")
        process.pause(length)

    def _cut_somewhere(self) -> None:
        one, other = self.world.chance.sample([-1, *self.workers], 2)
        self.cut(one, other, self.faults.cut_length)

    def cut(self, one: int, other: int, length: int) -> None:
        """Nothing passes between two workers for a while; -1 is the coordinator."""
        self.counts["cut"] += 1
        self._trouble(length)
        ends = " and ".join("the coordinator" if end < 0 else f"worker{end}" for end in (one, other))
        self.tell(f"the connection of {ends} is lost for {length / 1e6} s")
        self.network.cut(one, other, self.world.now + length)

    def fill_disk(self) -> None:
        self.counts["disk full"] += 1
        self._trouble(self.faults.full_length)
        self.tell(f"the disk is full for {self.faults.full_length / 1e6} s")
        self.disk.fill(self.world.now + self.faults.full_length)

    def doubt_coordinator(self) -> None:
        """The coordinator is stopped and thought dead; a second one starts, and the first one wakes up later."""
        old = self.coordinator
        if old is None or not old.alive or old.core.phase in ("claiming", "over"):
            return
        self.counts["second coordinator"] += 1
        self.tell(f"{old.peer} is paused, and another takes its place")
        length = self.world.between(100_000, 5_000_000)
        self._trouble(length)
        old.pause(length)
        self._start_coordinator()

    def _reroute(self) -> None:
        process = self.coordinator
        if process is None or not process.alive or process.core.phase in ("claiming", "gathering"):
            self.world.after(50_000, self._reroute)  # not yet, or not now
            return
        if process.core.phase != "running":
            return
        if not process.core.ownership.complete():
            self.world.after(50_000, self._reroute)
            return
        chance = self.world.chance
        routes = process.core.ownership.routing.all()
        kind = chance.choice(("move", "split", "merge"))
        if kind == "move":
            self.reroute(kind, chance.choice(routes).shard, WorkerId(chance.randrange(self.plan.workers)))
            return
        computations = [route for route in routes if self.graph.nodes[route.node].kind == "computation"]
        if computations:
            self.reroute(kind, chance.choice(computations).shard)

    def reroute(self, kind: str, shard: ShardId, to: WorkerId | None = None) -> None:
        """Somebody asks for a range to be moved, split, or merged with the next."""
        process = self.coordinator
        assert process is not None
        self._trouble()
        self.counts[f"{kind} asked"] += 1
        if kind == "move":
            assert to is not None
            process.tell(lambda: MoveAsked(process.clock(), shard, to))
        elif kind == "split":
            process.tell(lambda: SplitAsked(process.clock(), shard))
        else:
            process.tell(lambda: MergeAsked(process.clock(), shard))

    def _double_somebody(self) -> None:
        self.double(self.world.chance.choice(list(self.workers)))

    def double(self, place: WorkerId) -> None:
        """A second process is started for a worker, as by speculation, and the first one lives on."""
        self.counts["second worker"] += 1
        self._trouble()
        self._start_worker(place)
