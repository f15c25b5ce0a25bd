"""Files of Arrow batches that tasks write and runs read: whole under their name or not there, read from any row.

A task may be repeated, by Spark or by a program that starts anew. So each one writes under a name of its own, and says
what it wrote; which of them count is decided elsewhere, in one step.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidemill.errors import DataError, StorageError
from tidemill.storage.entries import make_folder_durable, reaching

SUFFIX: Final = ".arrow"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Written(NamedTuple):
    name: str
    counts: list[int]
    """The rows of each batch."""


def write_batches(
    folder: str | Path, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written | None:
    """All of them in one new file, durable; None if there are no rows. If anything raises, there is no file."""
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    if first is None:
        return None
    name = f"{prefix}-{secrets.token_hex(6)}{SUFFIX}"
    path = Path(folder) / name
    making = path.with_name(f".{name}")
    counts: list[int] = []
    with reaching(Path(folder)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with making.open("xb") as file:
                with pa.ipc.new_file(file, schema, options=_OPTIONS) as into:
                    for batch in _chained(first, given):
                        into.write_batch(in_schema(batch, schema))
                        counts.append(batch.num_rows)
                file.flush()
                os.fsync(file.fileno())
            making.rename(path)
        except BaseException:
            making.unlink(missing_ok=True)
            raise
        make_folder_durable(path.parent)
    return Written(name, counts)


def _chained(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns as the schema has them: Spark gives a timestamp the session's zone."""
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        if column.null_count and not field.nullable:
            raise DataError(f"column {field.name!r} is null in some row, and is NOT NULL in the stream.")
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ArrowFile:
    """One file, read batch by batch."""

    def __init__(self, path: str, counts: Iterable[int]) -> None:
        self.path = path
        self._counts = tuple(counts)
        self._starts = np.concatenate([[0], np.cumsum(self._counts, dtype=np.int64)])
        self.rows = int(self._starts[-1])
        self._file: Any = None
        self._reader: Any = None
        self._held: tuple[int, pa.RecordBatch] | None = None

    def slice(self, start: int, limit: int) -> pa.RecordBatch:
        """At most `limit` rows from this one on; it has at least one if there is any."""
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        batch = self._load(number)
        return batch.slice(start - int(self._starts[number]), limit)

    def _load(self, number: int) -> pa.RecordBatch:
        if self._held is None or self._held[0] != number:
            try:
                if self._reader is None:
                    self._file = pa.OSFile(self.path)
                    self._reader = pa.ipc.open_file(self._file)
                batch = self._reader.get_batch(number)
            except (OSError, pa.ArrowException) as error:
                raise StorageError(
                    f"{self.path!r} can't be read here: {error}. Workers on other machines need storage= in a folder "
                    "that all of them share."
                ) from error
            if batch.num_rows != self._counts[number]:
                raise StorageError(f"{self.path!r} was altered since it was written.")
            self._held = number, batch
        return self._held[1]

    def close(self) -> None:
        if self._file is not None:
            with contextlib.closing(self._file):
                self._file = self._reader = self._held = None
