"""A worker's half of Retrace: writes events down before their consequences leave, and reads them back.

Restoring a shard opens the logs of its whole lineage under the new epoch, which fences whoever still believes to own
one of them, and handles the entries again: first the ancestors', from whom the shard then takes its keys, then its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.core.bundle import Bundle
from tidemill.core.decisions import Acknowledge, GiveUp, Install, Release
from tidemill.core.effects import Append, OpenLog
from tidemill.core.flow import Arrival
from tidemill.core.graph import Graph
from tidemill.core.halves import WorkerDecisions
from tidemill.core.ids import Epoch, ShardId, Ticket
from tidemill.core.messages import Adoption, ChannelId, Lineage
from tidemill.core.order import Entry, decode_entry, encode_entry
from tidemill.core.pieces import begun
from tidemill.core.shard import Place, Shard
from tidemill.core.succession import successor
from tidemill.recovery.contract import WorkerBase


@dataclass
class _Restoring:
    """A shard whose logs are being read."""

    adoption: Adoption
    graph: Graph
    plan_seed: int
    awaited: dict[Ticket, ShardId]
    logs: dict[ShardId, list[bytes]] = field(default_factory=dict)


@dataclass
class _Writing:
    """A shard that runs. `entries` and `taken` are what was handled since the last append."""

    epoch: Epoch
    entries: list[bytes] = field(default_factory=list)
    taken: dict[ChannelId, int] = field(default_factory=dict)
    appending: int = 0  # appends under way


@dataclass
class _Appended:
    """What an append under way makes true."""

    shard: ShardId
    epoch: Epoch
    flush: int
    taken: dict[ChannelId, int]


class RetraceWorker(WorkerBase):
    def __init__(self) -> None:
        self._tickets = 0
        self._restoring: dict[ShardId, _Restoring] = {}
        self._writing: dict[ShardId, _Writing] = {}
        self._appended: dict[Ticket, _Appended] = {}
        self._opened: dict[Ticket, ShardId] = {}

    def _ticket(self) -> Ticket:
        self._tickets += 1
        return Ticket(self._tickets)

    # Restoring

    def adopt(self, adoption: Adoption, graph: Graph, plan_seed: int) -> WorkerDecisions:
        restoring = _Restoring(adoption, graph, plan_seed, {})
        self._restoring[adoption.shard] = restoring
        opens = []
        for shard in _all_of(adoption.lineage):
            ticket = self._ticket()
            restoring.awaited[ticket] = shard
            self._opened[ticket] = adoption.shard
            opens.append(OpenLog(ticket, log_of(shard), adoption.epoch, last=shard != adoption.shard))
        return opens

    def loaded(self, ticket: Ticket, entries: list[bytes]) -> WorkerDecisions:
        restoring = self._restoring.get(self._opened.pop(ticket))
        if restoring is None or ticket not in restoring.awaited:
            return ()  # dropped, or adopted again meanwhile
        restoring.logs[restoring.awaited.pop(ticket)] = entries
        if restoring.awaited:
            return ()
        adoption = restoring.adoption
        del self._restoring[adoption.shard]
        self._writing[adoption.shard] = _Writing(adoption.epoch)
        unsent: list[Bundle] = []
        return (Install(_retraced(restoring, adoption.lineage, unsent), unsent),)

    # Writing

    def arrived(self, shard: ShardId, arrival: Arrival) -> WorkerDecisions:
        return ()  # nothing is taken before it is written down

    def handled(self, shard: Shard, entry: Entry | None, arrival: Arrival | None) -> WorkerDecisions:
        writing = self._writing[shard.place.shard]
        if entry is not None:
            writing.entries.append(encode_entry(entry))
        if arrival is not None:
            writing.taken[arrival.channel.id] = arrival.number
        return ()

    def flushed(self, shard: ShardId, flush: int) -> WorkerDecisions:
        writing = self._writing[shard]
        entries, writing.entries = writing.entries, []
        taken, writing.taken = writing.taken, {}
        if not entries and not writing.appending:
            return (*_acknowledgements(taken), Release(shard, flush))
        # A bundle that was known already waits here too: what made it known may not be durable yet.
        ticket = self._ticket()
        self._appended[ticket] = _Appended(shard, writing.epoch, flush, taken)
        writing.appending += 1
        return (Append(ticket, log_of(shard), writing.epoch, entries),)

    def persisted(self, ticket: Ticket) -> WorkerDecisions:
        appended = self._appended.pop(ticket)
        writing = self._writing.get(appended.shard)
        if writing is None or writing.epoch != appended.epoch:
            return ()
        writing.appending -= 1
        return (*_acknowledgements(appended.taken), Release(appended.shard, appended.flush))

    def refused(self, ticket: Ticket) -> WorkerDecisions:
        appended = self._appended.pop(ticket, None)
        if appended is None:
            opened = self._opened.pop(ticket)
            restoring = self._restoring.get(opened)
            return (GiveUp(opened),) if restoring is not None and ticket in restoring.awaited else ()
        writing = self._writing.get(appended.shard)
        if writing is None or writing.epoch != appended.epoch:
            return ()
        return (GiveUp(appended.shard),)

    def dropped(self, shard: ShardId) -> None:
        self._restoring.pop(shard, None)
        self._writing.pop(shard, None)


def log_of(shard: ShardId) -> str:
    return f"shard-{shard}"


def _all_of(lineage: Lineage) -> list[ShardId]:
    """The shard and all of its ancestors, each once."""
    found = {lineage.shard: None}
    for parent in lineage.parents:
        found.update(dict.fromkeys(_all_of(parent)))
    return list(found)


def _acknowledgements(taken: dict[ChannelId, int]) -> list[Acknowledge]:
    return [Acknowledge(channel, number) for channel, number in taken.items()]


def _retraced(restoring: _Restoring, lineage: Lineage, unsent: list[Bundle]) -> Shard:
    """The shard as its log left it, with everything that it ever produced waiting to be flushed.

    The parent of a split had drained before its range changed hands: nothing of it is to be sent. The parents of a
    merge had drained too, but for what they sent to each other; so all that they produced goes again.
    """
    adoption, graph, seed = restoring.adoption, restoring.graph, restoring.plan_seed
    place = Place(lineage.shard, adoption.node, lineage.range, adoption.epoch)
    if lineage.parents:
        parents = [_retraced(restoring, parent, unsent) for parent in lineage.parents]
        if len(parents) > 1:
            unsent.extend(bundle for parent in parents for bundle in parent.flush())
        shard = successor(graph, place, seed, parents)
    else:
        shard = begun(graph, place, seed, adoption.initial)
    for data in restoring.logs[lineage.shard]:
        shard.handle(decode_entry(data, graph))
    return shard
