"""Bounded memory: what waits anywhere has a limit that does not depend on how long a run lasts.

A channel may hold a window of records at its receiver, and at its sender what one more flush adds to that. Edges that
close a cycle need no credit and are left out.
"""

from __future__ import annotations

from typing import Any

from tidemill.hosts.simulator.checkers.checker import Checker

EVERY = 8
"""Only each so many-th event of a process is looked at: queues do not come and go between two."""

PER_BUNDLE = 16
"""What a bundle weighs beside its records."""


class BoundedMemory(Checker):
    name = "bounded memory"

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self._largest = PER_BUNDLE  # the heaviest that any shard handled or produced at once

    def sent(self, packet: Any) -> None:
        bundle = getattr(packet.message, "bundle", None)
        if bundle is not None:
            self._largest = max(self._largest, _weight(bundle))

    def handled(self, process: Any) -> None:
        if process.role != "worker" or process.events % EVERY:
            return
        for hosted in process.core.hosted.values():
            self._check_queue(process, hosted)
            self._check_outgoing(process, hosted)

    def _check_queue(self, process: Any, hosted: Any) -> None:
        waiting = [*hosted.queue, *(arrival for held in hosted.blocked.values() for arrival in held)]
        by_sender: dict[int, int] = {}
        for arrival in waiting:
            sender = arrival.channel.id.from_shard
            by_sender[sender] = by_sender.get(sender, 0) + _weight(arrival.item)
        for sender, weight in by_sender.items():
            if weight > self._window + self._largest:
                self.complain(
                    f"{process.peer}: {weight} wait for shard {hosted.id} from shard {sender}; the window is "
                    f"{self._window}, the largest bundle {self._largest}"
                )

    def _check_outgoing(self, process: Any, hosted: Any) -> None:
        """Behind a congested channel nothing more is handled, so what waits for it is no more than was under way."""
        unreleased = sum(_weight(bundle) for flush in hosted.flushes for bundle in flush.bundles)
        for lane in hosted.lanes.values():
            for shard, channel in lane.channels.items():
                weight = 0 if lane.back_edge else sum(map(_weight, channel.untaken()))
                if weight > 2 * (self._window + self._largest):
                    self.complain(f"{process.peer}: {weight} wait at shard {hosted.id} for shard {shard}")
        if unreleased > 2 * (self._window + self._largest):
            self.complain(f"{process.peer}: {unreleased} wait at shard {hosted.id} for their release")


def _weight(item: Any) -> int:
    return PER_BUNDLE + len(getattr(item, "sequences", ()))
