"""What came over the edges that close a cycle, and waits.

These edges need no credit, for a loop that waited for itself would wait for ever; so what waits here is not bounded by
the sender. Beyond some weight it is put to the worker's own disk and read back in turn. Only where a bundle came from
and how old it is stay in memory (Law 7).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tidemill.core.bundle import Bundle
from tidemill.core.flow import Arrival, InChannel, Item, weight_of
from tidemill.core.graph import Graph
from tidemill.core.ids import END, Micros, ShardId
from tidemill.core.order import decode_bundle, encode_bundle

READ_BACK: Final = 32
"""How many bundles are read back at once."""

_MARKER, _BUNDLE = b"\x00", b"\x01"


class _Spilled(NamedTuple):
    channel: InChannel
    number: int
    oldest: Micros


class LoopQueue:
    def __init__(self, graph: Graph, memory: int) -> None:
        self._graph = graph
        self._memory = memory
        self._waiting: deque[Arrival] = deque()
        self._weight = 0
        self._spilled: deque[_Spilled] = deque()
        self._asked = 0
        self.ever_spilled = False

    def __bool__(self) -> bool:
        return bool(self._waiting or self._spilled)

    def put(self, arrival: Arrival) -> bytes | None:
        """Takes an arrival; gives back what is to be spilled, if there is no room. The order stays."""
        if not self._spilled and self._weight < self._memory:
            self._keep(arrival)
            return None
        oldest = arrival.item.oldest if isinstance(arrival.item, Bundle) else END
        self._spilled.append(_Spilled(arrival.channel, arrival.number, oldest))
        self.ever_spilled = True
        return _BUNDLE + encode_bundle(arrival.item) if isinstance(arrival.item, Bundle) else _MARKER + arrival.item

    def _keep(self, arrival: Arrival) -> None:
        self._waiting.append(arrival)
        self._weight += weight_of(arrival.item)

    def pop(self) -> Arrival | None:
        """The next, if it is in memory."""
        return self._taken(self._waiting.popleft()) if self._waiting else None

    def pop_from(self, sender: ShardId) -> Arrival | None:
        """The next of one sender, if it is in memory."""
        for arrival in self._waiting:
            if arrival.channel.id.from_shard == sender:
                self._waiting.remove(arrival)
                return self._taken(arrival)
        return None

    def _taken(self, arrival: Arrival) -> Arrival:
        self._weight -= weight_of(arrival.item)
        return arrival

    def to_read_back(self) -> int:
        """How many spilled bundles to ask for now: some when memory is nearly used up, none twice."""
        if self._asked or not self._spilled or self._weight * 2 > self._memory:
            return 0
        self._asked = min(len(self._spilled), READ_BACK)
        return self._asked

    def to_read_all(self) -> int:
        """The same for a shard that is being yielded: whatever of it is its own has to be found."""
        if not self._asked:
            self._asked = len(self._spilled)
            return self._asked
        return 0

    def read_back(self, entries: list[bytes]) -> None:
        assert len(entries) == self._asked, "what was spilled comes back"
        self._asked = 0
        for entry in entries:
            spilled = self._spilled.popleft()
            kind, data = entry[:1], entry[1:]
            item: Item = decode_bundle(data, self._graph) if kind == _BUNDLE else data
            self._keep(Arrival(spilled.channel, spilled.number, item))

    def oldest(self) -> Micros:
        """The least event time of all, on disk too."""
        times = [arrival.item.oldest for arrival in self._waiting if isinstance(arrival.item, Bundle)]
        times.extend(spilled.oldest for spilled in self._spilled)
        return min(times, default=END)

    @property
    def weight(self) -> int:
        """What is held in memory."""
        return self._weight
