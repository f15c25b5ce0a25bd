"""A shard as its worker holds it: what waits to be handled, what waits to leave, and what it answers for in time.

The shard itself knows none of this. The worker moves records from the channels into the shard and from the shard into
the channels; here is the book-keeping in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidemill.core.bundle import Bundle
from tidemill.core.effects import CloseStage
from tidemill.core.flow import Arrival, InChannel, Item, OutChannel, weight_of
from tidemill.core.graph import Graph
from tidemill.core.ids import BEGINNING, END, Micros, NodeName, Peer, ShardId
from tidemill.core.keying import Keying
from tidemill.core.loops import LoopQueue
from tidemill.core.messages import Accepted, Adoption, ChannelId, Delivery, InBand, Receipt
from tidemill.core.routing import Route, Routing
from tidemill.core.shard import Shard, SinkShard


class Flush(NamedTuple):
    """What left the shard together and waits for the mechanism's release: records, a mark, a sink's records."""

    number: int
    bundles: list[Bundle]
    accepted: list[Bundle]
    mark: Micros
    oldest_input: Micros  # the least event time among the records that were handled for it
    weight: int  # of what was handled for it and of what it holds


class Lane:
    """The way from a shard to one of its consumers: a channel to each of the consumer's shards."""

    def __init__(self, graph: Graph, adoption: Adoption, consumer: NodeName, window: int) -> None:
        self.consumer = consumer
        self._window = window
        self.back_edge = (adoption.node, consumer) in graph.back_edges
        self.in_cycle = consumer in graph.cycles.get(adoption.node, ())
        self.channels: dict[ShardId, OutChannel] = {}
        self._sender = (adoption.shard, adoption.epoch)

    def follow(self, routing: Routing, keyings: dict[str, Keying]) -> None:
        """Takes the routing as it is now: opens, reopens and replaces channels."""
        routes = {route.shard: route for route in routing.of_node(self.consumer)}
        gone = [channel for shard, channel in self.channels.items() if shard not in routes]
        self.channels = {shard: channel for shard, channel in self.channels.items() if shard in routes}
        for shard, route in routes.items():
            channel = self.channels.get(shard)
            if channel is None:
                channel = self.channels[shard] = self._new_channel(route)
                for old in gone:
                    if old.range.overlaps(route.range):
                        channel.inherit_awaiting(old)
            elif (channel.id.to_epoch, channel.owner) != (route.epoch, route.owner):
                channel.reopen(route)
        # The records that a vanished shard had not taken are cut again, by the routing as it is now.
        for old in gone:
            for item in old.untaken():
                if isinstance(item, Bundle):
                    self.push(item, routing, keyings[item.stream])

    def _new_channel(self, route: Route) -> OutChannel:
        return OutChannel(*self._sender, route, window=self._window, back_edge=self.back_edge, in_cycle=self.in_cycle)

    def push(self, bundle: Bundle, routing: Routing, keying: Keying) -> None:
        for shard, part in routing.cut(bundle, self.consumer, keying):
            self.channels[shard].push(part)


