"""Event times out of a column, and the mark that follows from them: the same for every source that reads them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.ids import BEGINNING, END, LAST, Micros
from tidemill.errors import PipelineError
from tidemill.ports import SCHEDULED

Times = npt.NDArray[np.int64]

A_TIME: Final = f"a time, {BEGINNING} to {LAST} microseconds since the epoch"


def time_column(schema: pa.Schema, timestamp: str | None) -> str | None:
    """The column that event time is read from, if any. One that is missing or no time is the pipeline's to tell."""
    if timestamp not in schema.names:
        return None
    kind = schema.field(timestamp).type
    return timestamp if pa.types.is_timestamp(kind) or kind == pa.int64() else None


def times_of(column: pa.Array) -> tuple[Times, list[int]]:
    """Each record's time, and the places of those that have none."""
    times: Times = column.cast(pa.int64()).fill_null(END).to_numpy(zero_copy_only=False)
    return times, np.flatnonzero(times > LAST).tolist()


def without_time(count: int) -> Times:
    return np.full(count, BEGINNING, np.int64)


def mark_behind(newest: int, delay: Micros) -> Micros:
    """No record that is still to come is older than this, if none comes later than `delay` behind the newest."""
    return Micros(max(newest - delay, BEGINNING))


def refuse_scheduled(timestamp: str | None, owner: str) -> None:
    """Only a source that has a schedule can take its event time from it."""
    if timestamp == SCHEDULED:
        raise PipelineError(
            f"The timestamp of {owner} is SCHEDULED, but its records are not due at any time: only those of a "
            "Generator with a rate are. Name a column, or take the time of reading: timestamp=tm.ARRIVAL."
        )
