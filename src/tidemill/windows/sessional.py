"""Session windows: in the state, stretches of time of a key, which are put together when somebody looks.

A session is over when the mark has passed its last record by the gap. Until then two stretches may lie side by side in
the state that a later record, or only the next look, makes one. A record that comes after the end of the session that
it would begin is late, unless it falls into one that is still open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.ids import BEGINNING
from tidemill.windows.groups import codes_of, is_in
from tidemill.windows.keyed import Choices, KeyedWindows, Keys, Names, late_records, merge_rows, table
from tidemill.windows.panes import FIRST, LAST, RECORDS, SessionCut, sessions
from tidemill.windows.reading import Chains, chosen
from tidemill.windows.spans import Session


class SessionWindows(KeyedWindows):
    def __init__(
        self, chains: Chains | None, span: Session, cut: SessionCut, names: Names, keys: Keys, choices: Choices
    ) -> None:
        super().__init__(chains, cut, names, keys, choices, None)
        self.span = span
        self.state = table(self.key_fields, [FIRST, LAST, RECORDS], cut.combined.partial_fields)
        self.leading = self.width + 4

    def take_panes(self, ctx: Any, panes: pa.RecordBatch) -> None:
        due = panes.column(LAST).to_numpy() + self.span.gap
        columns = [*panes.columns[: self.leading - 1], pa.array(due), *self.cut.partials_of(panes)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.state.schema)
        late = due <= ctx.watermark
        if late.any():
            ctx.state.add(rows.filter(pa.array(~late)))
            self._take_late(ctx, rows.filter(pa.array(late)))
        else:
            ctx.state.add(rows)
        ctx.state.settle(self._merged)

    def _take_late(self, ctx: Any, rows: pa.RecordBatch) -> None:
        """Those that an open session reaches are in it."""
        merged = self._with_open(ctx, rows)
        lost = self._due(merged) <= ctx.watermark
        ctx.count_late(late_records(merged, lost))
        ctx.state.add(merged.filter(pa.array(~lost)))

    def _with_open(self, ctx: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
        """These stretches and all that the state holds of their keys, put together."""
        keys = rows.columns[: self.width]
        others = ctx.state.take(lambda batch: is_in(batch.columns[: self.width], keys))
        return self._merged(pa.concat_batches([others, rows]))

    def _due(self, rows: pa.RecordBatch) -> Any:
        return rows.column(self.leading - 1).to_numpy()

    def _merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = codes_of(rows.columns[: self.width], rows.num_rows)
        first, last = rows.column(FIRST).to_numpy(), rows.column(LAST).to_numpy()
        groups, firsts, lasts = sessions(keys, first, last, self.span.gap)
        if groups.count == rows.num_rows:
            return rows
        columns = merge_rows(rows, groups, self.cut.combined, leading=self.leading)
        records = np.zeros(groups.count, np.int64)
        np.add.at(records, groups.of_row, rows.column(RECORDS).to_numpy())
        placed = (firsts, lasts, records, lasts + self.span.gap)
        columns[self.width : self.leading] = [pa.array(values) for values in placed]
        return pa.RecordBatch.from_arrays(columns, schema=self.state.schema)

    def process_watermark(self, ctx: Any) -> None:
        if ctx.state.first_due > ctx.watermark or ctx.watermark == BEGINNING:
            return
        merged = self._with_open(ctx, ctx.state.take_due(ctx.watermark))
        over = self._due(merged) <= ctx.watermark
        ctx.state.add(merged.filter(pa.array(~over)))
        ended = merged.take(chosen(over))
        bounds = (ended.column(FIRST).to_numpy(), self._due(ended))
        self.leave(ctx, ended.columns[: self.width], bounds, ended.columns[self.leading :])
