"""A stream that Spark's streaming queries feed while the run goes on: `df.writeStream.format("tidemill")`.

The queries write to the feed's log, and the run reads it. So a position is a number of rows from the log's beginning,
and a rewind is exact. Nothing passes from a query to a run directly: either may be stopped, killed and started again
while the other goes on, and what is in the log waits there.
"""

from __future__ import annotations

import copy
import datetime as dt
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidemill.api.durations import duration
from tidemill.api.eventtime import Times, mark_behind, refuse_scheduled, time_column, without_time
from tidemill.api.schema import ddl, read_schema
from tidemill.api.wording import declared_at, listing, sentence
from tidemill.core.graph import TIME_COLUMN
from tidemill.core.ids import BEGINNING, END, Micros
from tidemill.errors import PipelineError
from tidemill.ports import Chunk
from tidemill.storage.arrowfile import ArrowFile
from tidemill.storage.feedlog import Description, FeedLog

LOOK_AGAIN: Final = Micros(5_000)
"""A batch of a query takes far longer than this; each look is one file that is not there."""


class Feed:
    """What streaming queries write to the stream. It needs a run with storage, where its log is kept.

    `timestamp` names the column of event time or is `tm.ARRIVAL`; `delay` is how far behind the newest record of its
    split another may come and still be on time. A split that was given nothing for `idle_after` does not hold time
    back. It does not end until `run.end_feed(stream)` says so.
    """

    def __init__(
        self,
        schema: Any,
        timestamp: str | None = None,
        *,
        delay: str | dt.timedelta | int = "0s",
        splits: int = 1,
        idle_after: str | dt.timedelta | int = "10s",
    ) -> None:
        self._owner = owner = f"the Feed declared at {declared_at()}"
        if type(splits) is not int or splits < 1:
            raise PipelineError(f"{sentence(owner)} has splits={splits!r}: at least one is needed.")
        refuse_scheduled(timestamp, owner)
        self.schema: pa.Schema = read_schema(schema, owner)
        self.timestamp = timestamp
        self._delay = duration(delay, f"The delay of {owner}")
        self._idle_after = duration(idle_after, f"idle_after of {owner}")
        self._count = splits
        self._folder: str | None = None

    @property
    def endless(self) -> bool:
        return True

    def housed(self, folder: Path) -> Feed:
        """The same feed, whose log is in this folder."""
        FeedLog(folder).describe(Description(ddl(self.schema), self.timestamp, self._count))
        settled = copy.copy(self)
        settled._folder = str(folder)  # noqa: SLF001 - it is our own
        return settled

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._count)]

    def open(self, split: str, position: int) -> FeedReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        return FeedReader(self, self.log(), int(split), position)

    def log(self) -> FeedLog:
        if self._folder is None:
            raise PipelineError(f"{sentence(self._owner)} is used before a run gave it a folder: tm.run(storage=...).")
        return FeedLog(self._folder)

    # What a reader needs

    def mark(self, newest: int) -> Micros:
        return BEGINNING if time_column(self.schema, self.timestamp) is None else mark_behind(newest, self._delay)

    def is_idle_after(self, seconds: float) -> bool:
        return seconds * 1e6 >= self._idle_after


class FeedReader:
    """Follows the log. The watermark is that of the records this reader has given: after a rewind it rises anew."""

    def __init__(self, source: Feed, log: FeedLog, split: int, position: int) -> None:
        self._source = source
        self._log = log
        self._split = split
        self._position = position
        self._newest: int = BEGINNING
        self._next = log.find(split, position)
        self._files: list[ArrowFile] = []
        self._at = 0  # in the first of them
        self._ended = False
        self._heard = time.monotonic()
        self._nothing = pa.RecordBatch.from_pylist([], source.schema)

    def read(self, limit: int) -> Chunk:
        while not self._files and self._read_entry():
            pass
        if not self._files:
            return self._chunk(self._nothing, without_time(0))
        file = self._files[0]
        wire = file.slice(self._at, limit)
        times: Times = wire.column(TIME_COLUMN).to_numpy()
        self._at += wire.num_rows
        self._position += wire.num_rows
        if self._at == file.rows:
            self._files.pop(0).close()
            self._at = 0
        self._newest = max(self._newest, int(times.max()))
        self._heard = time.monotonic()
        return self._chunk(wire.select(self._source.schema.names), times)

    def _chunk(self, batch: pa.RecordBatch, times: Times) -> Chunk:
        ended = self._ended and not self._files
        idle = not batch.num_rows and self._source.is_idle_after(time.monotonic() - self._heard)
        mark = END if ended else self._source.mark(self._newest)
        return Chunk(batch, times, self._position, mark, ended, idle, wait=LOOK_AGAIN)

    def _read_entry(self) -> bool:
        """Takes up the next entry's files of this split, or what follows the position in them; whether there is one."""
        entry = None if self._ended else self._log.entry(self._next)
        if entry is None:
            return False
        start = max(self._position - entry.before[self._split], 0)
        for file in entry.of_split(self._split):
            if start >= file.rows:
                start -= file.rows
                continue
            if not self._files:
                self._at = start
            start = 0
            self._files.append(ArrowFile(self._log.path(file), file.counts))
        self._next += 1
        self._ended = entry.end
        return True

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []
