"""What the coordinator's process knows of the run as a whole: the latest facts of every worker, as a `Progress`."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tidemill.core.coordinator import Coordinator
from tidemill.core.ids import BEGINNING, Micros, NodeName, Peer
from tidemill.observe.progress import (
    NodeProgress,
    Progress,
    ShardFacts,
    Status,
    WorkerFacts,
    WorkerProgress,
    known_mark,
    lag,
)


class Known(NamedTuple):
    """Of a process that joined."""

    address: str
    host: str
    pid: int


class Overview:
    def __init__(self, core: Coordinator, recovery: str, started: Micros) -> None:
        self._core = core
        self._recovery = recovery
        self._started = started
        self._facts: dict[Peer, WorkerFacts] = {}
        self.status: Status = "starting"

    def learn(self, peer: Peer, facts: WorkerFacts) -> None:
        self._facts[peer] = facts

    def progress(self, now: Micros, known: dict[Peer, Known], refused: int) -> Progress:
        alive = self._core.members.alive() if self._core.phase != "claiming" else []
        by_node = self._by_node()
        return Progress(
            self._core.graph.name,
            self._recovery,
            self.status,
            now,
            (now - self._started) / 1e6,
            tuple(self._node(NodeName(name), by_node.get(name, Counter()), now) for name in self._core.graph.nodes),
            tuple(self._worker(peer, known[peer]) for peer in alive if peer in known),
            refused + sum(facts.refused for facts in self._facts.values()),
        )

    def _by_node(self) -> dict[str, Counter[str]]:
        """Of those that are gone too: what they did was done."""
        found: dict[str, Counter[str]] = {}
        for peer, facts in self._facts.items():
            gone = not self._core.members.is_member(peer)
            for shard in facts.shards:
                found.setdefault(shard.node, Counter()).update(_counts(shard, gone=gone))
        return found

    def _node(self, name: NodeName, counts: Counter[str], now: Micros) -> NodeProgress:
        mark = self._core.authority.mark(name) if self._core.phase != "claiming" else BEGINNING
        return NodeProgress(
            name,
            self._core.graph.nodes[name].kind,
            counts["shards"],
            counts["records_in"],
            counts["records_out"],
            counts["late"],
            counts["malformed"],
            counts["queued"],
            known_mark(mark),
            lag(mark, now),
        )

    def _worker(self, peer: Peer, known: Known) -> WorkerProgress:
        facts = self._facts.get(peer)
        return WorkerProgress(
            peer.worker,
            peer.incarnation,
            known.host,
            known.pid,
            len(facts.shards) if facts else 0,
            facts.memory if facts else 0,
            facts.cpu_seconds if facts else 0.0,
        )


def _counts(shard: ShardFacts, *, gone: bool) -> dict[str, int]:
    done = {
        "records_in": shard.records_in,
        "records_out": shard.records_out,
        "late": shard.late,
        "malformed": shard.malformed,
    }
    return done if gone else {**done, "queued": shard.queued, "shards": 1}
