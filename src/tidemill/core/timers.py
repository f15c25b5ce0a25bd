"""Per-key timers, in order.

A timer is named by its key and tag; setting it again moves it. Timers fire in order of their time, and those of one
time in the order in which they were set. One `Timers` holds the timers of one clock of one shard. Watermark holds are
kept in the same structure: a hold is a timer that never fires.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Any, Final, Literal, NamedTuple

from tidemill.core.ids import Micros

Clock = Literal["event", "wall"]


NOBODY: Final = object()
"""No key: `None` is one."""


class Timer(NamedTuple):
    """What `process_timer` is given."""

    tag: str
    at: Micros
    clock: Clock


class Due(NamedTuple):
    key: Any
    tag: str
    at: Micros


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Hashable, str]] = []
        self._live: dict[Hashable, dict[str, tuple[Micros, int]]] = {}
        self._count = 0

    def set(self, key: Hashable, tag: str, at: Micros) -> None:
        self._count += 1
        self._put(key, tag, at, self._count)

    def _put(self, key: Hashable, tag: str, at: Micros, count: int) -> None:
        self._live.setdefault(key, {})[tag] = (at, count)
        heapq.heappush(self._heap, (at, count, key, tag))

    def cancel(self, key: Hashable, tag: str) -> None:
        """Does nothing if there is no such timer."""
        of_key = self._live.get(key)
        if of_key is not None and of_key.pop(tag, None) is not None and not of_key:
            del self._live[key]

    def first(self) -> Micros | None:
        """When the next timer is due."""
        heap = self._heap
        while heap:
            at, count, key, tag = heap[0]
            of_key = self._live.get(key)
            if of_key is not None and of_key.get(tag) == (at, count):
                return at
            heapq.heappop(heap)  # cancelled or moved since
        return None

    def due_key(self, until: Micros) -> Any:
        """Whose timer is the next that is due at `until`; `NOBODY` if none is."""
        first = self.first()
        return NOBODY if first is None or first > until else self._heap[0][2]

    def pop(self) -> Due:
        """Takes out the next timer. There must be one."""
        first = self.first()
        assert first is not None
        at, _, key, tag = heapq.heappop(self._heap)
        self.cancel(key, tag)
        return Due(key, tag, at)

    def of_key(self, key: Hashable) -> list[tuple[str, Micros, int]]:
        """For a checkpoint: tag, time and the count that keeps timers of one time in order."""
        return [(tag, at, count) for tag, (at, count) in self._live.get(key, {}).items()]

    def put_back(self, key: Hashable, saved: list[tuple[str, Micros, int]]) -> None:
        for tag, at, count in saved:
            self._count = max(self._count, count)
            self._put(key, tag, at, count)

    def absorb(self, other: Timers) -> None:
        """Takes over the timers of another shard, in their order; the keys have nothing in common."""
        order = [(at, n, key, tag) for key, tags in other._live.items() for tag, (at, n) in tags.items()]
        for at, _, key, tag in sorted(order, key=lambda timer: timer[:2]):
            self.set(key, tag, at)

    def keys(self) -> list[Any]:
        return list(self._live)

    def forget(self, key: Hashable) -> None:
        self._live.pop(key, None)
