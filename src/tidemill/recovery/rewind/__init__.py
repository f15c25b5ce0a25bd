"""Rewind: everything back to the beginning. For tests: the simplest mechanism that keeps its promise.

Whatever is lost, every shard gets a new epoch and begins empty, the sources rewind to their first record, and the marks
fall back. What the attempt before had staged in the sinks is under old epochs, and no commit lists it; so the promise
rests on epochs alone. A change of routing rides on a rewind too.
"""

from __future__ import annotations

from tidemill.core.decisions import AssignAll, NewShard, Supersede
from tidemill.core.halves import Change, CoordinatorDecisions
from tidemill.core.ids import Generation, ShardId
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.messages import Lineage
from tidemill.core.routing import Routing
from tidemill.recovery.contract import EXACTLY_ONCE, CoordinatorBase, WorkerBase


class RewindWorker(WorkerBase):
    """Keeps nothing: there is nothing to restore from."""


class RewindCoordinator(CoordinatorBase):
    def begin(self, generation: Generation, journal: list[bytes], routing: Routing) -> CoordinatorDecisions:
        return (AssignAll(),)

    def lost(self, shards: list[ShardId]) -> CoordinatorDecisions:
        return (AssignAll(),)

    def lineage(self, shard: ShardId) -> Lineage:
        return Lineage(shard, FULL, [])

    def reroute(self, change: Change, routing: Routing) -> CoordinatorDecisions:
        if change.kind == "move":
            assert change.to is not None
            return (AssignAll({change.shards[0]: change.to}),)
        node = routing[change.shards[0]].node
        whole = KeyRange(routing[change.shards[0]].range.low, routing[change.shards[-1]].range.high)
        ranges = whole.split((whole.low + whole.high) // 2) if change.kind == "split" else (whole,)
        added = [
            NewShard(node, range, shard, self.lineage(shard)) for shard, range in zip(change.added, ranges, strict=True)
        ]
        return (Supersede(list(change.shards), added), AssignAll())


class Rewind:
    name = "rewind"
    promise = EXACTLY_ONCE

    def worker_half(self) -> RewindWorker:
        return RewindWorker()

    def coordinator_half(self) -> RewindCoordinator:
        return RewindCoordinator()
