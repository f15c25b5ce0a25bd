"""Session windows whose results leave more than once: early, and again when late records come.

A session that has been shown stays in the state, marked so, until no late record may reach it any more. When something
comes that belongs to it, it is another window than before, and so may be two that have become one: what was shown is
always taken back before the new session is shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.ids import BEGINNING, END
from tidemill.windows.groups import Groups, Int64s, codes_of, is_in, take
from tidemill.windows.keyed import DUE, Choices, Keys, Names, merge_rows, table
from tidemill.windows.panes import FIRST, LAST, RECORDS, SessionCut, sessions
from tidemill.windows.reading import Chains, chosen, times_array
from tidemill.windows.sessional import SessionWindows
from tidemill.windows.spans import Session
from tidemill.windows.timed import SHOWN


class GrowingSessions(SessionWindows):
    def __init__(
        self, chains: Chains | None, span: Session, cut: SessionCut, names: Names, keys: Keys, choices: Choices
    ) -> None:
        super().__init__(chains, span, cut, names, keys, choices)
        self.state = table(self.key_fields, [FIRST, LAST, RECORDS], cut.combined.partial_fields, SHOWN)
        self.leading = self.width + 5

    def take_panes(self, ctx: Any, panes: pa.RecordBatch) -> None:
        ends = panes.column(LAST).to_numpy() + self.span.gap
        shown = pa.array(np.zeros(len(ends), bool))
        due = pa.array(self._due_at(ctx, ends))
        columns = [*panes.columns[: self.width + 3], due, shown, *self.cut.partials_of(panes)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.state.schema)
        late = ends <= max(ctx.watermark - self.choices.lateness, BEGINNING)
        ctx.state.add(rows.filter(pa.array(~late)))
        if late.any():
            self._take_late(ctx, rows.filter(pa.array(late)))
        self.process_watermark(ctx)
        ctx.state.settle(self._merged)

    def _due_at(self, ctx: Any, ends: Int64s) -> Int64s:
        """When what was not shown yet is to be looked at."""
        mark, early = ctx.watermark, self.choices.early
        due: Int64s = np.maximum(ends, mark)
        if early is not None:
            following = min((mark // early + 1) * early, END)  # beyond the end there is nothing to look at
            due = np.minimum(due, np.where(ends > mark, following, mark))
        return due

    def _take_late(self, ctx: Any, rows: pa.RecordBatch) -> None:
        together = self._of_same_keys(ctx, rows)
        groups, _, lasts = self._sessions(together)
        lost = (lasts + (self.span.gap + self.choices.lateness) <= ctx.watermark)[groups.of_row]
        ctx.count_late(int(together.column(RECORDS).to_numpy()[lost].sum()))
        ctx.state.add(together.filter(pa.array(~lost)))

    def _of_same_keys(self, ctx: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = rows.columns[: self.width]
        others = ctx.state.take(lambda batch: is_in(batch.columns[: self.width], keys))
        return pa.concat_batches([others, rows])

    def _sessions(self, rows: pa.RecordBatch, *apart: pa.Array) -> tuple[Groups, Int64s, Int64s]:
        keys = codes_of([*rows.columns[: self.width], *apart], rows.num_rows)
        return sessions(keys, rows.column(FIRST).to_numpy(), rows.column(LAST).to_numpy(), self.span.gap)

    def _merged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What was shown stays apart: it has to be taken back as it was."""
        groups, firsts, lasts = self._sessions(rows, rows.column(SHOWN))
        if groups.count == rows.num_rows:
            return rows
        due = np.full(groups.count, 2**63 - 1, np.int64)
        np.minimum.at(due, groups.of_row, rows.column(DUE).to_numpy())
        return self._put_together(rows, groups, (firsts, lasts, due), rows.column(SHOWN).take(pa.array(groups.firsts)))

    def _put_together(
        self, rows: pa.RecordBatch, groups: Groups, placed: tuple[Int64s, Int64s, Int64s], shown: pa.Array
    ) -> pa.RecordBatch:
        records = np.zeros(groups.count, np.int64)
        np.add.at(records, groups.of_row, rows.column(RECORDS).to_numpy())
        columns = merge_rows(rows, groups, self.cut.combined, leading=self.leading)
        numbers = [pa.array(values) for values in (placed[0], placed[1], records, placed[2])]
        columns[self.width : self.leading] = [*numbers, shown]
        return pa.RecordBatch.from_arrays(columns, schema=self.state.schema)

    def process_watermark(self, ctx: Any) -> None:
        mark, early = ctx.watermark, self.choices.early
        if ctx.state.first_due > mark or mark == BEGINNING:
            return
        rows = self._of_same_keys(ctx, ctx.state.take_due(mark))
        groups, firsts, lasts = self._sessions(rows)
        ends = lasts + self.span.gap
        shown = rows.column(SHOWN).to_numpy(zero_copy_only=False)
        fresh = _any(groups, ~shown)
        shows = fresh & (ends <= mark)
        if early is not None:  # a row may also be due because it would end here, if nothing had come behind it
            shows |= _any(groups, ~shown & (rows.column(DUE).to_numpy() <= mark // early * early))
        kept_until = ends + self.choices.lateness
        flags = pa.array(np.ones(groups.count, bool))
        merged = self._put_together(rows, groups, (firsts, lasts, kept_until), flags)
        self._show(ctx, rows.take(chosen(shown & shows[groups.of_row])), merged.take(chosen(shows)))
        ctx.state.add(merged.take(chosen(shows & (kept_until > mark))))
        waits = ~shows & (kept_until > mark)
        self._put_back(ctx, rows, waits[groups.of_row], np.where(shown, 0, self._due_at(ctx, ends)[groups.of_row]))

    def _put_back(self, ctx: Any, rows: pa.RecordBatch, waits: Any, due: Int64s) -> None:
        """Rows as they were; those that were not shown wait for the end of what they have become part of."""
        columns = list(rows.columns)
        columns[self.leading - 2] = pa.array(np.where(due == 0, rows.column(DUE).to_numpy(), due))
        ctx.state.add(pa.RecordBatch.from_arrays(columns, schema=self.state.schema).take(chosen(waits)))

    def _show(self, ctx: Any, former: pa.RecordBatch, new: pa.RecordBatch) -> None:
        if not new.num_rows:
            return
        rows = pa.concat_batches([former, new])
        results = [
            pa.concat_arrays(pair)
            for pair in zip(
                *(self.cut.combined.results(part.columns[self.leading :]) for part in (former, new)), strict=True
            )
        ]
        starts, ends = rows.column(FIRST).to_numpy(), rows.column(LAST).to_numpy() + self.span.gap
        signs = np.repeat(["-", "+"], [former.num_rows, new.num_rows])
        columns = [*rows.columns[: self.width], times_array(starts), times_array(ends), *results, pa.array(signs)]
        keys = codes_of(rows.columns[: self.width], rows.num_rows)
        order = np.lexsort((np.repeat([0, 1], [former.num_rows, new.num_rows]), keys))  # what is taken back goes first
        self._send(ctx, take(columns, order), (starts[order], ends[order]))


def _any(groups: Groups, rows: Any) -> Any:
    """For each group, whether any of these rows is in it."""
    found = np.zeros(groups.count, bool)
    found[groups.of_row[rows]] = True
    return found
