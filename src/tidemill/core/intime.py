"""A computation fed with all of its input in the order of event time: what a plan does with it.

Live, records come as they come and time follows behind them. Here the order is given, so nothing is ever late, and
every event timer fires in its place: before the first record that is not older than it. The shards are the same; what
differs is who raises their marks, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tidemill.core.bundle import Bundle, times_of
from tidemill.core.computing import BundleShard, ComputationShard, RecordShard
from tidemill.core.graph import Graph
from tidemill.core.ids import END, LAST, Micros
from tidemill.core.order import BundleEntry, MarkEntry, WakeEntry
from tidemill.core.shard import Place
from tidemill.errors import TidemillError

ENDLESS: Final = 1_000_000
"""So many rounds of wall timers without an end are taken for one that sets itself again for ever."""


class _InTimeRecords(RecordShard):
    """Fires timers between records."""

    def _paced(self, keys: Iterator[Any], times: list[Micros], now: Micros) -> Iterator[Any]:
        timers = self.times.event
        for key, at in zip(keys, times, strict=True):
            first = timers.first()
            if first is not None and first <= at:
                self._raise(at, now)
            yield key

    def _raise(self, mark: Micros, now: Micros) -> None:
        self.mark = self.outside = mark
        while self.pending_timer():
            self.events += 1
            self._advance(now)
        self.ctx.begin_event(self.events, now, mark)


class InTime:
    """One shard, and the marks that it is given. `flush` what came of it after each step."""

    def __init__(self, graph: Graph, place: Place, plan_seed: int, now: Micros) -> None:
        vectorised = graph.nodes[place.node].vectorised
        made = BundleShard if vectorised else _InTimeRecords
        self.shard: ComputationShard = made(graph, place, plan_seed)
        self._now = now
        self._keyed = any(keying.keyed for keying in self.shard.keyings.values())

    def feed(self, bundle: Bundle) -> None:
        """Records in the order of their times, none older than any before. Without keys there is no such order."""
        times = times_of(bundle.batch)
        if self._keyed:
            assert not len(times) or (np.diff(times) >= 0).all(), "the input is sorted"
            for _ in self.until(Micros(int(times[0]))):
                continue
        self.shard.handle(BundleEntry(bundle, self._now))

    def _mark(self, mark: Micros) -> None:
        self.shard.handle(MarkEntry(mark, mark, self._now))

    def until(self, mark: Micros) -> Iterator[None]:
        """Time goes on so far; stops after each slice of timers, so that what they produced can be taken."""
        if mark > self.shard.mark:
            self._mark(mark)
            yield
        while self.shard.pending_timer():
            self._mark(mark)
            yield

    def end(self) -> Iterator[None]:
        """The input has ended: all timers fire, those of wall time too, each at the time it was set for."""
        yield from self.until(END)
        for _ in range(ENDLESS):
            wake = self.shard.next_wake()
            if wake is None:
                return
            self._now = Micros(max(self._now, wake))
            self.shard.handle(WakeEntry(self._now))
            yield
            yield from self.until(END)
        raise TidemillError(
            f"{self.shard.node.name} fired wall timers {ENDLESS:,} times after its input had ended: one seems to set "
            f"itself again for ever. The last was due at {min(self._now, LAST)}."
        )
