"""Any aggregate that a Python function computes, record by record.

Without a way to merge, a fold has to see a window's records one after another: they are kept until the result is asked
for and folded in the order of event time, so the result does not depend on how they arrived. With `merge`, only what
was folded is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tidemill.api.rowform import array_of_values
from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at
from tidemill.core.graph import Stream
from tidemill.core.ids import StreamName
from tidemill.core.records import record_maker
from tidemill.errors import PipelineError
from tidemill.windows.aggregates import Arrays, Rows
from tidemill.windows.groups import Groups, Int64s

Merge = Callable[[Any, Any], Any]


class fold:  # noqa: N801 - it is called, as `tm.fold(...)`
    """`fn(value, record)` gives the next value, from `init` on; `type` is the result's, as in a schema: "long".

    `merge(value, value)` puts two values together, each of which saw some records; what is kept between is encoded by
    msgpack and must be of types that it gives back alike. `finish(value)` makes the result of the last one. An `init`
    that can be called is called for each window; any other is copied.
    """

    def __init__(
        self,
        init: Any,
        fn: Callable[[Any, Any], Any],
        type: Any,
        *,
        merge: Merge | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        self.declared_at: Final = declared_at()
        self.init, self.fn, self.merge, self.finish = init, fn, merge, finish
        if not callable(fn):
            raise PipelineError(
                f"The fold declared at {self.declared_at} was given {fn!r}, which is no function. Give it "
                "fn(value, record), which returns the next value."
            )
        owner = f"the fold declared at {self.declared_at}"
        self.type: Final[pa.DataType] = read_schema(f"value {type}", owner).field(0).type


class Fold:
    """A fold, bound to the stream whose records it sees."""

    def __init__(self, given: fold, name: str, schema: pa.Schema) -> None:
        self._given = given
        self._name = name
        self.result: Final = given.type
        self._schema = schema
        self._make: Any = None
        if given.merge is not None:
            field = pa.field("value", pa.binary())
        else:
            record = pa.struct([pa.field("at", pa.int64()), pa.field("record", pa.struct(list(schema)))])
            field = pa.field("records", pa.list_(pa.field("element", record)))
        self.fields: Final[tuple[pa.Field, ...]] = (field,)

    @property
    def keeps_records(self) -> bool:
        return self._given.merge is None

    def partials(self, rows: Rows, groups: Groups) -> Arrays:
        if self._given.merge is None:
            record = pa.StructArray.from_arrays(rows.batch.columns, fields=list(self._schema))
            element = self.fields[0].type.value_type
            records = pa.StructArray.from_arrays([pa.array(rows.times), record], fields=list(element))
            return [self._lists(records, groups.of_row, groups.count)]
        made = self._records(rows.batch, rows.times)
        values = [self._first() for _ in range(groups.count)]
        for place, record in zip(groups.of_row.tolist(), made, strict=True):
            values[place] = self._given.fn(values[place], record)
        return [self._encoded(values)]

    def merged(self, partials: Arrays, groups: Groups) -> Arrays:
        merge = self._given.merge
        if merge is None:
            lengths = partials[0].value_lengths().to_numpy()
            return [self._lists(partials[0].flatten(), np.repeat(groups.of_row, lengths), groups.count)]
        values: list[Any] = [None] * groups.count
        seen = [False] * groups.count
        for place, data in zip(groups.of_row.tolist(), partials[0].to_pylist(), strict=True):
            value = msgspec.msgpack.decode(data)
            values[place] = merge(values[place], value) if seen[place] else value
            seen[place] = True
        return [self._encoded(values)]

    def results(self, partials: Arrays) -> pa.Array:
        if self._given.merge is None:
            values = [self._folded(window) for window in partials[0]]
        else:
            values = [msgspec.msgpack.decode(data) for data in partials[0].to_pylist()]
        finish = self._given.finish
        if finish is not None:
            values = list(map(finish, values))
        field = pa.field(self._name, self.result)
        return array_of_values(values, field, lambda _: f"A result of the fold declared at {self._given.declared_at}")

    def _folded(self, window: Any) -> Any:
        times, records = window.values.field("at").to_numpy(), window.values.field("record")
        order = np.argsort(times, kind="stable")
        batch = pa.RecordBatch.from_struct_array(records.take(pa.array(order)))
        value = self._first()
        for record in self._records(batch, times[order]):
            value = self._given.fn(value, record)
        return value

    def _first(self) -> Any:
        init = self._given.init
        return init() if callable(init) else copy.deepcopy(init)

    def _records(self, batch: pa.RecordBatch, times: Int64s) -> list[Any]:
        if self._make is None:
            self._make = record_maker(Stream(StreamName(self._name), self._schema))
        columns = [*(column.to_pylist() for column in batch.columns), times.tolist()]
        return list(map(self._make, zip(*columns, strict=True)))

    def _lists(self, records: pa.Array, of_row: Int64s, many: int) -> pa.Array:
        order = np.argsort(of_row, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of_row, minlength=many))])
        taken = records.take(pa.array(order))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), taken, type=self.fields[0].type)

    def _encoded(self, values: list[Any]) -> pa.Array:
        return pa.array([msgspec.msgpack.encode(value) for value in values], pa.binary())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_make": None}  # a class made at run time; whoever needs one makes it anew
