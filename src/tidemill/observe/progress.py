"""How far a run is, as plain values: what `run.progress` gives, what the display shows and what metrics are made of.

Workers say what they hold (`WorkerFacts`), a few times a second. The coordinator puts the latest of all together with
the marks and makes a `Progress` of it; rates come from two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tidemill.core.ids import BEGINNING, END, Micros

Status = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]

ENDED: Final = frozenset({"finished", "stopped", "failed"})


class ShardFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one worker has done for one shard, since it was given to it."""

    node: str
    shard: int
    records_in: int
    records_out: int
    late: int
    malformed: int
    queued: int  # records received and not handled yet, and what waits to leave


class WorkerFacts(msgspec.Struct, frozen=True, array_like=True):
    worker: int
    incarnation: int
    host: str
    pid: int
    memory: int  # bytes, resident
    cpu_seconds: float  # used since the process began
    refused: int  # messages of those who were not to be listened to, or that could not be read
    shards: list[ShardFacts]


class NodeProgress(msgspec.Struct, frozen=True):
    """A source, computation or sink."""

    name: str
    kind: Literal["source", "computation", "sink"]
    shards: int
    records_in: int
    records_out: int
    late: int
    malformed: int
    queued: int
    watermark: int | None
    """Its output mark in microseconds since the epoch; None while nothing is known, and once all is over."""

    lag: float | None
    """How many seconds its mark is behind the wall clock."""


class WorkerProgress(msgspec.Struct, frozen=True):
    id: int
    incarnation: int
    host: str
    pid: int
    shards: int
    memory: int
    cpu_seconds: float


class Progress(msgspec.Struct, frozen=True):
    pipeline: str
    recovery: str
    status: Status
    at: int
    """When this was so, in microseconds since the epoch."""

    seconds: float
    """Since the run began."""

    nodes: tuple[NodeProgress, ...]
    workers: tuple[WorkerProgress, ...]
    refused: int
    """Messages that were not listened to: of processes that were given up, or without the run's keys."""

    def node(self, name: str) -> NodeProgress:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def rates(self, before: Progress) -> Mapping[str, tuple[float, float]]:
        """By node, the records per second that came in and went out since an earlier progress."""
        elapsed = (self.at - before.at) / 1e6
        earlier = {node.name: node for node in before.nodes}
        rates = {}
        for node in self.nodes:
            then = earlier.get(node.name)
            if then is None or elapsed <= 0:
                rates[node.name] = (0.0, 0.0)
            else:
                came, left = node.records_in - then.records_in, node.records_out - then.records_out
                rates[node.name] = (max(came, 0) / elapsed, max(left, 0) / elapsed)
        return rates


def known_mark(mark: Micros) -> int | None:
    """A mark as users see it."""
    return None if mark in (BEGINNING, END) else int(mark)


def lag(mark: Micros, now: Micros) -> float | None:
    known = known_mark(mark)
    return None if known is None else (now - known) / 1e6
