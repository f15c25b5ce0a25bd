"""What the windows of every kind share: what is aggregated by which key, what is late, and how results leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.api.computation import Output
from tidemill.api.state import Table
from tidemill.core.ids import Micros
from tidemill.windows.aggregates import Combined, Rows
from tidemill.windows.groups import Groups, Int64s, take
from tidemill.windows.panes import RECORDS, Cut
from tidemill.windows.reading import Chains, Reading, times_array

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
WINDOW_NUMBER: Final = "window_number"
CHANGE: Final = "change"
DUE: Final = "due"
TIME: Final = pa.timestamp("us", tz="UTC")


Keys = Mapping[str, tuple[str, ...]]
"""Of each stream, the columns that are the key."""


@dataclass(frozen=True)
class Choices:
    """What else is said of a window."""

    lateness: Micros
    early: Micros | None
    retract: bool
    late_stream: str | None

    @property
    def lasting(self) -> bool:
        """Whether results may leave more than once."""
        return self.lateness > 0 or self.early is not None


@dataclass(frozen=True)
class Names:
    """Of a window's streams."""

    results: str
    partials: str


class PartialWindows(Reading):
    """The first phase: makes panes of what arrives together, wherever it arrives, so that few rows are shuffled."""

    def __init__(self, chains: Chains, cut: Cut, stream: str) -> None:
        self.read(chains)
        self.cut = cut
        self.panes = Output(cut.schema, stream)

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        for rows in self.rows(ctx, batch):
            made = self.cut.cut(rows)
            ctx.produce_batch(self.panes, made.batch, made.times)


class KeyedWindows(Reading):
    """Takes panes, or records of which it makes panes first. `chains` are None where panes are read."""

    def __init__(
        self, chains: Chains | None, cut: Cut, names: Names, keys: Keys, choices: Choices, late: pa.Schema | None
    ) -> None:
        if chains is None:
            self.read({names.partials: ()}, {names.partials: cut.keys}, late="self")
        else:
            self.read(chains, keys, late="self")
        self.reads_panes: Final = chains is None
        self.cut = cut
        self.choices = choices
        change = [pa.field(CHANGE, pa.string())] if choices.retract else []
        self.key_fields = [cut.schema.field(name) for name in cut.keys]
        bounds = [pa.field(WINDOW_START, TIME), pa.field(WINDOW_END, TIME)]
        schema = pa.schema([*self.key_fields, *bounds, *cut.combined.result_fields, *change])
        self.results = Output(schema, names.results)
        if late is not None:
            self.late_records = Output(late, choices.late_stream)

    @property
    def width(self) -> int:
        """How many columns the key has."""
        return len(self.key_fields)

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        if self.reads_panes:
            self.take_panes(ctx, batch)
            return
        for rows in self.rows(ctx, batch):
            in_time = self._in_time(ctx, rows) if self.choices.late_stream is not None else rows
            if len(in_time.times):
                self.take_panes(ctx, self.cut.cut(in_time).batch)

    def take_panes(self, ctx: Any, panes: pa.RecordBatch) -> None:
        raise NotImplementedError

    def deadlines(self, times: Int64s) -> Int64s:
        """For each time, the mark from which on a record of that time is late."""
        raise NotImplementedError

    def _in_time(self, ctx: Any, rows: Rows) -> Rows:
        """Late records go to their own stream."""
        late = self.deadlines(rows.times) <= ctx.watermark
        if not late.any():
            return rows
        ctx.count_late(int(late.sum()))
        ctx.produce_batch(self.late_records, rows.batch.filter(pa.array(late)), rows.times[late])
        return Rows(rows.batch.filter(pa.array(~late)), rows.times[~late])

    def leave(self, ctx: Any, keys: list[pa.Array], bounds: tuple[Int64s, Int64s], partials: list[pa.Array]) -> None:
        """Results, in the order of their windows."""
        if len(bounds[0]):
            self._send(ctx, [*keys, *map(times_array, bounds), *self.cut.combined.results(partials)], bounds)

    def _send(self, ctx: Any, columns: list[pa.Array], bounds: tuple[Int64s, Int64s]) -> None:
        times = bounds[1] - 1
        batch = pa.RecordBatch.from_arrays(columns, schema=self.results.schema)
        if len(times) and (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            batch, times = batch.take(pa.array(order)), times[order]
        ctx.produce_batch(self.results, batch, times)


def late_records(panes: pa.RecordBatch, late: Any) -> int:
    return int(panes.column(RECORDS).to_numpy()[late].sum())


def table(keys: Sequence[pa.Field], numbers: Sequence[str], partials: Sequence[pa.Field], *flags: str) -> Table:
    """State of so many numbers beside the key, `due` the last of them."""
    fields = [
        *keys,
        *(pa.field(name, pa.int64(), nullable=False) for name in (*numbers, DUE)),
        *(pa.field(name, pa.bool_(), nullable=False) for name in flags),
        *partials,
    ]
    return Table(pa.schema(fields), [field.name for field in keys], DUE)


def merge_rows(rows: pa.RecordBatch, groups: Groups, combined: Combined, *, leading: int) -> list[pa.Array]:
    """One row for each group: the first `leading` columns of its first row, then its partial results, merged."""
    partials = rows.columns[len(rows.columns) - len(combined.partial_fields) :]
    return [*take(rows.columns[:leading], groups.firsts), *combined.merged(partials, groups)]
