"""Vectorised: window sums over whole bundles, with state in columns and a mark held for the windows that are open.

A window's sum leaves with the time at which the window began, which the input mark passed long ago: only the hold on
the output mark keeps it from being late downstream. There a plain computation adds the sums up and watches for it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.api.state import Columns
from tidemill.hosts.simulator.workloads.windows import Windowed
from tidemill.hosts.simulator.workloads.workload import AT, Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 3
RECORDS = 720
WIDTH = 20_000
DELAY = 5_000
SENSORS = 10
END = 2**63 - 1
BEGINNING = -(2**63)


class Sums(Computation):
    """Keyed by slot: a window and a sensor in one number, so that a row of state is one sum."""

    readings = Input(key="slot")
    sums = Output("slot long, total long, n long, begins long")
    state = Columns("total long, n long, closed boolean")

    def process_bundle(self, ctx: Any, batch: Any) -> None:
        rows = ctx.state.rows(batch.column("slot"))
        np.add.at(ctx.state.total, rows, batch.column("value").to_numpy())
        np.add.at(ctx.state.n, rows, 1)

    def process_watermark(self, ctx: Any) -> None:
        if ctx.watermark == BEGINNING:
            return
        slots = np.array(ctx.state.keys, np.int64)
        begins = slots // SENSORS * WIDTH
        ready = np.flatnonzero(~ctx.state.closed & (begins + WIDTH <= ctx.watermark))
        if len(ready):
            ctx.state.touch(ready)
            ctx.state.closed[ready] = True
            columns = {"slot": slots[ready], "total": ctx.state.total[ready], "n": ctx.state.n[ready]}
            ctx.produce_batch(self.sums, columns | {"begins": begins[ready]}, begins[ready])
        # No window that begins before this one can still be opened or is still open.
        ctx.hold_watermark(None if ctx.watermark == END else ctx.watermark // WIDTH * WIDTH)


class Total(Windowed):
    sums = Input(key=lambda record: record.begins // WIDTH % 5)
    totals = Output("group long, window long, total long, n long")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.take(ctx, record, record.total)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        window, total, n = self.close(ctx, timer)
        ctx.produce(self.totals, group=ctx.key, window=window, total=total, n=n)


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("vectorised", late="process")
    source = Rows(rows, "slot long, value long, at long", timestamp="at", splits=SPLITS, delay=DELAY)
    pipeline.source("readings", source)
    pipeline.add(Sums)
    pipeline.add(Total)
    for stream in ("sums", "totals", "violations"):
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    chance = random.Random(f"vectorised {seed}")
    speed = [chance.choice((500, 1_000, 2_000)) for _ in range(SPLITS)]
    clocks = [DELAY] * SPLITS
    rows = []
    for place in range(RECORDS):
        clocks[place % SPLITS] += chance.randint(0, speed[place % SPLITS])
        at = clocks[place % SPLITS] - chance.randint(0, DELAY)
        slot = at // WIDTH * SENSORS + chance.randrange(SENSORS)
        rows.append({"slot": slot, "value": chance.randrange(1_000), "at": at})
    return rows


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    totals: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for row in rows:
        totals[row["slot"]] += row["value"]
        counts[row["slot"]] += 1
    sums = shown.rows("sums")
    yield from compare(
        "sums",
        ((row["slot"], row["total"], row["n"], row[AT]) for row in sums),
        ((slot, totals[slot], n, slot // SENSORS * WIDTH) for slot, n in counts.items()),
    )
    by_window: Counter[int] = Counter()
    sensors: Counter[int] = Counter()
    for slot in counts:
        by_window[slot // SENSORS] += totals[slot]
        sensors[slot // SENSORS] += 1
    yield from compare(
        "totals",
        ((row["group"], row["window"], row["total"], row["n"]) for row in shown.rows("totals")),
        ((window % 5, window, by_window[window], n) for window, n in sensors.items()),
    )
    yield from none("time was broken", shown.rows("violations"))


vectorised = Workload("vectorised", "window sums over whole bundles, with columns for state and the mark held", build)
