"""A source that gives the searches of a table as if they happened now: each when it arrives, with the time it was made.

A file of the table is a split, sorted by arrival. A search that arrives was made a moment before, and no more than the
jitter, so the source can promise how far time is: that is what MillWheel calls an injector's low watermark. Some are
later than that all the same. They break the promise, as in any system, and whoever counts them finds them late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.core.ids import END, Micros
from tidemill.ports import Chunk

SCHEMA: Final = pa.schema([pa.field("query", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])


class Replay:
    """The files of a folder, from the moment `begins` on (microseconds since the epoch)."""

    schema: pa.Schema = SCHEMA
    timestamp: str | None = "at"

    def __init__(self, folder: Path, begins: int, jitter: float) -> None:
        self._files = tuple(sorted(str(path) for path in folder.glob("*.parquet")))
        self._begins = begins
        self._jitter = round(jitter * 1e6)

    def splits(self) -> Sequence[str]:
        return self._files

    def open(self, split: str, position: int) -> ReplayReader:
        return ReplayReader(split, self._begins, self._jitter, position)


class ReplayReader:
    def __init__(self, file: str, begins: int, jitter: int, position: int) -> None:
        table = pq.read_table(file).combine_chunks()
        self._made = table.column("at").to_numpy() + begins
        self._arrives = table.column("arrives").to_numpy() + begins
        self._query = table.column("query").combine_chunks().cast(pa.string())
        self._jitter = jitter
        self._position = position

    def read(self, limit: int) -> Chunk:
        now = time.time_ns() // 1_000
        arrived = int(np.searchsorted(self._arrives, now, side="right"))
        first, last = self._position, max(min(arrived, self._position + limit), self._position)
        made = self._made[first:last]
        batch = pa.RecordBatch.from_arrays(
            [self._query.slice(first, last - first), pa.array(made, SCHEMA.field("at").type)], schema=SCHEMA
        )
        self._position = last
        if last == len(self._arrives):
            return Chunk(batch, made, last, END, ended=True, idle=False)
        following = int(self._arrives[last])
        mark = Micros(min(following - self._jitter, now))  # time does not run ahead of the clock
        wait = Micros(0 if len(made) else max(following - now, 0))
        return Chunk(batch, made, last, mark, ended=False, idle=False, wait=wait)

    def close(self) -> None:
        """Nothing is held but memory."""
