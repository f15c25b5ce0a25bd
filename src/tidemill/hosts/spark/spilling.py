"""What loops put aside: nameless files for each shard, on the worker's own disk, gone with the process.

Entries are appended and taken back in order. A file that is large enough gets a successor, and goes when it was read to
its end, so that what lies on the disk grows with what waits and not with what has passed.
"""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from typing import IO, Final

from tidemill.core import effects
from tidemill.core.ids import Epoch, ShardId

ENOUGH: Final = 64 * 1024 * 1024
"""Bytes in one file."""

_LENGTH: Final = struct.Struct("!Q")


class _File:
    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tidemill-")  # noqa: SIM115 - lives until it is read
        self._read = self.written = 0

    def put(self, entry: bytes) -> None:
        self._file.seek(self.written)
        self._file.write(_LENGTH.pack(len(entry)) + entry)
        self.written += _LENGTH.size + len(entry)

    def take(self) -> bytes:
        self._file.seek(self._read)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        entry = self._file.read(length)
        self._read += _LENGTH.size + length
        return entry

    @property
    def is_read(self) -> bool:
        return self._read == self.written

    def begin_anew(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._read = self.written = 0

    def close(self) -> None:
        self._file.close()


class _Spill:
    def __init__(self) -> None:
        self._files = deque([_File()])

    def put(self, entry: bytes) -> None:
        if self._files[-1].written >= ENOUGH:
            self._files.append(_File())
        self._files[-1].put(entry)

    def take(self, count: int) -> list[bytes]:
        return [self._take() for _ in range(count)]

    def _take(self) -> bytes:
        entry = self._files[0].take()
        if self._files[0].is_read:
            if len(self._files) > 1:
                self._files.popleft().close()
            else:
                self._files[0].begin_anew()
        return entry

    def close(self) -> None:
        for file in self._files:
            file.close()


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
