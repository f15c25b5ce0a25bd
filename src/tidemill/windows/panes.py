"""From records to panes: what arrived together becomes one row for each key and stretch of time.

All that follows (before the shuffle or behind it, in the state, at the end) works on these rows alone. That is why a
hot key costs no more than any other, and why a window may be fed with records or with panes that somebody else made of
them. A pane has the key's columns, where it lies in time, how many records it holds, and the partial aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tidemill.windows.aggregates import Combined, Rows
from tidemill.windows.groups import Groups, Int64s, codes_of, group_by, normal, order_by, take
from tidemill.windows.spans import Session, Sliding

RECORDS: Final = "pane_records"
START: Final = "pane_start"
FIRST: Final = "pane_first"
LAST: Final = "pane_last"


class Cut:
    """How records become panes, and where panes lie: what the kinds of windows differ in."""

    times: tuple[str, ...]

    def __init__(self, keys: Sequence[pa.Field], combined: Combined) -> None:
        self.keys: Final = tuple(field.name for field in keys)
        self.combined: Final = combined
        placed = [pa.field(name, pa.int64(), nullable=False) for name in (*self.times, RECORDS)]
        self.schema: Final = pa.schema([*keys, *placed, *combined.partial_fields])

    def cut(self, rows: Rows) -> Rows:
        """The panes, each with the time of its oldest record, so that none is older than the mark before it."""
        columns = [normal(rows.batch.column(name)) for name in self.keys]
        groups, placed = self._placed(columns, rows.times)
        oldest = np.full(groups.count, 2**63 - 1, np.int64)
        np.minimum.at(oldest, groups.of_row, rows.times)
        numbers = [pa.array(values) for values in (*placed, groups.sizes())]
        partials = self.combined.partials(rows, groups)
        arrays = [*take(columns, groups.firsts), *numbers, *partials]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schema), oldest)

    def _placed(self, keys: list[pa.Array], times: Int64s) -> tuple[Groups, list[Int64s]]:
        raise NotImplementedError

    def partials_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        partials: list[pa.Array] = batch.columns[len(batch.columns) - len(self.combined.partial_fields) :]
        return partials


class PaneCut(Cut):
    """For tumbling and sliding windows."""

    times = (START,)

    def __init__(self, span: Sliding, keys: Sequence[pa.Field], combined: Combined) -> None:
        super().__init__(keys, combined)
        self.pane: Final = span.pane
        self.offset: Final = span.offset % span.pane

    def _placed(self, keys: list[pa.Array], times: Int64s) -> tuple[Groups, list[Int64s]]:
        panes = (times - self.offset) // self.pane  # which rounds down, before 1970 too
        groups = group_by([*keys, panes], len(times))
        return groups, [panes[groups.firsts] * self.pane + self.offset]


class SessionCut(Cut):
    """For session windows: what of a session arrived together."""

    times = (FIRST, LAST)

    def __init__(self, span: Session, keys: Sequence[pa.Field], combined: Combined) -> None:
        super().__init__(keys, combined)
        self._gap = span.gap

    def _placed(self, keys: list[pa.Array], times: Int64s) -> tuple[Groups, list[Int64s]]:
        groups, firsts, lasts = sessions(codes_of(keys, len(times)), times, times, self._gap)
        return groups, [firsts, lasts]


def sessions(keys: Int64s, firsts: Int64s, lasts: Int64s, gap: int) -> tuple[Groups, Int64s, Int64s]:
    """Stretches of time of one key, put together where one begins before `gap` has passed behind another."""
    rows = len(keys)
    if not rows:
        return Groups(keys, 0, keys), firsts, lasts
    order = order_by(keys, firsts)
    by_key, first = keys[order], firsts[order]
    reached = first if lasts is firsts else _reached(by_key, lasts[order])
    begins = np.ones(rows, bool)
    begins[1:] = (by_key[1:] != by_key[:-1]) | (first[1:] - reached[:-1] >= gap)
    places = np.flatnonzero(begins)
    of_row = np.empty(rows, np.int64)
    of_row[order] = np.cumsum(begins) - 1
    groups = Groups(of_row, len(places), order[places])
    return groups, first[places], np.maximum.reduceat(lasts[order], places)


def _reached(keys: Int64s, lasts: Int64s) -> Int64s:
    """The greatest of those so far, of this key: each key's are lifted above those of all keys before it."""
    low = int(lasts.min())
    height = int(lasts.max()) - low + 1
    if height * (int(keys[-1]) + 1) < 2**62:
        lift = keys * height - low
        return np.maximum.accumulate(lasts + lift) - lift
    moments, ranks = np.unique(lasts, return_inverse=True)  # times too far apart: their ranks are not
    return moments[_reached(keys, ranks.astype(np.int64))]
