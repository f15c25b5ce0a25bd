"""State as a table: rows of any Arrow types, for vectorised computations that need more than one row a key.

The rows lie in chunks, each an Arrow batch, which never change: rows are added as a chunk of their own and taken out by
a mask over the chunks that hold them. What belongs together (the partial sums of one key and window, say) may lie in
several chunks until somebody looks: `settle` merges chunks of like size now and then, so that each row is merged a few
times only, however large the state.

Because nothing changes in place, a freeze keeps the chunks that are new since the last one, and nothing has to be
encoded before it changes. Rows have numbers, so that a checkpoint can say which of those saved before are no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.bundle import Int64s
from tidemill.core.graph import TableState
from tidemill.core.ids import END

Mask = npt.NDArray[np.bool_]
Choose = Callable[[pa.RecordBatch], Mask]
Merge = Callable[[pa.RecordBatch], pa.RecordBatch]

FANOUT: Final = 4
"""So many chunks of one size are merged into one."""

FEW_ROWS: Final = 512
FEW_CHUNKS: Final = 8
"""Chunks that hold few rows together are left alone until there are so many of them."""

NEVER: Final = END
"""What a row waits for that is due at no time."""

_RESTORED: Final = -1


class SavedTable(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one chunk, and which of the rows that were saved before are no more."""

    chunk: int
    numbers: bytes
    rows: bytes
    gone: bytes


class Chunk(NamedTuple):
    born: int  # in which generation; between two freezes lies one
    number: int  # of the chunk: its first row's when it was made
    numbers: Int64s
    batch: pa.RecordBatch
    alive: Mask | None  # None: all of them
    live: int
    first_due: int

    def rows(self) -> pa.RecordBatch:
        return self.batch if self.alive is None else self.batch.filter(pa.array(self.alive))

    def live_numbers(self) -> Int64s:
        return self.numbers if self.alive is None else self.numbers[self.alive]


