"""Bounded memory: what waits anywhere has a limit that does not depend on how long a run lasts.

A channel may hold a window of records at its receiver, and at its sender what one more flush adds to that. What comes
round a loop needs no credit, and has a room of its own: the rest of it is on the disk. A shard that was restored may
have to send much again, and is judged by what it receives only.
"""

from __future__ import annotations

from typing import Any

from tidemill.hosts.simulator.checkers.checker import Checker, kind

EVERY = 8
"""Only each so many-th event of a process is looked at: queues do not come and go between two."""

PER_BUNDLE = 16
"""What a bundle weighs beside its records."""

READ_BACK = 32
"""How many bundles of a loop come back from the disk at once."""


class BoundedMemory(Checker):
    name = "bounded memory"

    def __init__(self) -> None:
        super().__init__()
        self._largest = PER_BUNDLE  # the heaviest bundle that was ever sent
        self._first: dict[int, int] = {}  # the epoch under which a shard began

    def sent(self, packet: Any) -> None:
        if kind(packet.message) == "Adopt":
            for given in packet.message.adoptions:
                self._first.setdefault(given.shard, -1 if given.lineage.parents else given.epoch)
        bundle = getattr(packet.message, "bundle", None)
        if bundle is not None:
            self._largest = max(self._largest, _weight(bundle))

    def handled(self, process: Any) -> None:
        if process.role != "worker" or process.events % EVERY:
            return
        limits = process.core.limits
        window = limits.window + self._largest
        for hosted in process.core.hosted.values():
            self._check_queue(process, hosted, window)
            if hosted.adoption.epoch == self._first.get(hosted.id):
                self._check_outgoing(process, hosted, 2 * (window + limits.full_bundle))
            loop = limits.loop_memory + READ_BACK * self._largest
            if hosted.loop.weight > loop and not hosted.yielding:
                self.complain(f"{process.peer}: {hosted.loop.weight} of a loop wait for shard {hosted.id} in memory")

    def _check_queue(self, process: Any, hosted: Any, most: int) -> None:
        by_channel: dict[tuple[int, int], int] = {}  # a sender that moved has another
        for queue in (hosted.queue, *hosted.blocked.values()):
            for arrival in queue:
                channel = arrival.channel.id.from_shard, arrival.channel.id.from_epoch
                by_channel[channel] = by_channel.get(channel, 0) + _weight(arrival.item)
        for (sender, _), weight in by_channel.items():
            if weight > most:
                self.complain(f"{process.peer}: {weight} wait for shard {hosted.id} from shard {sender}, not {most}")

    def _check_outgoing(self, process: Any, hosted: Any, most: int) -> None:
        """Behind a congested channel nothing more is handled, so what waits for it is no more than was under way.

        Except within a cycle, where the loop goes on, and only what would enter it has to wait.
        """
        unreleased = sum(_weight(bundle) for flush in hosted.flushes for bundle in flush.bundles)
        if unreleased > most:
            self.complain(f"{process.peer}: {unreleased} wait at shard {hosted.id} for their release, not {most}")
        for lane in hosted.lanes.values():
            for shard, channel in lane.channels.items():
                weight = 0 if lane.in_cycle else sum(map(_weight, channel.untaken()))
                if weight > most:
                    self.complain(f"{process.peer}: {weight} wait at shard {hosted.id} for shard {shard}, not {most}")


def _weight(item: Any) -> int:
    return PER_BUNDLE + len(getattr(item, "sequences", ()))
