"""The journal of what happened in a run: one line of JSON for each happening, to be read when all is over, or while it
goes on.

It serves the curious, and nothing depends on it. So writing never fails: what can't be written is counted, and the
journal says how many are missing once it can be written again. Every line is written whole, by one call, behind what
others wrote: a process that is killed leaves one torn line at most, and the next to write begins a line of its own. A
journal that has reached its limit is renamed, and a new one begun; one old one is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import BinaryIO, Final

import msgspec

from tidemill.observe.wording import counted

JOURNAL: Final = "journal.jsonl"
"""How a journal is called in the storage folder of its run."""

ITSELF: Final = "journal"
"""Who says that happenings are `missed` or that a line is `damaged`."""

LIMIT: Final = 64 * 2**20
PAUSE: Final = 1.0
"""Seconds from one failure to the next try: a full disk is not asked at every happening."""

_SHOWN: Final = 80  # of a damaged line


class Happening(msgspec.Struct, frozen=True):
    at: int
    """Wall time in microseconds since the epoch, by the clock of who says so."""

    who: str
    what: str
    about: str = ""


def old_one(path: Path) -> Path:
    """Where a journal that has reached its limit is kept."""
    return path.with_name(f"{path.name}.1")


def line_of(happening: Happening) -> bytes:
    try:
        return _encode(happening) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, as in the name of a file that is no text
        who, what, about = (
            text.encode("utf-8", "backslashreplace").decode()
            for text in (happening.who, happening.what, happening.about)
        )
        return _encode(Happening(happening.at, who, what, about)) + b"\n"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Happening).decode


class JournalWriter:
    """Appends to the journal at `path`; several processes may. `on_trouble` is told once, when something is missed."""

    def __init__(
        self, path: str | os.PathLike[str], *, limit: int = LIMIT, on_trouble: Callable[[str], None] | None = None
    ) -> None:
        self.path = Path(path)
        self.missed = 0
        """How many happenings could not be written."""

        self._limit = limit
        self._on_trouble = on_trouble
        self._untold = 0  # missed, and the journal does not say so yet
        self._file: int | None = None
        self._not_before = -float("inf")
        self._closed = False
        self._lock = Lock()

    def write(self, happening: Happening) -> None:
        trouble = None
        with self._lock:
            if self._closed or monotonic() < self._not_before:
                self._miss()
                return
            try:
                self._append(happening)
            except OSError as error:
                trouble = self._give_up_for_now(error)
        if trouble is not None:
            trouble()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_file()

    def _append(self, happening: Happening) -> None:
        line = line_of(happening)
        if self._untold:
            line = line_of(Happening(happening.at, ITSELF, "missed", counted(self._untold, "happening"))) + line
        file = self._room_for(len(line))
        data = b"\n" + line if _ends_torn(file) else line
        written = os.write(file, data)
        if written < len(data):
            raise OSError(f"{written} of {len(data)} bytes were written")
        self._untold = 0

    def _room_for(self, more: int) -> int:
        """The journal's file, or a new one when it is full."""
        file = self._opened()
        size = os.fstat(file).st_size
        if size == 0 or size + more <= self._limit:
            return file
        if not _locked(file):
            return file  # another is about to rename it
        if _is_at(file, self.path):
            self.path.replace(old_one(self.path))
        self._close_file()
        return self._opened()

    def _opened(self) -> int:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        return self._file

    def _give_up_for_now(self, error: OSError) -> Callable[[], None] | None:
        first = self.missed == 0
        self._miss()
        self._not_before = monotonic() + PAUSE
        self._close_file()
        if not first or self._on_trouble is None:
            return None
        tell, said = (
            self._on_trouble,
            f"The journal {self.path} can't be written ({error}); the run goes on without it.",
        )
        return lambda: tell(said)

    def _miss(self) -> None:
        self.missed += 1
        self._untold += 1

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


class JournalReader:
    """Reads a journal from its beginning, the old one first, and later what has come since."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._begun = False
        self._files: list[tuple[BinaryIO, str]] = []  # with their names; the last one is still written to
        self._rest = b""  # a line of which the end is not there yet, or never will be
        self._number = 0
        self._at = 0

    def news(self) -> Iterator[Happening]:
        """What has come since the last time. A damaged line is a happening too: the journal's own."""
        self._open()
        while self._files:
            file, name = self._files[0]
            over = len(self._files) > 1 or not _is_at(file.fileno(), self.path)
            yield from self._lines(file, name)
            if not over:
                return
            file.close()
            self._files.pop(0)
            self._rest, self._number = b"", 0
            self._open()

    def close(self) -> None:
        for file, _ in self._files:
            file.close()
        self._files = []

    def _lines(self, file: BinaryIO, name: str) -> Iterator[Happening]:
        for line in file:
            whole = self._rest + line
            if not whole.endswith(b"\n"):
                self._rest = whole
                return
            self._rest = b""
            self._number += 1
            if whole.strip():  # two who mend the same torn line leave an empty one
                happening = self._read(whole, name)
                self._at = happening.at
                yield happening

    def _read(self, line: bytes, name: str) -> Happening:
        try:
            return _decode(line)
        except ValueError as error:
            shown = ascii(line[:_SHOWN].rstrip(b"\n").decode("latin-1"))
            return Happening(self._at, ITSELF, "damaged", f"line {self._number} of {name} ({error}): {shown}")

    def _open(self) -> None:
        """The new one before the old one: were it renamed in between, it would be found under both names."""
        if self._files:
            return
        paths = [self.path] if self._begun else [self.path, old_one(self.path)]
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                file = path.open("rb")
                if self._files and os.path.sameopenfile(file.fileno(), self._files[0][0].fileno()):
                    file.close()
                    continue
                self._files.insert(0, (file, path.name))
                self._begun = True


def read_journal(path: str | os.PathLike[str]) -> Iterator[Happening]:
    """All that happened, the old journal first. A torn last line is stepped over, any other damaged one is named."""
    reader = JournalReader(path)
    try:
        yield from reader.news()
    finally:
        reader.close()


def _ends_torn(file: int) -> bool:
    """Whether the last line lacks its end: whoever wrote it was killed, or the disk was full."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _locked(file: int) -> bool:
    """Whether this process may rename the file; the lock goes when the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
