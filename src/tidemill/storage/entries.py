"""A folder of small files, each made once and whole by whoever comes first: what logs of commits are built on.

This is the only place where such files are touched. It asks three things of a file system: that a link fails where
something is already, that what was made durable is found again, and that a folder can be listed. An object store with
conditional puts has all three, so one can stand here later, and nothing above would know.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidemill.errors import StorageError

BEING_MADE: Final = ".making-"
"""How the names of files begin that are not whole yet. A crash may leave them; nobody reads them."""


class Entries:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, name: str, data: bytes) -> bool:
        """Makes the file with these bytes, durable and whole; False if there is one of this name already."""
        with reaching(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            making = _written(self.folder, data)
            try:
                os.link(making, self.folder / name)
            except FileExistsError:
                return False
            finally:
                making.unlink(missing_ok=True)
            make_folder_durable(self.folder)
        return True

    def read(self, name: str) -> bytes | None:
        """None if there is no such file."""
        with reaching(self.folder):
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def has(self, name: str) -> bool:
        with reaching(self.folder):
            return (self.folder / name).exists()

    def names(self) -> list[str]:
        """Of all that are whole, in no order; none if there is no folder."""
        with reaching(self.folder):
            try:
                return [entry.name for entry in os.scandir(self.folder) if not entry.name.startswith(BEING_MADE)]
            except FileNotFoundError:
                return []

    def remove(self, name: str) -> None:
        with reaching(self.folder):
            (self.folder / name).unlink(missing_ok=True)


def _written(folder: Path, data: bytes) -> Path:
    """A new file, durable under a name that nobody reads."""
    handle, name = tempfile.mkstemp(prefix=BEING_MADE, dir=folder)
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)  # for others to read, as any file
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        made.unlink()
        raise
    return made


def make_durable(path: Path) -> None:
    """The file's bytes, and then its name."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    make_folder_durable(path.parent)


def make_folder_durable(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_REMEDIES: Final = {
    errno.ENOSPC: "the disk is full. Make room: what is committed is whole",
    errno.EDQUOT: "the disk's quota is used up. Make room: what is committed is whole",
    errno.EACCES: "it may not be written. Give this user the right to, or name another folder",
    errno.EPERM: "it may not be written. Give this user the right to, or name another folder",
    errno.EROFS: "its file system is read-only. Name another folder",
    errno.ENOTDIR: "there is a file where a folder should be. Name another folder",
    errno.EEXIST: "there is a file where a folder should be. Name another folder",
    errno.EOPNOTSUPP: "its file system can't make links, which whole commits rest on. Name a folder on another",
}


@contextlib.contextmanager
def reaching(what: Path) -> Iterator[None]:
    """Says of what the operating system refuses which folder or file it was, and what may help."""
    try:
        yield
    except OSError as error:
        why = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}")
        raise StorageError(f"{str(what)!r} can't be used: {why}.") from error
