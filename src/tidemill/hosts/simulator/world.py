"""Virtual time: what will happen, in order, and the one source of chance.

The same seed gives the same order of events, so a failure is a number. Things due at the same moment happen in the
order in which they were planned.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from tidemill.core.ids import Micros

Action = Callable[[], None]


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = Micros(0)
        self._planned: list[tuple[Micros, int, Action]] = []
        self._count = 0

    def after(self, delay: int, action: Action) -> None:
        """Plans something `delay` microseconds from now."""
        self._count += 1
        heapq.heappush(self._planned, (Micros(self.now + max(delay, 0)), self._count, action))

    def step(self) -> bool:
        """Lets the next thing happen; `False` if nothing is planned."""
        if not self._planned:
            return False
        self.now, _, action = heapq.heappop(self._planned)
        action()
        return True

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.chance.random() < probability

    def between(self, low: int, high: int) -> int:
        return self.chance.randint(low, high)
