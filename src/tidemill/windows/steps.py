"""Stateless steps over batches: filter, select, map. Steps that follow one another are one chain, done at one place.

An Arrow expression is evaluated by Arrow itself and checked against the schema when it is declared. A function of the
user's is called with whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from tidemill.api.columnform import Told, batch_of_columns
from tidemill.errors import DataError
from tidemill.windows.aggregates import Rows


class Step(Protocol):
    def apply(self, rows: Rows) -> Rows: ...

    def origin(self, column: str) -> str | None:
        """The column before the step that this one is a copy of; None if it is no copy."""


def evaluate(expressions: Mapping[str, pc.Expression], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raises what Arrow raises: for an unknown column, for types that do not go together."""
    table = pa.Table.from_batches([batch])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    options = acero.ProjectNodeOptions(list(expressions.values()), list(expressions))
    plan = acero.Declaration.from_sequence([source, acero.Declaration("project", options)])
    made = plan.to_table(use_threads=False)
    arrays = [column.combine_chunks() for column in made.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=made.schema)


@dataclass(frozen=True)
class Filter:
    """Keeps the records of which the condition is true: not those of which it is null."""

    condition: Any  # an expression, or a function of the batch
    told: str

    def apply(self, rows: Rows) -> Rows:
        mask = self._mask(rows.batch)
        if mask.all():
            return rows
        return Rows(rows.batch.filter(pa.array(mask)), rows.times[mask])

    def _mask(self, batch: pa.RecordBatch) -> Any:
        if isinstance(self.condition, pc.Expression):
            found = evaluate({"kept": self.condition}, batch).column(0)
        else:
            found = self.condition(batch)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if isinstance(found, pa.Array) and pa.types.is_boolean(found.type):
            found = found.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        if not isinstance(found, np.ndarray) or found.dtype != bool or found.shape != (batch.num_rows,):
            raise DataError(
                f"The function of {self.told} returned {_described(found)} for a batch of {batch.num_rows} records. It "
                "must return a mask: a boolean array of Arrow or numpy, with a value for each record."
            )
        return found

    def origin(self, column: str) -> str | None:
        return column


def _described(value: Any) -> str:
    if isinstance(value, pa.Array):
        return f"{len(value)} values of {value.type}"
    if isinstance(value, np.ndarray):
        return f"a numpy array of {value.dtype} with the shape {value.shape}"
    return f"a {type(value).__name__}"


@dataclass(frozen=True)
class Select:
    """Columns by name, and others that are computed. What is only a column is not touched."""

    expressions: dict[str, pc.Expression | str]
    schema: pa.Schema

    def apply(self, rows: Rows) -> Rows:
        computed = {name: made for name, made in self.expressions.items() if not isinstance(made, str)}
        made = evaluate(computed, rows.batch) if computed else None
        arrays = []
        for name, chosen in self.expressions.items():
            if isinstance(chosen, str):
                arrays.append(rows.batch.column(chosen))
            else:
                assert made is not None
                arrays.append(made.column(name))
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schema), rows.times)

    def origin(self, column: str) -> str | None:
        made = self.expressions[column]
        return made if isinstance(made, str) else None


@dataclass(frozen=True)
class MapBatches:
    """Whatever a function makes of a batch."""

    fn: Callable[[pa.RecordBatch], Any]
    schema: pa.Schema
    told: str

    def apply(self, rows: Rows) -> Rows:
        made = self.fn(rows.batch)
        times = rows.times
        if isinstance(made, tuple):
            if len(made) != 2:
                raise DataError(f"The function of {self.told} returned a tuple of {len(made)}: {_FORMS}.")
            made, times = made[0], _times(made[1], self.told)
        count = _length(made, self.told)
        if count != len(times):
            raise DataError(
                f"The function of {self.told} returned {count} records with {len(times)} timestamps"
                + (". " if times is not rows.times else ", those of the batch that it was given. ")
                + "Let it return (columns, timestamps), with one timestamp for each record."
            )
        told = Told(lambda place: f"Record {place} (from 0) that {self.told} made", f"Records that {self.told} made")
        return Rows(batch_of_columns(made, count, self.schema, told), times)

    def origin(self, column: str) -> str | None:  # noqa: ARG002 - whatever it is called
        return None


_FORMS = "it must return a pyarrow.RecordBatch or a dict of columns, alone or with timestamps: (columns, timestamps)"


def _length(made: Any, told: str) -> int:
    if isinstance(made, pa.RecordBatch):
        return int(made.num_rows)
    if not isinstance(made, Mapping):
        raise DataError(f"The function of {told} returned a {type(made).__name__}: {_FORMS}.")
    for column in made.values():
        if hasattr(column, "__len__"):
            return len(column)
    return 0


def _times(given: Any, told: str) -> Any:
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.cast(pa.timestamp("us")) if pa.types.is_timestamp(given.type) else given
        if given.null_count:
            raise DataError(f"The function of {told} returned timestamps of which {given.null_count} are null.")
        given = given.cast(pa.int64()).to_numpy()
    times = np.asarray(given)
    if times.dtype.kind == "M":
        times = times.astype("datetime64[us]")
    return times.astype(np.int64)


@dataclass(frozen=True)
class Chain:
    steps: tuple[Step, ...] = ()

    def apply(self, rows: Rows) -> Rows:
        for step in self.steps:
            if not len(rows.times):
                break
            rows = step.apply(rows)
        return rows

    def then(self, step: Step) -> Chain:
        return Chain((*self.steps, step))

    def origin(self, column: str) -> str | None:
        """The column of the stream that begins the chain that this one of its end is a copy of."""
        found: str | None = column
        for step in reversed(self.steps):
            found = None if found is None else step.origin(found)
        return found
