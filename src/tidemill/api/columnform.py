"""Whole columns as users make them, arrays of numpy or Arrow, made a batch of a schema; what does not fit is named.

They are held to the same rules as rows, but no value is looked at one by one: a numpy array is taken as the Arrow array
that it is, and an Arrow array is cast where the kind of its type allows it, which finds what is too large or would lose
digits. Lists and numpy arrays of objects are rows' values and go their way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from tidemill.api.rowform import REFUSALS, Naming, array_of_values, expected, misfit
from tidemill.api.wording import listing, meant
from tidemill.errors import DataError


class Told(NamedTuple):
    """What errors say: how each record is called, and all of them together."""

    name_of: Naming
    together: str


def batch_of_columns(given: Any, count: int, schema: pa.Schema, told: Told) -> pa.RecordBatch:
    """`given` is a RecordBatch or a mapping of arrays, each with `count` values. What is left out is null."""
    if isinstance(given, pa.RecordBatch):
        given = dict(zip(given.schema.names, given.columns, strict=True))
    if not isinstance(given, Mapping):
        raise DataError(
            f"{told.together} are {given!r}, of type {type(given).__name__}, and should be a dict of arrays or a "
            "pyarrow.RecordBatch."
        )
    for name in given:
        if name not in schema.names:
            raise DataError(
                f"{told.together} have a column {name!r}, which their schema does not have. Columns are: "
                f"{listing(schema.names)}.{meant(str(name), schema.names)}"
            )
    arrays = [_array(given.get(field.name), field, count, told) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(given: Any, field: pa.Field, count: int, told: Told) -> pa.Array:
    if given is None:
        given = pa.nulls(count, field.type)
    if not isinstance(given, (pa.Array, pa.ChunkedArray, np.ndarray, list)) or getattr(given, "ndim", 1) != 1:
        _misfit_together(field, f"is {given!r}, of type {type(given).__name__}", told)
    if len(given) != count:
        _misfit_together(field, f"has {len(given)} values for {count} records", told)
    if isinstance(given, list) or (isinstance(given, np.ndarray) and given.dtype.hasobject):
        return array_of_values(list(given), field, told.name_of)
    array = _cast(_plain(given, field, told), field, told)
    if _has_forbidden_nulls(array, field):
        places = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        if not len(places):  # further in
            _misfit_together(field, "holds a null where none may be", told)
        misfit(told.name_of(int(places[0])), field.name, None, expected(field))
    return array


def _misfit_together(field: pa.Field, what: str, told: Told) -> NoReturn:
    raise DataError(
        f"{told.together} do not fit: column '{field.name}' {what}, and should be an array of {expected(field)}."
    )


def _plain(given: pa.Array | pa.ChunkedArray | np.ndarray[Any, Any], field: pa.Field, told: Told) -> pa.Array:
    if isinstance(given, np.ndarray):
        try:
            given = pa.array(given)
        except REFUSALS:
            _misfit_together(field, f"is a numpy array of {given.dtype}", told)
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    return given.dictionary_decode() if pa.types.is_dictionary(given.type) else given


def _cast(array: pa.Array, field: pa.Field, told: Told) -> pa.Array:
    if array.type == field.type:
        return array
    if not _may_become(array.type, field.type):
        _misfit_together(field, f"is an array of {array.type}", told)
    try:
        return array.cast(field.type)
    except REFUSALS:
        place = _first_refused(array, field.type)
        misfit(told.name_of(place), field.name, _value_at(array, place), expected(field))


def _first_refused(array: pa.Array, type: pa.DataType) -> int:
    for place in range(len(array)):
        try:
            array.slice(place, 1).cast(type)
        except REFUSALS:
            return place
    raise AssertionError("an array that can't be cast is together what each of its values is")


def _value_at(array: pa.Array, place: int) -> Any:
    if pa.types.is_timestamp(array.type):  # nanoseconds have no form in Python
        return array.cast(pa.string())[place].as_py()
    return array[place].as_py()


# ------------------------------------------------------------------------------------------------- kinds of Arrow types


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


def _is_bytes(type: pa.DataType) -> bool:
    return any(is_kind(type) for is_kind in _BYTES)


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def _is_map(type: pa.DataType) -> bool:
    return bool(pa.types.is_map(type))


def _is_struct_of(type: pa.DataType, names: list[str]) -> bool:
    return bool(pa.types.is_struct(type)) and [field.name for field in type] == names


_SOURCES: Final = (
    (pa.types.is_integer, (pa.types.is_integer,)),
    (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
    (_is_text, (_is_text,)),
    (_is_bytes, (_is_bytes,)),
    (pa.types.is_timestamp, (pa.types.is_timestamp, pa.types.is_int64)),
    (pa.types.is_decimal, (pa.types.is_decimal,)),
)


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the cast keeps what the values mean. Arrow itself would also read numbers out of text."""
    if found == wanted or pa.types.is_null(found):
        return True
    for is_wanted, are_sources in _SOURCES:
        if is_wanted(wanted):
            return any(is_source(found) for is_source in are_sources)
    if pa.types.is_struct(wanted):
        return _is_struct_of(found, [field.name for field in wanted]) and all(
            _may_become(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    if pa.types.is_map(wanted):
        return _is_map(found) and (
            _may_become(found.key_type, wanted.key_type) and _may_become(found.item_type, wanted.item_type)
        )
    return _is_list(wanted) and _is_list(found) and _may_become(found.value_type, wanted.value_type)


def _has_forbidden_nulls(array: pa.Array, field: pa.Field) -> bool:
    if array.null_count and not field.nullable:
        return True
    if not pa.types.is_nested(field.type):
        return False
    there = array.drop_null()
    if pa.types.is_struct(field.type):
        return any(map(_has_forbidden_nulls, there.flatten(), field.type))
    if pa.types.is_map(field.type):
        return _has_forbidden_nulls(there.items, field.type.item_field)
    return _has_forbidden_nulls(there.flatten(), field.type.value_field)
