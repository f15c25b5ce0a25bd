"""Where a key lies: one of 2**64 positions on a ring, the same that Spark SQL's `xxhash64` gives it.

So Spark can place rows on our ring by itself (`repartition` by position), and a table that it wrote lies as our shards
lie. The position follows from the key's columns *by their schema types*: 1 as an int and 1 as a long are two places.
Columns chain, each hash seeding the next, from 42; a null leaves the seed as it is. Spark reads the result as a signed
number, we as an unsigned one.

Three ways to the same number: `ring_position` for one key, `ring_positions` for a batch, `function_key_position` for
what a user's function returned, which has no schema and is placed as Spark would type the Python value.

A key is also looked up in dictionaries, where -0.0 and 0.0 are one key but NaN is none. `normal_key` mends that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidemill.core.ids import RING, Position
from tidemill.errors import KeyTypeError

Positions = npt.NDArray[np.uint64]

SEED: Final = 42
"""Spark's, and so the position of a key that is null throughout."""

KEYABLE: Final = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal, date, timestamp, timestamp_ntz, string, binary"
)
"""The types that a key column may have, as they are named in a schema."""

RETURNABLE: Final = (
    "None, bool, int of 64 bits, float, str, bytes, datetime, date, Decimal of at most 20 digits before the point and "
    "18 behind it, or a tuple of these"
)
"""What a key function may return."""

FEW: Final = 64
"""Up to so many rows, a loop in Python is done before numpy has begun."""


