"""What a wish to move, split or merge means for the routing, or that it can't be had."""

from __future__ import annotations

from tidemill.core.events import MergeAsked, MoveAsked, SplitAsked
from tidemill.core.graph import Graph
from tidemill.core.halves import Change
from tidemill.core.ownership import Ownership


def changed(event: MoveAsked | SplitAsked | MergeAsked, ownership: Ownership, graph: Graph) -> Change | None:
    route = ownership.routing.get(event.shard)
    if route is None:
        return None
    if isinstance(event, MoveAsked):
        owner = route.owner
        if owner is None or owner.worker == event.to:
            return None
        return Change("move", (event.shard,), event.to, ())
    if graph.nodes[route.node].kind != "computation":
        return None  # a source's shards are its splits; a sink's records are placed by their origins
    if isinstance(event, SplitAsked):
        if route.range.high - route.range.low < 2:
            return None
        return Change("split", (event.shard,), None, (ownership.new_lineage(), ownership.new_lineage()))
    right = [other for other in ownership.routing.of_node(route.node) if other.range.low == route.range.high]
    if not right:
        return None
    return Change("merge", (event.shard, right[0].shard), None, (ownership.new_lineage(),))
