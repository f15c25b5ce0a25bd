"""Arriving: event time is when each record is read, by the clock of whoever reads it, and late records are dropped.

Clocks disagree, and a source that moves to another worker meets another clock. Whatever they say, a record that has
just arrived is never late: all are counted, and each window of arrival adds up to the whole.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.workloads.workload import Oracle, Row, Shown, Workload, compare
from tidemill.ports import ARRIVAL
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 4
RECORDS = 640
WIDTH = 10_000


@dataclass
class Arrived:
    n: int = 0
    windows: dict[int, int] = field(default_factory=dict)


class Arrivals(Computation):
    pings = Input(key="host")
    counts = Output("host long, n long, id long")
    windows = Output("host long, window long, n long")
    state = Arrived

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(self.counts, host=ctx.key, n=ctx.state.n, id=record.id)
        window = record.timestamp // WIDTH
        ctx.state.windows[window] = ctx.state.windows.get(window, 0) + 1
        ctx.set_timer(str(window), (window + 1) * WIDTH)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        window = int(timer.tag)
        ctx.produce(self.windows, host=ctx.key, window=window, n=ctx.state.windows.pop(window))


def build(seed: int) -> tuple[Pipeline, Oracle]:
    chance = random.Random(f"arriving {seed}")
    rows = [{"id": id, "host": chance.randrange(20)} for id in range(RECORDS)]
    pipeline = Pipeline("arriving")
    pipeline.source("pings", Rows(rows, "id long, host long", timestamp=ARRIVAL, splits=SPLITS))
    pipeline.add(Arrivals)
    pipeline.sink("counts", Collect())
    pipeline.sink("windows", Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    counts, windows = shown.rows("counts"), shown.rows("windows")
    yield from compare(
        "pings counted", ((row["host"], row["id"]) for row in counts), ((row["host"], row["id"]) for row in rows)
    )
    totals = Counter(row["host"] for row in rows)
    yield from compare(
        "numbers given",
        ((row["host"], row["n"]) for row in counts),
        ((host, n) for host, total in totals.items() for n in range(1, total + 1)),
    )
    in_windows: Counter[int] = Counter()
    for row in windows:
        in_windows[row["host"]] += row["n"]
    yield from compare("pings in windows", in_windows.items(), totals.items())
    places = [(row["host"], row["window"]) for row in windows]
    yield from compare("windows", places, set(places))


arriving = Workload("arriving", "event time is the time of arrival, by clocks that disagree; nothing is late", build)
