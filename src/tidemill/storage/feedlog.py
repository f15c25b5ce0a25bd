"""A feed's log: what streaming queries gave to a stream, batch by batch, each batch whole and once.

    feed.json           what the stream is; settled by the first run that has the feed
    log/0, log/1, ...   each entry is one batch of one query, made by a step that fails where another was faster
    data/<query>/<batch>/...arrow   the rows; a file that no entry lists is nothing

An entry also says what holds behind it: how many rows each split has before it, and the last batch of every query. So
whether a batch is there already is seen in the newest entry, and a position is found without reading all of them. The
files are dealt to the splits in turn. Nothing is ever taken out: a log can be read again from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from tidemill.errors import StorageError
from tidemill.storage.entries import Entries, reaching

FEEDS: Final = "feeds"
"""The folder of a run's storage in which they are."""

_DESCRIPTION: Final = "feed.json"

Decoded = TypeVar("Decoded")


class Description(msgspec.Struct, frozen=True):
    schema: str  # as DDL
    timestamp: str | None
    splits: int
    format: int = 1


class FedFile(msgspec.Struct, frozen=True):
    name: str  # below the feed's data
    counts: tuple[int, ...]  # the rows of each batch in it

    @property
    def rows(self) -> int:
        return sum(self.counts)


class Entry(msgspec.Struct, frozen=True):
    files: tuple[FedFile, ...]
    before: tuple[int, ...]  # rows of each split in all entries before this one
    files_before: int
    last: dict[str, int]  # each query's newest batch, this one included
    end: bool = False  # nothing will ever follow

    def of_split(self, split: int) -> list[FedFile]:
        splits = len(self.before)
        return [file for place, file in enumerate(self.files, self.files_before) if place % splits == split]

    def behind(self) -> tuple[int, ...]:
        """Rows of each split up to the end of this entry."""
        added = (sum(file.rows for file in self.of_split(split)) for split in range(len(self.before)))
        return tuple(before + more for before, more in zip(self.before, added, strict=True))


_entry = msgspec.json.Decoder(Entry).decode
_description = msgspec.json.Decoder(Description).decode


def folder_of(storage: str | Path, stream: str) -> Path:
    return Path(storage).absolute() / FEEDS / quote(stream, safe="")


class FeedLog:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.data = self.folder / "data"
        self._entries = Entries(self.folder / "log")

    # What the stream is

    def describe(self, wanted: Description) -> None:
        """Settles it, or raises if an earlier run settled it otherwise."""
        Entries(self.folder).create(_DESCRIPTION, msgspec.json.encode(wanted))
        there = self.description()
        if there != wanted:
            raise StorageError(
                f"the feed in {str(self.folder)!r} was begun with {_told(there)}, and is to go on with "
                f"{_told(wanted)}. Use the same, or another storage folder."
            )

    def description(self) -> Description:
        data = Entries(self.folder).read(_DESCRIPTION)
        if data is None:
            raise StorageError(
                f"there is no feed in {str(self.folder)!r}. A run with this storage, whose stream comes from a "
                "tm.sources.Feed, makes it: start that first."
            )
        return self._decoded(_DESCRIPTION, data, _description)

    # Who writes

    def append(self, query: str, batch: int, files: Sequence[FedFile]) -> bool:
        """Adds a batch of a query in one step; False, and nothing happened, if the log has it already."""
        splits = self.description().splits
        while True:
            number, newest = self._newest()
            last = {} if newest is None else newest.last
            if batch <= last.get(query, -1):
                return False
            if newest is not None and newest.end:
                raise StorageError(f"the feed in {str(self.folder)!r} has ended: it takes no more rows.")
            if self._add(number + 1, newest, splits, tuple(files), {**last, query: batch}):
                return True

    def has(self, query: str, batch: int) -> bool:
        _, newest = self._newest()
        return newest is not None and batch <= newest.last.get(query, -1)

    def end(self) -> None:
        """No more rows will come. Does nothing if that was said before."""
        splits = self.description().splits
        while True:
            number, newest = self._newest()
            if newest is not None and newest.end:
                return
            if self._add(number + 1, newest, splits, (), {} if newest is None else newest.last, end=True):
                return

    def _add(
        self,
        number: int,
        newest: Entry | None,
        splits: int,
        files: tuple[FedFile, ...],
        last: dict[str, int],
        *,
        end: bool = False,
    ) -> bool:
        before = (0,) * splits if newest is None else newest.behind()
        files_before = 0 if newest is None else newest.files_before + len(newest.files)
        entry = Entry(files, before, files_before, last, end)
        return self._entries.create(str(number), msgspec.json.encode(entry))

    def _newest(self) -> tuple[int, Entry | None]:
        """Entries have no gaps, so the last is found by halving."""
        if not self._entries.has("0"):
            return -1, None
        there, step = 0, 1
        while self._entries.has(str(there + step)):
            there, step = there + step, step * 2
        while step > 1:
            step //= 2
            if self._entries.has(str(there + step)):
                there += step
        newest = self.entry(there)
        assert newest is not None, "it was there, and nothing is taken out"
        return there, newest

    # Who reads

    def entry(self, number: int) -> Entry | None:
        data = self._entries.read(str(number))
        return None if data is None else self._decoded(f"log/{number}", data, _entry)

    def find(self, split: int, position: int) -> int:
        """The last entry before which this split has no more than `position` rows; 0 if there is none yet."""
        low, high = 0, self._newest()[0]
        while low < high:
            middle = (low + high + 1) // 2
            entry = self.entry(middle)
            assert entry is not None, "nothing is taken out"
            if entry.before[split] <= position:
                low = middle
            else:
                high = middle - 1
        return max(low, 0)

    def path(self, file: FedFile) -> str:
        return str(self.data / file.name)

    # Files

    def batch_folder(self, query: str, batch: int) -> Path:
        return self.data / quote(query, safe="") / str(batch)

    def clean(self, query: str, batch: int, kept: Sequence[str]) -> None:
        """Takes away what tasks of this batch left that are no part of it."""
        folder = self.batch_folder(query, batch)
        with reaching(folder):
            if folder.exists():
                for path in folder.iterdir():
                    if str(path.relative_to(self.data)) not in kept:
                        path.unlink(missing_ok=True)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with reaching(self.data / name):
                (self.data / name).unlink(missing_ok=True)

    def _decoded(self, name: str, data: bytes, decode: Callable[[bytes], Decoded]) -> Decoded:
        try:
            return decode(data)
        except msgspec.MsgspecError as error:
            raise StorageError(f"{str(self.folder / name)!r} is torn or was altered: {error}.") from error


def _told(description: Description) -> str:
    return f"({description.schema}), timestamp={description.timestamp!r}, splits={description.splits}"
