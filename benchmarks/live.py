"""What the benchmarks of live runs share: a session, sources of ready-made batches, and sinks that only look.

Nothing here is part of Tidemill: sources and sinks are written against its public ports, as a user would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.hosts.spark.session import new_session
from tidemill.ports import Chunk

BEGINNING, END = -(2**63), 2**63 - 1


class Batches:
    """The same Arrow batches again and again, as fast as they are read: batch n has the event time n * `every`."""

    timestamp = None

    def __init__(self, batches: Sequence[pa.RecordBatch], splits: int, every: int = 0) -> None:
        self.schema = batches[0].schema
        self.timestamp = None if not every else "__scheduled"
        self._batches = list(batches)
        self._splits = splits
        self._every = every

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._splits)]

    def open(self, split: str, position: int) -> BatchesReader:
        return BatchesReader(self._batches, int(split), self._splits, position, self._every)


class BatchesReader:
    """A position is a number of batches of this split."""

    def __init__(self, batches: list[pa.RecordBatch], first: int, step: int, position: int, every: int) -> None:
        self._batches, self._first, self._step, self._every = batches, first, step, every
        self._position = position

    def read(self, limit: int) -> Chunk:
        number = self._first + self._position * self._step
        self._position += 1
        batch = self._batches[number % len(self._batches)]
        at = number * self._every if self._every else BEGINNING
        times = np.full(batch.num_rows, at, np.int64)
        return Chunk(batch, times, self._position, at, ended=False, idle=False)

    def close(self) -> None:
        """Nothing is held."""


class Discard:
    """A sink that counts nothing itself: how many records came to it, the run's progress tells."""

    def open(self, schema: pa.Schema, writer: str) -> Discard:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """It is gone."""

    def prepare(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is held."""

    def commit(self, generation: int, number: int, prepared: Sequence[bytes]) -> None:
        """Nothing becomes visible."""

    def committed(self, generation: int) -> int:
        return 0


@contextmanager
def session(master: str) -> Iterator[Any]:
    """A warm one: Python has been started on it once."""
    made = new_session(master, "benchmark")
    try:
        made.session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
        yield made.session
    finally:
        made.close()


def came(run: Any, sink: str, seconds: float) -> float:
    """Records per second that came to a sink while so much time passed, in steady state."""
    first = settled(run)
    time.sleep(seconds)
    last = run.progress
    return float(last.rates(first)[sink][0])


def settled(run: Any, seconds: float = 2.0) -> Any:
    time.sleep(seconds)
    return run.progress
