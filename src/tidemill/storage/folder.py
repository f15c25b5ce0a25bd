"""A run's storage folder, held by one run at a time.

The hold is a lock of the operating system's on a file in the folder: it ends with the process that has it, however that
ends, so none is ever left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidemill.errors import StorageError

LOCK: Final = ".lock"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Path]:
    """The folder, made if it is not there, for as long as the context lasts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(
            f"the storage folder {str(folder)!r} can't be used: {error.strerror}. Name one that can be written."
        ) from error
    try:
        _lock(lock, folder)
        yield folder
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 64, 0).decode(errors="replace").strip()
        raise StorageError(
            f"the storage folder {str(folder)!r} is in use by another run{f' (process {holder})' if holder else ''}. "
            "Stop that one, or give this one a folder of its own."
        ) from None
    except OSError as error:
        raise StorageError(
            f"the storage folder {str(folder)!r} can't be locked: {error.strerror}. "
            "Name one on a file system with locks."
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
