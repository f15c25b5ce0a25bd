"""A worker's sources: answers what the core asks to read, when something is there or after a while.

The core asks for the next records of a split and waits for the answer. A source that has nothing yet is asked again:
when it said that something will be there, or else every millisecond, until it has something or time must go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidemill.core import effects, events
from tidemill.core.graph import Node
from tidemill.core.ids import Epoch, Micros, ShardId
from tidemill.errors import RunError, TidemillError
from tidemill.hosts.loop import MakeEvent
from tidemill.ports import ARRIVAL, Chunk, Source, SourceReader

LOOK_AGAIN: Final = Micros(1_000)
"""After so long a source that can't say when is asked again."""

BREATH: Final = Micros(400)
"""A source that gave less than it was asked for is left alone for so long: two records at once cost as much as one."""

ANSWER_AFTER: Final = Micros(10_000)
"""So long an answer is put off; then marks must be told, or the core may have other plans."""


class _Pending:
    """A read that was asked for and not yet answered."""

    def __init__(self, asked: effects.Read, now: Micros) -> None:
        self.asked = asked
        self.again = now
        self.until = now + ANSWER_AFTER


class Reading:
    def __init__(
        self,
        node_of: Callable[[ShardId], Node | None],
        clock: Callable[[], Micros],
        tell: Callable[[MakeEvent], None],
    ) -> None:
        self._node_of = node_of
        self._clock = clock
        self._tell = tell
        self._readers: dict[tuple[ShardId, Epoch], tuple[int, SourceReader]] = {}
        self._pending: dict[tuple[ShardId, Epoch], _Pending] = {}
        self._drained: dict[ShardId, Micros] = {}  # until when a source that gave all it had is left alone
        self.malformed: dict[ShardId, int] = {}

    def read(self, asked: effects.Read) -> None:
        """Performs the effect."""
        now = self._clock()
        pending = self._pending[asked.shard, asked.epoch] = _Pending(asked, now)
        breath = self._drained.get(asked.shard, now)
        if breath > now:
            pending.again = breath
        else:
            self._try(pending, now)

    def due(self, now: Micros) -> Micros:
        """Asks those again whose time has come; gives how long there is nothing else to do here."""
        for pending in list(self._pending.values()):
            if pending.again <= now:
                self._try(pending, now)
        return min((Micros(pending.again - now) for pending in self._pending.values()), default=ANSWER_AFTER)

    def _try(self, pending: _Pending, now: Micros) -> None:
        asked = pending.asked
        node = self._node_of(asked.shard)
        if node is None:
            self._forget(asked.shard)
            return  # it was given to somebody else meanwhile
        chunk = self._chunk(node, asked)
        self.malformed[asked.shard] = self.malformed.get(asked.shard, 0) + _malformed(chunk)
        something = chunk.batch.num_rows or chunk.malformed is not None or chunk.position != asked.position
        if something or chunk.ended or now >= pending.until:
            del self._pending[asked.shard, asked.epoch]
            if chunk.batch.num_rows < asked.limit:
                self._drained[asked.shard] = Micros(now + BREATH)
            self._tell(_answer(asked, chunk, node.handle))
        else:
            pending.again = Micros(min(now + (chunk.wait or LOOK_AGAIN), pending.until))

    def _chunk(self, node: Node, asked: effects.Read) -> Chunk:
        source: Source = node.handle
        key = asked.shard, asked.epoch
        position, reader = self._readers.get(key, (-1, None))
        try:
            if reader is None or position != asked.position:
                self._forget(asked.shard)
                reader = source.open(source.splits()[asked.split], asked.position)
            chunk = reader.read(asked.limit)
        except Exception as error:
            self._pending.pop(key, None)
            where = f"[in the source of {node.outputs[0]!r}, declared at {node.declared_at}, split {asked.split}]"
            if isinstance(error, TidemillError):
                raise type(error)(f"{error} {where}") from error
            raise RunError(f"reading raised {type(error).__name__}: {error} {where}") from error
        self._readers[key] = chunk.position, reader
        return chunk

    def _forget(self, shard: ShardId) -> None:
        """Closes what was read under earlier epochs."""
        for key in [key for key in self._readers if key[0] == shard]:
            self._readers.pop(key)[1].close()
        for key in [key for key in self._pending if key[0] == shard and self._node_of(shard) is None]:
            del self._pending[key]

    def close(self) -> None:
        for _, reader in self._readers.values():
            reader.close()


def _malformed(chunk: Chunk) -> int:
    return chunk.skipped + (chunk.malformed.num_rows if chunk.malformed is not None else 0)


def _answer(asked: effects.Read, chunk: Chunk, source: Any) -> MakeEvent:
    times = None if source.timestamp == ARRIVAL else chunk.times

    def make(now: Micros) -> events.ReadDone:
        return events.ReadDone(
            now,
            asked.shard,
            asked.epoch,
            chunk.batch,
            times,
            chunk.position,
            chunk.watermark,
            chunk.idle,
            chunk.malformed,
        )

    return make
