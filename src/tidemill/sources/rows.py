"""Rows in memory as a source: the smallest thing that can be rewound, and the one that tests and first steps use.

Rows are dealt to the splits in turn. All of them are made Arrow columns at once, so that a row that does not fit is
reported where it was written. Arrow alone would let some through in silence (1.5 becomes a long 1, "ab" a list of two),
so what a value may be is said here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.api.durations import duration
from tidemill.api.schema import read_schema, type_ddl
from tidemill.api.wording import declared_at, listing, meant, sentence
from tidemill.core.ids import BEGINNING, END, LAST, Micros
from tidemill.errors import DataError, PipelineError
from tidemill.ports import ARRIVAL, Chunk

Times = npt.NDArray[np.int64]


class Rows:
    """A list of dicts or tuples as a source.

    `timestamp` names the column of event time (or is `tm.ARRIVAL`); datetimes without a zone are UTC, whole numbers are
    microseconds. `delay` is how far behind the newest record another may come and still be on time.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any] | Sequence[Any]],
        schema: Any,
        timestamp: str | None = None,
        splits: int = 1,
        delay: str | dt.timedelta | int = "0s",
    ) -> None:
        owner = f"the Rows declared at {declared_at()}"
        if type(splits) is not int or splits < 1:
            raise PipelineError(f"{sentence(owner)} have splits={splits!r}: at least one is needed.")
        self.schema: pa.Schema = read_schema(schema, owner)
        self.timestamp = timestamp
        self._delay = duration(delay, f"The delay of {owner}")
        self._owner = owner
        self._batch = _batch(list(rows), self.schema, owner)
        self._times = self._event_times()
        self._count = splits

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._count)]

    def open(self, split: str, position: int) -> RowsReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        chosen = np.arange(int(split), self._batch.num_rows, self._count)
        times = self._times[chosen]
        timed = self.timestamp not in (None, ARRIVAL)
        return RowsReader(self._batch.take(pa.array(chosen)), times, self._marks(times) if timed else None, position)

    def _marks(self, times: Times) -> Times:
        """The watermark behind each record. It depends on the records alone, not on where reading began."""
        newest = np.maximum.accumulate(times)
        early = newest < BEGINNING + self._delay  # the difference would not fit
        return np.where(early, BEGINNING, newest - np.where(early, 0, self._delay))

    def _event_times(self) -> Times:
        if self.timestamp in (None, ARRIVAL) or self.timestamp not in self.schema.names:
            return np.full(self._batch.num_rows, BEGINNING, np.int64)  # a column that is missing is the check's to tell
        column = self._batch.column(self.timestamp)
        if not pa.types.is_timestamp(column.type) and column.type != pa.int64():
            return np.full(self._batch.num_rows, BEGINNING, np.int64)  # as above
        micros = column.cast(pa.int64())
        for number, at in enumerate(micros.to_pylist()):
            if at is None or at > LAST:
                why = f"a time, {BEGINNING} to {LAST} microseconds since the epoch"
                _misfit(self._owner, number, self.timestamp, at, why)
        times: Times = micros.to_numpy()
        return times


class RowsReader:
    def __init__(self, batch: pa.RecordBatch, times: Times, marks: Times | None, position: int) -> None:
        self._batch = batch
        self._times = times
        self._marks = marks
        self._position = position

    def read(self, limit: int) -> Chunk:
        start, end = self._position, min(self._position + limit, len(self._times))
        self._position = end
        ended = end == len(self._times)
        return Chunk(
            self._batch.slice(start, end - start),
            self._times[start:end],
            end,
            self._mark(end, ended=ended),
            ended,
            idle=False,
        )

    def _mark(self, end: int, *, ended: bool) -> Micros:
        if ended:
            return END
        if self._marks is None or end == 0:
            return BEGINNING
        return Micros(int(self._marks[end - 1]))

    def close(self) -> None:
        """Nothing is held."""


# ------------------------------------------------------------------------------------------------- rows into columns


