"""Count windows: every n records of a key, in the order of their arrival.

In the state, one row for each key: the number of the window that is being filled, how many records it has, the newest
record's time, and the partial results. A row of no records only remembers the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.api.computation import Output
from tidemill.core.ids import END
from tidemill.core.table import NEVER
from tidemill.windows.aggregates import Combined, Rows
from tidemill.windows.groups import Int64s, group_by, is_in, normal, order_by, take
from tidemill.windows.keyed import WINDOW_NUMBER, Keys, merge_rows, table
from tidemill.windows.panes import RECORDS
from tidemill.windows.reading import Chains, Reading, chosen

NEWEST: Final = "newest"


class CountWindows(Reading):
    def __init__(
        self, chains: Chains, size: int, key_fields: Sequence[pa.Field], combined: Combined, stream: str, keys: Keys
    ) -> None:
        self.read(chains, keys)
        self.size = size
        self.keys = [field.name for field in key_fields]
        self.combined = combined
        self.state = table(key_fields, [WINDOW_NUMBER, RECORDS, NEWEST], combined.partial_fields)
        self.leading = len(key_fields) + 4
        number = pa.field(WINDOW_NUMBER, pa.int64())
        self.results = Output(pa.schema([*key_fields, number, *combined.result_fields]), stream)

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        for rows in self.rows(ctx, batch):
            self._take(ctx, rows)
        ctx.state.settle(lambda rows: rows)

    def _take(self, ctx: Any, rows: Rows) -> None:
        keys = [normal(rows.batch.column(name)) for name in self.keys]
        known = ctx.state.take(lambda batch: is_in(batch.columns[: len(keys)], keys))
        numbers = self._numbers(known, keys, len(rows.times))
        filling = known.take(chosen(known.column(RECORDS).to_numpy() > 0))
        merged = self._merged(pa.concat_batches([filling, self._rows(rows, keys, numbers)]))
        full = merged.column(RECORDS).to_numpy() == self.size
        self.leave(ctx, merged.take(chosen(full)))
        ctx.state.add(merged.take(chosen(~full)))
        self._remember(ctx, pa.concat_batches([known, merged]))

    def _numbers(self, known: pa.RecordBatch, keys: list[pa.Array], rows: int) -> Int64s:
        """The window of each record: those of a key go on from where the state stands."""
        width = len(keys)
        together = [pa.concat_arrays(pair) for pair in zip(known.columns[:width], keys, strict=True)]
        groups = group_by(together, known.num_rows + rows)
        before = np.zeros(groups.count, np.int64)
        records, numbers = known.column(RECORDS).to_numpy(), known.column(WINDOW_NUMBER).to_numpy()
        before[groups.of_row[: known.num_rows]] = numbers * self.size + records
        of_row = groups.of_row[known.num_rows :]
        order = order_by(of_row, np.empty(0, np.int64))
        sizes = np.bincount(of_row, minlength=groups.count)
        places = np.empty(rows, np.int64)
        places[order] = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: Int64s = (before[of_row] + places) // self.size
        return found

    def _rows(self, rows: Rows, keys: list[pa.Array], numbers: Int64s) -> pa.RecordBatch:
        groups = group_by([*keys, numbers], len(numbers))
        newest = np.full(groups.count, -(2**63), np.int64)
        np.maximum.at(newest, groups.of_row, rows.times)
        placed = (numbers[groups.firsts], groups.sizes(), newest, newest)
        columns = [*take(keys, groups.firsts), *map(pa.array, placed), *self.combined.partials(rows, groups)]
        return pa.RecordBatch.from_arrays(columns, schema=self.state.schema)

    def _merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        width = len(self.keys)
        groups = group_by([*rows.columns[:width], rows.column(WINDOW_NUMBER)], rows.num_rows)
        columns = merge_rows(rows, groups, self.combined, leading=self.leading)
        records, newest = np.zeros(groups.count, np.int64), np.full(groups.count, -(2**63), np.int64)
        np.add.at(records, groups.of_row, rows.column(RECORDS).to_numpy())
        np.maximum.at(newest, groups.of_row, rows.column(NEWEST).to_numpy())
        columns[width + 1 : self.leading] = [pa.array(records), pa.array(newest), pa.array(newest)]
        return pa.RecordBatch.from_arrays(columns, schema=self.state.schema)

    def _remember(self, ctx: Any, rows: pa.RecordBatch) -> None:
        """Of keys that have no unfilled window, the number of the next one."""
        width = len(self.keys)
        groups = group_by(rows.columns[:width], rows.num_rows)
        records, numbers = rows.column(RECORDS).to_numpy(), rows.column(WINDOW_NUMBER).to_numpy()
        following = np.zeros(groups.count, np.int64)
        np.maximum.at(following, groups.of_row, numbers + (records == self.size))
        filling = np.zeros(groups.count, bool)
        open_rows = (records > 0) & (records < self.size) & (numbers == following[groups.of_row])
        filling[groups.of_row[open_rows]] = True
        kept = np.flatnonzero(~filling)
        if len(kept):
            columns = take(rows.columns, groups.firsts[kept])
            none, never = np.zeros(len(kept), np.int64), np.full(len(kept), NEVER)
            columns[width : self.leading] = map(pa.array, (following[kept], none, never, never))
            ctx.state.add(pa.RecordBatch.from_arrays(columns, schema=self.state.schema))

    def leave(self, ctx: Any, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            width = len(self.keys)
            columns = [*rows.columns[: width + 1], *self.combined.results(rows.columns[self.leading :])]
            made = pa.RecordBatch.from_arrays(columns, schema=self.results.schema)
            ctx.produce_batch(self.results, made, rows.column(NEWEST).to_numpy())


class PartialCountWindows(CountWindows):
    """Unfilled windows leave when the input has ended; for their sake the mark is held at the oldest."""

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        super().process_bundle(ctx, batch)
        self._hold(ctx)

    def process_watermark(self, ctx: Any) -> None:
        if ctx.watermark == END:
            self.leave(ctx, ctx.state.take_due(NEVER - 1))
        self._hold(ctx)

    def _hold(self, ctx: Any) -> None:
        first = ctx.state.first_due
        ctx.hold_watermark(None if first == NEVER else first)
