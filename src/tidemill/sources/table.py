"""A bounded Spark DataFrame as a source: Spark evaluates it once, when the run starts, and the run reads what it gave.

Evaluating a plan again is not a rewind: its rows may come in another order, or be others. So the host lets Spark write
them down, each partition as a file of Arrow batches in the order of event time, and gives the files to the source. From
then on a position is the number of a row in its file.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.api.eventtime import Times, refuse_scheduled, time_column, without_time
from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at, listing, sentence
from tidemill.core.graph import TIME_COLUMN
from tidemill.core.ids import BEGINNING, END, Micros
from tidemill.errors import PipelineError
from tidemill.ports import Chunk
from tidemill.storage.arrowfile import ArrowFile


class Part(NamedTuple):
    """A partition that Spark wrote: its file, and how many rows each batch in there has. No rows, no file."""

    path: str
    counts: tuple[int, ...]


def is_dataframe(given: Any) -> bool:
    """Whether it is one of Spark's, of any kind. Spark need not be there to see that."""
    return all(hasattr(given, name) for name in ("mapInArrow", "sparkSession", "isStreaming", "schema"))


class Table:
    """A bounded Spark DataFrame. `pipeline.source(stream, df, timestamp=...)` makes one of these.

    `timestamp` names the column of event time or is `tm.ARRIVAL`. Rows are read in its order, so none is late. `splits`
    is how many parts can be read at the same time: as many as there are workers, unless given.
    """

    def __init__(self, dataframe: Any, timestamp: str | None = None, *, splits: int | None = None) -> None:
        self._owner = owner = f"the Table declared at {declared_at()}"
        if not is_dataframe(dataframe):
            raise PipelineError(f"{sentence(owner)} is made of {dataframe!r}, and should be of a Spark DataFrame.")
        if dataframe.isStreaming:
            raise PipelineError(
                f"{sentence(owner)} is made of a streaming DataFrame, which never ends. Let the stream's source be a "
                "tm.sources.Feed, and feed it while the run goes on: df.writeStream.format('tidemill')."
            )
        if splits is not None and (type(splits) is not int or splits < 1):
            raise PipelineError(f"{sentence(owner)} has splits={splits!r}: at least one is needed.")
        refuse_scheduled(timestamp, owner)
        self.schema: pa.Schema = read_schema(dataframe.schema, owner)
        self.timestamp = timestamp
        self.wanted = splits
        self.dataframe = dataframe
        self._parts: tuple[Part, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The DataFrame is the driver's own."""
        return self.__dict__ | {"dataframe": None}

    def written(self, parts: Sequence[Part]) -> Table:
        """The same source, of what Spark gave."""
        settled = copy.copy(self)
        settled._parts = tuple(parts)  # noqa: SLF001 - it is our own
        return settled

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(len(self._written()))]

    def open(self, split: str, position: int) -> TableReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        timed = time_column(self.schema, self.timestamp) is not None
        return TableReader(self._written()[int(split)], self.schema, position, timed=timed)

    def _written(self) -> tuple[Part, ...]:
        if self._parts is None:
            raise PipelineError(f"{sentence(self._owner)} is read before Spark has evaluated it: tm.run does that.")
        return self._parts


class TableReader:
    def __init__(self, part: Part, schema: pa.Schema, position: int, *, timed: bool) -> None:
        self._file = ArrowFile(part.path, part.counts)
        self._schema = schema
        self._position = position
        self._timed = timed

    def read(self, limit: int) -> Chunk:
        if self._position >= self._file.rows:
            nothing = pa.RecordBatch.from_pylist([], self._schema)
            return Chunk(nothing, without_time(0), self._position, END, ended=True, idle=False)
        wire = self._file.slice(self._position, limit)
        times: Times = wire.column(TIME_COLUMN).to_numpy()
        self._position += wire.num_rows
        ended = self._position == self._file.rows
        mark = Micros(int(times[-1])) if self._timed else BEGINNING
        batch = wire.select(self._schema.names)
        return Chunk(batch, times, self._position, END if ended else mark, ended, idle=False)

    def close(self) -> None:
        self._file.close()
