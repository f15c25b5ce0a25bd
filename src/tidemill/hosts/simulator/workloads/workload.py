"""What a workload is: a pipeline made from a seed, and a plain model that knows what must come out of it.

The model shares nothing with the engine but the input rows. It is told what the sinks show after a run and answers with
complaints, each a sentence; none means that the run kept its promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.faults import Faults

Row = dict[str, Any]

AT: Final = "__at"
"""The column of event time that every row shown has beside its own."""


class Shown:
    """What a run's sinks show: for each stream the pieces that the commit lists, each with its rows in order."""

    def __init__(self, pieces: dict[str, list[list[Row]]]) -> None:
        self._pieces = pieces

    def pieces(self, stream: str) -> list[list[Row]]:
        return self._pieces[stream]

    def rows(self, stream: str) -> list[Row]:
        return [row for piece in self._pieces[stream] for row in piece]


Oracle = Callable[[Shown], Iterator[str]]


@dataclass(frozen=True)
class Workload:
    name: str
    about: str
    build: Callable[[int], tuple[Pipeline, Oracle]]
    late: bool = False  # some records come behind the marks on purpose
    clock_offset: int = 3_600_000_000  # how far apart wall clocks may be before its timers take hours
    shards: int | None = None  # of each computation and sink; one for each worker unless said otherwise

    def bearable(self, faults: Faults) -> Faults:
        """The faults, without what would make the workload wait instead of fail."""
        return replace(faults, clock_offset=min(faults.clock_offset, self.clock_offset))


def compare(what: str, shown: Iterable[Hashable], wanted: Iterable[Hashable], most: int = 3) -> Iterator[str]:
    """Every row once: complains of the first few that are lost, made up, or there too often."""
    have, want = Counter(shown), Counter(wanted)
    lost, extra = want - have, have - want
    for difference, word in ((lost, "lost"), (extra, "twice or never produced")):
        if difference:
            some = ", ".join(map(str, sorted(difference, key=repr)[:most]))
            yield f"{what}: {difference.total()} {word}, such as {some}"


def none(what: str, shown: Iterable[Row], most: int = 3) -> Iterator[str]:
    """There must be no such row."""
    rows = list(shown)
    if rows:
        yield f"{what}: {len(rows)} times, such as {', '.join(map(str, rows[:most]))}"
