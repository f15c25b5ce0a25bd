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
    type: pa.DataType
    values: SearchStrategy[Any]  # what an array is built from: numbers are in the storage type

    def array(self, values: list[Any]) -> pa.Array:
        if pa.types.is_floating(self.type):  # by way of the bits: Python would keep neither every NaN nor its sign
            bits = pa.array(values, pa.uint32() if self.type == pa.float32() else pa.uint64())
            return bits.view(self.type)
        if pa.types.is_timestamp(self.type):
            return pa.array(values, pa.int64()).view(self.type)
        if pa.types.is_date(self.type):
            return pa.array(values, pa.int32()).view(self.type)
        return pa.array(values, self.type)


def integers(bits: int) -> SearchStrategy[int]:
    end = 2 ** (bits - 1)
    return st.sampled_from([0, 1, -1, end - 1, -end]) | st.integers(-end, end - 1)


def float_bits(dtype: type, word: type) -> SearchStrategy[int]:
    """Zeros of both signs, infinities, the least numbers, quiet and signalling NaN of both signs, and any other."""
    info = np.finfo(dtype)
    odd: np.ndarray = np.array(
        [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal, np.nan], dtype
    )
    infinity = int(np.array([np.inf], dtype).view(word)[0])
    sign = 1 << (info.bits - 1)
    nans = [infinity + 1, infinity | sign | 1, infinity | sign | 12345, sign - 1]
    return st.sampled_from([*odd.view(word).tolist(), *nans]) | st.integers(0, 2**info.bits - 1)


def decimals(precision: int, scale: int) -> SearchStrategy[Decimal]:
    end = 10**precision - 1
    powers = [sign * 2**bit + more for bit in range(precision * 3) for sign in (1, -1) for more in (0, -1)]
    numbers = st.sampled_from([0, end, -end, *powers]) | st.integers(-end, end)
    return numbers.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


MICROS = st.sampled_from([0, -1, 1, -(10**6), -(10**6) - 1]) | st.integers(
    -62_135_596_800_000_000, 253_402_300_799_999_999
)

KEY_TYPES = {
    "boolean": KeyType(pa.bool_(), st.booleans()),
    "tinyint": KeyType(pa.int8(), integers(8)),
    "smallint": KeyType(pa.int16(), integers(16)),
    "int": KeyType(pa.int32(), integers(32)),
    "bigint": KeyType(pa.int64(), integers(64)),
    "float": KeyType(pa.float32(), float_bits(np.float32, np.uint32)),
    "double": KeyType(pa.float64(), float_bits(np.float64, np.uint64)),
    "decimal(1,0)": KeyType(pa.decimal128(1, 0), decimals(1, 0)),
    "decimal(9,2)": KeyType(pa.decimal128(9, 2), decimals(9, 2)),
    "decimal(18,18)": KeyType(pa.decimal128(18, 18), decimals(18, 18)),
    "decimal(19,0)": KeyType(pa.decimal128(19, 0), decimals(19, 0)),
    "decimal(38,10)": KeyType(pa.decimal128(38, 10), decimals(38, 10)),
    "date": KeyType(pa.date32(), st.sampled_from([0, -1]) | st.integers(-719_162, 2_932_896)),
    "timestamp": KeyType(pa.timestamp("us", "UTC"), MICROS),
    "timestamp_ntz": KeyType(pa.timestamp("us"), MICROS),
    "string": KeyType(pa.string(), st.sampled_from(["", "é", "\U0001f30a", "a" * 100]) | st.text(max_size=70)),
    "binary": KeyType(pa.binary(), st.sampled_from([b"", b"\0", b"\xff" * 33]) | st.binary(max_size=70)),
}
"""By their names in a schema."""
