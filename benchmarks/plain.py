"""The same user functions in a bare loop: what Tidemill's own cost is measured against.

Arrow in and Arrow out, over the same batches, with no shard, no identities, no marks and no checkpoint: what somebody
would write who needs the result once and nothing else. The record-by-record loop runs the very computation that
Tidemill is given, with a context that can do just what it uses. The vectorised loop is the same numpy.
"""

from __future__ import annotations

import types
from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm

KEYS = 10_000
WINDOW = 1_000_000  # microseconds


@dataclass
class Seen:
    n: int = 0


class Count(tm.Computation):
    """The record-by-record keyed count."""

    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Seen

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)


class WindowSum(tm.Computation):
    """The vectorised sum for each item in windows of a second; a window's totals leave when it is over."""

    sales = tm.Input(key="item")
    totals = tm.Output("item long, total long")
    state = tm.Columns("total long")

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        items = batch.column(0)
        rows = ctx.state.rows(items)
        add(ctx.state.total, rows, batch.column(1).to_numpy())

    def process_watermark(self, ctx: Any) -> None:
        totals = ctx.state.total
        items = np.array(ctx.state.keys, np.int64)
        ctx.produce_batch(self.totals, {"item": items, "total": totals}, np.full(len(items), ctx.watermark))


def add(totals: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Adds each value to its row's total: the numpy that both sides run."""
    totals += np.bincount(rows, weights=values, minlength=len(totals)).astype(np.int64)


# Record by record


class BareContext:
    """Only what `Count` needs."""

    __slots__ = ("key", "rows", "state")

    key: str
    rows: list[dict[str, Any]]
    state: Seen

    def produce(self, output: Any, **columns: Any) -> None:
        self.rows.append(columns)


def own_copy() -> Any:
    """A count whose code nobody else runs: the interpreter fits code to the types that it meets, one at a time."""
    function = Count.process_record
    copied = types.FunctionType(function.__code__.replace(), function.__globals__)
    return type("BareCount", (Count,), {"process_record": copied})()


def count_records(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    make_record = partial(tuple.__new__, namedtuple("Record", ["word"]))  # noqa: PYI024 - as cheap as Tidemill's
    program, ctx = own_copy(), BareContext()
    states: dict[str, Seen] = {}
    for batch in batches:
        ctx.rows = []
        for record in map(make_record, zip(batch.column(0).to_pylist())):
            ctx.key = key = record.word
            state = states.get(key)
            if state is None:
                state = states[key] = Seen()
            ctx.state = state
            program.process_record(ctx, record)
        words = pa.array([row["word"] for row in ctx.rows], pa.string())
        numbers = pa.array([row["n"] for row in ctx.rows], pa.int64())
        yield pa.RecordBatch.from_arrays([words, numbers], ["word", "n"])


# Vectorised


def sum_windows(batches: Sequence[pa.RecordBatch], ends: Sequence[bool]) -> Iterator[pa.RecordBatch]:
    """`ends` tells behind which batches a window is over."""
    row_of: dict[int, int] = {}
    totals = np.zeros(KEYS, np.int64)
    for batch, over in zip(batches, ends, strict=True):
        encoded = batch.column(0).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        known = list(map(row_of.get, distinct))
        if None in known:
            known = [row_of.setdefault(item, len(row_of)) for item in distinct]
        rows = np.array(known, np.intp)[encoded.indices.to_numpy()]
        add(totals[: len(row_of)], rows, batch.column(1).to_numpy())
        if over:
            items = pa.array(np.array(list(row_of), np.int64))
            yield pa.RecordBatch.from_arrays([items, pa.array(totals[: len(row_of)])], ["item", "total"])
