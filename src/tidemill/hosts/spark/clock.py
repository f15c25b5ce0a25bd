"""The wall clock of one process, which never goes back."""

from __future__ import annotations

import time

from tidemill.core.ids import Micros


class WallClock:
    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Micros:
        self._last = max(self._last, time.time_ns() // 1_000)
        return Micros(self._last)