class Hosted:
    def __init__(self, graph: Graph, adoption: Adoption, *, window: int, loop_memory: int) -> None:
        self.adoption = adoption
        self.node = graph.nodes[adoption.node]
        self.shard: Shard | None = None  # until the mechanism has restored it: no key runs before (Law 5)
        self.lanes = {consumer: Lane(graph, adoption, consumer, window) for consumer in graph.receivers[adoption.node]}
        self.keyings: dict[NodeName, dict[str, Keying]] = {
            consumer: {
                s.stream: Keying(s.key, graph.streams[s.stream])
                for s in graph.subscriptions
                if s.consumer == consumer and s.stream in self.node.outputs
            }
            for consumer in self.lanes
        }
        self.ins: dict[ShardId, InChannel] = {}
        self._senders_epochs: dict[ShardId, int] = {}
        self.queue: deque[Arrival] = deque()
        self.loop = LoopQueue(graph, loop_memory)
        self.blocked: dict[ShardId, deque[Arrival]] = {}
        self.flushes: deque[Flush] = deque()
        self.flush_number = 0
        self.released_mark = BEGINNING
        self.oldest_input = END
        self._window = window
        self._handled_weight = 0  # since the last flush
        self._unreleased_weight = 0
        self.dirty = False  # something was handled since the last flush
        self.records_in = 0
        self.records_out = 0
        self.listed = False  # in the worker's rotation
        self.reading = False  # a source's read is under way
        self.runs_ahead = False  # a source that is to wait for the others: look again at the next tick
        self.yielding = False
        self.yielding_together: dict[ShardId, None] = {}
        self.unsent: list[Bundle] = []  # a parent's
        self.sealing: int | None = None  # the round in which its sink's piece was asked for
        self.closing = False  # a piece is being made

    @property
    def id(self) -> ShardId:
        return self.adoption.shard

    # What arrives

    def channel(self, id: ChannelId, peer: Peer, *, back_edge: bool) -> InChannel | None:
        """The receiving end of a channel; `None` if a newer owner of the sending shard is known (Law 3)."""
        if id.from_epoch < self._senders_epochs.get(id.from_shard, 0):
            return None
        channel = self.ins.get(id.from_shard)
        if channel is None or channel.id != id:
            self._senders_epochs[id.from_shard] = id.from_epoch
            channel = self.ins[id.from_shard] = InChannel(id, peer, back_edge=back_edge)
        return channel

    def arrive(self, arrival: Arrival) -> bytes | None:
        """Takes an arrival; gives back what of it is to be spilled."""
        if arrival.channel.back_edge:
            return self.loop.put(arrival)
        held = self.blocked.get(arrival.channel.id.from_shard)
        (self.queue if held is None else held).append(arrival)
        return None

    def next_arrival(self) -> Arrival | None:
        """The next to handle. Records from outside enter a loop only when the loop itself has nothing waiting.

        While the shard is being yielded it is only what it sent to itself; what others sent stays untaken and goes to
        the new owner.
        """
        if self.waits_for_release():
            return None
        if self.yielding:
            return self.loop.pop_from(self.id)
        if self.loop:
            return None if self.congested(leaving_cycle=True) else self.loop.pop()
        return self.queue.popleft() if self.queue and not self.congested() else None

    def to_read_back(self) -> int:
        """How many bundles of the loop to ask back from the disk."""
        return self.loop.to_read_all() if self.yielding else self.loop.to_read_back()

    def block(self, sender: ShardId) -> None:
        """Holds back what this sender sent. Never one whose edge closes a cycle: a loop must not wait for itself."""
        assert sender not in self.blocked, "a sender is blocked once"
        self.blocked[sender] = deque(a for a in self.queue if a.channel.id.from_shard == sender)
        self.queue = deque(a for a in self.queue if a.channel.id.from_shard != sender)

    def unblock(self, sender: ShardId) -> None:
        self.queue.extend(self.blocked.pop(sender))

    def waits_for_release(self) -> bool:
        """So much was handled whose consequences may not leave yet that no more may be: a disk may be slow, or full."""
        return self._handled_weight + self._unreleased_weight >= self._window

    def held_back(self) -> bool:
        """Nothing new may come in, from wherever."""
        return self.congested() or self.waits_for_release()

    def may_read(self) -> bool:
        """Whether a source's shard may ask for more."""
        return not (self.reading or self.runs_ahead or self.yielding or self.held_back())

    def worked_off(self, arrival: Arrival) -> int:
        """Counts it; gives its weight, for which the sender is owed credit."""
        weight = weight_of(arrival.item)
        self._handled_weight += weight
        arrival.channel.worked += weight
        self.records_in += arrival.item.rows if isinstance(arrival.item, Bundle) else 0
        return weight

    # What leaves

    def congested(self, *, leaving_cycle: bool = False) -> bool:
        """Some receiver is behind: nothing more is handled that could add to it.

        A loop waits for receivers outside its cycle only. One inside may be waiting for this shard to take what it sent
        before it can be given to somebody else.
        """
        for lane in self.lanes.values():
            if leaving_cycle and lane.in_cycle:
                continue
            for channel in lane.channels.values():
                if channel.backlogged and not channel.back_edge:
                    return True
        return False

    def new_flush(self) -> Flush:
        assert self.shard is not None
        accepted = self.shard.take_accepted() if isinstance(self.shard, SinkShard) else []
        self.flush_number += 1
        bundles = [*self.unsent, *self.shard.flush()]
        self.unsent = []
        weight = self._handled_weight
        for bundle in bundles:
            weight += weight_of(bundle)
            self.records_out += bundle.rows
        flush = Flush(self.flush_number, bundles, accepted, self.shard.output_mark(), self.oldest_input, weight)
        self.flushes.append(flush)
        self._unreleased_weight += weight
        self._handled_weight = 0
        self.oldest_input = END
        self.dirty = False
        return flush

    def next_released(self, number: int) -> Flush | None:
        """The next flush that may leave, up to a number."""
        if not self.flushes or self.flushes[0].number > number:
            return None
        flush = self.flushes.popleft()
        self._unreleased_weight -= flush.weight
        return flush

    def push(self, item: Item, routing: Routing) -> None:
        for consumer, lane in self.lanes.items():
            if isinstance(item, Bundle):
                keying = self.keyings[consumer].get(item.stream)
                if keying is not None:
                    lane.push(item, routing, keying)
            else:
                for channel in lane.channels.values():
                    channel.push(item)

    def sendable(self) -> Iterator[tuple[Peer, Delivery | InBand]]:
        """What may leave for its receivers now."""
        for lane in self.lanes.values():
            for channel in lane.channels.values():
                for number, item in channel.sendable() if channel.backlogged else ():
                    assert channel.owner is not None
                    message = Delivery if isinstance(item, Bundle) else InBand
                    yield channel.owner, message(channel.id, number, item, channel.back_edge)  # type: ignore[arg-type]

    def follow(self, consumers: Iterable[NodeName], routing: Routing) -> None:
        """Takes the routing of these as it is now. A shard that is not restored yet will, when it is."""
        for consumer in consumers:
            lane = self.lanes.get(consumer)
            if lane is not None and self.shard is not None:
                lane.follow(routing, self.keyings[consumer])

    def receipt(self, receipt: Receipt) -> bool:
        """Whether it is for a channel of this shard's, as it is now."""
        for lane in self.lanes.values():
            channel = lane.channels.get(receipt.channel.to_shard)
            if channel is not None and channel.id == receipt.channel:
                channel.receipt(receipt)
                return True
        return False

    def accepted(self, reports: Iterable[Accepted]) -> None:
        """The authority holds these reports: what was taken inside a cycle before them is answered for."""
        for lane in self.lanes.values():
            for accepted in reports if lane.in_cycle else ():
                channel = lane.channels.get(accepted.shard)
                if channel is not None:
                    channel.accepted(accepted.epoch, accepted.report)

    def stage_to_close(self) -> CloseStage | None:
        """What was asked for of a sink's shard, once everything before it has been staged.

        One piece after the other: a commit that lists a later one is to list those before it too.
        """
        if self.sealing is None or self.dirty or self.flushes:
            return None
        if self.closing:
            return None
        round, self.sealing, self.closing = self.sealing, None, True
        return CloseStage(self.id, self.adoption.epoch, round)

    def at_rest(self) -> bool:
        """Nothing is here, and nothing that was sent is still untaken."""
        channels = [channel for lane in self.lanes.values() for channel in lane.channels.values()]
        nothing_here = not self.dirty and not self.flushes and not self.loop and not any(self._queues())
        return nothing_here and all(channel.drained and channel.oldest() is None for channel in channels)

    def drained(self) -> bool:
        """Everything that it will produce as it is has been taken, by others or by itself, and they answer for it."""
        return (
            not self.dirty
            and not self.flushes
            and all(
                (channel.drained and channel.oldest() is None) or shard in self.yielding_together
                for lane in self.lanes.values()
                for shard, channel in lane.channels.items()
            )
        )

    # What it answers for in time

    def oldest_queued(self) -> Micros:
        """The least event time among the records received and not yet handled."""
        times = [a.item.oldest for queue in self._queues() for a in queue if isinstance(a.item, Bundle)]
        times.append(self.loop.oldest())
        return min(times)

    def _queues(self) -> tuple[deque[Arrival], ...]:
        return (self.queue, *self.blocked.values())

    def answers_for(self) -> Micros:
        """The output mark that may be reported: nothing older will come from here, whatever has happened so far."""
        mark = min(self.released_mark, self.oldest_input, self.oldest_queued())
        for flush in self.flushes:
            oldest_output = min((bundle.oldest for bundle in flush.bundles), default=END)
            mark = min(mark, flush.oldest_input, oldest_output)
        for lane in self.lanes.values():
            for channel in lane.channels.values():
                oldest = channel.oldest()
                if oldest is not None and oldest < mark:
                    mark = oldest
        return mark

    def queued_weight(self) -> int:
        """What is held in memory and not handled yet."""
        return self.loop.weight + sum(weight_of(arrival.item) for queue in self._queues() for arrival in queue)
