"""What loops put aside: a nameless file for each shard, on the worker's own disk, gone with the process.

Entries are appended and taken back in order. A file that was read to its end begins anew, so that it grows with what
waits and not with what has passed.
"""

from __future__ import annotations

import struct
import tempfile
from typing import IO, Final

from tidemill.core import effects
from tidemill.core.ids import Epoch, ShardId

_LENGTH: Final = struct.Struct("!I")


class _Spill:
    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tidemill-")  # noqa: SIM115 - lives as long as the shard
        self._read = self._written = 0

    def put(self, entry: bytes) -> None:
        self._file.seek(self._written)
        self._file.write(_LENGTH.pack(len(entry)) + entry)
        self._written += _LENGTH.size + len(entry)

    def take(self, count: int) -> list[bytes]:
        self._file.seek(self._read)
        entries = []
        for _ in range(count):
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            entries.append(self._file.read(length))
            self._read += _LENGTH.size + length
        if self._read == self._written:
            self._file.seek(0)
            self._file.truncate()
            self._read = self._written = 0
        return entries

    def close(self) -> None:
        self._file.close()


class Spilling:
    def __init__(self) -> None:
        self._spills: dict[tuple[ShardId, Epoch], _Spill] = {}

    def spill(self, effect: effects.Spill) -> None:
        key = effect.shard, effect.epoch
        spill = self._spills.get(key)
        if spill is None:
            spill = self._spills[key] = _Spill()
        spill.put(effect.entry)

    def take(self, effect: effects.ReadBack) -> list[bytes]:
        return self._spills[effect.shard, effect.epoch].take(effect.count)

    def drop(self, effect: effects.DropSpill) -> None:
        self._spills.pop((effect.shard, effect.epoch)).close()

    def close(self) -> None:
        for spill in self._spills.values():
            spill.close()
