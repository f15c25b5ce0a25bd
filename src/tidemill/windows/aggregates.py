"""Aggregates over groups of rows, with Spark SQL's semantics, in three steps that may happen far apart.

Rows become *partial* results, one for each group; partial results of one group become one; and at last a result. What
is partial is a few Arrow columns, so it travels and is saved like any record. Nulls are skipped: a group of nulls alone
has the result null, and the count 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import DataError
from tidemill.windows.groups import Groups, Int64s, codes_of, normal, numbers_of, take

Arrays = list[pa.Array]


class Rows(NamedTuple):
    batch: pa.RecordBatch
    times: Int64s


class Aggregate(Protocol):
    """One aggregate of one window, bound to its column."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Its partial results."""

    @property
    def result(self) -> pa.DataType: ...

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        """The partial results of records, one for each group."""

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        """Of partial results, one for each group."""

    def results(self, partials: Arrays) -> pa.Array: ...


def _column(rows: Rows, name: str) -> pa.Array:
    return rows.batch.column(name)


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _skipping(column: pa.Array, groups: Groups) -> tuple[pa.Array, Int64s, npt.NDArray[np.bool_] | None]:
    """The values that there are, the group of each, and which groups have none, if any may."""
    if not column.null_count:
        return column, groups.of_row, None
    valid = _valid(column)
    of_row = groups.of_row[valid]
    return column.drop_null(), of_row, np.bincount(of_row, minlength=groups.count) == 0


def _plain_numbers(column: pa.Array) -> Int64s:
    numbers = numbers_of(column)
    assert numbers is not None
    return numbers


# ------------------------------------------------------------------------------------------------------------- count


class Count:
    """Of all records, or of those that have a value in a column."""

    result: Final = pa.int64()
    fields: Final = (pa.field("n", pa.int64()),)

    def __init__(self, column: str | None) -> None:
        self.column = column

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        if self.column is None:
            return [pa.array(groups.sizes())]
        _, of_row, _ = _skipping(_column(rows, self.column), groups)
        return [pa.array(np.bincount(of_row, minlength=groups.count).astype(np.int64, copy=False))]

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        total = np.zeros(groups.count, np.int64)
        np.add.at(total, groups.of_row, partials[0].to_numpy())
        return [pa.array(total)]

    def results(self, partials: Arrays) -> pa.Array:
        return partials[0]


# --------------------------------------------------------------------------------------------------------------- sum

_LOW: Final = 0xFFFFFFFF
_SAFE: Final = 2**62


class WholeSum:
    """Of whole numbers: exact in any order, because kept in two halves. A result that is no long is an error."""

    result: Final = pa.int64()
    fields: Final = (pa.field("high", pa.int64()), pa.field("low", pa.int64()))

    def __init__(self, column: str, told: str) -> None:
        self.column = column
        self._told = told

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        column, of_row, without = _skipping(_column(rows, self.column), groups)
        values = _plain_numbers(column)
        total = np.zeros(groups.count, np.int64)
        largest = max(-int(values.min()), int(values.max())) if len(values) else 0
        if largest * len(values) < _SAFE:
            np.add.at(total, of_row, values)
            return _halves(total >> 32, total & _LOW, without)
        low = np.zeros(groups.count, np.int64)
        np.add.at(total, of_row, values >> 32)
        np.add.at(low, of_row, values & _LOW)
        return _halves(total, low, without)

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        column, of_row, without = _skipping(partials[0], groups)
        high, low = np.zeros(groups.count, np.int64), np.zeros(groups.count, np.int64)
        np.add.at(high, of_row, column.to_numpy())
        np.add.at(low, of_row, partials[1].drop_null().to_numpy())
        return _halves(high, low, without)

    def results(self, partials: Arrays) -> pa.Array:
        high, low = (half.fill_null(0).to_numpy() for half in partials)
        if len(high) and not (int(high.min()) >= -(2**31) and int(high.max()) < 2**31):
            raise DataError(f"{self._told} is too large for a long. Sum it as double or decimal: select(...) it so.")
        return pa.array((high << 32) | low, mask=_null_mask(partials[0]))

    def doubles(self, partials: Arrays) -> npt.NDArray[np.float64]:
        high, low = (half.fill_null(0).to_numpy() for half in partials)
        found: npt.NDArray[np.float64] = high * float(2**32) + low
        return found


