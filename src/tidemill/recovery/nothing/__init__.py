"""Nothing: a pipeline that does not survive a loss, and says so.

Everything is taken and released at once. The loss of a worker ends the run with an error.
"""

from __future__ import annotations

from tidemill.core.decisions import AssignAll, EndRun
from tidemill.core.halves import Change, CoordinatorDecisions
from tidemill.core.ids import Generation, ShardId
from tidemill.core.keys import FULL
from tidemill.core.messages import Lineage
from tidemill.core.routing import Routing
from tidemill.recovery.contract import NOTHING, CoordinatorBase, WorkerBase


class NothingWorker(WorkerBase):
    """Keeps nothing."""


class NothingCoordinator(CoordinatorBase):
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


class Nothing:
    name = "nothing"
    promise = NOTHING

    def worker_half(self) -> NothingWorker:
        return NothingWorker()

    def coordinator_half(self) -> NothingCoordinator:
        return NothingCoordinator()
