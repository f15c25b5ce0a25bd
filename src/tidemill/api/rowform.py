"""Rows as users write them, dicts or tuples, made Arrow columns; what does not fit is named.

Arrow alone would let some through in silence (1.5 becomes a long 1, "ab" a list of two), so what a value may be is said
here. A column whose values are all of the plain kinds is seen to fit without a look at each.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from tidemill.api.schema import type_ddl
from tidemill.api.wording import listing, meant
from tidemill.errors import DataError

Naming = Callable[[int], str]
"""How an error calls the row at this place: "Row 3 (from 0) of the Rows declared at app.py:7"."""

REFUSALS: Final = (pa.ArrowException, OverflowError, ValueError, TypeError)
"""What Arrow raises at values that it can't hold."""


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema, naming: Naming) -> pa.RecordBatch:
    names = tuple(schema.names)
    known = frozenset(names)
    values = [_values(row, place, names, known, naming) for place, row in enumerate(rows)]
    columns = zip(*values, strict=True) if values else ((),) * len(names)
    arrays = [array_of_values(list(column), field, naming) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array_of_values(values: list[Any], field: pa.Field, naming: Naming) -> pa.Array:
    if not _plainly_fit(values, field):
        for place, value in enumerate(values):
            if not _fits(value, field.type, nullable=field.nullable):
                misfit(naming(place), field.name, value, expected(field))
    try:
        return pa.array(values, field.type)
    except REFUSALS:
        place = refused(values, field.type)[0]
        misfit(naming(place), field.name, values[place], expected(field))


def expected(field: pa.Field) -> str:
    return type_ddl(field.type) + ("" if field.nullable else " NOT NULL")


def misfit(row: str, column: str, value: Any, should_be: str) -> NoReturn:
    raise DataError(
        f"{row} does not fit: column '{column}' is {value!r}, of type {type(value).__name__}, and should be "
        f"{should_be}."
    )


def refused(values: Sequence[Any], type: pa.DataType) -> list[int]:
    """The places of the values that Arrow can't hold: what can't be a column is together what each of them is."""
    found = [place for place, value in enumerate(values) if not _holds(type, value)]
    assert found, f"a column of {type} was refused, and none of its values is"
    return found


def _holds(type: pa.DataType, value: Any) -> bool:
    try:
        pa.array([value], type)
    except REFUSALS:
        return False
    return True


def _values(row: Any, place: int, names: tuple[str, ...], known: frozenset[str], naming: Naming) -> Sequence[Any]:
    """One row's values in order of the columns. What a dict leaves out is null."""
    if isinstance(row, Mapping):
        if not row.keys() <= known:
            name = next(name for name in row if name not in known)
            raise DataError(
                f"{naming(place)} has a column {name!r}, which its schema does not have. Columns are: "
                f"{listing(names)}.{meant(str(name), names)}"
            )
        return [row.get(name) for name in names]
    if not isinstance(row, (tuple, list)):
        raise DataError(f"{naming(place)} is {row!r}. A row is a dict, or a tuple of its columns' values.")
    if len(row) != len(names):
        raise DataError(f"{naming(place)} has {len(row)} values, {row!r}, for {len(names)} columns: {listing(names)}.")
    return row


# ------------------------------------------------------------------------------------------------- what a value may be


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


def _plainly_fit(values: list[Any], field: pa.Field) -> bool:
    """Whether the values' exact types already say that all fit. If not, each has to be looked at."""
    found: set[Any] = set(map(type, values))
    if field.nullable:
        found.discard(type(None))
    return any(is_kind(field.type) and found.issubset(kinds) for is_kind, kinds, _ in _BY_KIND)


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
