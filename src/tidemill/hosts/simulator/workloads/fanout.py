"""Fan-out: one stream, read by four computations under four kinds of key, with records that come too late on purpose.

Who is late depends on how far the marks have come, so the model cannot say it. It can say that each record went one way
and only one, and that none was called late which is as new as all that came before it in its split: no mark can have
passed that one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.core.graph import LateChoice
from tidemill.hosts.simulator.workloads.workload import AT, Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 3
RECORDS = 360
EVENT = "id long, user string, item long, at long"
ALARM = 50  # an item from here on raises an alarm beside its number


def _choose(record: Any, _: int) -> LateChoice:
    """Late records of odd items go aside, the others are processed as if nothing were."""
    return "divert" if record.item % 2 else "process"


class ByUser(Computation):
    """By a column; all that is late goes aside."""

    late = Output(EVENT, stream="late-users")
    events = Input(key="user", late=late)
    of_users = Output("id long, user string, n long")
    alarms = Output("id long, user string")
    behind = Output("id long, at long, mark long")
    state = int

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.timestamp < ctx.watermark:
            ctx.produce(self.behind, id=record.id, at=record.timestamp, mark=ctx.watermark)
        ctx.state += 1
        ctx.produce(self.of_users, id=record.id, user=ctx.key, n=ctx.state)
        if record.item >= ALARM:
            ctx.produce(self.alarms, id=record.id, user=ctx.key)


class ByPair(Computation):
    """By two columns; whatever is late is processed all the same."""

    events = Input(key=("user", "item"), late="process")
    of_pairs = Output("id long, user string, item long, n long")
    state = int

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state += 1
        user, item = ctx.key
        ctx.produce(self.of_pairs, id=record.id, user=user, item=item, n=ctx.state)


class ByFunction(Computation):
    """By a function of the record; a function also says what becomes of each late one."""

    events = Input(key=lambda record: record.item % 7, late=_choose, divert="late_items")
    of_sevenths = Output("id long, seventh long, n long")
    late_items = Output(EVENT)
    state = int

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state += 1
        ctx.produce(self.of_sevenths, id=record.id, seventh=ctx.key, n=ctx.state)


class Pass(Computation):
    """Keeps nothing, and drops what is late: what comes through is a part of the whole, each once."""

    events = Input(key="id", late="drop")
    through = Output("id long")

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce(self.through, id=record.id)


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("fanout", late="process")
    pipeline.source("events", Rows(rows, EVENT, timestamp="at", splits=SPLITS))
    for computation in (ByUser, ByPair, ByFunction, Pass):
        pipeline.add(computation)
    for stream in "of_users alarms behind late-users of_pairs of_sevenths late_items through".split():
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    chance = random.Random(f"fanout {seed}")
    clocks = [0] * SPLITS
    rows = []
    for id in range(RECORDS):
        clocks[id % SPLITS] += chance.randint(0, 2_000)
        behind = 500_000 if id % 45 == 44 else chance.choice((0, 0, 0, 1_000))  # seldom: one under way holds the marks
        at = clocks[id % SPLITS] - behind
        rows.append({"id": id, "user": f"u{chance.randrange(15)}", "item": chance.randrange(60), "at": at})
    return rows


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    ids = [row["id"] for row in rows]
    on_time = _surely_on_time(rows)
    users, late = shown.rows("of_users"), shown.rows("late-users")
    yield from compare("by user and late", (row["id"] for row in [*users, *late]), ids)
    yield from none("called late by user though it was on time", (row for row in late if row["id"] in on_time))
    yield from none("processed behind the mark by user", shown.rows("behind"))
    yield from _numbered("by user", users, "user")
    in_time = {row["id"] for row in users}
    alarms = [row["id"] for row in rows if row["id"] in in_time and row["item"] >= ALARM]
    yield from compare("alarms", (row["id"] for row in shown.rows("alarms")), alarms)

    pairs = shown.rows("of_pairs")
    yield from compare("by pair", (row["id"] for row in pairs), ids)
    yield from _numbered("by pair", pairs, "user", "item")

    sevenths, aside = shown.rows("of_sevenths"), shown.rows("late_items")
    yield from compare("by function and late", (row["id"] for row in [*sevenths, *aside]), ids)
    wrong = (row for row in aside if row["id"] in on_time or row["item"] % 2 == 0)
    yield from none("diverted by function though it was not to be", wrong)
    yield from _numbered("by function", sevenths, "seventh")

    through = [row["id"] for row in shown.rows("through")]
    yield from compare("passed through", through, set(through) & set(ids) | on_time)
    yield from _unaltered(rows, [*late, *aside])


def _surely_on_time(rows: list[Row]) -> set[int]:
    """Records that are not older than any before them in their split."""
    newest: dict[int, int] = {}
    found = set()
    for row in rows:
        split = row["id"] % SPLITS
        if row["at"] >= newest.get(split, row["at"]):
            found.add(row["id"])
            newest[split] = row["at"]
    return found


def _numbered(what: str, rows: list[Row], *key: str) -> Iterator[str]:
    """Each key's records have the numbers from one on."""
    counts: dict[tuple[Any, ...], int] = {}
    for row in rows:
        of_key = tuple(row[name] for name in key)
        counts[of_key] = counts.get(of_key, 0) + 1
    yield from compare(
        f"numbers {what}",
        ((*(row[name] for name in key), row["n"]) for row in rows),
        ((*of_key, n) for of_key, count in counts.items() for n in range(1, count + 1)),
    )


def _unaltered(rows: list[Row], aside: list[Row]) -> Iterator[str]:
    """What was diverted is the record as it came, with its time."""
    by_id = {row["id"]: row for row in rows}
    yield from none("diverted, and not as it was", (row for row in aside if row != by_id[row["id"]] | {AT: row["at"]}))


fanout = Workload(
    "fanout", "one stream under four kinds of key, with late records dropped, processed and diverted", build,
    late=True, shards=3,
)  # fmt: skip
