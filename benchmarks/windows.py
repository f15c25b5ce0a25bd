"""What do windows cost?

One shard of a window, fed with bundles in the order of event time and with a mark behind each, as it is live under
heavy load: records a second of one core, in millions. `two phases` is both of them, one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from tidemill.core.bundle import Bundle, new_bundle, with_times
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, Micros, ShardId
from tidemill.core.ids import Sequence as Number
from tidemill.core.keys import FULL
from tidemill.core.order import BundleEntry, MarkEntry
from tidemill.core.shard import Place
from tidemill.core.succession import new_shard

KEYS = 10_000
BUNDLE = 65_536
PER_SECOND = 200_000  # of event time

SPANS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tumbling sum": (tm.tumbling("10s"), {"total": ("sum", "value")}),
    "tumbling all": (
        tm.tumbling("10s"),
        {
            "n": "count",
            "total": ("sum", "value"),
            "least": ("min", "value"),
            "most": ("max", "value"),
            "mean": ("mean", "value"),
        },
    ),
    "sliding sum": (tm.sliding("10s", every="2s"), {"total": ("sum", "value")}),
    "session sum": (tm.session("10ms"), {"total": ("sum", "value")}),
    "count sum": (tm.count(100), {"total": ("sum", "value")}),
}


def run(*, quick: bool) -> dict[str, Any]:
    bundles = 16 if quick else 48
    rounds = 2 if quick else 5
    figures: dict[str, Any] = {}
    print(f"{'millions of records a second':34}{'median':>8}{'most':>8}")
    for name, (span, aggregates) in SPANS.items():
        for kind in ("long", "string"):
            for two_phase in (False, True):
                if two_phase and name == "count sum":
                    continue
                measured = [_rate(span, aggregates, kind, bundles, two_phase=two_phase) for _ in range(rounds)]
                label = f"{name}, {kind} keys{', two phases' if two_phase else ''}"
                figures[label] = statistics.median(measured)
                print(f"{label:46}{figures[label]:8.1f}{max(measured):8.1f}")
    figures["join, long keys"] = max(_join_rate(bundles) for _ in range(rounds))
    print(f"{'join, long keys':46}{figures['join, long keys']:8.1f}")
    return figures


def _rate(span: Any, aggregates: dict[str, Any], kind: str, many: int, *, two_phase: bool) -> float:
    pipeline = tm.Pipeline("windows")
    source = tm.sources.Rows([], f"key {kind}, value long, at long", timestamp="at")
    option = {} if isinstance(span, type(tm.count(1))) else {"two_phase": two_phase}
    made = pipeline.source("readings", source).key_by("key").window(span, **option).aggregate(**aggregates)
    made.to(tm.sinks.Collect())
    return _measured(pipeline.graph(), list(_bundles(pipeline.graph(), "readings", kind, many)))


def _join_rate(many: int) -> float:
    pipeline = tm.Pipeline("windows")
    rows = tm.sources.Rows([], "key long, value long, at long", timestamp="at")
    left = pipeline.source("left", rows)
    right = pipeline.source("right", rows).select("key", other="value", then="at")
    left.key_by("key").join(right.key_by("key"), within="1ms").to(tm.sinks.Collect())
    graph = pipeline.graph()
    pairs = zip(_bundles(graph, "left", "long", many), _bundles(graph, "right", "long", many), strict=True)
    return _measured(graph, [bundle for pair in pairs for bundle in pair])


def _bundles(graph: Graph, stream: str, kind: str, many: int) -> Iterator[Bundle]:
    chance = np.random.default_rng(7)
    schema = next(made for name, made in graph.streams.items() if name == stream)
    for place in range(many):
        keys = chance.integers(0, KEYS, BUNDLE)
        names = pa.array(keys) if kind == "long" else pa.array(np.char.add("key-", keys.astype(str)))
        times = np.sort(chance.integers(0, BUNDLE, BUNDLE) + place * BUNDLE) * (1_000_000 // PER_SECOND)
        batch = pa.RecordBatch.from_arrays(
            [names, pa.array(chance.integers(-1_000, 1_000, BUNDLE)), pa.array(times)], schema=schema.schema
        )
        yield new_bundle(
            schema.name, ShardId(1), Number(place * BUNDLE + 1), with_times(batch, times, schema.wire_schema)
        )


def _measured(graph: Graph, bundles: list[Bundle]) -> float:
    """All computations of a graph, one after the other on what comes out of the one before."""
    shards = [
        new_shard(graph, Place(ShardId(number), node.name, FULL, Epoch(1)), 0)
        for number, node in enumerate(graph.of_kind("computation"), 1)
    ]
    began = time.perf_counter()
    for bundle in bundles:
        parts = [bundle]
        mark = Micros(int(bundle.oldest))
        for shard in shards:
            for part in parts:
                shard.handle(BundleEntry(part, Micros(0)))
            shard.handle(MarkEntry(mark, mark, Micros(0)))
            parts = shard.flush()
    return sum(bundle.rows for bundle in bundles) / (time.perf_counter() - began) / 1e6
