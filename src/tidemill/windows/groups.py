"""Rows numbered by group: the one thing that all aggregates are computed from.

Equal means what Spark means by it: null is a group, -0.0 is 0.0, NaN is NaN. Numbers that lie close together are found
by subtraction, all else by Arrow's dictionaries; no record is looked at in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]

ROOMY: Final = 4
"""A table of codes may have so many places for each row; beyond that, Arrow's hashing is cheaper."""

SMALL: Final = 4096
"""And it may have so many in any case."""

_MOST: Final = 2**62

_AS_NUMBERS: Final = {
    pa.date32().id: pa.int32(),
    pa.timestamp("us").id: pa.int64(),
}


@dataclass(frozen=True)
class Groups:
    """For each row its group's number, how many there are, and the first row of each."""

    of_row: Int64s
    count: int
    firsts: Int64s

    def sizes(self) -> Int64s:
        return np.bincount(self.of_row, minlength=self.count).astype(np.int64, copy=False)


class _Codes(NamedTuple):
    """A number for each row, below `many`, the same for equal values."""

    of_row: Int64s
    many: int


def group_by(columns: Sequence[pa.Array | Int64s], rows: int) -> Groups:
    """The groups of rows that are equal in all columns."""
    codes = _Codes(np.zeros(rows, np.int64), 1)
    for column in columns:
        codes = _paired(codes, _codes(column), rows)
    return _numbered(codes, rows)


def codes_of(columns: Sequence[pa.Array | Int64s], rows: int) -> Int64s:
    """A number for each row, the same for rows that are equal in all columns."""
    return group_by(columns, rows).of_row


def normal(column: pa.Array) -> pa.Array:
    """With 0.0 for -0.0 and one NaN for all."""
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    nan = np.isnan(numbers)
    if nan.any():
        numbers = np.where(nan, numbers.dtype.type(np.nan), numbers)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(numbers, column.type, mask=mask, from_pandas=False)


def numbers_of(column: pa.Array) -> Int64s | None:
    """A column of whole numbers, times or dates as int64; None for others and where there are nulls."""
    if column.null_count:
        return None
    kind = _AS_NUMBERS.get(column.type.id)
    if kind is not None:
        column = column.view(kind)
    elif not pa.types.is_integer(column.type):
        return None
    numbers: Int64s = column.to_numpy().astype(np.int64, copy=False)
    return numbers


def _codes(column: pa.Array | Int64s) -> _Codes:
    numbers = column if isinstance(column, np.ndarray) else numbers_of(column)
    if numbers is not None:
        if not len(numbers):
            return _Codes(numbers, 1)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < max(ROOMY * len(numbers), SMALL):
            return _Codes(numbers - low, high - low + 1)
        column = pa.array(numbers)
    encoded = normal(column).dictionary_encode(null_encoding="encode")
    return _Codes(encoded.indices.to_numpy().astype(np.int64), max(len(encoded.dictionary), 1))


def _paired(one: _Codes, other: _Codes, rows: int) -> _Codes:
    if one.many == 1:
        return other
    if other.many == 1:
        return one
    if one.many * other.many >= _MOST:
        one, other = _packed(one, rows), _packed(other, rows)
    return _Codes(one.of_row * other.many + other.of_row, one.many * other.many)


def _packed(codes: _Codes, rows: int) -> _Codes:
    groups = _numbered(codes, rows)
    return _Codes(groups.of_row, groups.count)


def _numbered(codes: _Codes, rows: int) -> Groups:
    """Codes without gaps."""
    of_row, many = codes
    if many > max(ROOMY * rows, SMALL):
        encoded = pa.array(of_row).dictionary_encode()
        of_row, many = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    firsts: Int64s = np.full(many, rows, np.int64)
    firsts[of_row[::-1]] = np.arange(rows - 1, -1, -1)  # of those that go to one place, the last one stays
    there = firsts < rows
    count = int(np.count_nonzero(there))
    if count < many:
        of_row = (np.cumsum(there) - 1)[of_row]
        firsts = firsts[there]
    return Groups(of_row, count, firsts)


def order_by(codes: Int64s, times: Int64s) -> Int64s:
    """The rows in the order of their codes, those of one code in the order of their times.

    Rows nearly always come in the order of time, and codes are small: then sorting takes as many steps as there are.
    """
    order = None
    if len(times) > 1 and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        codes = codes[order]
    largest = int(codes.max()) if len(codes) else 0
    for shift in range(0, max(largest.bit_length(), 1), 16):
        digit = (codes >> shift & 0xFFFF).astype(np.uint16)
        places = np.argsort(digit, kind="stable")
        codes = codes[places]
        order = places if order is None else order[places]
    assert order is not None
    return order


def take(columns: Sequence[pa.Array], places: Int64s) -> list[pa.Array]:
    chosen = pa.array(places)
    return [column.take(chosen) for column in columns]


def is_in(columns: Sequence[pa.Array], others: Sequence[pa.Array]) -> npt.NDArray[Any]:
    """Which rows may be equal to one of the others. It errs on one side: some that are not are found too."""
    found: npt.NDArray[Any] = np.ones(len(columns[0]), bool)
    for column, other in zip(columns, others, strict=True):
        among = pc.is_in(column, value_set=other.unique())
        found &= among.to_numpy(zero_copy_only=False)
    return found
