"""The log of a folder of files, in the format of Spark's own file sink: what it lists is there, and nothing else is.

Spark keeps `_spark_metadata/<batch>` beside the files: a line "v1", and one JSON object for each file that the batch
added. Each tenth is `<batch>.compact` and lists all files so far. Whoever reads the folder with Spark sees what the log
lists, so that making an entry, which fails if another has the place, is the one step that makes files visible.

Ours say more, where Spark does not look. Each begins with a line for a folder, which Spark passes over: it holds who
wrote the entry, for which generation, and the number of the last commit. And each file's line has its batch and its
rows. So claims and commits are decided by one order: who finds the place taken looks again, and may learn there that he
has been replaced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tidemill.errors import StorageError
from tidemill.storage.entries import Entries

METADATA: Final = "_spark_metadata"
VERSION: Final = b"v1"
COMPACT_EVERY: Final = 10
"""As Spark has it, unless its `spark.sql.streaming.fileSink.log.compactInterval` is changed."""

_NAME: Final = re.compile(r"(\d+)(\.compact)?")
_BLOCK: Final = 32 * 1024 * 1024


class Mark(msgspec.Struct, frozen=True):
    """Who wrote an entry, and what holds since."""

    generation: int
    number: int  # of the last commit
    run: str
    claim: str  # of whoever wrote it, and nobody else's
    schema: str
    partitioned: tuple[str, ...] = ()
    format: int = 1


class Added(msgspec.Struct, frozen=True):
    """What Spark does not know of a file."""

    name: str  # below the folder, wherever that is now
    rows: int
    batch: int
    values: dict[str, str | None] = {}  # of the columns that the folders' names hold


class _Line(msgspec.Struct):
    """Spark's `SinkFileStatus`, and ours in it."""

    path: str
    size: int
    isDir: bool  # noqa: N815 - the names are Spark's
    modificationTime: int  # noqa: N815
    blockReplication: int = 1  # noqa: N815
    blockSize: int = _BLOCK  # noqa: N815
    action: str = "add"
    mark: Mark | None = None
    added: Added | None = None


@dataclass(frozen=True)
class File:
    """One that was committed, or is about to be."""

    name: str
    size: int
    modified: int  # in milliseconds since the epoch
    rows: int
    batch: int = -1
    values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class Listed:
    """What the log says, from its beginning to its newest entry."""

    batch: int
    mark: Mark
    files: tuple[File, ...]

    def between(self, start: int, end: int) -> list[File]:
        """What was committed behind the batch `start`, up to `end`."""
        return [file for file in self.files if start < file.batch <= end]

    @property
    def newest(self) -> int:
        """The last batch that added rows: the others are claims."""
        return max((file.batch for file in self.files if file.rows), default=-1)


_line = msgspec.json.Decoder(_Line).decode


class SparkLog:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries = Entries(folder / METADATA)

    def read(self) -> Listed | None:
        """None if there is no entry. An entry that is torn, missing or not ours is a `StorageError`."""
        for _ in range(10):
            batches = self._batches()
            if not batches:
                return None
            found = self._read(batches)
            if found is not None:
                return found  # else what it began to read was compacted meanwhile
        raise StorageError(f"{str(self._entries.folder)!r} changes faster than it can be read.")

    def append(self, before: Listed | None, mark: Mark, files: Iterable[File]) -> Listed | None:
        """Adds an entry behind all that was there `before`. None, and nothing happened, if another came first."""
        batch = 0 if before is None else before.batch + 1
        added = tuple(File(f.name, f.size, f.modified, f.rows, batch, f.values) for f in files)
        whole = Listed(batch, mark, (*(before.files if before is not None else ()), *added))
        compact = _is_compact(batch)
        data = self._encoded(mark, whole.files if compact else added)
        if not self._entries.create(_name(batch), data):
            return None
        if batch and not self._entries.has(_name(batch - 1)):
            return None  # others are so far ahead that they have cleared this place away: nobody will read it here
        if compact:
            self._forget(batch - COMPACT_EVERY)
        return whole

    def _forget(self, before: int) -> None:
        """What two compact entries hold is read from them."""
        for batch in self._batches():
            if batch < before:
                self._entries.remove(_name(batch))

    def _batches(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self._entries.names())
        return sorted({int(match[1]) for match in found if match is not None})

    # Bytes

    def _encoded(self, mark: Mark, files: Iterable[File]) -> bytes:
        lines = [VERSION, msgspec.json.encode(_Line(self.folder.as_uri(), 0, True, time.time_ns() // 10**6, mark=mark))]  # noqa: FBT003 - in Spark's order
        for file in files:
            added = Added(file.name, file.rows, file.batch, dict(file.values))
            path = (self.folder / file.name).as_uri()
            lines.append(msgspec.json.encode(_Line(path, file.size, False, file.modified, added=added)))  # noqa: FBT003
        return b"\n".join(lines)

    def _read(self, batches: list[int]) -> Listed | None:
        last = batches[-1]
        first = max((batch for batch in batches if _is_compact(batch)), default=0)
        files: list[File] = []
        mark: Mark | None = None
        for batch in range(first, last + 1):
            data = self._entries.read(_name(batch))
            if data is None:
                if self._batches() != batches:
                    return None
                raise StorageError(
                    f"{str(self._entries.folder)!r} has no entry {_name(batch)!r}, and has later ones: a part of the "
                    "log is lost. Restore it, or write to another folder."
                )
            mark, added = self._decoded(_name(batch), data)
            files += added
        assert mark is not None, "there is a last one"
        return Listed(last, mark, tuple(files))

    def _decoded(self, name: str, data: bytes) -> tuple[Mark, list[File]]:
        where = str(self._entries.folder / name)
        version, *lines = data.split(b"\n")
        if version != VERSION:
            raise StorageError(f"{where!r} is torn, or no entry of Spark's log: it begins with {version[:20]!r}.")
        try:
            read = [_line(line) for line in lines]
        except msgspec.MsgspecError as error:
            raise StorageError(f"{where!r} is torn or was altered: {error}.") from error
        if not read or read[0].mark is None or any(line.added is None for line in read[1:]):
            raise StorageError(
                f"{where!r} was not written by Tidemill but by Spark, say, which keeps a log of the same form. Write "
                "to another folder."
            )
        return read[0].mark, [_file(line, line.added) for line in read[1:] if line.added is not None]


def _file(line: _Line, added: Added) -> File:
    return File(added.name, line.size, line.modificationTime, added.rows, added.batch, tuple(added.values.items()))


def _is_compact(batch: int) -> bool:
    return (batch + 1) % COMPACT_EVERY == 0


def _name(batch: int) -> str:
    return f"{batch}.compact" if _is_compact(batch) else str(batch)
