"""Which shard, worker and epoch owns a key range; and how a bundle is cut along it.

A node's routes always cover the whole ring. A route without an owner belongs to a shard that is not ready: what is sent
to it waits at the sender. Split and merge replace routes by others over the same range; a move changes a route's owner
and epoch. Every table, the coordinator's and each worker's, is this class; workers are told the differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.bundle import Bundle, times_of
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, Micros, NodeName, Peer, ShardId
from tidemill.core.keying import FEW, Keying, origin_position
from tidemill.core.keys import KeyRange, even_ranges


class Route(msgspec.Struct, frozen=True, array_like=True):
    shard: ShardId
    node: NodeName
    range: KeyRange
    epoch: Epoch
    owner: Peer | None


class Routing:
    def __init__(self) -> None:
        self._routes: dict[ShardId, Route] = {}
        self._by_node: dict[NodeName, list[Route]] = {}
        self._lows: dict[NodeName, npt.NDArray[np.uint64]] = {}

    def __getitem__(self, shard: ShardId) -> Route:
        return self._routes[shard]

    def get(self, shard: ShardId) -> Route | None:
        return self._routes.get(shard)

    def all(self) -> list[Route]:
        return list(self._routes.values())

    def of_node(self, node: NodeName) -> list[Route]:
        """The node's routes in the order of their ranges."""
        return self._by_node.get(node, [])

    def of_owner(self, owner: Peer) -> list[Route]:
        return [route for route in self._routes.values() if route.owner == owner]

    def overlapping(self, node: NodeName, range: KeyRange) -> list[Route]:
        return [route for route in self.of_node(node) if route.range.overlaps(range)]

    def change(self, removed: Iterable[ShardId], changed: Iterable[Route]) -> list[NodeName]:
        """Applies a difference; gives back the nodes that it touched."""
        nodes: dict[NodeName, None] = {}
        for shard in removed:
            nodes[self._routes.pop(shard).node] = None
        for route in changed:
            self._routes[route.shard] = route
            nodes[route.node] = None
        for node in nodes:
            self._index(node)
        return list(nodes)

    def follow(self, removed: list[ShardId], changed: list[Route], *, whole: bool) -> list[NodeName]:
        """Takes what somebody else's table says; with `whole`, what it does not name is no more."""
        if whole:
            named = {route.shard: None for route in changed}
            removed = [shard for shard in self._routes if shard not in named]
        return self.change([shard for shard in removed if shard in self._routes], changed)

    def _index(self, node: NodeName) -> None:
        routes = sorted((r for r in self._routes.values() if r.node == node), key=lambda route: route.range.low)
        for left, right in pairwise(routes):
            assert left.range.high == right.range.low, f"the routes of {node} leave a gap or overlap"
        self._by_node[node] = routes
        self._lows[node] = np.array([route.range.low for route in routes], np.uint64)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def cut(self, bundle: Bundle, consumer: NodeName, keying: Keying) -> list[tuple[ShardId, Bundle]]:
        """The parts of the bundle for each shard of a consumer; in each, the order stays."""
        routes = self._by_node[consumer]
        if len(routes) == 1:
            return [(routes[0].shard, bundle)]
        lows = self._lows[consumer]
        if not keying.keyed:
            position = np.uint64(origin_position(bundle.origin))
            return [(routes[int(lows.searchsorted(position, side="right")) - 1].shard, bundle)]
        places = _places(keying.positions(bundle.batch), lows)
        if bundle.rows == 1:
            return [(routes[int(places[0])].shard, bundle)]
        return _few_parts(bundle, routes, places.tolist()) if bundle.rows <= FEW else _parts(bundle, routes, places)


SIFTED: Final = 8
"""Up to so many ranges, one look at all records for each range costs less than to search and to sort."""


def _places(positions: npt.NDArray[np.uint64], lows: npt.NDArray[np.uint64]) -> npt.NDArray[np.integer[Any]]:
    """For each position the number of its range, in few bytes: sorting takes as many steps as there are."""
    if len(lows) > SIFTED:
        found = lows.searchsorted(positions, side="right") - 1
        return found.astype(np.uint16) if len(lows) <= 2**16 else found
    places = np.zeros(len(positions), np.uint8)
    for low in lows[1:]:
        places += positions >= low
    return places


def _few_parts(bundle: Bundle, routes: list[Route], places: list[int]) -> list[tuple[ShardId, Bundle]]:
    """Of a handful of records: to slice them one by one and join the slices costs a fraction of sorting them."""
    rows_of: dict[int, list[int]] = {}
    for row, place in enumerate(places):
        rows_of.setdefault(place, []).append(row)
    if len(rows_of) == 1:
        return [(routes[places[0]].shard, bundle)]
    times = times_of(bundle.batch).tolist()
    parts = []
    for place in sorted(rows_of):
        rows = rows_of[place]
        slices = [bundle.batch.slice(row, 1) for row in rows]
        batch = slices[0] if len(slices) == 1 else pa.concat_batches(slices)
        oldest = Micros(min(times[row] for row in rows))
        parts.append((routes[place].shard, Bundle(bundle.stream, bundle.origin, bundle.sequences[rows], batch, oldest)))
    return parts


def _parts(bundle: Bundle, routes: list[Route], places: npt.NDArray[np.integer[Any]]) -> list[tuple[ShardId, Bundle]]:
    order, counts = _sorted_rows(places, len(routes))
    if bundle.rows in counts:
        return [(routes[counts.index(bundle.rows)].shard, bundle)]
    batch, sequences = bundle.batch.take(pa.array(order)), bundle.sequences[order]
    times = times_of(batch)
    parts = []
    start = 0
    for route, count in zip(routes, counts, strict=True):
        end = start + count
        if count:
            oldest = Micros(int(times[start:end].min()))
            part = batch.slice(start, count)
            parts.append((route.shard, Bundle(bundle.stream, bundle.origin, sequences[start:end], part, oldest)))
        start = end
    return parts


def _sorted_rows(places: npt.NDArray[np.integer[Any]], many: int) -> tuple[npt.NDArray[np.intp], list[int]]:
    """The rows of each range behind those of the one before it, in their order; and how many each has."""
    if many > SIFTED:
        return np.argsort(places, kind="stable"), np.bincount(places, minlength=many).tolist()
    found = [np.flatnonzero(places == place) for place in range(many)]
    return np.concatenate(found), list(map(len, found))


def initial_routes(graph: Graph, shards_of: dict[NodeName, int], first: ShardId) -> list[Route]:
    """The routing that a run begins with: the same for the same graph and numbers, so that it need not be journaled."""
    routes: list[Route] = []
    for node in graph.nodes.values():
        for range in even_ranges(shards_of[node.name]):
            routes.append(Route(ShardId(first + len(routes)), node.name, range, Epoch(0), None))
    return routes
