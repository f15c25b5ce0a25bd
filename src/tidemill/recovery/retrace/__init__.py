"""Retrace: each shard writes down what it handled, and whoever takes it over retraces it. For tests.

Nothing rolls back but what was lost, so this is the mechanism under which identities and the order log must hold. A
shard's log holds its events with their records. What a flush holds leaves when the events behind it are durable, and
only then are their senders told that responsibility was taken. See README.md for the Laws that each line serves.
"""

from __future__ import annotations

from tidemill.recovery.contract import EXACTLY_ONCE
from tidemill.recovery.retrace.coordinator import RetraceCoordinator
from tidemill.recovery.retrace.worker import RetraceWorker


class Retrace:
    name = "retrace"
    promise = EXACTLY_ONCE

    def worker_half(self) -> RetraceWorker:
        return RetraceWorker()

    def coordinator_half(self) -> RetraceCoordinator:
        return RetraceCoordinator()


__all__ = ["Retrace", "RetraceCoordinator", "RetraceWorker"]
