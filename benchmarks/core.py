"""What does the core cost?

`bundle_us`: a bundle of one record, from the packet that brings it to the packet that takes its result away, beside the
user's code: the link, the channel, the shard, the flush, the mechanism's release, the routing, the receipt.
`record_ratio`, `vector_ratio`: the rate of one shard against the same user code in a bare loop (`plain.py`).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.plain import (
    KEYS,
    WINDOW,
    BareContext,
    Count,
    Seen,
    WindowSum,
    count_records,
    own_copy,
    sum_windows,
)
from tidemill.core import events
from tidemill.core.bundle import Bundle, new_bundle, with_times
from tidemill.core.effects import Send
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, Incarnation, Micros, NodeName, Peer, ShardId, StreamName, WorkerId
from tidemill.core.ids import Sequence as Number
from tidemill.core.keys import FULL, even_ranges
from tidemill.core.limits import Limits
from tidemill.core.link import Links
from tidemill.core.messages import (
    Adopt,
    Adoption,
    ChannelId,
    Delivery,
    Lineage,
    Packet,
    Receipt,
    Receipts,
    Routes,
)
from tidemill.core.order import BundleEntry, MarkEntry
from tidemill.core.routing import Route
from tidemill.core.shard import Place
from tidemill.core.succession import new_shard
from tidemill.core.worker import Worker
from tidemill.recovery.nothing import Nothing

ME = Peer(WorkerId(0), Incarnation(1))
OTHER = Peer(WorkerId(1), Incarnation(1))
COORDINATOR = Peer(WorkerId(-1), Incarnation(1))


def run(*, quick: bool) -> dict[str, Any]:
    rounds = 4 if quick else 16  # as many with the one side first as with the other
    figures: dict[str, Any] = {}
    print(f"{'':14}{'median':>10}{'least':>10}{'most':>10}")
    for name, measure in (("bundle_us", bundle_cost), ("record_ratio", record_ratio), ("vector_ratio", vector_ratio)):
        measured = measure(rounds)
        figures[name] = statistics.median(measured)
        figures[f"{name}_rounds"] = measured
        print(f"{name:14}{figures[name]:10.2f}{min(measured):10.2f}{max(measured):10.2f}")
    return figures


# Bundles of one record


def bundle_cost(rounds: int) -> list[float]:
    graph = _count_graph()
    words = [f"word{place % KEYS}" for place in range(5_000)]
    bundles = _bundles(graph, "words", [pa.RecordBatch.from_arrays([pa.array([word])], ["word"]) for word in words])
    own = _user_code_us(words)
    return [_one_by_one(graph, bundles) - own for _ in range(rounds)]


def _user_code_us(words: Sequence[str]) -> float:
    """What the user's function alone costs a record: it is no cost of the core."""
    program, ctx = own_copy(), BareContext()
    ctx.rows, ctx.key, ctx.state = [], "word", Seen()
    began = time.perf_counter()
    for word in words:
        program.process_record(ctx, word)
    return (time.perf_counter() - began) / len(words) * 1e6


def _one_by_one(graph: Graph, bundles: Sequence[Bundle]) -> float:
    """Microseconds for each bundle, through a worker that has nothing else to do."""
    worker, links = _worker(graph)
    channel = ChannelId(ShardId(1), Epoch(1), ShardId(2), Epoch(1))
    packets = [links.send(ME, Delivery(channel, n + 1, bundle), Micros(0)).packet for n, bundle in enumerate(bundles)]
    left = 0
    began = time.perf_counter()
    for packet in packets:
        worker.handle(events.Received(Micros(1), packet))
        while worker.busy:
            for effect in worker.handle(events.Turn(Micros(1))):
                if type(effect) is Send and type(effect.packet.message) is Delivery:
                    left += 1
                    sent = effect.packet
        if left % 100 == 0:  # now and then the receiver of the results acknowledges, so that nothing piles up
            _take(worker, sent)
    took = time.perf_counter() - began
    assert left == len(bundles), f"{len(bundles)} went in and {left} came out"
    return took / len(bundles) * 1e6


def _worker(graph: Graph) -> tuple[Worker, Links]:
    """A worker that owns half of the count; the source, the other half and the sink are elsewhere."""
    worker = Worker(ME, graph, Nothing().worker_half(), Limits(), plan_seed=0)
    worker.meet(COORDINATOR)
    coordinator, other = Links(COORDINATOR), Links(OTHER)
    low, high = even_ranges(2)
    count, sink, epoch = NodeName("count"), NodeName("sink:counts"), Epoch(1)
    routes = [
        Route(ShardId(1), NodeName("source:words"), FULL, epoch, OTHER),
        Route(ShardId(2), count, low, epoch, None),
        Route(ShardId(3), count, high, epoch, OTHER),
        Route(ShardId(4), sink, low, epoch, OTHER),
        Route(ShardId(5), sink, high, epoch, OTHER),
    ]
    adopt = Adopt([Adoption(ShardId(2), count, low, epoch, Lineage(ShardId(2), low, []))])
    for message in (Routes([], routes, [], whole=True), adopt):
        worker.handle(events.Received(Micros(0), coordinator.send(ME, message, Micros(0)).packet))
    while worker.busy:
        worker.handle(events.Turn(Micros(0)))
    return worker, other


