"""A worker's side of time: the marks its shards see, the marks it reports, and the receipts it owes.

A shard's input mark is the least of what the authority has published for those that send to it, and of its own queue.
It is computed here and not by the authority, so that what a shard has seen is never ahead of what it has received.

Inside a cycle a receipt names the worker's next report. The record's sender keeps answering for it until the authority
holds that report, so there is no moment at which nobody does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.core.flow import InChannel
from tidemill.core.graph import Graph
from tidemill.core.hosted import Hosted
from tidemill.core.ids import BEGINNING, END, Micros, NodeName, Peer, ShardId
from tidemill.core.messages import Marks, Receipt, Receipts, Report, ShardReport
from tidemill.core.shard import SourceShard


class Reporter:
    def __init__(self, graph: Graph, every: Micros, sign_of_life_every: Micros) -> None:
        self._graph = graph
        self._every = every
        self._sign_of_life_every = sign_of_life_every
        self._published: dict[NodeName, Micros] = {}
        self._idle: dict[NodeName, None] = {}
        self._at_rest: dict[NodeName, None] = {}
        self._allowed: dict[NodeName, tuple[Micros, Micros]] = {}  # by the senders, as they were last published
        self.stopping = False
        self._reported: dict[ShardId, ShardReport] = {}
        self._owed: dict[int, InChannel] = {}
        self._owed_weight = 0
        self._number = 0
        self._named = 0  # the highest report that a receipt named
        self._last = Micros(0)

    def reset(self) -> None:
        """Back to the beginning: marks fall, report numbers do not."""
        self._published = {}
        self._idle = {}
        self._at_rest = {}
        self._allowed = {}
        self._reported = {}
        self._owed = {}

    def stop(self) -> None:
        self.stopping = True

    def forget(self, shard: ShardId) -> None:
        self._reported.pop(shard, None)

    # Seen

    def published(self, message: Marks) -> dict[NodeName, None]:
        """Takes what the authority published; gives back the nodes whose marks rose, or that hold others no more."""
        idle = dict.fromkeys(message.idle)
        rose: dict[NodeName, None] = {node: None for node in idle if node not in self._idle}
        self._idle = idle
        self._at_rest = dict.fromkeys(message.at_rest)
        self._allowed = {}
        for node, mark in message.marks:
            if mark > self._published.get(node, BEGINNING):
                self._published[node] = mark
                rose[node] = None
        return rose

    def input_marks(self, hosted: Hosted) -> tuple[Micros, Micros]:
        """The input mark, and the part of it that comes from outside the shard's cycle."""
        name = hosted.node.name
        queued = hosted.oldest_queued()
        outside = self._least(self._graph.outside_senders[name], queued)
        if name not in self._graph.cycles:
            return outside, outside
        return self._least(self._graph.senders[name], queued), outside

    def may_advance(self, hosted: Hosted) -> bool:
        """Whether time may have something for the shard; found out cheaply, for it is asked after every bundle."""
        shard, name = hosted.shard, hosted.node.name
        assert shard is not None
        allowed = self._allowed.get(name)
        if allowed is None:
            whole = self._least(self._graph.senders[name], END)
            allowed = self._allowed[name] = whole, self._least(self._graph.outside_senders[name], END)
        return (
            allowed[0] > shard.mark
            or allowed[1] > shard.outside
            or shard.pending_timer()
            or shard.next_wake() is not None
        )

    def _least(self, nodes: tuple[NodeName, ...], mark: Micros) -> Micros:
        """The least mark of these nodes, or the one given. Idle nodes do not count, unless all of them are idle."""
        all_idle = bool(self._idle) and all(node in self._idle for node in nodes)
        for node in nodes:
            published = self._published.get(node, BEGINNING)
            if published < mark and (all_idle or node not in self._idle):
                mark = published
        return mark

    def runs_ahead(self, mark: Micros, max_skew: Micros | None) -> bool:
        """Whether a source should wait for the slowest one."""
        if max_skew is None:
            return False
        sources = [node.name for node in self._graph.of_kind("source")]
        slowest = self._least(tuple(sources), END)
        return slowest != BEGINNING and mark > slowest + max_skew

    # Owed

    def owes(self, weight: int) -> bool:
        """Whether senders are owed credit for so much."""
        return self._owed_weight >= weight

    def owe(self, channel: InChannel, weight: int = 0) -> None:
        self._owed_weight += weight
        if not channel.owed:
            channel.owed = True
            self._owed[id_of(channel)] = channel

    def receipts(self, hosted: dict[ShardId, Hosted]) -> Iterator[tuple[Peer, Receipts]]:
        """What every sender is owed, one message for each process."""
        by_peer: dict[Peer, list[Receipt]] = {}
        for channel in self._owed.values():
            holder = hosted.get(channel.id.to_shard)
            if holder is not None and holder.ins.get(channel.id.from_shard) is channel:
                by_peer.setdefault(channel.peer, []).append(channel.receipt(self._number + 1))
                self._named = self._number + 1
        self._owed = {}
        self._owed_weight = 0
        for peer, receipts in by_peer.items():
            yield peer, Receipts(receipts)

    # Reported

    def report(self, hosted: dict[ShardId, Hosted], now: Micros) -> Report | None:
        """What has changed since the last report; at times, that nothing has."""
        if now - self._last < self._every and now >= self._last:
            return None
        changed = []
        for shard, held in hosted.items():
            if held.shard is None:
                continue
            mark = held.answers_for()
            report = ShardReport(shard, held.adoption.epoch, mark, self._is_idle(held, mark), self._is_at_rest(held))
            if self._reported.get(shard) != report:
                self._reported[shard] = report
                changed.append(report)
        due = now - self._last >= self._sign_of_life_every or now < self._last
        if not changed and self._named <= self._number and not due:
            return None
        self._number += 1
        self._last = now
        return Report(self._number, changed)

    def _is_at_rest(self, held: Hosted) -> bool:
        """The run is being stopped and nothing is here, nor with anybody who sends to it: nothing more will come."""
        senders = self._graph.outside_senders[held.node.name]  # those on its own cycle come to rest with it
        return self.stopping and all(sender in self._at_rest for sender in senders) and held.at_rest()

    def _is_idle(self, held: Hosted, mark: Micros) -> bool:
        """Nothing is here, and nothing is expected: no work, no timer, and nobody who sends to it is busy."""
        shard = held.shard
        assert shard is not None
        if isinstance(shard, SourceShard):
            return shard.idle and held.at_rest()
        senders = self._graph.outside_senders[held.node.name]  # those on its own cycle are idle with it
        nobody_sends = bool(self._idle) and all(sender in self._idle for sender in senders)
        return nobody_sends and mark == shard.outside and held.at_rest()


def id_of(channel: InChannel) -> int:
    """A number for a channel end that is unique on its worker."""
    return (channel.id.from_shard << 64) | channel.id.to_shard
