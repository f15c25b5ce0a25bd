"""Lifelines: one plain connection between each worker and the coordinator, over which nothing is ever said.

The kernel closes it the moment a process dies, however it dies, and answers for it while the process is stopped or
computes for minutes. So an end of file is a death, at once and for sure, and silence is nothing. A machine that is
gone answers no more, and the kernel gives up after a few seconds (keep-alive).

Who opens one proves with the run's keys who it is: it answers a challenge.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from tidemill.core.ids import Incarnation, Micros, Peer, WorkerId
from tidemill.errors import RunError
from tidemill.hosts.spark.secrets import Secrets

CHALLENGE: Final = 32
PROOF: Final = 32
WHO: Final = struct.Struct("!qq")
PATIENCE: Final = 5.0
"""Seconds within which a connection has to say who it is."""


def _stay_alive(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def hold(address: tuple[str, int], me: Peer, secrets: Secrets) -> socket.socket:
    """A worker's end. Readable means that the coordinator's process is no more."""
    line = None
    try:
        line = socket.create_connection(address, timeout=PATIENCE)
        challenge = _exactly(line, CHALLENGE)
        line.sendall(WHO.pack(*me) + secrets.proof(challenge + WHO.pack(*me)))
    except OSError as error:
        if line is not None:
            line.close()
        raise RunError(
            f"{me} can't reach the coordinator at {address[0]}:{address[1]}: {error}. The executors must reach the "
            "driver's address: set spark.driver.host to one that they do."
        ) from error
    _stay_alive(line)
    line.settimeout(0)
    return line


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data


def is_cut(line: socket.socket) -> bool:
    """Whether the other end is gone. Only for one that can be read."""
    try:
        return line.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class _Stranger:
    """A connection that has not yet said who it is."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.since: Micros | None = None  # the first look at it: a clock that was read before may be far behind
        self.challenge = os.urandom(CHALLENGE)
        self.answer = b""
        line.settimeout(0)


class Lifelines:
    """The coordinator's ends. `watch` and `unwatch` are those of whoever waits."""

    def __init__(
        self,
        bound: socket.socket,
        secrets: Secrets,
        *,
        watch: Callable[[Any, Callable[[], None]], None],
        unwatch: Callable[[Any], None],
        gone: Callable[[Peer], None],
        say: Callable[[str], None],
    ) -> None:
        self._door = bound
        self._secrets = secrets
        self._watch, self._unwatch = watch, unwatch
        self._gone = gone
        self._say = say
        self._strangers: dict[socket.socket, _Stranger] = {}
        self._lines: dict[Peer, socket.socket] = {}
        self.refused = 0
        bound.settimeout(0)
        watch(bound, self._knock)

    def held(self) -> list[Peer]:
        """Whose processes are alive."""
        return list(self._lines)

    def _knock(self) -> None:
        try:
            line, _ = self._door.accept()
        except OSError:
            return  # it went away again
        stranger = self._strangers[line] = _Stranger(line)
        self._watch(line, lambda: self._hear(stranger))
        with contextlib.suppress(OSError):  # that one went away again will be heard
            line.send(stranger.challenge)

    def _hear(self, stranger: _Stranger) -> None:
        try:
            more = stranger.line.recv(WHO.size + PROOF - len(stranger.answer))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        stranger.answer += more
        if not more:
            self._refuse(stranger)
        elif len(stranger.answer) == WHO.size + PROOF:
            self._admit(stranger)

    def _admit(self, stranger: _Stranger) -> None:
        who, proof = stranger.answer[: WHO.size], stranger.answer[WHO.size :]
        if not self._secrets.proves(stranger.challenge + who, proof):
            self._refuse(stranger)
            return
        worker, incarnation = WHO.unpack(who)
        peer, line = Peer(WorkerId(worker), Incarnation(incarnation)), stranger.line
        if peer in self._lines:
            self._refuse(stranger)  # a process has one
            return
        del self._strangers[line]
        _stay_alive(line)
        self._lines[peer] = line
        self._watch(line, lambda: self._look(peer))

    def _refuse(self, stranger: _Stranger) -> None:
        self._unwatch(stranger.line)
        self._strangers.pop(stranger.line, None)
        stranger.line.close()
        self.refused += 1
        if self.refused == 1:
            self._say("a lifeline without the run's keys was refused")

    def _look(self, peer: Peer) -> None:
        if is_cut(self._lines[peer]):
            line = self._lines.pop(peer)
            self._unwatch(line)
            line.close()
            self._gone(peer)

    def look(self, now: Micros) -> None:
        """With every tick: who has not said who it is for too long?"""
        for stranger in list(self._strangers.values()):
            if stranger.since is None:
                stranger.since = now
            elif now - stranger.since > PATIENCE * 1e6:
                self._hear(stranger)  # it may have answered long ago: the slow one may have been this process
                if stranger.line in self._strangers:
                    self._refuse(stranger)

    def close(self) -> None:
        for line in (*self._strangers, *self._lines.values(), self._door):
            line.close()
