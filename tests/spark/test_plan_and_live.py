"""A pipeline gives the same rows as a Spark plan and live: 200 pipelines and their inputs, drawn by hypothesis.

Many of them are parts of one larger pipeline, for starting a run takes longer than any of them: each has sources and
sinks of its own, and they have nothing to do with one another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.spark.conftest import session_of

PIPELINES = 200
TOGETHER = 25

SCHEMA = "k string, x double, flag boolean, v long, w double, at long"
SECOND = 1_000_000

keys = st.sampled_from(["a", "b", "c", "", None])
xs = st.sampled_from([0.0, -0.0, math.nan, 1.5, None])
values = st.one_of(st.none(), st.integers(-1_000, 1_000))
halves = st.one_of(st.none(), st.sampled_from([math.nan, 0.0, -0.0]), st.integers(-64, 64).map(lambda n: n / 2))
"""Sums of these are exact, in whatever order they are added."""

times = st.one_of(st.integers(-20, 20), st.integers(-20 * SECOND, 20 * SECOND))
"""Before 1970 and behind it, close together and far apart."""

rows = st.lists(st.tuples(keys, xs, st.booleans(), values, halves, times), min_size=5, max_size=40)


class Part(NamedTuple):
    """One of the pipelines: puts itself into the large one, and says which streams to compare."""

    kind: str
    build: Callable[[tm.Pipeline, str], list[str]]
    last_only: int = 0  # the results replace one another: compare the last for each value of so many first columns


def in_time(given: list[Any]) -> list[Any]:
    return sorted(given, key=lambda row: row[-1])


def source(pipeline: tm.Pipeline, name: str, given: list[Any], *, splits: int = 2, late: bool = False) -> Any:
    """In the order of time, unless records are to be late."""
    ordered = given if late else in_time(given)
    return pipeline.source(name, tm.sources.Rows(ordered, SCHEMA, timestamp="at", splits=splits))


AGGREGATES: dict[str, Any] = {
    "n": "count",
    "known": ("count", "v"),
    "total": ("sum", "v"),
    "sum_w": ("sum", "w"),
    "least": ("min", "w"),
    "most": ("max", "x"),
    "first": ("min", "k"),
    "mean": ("mean", "v"),
    "kinds": ("distinct", "x"),
}

SPANS = {
    "tumbling": tm.tumbling("7s"),
    "fine": tm.tumbling(3),
    "offset": tm.tumbling("5s", offset="2s"),
    "sliding": tm.sliding("6s", every="2s"),
    "session": tm.session(gap="3s"),
    "count": tm.count(3),
}


@st.composite
def windows(draw: Any, span: str) -> Part:
    given_rows = draw(rows)
    by = draw(st.lists(st.sampled_from(["k", "x", "flag"]), min_size=1, max_size=2, unique=True))
    names = draw(st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=4, unique=True))
    two_phase = (
        draw(st.sampled_from(["auto", False])) if span == "count" else draw(st.sampled_from(["auto", False, True]))
    )
    two_phase = "auto" if two_phase is True and "kinds" in names else two_phase
    if span == "count":  # which records a window holds depends on their order
        given_rows = [(*row[:-1], place) for place, row in enumerate(given_rows)]

    def build(pipeline: tm.Pipeline, name: str) -> list[str]:
        stream = source(pipeline, name, given_rows, splits=1 if span == "count" else 2)
        window = stream.key_by(*by).window(SPANS[span], two_phase=two_phase, name=f"{name}-out")
        return [window.aggregate(**{chosen: AGGREGATES[chosen] for chosen in names}).label]

    return Part(f"{span} window", build)


@st.composite
def late_windows(draw: Any) -> Part:
    """Rows in any order: what is late is taken in, and the last result of each window counts."""
    given_rows = draw(rows)

    def build(pipeline: tm.Pipeline, name: str) -> list[str]:
        stream = source(pipeline, name, given_rows, late=True)
        window = stream.key_by("k").window(tm.tumbling("5s"), allowed_lateness="1h", name=f"{name}-out")
        return [window.aggregate(n="count", total=("sum", "v")).label]

    return Part("late window", build, last_only=3)


@st.composite
def joins(draw: Any) -> Part:
    left, right = draw(rows), draw(rows)
    within = draw(st.sampled_from([0, 3, "2s", "30s"]))

    def build(pipeline: tm.Pipeline, name: str) -> list[str]:
        ours = source(pipeline, name, left).select("k", "flag", "v", "at")
        theirs = source(pipeline, f"{name}-other", right).select("k", other_flag="flag", other_v="v", other_at="at")
        joined = ours.key_by("k", "flag").join(theirs.key_by("k", "other_flag"), within=within, name=f"{name}-out")
        return [joined.label]

    return Part("join", build)


@st.composite
def steps(draw: Any) -> Part:
    mine, more = draw(rows), draw(rows)
    least = draw(st.integers(-100, 100))

    def build(pipeline: tm.Pipeline, name: str) -> list[str]:
        both = source(pipeline, name, mine).union(source(pipeline, f"{name}-more", more))
        kept = both.filter(pc.field("v") >= least).select("k", "x", double=pc.field("v") * 2)
        made = kept.map_batches(lambda batch: batch, "k string, x double, double long", name=f"{name}-out")
        return [made.label]

    return Part("steps", build)


@dataclass
class Opened:
    seen: dict[int, list[int]] = field(default_factory=dict)


def timers(given_rows: list[Any], width: int) -> Part:
    def build(pipeline: tm.Pipeline, name: str) -> list[str]:
        source(pipeline, name, given_rows)
        inputs = tm.Input(name, key=("k", "x"))
        out = tm.Output("k string, x double, window long, values string, mark boolean", f"{name}-out")
        pipeline.add(Windowing(inputs, out, width), name=f"{name}-timers")
        return [f"{name}-out"]

    return Part("timers", build)


class Windowing(tm.Computation):
    """Windows by hand, one record at a time: state for each key, and a timer for each window."""

    state = Opened

    def __init__(self, given_input: tm.Input, out: tm.Output, width: int) -> None:
        self.rows = given_input
        self.out = out
        self.width = width

    def process_record(self, ctx: Any, record: Any) -> None:
        window = record.timestamp // self.width
        ctx.state.seen.setdefault(window, []).append(record.v or 0)
        ctx.set_timer(str(window), (window + 1) * self.width)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        seen = ctx.state.seen.pop(int(timer.tag))
        if not ctx.state.seen:
            del ctx.state
        told = ",".join(map(str, sorted(seen)))
        mark = ctx.watermark >= timer.at
        ctx.produce(self.out, k=ctx.key[0], x=ctx.key[1], window=int(timer.tag), values=told, mark=mark)


KINDS = [
    *(windows(span) for span in SPANS),
    late_windows(),
    joins(),
    steps(),
    st.builds(timers, rows, st.sampled_from([7, SECOND, 5 * SECOND])),
]


def drawn(count: int) -> list[Part]:
    """The same ones every time."""
    found: list[Part] = []

    @settings(
        max_examples=count // len(KINDS),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*KINDS))
    def draw(several: tuple[Part, ...]) -> None:
        found.extend(several)

    draw()
    return found[:count]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    settings_of = {"spark_sql_adaptive_enabled": "false", "spark_sql_shuffle_partitions": "2"}
    with session_of("local[3]", **settings_of) as session:
        yield session


def normal(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def compared(found: list[tuple[Any, ...]], part: Part) -> Counter[tuple[Any, ...]]:
    """As often as each is there; of results that replace one another, the last."""
    rows_of = [tuple(map(normal, row)) for row in found]
    if part.last_only:
        rows_of = list({row[: part.last_only]: row for row in rows_of}.values())
    return Counter(rows_of)


PARTS = drawn(PIPELINES)


def test_all_kinds_are_there():
    kinds = Counter(part.kind for part in PARTS)
    assert len(PARTS) == PIPELINES
    assert set(kinds) == {*(f"{span} window" for span in SPANS), "late window", "join", "steps", "timers"}


@pytest.mark.parametrize("first", range(0, PIPELINES, TOGETHER))
def test_plan_and_live_give_the_same_rows(spark, live, first):
    pipeline = tm.Pipeline("generated")
    streams: dict[str, Part] = {}
    for number, part in enumerate(PARTS[first : first + TOGETHER], first):
        streams.update(dict.fromkeys(part.build(pipeline, f"p{number}"), part))
    sinks = {stream: tm.sinks.Collect() for stream in streams}
    for stream, sink in sinks.items():
        pipeline.sink(stream, sink)
    live(pipeline, workers=2).wait(120)

    def planned(stream: str) -> list[tuple[Any, ...]]:
        return [
            tuple(row)
            for row in pipeline.as_dataframe(stream, spark=spark).toArrow().to_pylist()
            for row in [row.values()]
        ]

    with ThreadPoolExecutor(3) as pool:
        plans = dict(zip(streams, pool.map(planned, streams), strict=True))
    some = 0
    for stream, part in streams.items():
        ran = [tuple(row.values()) for row in sinks[stream].rows]
        some += bool(ran)
        assert compared(ran, part) == compared(plans[stream], part), f"{part.kind}, {stream}"
    assert some > TOGETHER // 2, "most of them give rows"
