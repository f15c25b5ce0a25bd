"""The coordinator: who owns what, under which epoch; what time it is; when the run is over.

    handle(event) -> [effect, ...]

It claims a generation before it does anything else, and everything it makes durable is refused once a higher one was
claimed (Law 4). It then gathers the workers, asks its mechanism how to begin, and from there on only answers: to
workers that come and go, to changes of routing that were asked for, to reports. What must survive it is in the run's
journal.

It judges a worker dead when the host says that its process ended, or after a long silence. A coordinator that was
itself away first forgives everybody: it was its own silence that it heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from tidemill.core import decisions as d
from tidemill.core import effects, events, messages
from tidemill.core.effects import Effect
from tidemill.core.graph import Graph
from tidemill.core.halves import CoordinatorDecisions, CoordinatorHalf
from tidemill.core.ids import Generation, Micros, NodeName, Peer, ShardId, Ticket, WorkerId, coordinator_peer
from tidemill.core.link import AnyMessage, Links
from tidemill.core.membership import Members
from tidemill.core.messages import OUTSIDE
from tidemill.core.ownership import Ownership
from tidemill.core.rerouting import changed
from tidemill.core.routing import Route
from tidemill.core.sealing import Pieces
from tidemill.core.watermarks import Authority

Phase = Literal["claiming", "gathering", "running", "sealing", "committing", "over", "deposed"]


class Plan(NamedTuple):
    """How a run is laid out. The same for every coordinator of the run."""

    workers: int
    splits: dict[NodeName, int]  # of each source
    shards: int  # of each computation and sink
    patience: Micros = Micros(3_000_000)  # how long to wait for a lost worker's replacement
    silence: Micros = Micros(10_000_000)  # how long a worker may say nothing
    publish_every: Micros = Micros(10_000)
    gathering: Micros = Micros(
        3_000_000
    )  # how long to wait for the first workers, before beginning with those there are


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """`commit` entries are the core's, the others a mechanism's."""

    kind: Literal["commit", "mechanism"]
    payload: bytes


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """Visible means whole: these pieces, all of them, and nothing that is not listed (Law 6)."""

    pieces: list[tuple[NodeName, bytes]]
    final: bool


COMMIT_TICKET = Ticket(0)

encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(JournalEntry).decode
decode_commit = msgspec.msgpack.Decoder(Commit).decode


class Coordinator:
    def __init__(self, graph: Graph, half: CoordinatorHalf, plan: Plan) -> None:
        self.graph = graph
        self.half = half
        self.plan = plan
        self.phase: Phase = "claiming"
        self.generation = Generation(0)
        self.authority = Authority(graph)
        self.members = Members(plan.workers, plan.patience, plan.silence)
        self.now = Micros(0)
        self.ownership: Ownership
        self.links: Links
        self._attempt = 0
        self._introduced = False
        self._stopping = False
        self._published_at = Micros(0)
        self._pieces = Pieces()
        self._interim: Literal["", "sealing", "committing"] = ""  # a commit while the run goes on
        self._journal: list[bytes] = []
        self._out: list[Effect] = []
        self._on_event: dict[type, Callable[[Any], None]] = {
            events.Started: lambda _: self._out.append(effects.Claim()),
            events.Claimed: self._claimed,
            events.Received: self._received,
            events.Ticked: lambda _: self._ticked(),
            events.PeerGone: lambda event: self._gone(event.peer),
            events.Persisted: self._persisted,
            events.Refused: lambda _: self._deposed(),
            events.Broken: lambda event: self._end(type(event.error).__name__, str(event.error)),
            events.StopAsked: lambda _: self._stop_asked(),
            events.MoveAsked: self._change_asked,
            events.SplitAsked: self._change_asked,
            events.MergeAsked: self._change_asked,
        }
        self._on_message: dict[type, Callable[[Peer, Any], None]] = {
            messages.Hello: lambda sender, _: self._joined(sender),
            messages.Ready: self._ready,
            messages.Report: self._report,
            messages.Yielded: self._yielded,
            messages.Sealed: self._sealed,
            messages.Tell: self._half_told,
            messages.Failed: self._failed,
        }
        self._on_decision: dict[type, Callable[[Any], None]] = {
            d.AssignAll: self._assign_all,
            d.Assign: lambda decision: self._assign(decision.shards, decision.to),
            d.Supersede: self._supersede,
            d.TakeBack: self._take_back,
            d.Write: self._write,
            d.SealSoFar: lambda _: self._seal_so_far(),
            d.Finish: lambda _: self._finish(),
            d.EndRun: lambda decision: self._end("RunError", decision.reason),
            d.TellHalf: lambda decision: self._send(decision.peer, messages.Tell(decision.payload)),
        }

    @property
    def busy(self) -> bool:
        """It does everything when it is told."""
        return False

    def handle(self, event: events.CoordinatorEvent) -> list[Effect]:
        self.now = event.now
        out: list[Effect] = []
        self._out = out
        if self.phase == "over":
            if isinstance(event, events.Received) and self.generation:  # without a claim nobody has joined
                self._tell_of_the_end(event.packet.sender)
        elif self.phase != "deposed":  # then the end is another's to tell
            self._on_event[type(event)](event)
        return out

    def _decide(self, decisions: CoordinatorDecisions) -> None:
        for decision in decisions:
            self._on_decision[type(decision)](decision)

    def _send(self, to: Peer, message: AnyMessage) -> None:
        self._out.append(self.links.send(to, message, self.now))

    def _note(self, what: str, about: object) -> None:
        self._out.append(effects.Note(what, str(about)))

    # Beginning

    def _claimed(self, event: events.Claimed) -> None:
        self.generation = event.generation
        self.links = Links(coordinator_peer(event.generation))
        self.ownership = Ownership(self.graph, event.generation, self.plan.splits, self.plan.shards)
        self._note("claimed", f"generation {event.generation}")
        for data in event.entries:
            entry = decode_entry(data)
            if entry.kind == "mechanism":
                self._journal.append(entry.payload)
            elif decode_commit(entry.payload).final:
                self._over("finished")  # the last coordinator committed and could tell nobody
                return
        self.phase = "gathering"

    def _received(self, event: events.Received) -> None:
        if self.phase == "claiming":
            return  # the sender will send again
        sender = event.packet.sender
        if self.members.gave_up(sender):
            self._dismiss(sender)
            return
        arrived, sends = self.links.receive(event.packet, self.now)
        self._out.extend(sends)
        self.members.heard(sender, self.now)
        for message in arrived:
            self._on_message[type(message)](sender, message)

    def _half_told(self, sender: Peer, message: messages.Tell) -> None:
        if self.phase != "gathering":  # what was said to an older coordinator's half is nothing to this one
            self._decide(self.half.told(sender, message.payload))

    def _dismiss(self, peer: Peer) -> None:
        """Tells a process that was given up, outside of any link: it has none here any more."""
        self._out.append(effects.Send(messages.Packet(self.links.me, peer, OUTSIDE, 0, messages.Outdated())))

    def _joined(self, peer: Peer) -> None:
        previous = self.members.join(peer, self.now)
        if previous is not None:
            self._lose([previous])
        self._note("joined", peer)
        if self.phase == "gathering":
            if self.members.complete:
                self._begin()
            return
        # A worker that came late, or in another's place: it learns what the others know.
        self._send(peer, self._whole_routing())
        self._send(peer, self.authority.everything())
        if self._stopping:
            self._send(peer, messages.Stop())
        self._recover_if_possible()

    def _begin(self) -> None:
        self.phase = "running"
        self._note("began", f"with {len(self.members.alive())} workers")
        self._decide(self.half.begin(self.generation, self._journal, self.ownership.routing))

    # Ownership

    def _assign_all(self, decision: d.AssignAll) -> None:
        self._attempt += 1
        self._note("rewound", f"attempt {self._attempt}")
        self.authority.reset()
        self._pieces.forget()
        for peer in self.members.alive():
            self._send(peer, messages.Reset(self._attempt))
        self._assign([route.shard for route in self.ownership.routing.all()], decision.to)

    def _assign(self, shards: list[ShardId], to: dict[ShardId, WorkerId]) -> None:
        adoptions: dict[Peer, list[messages.Adoption]] = {}
        alive = self.members.alive()
        for shard, owner in self.ownership.place(shards, alive, to):
            adoption = self.ownership.adoption(shard, self.half.lineage(shard))
            adoptions.setdefault(owner, []).append(adoption)
        self._publish_routes([], [self.ownership.routing[shard] for shard in shards])
        for owner, given in adoptions.items():
            self._send(owner, messages.Adopt(given))

    def _ready(self, sender: Peer, message: messages.Ready) -> None:
        route = self.ownership.ready(message.shard, message.epoch, sender)
        if route is not None:
            self._publish_routes([], [route])

    def _supersede(self, decision: d.Supersede) -> None:
        changed = self.ownership.supersede(decision.removed, decision.added)
        self._note("superseded", f"{decision.removed} by {[new.shard for new in decision.added]}")
        if self._introduced:
            self._publish_routes(decision.removed, changed)

    def _publish_routes(self, removed: list[ShardId], routes: list[Route]) -> None:
        """Tells all workers what changed; the first time, everything: they may know an older coordinator's table."""
        message = messages.Routes(removed, routes, self.members.gone()) if self._introduced else self._whole_routing()
        self._introduced = True
        for peer in self.members.alive():
            self._send(peer, message)

    def _whole_routing(self) -> messages.Routes:
        return messages.Routes([], self.ownership.routing.all(), self.members.gone(), whole=True)

    def _take_back(self, decision: d.TakeBack) -> None:
        route = self.ownership.routing[decision.shard]
        if route.owner is not None:
            self._send(route.owner, messages.Yield(route.shard, route.epoch, decision.together))

    def _yielded(self, sender: Peer, message: messages.Yielded) -> None:
        if self.ownership.owned_by(message.shard, message.epoch, sender):
            self.ownership.disown([message.shard], yielded=True)
            self._seal_again()
            self._decide(self.half.yielded(message.shard))

    # Loss

    def _gone(self, peer: Peer) -> None:
        if self.phase == "claiming":
            return
        if self.members.is_member(peer):
            self._lose([peer])
            self._recover_if_possible()
        else:
            self.members.lose(peer, self.now)

    def _lose(self, peers: list[Peer]) -> None:
        for peer in peers:
            self._note("lost", peer)
            self.members.lose(peer, self.now)
            self.links.give_up(peer)
            self._out.append(effects.Forget(peer))
            self.ownership.disown(self.ownership.of(peer))
        self._seal_again()

    def _seal_again(self) -> None:
        """A shard lost its owner: what that one had sealed is gone, or goes to another. The end is found anew."""
        if self.phase == "sealing":
            self.phase = "running"
        if self._interim == "sealing":
            self._interim = ""

    def _recover_if_possible(self) -> None:
        if self.phase not in ("running", "sealing") or not self.members.worth_recovering(self.now):
            return
        homeless = self.ownership.homeless()
        if homeless:
            self._note("recovering", f"{len(homeless)} shards on {len(self.members.alive())} workers")
            self._decide(self.half.lost(homeless))

    # Time

    def _report(self, sender: Peer, message: messages.Report) -> None:
        self.authority.report(sender, message, self.ownership.routing)

    def _ticked(self) -> None:
        if self.phase == "claiming":
            return
        self._out.extend(self.links.tick(self.now))
        silent = self.members.tick(self.now)
        if silent:
            self._lose(silent)
            for peer in silent:
                self._dismiss(peer)
        if self.phase == "gathering" and self.members.waited(self.now, self.plan.gathering):
            self._begin()
        self._recover_if_possible()
        if self.phase != "gathering":  # the half has been told to begin
            self._decide(self.half.ticked(self.now))
        if self.now - self._published_at >= self.plan.publish_every or self.now < self._published_at:
            self._published_at = self.now
            self._publish_marks()

    def _publish_marks(self) -> None:
        marks = self.authority.publish()
        if marks is not None:
            for peer in self.members.alive():
                self._send(peer, marks)
        if self.phase == "running" and self._worked_off() and self.ownership.complete():
            self._decide(self.half.drained())

    def _worked_off(self) -> bool:
        return self.authority.ended() or (self._stopping and self.authority.all_at_rest())

    # The end

    def _stop_asked(self) -> None:
        self._note("stopping", "nothing more is read")
        self._stopping = True
        if self.phase in ("claiming", "gathering"):
            self._over("stopped")
            return
        for peer in self.members.alive():
            self._send(peer, messages.Stop())

    def _finish(self) -> None:
        """Asks every sink's shard for its piece; all of them together are the commit."""
        if self._interim:
            return  # the mechanism will say so again
        self.phase = "sealing"
        self._note("sealing", "all sinks")
        self._seal()

    def _seal_so_far(self) -> None:
        """Nothing of what the sinks were given will be taken back: it is committed while the run goes on.

        Not any more when all is worked off: the last commit would wait for ever for its turn.
        """
        ready = self.phase == "running" and not self._interim and self.ownership.complete()
        if ready and not self._worked_off():
            self._interim = "sealing"
            self._seal()

    def _seal(self) -> None:
        routes = self._sink_routes()
        self._pieces.ask(routes)
        for route in routes:
            if route.owner is not None:
                self._send(route.owner, messages.Seal(route.shard, route.epoch, self._pieces.round))
        self._commit_if_sealed()

    def _sink_routes(self) -> list[Route]:
        return [route for node in self.graph.of_kind("sink") for route in self.ownership.routing.of_node(node.name)]

    def _sealed(self, sender: Peer, message: messages.Sealed) -> None:
        if self.ownership.owned_by(message.shard, message.epoch, sender):
            self._pieces.came(message.shard, message.epoch, message.piece, message.round)
            self._commit_if_sealed()

    def _commit_if_sealed(self) -> None:
        if not self._pieces.complete or "sealing" not in (self.phase, self._interim):
            return
        pieces, final = self._pieces.listed(self._sink_routes()), self.phase == "sealing"
        if final:
            self.phase = "committing"
        elif any(piece for _, piece in pieces):
            self._interim = "committing"
        else:
            self._interim = ""  # there is nothing to commit
            self._pieces.forget()
            return
        entry = encode(JournalEntry("commit", encode(Commit(pieces, final))))
        self._out.append(effects.Journal(COMMIT_TICKET, self.generation, entry))

    def _write(self, decision: d.Write) -> None:
        assert decision.ticket != COMMIT_TICKET
        entry = encode(JournalEntry("mechanism", decision.entry))
        self._out.append(effects.Journal(decision.ticket, self.generation, entry))

    def _persisted(self, event: events.Persisted) -> None:
        if event.ticket == COMMIT_TICKET:
            self._pieces.forget()
            self._interim = ""
            if self.phase == "committing":
                self._over("stopped" if self._stopping and not self.authority.ended() else "finished")
        else:
            self._decide(self.half.persisted(event.ticket))

    def _over(self, reason: str) -> None:
        self.phase = "over"
        self._note("over", reason)
        for peer in self.members.alive():
            self._send(peer, messages.Finished())
        self._out.append(effects.Exit(reason))

    def _tell_of_the_end(self, peer: Peer) -> None:
        self._out.append(effects.Send(messages.Packet(self.links.me, peer, OUTSIDE, 0, messages.Finished())))

    def _deposed(self) -> None:
        self.phase = "deposed"
        self._out.append(effects.Exit("deposed"))

    def _failed(self, sender: Peer, message: messages.Failed) -> None:
        self._note("failed", sender)
        self._end(message.error, message.message, message.trace)

    def _end(self, error: str, message: str, trace: str = "") -> None:
        self._out.append(effects.Fail(error, message, trace))
        self._over("failed")

    # Changes of routing that somebody asked for

    def _change_asked(self, event: events.MoveAsked | events.SplitAsked | events.MergeAsked) -> None:
        if self.phase != "running" or not self.ownership.complete():
            self._note("refused", f"{type(event).__name__}: the run is not at rest")
            return
        change = changed(event, self.ownership, self.graph)
        if change is None:
            self._note("refused", f"{type(event).__name__}: not possible for shard {event.shard}")
            return
        self._note("rerouting", f"{change.kind} {change.shards}")
        self._decide(self.half.reroute(change, self.ownership.routing))
