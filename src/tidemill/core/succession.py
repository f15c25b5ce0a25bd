"""How shards are made: anew, or from those that they succeed.

A split gives the child the keys of its range and a copy of the parent's identities; a merge gives it all keys of both
parents, and their identities in pieces. The child is a new lineage: its own records are numbered from one, under its
own origin, and what the parents had still to send stays theirs (Law 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core.computing import BundleShard, RecordShard
from tidemill.core.graph import Graph
from tidemill.core.identities import Identities
from tidemill.core.ids import Micros
from tidemill.core.shard import Place, Shard, SinkShard, SourceShard


def new_shard(graph: Graph, place: Place, plan_seed: int) -> Shard:
    """An empty shard of the kind that its node asks for."""
    node = graph.nodes[place.node]
    if node.kind == "source":
        return SourceShard(graph, place)
    if node.kind == "sink":
        return SinkShard(graph, place)
    if node.vectorised:
        return BundleShard(graph, place, plan_seed)
    return RecordShard(graph, place, plan_seed)


def successor(graph: Graph, place: Place, plan_seed: int, parents: Sequence[Shard]) -> Shard:
    """The shard that takes over from its parents: one where a range was split, several where ranges were merged."""
    child = new_shard(graph, place, plan_seed)
    child.mark = Micros(min(parent.mark for parent in parents))
    child.outside = Micros(min(parent.outside for parent in parents))
    child.identities = Identities.merged(parent.identities.narrowed(place.range) for parent in parents)
    assert isinstance(child, RecordShard | BundleShard), "only computations are split and merged"
    for parent in parents:
        child.absorb(parent)
    child.keep_range(place.range)
    return child
