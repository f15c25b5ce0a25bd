"""A worker: hosts shards, moves records between them and the other workers, and does what its mechanism decides.

    handle(event) -> [effect, ...]

It never waits. Between events it holds what is to be done, and says so by `busy`; the host then gives it a `Turn`, in
which one bundle is handled. Whatever is flushed is held until the mechanism releases it. A bundle leaves when it is
full or when nothing else is to be done, so light load makes small bundles at once and heavy load makes large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidemill.core import decisions as d
from tidemill.core import effects, events, messages
from tidemill.core.bundle import Bundle
from tidemill.core.effects import Effect
from tidemill.core.flow import Arrival
from tidemill.core.graph import Graph
from tidemill.core.halves import WorkerDecisions, WorkerHalf
from tidemill.core.hosted import Hosted
from tidemill.core.ids import Micros, Peer, ShardId
from tidemill.core.keys import FULL
from tidemill.core.limits import Limits
from tidemill.core.link import AnyMessage, Links
from tidemill.core.marking import Reporter
from tidemill.core.messages import Delivery
from tidemill.core.order import BundleEntry, Entry, MarkEntry, WakeEntry
from tidemill.core.reading import read_on, what_was_read
from tidemill.core.routing import Routing
from tidemill.core.shard import Shard, SourceShard
from tidemill.errors import TidemillError

RECEIPTS_EVERY: Final = 16
"""After so many turns the senders are told what was worked off. Also with every tick, and when it gives much credit."""


class Worker:
    def __init__(
        self,
        me: Peer,
        graph: Graph,
        half: WorkerHalf,
        limits: Limits,
        plan_seed: int,
        trace_of: Callable[[Exception], str] = lambda _: "",
    ) -> None:
        self.me = me
        self.graph = graph
        self.half = half
        self.limits = limits
        self.plan_seed = plan_seed
        self._trace_of = trace_of  # how the host writes down where an exception came from
        self.links = Links(me)
        self.coordinator: Peer | None = None
        self.routing = Routing()
        self.hosted: dict[ShardId, Hosted] = {}
        self.reporter = Reporter(graph, limits.report_every, limits.sign_of_life_every)
        self.refused = 0
        self.now = Micros(0)
        self.halted: messages.Failed | None = None
        self._turns = 0
        self._rotation: deque[Hosted] = deque()
        self._unflushed: dict[ShardId, Hosted] = {}
        self._out: list[Effect] = []
        self._set_tables()

    def _set_tables(self) -> None:
        """Who answers to what."""
        self._on_event: dict[type, Callable[[Any], None]] = {
            events.Started: lambda _: None,
            events.Received: self._received,
            events.Turn: lambda _: self._turn(),
            events.Ticked: lambda _: self._ticked(),
            events.ReadDone: self._read_done,
            events.ReadBackDone: self._read_back,
            events.InitialLoaded: self._begin_with,
            events.Persisted: lambda event: self._decide(self.half.persisted(event.ticket)),
            events.Refused: lambda event: self._decide(self.half.refused(event.ticket)),
            events.Loaded: lambda event: self._decide(self.half.loaded(event.ticket, event.entries)),
            events.SealDone: self._seal_done,
            events.Broken: lambda event: self._halt(event.error),
        }
        self._on_message: dict[type, Callable[[Peer, Any], None]] = {
            Delivery: self._delivery,
            messages.InBand: self._in_band,
            messages.Receipts: self._receipts,
            messages.Marks: self._marks,
            messages.Routes: self._routes,
            messages.Adopt: self._adopt,
            messages.Reset: self._reset,
            messages.Yield: self._yield,
            messages.Seal: self._seal,
            messages.Stop: lambda _, __: self.reporter.stop(),
            messages.Tell: lambda sender, message: self._decide(self.half.told(sender, message.payload)),
            messages.Outdated: lambda _, __: self._out.append(effects.Exit("outdated")),
            messages.Finished: lambda _, __: self._out.append(effects.Exit("finished")),
        }
        self._on_decision: dict[type, Callable[[Any], None]] = {
            d.Install: self._install,
            d.Release: lambda decision: self._release(decision.shard, decision.flush),
            d.Acknowledge: self._acknowledge,
            d.Block: lambda decision: self.hosted[decision.shard].block(decision.sender),
            d.Unblock: self._unblock,
            d.SendMarker: self._send_marker,
            d.GiveUp: lambda decision: self._drop(decision.shard),
            d.TellHalf: self._tell,
            effects.Append: self._perform,
            effects.OpenLog: self._perform,
        }

    # The loop

    @property
    def busy(self) -> bool:
        """Whether a turn would find something to do."""
        return self.halted is None and bool(self._rotation or self._unflushed)

    def handle(self, event: events.WorkerEvent) -> list[Effect]:
        self.now = event.now
        out: list[Effect] = []
        self._out = out
        if self.halted is None:
            try:
                self._on_event[type(event)](event)
            except TidemillError as error:  # user code raised; anything else is a fault of ours and may not pass
                self._halt(error)
        else:
            self._keep_saying(event)
        return out

    def _halt(self, error: Exception) -> None:
        """Nothing more is handled, released or acknowledged here: what failed was not done, and must not seem so."""
        self.halted = messages.Failed(type(error).__name__, str(error), self._trace_of(error))
        self._to_coordinator(self.halted)

    def _keep_saying(self, event: events.WorkerEvent) -> None:
        if isinstance(event, events.Ticked):
            self._out.extend(self.links.tick(self.now))
        elif isinstance(event, events.Received):
            arrived, sends = self.links.receive(event.packet, self.now)
            self._out.extend(sends)
            for message in arrived:
                if isinstance(message, messages.Outdated | messages.Finished):
                    self._on_message[type(message)](event.packet.sender, message)

    def meet(self, coordinator: Peer) -> None:
        """The host found the run's coordinator, perhaps a new one."""
        if self.coordinator is None or coordinator.incarnation > self.coordinator.incarnation:
            self.coordinator = coordinator
            self.links.heard_of(coordinator)

    def greet(self, now: Micros) -> list[Effect]:
        self.now = now
        out: list[Effect] = []
        self._out = out
        self._to_coordinator(messages.Hello())
        if self.halted is not None:
            self._to_coordinator(self.halted)
        return out

    def _received(self, event: events.Received) -> None:
        arrived, sends = self.links.receive(event.packet, self.now)
        self._out.extend(sends)
        for message in arrived:
            self._on_message[type(message)](event.packet.sender, message)

    def _send(self, to: Peer, message: AnyMessage) -> None:
        if not self.links.gave_up(to):
            self._out.append(self.links.send(to, message, self.now))

    def _to_coordinator(self, message: AnyMessage) -> None:
        if self.coordinator is not None:
            self._send(self.coordinator, message)

    def _perform(self, effect: Effect) -> None:
        self._out.append(effect)

    def _decide(self, decisions: WorkerDecisions) -> None:
        for decision in decisions:
            self._on_decision[type(decision)](decision)

    def _schedule(self, hosted: Hosted) -> None:
        if not hosted.listed and hosted.shard is not None:
            hosted.listed = True
            self._rotation.append(hosted)

    # Ownership

    def _adopt(self, _: Peer, message: messages.Adopt) -> None:
        for adoption in message.adoptions:
            self._drop(adoption.shard)
            self.hosted[adoption.shard] = Hosted(
                self.graph, adoption, window=self.limits.window, loop_memory=self.limits.loop_memory
            )
            if self.graph.nodes[adoption.node].initial is None:
                self._decide(self.half.adopt(adoption, self.graph, self.plan_seed))
            else:  # ancestors' logs, if it has any, go over their own ranges
                range = FULL if adoption.lineage.parents else adoption.range
                self._out.append(effects.LoadInitial(adoption.shard, adoption.epoch, adoption.node, range))

    def _begin_with(self, event: events.InitialLoaded) -> None:
        hosted = self.hosted.get(event.shard)
        if hosted is not None and hosted.adoption.epoch == event.epoch:
            adoption = msgspec.structs.replace(hosted.adoption, initial=event.parts)
            self._decide(self.half.adopt(adoption, self.graph, self.plan_seed))

    def _install(self, decision: d.Install) -> None:
        place = decision.shard.place
        hosted = self.hosted.get(place.shard)
        if hosted is None or hosted.adoption.epoch != place.epoch:
            return  # taken away again while it was being restored
        hosted.shard = decision.shard
        hosted.unsent = decision.unsent
        hosted.follow(hosted.lanes, self.routing)
        self._mark_dirty(hosted)  # what it had produced leaves first; until then no mark of it is known (Law 5)
        self._to_coordinator(messages.Ready(place.shard, place.epoch))
        self._schedule(hosted)

    def _drop(self, shard: ShardId) -> None:
        hosted = self.hosted.pop(shard, None)
        if hosted is not None:
            hosted.shard = None  # whoever still holds it has nothing to work on
            if hosted.loop.ever_spilled:
                self._out.append(effects.DropSpill(shard, hosted.adoption.epoch))
            self.half.dropped(shard)
            self.reporter.forget(shard)
            self._unflushed.pop(shard, None)
            if hosted.listed:
                self._rotation.remove(hosted)

    def _reset(self, _: Peer, __: messages.Reset) -> None:
        for shard in list(self.hosted):
            self._drop(shard)
        self.routing.clear()
        self.reporter.reset()

    def _yield(self, _: Peer, message: messages.Yield) -> None:
        hosted = self.hosted.get(message.shard)
        if hosted is not None and hosted.adoption.epoch == message.epoch:
            hosted.yielding = True
            hosted.yielding_together = dict.fromkeys(shard for shard in message.together if shard != message.shard)
            self._yield_if_drained(hosted)

    def _yield_if_drained(self, hosted: Hosted) -> None:
        if hosted.yielding and hosted.shard is not None and hosted.drained():
            self._drop(hosted.id)
            self._to_coordinator(messages.Yielded(hosted.id, hosted.adoption.epoch))

    def _routes(self, _: Peer, message: messages.Routes) -> None:
        for peer in message.gone:
            self.links.give_up(peer)
        touched = self.routing.follow(message.removed, message.changed, whole=message.whole)
        for hosted in self.hosted.values():
            hosted.follow(touched, self.routing)
            self._send_from(hosted)
            self._schedule(hosted)

    # Records

    def _delivery(self, sender: Peer, message: Delivery | messages.InBand) -> None:
        hosted = self._receiver(message.channel)
        if hosted is None:
            self.refused += 1
            return
        channel = hosted.channel(message.channel, sender, back_edge=message.back_edge)
        if channel is None:
            self.refused += 1
            return
        assert message.number == channel.number + 1, "the link keeps the order and loses nothing"
        channel.number = message.number
        item = message.bundle if isinstance(message, Delivery) else message.marker
        arrival = Arrival(channel, message.number, item)
        spilled = hosted.arrive(arrival)
        if spilled is not None:
            self._out.append(effects.Spill(hosted.id, hosted.adoption.epoch, spilled))
        self._decide(self.half.arrived(hosted.id, arrival))
        self._schedule(hosted)

    _in_band = _delivery

    def _receiver(self, channel: messages.ChannelId) -> Hosted | None:
        """The shard that a channel leads to, if it is here, restored, and under the epoch that the sender knows."""
        hosted = self.hosted.get(channel.to_shard)
        if hosted is None or hosted.shard is None or hosted.adoption.epoch != channel.to_epoch:
            return None
        return hosted

    def _receipts(self, _: Peer, message: messages.Receipts) -> None:
        for receipt in message.receipts:
            hosted = self.hosted.get(receipt.channel.from_shard)
            if hosted is None:
                continue
            if hosted.receipt(receipt):
                self._decide(self.half.acknowledged(hosted.id, receipt.channel.to_shard, receipt.taken))
            self._send_from(hosted)
            self._yield_if_drained(hosted)
            self._schedule(hosted)

    def _turn(self) -> None:
        if self._rotation:
            hosted = self._rotation.popleft()
            hosted.listed = False
            self._turns += 1
            again = self._work(hosted)
            if again:
                self._schedule(hosted)
            # What a shard has leaves when it has nothing else to do, however busy the others are.
            if hosted.dirty and hosted.shard is not None and (not again or self._is_full(hosted.shard)):
                self._flush(hosted)
        if not self._rotation:
            for hosted in list(self._unflushed.values()):
                self._flush(hosted)
        if self._turns % RECEIPTS_EVERY == 0 or (not self._rotation and self.reporter.owes(self.limits.window // 4)):
            self._send_receipts()

    def _is_full(self, shard: Shard) -> bool:
        return shard.produced >= self.limits.full_bundle

    def _send_receipts(self) -> None:
        for peer, receipts in self.reporter.receipts(self.hosted):
            self._send(peer, receipts)

    def _work(self, hosted: Hosted) -> bool:
        """One piece of work for a shard; whether there may be more."""
        arrival = hosted.next_arrival()
        if arrival is not None:
            self._handle_arrival(hosted, arrival)
            return bool(hosted.queue or hosted.loop) or self.reporter.may_advance(hosted)
        if to_read_back := hosted.to_read_back():
            self._out.append(effects.ReadBack(hosted.id, hosted.adoption.epoch, to_read_back))
        if isinstance(hosted.shard, SourceShard):
            self._read(hosted)
            return False
        if hosted.yielding:
            self._yield_if_drained(hosted)
            return False
        return self._advance(hosted)

    def _handle_arrival(self, hosted: Hosted, arrival: Arrival) -> None:
        assert hosted.shard is not None
        if isinstance(arrival.item, Bundle):
            hosted.oldest_input = min(hosted.oldest_input, arrival.item.oldest)
            entry = hosted.shard.handle(BundleEntry(arrival.item, self.now))
            self._after(hosted, entry, arrival)
        else:
            self._decide(self.half.marker(hosted.shard, arrival.channel.id.from_shard, arrival.item))
        self.reporter.owe(arrival.channel, hosted.worked_off(arrival))

    def _after(self, hosted: Hosted, entry: Entry | None, arrival: Arrival | None) -> None:
        assert hosted.shard is not None
        self._mark_dirty(hosted)
        self._decide(self.half.handled(hosted.shard, entry, arrival))

    def _mark_dirty(self, hosted: Hosted) -> None:
        hosted.dirty = True
        self._unflushed[hosted.id] = hosted

    def _read_back(self, event: events.ReadBackDone) -> None:
        hosted = self.hosted.get(event.shard)
        if hosted is not None and hosted.adoption.epoch == event.epoch:
            hosted.loop.read_back(event.entries)
            self._schedule(hosted)

    def _advance(self, hosted: Hosted) -> bool:
        """Raises the input mark as far as the senders and the queue allow, and fires what is due."""
        shard = hosted.shard
        assert shard is not None
        mark, outside = self.reporter.input_marks(hosted)
        wake = shard.next_wake()
        if mark > shard.mark or outside > shard.outside or shard.pending_timer():
            entry: MarkEntry | WakeEntry = MarkEntry(mark, outside, self.now)
        elif wake is not None and wake <= self.now and not self.reporter.stopping:
            entry = WakeEntry(self.now)
        else:
            return False
        self._after(hosted, shard.handle(entry), None)
        return True

    def _read(self, hosted: Hosted) -> None:
        shard = hosted.shard
        assert isinstance(shard, SourceShard)
        if not hosted.may_read() or shard.ended or self.reporter.stopping:
            self._yield_if_drained(hosted)
        elif self.reporter.runs_ahead(shard.mark, self.limits.max_skew):
            hosted.runs_ahead = True
        else:
            hosted.reading = True
            self._out.append(read_on(hosted, self.routing, self.limits.read))

    def _read_done(self, event: events.ReadDone) -> None:
        hosted = self.hosted.get(event.shard)
        if hosted is None or hosted.adoption.epoch != event.epoch or not hosted.reading:
            return  # asked under an earlier ownership
        hosted.reading = False
        if self.reporter.stopping:
            return  # it was not handled, so it was not read
        assert isinstance(hosted.shard, SourceShard)
        entry = what_was_read(hosted.shard, event)
        if entry is not None:
            for bundle in (entry.bundle, entry.malformed):
                if bundle is not None:
                    hosted.oldest_input = min(hosted.oldest_input, bundle.oldest)
            self._after(hosted, hosted.shard.handle(entry), None)
        self._schedule(hosted)

    # Leaving

    def _flush(self, hosted: Hosted) -> None:
        self._unflushed.pop(hosted.id, None)
        flush = hosted.new_flush()
        self._decide(self.half.flushed(hosted.id, flush.number))

    def _release(self, shard: ShardId, number: int) -> None:
        hosted = self.hosted.get(shard)
        if hosted is None:
            return
        was_held_back = hosted.waits_for_release()
        while (flush := hosted.next_released(number)) is not None:
            for bundle in flush.bundles:
                hosted.push(bundle, self.routing)
            for bundle in flush.accepted:
                self._out.append(effects.Stage(shard, hosted.adoption.epoch, bundle))
            hosted.released_mark = flush.mark
        self._send_from(hosted)
        self._yield_if_drained(hosted)
        self._seal_if_due(hosted)
        if was_held_back:
            self._schedule(hosted)

    def _send_from(self, hosted: Hosted) -> None:
        for owner, message in hosted.sendable():
            self._send(owner, message)

    def _acknowledge(self, decision: d.Acknowledge) -> None:
        hosted = self.hosted.get(decision.channel.to_shard)
        channel = hosted.ins.get(decision.channel.from_shard) if hosted is not None else None
        if channel is not None and channel.id == decision.channel:
            channel.taken = max(channel.taken, decision.number)
            self.reporter.owe(channel)

    def _unblock(self, decision: d.Unblock) -> None:
        hosted = self.hosted[decision.shard]
        hosted.unblock(decision.sender)
        self._schedule(hosted)

    def _send_marker(self, decision: d.SendMarker) -> None:
        hosted = self.hosted[decision.shard]
        assert not hosted.dirty
        assert not hosted.flushes, "a marker goes behind everything that was produced before it"
        hosted.push(decision.marker, self.routing)
        self._send_from(hosted)

    def _tell(self, decision: d.TellHalf) -> None:
        to = decision.peer if decision.peer is not None else self.coordinator
        if to is not None:
            self._send(to, messages.Tell(decision.payload))

    # Sinks

    def _seal(self, _: Peer, message: messages.Seal) -> None:
        hosted = self.hosted.get(message.shard)
        if hosted is not None and hosted.adoption.epoch == message.epoch:
            hosted.sealing = message.round
            self._seal_if_due(hosted)

    def _seal_if_due(self, hosted: Hosted) -> None:
        if (closing := hosted.stage_to_close()) is not None:
            self._out.append(closing)

    def _seal_done(self, event: events.SealDone) -> None:
        hosted = self.hosted.get(event.shard)
        if hosted is not None and hosted.adoption.epoch == event.epoch:
            self._to_coordinator(messages.Sealed(event.shard, event.epoch, event.piece, event.round))
            hosted.closing = False
            self._seal_if_due(hosted)

    # Time

    def _marks(self, _: Peer, message: messages.Marks) -> None:
        touched = self.reporter.published(message)
        for hosted in self.hosted.values():
            if hosted.yielding or any(sender in touched for sender in self.graph.senders[hosted.node.name]):
                self._schedule(hosted)
            hosted.accepted(message.accepted)

    def _ticked(self) -> None:
        self._out.extend(self.links.tick(self.now))
        self._decide(self.half.ticked(self.now))
        for hosted in self.hosted.values():
            hosted.runs_ahead = False
            self._schedule(hosted)
        self._send_receipts()  # first, for they speak of the report that follows
        report = self.reporter.report(self.hosted, self.now)
        if report is not None:
            self._to_coordinator(report)
