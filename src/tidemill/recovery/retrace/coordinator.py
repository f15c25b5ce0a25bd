"""The coordinator's half of Retrace: who succeeds whom, written in the journal before it is true."""

from __future__ import annotations

import msgspec

from tidemill.core.decisions import Assign, NewShard, Supersede, TakeBack, Write
from tidemill.core.halves import Change, CoordinatorDecisions
from tidemill.core.ids import Generation, NodeName, ShardId, Ticket
from tidemill.core.keys import KeyRange
from tidemill.core.messages import Lineage
from tidemill.core.routing import Routing
from tidemill.recovery.contract import CoordinatorBase


class Succession(msgspec.Struct, frozen=True, array_like=True):
    """A journal entry: these shards were replaced by those."""

    node: NodeName
    removed: list[ShardId]
    added: list[Lineage]


class _Rerouting(msgspec.Struct):
    """A change under way: shards still to be yielded, then the journal, then the new owners."""

    change: Change
    awaited: dict[ShardId, None]
    ticket: Ticket | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Succession).decode


class RetraceCoordinator(CoordinatorBase):
    def __init__(self) -> None:
        self._lineages: dict[ShardId, Lineage] = {}
        self._nodes: dict[ShardId, NodeName] = {}
        self._rerouting: _Rerouting | None = None
        self._succession: Succession | None = None
        self._tickets = 0

    def begin(self, generation: Generation, journal: list[bytes], routing: Routing) -> CoordinatorDecisions:
        for route in routing.all():
            self._lineages[route.shard] = Lineage(route.shard, route.range, [])
            self._nodes[route.shard] = route.node
        supersedes = [self._supersede(_decode(data)) for data in journal]
        return (*supersedes, Assign(list(self._lineages)))

    def _supersede(self, succession: Succession) -> Supersede:
        for shard in succession.removed:
            del self._lineages[shard]
        for lineage in succession.added:
            self._lineages[lineage.shard] = lineage
            self._nodes[lineage.shard] = succession.node
        added = [NewShard(succession.node, new.range, new.shard, new) for new in succession.added]
        return Supersede(succession.removed, added)

    def lineage(self, shard: ShardId) -> Lineage:
        return self._lineages[shard]

    def lost(self, shards: list[ShardId]) -> CoordinatorDecisions:
        rerouting = self._rerouting
        if rerouting is not None:
            if rerouting.ticket is not None:
                # The journal decides; until it has answered, the shards that it may replace stay without an owner.
                shards = [shard for shard in shards if shard not in rerouting.change.shards]
            else:
                self._rerouting = None  # an owner died before it had drained: the change is off
                shards = [*shards, *(shard for shard in rerouting.change.shards if shard not in rerouting.awaited)]
        return (Assign(shards),) if shards else ()

    def reroute(self, change: Change, routing: Routing) -> CoordinatorDecisions:
        if self._rerouting is not None:
            return ()
        self._rerouting = _Rerouting(change, dict.fromkeys(change.shards))
        return [TakeBack(shard, list(change.shards)) for shard in change.shards]

    def yielded(self, shard: ShardId) -> CoordinatorDecisions:
        rerouting = self._rerouting
        if rerouting is None or shard not in rerouting.awaited:
            return (Assign([shard]),)  # the change was called off while its owner drained it
        del rerouting.awaited[shard]
        if rerouting.awaited:
            return ()
        if rerouting.change.kind == "move":
            self._rerouting = None
            to = rerouting.change.to
            return (Assign([shard], {} if to is None else {shard: to}),)
        self._tickets += 1
        rerouting.ticket = Ticket(self._tickets)
        self._succession = self._succession_of(rerouting.change)
        return (Write(rerouting.ticket, _encode(self._succession)),)

    def _succession_of(self, change: Change) -> Succession:
        parents = [self._lineages[shard] for shard in change.shards]
        if change.kind == "merge":
            whole = KeyRange(parents[0].range.low, parents[-1].range.high)
            added = [Lineage(change.added[0], whole, parents)]
        else:
            middle = (parents[0].range.low + parents[0].range.high) // 2
            ranges = parents[0].range.split(middle)
            added = [Lineage(shard, range, parents) for shard, range in zip(change.added, ranges, strict=True)]
        return Succession(self._nodes[change.shards[0]], list(change.shards), added)

    def persisted(self, ticket: Ticket) -> CoordinatorDecisions:
        rerouting, succession = self._rerouting, self._succession
        assert rerouting is not None
        assert succession is not None
        assert rerouting.ticket == ticket
        self._rerouting = self._succession = None
        return (self._supersede(succession), Assign(list(rerouting.change.added)))
