"""What the system knows of processes: who is whose child, who listens where, what is left when all should be gone."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PROC = Path("/proc")
LISTENING = "0A"


def eventually(true: Callable[[], Any], within: float, what: str) -> float:
    """Waits until it is so, and gives how long that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within, f"not within {within} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def is_alive(pid: int) -> bool:
    """A zombie is dead: it only waits for its parent to look."""
    return (_stat(pid) or "Z")[0] not in "ZX"


def _stat(pid: int) -> str | None:
    """From the state onwards: the name before it may hold anything."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].strip()
    return None


def parent_of(pid: int) -> int:
    stat = _stat(pid)
    return int(stat.split()[1]) if stat else 0


def process_group(pid: int) -> int:
    """Whom Ctrl-C on a terminal reaches."""
    return os.getpgid(pid)


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def every_process() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def descendants(pid: int) -> set[int]:
    """All that it started, and what those started, as long as the chain is whole."""
    parents = {child: parent_of(child) for child in every_process()}
    found: set[int] = set()
    more = {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return {child for child in found if is_alive(child)}


def coordinator_of(driver: int) -> int:
    (found,) = (pid for pid in descendants(driver) if "tidemill.hosts.spark.coordinator" in command_of(pid))
    return found


def listening_ports(pids: Iterable[int]) -> set[int]:
    """The TCP ports that these processes listen on."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                sockets[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    return {sockets[link] for pid in pids for link in _links(pid) if link in sockets}


def _links(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(entry)  # noqa: PTH115 - it names no path


def open_files() -> int:
    return len(list((PROC / "self" / "fd").iterdir()))


def temporary_things() -> set[str]:
    return {entry.name for entry in Path(tempfile.gettempdir()).iterdir()}


def is_python_of_spark(pid: int) -> bool:
    return "pyspark.daemon" in command_of(pid) or "pyspark/daemon" in command_of(pid)
