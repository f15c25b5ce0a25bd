"""The wall clock of one process, which never goes back.

Where somebody sets the system's clock back, it goes on from where it was, as fast as time passes: were it to stand
still until the wall has caught up, its process would do so too.
"""

from __future__ import annotations

import time

from tidemill.core.ids import Micros


class WallClock:
    def __init__(self) -> None:
        self._last = 0
        self._then = time.monotonic_ns() // 1_000

    def now(self) -> Micros:
        wall, elapsed = time.time_ns() // 1_000, time.monotonic_ns() // 1_000
        if wall < self._last:
            wall = self._last + elapsed - self._then
        self._last, self._then = wall, elapsed
        return Micros(wall)
