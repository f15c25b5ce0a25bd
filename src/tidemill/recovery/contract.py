"""The recovery contract: what a mechanism is told, what it may decide, and what the core promises it.

A mechanism is two state machines. One half lives in each worker, the other in the coordinator; they derive from the
bases here and override what concerns them. A hook returns decisions (`core/decisions.py`), which the core carries out
in order, at once. A half never does I/O, holds no reference to the worker or the coordinator, and may keep any state
of its own.

What the core promises a worker's half:

- `adopt` comes before anything else about a shard; nothing runs until it decides `Install`.
- `handled` comes once for each event that a shard handled, in order, with the entry as it took effect; `None` stands
  for a bundle that was known already (its sender still waits for `Acknowledge`).
- `flushed` follows; everything handled before it is in it. Its records, and the mark that speaks for them, are held
  until `Release`.
- Storage answers come under the ticket they were asked with; appends to one log in the order they were asked for.
- After `dropped` nothing more is told of the shard, except answers to what was asked for it before.

What it promises the coordinator's half:

- `begin` comes once for each generation, when the workers are there, with all journal entries of its predecessors.
- `lost` comes with shards that have no owner, when replacements are there or were waited for long enough.
- `yielded` comes when the owner has drained the shard and dropped it. If the owner dies before, `lost` comes instead.
- `drained` comes when all marks have reached the end: everything produced has been taken responsibility for.
"""

from __future__ import annotations

from typing import Protocol

from tidemill.core.decisions import Acknowledge, Finish, Install, Release
from tidemill.core.flow import Arrival
from tidemill.core.graph import Graph
from tidemill.core.halves import Change, CoordinatorDecisions, CoordinatorHalf, WorkerDecisions, WorkerHalf
from tidemill.core.ids import Generation, Micros, Peer, ShardId, Ticket
from tidemill.core.messages import Adoption, Lineage
from tidemill.core.order import Entry
from tidemill.core.pieces import begun
from tidemill.core.routing import Routing
from tidemill.core.shard import Place, Shard


class Mechanism(Protocol):
    """What `recovery=` is given: makes the halves. A value that can be sent to workers."""

    @property
    def name(self) -> str: ...

    @property
    def promise(self) -> str:
        """What holds after a loss; the conformance suite skips by this and by nothing else."""

    def worker_half(self) -> WorkerHalf: ...

    def coordinator_half(self) -> CoordinatorHalf: ...


EXACTLY_ONCE = "exactly once"
NOTHING = "nothing"


class WorkerBase:
    """A half that keeps nothing: shards begin empty, and everything is taken and released at once."""

    def adopt(self, adoption: Adoption, graph: Graph, plan_seed: int) -> WorkerDecisions:
        return (Install(begun(graph, place_of(adoption), plan_seed, adoption.initial)),)

    def loaded(self, ticket: Ticket, entries: list[bytes]) -> WorkerDecisions:
        raise AssertionError(f"nothing was asked for under {ticket}, {len(entries)} entries came")

    def arrived(self, shard: ShardId, arrival: Arrival) -> WorkerDecisions:
        return (Acknowledge(arrival.channel.id, arrival.number),)

    def handled(self, shard: Shard, entry: Entry | None, arrival: Arrival | None) -> WorkerDecisions:
        return ()

    def flushed(self, shard: ShardId, flush: int) -> WorkerDecisions:
        return (Release(shard, flush),)

    def marker(self, shard: Shard, sender: ShardId, marker: bytes) -> WorkerDecisions:
        raise AssertionError(f"no marker is ever sent, {sender} sent {marker!r} to {shard.place}")

    def persisted(self, ticket: Ticket) -> WorkerDecisions:
        return ()

    def refused(self, ticket: Ticket) -> WorkerDecisions:
        return ()

    def acknowledged(self, shard: ShardId, receiver: ShardId, number: int) -> WorkerDecisions:
        return ()

    def told(self, sender: Peer, payload: bytes) -> WorkerDecisions:
        return ()

    def ticked(self, now: Micros) -> WorkerDecisions:
        return ()

    def dropped(self, shard: ShardId) -> None:
        return None


class CoordinatorBase:
    """What most coordinators' halves have in common."""

    def begin(self, generation: Generation, journal: list[bytes], routing: Routing) -> CoordinatorDecisions:
        raise NotImplementedError

    def lost(self, shards: list[ShardId]) -> CoordinatorDecisions:
        raise NotImplementedError

    def reroute(self, change: Change, routing: Routing) -> CoordinatorDecisions:
        raise NotImplementedError

    def lineage(self, shard: ShardId) -> Lineage:
        raise NotImplementedError

    def yielded(self, shard: ShardId) -> CoordinatorDecisions:
        return ()

    def persisted(self, ticket: Ticket) -> CoordinatorDecisions:
        return ()

    def told(self, sender: Peer, payload: bytes) -> CoordinatorDecisions:
        return ()

    def ticked(self, now: Micros) -> CoordinatorDecisions:
        return ()

    def drained(self) -> CoordinatorDecisions:
        return (Finish(),)


def place_of(adoption: Adoption) -> Place:
    return Place(adoption.shard, adoption.node, adoption.range, adoption.epoch)
