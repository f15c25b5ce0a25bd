"""Each type that a key column may have, with a strategy for its values, which goes to the ends and the odd ones.

A timestamp is drawn as its number of microseconds: Spark knows times that `datetime` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True)
class KeyType:
    """Its values are what an array is built from: floats are their bits, times their numbers."""

    type: pa.DataType
    odd: tuple[Any, ...]
    others: SearchStrategy[Any]

    @property
    def values(self) -> SearchStrategy[Any]:
        return st.sampled_from(self.odd) | self.others

    def array(self, values: list[Any]) -> pa.Array:
        if pa.types.is_floating(self.type):  # by way of the bits: Python would keep neither every NaN nor its sign
            bits = pa.array(values, pa.uint32() if self.type == pa.float32() else pa.uint64())
            return bits.view(self.type)
        if pa.types.is_timestamp(self.type):
            return pa.array(values, pa.int64()).view(self.type)
        if pa.types.is_date(self.type):
            return pa.array(values, pa.int32()).view(self.type)
        return pa.array(values, self.type)


def whole(arrow: pa.DataType, bits: int) -> KeyType:
    end = 2 ** (bits - 1)
    return KeyType(arrow, (0, 1, -1, end - 1, -end), st.integers(-end, end - 1))


def floating(arrow: pa.DataType, dtype: type, word: type) -> KeyType:
    """Zeros of both signs, infinities, the least numbers, quiet and signalling NaN of both signs."""
    info = np.finfo(dtype)
    ends = [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal, np.nan]
    infinity = int(np.array([np.inf], dtype).view(word)[0])
    sign = 1 << (info.bits - 1)
    nans = (infinity + 1, infinity | sign | 1, infinity | sign | 12345, sign - 1)
    return KeyType(arrow, (*np.array(ends, dtype).view(word).tolist(), *nans), st.integers(0, 2**info.bits - 1))


def decimal(precision: int, scale: int) -> KeyType:
    """The numbers about each power of two: there, one more byte is needed."""
    end = 10**precision - 1
    powers = [sign * 2**bit + more for bit in range(7, end.bit_length()) for sign in (1, -1) for more in (0, -1)]
    odd = [0, 1, -1, end, -end, *powers]

    def scaled(number: int) -> Decimal:
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))

    return KeyType(pa.decimal128(precision, scale), tuple(map(scaled, odd)), st.integers(-end, end).map(scaled))


def micros(arrow: pa.DataType) -> KeyType:
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999
    return KeyType(arrow, (0, 1, -1, -(10**6), -(10**6) - 1, first, last), st.integers(first, last))


KEY_TYPES = {
    "boolean": KeyType(pa.bool_(), (False, True), st.booleans()),
    "tinyint": whole(pa.int8(), 8),
    "smallint": whole(pa.int16(), 16),
    "int": whole(pa.int32(), 32),
    "bigint": whole(pa.int64(), 64),
    "float": floating(pa.float32(), np.float32, np.uint32),
    "double": floating(pa.float64(), np.float64, np.uint64),
    "decimal(1,0)": decimal(1, 0),
    "decimal(9,2)": decimal(9, 2),
    "decimal(18,18)": decimal(18, 18),
    "decimal(19,0)": decimal(19, 0),
    "decimal(38,10)": decimal(38, 10),
    "date": KeyType(pa.date32(), (0, -1, -719_162, 2_932_896), st.integers(-719_162, 2_932_896)),
    "timestamp": micros(pa.timestamp("us", "UTC")),
    "timestamp_ntz": micros(pa.timestamp("us")),
    "string": KeyType(pa.string(), ("", "é", "\U0001f30a", "\0", "a" * 100), st.text(max_size=70)),
    "binary": KeyType(pa.binary(), (b"", b"\0", b"\xff" * 33), st.binary(max_size=70)),
}
"""By their names in a schema."""
