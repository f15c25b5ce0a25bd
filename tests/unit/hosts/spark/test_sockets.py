"""How sockets are set up: nothing is dropped on top of credit, and a port that can't be had is said with a remedy."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

import socket
import time

import pytest
import zmq

from tests.unit.hosts.spark.wires import HOST, KEYS, Place, eventually, knock
from tidemill.core.ids import Peer
from tidemill.errors import RunError
from tidemill.hosts.spark import sockets
from tidemill.hosts.spark.protocol import Welcome
from tidemill.hosts.spark.sockets import LARGEST_FRAME, bound_port, connected


def test_nothing_is_dropped_on_top_of_credit(place, closing):
    mine = place()
    way = closing(connected(mine.transport._context, KEYS, mine.address))
    for each in (mine.transport._in, way):
        assert (each.sndhwm, each.rcvhwm, each.maxmsgsize) == (0, 0, LARGEST_FRAME)
    assert mine.transport._in.get(zmq.CURVE_SERVER)
    with pytest.raises(zmq.ZMQError):
        mine.transport._in.send_multipart([b"nobody", b"x"])


def test_a_bound_port_takes_connections_before_anybody_uses_it(closing):
    bound = closing(bound_port(HOST))
    assert bound.get_inheritable()
    closing(knock(bound.getsockname()[1]))
    assert bound.accept()[0].close() is None


def test_each_has_a_port_of_its_own(closing):
    assert closing(bound_port(HOST)).getsockname() != closing(bound_port(HOST)).getsockname()


def test_an_address_that_is_not_ours_is_an_error_with_a_remedy():
    with pytest.raises(RunError, match=r"can't listen on 192\.0\.2\.1: .*\. Give an address .*: spark\.driver\.host"):
        bound_port("192.0.2.1")
    with pytest.raises(RunError, match=r"can't listen on no\.such\.host\.invalid: .*spark\.driver\.host"):
        bound_port("no.such.host.invalid")


# Refusals


def friend_of(theirs):
    """One who has the keys, and has been heard."""
    mine, peer = Place(), Peer(0, 1)
    mine.transport.know({peer: theirs.address})
    mine.transport.control(peer, Welcome(1))
    theirs.hears(len(theirs.heard) + 1)
    return mine


def test_ones_own_who_leave_are_no_strangers(place):
    theirs = place()
    for _ in range(3):
        friend_of(theirs).close()
    time.sleep(0.05)
    theirs.look()
    assert theirs.transport.refused == 0


def test_a_stranger_is_counted_at_once_where_nobody_else_came(place):
    theirs = place()
    friend_of(theirs).close()
    knock(theirs.port, b"GET / HTTP/1.1\r\n\r\n").close()
    theirs.refuses()
    assert theirs.said == ["a connection that spoke another protocol was refused"]


def test_strangers_are_told_from_ones_own_beside_them(place, closing):
    """Both kinds are let in and put out, and ZeroMQ does not say which was which."""
    theirs = place()
    strangers = [closing(socket.create_connection((HOST, theirs.port))) for _ in range(2)]
    refusals = theirs.transport._refusals
    eventually(lambda: len(refusals._inside) == 2, do=theirs.look)
    friends = [friend_of(theirs) for _ in range(3)]
    friends.pop().close()
    for line in strangers:
        line.sendall(b"GET / HTTP/1.1\r\n\r\n")
    eventually(lambda: refusals._left == 3, do=theirs.look)
    assert theirs.transport.refused <= 2, "who came just now may still be shaking hands"
    long_ago = time.monotonic() - 3 * sockets.HANDSHAKE_MS / 1000
    refusals._inside = {at: visit._replace(since=long_ago) for at, visit in refusals._inside.items()}
    theirs.look()
    assert theirs.transport.refused == 2
    assert theirs.said == ["a connection that spoke another protocol was refused"]
    for mine in friends:
        mine.close()
    eventually(lambda: refusals._left == 5, do=theirs.look)
    assert theirs.transport.refused == 2


def test_one_that_knocks_and_goes_is_counted(place):
    theirs = place()
    line = socket.create_connection((HOST, theirs.port))
    line.close()
    theirs.refuses()
    assert theirs.said == ["a connection that failed its handshake was refused"]