class Table:
    """`spec.due` names a column of int64: `take_due` finds the rows by it without a look at all of them."""

    def __init__(self, spec: TableState) -> None:
        self.schema: Final = spec.schema
        self._due = spec.schema.get_field_index(spec.due)
        self._empty = spec.schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=spec.schema)]
        self._chunks: list[Chunk] = []
        self._next = 0
        self._generation = 0
        self._gone: list[Int64s] = []  # saved before, taken since the last freeze
        self._inactive: list[Chunk] = []
        self._inactive_gone: list[Int64s] = []
        self._frozen = False

    def __len__(self) -> int:
        return sum(chunk.live for chunk in self._chunks)

    @property
    def first_due(self) -> int:
        return min((chunk.first_due for chunk in self._chunks), default=NEVER)

    # What user code does

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            numbers = np.arange(self._next, self._next + batch.num_rows, dtype=np.int64)
            self._next += batch.num_rows
            self._chunks.append(self._chunk(self._generation, int(numbers[0]), numbers, batch))

    def rows(self, wanted: Choose | None = None) -> pa.RecordBatch:
        """The rows that are wanted, or all, in the order in which they were added. They stay."""
        found = []
        for chunk in self._chunks:
            mask = chunk.alive if wanted is None else _masked(chunk, wanted(chunk.batch))
            if mask is None or mask.any():
                found.append(chunk.batch if mask is None else chunk.batch.filter(pa.array(mask)))
        return self._together(found)

    def take(self, wanted: Choose) -> pa.RecordBatch:
        """The rows that are wanted; they are here no more."""
        return self._take(wanted, NEVER)

    def take_due(self, until: int) -> pa.RecordBatch:
        """The rows that are due by then; they are here no more."""
        due = self._due
        return self._take(lambda batch: batch.column(due).to_numpy() <= until, until)

    def _take(self, wanted: Choose, due: int) -> pa.RecordBatch:
        taken, kept = [], []
        for chunk in self._chunks:
            if chunk.first_due > due:
                kept.append(chunk)
                continue
            mask = _masked(chunk, wanted(chunk.batch))
            count = int(np.count_nonzero(mask))
            if count == 0:
                kept.append(chunk)
                continue
            if chunk.born != self._generation:
                self._gone.append(chunk.numbers[mask])
            if count == chunk.live:
                taken.append(chunk.rows())
                continue
            taken.append(chunk.batch.filter(pa.array(mask)))
            kept.append(self._without(chunk, mask))
        self._chunks = kept
        return self._together(taken)

    def settle(self, merge: Merge) -> None:
        """Merges the newest chunks where they have become as much as the ones before them."""
        chunks = self._chunks
        together = 0
        start = len(chunks)
        for place in range(len(chunks) - 1, -1, -1):
            if together >= (FANOUT - 1) * chunks[place].live:
                start = place
            together += chunks[place].live
        merged = chunks[start:]
        if len(merged) < 2 or (sum(chunk.live for chunk in merged) < FEW_ROWS and len(merged) < FEW_CHUNKS):
            return
        self._gone.extend(chunk.live_numbers() for chunk in merged if chunk.born != self._generation)
        del chunks[start:]
        self.add(merge(self._together([chunk.rows() for chunk in merged])))

    # Chunks

    def _chunk(
        self, born: int, number: int, numbers: Int64s, batch: pa.RecordBatch, alive: Mask | None = None
    ) -> Chunk:
        due = batch.column(self._due).to_numpy()
        live = len(numbers) if alive is None else int(np.count_nonzero(alive))
        first = int((due if alive is None else due[alive]).min()) if live else NEVER
        return Chunk(born, number, numbers, batch, alive, live, first)

    def _without(self, chunk: Chunk, taken: Mask) -> Chunk:
        alive = ~taken if chunk.alive is None else chunk.alive & ~taken
        if 2 * int(np.count_nonzero(alive)) >= len(alive):
            return self._chunk(chunk.born, chunk.number, chunk.numbers, chunk.batch, alive)
        batch = chunk.batch.filter(pa.array(alive))  # the dead are most of it: they are let go
        return self._chunk(chunk.born, chunk.number, chunk.numbers[alive], batch)

    def _together(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches) if batches else self._empty[0]

    # Checkpoints

    def freeze(self) -> None:
        assert not self._frozen, "one checkpoint at a time"
        self._inactive = [chunk for chunk in self._chunks if chunk.born == self._generation]
        self._inactive_gone, self._gone = self._gone, []
        self._generation += 1
        self._frozen = True

    @property
    def encoding(self) -> bool:
        return self._frozen

    @property
    def changed(self) -> int:
        """How many rows the next freeze would have to save or to cross out."""
        fresh = sum(chunk.live for chunk in self._chunks if chunk.born == self._generation)
        return fresh + sum(map(len, self._gone))

    def encode_slice(self, limit: int) -> list[SavedTable]:
        """The next rows of the frozen state; empty when it is complete."""
        if self._inactive:
            chunk = self._inactive[0]
            numbers, rows = chunk.live_numbers(), chunk.rows()
            if len(numbers) > limit:
                left = (numbers[limit:], rows.slice(limit))
                self._inactive[0] = chunk._replace(numbers=left[0], batch=left[1], alive=None, live=len(left[0]))
            else:
                del self._inactive[0]
            return [_saved(chunk.number, numbers[:limit], rows.slice(0, limit), [])]
        if self._inactive_gone:
            gone, self._inactive_gone = self._inactive_gone, []
            return [_saved(0, np.empty(0, np.int64), self._empty[0], gone)]
        self._frozen = False
        return []

    def restore(self, pieces: Iterable[SavedTable]) -> None:
        """Puts saved pieces in place, in the order in which they were saved."""
        parts: dict[int, list[tuple[Int64s, pa.RecordBatch]]] = {}
        gone = []
        for piece in pieces:
            gone.append(np.frombuffer(piece.gone, np.int64))
            numbers = np.frombuffer(piece.numbers, np.int64)
            if len(numbers):
                rows = pa.ipc.read_record_batch(pa.py_buffer(piece.rows), self.schema)
                parts.setdefault(piece.chunk, []).append((numbers, rows))
                self._next = max(self._next, int(numbers[-1]) + 1)
        for number, saved in parts.items():
            numbers = np.concatenate([one for one, _ in saved])
            self._chunks.append(self._chunk(_RESTORED, number, numbers, self._together([rows for _, rows in saved])))
        self._chunks.sort(key=lambda chunk: chunk.number)
        self._cross_out(np.concatenate([np.empty(0, np.int64), *gone]))

    def _cross_out(self, gone: Int64s) -> None:
        kept = []
        for chunk in self._chunks if len(gone) else ():
            mask = _masked(chunk, np.isin(chunk.numbers, gone))
            if int(np.count_nonzero(mask)) < chunk.live:
                kept.append(self._without(chunk, mask) if mask.any() else chunk)
        if len(gone):
            self._chunks = kept

    # Other owners

    def absorb(self, other: Table) -> None:
        """Takes over the rows of another shard, which has no key in common with this one."""
        for chunk in other._chunks:
            self.add(chunk.rows())

    def keep(self, wanted: Choose) -> None:
        """Keeps the rows that are wanted; the others went to another owner, and nothing is said of them here."""
        assert not self._frozen
        kept = []
        for chunk in self._chunks:
            dropped = _masked(chunk, ~wanted(chunk.batch))
            if int(np.count_nonzero(dropped)) < chunk.live:
                kept.append(self._without(chunk, dropped) if dropped.any() else chunk)
        self._chunks = kept


def _masked(chunk: Chunk, mask: Any) -> Mask:
    found: Mask = mask if chunk.alive is None else mask & chunk.alive
    return found


def _saved(chunk: int, numbers: Int64s, rows: pa.RecordBatch, gone: list[Int64s]) -> SavedTable:
    crossed_out = np.concatenate([np.empty(0, np.int64), *gone])
    return SavedTable(chunk, numbers.tobytes(), rows.serialize().to_pybytes(), crossed_out.tobytes())
