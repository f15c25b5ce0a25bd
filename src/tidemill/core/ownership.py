"""The coordinator's table of who owns what, and the granting of epochs."""

from __future__ import annotations

import msgspec

from tidemill.core.decisions import NewShard
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, Generation, NodeName, Peer, ShardId, StreamName, WorkerId, first_epoch
from tidemill.core.keying import origin_position
from tidemill.core.messages import Adoption, Lineage
from tidemill.core.routing import Route, Routing, initial_routes


class Ownership:
    def __init__(self, graph: Graph, generation: Generation, splits: dict[NodeName, int], shards: int) -> None:
        counts = {node.name: splits.get(node.name, shards) for node in graph.nodes.values()}
        self.routing = Routing()
        self.routing.change([], initial_routes(graph, counts, ShardId(1)))
        self._producers = graph.producers
        self._unkeyed: dict[NodeName, list[StreamName]] = {}
        for read in graph.subscriptions:
            if not read.key.columns and read.key.function is None:
                self._unkeyed.setdefault(read.consumer, []).append(read.stream)
        self._granted = first_epoch(generation)
        self._lineages = first_epoch(generation)
        self._adopting: dict[ShardId, Peer] = {}
        self._yielded: dict[ShardId, None] = {}  # given back on demand, and not given to anybody yet

    def grant(self) -> Epoch:
        """An epoch that was never granted before and never will be again."""
        self._granted = Epoch(self._granted + 1)
        return self._granted

    def new_lineage(self) -> ShardId:
        self._lineages = Epoch(self._lineages + 1)
        return ShardId(self._lineages)

    def place(
        self, shards: list[ShardId], alive: list[Peer], to: dict[ShardId, WorkerId]
    ) -> list[tuple[ShardId, Peer]]:
        """Gives each shard a new epoch and a worker: one that has fewest shards of its node.

        Of these the one where most of what it will be sent without a key is made, and then the one that has fewest in
        all. With nobody alive they stay without an owner, to be found again when somebody is.
        """
        for shard in shards:
            route = self.routing[shard]
            self._adopting.pop(shard, None)
            self._yielded.pop(shard, None)
            self.routing.change([], [msgspec.structs.replace(route, epoch=self.grant(), owner=None)])
        placed = []
        load: dict[Peer, int] = {peer: len(self.of(peer)) for peer in alive}
        of_node: dict[tuple[Peer, NodeName], int] = {}
        for peer in alive:
            for shard in self.of(peer):
                key = (peer, self.routing[shard].node)
                of_node[key] = of_node.get(key, 0) + 1
        for shard in shards if alive else ():
            node = self.routing[shard].node
            wanted = [peer for peer in alive if peer.worker == to.get(shard)] or alive
            near = self._makers(shard)
            owner = min(wanted, key=lambda peer: (of_node.get((peer, node), 0), -near.get(peer, 0), load[peer], peer))
            load[owner] += 1
            of_node[(owner, node)] = of_node.get((owner, node), 0) + 1
            self._adopting[shard] = owner
            placed.append((shard, owner))
        return placed

    def _makers(self, shard: ShardId) -> dict[Peer, int]:
        """By worker, the shards there whose records come to this one for want of a key."""
        route = self.routing[shard]
        counts: dict[Peer, int] = {}
        for stream in self._unkeyed.get(route.node, ()):
            for producer in self._producers[stream]:
                for maker in self.routing.of_node(producer):
                    owner = maker.owner or self._adopting.get(maker.shard)
                    if owner is not None and route.range.contains(origin_position(maker.shard)):
                        counts[owner] = counts.get(owner, 0) + 1
        return counts

    def adoption(self, shard: ShardId, lineage: Lineage) -> Adoption:
        route = self.routing[shard]
        return Adoption(shard, route.node, route.range, route.epoch, lineage)

    def ready(self, shard: ShardId, epoch: Epoch, sender: Peer) -> Route | None:
        """The route with its owner, from now on; `None` if the shard was given to somebody else meanwhile."""
        route = self.routing.get(shard)
        if route is None or route.epoch != epoch or self._adopting.get(shard) != sender:
            return None
        del self._adopting[shard]
        owned = msgspec.structs.replace(route, owner=sender)
        self.routing.change([], [owned])
        return owned

    def supersede(self, removed: list[ShardId], added: list[NewShard]) -> list[Route]:
        for shard in removed:
            self._adopting.pop(shard, None)
            self._yielded.pop(shard, None)
        routes = [Route(new.shard, new.node, new.range, Epoch(0), None) for new in added]
        self.routing.change(removed, routes)
        return routes

    def of(self, peer: Peer) -> list[ShardId]:
        """What a worker owns or is about to own."""
        adopting = [shard for shard, owner in self._adopting.items() if owner == peer]
        return [route.shard for route in self.routing.of_owner(peer)] + adopting

    def owned_by(self, shard: ShardId, epoch: Epoch, peer: Peer) -> bool:
        route = self.routing.get(shard)
        return route is not None and route.epoch == epoch and route.owner == peer

    def disown(self, shards: list[ShardId], *, yielded: bool = False) -> None:
        for shard in shards:
            self._adopting.pop(shard, None)
            if yielded:
                self._yielded[shard] = None
            self.routing.change([], [msgspec.structs.replace(self.routing[shard], owner=None)])

    def homeless(self) -> list[ShardId]:
        """Shards that nobody owns, is about to own, or has given back for somebody else."""
        return [
            route.shard
            for route in self.routing.all()
            if route.owner is None and route.shard not in self._adopting and route.shard not in self._yielded
        ]

    def complete(self) -> bool:
        """Every shard has an owner that is ready."""
        return all(route.owner is not None for route in self.routing.all())
