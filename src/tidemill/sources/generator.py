"""Records that a function makes, at a pace: a source for tests of load, for demonstrations, and for a clock that ticks.

Record i is `make(i)` and is due at `start + i / rate`. Both follow from i alone, and `start` is settled once for a run,
so that whoever reads a split, and however often it is rewound, finds the same records at the same times. What is due
follows the wall clock: a reader that is behind gives what has become due, one that is ahead says how long to wait.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.api.columnform import Told, batch_of_columns
from tidemill.api.durations import duration
from tidemill.api.eventtime import A_TIME, Times, mark_behind, time_column, times_of, without_time
from tidemill.api.rowform import batch_of_rows, misfit
from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at, listing, sentence
from tidemill.core.ids import BEGINNING, END, Micros
from tidemill.errors import DataError, PipelineError
from tidemill.ports import SCHEDULED, Chunk

_SECOND: Final = 1_000_000
_NEVER: Final = 2.0**61
"""As far from the start as a record can be due: some 70,000 years. It keeps the sum with the start a whole number."""


def wall_clock() -> Micros:
    return Micros(time.time_ns() // 1000)


@dataclass(frozen=True)
class _Schedule:
    start: Micros
    rate: float
    """Records of all splits together in a second."""

    def due(self, indices: Times) -> Times:
        with np.errstate(over="ignore"):  # of a tiny rate; it is never due, then
            after = np.minimum(indices * float(_SECOND) / self.rate, _NEVER)
        times: Times = self.start + after.astype(np.int64)
        return times

    def due_at(self, index: int) -> Micros:
        """The same for one record, without an array."""
        return Micros(self.start + int(min(index * float(_SECOND) / self.rate, _NEVER)))

    def due_by(self, now: Micros) -> int:
        """About so many records are due, and not fewer: of a microsecond, all that fall into it."""
        return int(min(max(now + 1 - self.start, 0) * self.rate / _SECOND, 2.0**62))


class Generator:
    """A function of the record's number as a source.

    `make(i)` gives record i, from 0, as a dict or a tuple of the columns. With `vectorised`, `make` is given an int64
    array of numbers, and gives a dict of new arrays or a `pyarrow.RecordBatch`. For a number it must give the same each
    time. `rate` is how many records fall due in a second, over all splits (without one, they come as fast as they are
    read), and `count` how many there are (without one, they never end). Record i is in split `i % splits`.

    `timestamp` names the column of event time, is `tm.ARRIVAL`, or `tm.sources.SCHEDULED`: when the record is due.
    `delay` is how far behind the newest record of a split another may come and still be on time.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        schema: Any,
        timestamp: str | None = None,
        *,
        rate: float | None = None,
        count: int | None = None,
        splits: int = 1,
        delay: str | dt.timedelta | int = "0s",
        vectorised: bool = False,
    ) -> None:
        self._owner = f"the Generator declared at {declared_at()}"
        self._check(make, rate, count, splits)
        if timestamp == SCHEDULED and rate is None:
            raise PipelineError(
                f"{sentence(self._owner)} has timestamp=SCHEDULED, but without a rate no record is due at any time. "
                "Give it rate=, the records in a second."
            )
        self.schema: pa.Schema = read_schema(schema, self._owner)
        self.timestamp = timestamp
        self._make = make
        self._rate = None if rate is None else float(rate)
        self._records = count
        self._count = splits
        self._delay = duration(delay, f"The delay of {self._owner}")
        self._vectorised = vectorised
        self._start: Micros | None = None

    def _check(self, make: Any, rate: Any, count: Any, splits: Any) -> None:
        owner = sentence(self._owner)
        if not callable(make):
            raise PipelineError(f"{owner} has make={make!r}: a function of the record's number is needed.")
        if rate is not None and not _is_rate(rate):
            raise PipelineError(
                f"{owner} has rate={rate!r}: a number of records in a second is needed, more than 0, or None for as "
                "fast as they are read."
            )
        if count is not None and (type(count) is not int or count < 0):
            raise PipelineError(f"{owner} has count={count!r}: a whole number from 0 is needed, or None for no end.")
        if type(splits) is not int or splits < 1:
            raise PipelineError(f"{owner} has splits={splits!r}: at least one is needed.")

    @property
    def endless(self) -> bool:
        return self._records is None

    def prepared(self, now: Micros) -> Generator:
        """The same generator, whose first record is due now."""
        settled = copy.copy(self)
        settled._start = now  # noqa: SLF001 - it is our own
        return settled

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._count)]

    def open(self, split: str, position: int) -> GeneratorReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        first, records = int(split), None
        if self._records is not None:
            records = len(range(first, self._records, self._count))
        return GeneratorReader(self, self._schedule(), _Numbers(first, self._count, records), position)

    def _schedule(self) -> _Schedule | None:
        if self._rate is None:
            return None
        if self._start is None:
            raise PipelineError(
                f"{sentence(self._owner)} has a rate, and nothing says when it starts. Open what prepared(now) gives."
            )
        return _Schedule(self._start, self._rate)

    # ------------------------------------------------------------------------------------------- what a reader needs

    def batch(self, indices: Times) -> pa.RecordBatch:
        """These records, as columns."""
        told = Told(lambda place: self._name_of(int(indices[place])), self._together(indices))
        if self._vectorised:
            try:
                made = self._make(indices)
            except Exception as error:
                raise DataError(f"{told.together} can't be made: {_named(error)}.") from error
            return batch_of_columns(made, len(indices), self.schema, told)
        return batch_of_rows([self._row(index) for index in indices.tolist()], self.schema, told.name_of)

    def times(self, batch: pa.RecordBatch, indices: Times, due: Times | None) -> Times:
        if self.timestamp == SCHEDULED:
            assert due is not None
            return due
        column = time_column(self.schema, self.timestamp)
        if column is None:
            return without_time(len(indices))
        times, bad = times_of(batch.column(column))
        for place in bad:
            value = batch.column(column).cast(pa.int64())[place].as_py()
            misfit(self._name_of(int(indices[place])), column, value, A_TIME)
        return times

    def mark(self, newest: int, next_due: Micros | None) -> Micros:
        """How far time is in a split that has not ended."""
        if self.timestamp == SCHEDULED:
            assert next_due is not None
            return next_due
        if time_column(self.schema, self.timestamp) is None:
            return BEGINNING
        return mark_behind(newest, self._delay)

    def _row(self, index: int) -> Any:
        try:
            return self._make(index)
        except Exception as error:
            raise DataError(f"{self._name_of(index)} can't be made: {_named(error)}.") from error

    def _name_of(self, index: int) -> str:
        return f"Record {index} (from 0) of {self._owner}"

    def _together(self, indices: Times) -> str:
        every = "" if self._count == 1 else f", every {self._count} of them,"
        return f"Records {indices[0]} to {indices[-1]} (from 0){every} of {self._owner}"


