"""A subscriber's view of a stream: which key each record has, and where on the ring that key lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.bundle import times_of, without_times
from tidemill.core.graph import Key, Stream
from tidemill.core.ids import Position, ShardId
from tidemill.core.keys import function_key_position, needs_normalising, normal_key, ring_position, ring_positions
from tidemill.core.records import record_maker
from tidemill.errors import KeyTypeError, UserCodeError

Columns = list[list[Any]]


FEW: Final = 16

_PLAIN: Final[tuple[Any, ...]] = (int, float, str, bytes)


@lru_cache(maxsize=4096)
def origin_position(origin: ShardId) -> Position:
    """Where the records of an origin go that nobody gave a key: all to one place, so that their order is kept.

    The bits in reverse: shards that were numbered one after another lie as far apart as they can.
    """
    return Position(int(f"{origin:064b}"[::-1], 2))


class Keying:
    """The columns it is given are a batch's, as Python lists, the times last."""

    def __init__(self, key: Key, stream: Stream) -> None:
        self._key = key
        self._stream = stream.name
        self._returned: type | None = None  # what a key function has returned so far
        self._places = [stream.schema.get_field_index(name) for name in key.columns]
        self._normalise = bool(key.columns) and needs_normalising(key.types)
        self.make_record = record_maker(stream)
        self.keyed = bool(key.columns) or key.function is not None
        self.keys = self._chosen()

    def _chosen(self) -> Callable[[Columns], Iterable[Any]]:
        if self._key.function is not None:
            return self._from_function
        if len(self._places) == 1:
            return self._from_column
        return self._from_columns

    def _from_column(self, columns: Columns) -> Iterable[Any]:
        keys = columns[self._places[0]]
        return [normal_key(key) for key in keys] if self._normalise else keys

    def _from_columns(self, columns: Columns) -> Iterable[Any]:
        keys = list(zip(*[columns[place] for place in self._places], strict=True))
        return [normal_key(key) for key in keys] if self._normalise else keys

    def _from_function(self, columns: Columns) -> Iterable[Any]:
        function = self._key.function
        assert function is not None
        try:
            keys = [plain(function(self.make_record(row))) for row in zip(*columns, strict=True)]
        except Exception as error:
            raise UserCodeError(
                f"the key function of an input on stream {self._stream!r} raised {type(error).__name__}: {error}"
            ) from error
        for key in keys:
            self._check_type(type(key))
        return keys

    def _check_type(self, returned: type) -> None:
        """1, 1.0 and True are one key in a dictionary and three places on the ring: a function returns one type."""
        if returned is type(None) or returned is self._returned:
            return
        if self._returned is not None:
            raise KeyTypeError(
                f"the key function of an input on stream {self._stream!r} returned a {self._returned.__name__} before "
                f"and a {returned.__name__} now; let it return one type (and None where there is no key)"
            )
        self._returned = returned

    def positions(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """Each record's place on the ring."""
        if self._key.function is None:
            return ring_positions([batch.column(place) for place in self._places], self._key.types)
        keys = self._from_function(columns_of(batch))
        return np.fromiter(map(function_key_position, keys), np.uint64, batch.num_rows)

    def position(self, key: Any) -> Position:
        """One key's place, for a key as `keys` gives it."""
        if self._key.function is not None:
            return function_key_position(key)
        return ring_position(key, self._key.types)


def plain(key: Any) -> Any:
    """A key as dictionaries and the codec want it: an enum or another subclass becomes the plain value it holds."""
    if isinstance(key, tuple):
        return tuple(map(plain, key))
    if isinstance(key, Enum):
        return plain(key.value)
    for kind in _PLAIN:
        if isinstance(key, kind) and type(key) not in (kind, bool):
            return normal_key(kind(key))
    return normal_key(key)


def columns_of(batch: pa.RecordBatch) -> Columns:
    """A batch as Python lists, the times last."""
    if batch.num_rows <= FEW:
        return [column.to_pylist() for column in batch.columns]
    columns: Columns = [column.to_pylist() for column in without_times(batch).columns]
    columns.append(times_of(batch).tolist())
    return columns
