"""Sources settle what a rewind rests on, once for each run or plan: which files there are, when a clock began."""

from __future__ import annotations

from dataclasses import replace

from tidemill.core.graph import Graph
from tidemill.core.ids import Micros
from tidemill.ports import Preparable


def settled(graph: Graph, now: Micros) -> Graph:
    nodes = {
        name: replace(node, handle=node.handle.prepared(now)) if isinstance(node.handle, Preparable) else node
        for name, node in graph.nodes.items()
    }
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)
