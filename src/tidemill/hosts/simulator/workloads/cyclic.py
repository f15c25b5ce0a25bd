"""Cyclic: records that go round, first through a computation that feeds itself, then between two.

`Hop` sends a job on from place to place until it has no hops left. `Odd` and `Even` then play Collatz with it: a number
goes between the two of them, and from `Even` to itself, until it is one. Event timers count how many records passed in
each window: a count is exact only if the mark never overtakes a record that is still going round. `Odd` also starts a
new record from a timer, which goes round with the others. Nothing in the data says when it is over: the marks do.
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

SPLITS = 2
JOBS = 60
PLACES = 9
MOST_HOPS = 6
WIDTH = 40_000
GHOST = 2  # the number that a timer sends round: one step from the end


@dataclass
class Passed:
    windows: dict[int, int] = field(default_factory=dict)


class Passing(Computation):
    """Counts what passes a key, by window of event time."""

    passed = Output("where string, key long, window long, n long")
    violations = Output("what string, key long, at long, mark long")
    state = Passed

    def pass_by(self, ctx: Any, record: Any) -> None:
        if record.timestamp < ctx.watermark:
            ctx.produce(self.violations, what="behind", key=ctx.key, at=record.timestamp, mark=ctx.watermark)
        window = record.timestamp // WIDTH
        ctx.state.windows[window] = ctx.state.windows.get(window, 0) + 1
        ctx.set_timer(str(window), (window + 1) * WIDTH)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        window = int(timer.tag)
        n = ctx.state.windows.pop(window)
        ctx.produce(self.passed, where=type(self).__name__, key=ctx.key, window=window, n=n)


class Hop(Passing):
    jobs = Input(key="place")
    back = Input("again", key="place")
    again = Output("id long, place long, hops long")
    landed = Output("id long, n long, steps long")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.pass_by(ctx, record)
        if record.hops:
            ctx.produce(self.again, id=record.id, place=_next_place(record.id, ctx.key), hops=record.hops - 1)
        else:
            ctx.produce(self.landed, id=record.id, n=_first_number(record.id, ctx.key), steps=0)


class Odd(Passing):
    odds = Input(key="n")
    tripled = Output("id long, n long, steps long", stream="evens")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.pass_by(ctx, record)
        ctx.produce(self.tripled, id=record.id, n=3 * ctx.key + 1, steps=record.steps + 1)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        super().process_timer(ctx, timer)
        ctx.produce(self.tripled, id=_ghost(ctx.key, int(timer.tag)), n=GHOST, steps=0)


class Even(Passing):
    landed = Input(key="n")
    evens = Input(key="n")
    halved = Output("id long, n long, steps long", stream="evens")
    odds = Output("id long, n long, steps long")
    finished = Output("id long, steps long")

    def process_record(self, ctx: Any, record: Any) -> None:
        self.pass_by(ctx, record)
        n, steps = (ctx.key // 2, record.steps + 1) if ctx.key % 2 == 0 else (ctx.key, record.steps)
        if n == 1:
            ctx.produce(self.finished, id=record.id, steps=steps)
        else:
            ctx.produce(self.halved if n % 2 == 0 else self.odds, id=record.id, n=n, steps=steps)


def _next_place(id: int, place: int) -> int:
    return (place * 5 + id) % PLACES


def _first_number(id: int, place: int) -> int:
    return 2 + (id * 3 + place) % 11


def _ghost(n: int, window: int) -> int:
    return -(n * 1_000_000 + window) - 1


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("cyclic", late="process")
    pipeline.source("jobs", Rows(rows, "id long, place long, hops long, at long", timestamp="at", splits=SPLITS))
    pipeline.add(Hop)
    pipeline.add(Odd)
    pipeline.add(Even)
    for stream in ("finished", "passed", "violations"):
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    chance = random.Random(f"cyclic {seed}")
    rows = []
    at = 0
    for id in range(JOBS):
        at += chance.randint(0, 6_000)
        rows.append({"id": id, "place": chance.randrange(PLACES), "hops": chance.randint(0, MOST_HOPS), "at": at})
    return rows


class _Model:
    """Walks every job by itself, and counts where it passes."""

    def __init__(self, rows: list[Row]) -> None:
        self.passed: Counter[tuple[str, int, int]] = Counter()
        self.finished: dict[int, int] = {}
        for row in rows:
            self._walk(row["id"], row["place"], row["hops"], row["at"])
        for where, key, window in list(self.passed):
            if where == "Odd":
                self._play(_ghost(key, window), GHOST, (window + 1) * WIDTH)

    def _walk(self, id: int, place: int, hops: int, at: int) -> None:
        for _ in range(hops):
            self.passed["Hop", place, at // WIDTH] += 1
            place = _next_place(id, place)
        self.passed["Hop", place, at // WIDTH] += 1
        self._play(id, _first_number(id, place), at)

    def _play(self, id: int, n: int, at: int) -> None:
        """`Even` sees each even number, and the first one whatever it is."""
        steps, at_even = 0, True
        while n != 1:
            self.passed["Even" if at_even else "Odd", n, at // WIDTH] += 1
            if n % 2 == 0:
                n, steps, at_even = n // 2, steps + 1, n // 2 % 2 == 0
            elif at_even:
                at_even = False
            else:
                n, steps, at_even = 3 * n + 1, steps + 1, True
        self.finished[id] = steps


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    model = _Model(rows)
    finished = ((row["id"], row["steps"]) for row in shown.rows("finished"))
    yield from compare("jobs finished", finished, model.finished.items())
    passed = ((row["where"], row["key"], row["window"], row["n"]) for row in shown.rows("passed"))
    yield from compare("passages by window", passed, ((*place, n) for place, n in model.passed.items()))
    yield from none("a record in the cycle was behind the mark", shown.rows("violations"))


cyclic = Workload(
    "cyclic", "records that go round, through one computation and between two, counted by event timers", build, shards=3
)
