"""Nothing: a pipeline that does not survive a loss, and says so.

Everything is taken and released at once. The loss of a worker ends the run with an error.
"""

from __future__ import annotations

from tidemill.core.decisions import AssignAll, EndRun, SealSoFar
from tidemill.core.halves import Change, CoordinatorDecisions
from tidemill.core.ids import Generation, Micros, ShardId
from tidemill.core.keys import FULL
from tidemill.core.messages import Lineage
from tidemill.core.routing import Routing
from tidemill.recovery.contract import NOTHING, CoordinatorBase, WorkerBase


class NothingWorker(WorkerBase):
    """Keeps nothing."""


class NothingCoordinator(CoordinatorBase):
    def __init__(self, commit_every: Micros | None) -> None:
        self._commit_every = commit_every
        self._sealed_at: Micros | None = None

    def begin(self, generation: Generation, journal: list[bytes], routing: Routing) -> CoordinatorDecisions:
        if generation > 1:
            return (EndRun("the coordinator was lost, and recovery=None keeps nothing to go on from"),)
        return (AssignAll(),)

    def lost(self, shards: list[ShardId]) -> CoordinatorDecisions:
        return (EndRun(f"{len(shards)} shards were lost with their worker, and recovery=None keeps nothing of them"),)

    def lineage(self, shard: ShardId) -> Lineage:
        return Lineage(shard, FULL, [])

    def reroute(self, change: Change, routing: Routing) -> CoordinatorDecisions:
        return (EndRun("recovery=None can't change the routing of a run: give it a recovery mechanism"),)

    def ticked(self, now: Micros) -> CoordinatorDecisions:
        if self._commit_every is None:
            return ()
        if self._sealed_at is None or now < self._sealed_at:
            self._sealed_at = now
        if now - self._sealed_at < self._commit_every:
            return ()
        self._sealed_at = now
        return (SealSoFar(),)


class Nothing:
    """`commit_every`: what has come to the sinks is made visible so often, for nothing of it is ever taken back."""

    name = "nothing"
    promise = NOTHING

    def __init__(self, commit_every: Micros | None = None) -> None:
        self._commit_every = commit_every

    def worker_half(self) -> NothingWorker:
        return NothingWorker()

    def coordinator_half(self) -> NothingCoordinator:
        return NothingCoordinator(self._commit_every)
