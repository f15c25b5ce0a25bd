"""Small types for every kind of number, so that none is ever mistaken for another.

They cost nothing at run time (`NewType`) except `Peer`, which is a tuple because it is a dictionary key in every layer.
An epoch carries its coordinator's generation in its high bits: a coordinator that starts anew can grant epochs at once
without reading which ones its predecessor granted, and none is ever granted twice.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType

WorkerId = NewType("WorkerId", int)
"""A place in the run: survives the death of the process that fills it."""

Incarnation = NewType("Incarnation", int)
"""The how-manieth process fills the place. Only the newest is listened to."""

Generation = NewType("Generation", int)
"""The how-manieth coordinator of this run."""

Epoch = NewType("Epoch", int)
"""The right to own a shard. Granted once; every change of ownership raises it."""

ShardId = NewType("ShardId", int)
"""One computation over one key range, from its creation to its split, merge or the end: a lineage. Never used twice."""

NodeName = NewType("NodeName", str)
"""A source, computation or sink of the pipeline."""

StreamName = NewType("StreamName", str)

Position = NewType("Position", int)
"""A key's place on the ring: 0 to 2**64 - 1."""

Sequence = NewType("Sequence", int)
"""A record's number among all that its origin produced on one stream, from 1."""

Micros = NewType("Micros", int)
"""A time in microseconds since the epoch, event time or wall time."""

Ticket = NewType("Ticket", int)
"""Names a thing asked of the host; comes back with the answer."""

BEGINNING: Final = Micros(-(2**63))
"""The mark of which nothing is known yet."""

LAST: Final = Micros(2**63 - 2)
"""The greatest time a record can have."""

END: Final = Micros(2**63 - 1)
"""The mark behind which nothing will ever come."""

RING: Final = 2**64

COORDINATOR: Final = WorkerId(-1)

_GENERATION_BITS: Final = 32


class Peer(NamedTuple):
    """One process of the run, as messages are addressed: a worker's incarnation, or a coordinator's generation."""

    worker: WorkerId
    incarnation: Incarnation

    def __str__(self) -> str:
        if self.worker == COORDINATOR:
            return f"coordinator.{self.incarnation}"
        return f"worker{self.worker}.{self.incarnation}"


def coordinator_peer(generation: Generation) -> Peer:
    return Peer(COORDINATOR, Incarnation(generation))


def first_epoch(generation: Generation) -> Epoch:
    """The first epoch that a coordinator may grant; those that follow are counted up from it."""
    return Epoch(generation << _GENERATION_BITS)


def generation_of(epoch: Epoch) -> Generation:
    return Generation(epoch >> _GENERATION_BITS)
