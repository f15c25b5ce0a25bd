"""The authority over all low watermarks: it holds what every shard reported and publishes minima.

For each node there is an interval map: which part of the ring was last reported by which epoch, and how far. A part
whose owner is gone keeps its last value until a newer owner reports. One node's marks are never combined with
another's, except that the nodes of a cycle are published as one: each of them reports its own work, and none can be
ahead of another. Published marks only rise, until `reset`: everything goes back.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.core.graph import Graph
from tidemill.core.ids import BEGINNING, END, Epoch, Micros, NodeName, Peer
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.messages import Accepted, Marks, Report
from tidemill.core.routing import Route, Routing


class Interval(NamedTuple):
    range: KeyRange
    epoch: Epoch
    mark: Micros
    idle: bool
    at_rest: bool = False


class IntervalMap:
    """The last values of one node, over the whole ring."""

    def __init__(self) -> None:
        self._whole: dict[tuple[int, int], Interval] = {}
        nothing = Interval(FULL, Epoch(-1), BEGINNING, idle=False)
        self._put(nothing)

    def _put(self, interval: Interval) -> None:
        self._whole[(interval.range.low, interval.range.high)] = interval

    def report(self, interval: Interval) -> bool:
        """Takes a value; `False` if a newer owner of any part of the range has reported before (Law 3)."""
        exact = self._whole.get((interval.range.low, interval.range.high))
        if exact is not None:
            if exact.epoch > interval.epoch:
                return False
            self._put(interval)
            return True
        overlapping = [known for known in self._whole.values() if known.range.overlaps(interval.range)]
        if any(known.epoch > interval.epoch for known in overlapping):
            return False
        for known in overlapping:
            del self._whole[(known.range.low, known.range.high)]
            for rest in _outside(known.range, interval.range):
                self._put(known._replace(range=rest))
        self._put(interval)
        return True

    def least(self) -> Micros | None:
        """The node's mark; `None` if all of it is idle."""
        return min((interval.mark for interval in self._whole.values() if not interval.idle), default=None)

    def at_rest(self) -> bool:
        return all(interval.at_rest for interval in self._whole.values())

    def intervals(self) -> list[Interval]:
        return sorted(self._whole.values(), key=lambda interval: interval.range.low)


def _outside(known: KeyRange, taken: KeyRange) -> list[KeyRange]:
    """What is left of a range when another takes its part."""
    ends = ((known.low, min(known.high, taken.low)), (max(known.low, taken.high), known.high))
    return [KeyRange(low, high) for low, high in ends if low < high]


class Authority:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.reset()

    def reset(self) -> None:
        """Everything goes back to the beginning, and the marks with it."""
        self._maps = {name: IntervalMap() for name in self._graph.nodes}
        self._published: dict[NodeName, Micros] = dict.fromkeys(self._graph.nodes, BEGINNING)
        self._changed: dict[NodeName, None] = {}
        self._accepted: list[Accepted] = []
        self._idle: list[NodeName] = []
        self._at_rest: list[NodeName] = []

    def report(self, sender: Peer, report: Report, routing: Routing) -> int:
        """Takes a worker's report; gives back how many of its values were refused."""
        refused = 0
        for value in report.shards:
            route = routing.get(value.shard)
            if route is None or route.epoch != value.epoch:
                refused += 1
                continue
            interval = Interval(route.range, value.epoch, value.mark, value.idle, value.at_rest)
            if self._maps[route.node].report(interval):
                self._changed[route.node] = None
            else:
                refused += 1
        if self._graph.cycles:
            self._accept(routing.of_owner(sender), report.number)
        return refused

    def _accept(self, routes: list[Route], number: int) -> None:
        """A report covers all shards of its worker, also those of which it said nothing new."""
        for route in routes:
            if route.node in self._graph.cycles:
                self._accepted.append(Accepted(route.shard, route.epoch, number))

    def publish(self) -> Marks | None:
        """What is new since the last time."""
        if not self._changed and not self._accepted:
            return None
        nodes: dict[NodeName, None] = {}
        for name in self._changed:
            nodes.update(dict.fromkeys(self._graph.cycles.get(name, (name,))))
        rose = []
        was_idle, self._idle = self._idle, [name for name in self._idle if name not in nodes]
        for name in nodes:
            mark = self._least(name)
            if mark is None:
                self._idle.append(name)
            elif mark > self._published[name]:
                self._published[name] = mark
                rose.append((name, mark))
        were_at_rest, self._at_rest = self._at_rest, [name for name, held in self._maps.items() if held.at_rest()]
        accepted, self._accepted, self._changed = self._accepted, [], {}
        if not rose and not accepted and self._idle == was_idle and self._at_rest == were_at_rest:
            return None
        return Marks(rose, accepted, self._idle, self._at_rest)

    def _least(self, name: NodeName) -> Micros | None:
        marks = [self._maps[member].least() for member in self._graph.cycles.get(name, (name,))]
        return min((mark for mark in marks if mark is not None), default=None)

    def everything(self) -> Marks:
        """For a worker that has just come."""
        return Marks(list(self._published.items()), [], self._idle, self._at_rest)

    def mark(self, name: NodeName) -> Micros:
        return self._published[name]

    def ended(self) -> bool:
        """All input has been read, and all that came of it worked off and taken."""
        return all(mark == END for mark in self._published.values())

    def all_at_rest(self) -> bool:
        """The run was told to stop, and nothing is left of what was read by then."""
        return len(self._at_rest) == len(self._published)
