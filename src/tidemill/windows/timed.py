"""Tumbling and sliding windows: in the state, one row or a few for each key and window.

A pane goes into every window that holds it as soon as it arrives; a window leaves when the mark reaches its end. With
`allowed_lateness` a window's row stays on, marked as shown, and what comes late for it makes a corrected result at
once; with `early` a window that has changed is shown whenever event time has gone on so far. What a result was before
is computed from the rows that are marked, so it need not be kept.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.core.ids import BEGINNING, END
from tidemill.windows.groups import Groups, Int64s, group_by, is_in, take
from tidemill.windows.keyed import (
    DUE,
    WINDOW_START,
    Choices,
    KeyedWindows,
    Keys,
    Names,
    late_records,
    merge_rows,
    table,
)
from tidemill.windows.panes import START, PaneCut
from tidemill.windows.reading import Chains, chosen, times_array
from tidemill.windows.spans import Sliding

SHOWN: Final = "shown"
"""Of a row of state: whether what left last is made of it."""


class TimedWindows(KeyedWindows):
    def __init__(
        self,
        chains: Chains | None,
        span: Sliding,
        cut: PaneCut,
        names: Names,
        keys: Keys,
        choices: Choices,
        late: pa.Schema | None = None,
    ) -> None:
        super().__init__(chains, cut, names, keys, choices, late)
        self.span = span
        self.lasting = choices.lasting
        flags = [SHOWN] if self.lasting else []
        self.state = table(self.key_fields, [WINDOW_START], cut.combined.partial_fields, *flags)
        self.leading = self.width + 2 + len(flags)

    # What comes in

    def _last_starts(self, times: Int64s) -> Int64s:
        """When the last window begins that holds a time."""
        every, offset = self.span.every, self.span.offset
        starts: Int64s = (times - offset) // every * every + offset
        return starts

    def deadlines(self, times: Int64s) -> Int64s:
        return self._last_starts(times) + (self.span.size + self.choices.lateness)

    def take_panes(self, ctx: Any, panes: pa.RecordBatch) -> None:
        times = panes.column(START).to_numpy()
        if ctx.watermark > BEGINNING:
            late = self.deadlines(times) <= ctx.watermark
            if late.any():
                ctx.count_late(late_records(panes, late))
                panes, times = panes.filter(pa.array(~late)), times[~late]
        last = self._last_starts(times)
        closed = max(ctx.watermark - self.choices.lateness, BEGINNING)
        for step in range(-(-self.span.size // self.span.every)):
            starts = last - step * self.span.every
            inside = starts + self.span.size > np.maximum(times, closed)
            if inside.all():
                self._add(ctx, panes, starts)
            elif inside.any():
                self._add(ctx, panes.take(chosen(inside)), starts[inside])
        if self.lasting:
            self._fire(ctx)
        ctx.state.settle(self._merged)

    def _add(self, ctx: Any, panes: pa.RecordBatch, starts: Int64s) -> None:
        if not len(starts):
            return
        mark, early = ctx.watermark, self.choices.early
        due = np.maximum(starts + self.span.size, mark)
        if early is not None:
            following = min((mark // early + 1) * early, END)  # beyond the end there is nothing to look at
            due = np.minimum(due, np.where(starts + self.span.size > mark, following, mark))
        flags = [pa.array(np.zeros(len(starts), bool))] if self.lasting else []
        columns = [*panes.columns[: self.width], pa.array(starts), pa.array(due), *flags, *self.cut.partials_of(panes)]
        ctx.state.add(pa.RecordBatch.from_arrays(columns, schema=self.state.schema))

    def _merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one window as one; those that were shown apart from the others."""
        by = [*rows.columns[: self.width], rows.column(WINDOW_START)]
        groups = group_by([*by, rows.column(SHOWN)] if self.lasting else by, rows.num_rows)
        if groups.count == rows.num_rows:
            return rows
        columns = merge_rows(rows, groups, self.cut.combined, leading=self.leading)
        due = np.full(groups.count, 2**63 - 1, np.int64)
        np.minimum.at(due, groups.of_row, rows.column(DUE).to_numpy())
        columns[self.width + 1] = pa.array(due)
        return pa.RecordBatch.from_arrays(columns, schema=self.state.schema)

    # What goes out

    def process_watermark(self, ctx: Any) -> None:
        self._fire(ctx)

    def _fire(self, ctx: Any) -> None:
        if ctx.state.first_due > ctx.watermark:
            return
        rows = ctx.state.take_due(ctx.watermark)
        if self.lasting:
            self._show(ctx, rows)
            return
        groups = self._windows(rows)
        columns = merge_rows(rows, groups, self.cut.combined, leading=self.leading)
        starts = columns[self.width].to_numpy()
        self.leave(ctx, columns[: self.width], (starts, starts + self.span.size), columns[self.leading :])

    def _windows(self, rows: pa.RecordBatch) -> Groups:
        return group_by([*rows.columns[: self.width], rows.column(WINDOW_START)], rows.num_rows)

    def _show(self, ctx: Any, due: pa.RecordBatch) -> None:
        """Shows the windows of rows that are due, and keeps what may still be corrected."""
        by = (*range(self.width), self.width)
        same = [due.column(place) for place in by]
        others = ctx.state.take(lambda batch: is_in([batch.column(place) for place in by], same))
        rows = pa.concat_batches([others, due])
        groups = self._windows(rows)
        touched = np.zeros(groups.count, bool)
        touched[groups.of_row[others.num_rows :]] = True
        if not touched.all():
            untouched = ~touched[groups.of_row]
            ctx.state.add(rows.take(chosen(untouched)))
            rows = rows.take(chosen(~untouched))
            groups = self._windows(rows)
        shown = rows.column(SHOWN).to_numpy(zero_copy_only=False)
        fresh = np.zeros(groups.count, bool)
        fresh[groups.of_row[~shown]] = True
        columns = merge_rows(rows, groups, self.cut.combined, leading=self.leading)
        self._leave_changed(ctx, columns, fresh, self._former(rows, groups, shown))
        self._keep(ctx, columns)

    def _former(self, rows: pa.RecordBatch, groups: Groups, shown: Any) -> tuple[Int64s, list[pa.Array]]:
        """The windows that were shown before, and the partial results that they were shown with."""
        before = rows.take(chosen(shown))
        of_row = groups.of_row[shown]
        alone = group_by([of_row], len(of_row))
        columns = merge_rows(before, alone, self.cut.combined, leading=self.leading)
        return of_row[alone.firsts], columns[self.leading :]

    def _leave_changed(
        self, ctx: Any, columns: list[pa.Array], fresh: Any, former: tuple[Int64s, list[pa.Array]]
    ) -> None:
        places = np.flatnonzero(fresh)
        if not len(places):
            return
        added = take(self.cut.combined.results(columns[self.leading :]), places)
        signs = np.ones(len(places), bool)
        if self.choices.retract:
            again = fresh[former[0]]
            before = take(self.cut.combined.results(former[1]), np.flatnonzero(again))
            added = [pa.concat_arrays(pair) for pair in zip(before, added, strict=True)]
            signs = np.concatenate([np.zeros(int(again.sum()), bool), signs])
            places = np.concatenate([former[0][again], places])
        starts = columns[self.width].to_numpy()[places]
        ends = starts + self.span.size
        sent = [*take(columns[: self.width], places), times_array(starts), times_array(ends), *added]
        if not self.choices.retract:
            self._send(ctx, sent, (starts, ends))
            return
        sent.append(pa.array(np.where(signs, "+", "-")))
        order = np.lexsort((signs, places))  # a retraction stands before what takes its place
        self._send(ctx, take(sent, order), (starts[order], ends[order]))

    def _keep(self, ctx: Any, columns: list[pa.Array]) -> None:
        starts = columns[self.width].to_numpy()
        ends = starts + (self.span.size + self.choices.lateness)
        kept = np.flatnonzero(ends > ctx.watermark)
        if len(kept):
            rows = take(columns, kept)
            rows[self.width + 1] = pa.array(ends[kept])
            rows[self.width + 2] = pa.array(np.ones(len(kept), bool))
            ctx.state.add(pa.RecordBatch.from_arrays(rows, schema=self.state.schema))
