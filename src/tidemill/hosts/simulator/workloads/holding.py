"""Holding: what a key can do to time, and what time and chance do to a key.

Sessions hold the output mark while they are open, so that their sums may leave with the time of their first record.
Wall timers wake keys when nothing else happens. A timeout is set by every record and cancelled by the last. Each record
draws a number that leaves on two streams: a replay that drew another would be seen, for one of them may be out already.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.workloads.workload import AT, Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 3
USERS = 60
GAP = 30_000
NAP = 25_000  # of wall time
FAR = 10_000_000_000
CLICK = "user string, i long, last boolean, at long"


@dataclass
class Session:
    began: int = -1
    newest: int = -1
    n: int = 0


class Sessions(Computation):
    """A session is a user's clicks without a gap. The key is forgotten when it ends."""

    clicks = Input(key="user")
    sessions = Output("user string, began long, n long")
    violations = Output("what string, one long, other long")
    state = Session

    def process_record(self, ctx: Any, record: Any) -> None:
        state = ctx.state
        if record.timestamp < ctx.watermark:
            ctx.produce(self.violations, what="click behind", one=record.timestamp, other=ctx.watermark)
        if state.n and record.timestamp >= state.newest + GAP:
            self._leave(ctx)  # the click was here before the mark
            state.n = 0
        if state.n == 0:
            state.began = record.timestamp
            ctx.hold_watermark(state.began)
        state.n += 1
        state.newest = record.timestamp
        ctx.set_timer("end", record.timestamp + GAP)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        state = ctx.state
        if timer.at != state.newest + GAP or timer.at > ctx.watermark:
            ctx.produce(self.violations, what="end of session", one=timer.at, other=state.newest)
        self._leave(ctx)
        ctx.hold_watermark(None)
        del ctx.state

    def _leave(self, ctx: Any) -> None:
        began = ctx.state.began
        ctx.produce(self.sessions, timestamp=began, user=ctx.key, began=began, n=ctx.state.n)


class Review(Computation):
    """Sees every session on time although it leaves with the time of its beginning."""

    sessions = Input(key="user")
    reviewed = Output("user string, nth long, began long")
    violations = Output("what string, one long, other long")
    state = int

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.timestamp < ctx.watermark:
            ctx.produce(self.violations, what="session behind", one=record.timestamp, other=ctx.watermark)
        ctx.state += 1
        ctx.produce(self.reviewed, user=ctx.key, nth=ctx.state, began=record.began)


@dataclass
class Napping:
    clicks: int = 0
    naps: int = 0


class Naps(Computation):
    """Wall timers, cancelled timers, and the same chance and wall clock in every replay."""

    clicks = Input(key="user")
    drawn = Output("user string, i long, number long, now long")
    drawn_too = Output("user string, i long, number long, now long")
    woken = Output("user string, tag string, nth long")
    timeouts = Output("user string, clicks long")
    violations = Output("what string, one long, other long")
    state = Napping

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.clicks += 1
        number = ctx.random.below(1_000_000)
        for output in (self.drawn, self.drawn_too):
            ctx.produce(output, user=ctx.key, i=record.i, number=number, now=ctx.now)
        ctx.set_timer("timeout", FAR)
        if record.i % 4 == 0:
            ctx.set_timer(f"nap {record.i}", ctx.now + NAP, clock="wall")
        if record.last:
            ctx.cancel_timer("timeout")

    def process_timer(self, ctx: Any, timer: Any) -> None:
        if timer.clock == "event":
            ctx.produce(self.timeouts, user=ctx.key, clicks=ctx.state.clicks)
            return
        if timer.at > ctx.now:
            ctx.produce(self.violations, what="woken early", one=timer.at, other=ctx.now)
        ctx.state.naps += 1
        ctx.produce(self.woken, user=ctx.key, tag=timer.tag, nth=ctx.state.naps)


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("holding", late="process")
    pipeline.source("clicks", Rows(rows, CLICK, timestamp="at", splits=SPLITS))
    for computation in (Sessions, Review, Naps):
        pipeline.add(computation)
    for stream in "sessions reviewed drawn drawn_too woken timeouts violations".split():
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    """Each user clicks in one split only, so that the order of the clicks is known."""
    chance = random.Random(f"holding {seed}")
    splits: list[list[Row]] = [[] for _ in range(SPLITS)]
    counts: dict[str, int] = {}
    clocks = [0] * SPLITS
    for place in range(300):
        split = place % SPLITS
        user = f"{'abc'[split]}{chance.randrange(USERS // SPLITS)}"
        counts[user] = counts.get(user, 0) + 1
        clocks[split] += chance.randint(0, 4_000)
        splits[split].append({"user": user, "i": counts[user], "last": False, "at": clocks[split]})
    for rows in splits:
        seen: set[str] = set()
        for row in reversed(rows):
            row["last"] = row["user"] not in seen and row["i"] % 2 == 0
            seen.add(row["user"])
    return [row for turn in zip(*splits, strict=True) for row in turn]


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    sessions = _sessions(rows)
    yield from compare(
        "sessions",
        ((row["user"], row["began"], row["n"], row[AT]) for row in shown.rows("sessions")),
        ((user, began, n, began) for user, began, n in sessions),
    )
    reviewed = shown.rows("reviewed")
    yield from compare(
        "reviewed", ((r["user"], r["began"]) for r in reviewed), ((u, began) for u, began, _ in sessions)
    )
    yield from compare("order of reviews", _nth(reviewed), _nth_wanted(user for user, _, _ in sessions))
    yield from none("time was broken", shown.rows("violations"))

    drawn = [(row["user"], row["i"], row["number"], row["now"]) for row in shown.rows("drawn")]
    too = ((row["user"], row["i"], row["number"], row["now"]) for row in shown.rows("drawn_too"))
    yield from compare("numbers drawn, on both streams", too, drawn)
    yield from compare("clicks", ((user, i) for user, i, _, _ in drawn), ((row["user"], row["i"]) for row in rows))

    woken = shown.rows("woken")
    naps = [(row["user"], f"nap {row['i']}") for row in rows if row["i"] % 4 == 0]
    yield from compare("naps", ((row["user"], row["tag"]) for row in woken), naps)
    yield from compare("order of naps", _nth(woken), _nth_wanted(user for user, _ in naps))
    finals = {row["user"]: row for row in rows}
    yield from compare(
        "timeouts",
        ((row["user"], row["clicks"]) for row in shown.rows("timeouts")),
        ((user, row["i"]) for user, row in finals.items() if not row["last"]),
    )


def _sessions(rows: list[Row]) -> list[tuple[str, int, int]]:
    """Each session's user, beginning and clicks."""
    clicks: dict[str, list[int]] = {}
    for row in rows:
        clicks.setdefault(row["user"], []).append(row["at"])
    found = []
    for user, times in clicks.items():
        began, n, newest = times[0], 0, times[0]
        for at in times:
            if at >= newest + GAP:
                found.append((user, began, n))
                began, n = at, 0
            n += 1
            newest = at
        found.append((user, began, n))
    return found


def _nth(rows: list[Row]) -> Iterator[tuple[str, int]]:
    return ((row["user"], row["nth"]) for row in rows)


def _nth_wanted(users: Iterator[str]) -> Iterator[tuple[str, int]]:
    counts: dict[str, int] = {}
    for user in users:
        counts[user] = counts.get(user, 0) + 1
        yield user, counts[user]


holding = Workload(
    "holding", "held marks, wall timers, cancelled timers, forgotten keys, and chance that replays", build,
    clock_offset=1_000, shards=3,
)  # fmt: skip
