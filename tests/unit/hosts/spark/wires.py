"""Transports on this machine's own loopback, strangers who come to their doors, and patience."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path

import zmq

from tests.unit.core.pipes import pipeline
from tidemill.core.ids import Micros
from tidemill.hosts.spark.secrets import new_secrets
from tidemill.hosts.spark.transport import Transport

HOST = "127.0.0.1"
KEYS = new_secrets()
GRAPH = pipeline()


def eventually(what, seconds=5.0, do=lambda: None):
    """What becomes true within some seconds; `do` is done meanwhile."""
    until = time.monotonic() + seconds
    while True:
        do()
        found = what()
        if found:
            return found
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.005)


class Place:
    """A process of a run, as far as its transport goes."""

    def __init__(self, keys=KEYS, bound=None):
        self.heard: list = []
        self.said: list[str] = []
        self.transport = Transport(
            keys,
            HOST,
            GRAPH,
            hear=lambda identity, message: self.heard.append((identity, message)),
            say=self.said.append,
            bound=bound,
        )
        self.packets: list = []
        self.address = self.transport.address

    @property
    def port(self):
        return int(self.address.rpartition(":")[2])

    def look(self):
        self.transport.look(Micros(0))
        self.packets += self.transport.receive()

    def gets(self, count, seconds=5.0):
        """So many packets, as they come."""
        eventually(lambda: len(self.packets) >= count, seconds, self.look)
        taken, self.packets = self.packets[:count], self.packets[count:]
        return taken

    def hears(self, count=1, seconds=5.0):
        eventually(lambda: len(self.heard) >= count, seconds, self.look)
        return [message for _, message in self.heard]

    def refuses(self, count=1, seconds=5.0):
        """Until so many were refused."""
        eventually(lambda: self.transport.refused >= count, seconds, self.look)

    def close(self, linger=0):
        if not self.transport._closed:  # not yet in the middle of a test
            self.transport.close(linger)


class Stranger:
    """A ZeroMQ socket that is not set up as ours are."""

    def __init__(self, address, *, keys=None, server=None):
        self._context: zmq.Context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = -1  # it comes once
        if keys is not None:
            self.socket.curve_serverkey = (server or keys).public
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
        self.socket.connect(address)

    def send(self, *frames):
        with contextlib.suppress(zmq.Again):  # it was shown the door before it could say a word
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    def close(self):
        self._context.destroy(0)


def knock(port, data=b""):
    """A plain connection on which something was said."""
    line = socket.create_connection((HOST, port), timeout=5)
    line.sendall(data)
    return line


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def threads():
    return {thread.name for thread in threading.enumerate()}