def _batch(rows: Sequence[Any], schema: pa.Schema, owner: str) -> pa.RecordBatch:
    columns: list[list[Any]] = [[] for _ in schema]
    for number, row in enumerate(rows):
        for column, value in zip(columns, _values(row, number, schema, owner), strict=True):
            column.append(value)
    arrays = [_array(values, field, owner) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(row: Any, number: int, schema: pa.Schema, owner: str) -> Sequence[Any]:
    """One row's values in order of the columns. What a dict leaves out is null."""
    if isinstance(row, Mapping):
        for name in row:
            if name not in schema.names:
                raise DataError(
                    f"Row {number} (from 0) of {owner} has a column {name!r}, which its schema does not have. Columns "
                    f"are: {listing(schema.names)}.{meant(str(name), schema.names)}"
                )
        return [row.get(name) for name in schema.names]
    if not isinstance(row, (tuple, list)):
        raise DataError(
            f"Row {number} (from 0) of {owner} is {row!r}. A row is a dict, or a tuple of its columns' values."
        )
    if len(row) != len(schema):
        raise DataError(
            f"Row {number} (from 0) of {owner} has {len(row)} values, {row!r}, for {len(schema)} columns: "
            f"{listing(schema.names)}."
        )
    return row


def _array(values: list[Any], field: pa.Field, owner: str) -> pa.Array:
    for number, value in enumerate(values):
        if not _fits(value, field.type, nullable=field.nullable):
            _misfit(owner, number, field.name, value, _expected(field))
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        number = _first_refused(values, field.type)
        _misfit(owner, number, field.name, values[number], _expected(field))


def _first_refused(values: list[Any], type: pa.DataType) -> int:
    for number, value in enumerate(values):
        try:
            pa.array([value], type)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return number
    raise AssertionError("values that can't be a column are together what each of them is")


def _expected(field: pa.Field) -> str:
    return type_ddl(field.type) + ("" if field.nullable else " NOT NULL")


def _misfit(owner: str, number: int, column: str | None, value: Any, expected: str) -> NoReturn:
    raise DataError(
        f"Row {number} (from 0) of {owner} does not fit: column '{column}' is {value!r}, of type "
        f"{type(value).__name__}, and should be {expected}."
    )


_BY_KIND: Final = (
    (pa.types.is_boolean, (bool, np.bool_), ()),
    (pa.types.is_integer, (int, np.integer), (bool,)),
    (pa.types.is_floating, (float, int, np.floating, np.integer), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_binary, (bytes, bytearray, memoryview), ()),
    (pa.types.is_date, (dt.date,), (dt.datetime,)),
    (pa.types.is_timestamp, (dt.datetime, int, np.integer), (bool,)),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
)


def _fits(value: Any, type: pa.DataType, *, nullable: bool) -> bool:
    """Whether the value is of a kind that this type holds. Whether it is too large is for Arrow to say."""
    if value is None:
        return nullable
    for is_kind, kinds, excepted in _BY_KIND:
        if is_kind(type):
            return isinstance(value, kinds) and not isinstance(value, excepted)
    if pa.types.is_struct(type):
        return isinstance(value, Mapping) and _fields_fit(value, type)
    if pa.types.is_map(type):
        pairs = value.items() if isinstance(value, Mapping) else ()
        item = type.item_field
        return isinstance(value, Mapping) and all(
            _fits(k, type.key_type, nullable=False) and _fits(v, item.type, nullable=item.nullable) for k, v in pairs
        )
    element = type.value_field
    return isinstance(value, (list, tuple, np.ndarray)) and all(
        _fits(v, element.type, nullable=element.nullable) for v in value
    )


def _fields_fit(value: Mapping[str, Any], struct: pa.DataType) -> bool:
    fields = {field.name: field for field in struct}
    return all(name in fields for name in value) and all(
        _fits(value.get(name), field.type, nullable=field.nullable) for name, field in fields.items()
    )
