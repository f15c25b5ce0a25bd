"""A run that begins with state: every shard of it has its part, in its first life and in every later one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import tidemill as tm
from tests.trials import EXACT
from tidemill.core.computing import RecordShard
from tidemill.core.graph import Graph
from tidemill.core.ids import Epoch, NodeName, ShardId
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.pieces import begun, encode, rows_of
from tidemill.core.shard import Place
from tidemill.hosts.simulator.cluster import Simulation
from tidemill.hosts.simulator.faults import swarm
from tidemill.hosts.simulator.trial import MECHANISMS

KEYS = 40
BEFORE = 100
LIVE = 300


@dataclass
class Seen:
    n: int = 0


class Count(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word long, n long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)


class Saved:
    """What was counted before, in two parts that each hold keys of the whole ring."""

    def __init__(self) -> None:
        self.parts = [[encode(row) for row in rows(keys)] for keys in (range(0, KEYS, 2), range(1, KEYS, 2))]

    def load(self, range: KeyRange) -> list[list[bytes]]:
        return self.parts


def rows(keys):
    shard = begun(graph_of(range(0)), Place(ShardId(1), NodeName("count"), FULL, Epoch(1)), 0, [])
    assert isinstance(shard, RecordShard)
    for key in keys:
        shard.state.active[key].n = BEFORE
    return [row for _, _, row in rows_of(shard)]


def graph_of(keys) -> Graph:
    pipeline = tm.Pipeline("initial")
    pipeline.source("words", tm.sources.Rows([(key,) for key in keys], "word long", splits=3))
    pipeline.add(Count)
    pipeline.sink("counts", tm.sinks.Collect())
    return pipeline.graph()


@pytest.mark.parametrize("mechanism", EXACT)
@pytest.mark.parametrize("seed", range(12))
def test_counts_go_on_from_what_was_counted(mechanism, seed):
    graph = graph_of(n * 7 % KEYS for n in range(LIVE))
    count = NodeName("count")
    nodes = {**graph.nodes, count: replace(graph.nodes[count], initial=Saved())}
    began = Graph(graph.name, graph.streams, nodes, graph.subscriptions)
    outcome = Simulation(began, MECHANISMS[mechanism], seed=seed, workers=4, faults=swarm(seed)).run()
    assert outcome.finished
    given = [row for batches in outcome.committed.values() for batch in batches for row in batch.to_pylist()]
    seen = [sum(n * 7 % KEYS == key for n in range(LIVE)) for key in range(KEYS)]
    expected = sorted((key, BEFORE + n + 1) for key in range(KEYS) for n in range(seen[key]))
    assert sorted((row["word"], row["n"]) for row in given) == expected
