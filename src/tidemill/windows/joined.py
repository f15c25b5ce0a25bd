"""The interval join: records of two streams with equal keys whose times lie close together.

Each record is held against what the other side has brought so far, and is kept until the mark says that none can come
any more that lies close enough. Nulls are equal to nothing, as in SQL. A pair bears the later of the two times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.api.computation import Output
from tidemill.core.ids import Micros
from tidemill.windows.aggregates import Rows
from tidemill.windows.groups import Int64s, codes_of, is_in, normal, order_by
from tidemill.windows.keyed import Keys, table
from tidemill.windows.reading import Chains, Reading, chosen

PAIRS: Final = 2**18
"""So many are made at a time, or those of one record if they are more."""

_SIDE: Final = "side"
_AT: Final = "at"


class IntervalJoin(Reading):
    """`chains` by side, left and right; `keys` the columns of each side's key, `columns` those of the results."""

    def __init__(
        self,
        chains: tuple[Chains, Chains],
        inputs: Keys,
        schemas: tuple[pa.Schema, pa.Schema],
        keys: tuple[tuple[str, ...], tuple[str, ...]],
        within: Micros,
        stream: str,
    ) -> None:
        streams = dict.fromkeys([*chains[0], *chains[1]], ())
        self.read(streams, inputs)
        self.sides = chains
        self.keys = keys
        self.within = within
        self.schemas = schemas
        shared = [mine for mine, other in zip(*keys, strict=True) if mine == other]
        self.right = [name for name in schemas[1].names if name not in shared]
        key_fields = [pa.field(f"key_{place}", schemas[0].field(name).type) for place, name in enumerate(keys[0])]
        records = [
            pa.field(name, pa.struct(list(schema))) for name, schema in zip(("left", "right"), schemas, strict=True)
        ]
        self.state = table(key_fields, [_SIDE, _AT], records)
        self.pairs = Output(pa.schema([*schemas[0], *(schemas[1].field(name) for name in self.right)]), stream)

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        for side in (0, 1):
            for chain in self.sides[side].get(ctx.stream, ()):
                rows = chain.apply(Rows(batch, ctx.timestamps))
                if len(rows.times):
                    self._take(ctx, side, rows)
        ctx.state.settle(lambda rows: rows)

    def process_watermark(self, ctx: Any) -> None:
        ctx.state.take_due(ctx.watermark)

    def _take(self, ctx: Any, side: int, rows: Rows) -> None:
        keys = [normal(rows.batch.column(name)) for name in self.keys[side]]
        there = np.ones(len(rows.times), bool)
        for key in keys:
            there &= key.is_valid().to_numpy(zero_copy_only=False)
        if not there.all():
            rows = Rows(rows.batch.filter(pa.array(there)), rows.times[there])
            keys = [key.filter(pa.array(there)) for key in keys]
        if not len(rows.times):
            return
        others = self._near(ctx, side, keys, rows.times)
        if others.num_rows:
            self._pair(ctx, side, rows, keys, others)
        self._keep(ctx, side, rows, keys)

    def _near(self, ctx: Any, side: int, keys: list[pa.Array], times: Int64s) -> pa.RecordBatch:
        """Of the other side, what may go with one of these records."""
        first, last = int(times.min()) - self.within, int(times.max()) + self.within

        def near(batch: pa.RecordBatch) -> Any:
            at = batch.column(_AT).to_numpy()
            found = (batch.column(_SIDE).to_numpy() != side) & (at >= first) & (at <= last)
            return found & is_in(batch.columns[: len(keys)], keys) if found.any() else found

        return ctx.state.rows(near)

    def _pair(self, ctx: Any, side: int, rows: Rows, keys: list[pa.Array], others: pa.RecordBatch) -> None:
        together = [pa.concat_arrays(pair) for pair in zip(others.columns[: len(keys)], keys, strict=True)]
        codes = codes_of(together, others.num_rows + len(rows.times))
        times = others.column(_AT).to_numpy()
        for mine, theirs in _matches(
            (codes[others.num_rows :], rows.times), (codes[: others.num_rows], times), self.within
        ):
            batch = others.column("right" if side == 0 else "left").take(pa.array(theirs))
            other = pa.RecordBatch.from_struct_array(batch)
            own = rows.batch.take(pa.array(mine))
            left, right = (own, other) if side == 0 else (other, own)
            columns = [*left.columns, *(right.column(name) for name in self.right)]
            made = pa.RecordBatch.from_arrays(columns, schema=self.pairs.schema)
            ctx.produce_batch(self.pairs, made, np.maximum(rows.times[mine], times[theirs]))

    def _keep(self, ctx: Any, side: int, rows: Rows, keys: list[pa.Array]) -> None:
        due = rows.times + (self.within + 1)
        kept = chosen(due > ctx.watermark)
        if not len(kept):
            return
        record = pa.StructArray.from_arrays(rows.batch.columns, fields=list(self.schemas[side]))
        missing = pa.nulls(len(rows.times), pa.struct(list(self.schemas[1 - side])))
        records = (record, missing) if side == 0 else (missing, record)
        numbers = (np.full(len(due), side), rows.times, due)
        columns = [*keys, *map(pa.array, numbers), *records]
        ctx.state.add(pa.RecordBatch.from_arrays(columns, schema=self.state.schema).take(kept))


def _matches(
    mine: tuple[Int64s, Int64s], theirs: tuple[Int64s, Int64s], within: int
) -> Iterator[tuple[Int64s, Int64s]]:
    """The places of those that go together, some pairs at a time; both sides are codes of keys, and times."""
    (my_keys, my_times), (keys, times) = mine, theirs
    moments = np.unique(times)
    many = len(moments) + 1
    order = order_by(keys, times)
    placed = (keys * many + np.searchsorted(moments, times))[order]
    mine_first = order_by(my_keys, my_times)  # what is looked for in order is found in less time
    first, last = np.empty(len(my_keys), np.int64), np.empty(len(my_keys), np.int64)
    lower = np.searchsorted(moments, my_times - within, side="left")
    upper = np.searchsorted(moments, my_times + within, side="right")
    for found, limits in ((first, my_keys * many + lower), (last, my_keys * many + upper)):
        found[mine_first] = np.searchsorted(placed, limits[mine_first])
    counts = last - first
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + PAIRS, side="right")), start + 1)
        part = counts[start:end]
        pairs = int(part.sum())
        if pairs:
            own = np.repeat(np.arange(start, end), part)
            within_part = np.arange(pairs) - np.repeat(np.cumsum(part) - part, part)
            yield own, order[np.repeat(first[start:end], part) + within_part]
        start = end


def output_clash(left: pa.Schema, right: pa.Schema, keys: Mapping[str, str]) -> list[str]:
    """Columns that both sides have and that are not their common key."""
    return [name for name in right.names if name in left.names and keys.get(name) != name]
