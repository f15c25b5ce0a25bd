"""What user code produced and nobody has seen yet: one outbox for each output of a shard.

Rows collect here while bundles are handled, and leave together when the worker flushes, so that a busy shard makes
large bundles and an idle one makes small ones. A record gets its sequence by its place in the order of production,
which does not depend on when the flushes were.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Bundle, Int64s, int64_array, with_times
from tidemill.core.graph import TIME_COLUMN, Stream
from tidemill.core.ids import END, Micros, Sequence, ShardId
from tidemill.errors import DataError

FEW: Final = 16


class Outbox:
    __slots__ = (
        "_batched",
        "_batches",
        "_fields",
        "_names",
        "_oldest",
        "_origin",
        "_row_type",
        "_stream",
        "_wire",
        "rows",
        "sequence",
        "times",
    )

    def __init__(self, stream: Stream, origin: ShardId) -> None:
        self._stream = stream
        self._wire = stream.wire_schema
        self._fields = [(field.name, field.type) for field in stream.schema]
        self._names = frozenset(stream.schema.names)
        self._row_type = pa.struct(list(stream.wire_schema))
        self._origin = origin
        self._batches: list[pa.RecordBatch] = []
        self._batched = 0
        self._oldest = END
        self.rows: list[dict[str, Any]] = []  # with `times`, appended to by the context on its hot path
        self.times: list[int] = []
        self.sequence = Sequence(1)

    @property
    def size(self) -> int:
        return len(self.rows) + self._batched

    def add_batch(self, columns: pa.RecordBatch | dict[str, Any], times: Int64s) -> None:
        batch = self._fitted(columns)
        if batch.num_rows != len(times):
            raise DataError(
                f"stream {self._stream.name!r}: {batch.num_rows} records were produced with {len(times)} timestamps; "
                "give one timestamp for each record"
            )
        if batch.num_rows:
            self._add_rows()  # sequences follow the order of production, rows and batches alike
            self._add(with_times(batch, times.copy(), self._wire), int(times.min()))

    def _add_rows(self) -> None:
        if self.rows:
            self._add(self._batch_of_rows(), min(self.times))
            self.rows.clear()
            self.times.clear()

    def _add(self, batch: pa.RecordBatch, oldest: int) -> None:
        self._batches.append(batch)
        self._batched += batch.num_rows
        if oldest < self._oldest:
            self._oldest = Micros(oldest)

    def _fitted(self, columns: pa.RecordBatch | dict[str, Any]) -> pa.RecordBatch:
        schema = self._stream.schema
        try:
            if isinstance(columns, dict):
                # Arrow would share a numpy array's memory, and the user may change it: it may be their state.
                columns = {
                    name: values.copy() if isinstance(values, np.ndarray) else values
                    for name, values in columns.items()
                }
                return pa.RecordBatch.from_pydict(columns, schema=schema)
            return columns if columns.schema == schema else columns.select(schema.names).cast(schema)
        except (KeyError, pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(
                f"stream {self._stream.name!r} takes ({self._described()}); what was produced does not fit: {error}"
            ) from error

    def flush(self) -> Bundle | None:
        """All that was produced since the last flush, as one bundle."""
        self._add_rows()
        if not self._batches:
            return None
        batch = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
        first, rows = self.sequence, self._batched
        self.sequence = Sequence(first + rows)
        sequences = np.arange(first, first + rows, dtype=np.int64)
        bundle = Bundle(self._stream.name, self._origin, sequences, batch, self._oldest)
        self._batches, self._batched, self._oldest = [], 0, END
        return bundle

    def _batch_of_rows(self) -> pa.RecordBatch:
        rows = self.rows
        try:
            return self._few() if len(rows) <= FEW else self._many()
        except (KeyError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._misfit() from error

    def _many(self) -> pa.RecordBatch:
        if sum(map(len, self.rows)) != len(self.rows) * len(self._fields):
            raise self._misfit()
        arrays = [pa.array([row[name] for row in self.rows], type) for name, type in self._fields]
        arrays.append(int64_array(np.array(self.times, np.int64)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._wire)

    def _few(self) -> pa.RecordBatch:
        """One conversion for all columns: half the cost for a row or two."""
        for row in self.rows:
            if row.keys() != self._names:
                raise self._misfit()  # what is missing would be taken for null
        timed = [{**row, TIME_COLUMN: at} for row, at in zip(self.rows, self.times, strict=True)]
        return pa.RecordBatch.from_struct_array(pa.array(timed, self._row_type))

    def _misfit(self) -> DataError:
        """Looks for the first row that does not fit; only ever called when there is one."""
        names = [name for name, _ in self._fields]
        takes = f"stream {self._stream.name!r} takes ({self._described()})"
        for row in self.rows:
            missing = [name for name in names if name not in row]
            unknown = [name for name in row if name not in names]
            if missing or unknown:
                what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)} besides"
                return DataError(f"{takes}; a record was produced that {what}")
            for name, type in self._fields:
                try:
                    pa.array([row[name]], type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    return DataError(f"{takes}; a record was produced with {name}={row[name]!r}: {error}")
        return DataError(f"{takes}; what was produced does not fit")

    def _described(self) -> str:
        return ", ".join(f"{name} {type}" for name, type in self._fields)