# --- ranges -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False, order=True)
class KeyRange:
    """The positions from `low` up to, and without, `high`. Never empty; never around the ring's seam.

    It keeps the last position in place of `high`, for 2**64 does not fit into 64 bits and so into no message.
    """

    low: Position
    last: Position

    def __init__(self, low: int, high: int) -> None:
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "last", high - 1)
        self.__post_init__()

    def __post_init__(self) -> None:  # also called when a range is read from a message
        if not 0 <= self.low <= self.last < RING:
            raise ValueError(f"not a range of the ring: {self!r}")

    @property
    def high(self) -> int:
        return self.last + 1

    def __repr__(self) -> str:
        return f"KeyRange({self.low:#x}, {self.high:#x})"

    def contains(self, position: int) -> bool:
        return self.low <= position <= self.last

    def covers(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """For each position whether the range contains it."""
        inside: npt.NDArray[np.bool_] = (positions >= np.uint64(self.low)) & (positions <= np.uint64(self.last))
        return inside

    def overlaps(self, other: KeyRange) -> bool:
        return self.low <= other.last and other.low <= self.last

    def intersect(self, other: KeyRange) -> KeyRange | None:
        if not self.overlaps(other):
            return None
        return KeyRange(max(self.low, other.low), min(self.high, other.high))

    def split(self, at: int) -> tuple[KeyRange, KeyRange]:
        """Cuts before the position `at`, which must leave something on either side."""
        return KeyRange(self.low, at), KeyRange(at, self.high)


FULL: Final = KeyRange(0, RING)


def even_ranges(n: int) -> tuple[KeyRange, ...]:
    """The whole ring in `n` ranges, in order, whose sizes differ by one at most."""
    cuts = [RING * i // n for i in range(n + 1)]
    return tuple(KeyRange(low, high) for low, high in pairwise(cuts))


# --- a value's bytes, as Spark hashes them ----------------------------------------------------------------------------

Encoder = Callable[[Any], bytes]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_WITHOUT_ZONE: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what a naive datetime is counted from
_DAY_ZERO: Final = date(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)

_int32: Final = struct.Struct("<i").pack
_int64: Final = struct.Struct("<q").pack
_pack_float: Final = struct.Struct("<f").pack
_pack_double: Final = struct.Struct("<d").pack

NAN: Final = float("nan")
"""The one NaN that a normal key contains."""

_FLOAT_NAN: Final = _pack_float(NAN)
_DOUBLE_NAN: Final = _pack_double(NAN)


def _float(value: float) -> bytes:
    return _pack_float(value + 0.0) if value == value else _FLOAT_NAN  # noqa: PLR0124 - NaN differs from itself


def _double(value: float) -> bytes:
    return _pack_double(value + 0.0) if value == value else _DOUBLE_NAN  # noqa: PLR0124


def _micros(value: datetime | int) -> bytes:
    """Without a zone it is Spark's `timestamp_ntz`, which counts as if the clock on the wall stood in UTC."""
    if isinstance(value, datetime):
        value = (value - (_EPOCH if value.tzinfo else _EPOCH_WITHOUT_ZONE)) // _MICROSECOND
    return _int64(value)


def _days(value: date | int) -> bytes:
    return _int32((value - _DAY_ZERO).days if isinstance(value, date) else value)


def unscaled(value: Decimal, scale: int) -> int:
    """`value * 10**scale`, exactly: the arithmetic of `Decimal` itself rounds to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise KeyTypeError(f"a key can't be the Decimal {value}")
    whole: int = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift < 0:
        whole, lost = divmod(whole, int(10**-shift))
        if lost:
            raise KeyTypeError(f"a key can't be the Decimal {value}: it has more than {scale} digits behind the point")
    else:
        whole *= 10**shift
    return -whole if sign else whole


def _binary(value: bytes) -> bytes:
    return value


def _short_decimal(scale: int, value: Decimal) -> bytes:
    return _int64(unscaled(value, scale))


def _long_decimal(scale: int, value: Decimal) -> bytes:
    """As Java's `BigInteger.toByteArray` has it: two's complement, big end first, with no byte too many."""
    number = unscaled(value, scale)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


_ENCODERS: Final[dict[int, Encoder]] = {
    pa.bool_().id: _int32,
    pa.int8().id: _int32,
    pa.int16().id: _int32,
    pa.int32().id: _int32,
    pa.int64().id: _int64,
    pa.float32().id: _float,
    pa.float64().id: _double,
    pa.date32().id: _days,
    pa.timestamp("us").id: _micros,
    pa.string().id: str.encode,
    pa.large_string().id: str.encode,
    pa.binary().id: _binary,
    pa.large_binary().id: _binary,
}
_DECIMAL: Final[int] = pa.decimal128(1).id
_LONG_PRECISION: Final = 18  # up to here, an unscaled decimal fits a long


def _encoder(type: pa.DataType) -> Encoder:
    encoder = _ENCODERS.get(type.id)
    if encoder is not None:
        return encoder
    if type.id == _DECIMAL:
        return partial(_short_decimal if type.precision <= _LONG_PRECISION else _long_decimal, type.scale)
    raise KeyTypeError(f"a key can't be of type {type}; it can be {KEYABLE}")


def check_key_type(type: pa.DataType) -> bool:
    """Can a key column have this type?"""
    if type.id == pa.timestamp("us").id:
        return bool(type.unit == "us")  # Spark's; the others would count something else than microseconds
    return type.id == _DECIMAL or type.id in _ENCODERS


# --- one key ----------------------------------------------------------------------------------------------------------


def ring_position(key: Any, types: Sequence[pa.DataType]) -> Position:
    """The place of one key: a value for one column, a tuple for several.

    Of a timestamp or a date it also takes the number of microseconds or days.
    """
    if len(types) == 1:
        return Position(_link(SEED, key, _encoder(types[0])))
    position = SEED
    for value, type in zip(key, types, strict=True):
        position = _link(position, value, _encoder(type))
    return Position(position)


def _link(seed: int, value: Any, encode: Encoder) -> int:
    return seed if value is None else xxh64_intdigest(encode(value), seed)


_DECIMAL_END: Final = 10**20


def _any_decimal(value: Decimal) -> bytes:
    """Spark types a Python Decimal as decimal(38, 18)."""
    if not -_DECIMAL_END < value < _DECIMAL_END:
        raise OverflowError
    return _long_decimal(18, value)


_FUNCTION_ENCODERS: Final[dict[type, Encoder]] = {  # in order: a bool is an int, a datetime a date
    str: str.encode,
    bool: _int32,
    int: _int64,
    float: _double,
    bytes: _binary,
    datetime: _micros,
    date: _days,
    Decimal: _any_decimal,
}


def function_key_position(value: Any) -> Position:
    """The place of what a user's key function returned."""
    return Position(_chain(SEED, value))


def _chain(seed: int, value: Any) -> int:
    if value is None:
        return seed
    if isinstance(value, tuple):
        for part in value:
            seed = _chain(seed, part)
        return seed
    encode = _FUNCTION_ENCODERS.get(type(value)) or _inherited_encoder(value)
    try:
        return xxh64_intdigest(encode(value), seed)
    except (struct.error, UnicodeEncodeError, ArithmeticError) as error:
        raise KeyTypeError(
            f"a key function returned the {_name_of(value)} {value!r}, which has no place on the ring; "
            f"it can return {RETURNABLE}"
        ) from error


def _inherited_encoder(value: Any) -> Encoder:
    for base, encoder in _FUNCTION_ENCODERS.items():
        if isinstance(value, base):
            return encoder
    raise KeyTypeError(
        f"a key function returned a value of type {_name_of(value)}, which has no place on the ring; "
        f"it can return {RETURNABLE}"
    )


def _name_of(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- many keys --------------------------------------------------------------------------------------------------------

_VIEWS: Final[dict[int, pa.DataType]] = {pa.timestamp("us").id: pa.int64(), pa.date32().id: pa.int32()}

_WORD: Final[frozenset[int]] = frozenset({pa.bool_().id, pa.int8().id, pa.int16().id, pa.int32().id, pa.date32().id})
_LONG_WORD: Final[frozenset[int]] = frozenset({pa.int64().id, pa.timestamp("us").id})


def ring_positions(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> Positions:
    """The place of each row's key; `columns` are those of the key."""
    rows = len(columns[0])
    if rows <= FEW:
        return _one_by_one(columns, types)
    positions: Positions | int = SEED
    for column, type in zip(columns, types, strict=True):
        positions = _linked(positions, column, type)
    assert not isinstance(positions, int)
    return positions


def _one_by_one(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> Positions:
    positions = [SEED] * len(columns[0])
    for column, type in zip(columns, types, strict=True):
        encode = _encoder(type)
        view = _VIEWS.get(type.id)
        values = (column if view is None else column.view(view)).to_pylist()
        positions = [
            seed if value is None else xxh64_intdigest(encode(value), seed)
            for seed, value in zip(positions, values, strict=True)
        ]
    return np.array(positions, np.uint64)


def _linked(seeds: Positions | int, column: pa.Array, type: pa.DataType) -> Positions:
    """Every row's hash over one column more; `seeds` are those of the columns before it, or one for all."""
    words = _words(column, type)
    if words is None:
        return _looked_up(seeds, column, type)
    digests = _digests(*words, seeds)
    if column.null_count == 0:
        return digests
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, digests, np.asarray(seeds, np.uint64))


def _looked_up(seeds: Positions | int, column: pa.Array, type: pa.DataType) -> Positions:
    """Hashes each distinct value once, or each distinct pair of seed and value."""
    encode = _encoder(type)
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    codes: npt.NDArray[np.int32] = encoded.indices.to_numpy()
    if isinstance(seeds, int):
        return np.array([_link(seeds, value, encode) for value in values], np.uint64)[codes]
    seeded = pa.array(seeds).dictionary_encode()
    befores = seeded.dictionary.to_pylist()
    pairs = pa.array(seeded.indices.to_numpy() * np.int64(len(values)) + codes).dictionary_encode()
    codes = pairs.indices.to_numpy()
    distinct = [divmod(pair, len(values)) for pair in pairs.dictionary.to_pylist()]
    return np.array([_link(befores[before], values[code], encode) for before, code in distinct], np.uint64)[codes]


def _words(column: pa.Array, type: pa.DataType) -> tuple[Positions, int] | None:
    """The values as the words that are hashed, and their length in bytes, if all have one. A null is any word."""
    if type.id == _DECIMAL:
        return (_decimal_words(column), 8) if type.precision <= _LONG_PRECISION else None
    if type.id in _VIEWS:
        column = column.view(_VIEWS[type.id])
    if type.id in _WORD:
        return _numbers(column).astype(np.int32).view(np.uint32).astype(np.uint64), 4
    if type.id in _LONG_WORD:
        return _numbers(column).view(np.uint64), 8
    if type.id == pa.float32().id:
        bits = _numbers(column).view(np.uint32).astype(np.uint64)
        return _normal_bits(bits, int.from_bytes(_FLOAT_NAN, "little"), infinity=0x7F800000, sign=1 << 31), 4
    if type.id == pa.float64().id:
        bits = _numbers(column).view(np.uint64)
        return _normal_bits(bits, int.from_bytes(_DOUBLE_NAN, "little"), infinity=0x7FF << 52, sign=1 << 63), 8
    return None


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        column = column.fill_null(False if column.type.id == pa.bool_().id else 0)
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def _decimal_words(column: pa.Array) -> Positions:
    """The low half of each 16 bytes."""
    halves = np.frombuffer(column.buffers()[1], np.uint64)
    return halves[2 * column.offset : 2 * (column.offset + len(column)) : 2]


def _normal_bits(bits: Positions, nan: int, *, infinity: int, sign: int) -> Positions:
    """-0.0 becomes 0.0 and every NaN one NaN, in the bits: arithmetic would warn of some NaNs."""
    bits = np.where(bits == np.uint64(sign), np.uint64(0), bits)
    return np.where(bits & np.uint64(sign - 1) > np.uint64(infinity), np.uint64(nan), bits)


# XXH64 of 4 or 8 bytes, for a whole array at once: without a loop over the input it is short, and as fast as looking
# for the distinct values would be. Longer values go through the library.

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(0x9E3779B185EBCA87),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
    np.uint64(0x85EBCA77C2B2AE63),
    np.uint64(0x27D4EB2F165667C5),
)


def _digests(words: Positions, size: int, seeds: Positions | int) -> Positions:
    """Every step writes over the last: fresh arrays for each would cost several times the arithmetic."""
    start = np.atleast_1d(np.asarray(seeds, np.uint64)) + _P5  # an array, for numbers by themselves warn when they wrap
    start += np.uint64(size)
    spare = np.empty_like(words)
    if size == 8:
        mixed = words * _P2
        _rotate(mixed, 31, spare)
        mixed *= _P1
        mixed ^= start
        _rotate(mixed, 27, spare)
        mixed *= _P1
        mixed += _P4
    else:
        mixed = words * _P1
        mixed ^= start
        _rotate(mixed, 23, spare)
        mixed *= _P2
        mixed += _P3
    _fold(mixed, 33, spare)
    mixed *= _P2
    _fold(mixed, 29, spare)
    mixed *= _P3
    _fold(mixed, 32, spare)
    return mixed


def _rotate(words: Positions, by: int, spare: Positions) -> None:
    np.right_shift(words, np.uint64(64 - by), out=spare)
    words <<= np.uint64(by)
    words |= spare


def _fold(words: Positions, by: int, spare: Positions) -> None:
    np.right_shift(words, np.uint64(by), out=spare)
    words ^= spare


# --- keys in dictionaries ---------------------------------------------------------------------------------------------


def normal_key(value: Any) -> Any:
    """The same key in the one form in which it is looked up: with 0.0 for -0.0 and `NAN` for every NaN.

    Dictionaries find a NaN only by being the same object, also within a tuple. So a key that was decoded must be made
    normal again before it is put into one.
    """
    if isinstance(value, float):
        return value + 0.0 if value == value else NAN  # noqa: PLR0124
    if isinstance(value, tuple):
        return tuple(map(normal_key, value))
    return value


def needs_normalising(types: Sequence[pa.DataType]) -> bool:
    """Can keys of these types be other than normal? Of a function's keys, which have no types, nothing is known."""
    return not types or any(type.id in (pa.float32().id, pa.float64().id) for type in types)
