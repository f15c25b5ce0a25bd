"""Storage that outlives every process: logs with fences, the run's journal, and the pieces that sinks staged.

What is stored is bytes, and they can be cut in half. A write that a process asked for may be applied after the process
died, as a packet to a real store would be; then the fence is all that stands between it and a newer owner's data.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.core.ids import Generation
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.world import World
from tidemill.storage.frames import frame, whole_frames

RETRY_WHEN_FULL = 50_000


@dataclass
class _Log:
    epoch: int = -1
    data: bytearray = field(default_factory=bytearray)
    waiting: deque[tuple[bool, Callable[[], None]]] = field(default_factory=deque)  # done one after another


@dataclass(frozen=True)
class Write:
    """For the checkers: an append that was let in."""

    log: str
    epoch: int
    entries: int


@dataclass(frozen=True)
class Journaled:
    """For the checkers: an entry of the journal that was let in, and the newest claim by then."""

    generation: Generation
    claimed: Generation
    entry: bytes


class Disk:
    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self._logs: dict[str, _Log] = {}
        self._journal = bytearray()
        self._generation = Generation(0)
        self._pieces: dict[str, bytes] = {}
        self._full_until = 0
        self.writes: list[Write] = []
        self.counts: Counter[str] = Counter()
        self.claims: list[Generation] = []
        self.journaled: list[Journaled] = []

    def fill(self, until: int) -> None:
        """No room for a while: whoever writes has to try again."""
        self._full_until = until

    def _delayed(self, action: Callable[[], None], *, writes: bool) -> None:
        def apply() -> None:
            if writes and self._full_until > self._world.now:
                self.counts["writes that found the disk full"] += 1
                self._world.after(RETRY_WHEN_FULL, apply)
            else:
                action()

        self._world.after(int(self._world.chance.expovariate(1 / self._faults.disk_latency)), apply)

    def _in_turn(self, log: _Log, action: Callable[[], None], *, writes: bool) -> None:
        """Operations on one log keep the order in which they were asked for."""
        log.waiting.append((writes, action))
        if len(log.waiting) == 1:
            self._next(log)

    def _next(self, log: _Log) -> None:
        writes, action = log.waiting[0]

        def apply() -> None:
            action()
            log.waiting.popleft()
            if log.waiting:
                self._next(log)

        self._delayed(apply, writes=writes)

    # Logs

    def open_log(self, name: str, epoch: int, *, last: bool, done: Callable[[list[bytes] | None], None]) -> None:
        """Fences lower epochs and gives the whole entries; `None` if this epoch is fenced itself.

        With `last`, nobody will append any more: whoever wants may read, and the fence only rises.
        """
        log = self._logs.setdefault(name, _Log())

        def apply() -> None:
            if epoch <= log.epoch and not last:
                self.counts["writes refused"] += 1
                done(None)
                return
            log.epoch = max(log.epoch, epoch)
            whole = whole_frames(log.data)
            self.counts["torn logs found"] += whole.torn
            del log.data[whole.end :]
            done(whole.entries)

        self._in_turn(log, apply, writes=False)

    def append(self, name: str, epoch: int, entries: list[bytes], done: Callable[[bool], None]) -> None:
        log = self._logs.setdefault(name, _Log())

        def apply() -> None:
            if epoch != log.epoch:
                self.counts["writes refused"] += 1
                done(False)  # noqa: FBT003 - the answer itself
                return
            for entry in entries:
                log.data += frame(entry)
            self.writes.append(Write(name, epoch, len(entries)))
            done(True)  # noqa: FBT003 - the answer itself

        self._in_turn(log, apply, writes=True)

    def tear(self, name: str, epoch: int, entries: list[bytes]) -> None:
        """An append whose process dies: some whole entries of it, and a part of the next."""
        log = self._logs.setdefault(name, _Log())
        data = b"".join(map(frame, entries))
        cut = self._world.between(0, max(len(data) - 1, 0))

        def apply() -> None:
            if epoch == log.epoch and not whole_frames(log.data).torn:
                log.data += data[:cut]

        self._in_turn(log, apply, writes=False)

    # The journal

    def claim(self, done: Callable[[Generation, list[bytes]], None]) -> None:
        def apply() -> None:
            self._generation = Generation(self._generation + 1)
            self.claims.append(self._generation)
            whole = whole_frames(self._journal)
            self.counts["torn journals found"] += whole.torn
            del self._journal[whole.end :]
            done(self._generation, whole.entries)

        self._delayed(apply, writes=False)

    def write_journal(self, generation: Generation, entry: bytes, done: Callable[[bool], None]) -> None:
        def apply() -> None:
            if generation != self._generation:
                self.counts["writes refused"] += 1
                done(False)  # noqa: FBT003 - the answer itself
                return
            self._journal += frame(entry)
            self.journaled.append(Journaled(generation, self.claims[-1], entry))
            done(True)  # noqa: FBT003 - the answer itself

        self._delayed(apply, writes=True)

    def tear_journal(self, generation: Generation, entry: bytes) -> None:
        data = frame(entry)
        cut = self._world.between(0, len(data) - 1)

        def apply() -> None:
            if generation == self._generation and not whole_frames(self._journal).torn:
                self._journal += data[:cut]

        self._delayed(apply, writes=False)

    def journal(self) -> list[bytes]:
        return whole_frames(self._journal).entries

    # Pieces

    def put_piece(self, name: str, batches: list[bytes], done: Callable[[], None]) -> None:
        data = b"".join(map(frame, batches))

        def apply() -> None:
            self._pieces[name] = data
            done()

        self._delayed(apply, writes=True)

    def tear_piece(self, name: str, batches: list[bytes]) -> None:
        data = b"".join(map(frame, batches))
        self._pieces[name] = data[: self._world.between(0, max(len(data) - 1, 0))]

    def piece(self, name: str) -> list[bytes]:
        """A piece that a commit lists. One that is not whole must not have been listed."""
        whole = whole_frames(self._pieces[name])
        assert not whole.torn, f"the commit lists the torn piece {name}"
        return whole.entries
