"""Bundles: the records that travel together, with the identities that travel with them.

A bundle is an Arrow RecordBatch of one stream, all of it produced by one origin, in the order of production. What makes
a record recognisable is its origin and its sequence on that stream, and neither depends on where the record goes: a
bundle may be cut, filtered and cut again when ranges split or move, and every record keeps its identity. That is why
the sequences are an array and not a first number: a bundle holds what one receiver gets, and the gaps between its
sequences belong to others.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.graph import TIME_COLUMN, TIME_TYPE
from tidemill.core.ids import Micros, Sequence, ShardId, StreamName

Int64s = npt.NDArray[np.int64]


class Bundle(NamedTuple):
    """Never empty; `sequences` rise; `oldest` is the least event time in it, so that nobody has to look again."""

    stream: StreamName
    origin: ShardId
    sequences: Int64s
    batch: pa.RecordBatch
    oldest: Micros

    @property
    def rows(self) -> int:
        return len(self.sequences)

    def since(self, sequence: Sequence) -> Bundle | None:
        """What is left of it behind a sequence that is already known."""
        if self.sequences[0] > sequence:
            return self
        start = int(np.searchsorted(self.sequences, sequence, side="right"))
        if start == len(self.sequences):
            return None
        return _measured(self.stream, self.origin, self.sequences[start:], self.batch.slice(start))

    def part(self, start: int, end: int) -> Bundle:
        return _measured(self.stream, self.origin, self.sequences[start:end], self.batch.slice(start, end - start))

    def take(self, indices: Int64s) -> Bundle:
        return _measured(self.stream, self.origin, self.sequences[indices], self.batch.take(pa.array(indices)))


def new_bundle(stream: StreamName, origin: ShardId, first: Sequence, batch: pa.RecordBatch) -> Bundle:
    """A bundle as it is produced, before it is cut for its receivers: consecutive sequences from `first`."""
    return _measured(stream, origin, np.arange(first, first + batch.num_rows, dtype=np.int64), batch)


def _measured(stream: StreamName, origin: ShardId, sequences: Int64s, batch: pa.RecordBatch) -> Bundle:
    assert len(sequences) == batch.num_rows > 0
    times = times_of(batch)
    oldest = times.item(0) if len(times) == 1 else int(times.min())
    return Bundle(stream, origin, sequences, batch, Micros(oldest))


def times_of(batch: pa.RecordBatch) -> Int64s:
    """The event times of a batch that travels; they are its last column and have no nulls."""
    times: Int64s = batch.column(batch.num_columns - 1).to_numpy()
    return times


def with_times(columns: pa.RecordBatch, times: Int64s, wire_schema: pa.Schema) -> pa.RecordBatch:
    """A user's batch made ready to travel."""
    assert wire_schema.names[-1] == TIME_COLUMN
    return pa.RecordBatch.from_arrays([*columns.columns, int64_array(times)], schema=wire_schema)


def int64_array(values: Int64s) -> pa.Array:
    """Without nulls, and without a look at each of them."""
    return pa.Array.from_buffers(TIME_TYPE, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def without_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(list(range(batch.num_columns - 1)))


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """The Arrow IPC message of a batch, without its schema: both ends know it from the graph."""
    return batch.serialize().to_pybytes()  # type: ignore[no-any-return]


def decode_batch(data: bytes, wire_schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), wire_schema)


def join(bundles: Several[Bundle]) -> Bundle:
    """Consecutive bundles of one origin and stream as one."""
    if len(bundles) == 1:
        return bundles[0]
    first = bundles[0]
    batch = pa.concat_batches([bundle.batch for bundle in bundles])
    sequences = np.concatenate([bundle.sequences for bundle in bundles])
    return Bundle(first.stream, first.origin, sequences, batch, min(bundle.oldest for bundle in bundles))