def _is_rate(rate: Any) -> bool:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        return False
    return 0 < rate <= 1e300 and math.isfinite(rate)


def _named(error: Exception) -> str:
    return f"make raised {type(error).__name__}: {error}"


@dataclass(frozen=True)
class _Numbers:
    """The numbers of the records that are in one split."""

    first: int
    step: int
    count: int | None

    def after(self, position: int, limit: int) -> Times:
        """The next ones, at most so many."""
        left = limit if self.count is None else min(limit, max(self.count - position, 0))
        numbers: Times = self.first + self.step * np.arange(position, position + left, dtype=np.int64)
        numbers.setflags(write=False)  # the user's function is given them
        return numbers

    def at(self, position: int) -> int:
        return self.first + self.step * position

    def ended(self, position: int) -> bool:
        return self.count is not None and position >= self.count


class GeneratorReader:
    """The watermark is that of the records this reader has given: after a rewind it rises anew."""

    def __init__(self, source: Generator, schedule: _Schedule | None, numbers: _Numbers, position: int) -> None:
        self._source = source
        self._schedule = schedule
        self._numbers = numbers
        self._position = position
        self._newest: int = BEGINNING
        self._nothing = pa.RecordBatch.from_pylist([], source.schema)

    def read(self, limit: int) -> Chunk:
        now = wall_clock()
        indices, due = self._what_is_due(limit, now)
        if len(indices):
            batch = self._source.batch(indices)
            times = self._source.times(batch, indices, due)
            self._newest = max(self._newest, int(times.max()))
        else:
            batch, times = self._nothing, without_time(0)
        self._position += len(indices)
        ended = self._numbers.ended(self._position)
        next_due = None if ended else self._next_due()
        mark = END if ended else self._source.mark(self._newest, next_due)
        wait = 0 if next_due is None or len(indices) else max(next_due - now, 0)
        return Chunk(batch, times, self._position, mark, ended, idle=False, wait=Micros(wait))

    def _what_is_due(self, limit: int, now: Micros) -> tuple[Times, Times | None]:
        if self._schedule is None:
            return self._numbers.after(self._position, limit), None
        next_due = self._next_due()
        if next_due is None or next_due > now:
            return without_time(0), without_time(0)
        about = self._schedule.due_by(now) // self._numbers.step - self._position + 2
        indices = self._numbers.after(self._position, min(limit, max(about, 1)))
        due = self._schedule.due(indices)
        given = int(np.searchsorted(due, now, side="right"))
        return indices[:given], due[:given]

    def _next_due(self) -> Micros | None:
        if self._schedule is None or self._numbers.ended(self._position):
            return None
        return self._schedule.due_at(self._numbers.at(self._position))

    def close(self) -> None:
        """Nothing is held."""
