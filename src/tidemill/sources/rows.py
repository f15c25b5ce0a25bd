"""Rows in memory as a source: the smallest thing that can be rewound, and the one that tests and first steps use.

Rows are dealt to the splits in turn. All of them are made Arrow columns at once, so that a row that does not fit is
reported where it was written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.api.durations import duration
from tidemill.api.eventtime import A_TIME, Times, refuse_scheduled, time_column, times_of, without_time
from tidemill.api.rowform import batch_of_rows, misfit
from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at, listing, sentence
from tidemill.core.ids import BEGINNING, END, Micros
from tidemill.errors import PipelineError
from tidemill.ports import ARRIVAL, Chunk


class Rows:
    """A list of dicts or tuples as a source.

    `timestamp` names the column of event time (or is `tm.ARRIVAL`); datetimes without a zone are UTC, whole numbers are
    microseconds. `delay` is how far behind the newest record another may come and still be on time.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any] | Sequence[Any]],
        schema: Any,
        timestamp: str | None = None,
        splits: int = 1,
        delay: str | dt.timedelta | int = "0s",
    ) -> None:
        owner = f"the Rows declared at {declared_at()}"
        if type(splits) is not int or splits < 1:
            raise PipelineError(f"{sentence(owner)} have splits={splits!r}: at least one is needed.")
        self.schema: pa.Schema = read_schema(schema, owner)
        self.timestamp = timestamp
        self._delay = duration(delay, f"The delay of {owner}")
        self._owner = owner
        refuse_scheduled(timestamp, owner)
        self._batch = batch_of_rows(list(rows), self.schema, self._name_of)
        self._times = self._event_times()
        self._count = splits

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._count)]

    def open(self, split: str, position: int) -> RowsReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        chosen = np.arange(int(split), self._batch.num_rows, self._count)
        times = self._times[chosen]
        timed = self.timestamp not in (None, ARRIVAL)
        return RowsReader(self._batch.take(pa.array(chosen)), times, self._marks(times) if timed else None, position)

    def _marks(self, times: Times) -> Times:
        """The watermark behind each record. It depends on the records alone, not on where reading began."""
        newest = np.maximum.accumulate(times)
        early = newest < BEGINNING + self._delay  # the difference would not fit
        return np.where(early, BEGINNING, newest - np.where(early, 0, self._delay))

    def _event_times(self) -> Times:
        column = time_column(self.schema, self.timestamp)
        if column is None:
            return without_time(self._batch.num_rows)
        times, bad = times_of(self._batch.column(column))
        for place in bad:
            misfit(self._name_of(place), column, self._batch.column(column).cast(pa.int64())[place].as_py(), A_TIME)
        return times

    def _name_of(self, place: int) -> str:
        return f"Row {place} (from 0) of {self._owner}"


class RowsReader:
    def __init__(self, batch: pa.RecordBatch, times: Times, marks: Times | None, position: int) -> None:
        self._batch = batch
        self._times = times
        self._marks = marks
        self._position = position

    def read(self, limit: int) -> Chunk:
        start, end = self._position, min(self._position + limit, len(self._times))
        self._position = end
        ended = end == len(self._times)
        return Chunk(
            self._batch.slice(start, end - start),
            self._times[start:end],
            end,
            self._mark(end, ended=ended),
            ended,
            idle=False,
        )

    def _mark(self, end: int, *, ended: bool) -> Micros:
        if ended:
            return END
        if self._marks is None or end == 0:
            return BEGINNING
        return Micros(int(self._marks[end - 1]))

    def close(self) -> None:
        """Nothing is held."""
