"""Windows: sums over tumbling windows of event time, and totals of those sums, with nothing ever late.

The sources are out of order by less than their `delay`, so every record is on time and each window is exact when its
timer fires. Whoever sees a record behind its own watermark, or a timer early, out of order or twice, says so on a
stream of its own. The totals downstream are exact only if the sums' marks wait for the timers that are still to fire.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.workloads.workload import Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 3
RECORDS = 720
WIDTH = 20_000
DELAY = 5_000


@dataclass
class Windows:
    open: dict[int, list[int]] = field(default_factory=dict)  # total, and how many
    fired: int = -1  # the last window whose timer fired
    closed: int = 0


class Windowed(Computation):
    """What both stages do: adds up by window, and watches its own time."""

    violations = Output("what string, one long, other long")
    state = Windows

    def take(self, ctx: Any, record: Any, value: int) -> None:
        if record.timestamp < ctx.watermark:
            self.violated(ctx, "record behind the mark", record.timestamp, ctx.watermark)
        window = record.timestamp // WIDTH
        of_window = ctx.state.open.setdefault(window, [0, 0])
        of_window[0] += value
        of_window[1] += 1
        ctx.set_timer(str(window), (window + 1) * WIDTH)

    def close(self, ctx: Any, timer: Any) -> tuple[int, int, int]:
        window = int(timer.tag)
        if timer.at > ctx.watermark or timer.at != (window + 1) * WIDTH:
            self.violated(ctx, "timer early", timer.at, ctx.watermark)
        if window <= ctx.state.fired:
            self.violated(ctx, "timer out of order", window, ctx.state.fired)
        ctx.state.fired = window
        ctx.state.closed += 1
        total, n = ctx.state.open.pop(window, (-1, -1))
        return window, total, n

    def violated(self, ctx: Any, what: str, one: int, other: int) -> None:
        ctx.produce(self.violations, what=f"{type(self).__name__} {ctx.key}: {what}", one=one, other=other)


class Sum(Windowed):
    readings = Input(key="sensor")
    sums = Output("sensor string, window long, total long, n long, closed long")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.take(ctx, record, record.value)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        window, total, n = self.close(ctx, timer)
        ctx.produce(self.sums, sensor=ctx.key, window=window, total=total, n=n, closed=ctx.state.closed)


class Total(Windowed):
    sums = Input(key="window")
    totals = Output("window long, total long, n long")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.take(ctx, record, record.total)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        _, total, n = self.close(ctx, timer)
        ctx.produce(self.totals, window=ctx.key, total=total, n=n)


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("windows", late="process")
    source = Rows(rows, "sensor string, value long, at long", timestamp="at", splits=SPLITS, delay=DELAY)
    pipeline.source("readings", source)
    pipeline.add(Sum)
    pipeline.add(Total)
    for stream in ("sums", "totals", "violations"):
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    chance = random.Random(f"windows {seed}")
    speed = [chance.choice((500, 1_000, 2_000)) for _ in range(SPLITS)]
    clocks = [DELAY] * SPLITS
    rows = []
    for place in range(RECORDS):
        split = place % SPLITS
        clocks[split] += chance.randint(0, speed[split])
        at = clocks[split] - chance.randint(0, DELAY)
        rows.append({"sensor": f"s{chance.randrange(12)}", "value": chance.randrange(1_000), "at": at})
    return rows


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    totals: Counter[tuple[str, int]] = Counter()
    counts: Counter[tuple[str, int]] = Counter()
    for row in rows:
        of_window = row["sensor"], row["at"] // WIDTH
        totals[of_window] += row["value"]
        counts[of_window] += 1
    closed: Counter[str] = Counter()
    wanted = []
    for sensor, window in sorted(counts):
        closed[sensor] += 1
        wanted.append((sensor, window, totals[sensor, window], counts[sensor, window], closed[sensor]))
    sums = shown.rows("sums")
    yield from compare("sums", ((r["sensor"], r["window"], r["total"], r["n"], r["closed"]) for r in sums), wanted)
    by_window: Counter[int] = Counter()
    sensors: Counter[int] = Counter()
    for sensor, window in counts:
        by_window[window] += totals[sensor, window]
        sensors[window] += 1
    yield from compare(
        "totals",
        ((row["window"], row["total"], row["n"]) for row in shown.rows("totals")),
        ((window, by_window[window], n) for window, n in sensors.items()),
    )
    yield from none("time was broken", shown.rows("violations"))


windows = Workload("windows", "sums by window of event time, and totals of the sums; nothing is ever late", build)