def _halves(high: Int64s, low: Int64s, without: npt.NDArray[np.bool_] | None) -> Arrays:
    return [pa.array(high + (low >> 32), mask=without), pa.array(low & _LOW, mask=without)]


def _null_mask(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    return ~_valid(column) if column.null_count else None


class DoubleSum:
    """Of float and double. It is rounded in the order in which partial results come together."""

    result: Final = pa.float64()
    fields: Final = (pa.field("sum", pa.float64()),)

    def __init__(self, column: str) -> None:
        self.column = column

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        return self._summed(_column(rows, self.column), groups)

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        return self._summed(partials[0], groups)

    def _summed(self, column: pa.Array, groups: Groups) -> Arrays:
        column, of_row, without = _skipping(column, groups)
        values = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs make a NaN, and quietly
            total = np.bincount(of_row, values, minlength=groups.count)
        return [pa.array(total.astype(np.float64, copy=False), mask=without, from_pandas=False)]

    def results(self, partials: Arrays) -> pa.Array:
        return partials[0]

    def doubles(self, partials: Arrays) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = partials[0].fill_null(0.0).to_numpy()
        return values


_DIGITS: Final = 38


class DecimalSum:
    """Of decimals: a decimal with ten more digits, as Spark has it, but no more than 38.

    Arrow's sums turn over in silence beyond 128 bits. Beside each stands a rounded one, which shows whether it did.
    """

    def __init__(self, column: str, kind: pa.DataType, told: str) -> None:
        self.column = column
        self._told = told
        self.result: Final = pa.decimal128(min(kind.precision + 10, _DIGITS), kind.scale)
        self._wide = pa.decimal128(_DIGITS, kind.scale)
        self._one = 10.0**-kind.scale
        self.fields: Final = (pa.field("sum", self._wide), pa.field("rounded", pa.float64()))

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        column = _column(rows, self.column).cast(self._wide)
        return self._summed(column, column.cast(pa.float64()), groups)

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        return self._summed(partials[0], partials[1], groups)

    def _summed(self, column: pa.Array, rounded: pa.Array, groups: Groups) -> Arrays:
        values, of_row, _ = _skipping(rounded, groups)
        about = np.bincount(of_row, values.to_numpy(), minlength=groups.count).astype(np.float64, copy=False)
        table = pa.table({"group": groups.of_row, "value": column})
        summed = table.group_by("group", use_threads=False).aggregate([("value", "sum")])
        places = np.empty(groups.count, np.int64)
        places[summed.column("group").to_numpy()] = np.arange(groups.count)
        return [summed.column("value_sum").combine_chunks().cast(self._wide).take(pa.array(places)), pa.array(about)]

    def results(self, partials: Arrays) -> pa.Array:
        try:
            made = partials[0].cast(self.result)
        except pa.ArrowInvalid:
            made = None
        about = np.abs(partials[1].to_numpy()) / self._one
        if made is None or (about > 1.1e38).any() or self._too_long(made.filter(pa.array(about > 0.9e38))):
            raise DataError(f"{self._told} is too large for a {self.result}.")
        return made

    def _too_long(self, sums: pa.Array) -> bool:
        """Whether any has 39 digits, which 128 bits can hold; only ever asked of those that are near it."""
        return any(len(value.as_tuple().digits) > _DIGITS for value in sums.to_pylist() if value is not None)

    def doubles(self, partials: Arrays) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = partials[0].cast(pa.float64()).fill_null(0.0).to_numpy()
        return values


Sum = WholeSum | DoubleSum | DecimalSum


class Mean:
    """A double, of whatever can be summed."""

    result: Final = pa.float64()

    def __init__(self, total: Sum, column: str) -> None:
        self.sum = total
        self.count = Count(column)
        self.fields: Final = (*total.fields, *Count.fields)

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        return [*self.sum.partials(rows, groups), *self.count.partials(rows, groups)]

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        return [*self.sum.merged(partials[:-1], groups), *self.count.merged(partials[-1:], groups)]

    def results(self, partials: Arrays) -> pa.Array:
        counts = partials[-1].to_numpy()
        means = self.sum.doubles(partials[:-1]) / np.maximum(counts, 1)
        return pa.array(means, mask=counts == 0, from_pandas=False)


# ------------------------------------------------------------------------------------------------- least and greatest

_LEAST: Final = -(2**63)
_GREATEST: Final = 2**63 - 1


class Extreme:
    """The least or the greatest value. NaN is greater than all numbers, text is compared byte by byte."""

    def __init__(self, column: str, kind: pa.DataType, *, greatest: bool) -> None:
        self.column = column
        self.result: Final = kind
        self.fields: Final = (pa.field("value", kind),)
        self.greatest: Final = greatest
        self._beyond = _LEAST if greatest else _GREATEST
        self._choose: Any = np.maximum if greatest else np.minimum

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        return self._chosen(_column(rows, self.column), groups)

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        return self._chosen(partials[0], groups)

    def _chosen(self, column: pa.Array, groups: Groups) -> Arrays:
        column, of_row, without = _skipping(column, groups)
        ranks, values_of = _ranked(column)
        found = np.full(groups.count, self._beyond, np.int64)
        self._choose.at(found, of_row, ranks)
        if without is None:
            return [values_of(found)]
        there = values_of(found[~without])
        places = np.cumsum(~without) - 1
        return [there.take(pa.array(places, mask=without))]

    def results(self, partials: Arrays) -> pa.Array:
        return partials[0]


def _ranked(column: pa.Array) -> tuple[Int64s, Callable[[Int64s], pa.Array]]:
    """Numbers in the order of the values, and the way back."""
    kind = column.type
    numbers = numbers_of(column)
    if numbers is not None:
        width = np.dtype(f"int{kind.bit_width}")
        return numbers, lambda ranks: pa.array(ranks.astype(width)).view(kind)
    if pa.types.is_floating(kind):
        bits = normal(column).to_numpy(zero_copy_only=False).astype(np.float64, copy=False).view(np.int64)
        ranks = np.where(bits < 0, bits ^ _GREATEST, bits)
        return ranks, lambda found: pa.array(_floats(found), from_pandas=False).cast(kind)
    encoded = column.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    in_order = encoded.dictionary.take(pa.array(order))
    return rank_of[encoded.indices.to_numpy()], lambda found: in_order.take(pa.array(found))


def _floats(ranks: Int64s) -> npt.NDArray[np.float64]:
    return np.where(ranks < 0, ranks ^ _GREATEST, ranks).view(np.float64)


# --------------------------------------------------------------------------------------------------- distinct values


class Distinct:
    """How many different values. What is partial is the values themselves."""

    result: Final = pa.int64()

    def __init__(self, column: str, kind: pa.DataType) -> None:
        self.column = column
        self.fields: Final = (pa.field("values", pa.list_(pa.field("element", kind))),)

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        column, of_row, _ = _skipping(_column(rows, self.column), groups)
        return [self._lists(column, of_row, groups.count)]

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        values = partials[0].flatten()
        of_value = groups.of_row[pc.list_parent_indices(partials[0]).to_numpy()]
        return [self._lists(values, of_value, groups.count)]

    def _lists(self, values: pa.Array, of_row: Int64s, many: int) -> pa.Array:
        values = normal(values)
        codes = codes_of([values], len(values))
        pairs = np.unique(of_row * np.int64(len(values) + 1) + codes, return_index=True)[1]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of_row[pairs], minlength=many))])
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), take([values], pairs)[0], type=self.fields[0].type
        )

    def results(self, partials: Arrays) -> pa.Array:
        return pc.list_value_length(partials[0]).cast(pa.int64())


class Combined:
    """Several aggregates side by side: their partial columns in a row."""

    def __init__(self, aggregates: Sequence[tuple[str, Aggregate]]) -> None:
        self.aggregates: Final = [aggregate for _, aggregate in aggregates]
        self.partial_fields = [
            field.with_name(f"{name}_{field.name}") for name, aggregate in aggregates for field in aggregate.fields
        ]
        self.result_fields = [pa.field(name, aggregate.result) for name, aggregate in aggregates]

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        return [array for aggregate in self.aggregates for array in aggregate.partials(rows, groups)]

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        return [array for one, mine in self._parts(partials) for array in one.merged(mine, groups)]

    def results(self, partials: Arrays) -> Arrays:
        return [one.results(mine) for one, mine in self._parts(partials)]

    def _parts(self, partials: Arrays) -> list[tuple[Aggregate, Arrays]]:
        parts = []
        start = 0
        for aggregate in self.aggregates:
            end = start + len(aggregate.fields)
            parts.append((aggregate, partials[start:end]))
            start = end
        return parts
