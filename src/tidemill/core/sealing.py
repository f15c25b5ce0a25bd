"""The pieces of the sinks: what each sink's shard has made durable and no commit has listed yet.

A shard may be asked for a piece more than once before a commit comes of it: a loss in between starts the sealing anew.
What it gave before is not in what it gives next, so all of it is kept, for as long as the shard has the same owner. A
new owner begins with nothing given: what it restores is staged there again.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.core.ids import Epoch, NodeName, ShardId
from tidemill.core.routing import Route


class Pieces:
    def __init__(self) -> None:
        self._given: dict[ShardId, tuple[Epoch, list[bytes]]] = {}
        self._awaited: dict[ShardId, None] = {}
        self.round = -1

    def ask(self, routes: Iterable[Route]) -> None:
        """Every one of these shards is asked for a piece now. An answer to an earlier asking is not one to this."""
        self.round += 1
        self._awaited = {route.shard: None for route in routes}

    def came(self, shard: ShardId, epoch: Epoch, piece: bytes, round: int) -> None:
        of_epoch, pieces = self._given.get(shard, (epoch, []))
        self._given[shard] = epoch, [*(pieces if of_epoch == epoch else []), piece]
        if round == self.round:
            self._awaited.pop(shard, None)

    @property
    def complete(self) -> bool:
        return not self._awaited

    def listed(self, routes: Iterable[Route]) -> list[tuple[NodeName, bytes]]:
        """What a commit lists: of each shard what its present owner gave."""
        return [
            (route.node, piece)
            for route in routes
            for piece in self._given[route.shard][1]
            if self._given[route.shard][0] == route.epoch
        ]

    def forget(self) -> None:
        """They are listed, or will be made anew."""
        self._given = {}
        self._awaited = {}