def _take(worker: Worker, sent: Packet) -> None:
    assert isinstance(sent.message, Delivery)
    channel, number = sent.message.channel, sent.message.number
    receipts = Receipts([Receipt(channel, number, number * 17, 0)])
    worker.handle(events.Received(Micros(1), Packet(OTHER, ME, 0, sent.number, None)))
    worker._receipts(OTHER, receipts)  # noqa: SLF001 - its own packet would only measure the benchmark's link


# Rates against the bare loop


def record_ratio(rounds: int) -> list[float]:
    rows, many = 8_192, 40
    chance = np.random.default_rng(1)
    drawn = chance.integers(0, KEYS, (many, rows))
    batches = [pa.RecordBatch.from_arrays([pa.array([f"word{n}" for n in row])], ["word"]) for row in drawn.tolist()]
    graph = _count_graph()
    bundles = _bundles(graph, "words", batches)

    def shard() -> int:
        counting = new_shard(graph, Place(ShardId(2), NodeName("count"), FULL, Epoch(1)), 0)
        left = 0
        for bundle in bundles:
            counting.handle(BundleEntry(bundle, Micros(1)))
            left += sum(out.rows for out in counting.flush())
        return left

    def plain() -> int:
        return sum(batch.num_rows for batch in count_records(batches))

    return _ratios(rounds, shard, plain)


def vector_ratio(rounds: int) -> list[float]:
    rows, many = 65_536, 40
    chance = np.random.default_rng(1)
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(chance.integers(0, KEYS, rows)), pa.array(chance.integers(0, 100, rows))], ["item", "amount"]
        )
        for _ in range(many)
    ]
    graph = _sum_graph()
    bundles = _bundles(graph, "sales", batches)
    ends = [place % 4 == 3 for place in range(many)]

    def shard() -> int:
        summing = new_shard(graph, Place(ShardId(2), NodeName("window-sum"), FULL, Epoch(1)), 0)
        left = 0
        for place, (bundle, over) in enumerate(zip(bundles, ends, strict=True)):
            summing.handle(BundleEntry(bundle, Micros(1)))
            if over:
                mark = Micros((place + 1) * WINDOW)
                summing.handle(MarkEntry(mark, mark, Micros(1)))
            left += sum(out.rows for out in summing.flush())
        return left

    def plain() -> int:
        return sum(batch.num_rows for batch in sum_windows(batches, ends))

    return _ratios(rounds, shard, plain)


def _ratios(rounds: int, ours: Callable[[], int], plain: Callable[[], int]) -> list[float]:
    """The two sides in turns, each round with the other first; what comes out must be as much on both sides."""
    assert ours() == plain(), "the two sides do not do the same work"
    ratios = []
    for place in range(rounds):
        first, second = (ours, plain) if place % 2 else (plain, ours)
        times = {side: _seconds(side) for side in (first, second)}
        ratios.append(times[plain] / times[ours])
    return ratios


def _seconds(work: Callable[[], int]) -> float:
    gc.collect()  # what one side left behind is not for the other to clear away
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _bundles(graph: Graph, stream: str, batches: Sequence[pa.RecordBatch]) -> list[Bundle]:
    name = StreamName(stream)
    bundles, first = [], 1
    for place, batch in enumerate(batches):
        times = np.full(batch.num_rows, place * WINDOW, np.int64)
        wire = with_times(batch, times, graph.streams[name].wire_schema)
        bundles.append(new_bundle(name, ShardId(1), Number(first), wire))
        first += batch.num_rows
    return bundles


def _count_graph() -> Graph:
    pipeline = tm.Pipeline("count")
    pipeline.source("words", tm.sources.Rows([], "word string"))
    pipeline.add(Count)
    pipeline.sink("counts", tm.sinks.Collect())
    return pipeline.graph()


def _sum_graph() -> Graph:
    pipeline = tm.Pipeline("sums")
    pipeline.source("sales", tm.sources.Rows([], "item long, amount long", timestamp=tm.ARRIVAL))
    pipeline.add(WindowSum)
    pipeline.sink("totals", tm.sinks.Collect())
    return pipeline.graph()
