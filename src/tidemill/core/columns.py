"""State in columns, for computations that work on whole bundles.

Each key has a row number, and each column is one numpy array over all rows, so user code changes thousands of keys in
one expression. The fragments are the same as in `state`: which rows changed is a mask per fragment, a freeze swaps the
masks, and rows about to change before they were encoded are copied first, in bulk.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.codec import decode_key, encode_key
from tidemill.core.dense import DenseRows
from tidemill.core.graph import ColumnState
from tidemill.core.keys import normal_key

Rows = npt.NDArray[np.intp]
_FIRST_CAPACITY = 1024


class SavedColumns(msgspec.Struct, frozen=True, array_like=True):
    """Some rows: their keys and, for each column in order, the bytes of their values."""

    keys: list[bytes]
    columns: list[bytes]


class ColumnarState:
    """`state.total[rows]` reads and writes a column; `state.rows(keys)` finds the rows of keys, making new ones."""

    def __init__(self, spec: ColumnState) -> None:
        self._fields = spec.fields
        self._clear()

    def _clear(self) -> None:
        self._row_of: dict[Any, int] = {}
        self._dense = DenseRows()
        self._keys: list[Any] = []
        self._columns: dict[str, npt.NDArray[Any]] = {n: np.zeros(_FIRST_CAPACITY, dtype) for n, dtype in self._fields}
        self._active: npt.NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, bool)
        self._inactive: npt.NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, bool)
        self._encoded_early: list[SavedColumns] = []
        self._frozen = False

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        columns = self.__dict__.get("_columns", {})
        if name in columns:
            column: npt.NDArray[Any] = columns[name][: len(self._keys)]
            return column
        raise AttributeError(f"the state has no column {name!r}; it has {', '.join(columns)}")

    @property
    def keys(self) -> list[Any]:
        """Each row's key, in order of the rows."""
        return self._keys

    def rows(self, keys: pa.Array) -> Rows:
        """The row of each key of an Arrow column, marked as about to change."""
        numbers = keys.to_numpy().astype(np.int64, copy=False) if _are_numbers(keys) else None
        dense = self._dense.find(numbers) if numbers is not None else None
        if dense is not None:
            self.touch(dense)
            return dense.astype(np.intp)
        encoded = keys if isinstance(keys, pa.DictionaryArray) else keys.dictionary_encode()
        if encoded.null_count:
            encoded = keys.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary.to_pylist()
        if pa.types.is_floating(keys.type):
            distinct = [normal_key(key) for key in distinct]
        known = list(map(self._row_of.get, distinct))  # nearly all are, and `get` costs less than a call of ours
        if None in known:
            known = [self._row(key) if row is None else row for key, row in zip(distinct, known, strict=True)]
        of_distinct = np.array(known, np.intp)
        self.touch(of_distinct)
        if numbers is not None:
            self._dense.learn(np.array(distinct, np.int64), of_distinct)
        found: Rows = of_distinct[encoded.indices.to_numpy()]
        return found

    def row(self, key: Any) -> int:
        """One key's row, marked as about to change."""
        found = self._row(normal_key(key))
        self.touch(np.array([found]))
        return found

    def _row(self, key: Any) -> int:
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self._keys)
            self._keys.append(key)
            if row == len(self._active):
                self._grow()
        return row

    def _grow(self) -> None:
        def doubled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([array, np.zeros(len(array), array.dtype)])

        self._columns = {name: doubled(column) for name, column in self._columns.items()}
        self._active, self._inactive = doubled(self._active), doubled(self._inactive)

    def shares_memory(self, arrays: Iterable[pa.Array]) -> bool:
        """Whether some Arrow arrays were made of this state's own without a copy."""
        own = [(column.ctypes.data, column.ctypes.data + column.nbytes) for column in self._columns.values()]
        buffers = [buffer for array in arrays for buffer in array.buffers() if buffer is not None]
        return any(low <= buffer.address < high for buffer in buffers for low, high in own)

    def touch(self, rows: npt.NDArray[np.integer]) -> None:
        if self._frozen:
            waiting = np.unique(rows[self._inactive[rows]])
            if len(waiting):
                self._encoded_early.append(self._encode(waiting))
                self._inactive[waiting] = False
        self._active[rows] = True

    def freeze(self) -> None:
        assert not self.encoding, "one checkpoint at a time"
        self._inactive, self._active = self._active, self._inactive
        self._frozen = True

    @property
    def encoding(self) -> bool:
        return self._frozen

    @property
    def changed(self) -> int:
        return int(self._active.sum())

    def encode_slice(self, limit: int) -> list[SavedColumns]:
        """The next rows of the frozen state; empty when it is complete."""
        if self._encoded_early:
            early, self._encoded_early = self._encoded_early, []
            return early
        rows = np.flatnonzero(self._inactive)[:limit]
        if len(rows) == 0:
            self._frozen = False
            return []
        self._inactive[rows] = False
        return [self._encode(rows)]

    def _encode(self, rows: Rows) -> SavedColumns:
        keys = [encode_key(self._keys[row]) for row in rows.tolist()]
        return SavedColumns(keys, [self._columns[name][rows].tobytes() for name, _ in self._fields])

    def restore(self, pieces: Iterable[SavedColumns]) -> None:
        for piece in pieces:
            keys = [decode_key(key) for key in piece.keys]
            rows = np.fromiter(map(self._row, keys), np.intp, len(keys))
            for (name, dtype), data in zip(self._fields, piece.columns, strict=True):
                self._columns[name][rows] = np.frombuffer(data, dtype)

    def absorb(self, other: ColumnarState) -> None:
        """Takes over the rows of another shard, which has no key in common with this one."""
        rows = np.fromiter(map(self._row, other._keys), np.intp, len(other._keys))
        self.touch(rows)
        for name, _ in self._fields:
            self._columns[name][rows] = getattr(other, name)

    def keep(self, wanted: list[bool]) -> None:
        """Keeps some rows and drops the others, which went to another owner."""
        assert not self._frozen
        whole = copy.copy(self)
        rows = np.flatnonzero(wanted)
        active = self._active[rows]
        self._clear()
        for row in rows.tolist():
            self._row(whole.keys[row])
        for name, _ in self._fields:
            self._columns[name][: len(rows)] = getattr(whole, name)[rows]
        self._active[: len(rows)] = active


def _are_numbers(keys: pa.Array) -> bool:
    return bool(pa.types.is_integer(keys.type)) and keys.null_count == 0
