"""Lines of JSON made a batch of a schema: one line, one object. What does not fit is told line by line.

Each schema becomes a type of msgspec, so that text is checked against it while it is read, in C. A column that a line
leaves out is null; a field that is no column is passed over. Types are taken strictly: "5" is no number and 5.0 no
whole one, but 5 is a double. Times are text as RFC 3339 has it (UTC where it names no zone) or whole microseconds,
dates are text, decimals numbers or text, binary is base64.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple, Optional

import msgspec
import numpy as np
import pyarrow as pa

from tidemill.api.eventtime import A_TIME, Times, time_column, times_of, without_time
from tidemill.api.rowform import REFUSALS, expected, refused
from tidemill.errors import SchemaError


class Problem(NamedTuple):
    """A line that is no record."""

    place: int
    why: str


class Read(NamedTuple):
    batch: pa.RecordBatch
    times: Times
    problems: list[Problem]
    """In order of the lines."""


class JsonLines:
    """Reads lines as records of a schema. `timestamp` is that of the source; a record without its time is a problem."""

    def __init__(self, schema: pa.Schema, timestamp: str | None, owner: str) -> None:
        _check_names(schema, owner)
        self._schema = schema
        self._time_column = time_column(schema, timestamp)
        self._decode = msgspec.json.Decoder(_object("Line", schema)).decode
        self._columns = [(field, attrgetter(f"c{n}"), _holds_structs(field.type)) for n, field in enumerate(schema)]

    def read(self, lines: Sequence[bytes]) -> Read:
        """Blank lines are neither records nor problems."""
        rows, places, problems = self._rows(lines)
        batch = self._batch(rows, places, problems)
        if self._time_column is None:
            times = without_time(batch.num_rows)
        else:
            batch, times = self._timed(batch, places, problems)
        return Read(batch, times, sorted(problems))

    def _rows(self, lines: Sequence[bytes]) -> tuple[list[Any], list[int], list[Problem]]:
        rows, places, problems = [], [], []
        decode = self._decode
        is_text = _is_text(b"\n".join(lines))  # msgspec does not look at the text of what it passes over
        for place, line in enumerate(lines):
            try:
                row = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if line and not line.isspace():
                    problems.append(Problem(place, str(error) if _is_text(line) else _NO_TEXT))
                continue
            if is_text or _is_text(line):
                rows.append(row)
                places.append(place)
            else:
                problems.append(Problem(place, _NO_TEXT))
        return rows, places, problems

    def _batch(self, rows: list[Any], places: list[int], problems: list[Problem]) -> pa.RecordBatch:
        """The rows as columns. Those that have no place in a column are taken out, and `places` with them."""
        arrays, misfits = [], {}
        for field, of_row, holds_structs in self._columns:
            values = list(map(of_row, rows))
            if holds_structs:
                values = msgspec.to_builtins(values, builtin_types=_AS_THEY_ARE)
            try:
                arrays.append(pa.array(values, field.type))
            except REFUSALS:
                for row in refused(values, field.type):
                    misfits[row] = f"column '{field.name}' is {values[row]!r}, and should be {expected(field)}"
        if not misfits:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        problems += (Problem(places[row], why) for row, why in misfits.items())
        kept = [row for row in range(len(rows)) if row not in misfits]
        places[:] = [places[row] for row in kept]
        return self._batch([rows[row] for row in kept], places, problems)

    def _timed(self, batch: pa.RecordBatch, places: list[int], problems: list[Problem]) -> tuple[pa.RecordBatch, Times]:
        column = batch.column(self._time_column)
        times, bad = times_of(column)
        if not bad:
            return batch, times
        for row, value in zip(bad, column.cast(pa.int64()).take(bad).to_pylist(), strict=True):
            found = "null" if value is None else value
            problems.append(Problem(places[row], f"column '{self._time_column}' is {found}, and should be {A_TIME}"))
        there = np.ones(len(times), np.bool_)
        there[bad] = False
        return batch.filter(pa.array(there)), times[there]


_NO_TEXT: Final = "it is not text in UTF-8"


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ schemas as msgspec's


_AS_THEY_ARE: Final = (bytes, dt.datetime, dt.date, Decimal)
_FLOAT: Final = float(np.finfo(np.float32).max)


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_PLAIN: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): bool,
    pa.int8(): _whole(8),
    pa.int16(): _whole(16),
    pa.int32(): _whole(32),
    pa.int64(): _whole(64),
    pa.float32(): Annotated[float, msgspec.Meta(ge=-_FLOAT, le=_FLOAT)],
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): dt.date,
    pa.timestamp("us", tz="UTC"): dt.datetime | _whole(64),
    pa.timestamp("us"): dt.datetime | _whole(64),
}


def _object(name: str, fields: Any) -> type[msgspec.Struct]:
    """A type for objects with these fields. Its attributes are c0, c1, ...: columns may be called anything."""
    attributes: list[Any] = []
    names = {}
    for number, field in enumerate(fields):
        attribute = f"c{number}"
        names[attribute] = field.name
        kind = _value(field.type, nullable=field.nullable)
        attributes.append((attribute, kind, None) if field.nullable else (attribute, kind))
    return msgspec.defstruct(name, attributes, rename=names, kw_only=True, gc=False)


def _value(type: pa.DataType, *, nullable: bool) -> Any:
    kind = _present(type)
    return Optional[kind] if nullable else kind  # noqa: UP045 - made at run time, of anything


def _present(type: pa.DataType) -> Any:
    if type in _PLAIN:
        return _PLAIN[type]
    if pa.types.is_decimal(type):
        return Decimal
    if pa.types.is_struct(type):
        return _object("Struct", type)
    if pa.types.is_map(type):
        item = type.item_field
        return dict[_present(type.key_type), _value(item.type, nullable=item.nullable)]  # type: ignore[misc]
    element = type.value_field
    return list[_value(element.type, nullable=element.nullable)]  # type: ignore[misc]


def _holds_structs(type: pa.DataType) -> bool:
    if pa.types.is_struct(type):
        return True
    return pa.types.is_nested(type) and any(_holds_structs(type.field(n).type) for n in range(type.num_fields))


def _check_names(fields: Any, owner: str) -> None:
    for field in fields:
        if any(sign in '"\\' or sign < " " for sign in field.name):
            raise SchemaError(
                f"The schema of {owner} can't be used: the name {field.name!r} has a quote, a backslash or a control "
                "character, which a name in JSON lines may not have here. Call it something else."
            )
        if pa.types.is_nested(field.type):
            _check_names([field.type.field(number) for number in range(field.type.num_fields)], owner)
