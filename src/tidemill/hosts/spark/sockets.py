"""ZeroMQ sockets as every process of a run sets them up: encrypted, proved, never dropping anything silently."""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from tidemill.errors import RunError
from tidemill.hosts.spark.secrets import Secrets

LARGEST_FRAME: Final = 512 * 1024 * 1024
"""A larger one is no bundle of ours; ZeroMQ closes the connection that it comes on."""

HANDSHAKE_MS: Final = 5_000

REFUSALS: Final[dict[int, str]] = {
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "a connection that failed its handshake",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "a connection that spoke another protocol",
    zmq.Event.HANDSHAKE_FAILED_AUTH: "a connection without the run's keys",
}

PASSAGE: Final = (zmq.Event.ACCEPTED, zmq.Event.HANDSHAKE_SUCCEEDED, zmq.Event.DISCONNECTED)


class _OnlyUs:
    """Lets in who has the run's own key."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, _domain: str, key: bytes) -> bool:
        return hmac.compare_digest(key, self._public)


def authenticator(context: zmq.Context[Any], secrets: Secrets) -> ThreadAuthenticator:
    """Decides, in a thread of its own, who may connect to the sockets of this context."""
    quiet = logging.getLogger("tidemill.zap")
    quiet.setLevel(logging.CRITICAL)  # refusals are counted and told by `Refusals`
    made = ThreadAuthenticator(context, log=quiet)
    made.start()
    made.configure_curve_callback(domain="tidemill", credentials_provider=_OnlyUs(secrets.public))
    return made


def listening(
    context: zmq.Context[Any], secrets: Secrets, host: str, bound: socket.socket | None = None
) -> zmq.Socket[Any]:
    """A socket that others connect to: on a free port, or one that was bound before and is taken over."""
    made: zmq.Socket[Any] = context.socket(zmq.ROUTER)
    made.linger = 0
    made.sndhwm = made.rcvhwm = 0  # what is under way is bounded by credit; nothing may be dropped on top
    made.router_mandatory = True
    made.router_handover = True
    made.maxmsgsize = LARGEST_FRAME
    made.handshake_ivl = HANDSHAKE_MS
    made.curve_server = True
    made.curve_publickey, made.curve_secretkey = secrets
    made.zap_domain = b"tidemill"
    if bound is not None:
        port = bound.getsockname()[1]
        made.setsockopt(zmq.USE_FD, bound.detach())  # ZeroMQ closes it
        made.bind(f"tcp://{host}:{port}")
    else:
        made.bind(f"tcp://{host}:*")
    return made


def connected(
    context: zmq.Context[Any], secrets: Secrets, address: str, *, identity: bytes | None = None
) -> zmq.Socket[Any]:
    """A socket that leads to another process; what is sent before it is there waits."""
    made: zmq.Socket[Any] = context.socket(zmq.DEALER)
    made.linger = 0
    made.sndhwm = made.rcvhwm = 0
    made.maxmsgsize = LARGEST_FRAME
    made.reconnect_ivl = 20
    made.reconnect_ivl_max = 500
    made.handshake_ivl = HANDSHAKE_MS
    made.curve_serverkey = secrets.public
    made.curve_publickey, made.curve_secretkey = secrets
    if identity is not None:
        made.identity = identity
    made.connect(address)
    return made


def bound_port(host: str) -> socket.socket:
    """A listening socket on a free port, to be handed to the process that will use it."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, 0))
        made.listen(128)
    except OSError as error:
        made.close()
        raise RunError(
            f"the coordinator can't listen on {host}: {error.strerror or error}. Give an address of this machine that "
            "the executors reach: spark.driver.host."
        ) from error
    made.set_inheritable(True)
    return made


class _Visit(NamedTuple):
    """A connection that was let in: when, and how many had succeeded and been refused by then."""

    since: float
    succeeded: int
    told: int


class Refusals:
    """Counts the connections that a listening socket refused, and says so the first time that each kind happens.

    ZeroMQ tells of most refusals, but not of those who speak another protocol from their first bytes on: they are let
    in and put out, and nothing in between. It does not tell whose handshake succeeded either. Where nobody's did and
    nobody was refused meanwhile, it is clear who that was. Otherwise they are counted: whoever left, other than after a
    refusal that was told, and was not among those who succeeded.
    """

    def __init__(self, watched: zmq.Socket[Any], say: Callable[[str], None]) -> None:
        self.count = 0
        self._say = say
        self._said: set[int] = set()
        self._watched = watched
        self._monitor = watched.get_monitor_socket(sum(REFUSALS) | sum(PASSAGE))
        self._inside: dict[int, _Visit] = {}  # by its descriptor
        self._succeeded = self._told = self._left = self._strange = 0
        self._outward = 0  # refusals that were told, and their connections not yet put out

    def look(self) -> None:
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            self._happened(event["event"], event["value"])
        self._count_the_strange()

    def _happened(self, event: int, descriptor: int) -> None:
        if event == zmq.Event.ACCEPTED:
            self._inside[descriptor] = _Visit(time.monotonic(), self._succeeded, self._told)
        elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._succeeded += 1
        elif event == zmq.Event.DISCONNECTED:
            self._disconnected(self._inside.pop(descriptor, None))
        else:
            self._told += 1
            self._outward += 1
            self._refused(event)

    def _disconnected(self, visit: _Visit | None) -> None:
        if visit is not None and (visit.succeeded, visit.told) == (self._succeeded, self._told):
            self._refused(zmq.Event.HANDSHAKE_FAILED_PROTOCOL)
            return
        self._left += not self._outward
        self._outward = max(0, self._outward - 1)

    def _count_the_strange(self) -> None:
        """There were at least so many: who is there for longer than a handshake may take has succeeded and not left."""
        before = time.monotonic() - 2 * HANDSHAKE_MS / 1_000
        at_home = sum(visit.since < before for visit in self._inside.values())
        for _ in range(self._strange, self._left - (self._succeeded - at_home)):
            self._strange += 1
            self._refused(zmq.Event.HANDSHAKE_FAILED_PROTOCOL)

    def _refused(self, event: int) -> None:
        self.count += 1
        if event not in self._said:
            self._said.add(event)
            self._say(f"{REFUSALS[event]} was refused")

    def close(self) -> None:
        with contextlib.suppress(zmq.ZMQError):
            self._watched.disable_monitor()
        self._monitor.close(0)
