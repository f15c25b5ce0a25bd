"""Packets between the processes of a run, and the one place where such a process waits.

Every process listens on one socket and has one more to each process that it sends to, so that the way there is in
order. Where the others listen is in a book that the coordinator keeps. A packet for somebody who is not in it yet is
dropped: the link sends it again, and by then the book has come. What arrives and can't be read is refused, counted, and
told once; nothing that a stranger sends gets so far (`sockets`). What is too large to be let in anywhere never leaves.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq

from tidemill.core.graph import Graph
from tidemill.core.ids import Micros, Peer
from tidemill.core.messages import Packet
from tidemill.core.wire import frames_of, packet_of
from tidemill.errors import RunError
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.secrets import Secrets
from tidemill.hosts.spark.sockets import LARGEST_FRAME, Refusals, authenticator, connected, listening

PACKET: Final = b"p"
PARTS: Final = b"P"
"""A packet of several frames."""

CONTROL: Final = b"c"

LARGEST_SENT: Final = LARGEST_FRAME - 64
"""Encryption adds some bytes."""

AT_ONCE: Final = 64
"""How many messages are taken in before the core has a turn."""

Hear = Callable[[bytes, protocol.Control], None]


class Transport:
    def __init__(
        self,
        secrets: Secrets,
        host: str,
        graph: Graph,
        *,
        hear: Hear,
        say: Callable[[str], None],
        bound: socket.socket | None = None,
    ) -> None:
        self._graph = graph
        self._secrets = secrets
        self._hear = hear
        self._say = say
        self._context: zmq.Context[Any] = zmq.Context()
        self._guard = authenticator(self._context, secrets)
        self._in = listening(self._context, secrets, host, bound)
        self._refusals = Refusals(self._in, say)
        self._out: dict[Peer, zmq.Socket[Any]] = {}
        self._book: dict[Peer, str] = {}
        self._unreadable = 0
        self._waker, self._woken = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._ends = threading.Lock()  # held to use the other end of the pipe, and to close it
        self._closed = False
        self._fd: int = self._in.FD
        self._watched: dict[Any, Callable[[], None]] = {self._waker: self._slept}

    @property
    def address(self) -> str:
        """Where this process listens."""
        return self._in.get_string(zmq.LAST_ENDPOINT)

    @property
    def refused(self) -> int:
        return self._refusals.count + self._unreadable

    @property
    def _readable(self) -> bool:
        events: Any = self._in.getsockopt(zmq.EVENTS)
        return bool(events & zmq.POLLIN)

    def watch(self, file: Any, ready: Callable[[], None]) -> None:
        """Waits for this too, and calls `ready` when it can be read."""
        self._watched[file] = ready

    def unwatch(self, file: Any) -> None:
        self._watched.pop(file, None)

    # The book

    def know(self, book: Mapping[Peer, str]) -> None:
        """Where everybody listens, from now on. Ways to those who are not named are closed."""
        before, self._book = self._book, dict(book)
        for peer in [known for known in self._out if self._book.get(known) != before.get(known)]:
            self._close_way(peer)

    def forget(self, peer: Peer) -> None:
        self._book.pop(peer, None)
        self._close_way(peer)

    def _close_way(self, peer: Peer) -> None:
        way = self._out.pop(peer, None)
        if way is not None:
            way.close(0)

    def _way(self, peer: Peer) -> zmq.Socket[Any] | None:
        way = self._out.get(peer)
        if way is None and peer in self._book:
            way = self._out[peer] = connected(self._context, self._secrets, self._book[peer])
        return way

    # Out

    def send(self, packet: Packet) -> None:
        way = self._out.get(packet.to) or self._way(packet.to)
        if way is None:
            return
        head, *rest = frames = frames_of(packet)
        if max(map(len, frames)) > LARGEST_SENT:
            raise _too_large(packet, max(map(len, frames)))
        if not rest:
            way.send(PACKET + head)
            return
        way.send(PARTS + head, zmq.SNDMORE)
        for frame in rest[:-1]:
            way.send(frame, zmq.SNDMORE)
        way.send(rest[-1], copy=False)

    def control(self, to: Peer, message: protocol.Control) -> None:
        way = self._way(to)
        if way is not None:
            way.send(CONTROL + protocol.encode(message))

    def answer(self, identity: bytes, message: protocol.Control) -> bool:
        """To one who has no listening socket of its own: the driver. False if it is not there."""
        try:
            self._in.send_multipart([identity, CONTROL + protocol.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    # In

    def receive(self) -> list[Packet]:
        """What has arrived; control messages are heard on the way. Never waits."""
        packets: list[Packet] = []
        for _ in range(AT_ONCE):
            if not self._readable:
                break
            identity, first = self._in.recv(), self._in.recv()
            rest = self._in.recv_multipart(copy=False) if self._in.getsockopt(zmq.RCVMORE) else []
            try:
                packet = self._read(identity, first, [frame.buffer for frame in rest])
            except ValueError as error:
                self._refuse(str(error))
                continue
            if packet is not None:
                packets.append(packet)
        return packets

    def _read(self, identity: bytes, first: bytes, rest: list[memoryview]) -> Packet | None:
        kind, head = first[:1], memoryview(first)[1:]
        if kind == (PARTS if rest else PACKET):
            return packet_of([head, *rest], self._graph)
        if kind != CONTROL or rest:
            raise ValueError("neither a packet nor a control message")
        self._hear(identity, protocol.decode(head))
        return None

    def _refuse(self, why: str) -> None:
        self._unreadable += 1
        if self._unreadable == 1:
            self._say(f"a message that can't be read was refused: {why}")

    def look(self, _: Micros) -> None:
        """With every tick: who was refused at the door? And what else is watched, for one who is busy never waits."""
        self._refusals.look()
        self._select([*self._watched], 0.0)

    # Waiting

    def wait(self, micros: Micros) -> None:
        if self._readable:
            return  # the descriptor tells of changes only
        self._select([self._fd, *self._watched], micros / 1e6)

    def _select(self, files: list[Any], seconds: float) -> None:
        for file in select.select(files, [], [], seconds)[0]:
            ready = self._watched.get(file)
            if ready is not None:
                ready()

    def wake(self) -> None:
        with self._ends, contextlib.suppress(BlockingIOError):  # then it is awake as it is
            if not self._closed:
                os.write(self._woken, b"\0")

    def _slept(self) -> None:
        os.read(self._waker, 4096)

    def close(self, linger: int = 0) -> None:
        """`linger`: how many milliseconds what was sent last has to leave."""
        for way in self._out.values():
            way.close(linger)
        self._refusals.close()
        self._in.close(linger)
        self._guard.stop()
        self._context.destroy(linger)
        with self._ends:  # whoever comes later must not write into what has this file's number by then
            self._closed = True
            os.close(self._waker)
            os.close(self._woken)


def _too_large(packet: Packet, size: int) -> RunError:
    """Its receiver would cut the connection, and the link would send it again, for ever."""
    return RunError(
        f"a bundle for {packet.to} has {size / 2**20:,.0f} MiB, and more than {LARGEST_FRAME / 2**20:,.0f} MiB can't "
        "travel at once: its records are too large. Keep such things elsewhere, and send where they are."
    )
