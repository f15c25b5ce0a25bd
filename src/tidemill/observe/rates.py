"""How fast a run goes: its progress compared with that of about a second ago.

The very last progress would not do: what comes every few milliseconds says little about a second, and the speed would
jump about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemill.observe.progress import ENDED, Progress

SPAN: Final = 1_000_000
"""How old the earlier progress should be, in microseconds. It is older where progress comes seldom."""

SHORTEST: Final = 200_000
"""From less than this no speed is told."""

_APART: Final = 100_000  # what comes more often need not be kept


class Rates(NamedTuple):
    nodes: Mapping[str, tuple[float, float]]
    """By node, records per second in and out."""

    cpu: Mapping[tuple[int, int], float]
    """By worker and incarnation, how much of one core it uses: 1.0 is all of it."""


class Pace:
    def __init__(self) -> None:
        self._earlier: deque[Progress] = deque()

    def of(self, progress: Progress) -> Rates | None:
        """Nothing is known from a first progress alone, and a run that has ended has no speed."""
        earlier = self._earlier
        if earlier and progress.at < earlier[-1].at:  # of another clock, or another run
            earlier.clear()
        while len(earlier) > 1 and progress.at - earlier[1].at >= SPAN:
            earlier.popleft()
        before = earlier[0] if earlier else progress
        if progress.nodes and (not earlier or progress.at - earlier[-1].at >= _APART):
            earlier.append(progress)
        if progress.status in ENDED or progress.at - before.at < SHORTEST:
            return None
        return Rates(progress.rates(before), _cpu(progress, before))


def _cpu(progress: Progress, before: Progress) -> dict[tuple[int, int], float]:
    elapsed = (progress.at - before.at) / 1e6
    then = {(worker.id, worker.incarnation): worker.cpu_seconds for worker in before.workers}
    now = {(worker.id, worker.incarnation): worker.cpu_seconds for worker in progress.workers}
    return {process: max(used - then[process], 0.0) / elapsed for process, used in now.items() if process in then}
