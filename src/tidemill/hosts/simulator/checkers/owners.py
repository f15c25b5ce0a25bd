"""One owner, one writer, one coordinator: who speaks, writes and commits must be the one who was given the right to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from tidemill.hosts.simulator.checkers.checker import COORDINATOR, Checker, Links, kind


class OneOwner(Checker):
    """Each shard under each epoch is given to one process, and no other ever speaks for it."""

    name = "one owner"

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[tuple[int, int], Any] = {}

    def sent(self, packet: Any) -> None:
        message = packet.message
        if kind(message) == "Adopt":
            for adoption in message.adoptions:
                self._claim(adoption.shard, adoption.epoch, packet.to, "was given to")
        elif packet.sender.worker != COORDINATOR:
            for shard, epoch in _spoken_for(message):
                self._claim(shard, epoch, packet.sender, "is spoken for by")

    def _claim(self, shard: int, epoch: int, process: Any, how: str) -> None:
        owner = self._owners.setdefault((shard, epoch), process)
        if owner != process:
            self.complain(f"shard {shard} under epoch {epoch:#x} belongs to {owner} and {how} {process}")


def _spoken_for(message: Any) -> Iterator[tuple[int, int]]:
    match kind(message):
        case "Delivery" | "InBand":
            yield message.channel.from_shard, message.channel.from_epoch
        case "Receipts":
            for receipt in message.receipts:
                yield receipt.channel.to_shard, receipt.channel.to_epoch
        case "Report":
            for value in message.shards:
                yield value.shard, value.epoch
        case "Ready" | "Yielded" | "Sealed":
            yield message.shard, message.epoch


class OneWriter(Checker):
    """Over each part of a node's ring the epochs of what is written never fall, also not across a split or a merge."""

    name = "one writer"

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, tuple[str, int, int]] = {}

    def sent(self, packet: Any) -> None:
        if kind(packet.message) == "Adopt":
            for given in packet.message.adoptions:
                self._places[f"shard-{given.shard}"] = given.node, given.range.low, given.range.high

    def ended(self, outcome: Any) -> None:
        newest: dict[str, dict[str, int]] = {}  # by node, for each log
        for write in outcome.disk.writes:
            node, low, high = self._places.get(write.log, (write.log, 0, 2**64))
            epochs = newest.setdefault(node, {})
            for log, epoch in epochs.items():
                _, other_low, other_high = self._places.get(log, (log, 0, 2**64))
                if epoch > write.epoch and low < other_high and other_low < high:
                    self.complain(
                        f"{node}: {write.log} was written under {write.epoch:#x} after {log} under {epoch:#x}"
                    )
            epochs[write.log] = max(write.epoch, epochs.get(write.log, write.epoch))


class OneCoordinator(Checker):
    """Generations rise, only the newest writes the journal, and there is one final commit with nothing behind it."""

    name = "one coordinator"

    def ended(self, outcome: Any) -> None:
        claims = outcome.disk.claims
        if any(later <= earlier for earlier, later in pairwise(claims)):
            self.complain(f"generations were claimed in the order {claims}")
        final = 0
        for write in outcome.disk.journaled:
            if write.generation != write.claimed:
                self.complain(f"generation {write.generation} wrote the journal after {write.claimed} was claimed")
            if final:
                self.complain("the journal was written after the final commit")
            entry, payload = msgspec.msgpack.decode(write.entry)
            final += entry == "commit" and msgspec.msgpack.decode(payload)[1]
        if outcome.finished and final != 1:
            self.complain(f"the run finished with {final} final commits")


class WholeCommit(Checker):
    """A commit lists a piece of every shard of every sink, each under its shard's newest epoch, and no piece twice.

    A shard has more than one where a loss made the sealing begin anew: each holds what the one before did not.
    """

    name = "whole commit"

    def __init__(self) -> None:
        super().__init__()
        self._links = Links()
        self._epochs: dict[int, int] = {}
        self._sinks: dict[int, tuple[str, int, int]] = {}
        self._listed: set[str] = set()

    def sent(self, packet: Any) -> None:
        if kind(packet.message) == "Adopt" and self._links.new(packet):
            for given in packet.message.adoptions:
                self._epochs[given.shard] = max(given.epoch, self._epochs.get(given.shard, 0))
                if given.node.startswith("sink:"):
                    self._sinks[given.shard] = given.node, given.range.low, given.range.high

    def ended(self, outcome: Any) -> None:
        for write in outcome.disk.journaled:
            entry, payload = msgspec.msgpack.decode(write.entry)
            if entry == "commit":
                self._check([(node, piece.decode()) for node, piece in msgspec.msgpack.decode(payload)[0]])

    def _check(self, pieces: list[tuple[str, str]]) -> None:
        listed: dict[int, str] = {}
        for node, name in pieces:
            shard, epoch = (int(part) for part in name.split("-")[1:3])
            if name in self._listed:
                self.complain(f"{name} of {node} is committed twice")
            self._listed.add(name)
            listed[shard] = name
            if self._sinks.get(shard, ("nothing",))[0] != node:
                self.complain(f"{name} is listed for {node} and belongs to another")
            if epoch != self._epochs.get(shard):
                self.complain(
                    f"{name} of {node} was made under {epoch:#x}; the newest is {self._epochs.get(shard, 0):#x}"
                )
        for shard, (node, _, _) in self._sinks.items():
            if shard not in listed:
                self.complain(f"shard {shard} of {node} has no piece in the commit")
